//! The compared servers as processes: started in an empty directory, stopped, and counted.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bench::ingest::{OURS, process};
use policy::time::Instant;
use volume::Clock;
use volume::task::block_on;

use super::client::Client;

/// Which server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// `plimsoll serve`.
    Ours,
    /// InfluxDB 1.x.
    Influx,
    /// VictoriaMetrics.
    Victoria,
}

/// The options of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Our server's durability: `always` or `everysec`.
    pub(super) durability: &'static str,
    /// The contract of our volume: the settings after its path.
    pub(super) contract: &'static str,
    /// Further settings in `[series]`.
    pub(super) series: &'static str,
    /// Merge soon instead of after hours without load: for rows that count bytes on disk.
    pub(super) settles: bool,
}

impl How {
    /// The usual options: up to a second may be lost with the machine.
    pub(super) const USUAL: Self = Self {
        durability: "everysec",
        contract: "contract = \"unlimited\"",
        series: "",
        settles: false,
    };
}

/// The timeout for a start or a stop.
const PATIENCE: Duration = Duration::from_secs(120);

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Ours, Self::Influx, Self::Victoria];

    /// The name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Influx => "influxdb",
            Self::Victoria => "victoria-metrics",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::Ours => "",
            Self::Influx => "influxd",
            Self::Victoria => "victoria-metrics",
        }
    }

    /// The version of its package; `None` if it is not installed. Ours always is.
    pub(super) fn version(self) -> Option<String> {
        let package = match self {
            Self::Ours => return Some(env!("CARGO_PKG_VERSION").into()),
            Self::Influx => "influxdb",
            Self::Victoria => "victoria-metrics",
        };
        // Both programs know this flag, and exit.
        let is_there = Command::new(self.program()).arg("-version").output().is_ok();
        let asked = Command::new("dpkg-query").args(["-W", "-f=${Version}", package]).output();
        let told = asked.ok().filter(|asked| asked.status.success());
        let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
        is_there.then(|| told.unwrap_or_else(|| "not a package of Debian's".into()))
    }
}

/// A running server, killed when dropped.
pub(super) struct Server {
    pub(super) kind: Kind,
    pub(super) address: SocketAddr,
    home: PathBuf,
    child: Child,
    /// Processor time of ended children before the start.
    before: Duration,
    clock: Clock,
}

/// The options of a start.
struct Start<'a> {
    home: &'a Path,
    how: How,
    log: File,
    before: Duration,
    clock: &'a Clock,
}

impl Server {
    /// Starts a server with its data in `home`, empty or from an earlier server, and waits until it answers.
    pub(super) fn start(kind: Kind, home: &Path, how: How, clock: &Clock) -> anyhow::Result<Self> {
        fs::create_dir_all(home).with_context(|| home.display().to_string())?;
        let before = process::children_time();
        let log = File::options().create(true).append(true).open(home.join("log"))?;
        let start = Start { home, how, log, before, clock };
        let started = match kind {
            Kind::Ours => Self::ours(start),
            Kind::Influx => Self::influx(start),
            Kind::Victoria => Self::victoria(start),
        };
        let server = started.with_context(|| {
            format!("{}: its log is {}", kind.name(), home.join("log").display())
        })?;
        if kind != Kind::Victoria {
            server.connect()?.send("POST /query?q=CREATE%20DATABASE%20bench", b"")?;
        }
        Ok(server)
    }

    fn ours(start: Start<'_>) -> anyhow::Result<Self> {
        let Start { home, how: How { durability, contract, series, .. }, log, before, clock } =
            start;
        // Every server has a store of keys; here it is idle.
        for dir in ["keys", "data"] {
            fs::create_dir_all(home.join(dir))?;
        }
        let settings = format!(
            "[volume.k]\npath = \"keys\"\ncontract = \"unlimited\"\n\
             [volume.c]\npath = \"data\"\n{contract}\n\
             [pool.main]\nvolumes = [\"k\"]\n\
             [kv]\npool = \"main\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\n\
             [series]\nvolumes = [\"c\"]\ndurability = \"{durability}\"\n{series}\n\
             [http]\nlisten = \"127.0.0.1:0\"\n"
        );
        fs::write(home.join("plimsoll.toml"), settings)?;
        let program = std::env::current_exe().context("where this program is")?;
        let mut child = Command::new(program)
            .args(["serve", "-c", "plimsoll.toml"])
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let told = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let ready = told.map_while(Result::ok).find(|line| line.starts_with("ready: "));
        let address = ready.as_deref().and_then(|line| line.split("series on ").nth(1));
        let address = address.and_then(|rest| rest.split([' ', ',']).next()?.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            bail!("it did not start: {:?}", child.wait());
        };
        let (home, clock) = (home.into(), clock.clone());
        Ok(Self { kind: Kind::Ours, address, home, child, before, clock })
    }

    fn influx(start: Start<'_>) -> anyhow::Result<Self> {
        let (address, control) = (free_port()?, free_port()?);
        let home = start.home;
        let home_text = home.display();
        // The options that its guide recommends for a dedicated machine: index on disk, no request log, no statistics
        // about itself. It syncs its log for each request by default; a delay would make writers wait and suits
        // rotating disks.
        let cold = if start.how.settles {
            "cache-snapshot-write-cold-duration = \"1s\"\ncompact-full-write-cold-duration = \"1s\"\n"
        } else {
            ""
        };
        let settings = format!(
            "reporting-disabled = true\nbind-address = \"{control}\"\n\
             [meta]\ndir = \"{home_text}/data/meta\"\nlogging-enabled = false\n\
             [data]\ndir = \"{home_text}/data/data\"\nwal-dir = \"{home_text}/data/wal\"\n\
             index-version = \"tsi1\"\nquery-log-enabled = false\nmax-series-per-database = 0\n\
             max-values-per-tag = 0\n{cold}\
             [monitor]\nstore-enabled = false\n\
             [http]\nbind-address = \"{address}\"\nlog-enabled = false\nmax-body-size = 0\n\
             [continuous_queries]\nenabled = false\n\
             [logging]\nlevel = \"warn\"\nsuppress-logo = true\n"
        );
        fs::write(home.join("influxdb.conf"), settings)?;
        let mut command = Command::new(Kind::Influx.program());
        command.arg("-config").arg(home.join("influxdb.conf"));
        Self::await_start(Kind::Influx, command, start, address, "/ping")
    }

    fn victoria(start: Start<'_>) -> anyhow::Result<Self> {
        let address = free_port()?;
        let mut command = Command::new(Kind::Victoria.program());
        command
            .arg(format!("-storageDataPath={}", start.home.join("data").display()))
            .arg(format!("-httpListenAddr={address}"))
            .args(["-retentionPeriod=100y", "-loggerLevel=WARN", "-search.latencyOffset=0s"])
            .args([
                "-search.maxUniqueTimeseries=20000000",
                "-search.maxPointsPerTimeseries=1000000",
            ]);
        Self::await_start(Kind::Victoria, command, start, address, "/health")
    }

    fn await_start(
        kind: Kind,
        mut command: Command,
        start: Start<'_>,
        address: SocketAddr,
        path: &str,
    ) -> anyhow::Result<Self> {
        let Start { home, log, before, clock, .. } = start;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| kind.program().to_owned())?;
        let mut server =
            Self { kind, address, home: home.into(), child, before, clock: clock.clone() };
        let until = clock.now() + PATIENCE;
        loop {
            let answered = Client::connect(address).and_then(|mut client| client.get(path));
            if answered.is_ok() {
                return Ok(server);
            }
            if let Some(ended) = server.child.try_wait()? {
                bail!("it did not start: {ended}");
            }
            ensure!(clock.now() < until, "it does not answer after {PATIENCE:?}");
            block_on(clock.sleep(Duration::from_millis(10)));
        }
    }

    fn patience(&self) -> Instant {
        self.clock.now() + PATIENCE
    }

    pub(super) fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(self.address)
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        process::bytes_below(&self.home.join("data"))
    }

    /// Waits until the bytes of its files stop changing: its merges are done.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        const STILL: u32 = 30;
        if self.kind == Kind::Victoria {
            let mut client = self.connect()?;
            client.get("/internal/force_flush")?;
            client.get("/internal/force_merge")?;
        }
        let until = self.patience();
        let (mut bytes, mut still) = (0, 0);
        while still < STILL && self.clock.now() < until {
            let now = self.bytes();
            still = if now == bytes { still + 1 } else { 0 };
            bytes = now;
            block_on(self.clock.sleep(Duration::from_millis(100)));
        }
        Ok(())
    }

    /// Stops it cleanly, so that its memory is written to disk. Returns its processor time since the start, and the
    /// bytes of its files.
    pub(super) fn stop(mut self) -> anyhow::Result<(Duration, u64)> {
        process::terminate(self.child.id())?;
        let until = self.patience();
        while self.child.try_wait()?.is_none() {
            ensure!(self.clock.now() < until, "{} does not end", self.kind.name());
            block_on(self.clock.sleep(Duration::from_millis(5)));
        }
        let bytes = self.bytes();
        Ok((process::children_time().saturating_sub(self.before), bytes))
    }

    /// Kills it, as a fault would.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Best effort: it has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
