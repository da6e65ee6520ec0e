//! `plimsoll serve`: runs the services of a settings file until it is stopped.

mod services;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use serve::admin::{self, Admin, Control, Late};
use serve::http::Hosts;
use serve::tls::Tls;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;
use volume::Clock;

use self::services::{Devices, Keys, Points, cache_epoch, stopping};
use crate::descriptors;
use crate::program::{INSTANCE_EVERY, Program, Stores, certificates};
use crate::settings::{Listen, Settings};

/// Serves the stores of the settings file until SIGTERM or SIGINT
///
/// Prints the effective settings, then a line that starts with `ready`. On SIGTERM and SIGINT it answers
/// the requests that have arrived, makes everything durable, and ends. On SIGHUP, or `POST /reload` at the
/// admin listener, it reads the settings and the certificates again. Contracts, the used shares of them,
/// passwords, users and tokens change at once; new connections get the new certificates. It names all other
/// changes, which wait for a restart.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll serve -c plimsoll.toml
  plimsoll serve -c plimsoll.toml --log debug
  kill -HUP $(pidof plimsoll)        # after a contract or a certificate was changed")]
pub(crate) struct Args {
    /// The settings file
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(&args.file)?;
    println!("{settings}");
    // A recovery ends with the process. Once a client was answered, a signal stops the server.
    let (serving, signals) = Serving::start(settings, args.file.clone(), Signals::handle)?;
    println!("ready: {}", serving.open_endpoints());
    serving.until(signals)?;
    tracing::info!("stopped; everything is durable");
    Ok(ExitCode::SUCCESS)
}

/// Running services.
pub(crate) struct Serving {
    runtime: Runtime,
    program: Arc<Program>,
    /// The address for Redis clients, if any.
    redis: Option<std::net::SocketAddr>,
    admin: Option<Listen>,
    /// The address for clients of time series, if any.
    http: Option<std::net::SocketAddr>,
    /// The listener for NBD clients, if any.
    nbd: Option<Listen>,
    /// The listeners close when this is dropped.
    stop: watch::Sender<()>,
    endpoints: Vec<tokio::task::JoinHandle<io::Result<()>>>,
}

impl Serving {
    /// Opens the volumes and stores of the settings, and all listeners; at least one store must open. A reload reads `file`.
    /// Calls `before_serving` inside the runtime when the stores are open, and no client was answered yet.
    pub(crate) fn start<T>(
        mut settings: Settings,
        file: PathBuf,
        before_serving: impl FnOnce() -> io::Result<T>,
    ) -> anyhow::Result<(Self, T)> {
        let tables = descriptors::tables(&settings)?;
        if let Some(kv) = &mut settings.kv {
            kv.options.tables_open = tables;
        }
        let runtime = runtime(&settings)?;
        // Bind listeners before opening volumes, so that a taken port fails before a long recovery.
        let listener = match &mut settings.kv {
            Some(kv) => {
                let bound = runtime.block_on(TcpListener::bind(kv.listen));
                let listener =
                    bound.with_context(|| format!("listen on {} (kv.listen)", kv.listen))?;
                kv.endpoint.port = listener.local_addr()?.port();
                Some(listener)
            }
            None => None,
        };
        let redis = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let admin_listener = match &settings.admin {
            Some(admin) => Some(runtime.block_on(bind(&admin.listen, "admin.listen"))?),
            None => None,
        };
        let admin = admin_listener.as_ref().map(|(_, listen)| listen.clone());
        let http_listener = match &settings.series {
            Some((_, endpoint)) => {
                let bound = runtime.block_on(TcpListener::bind(endpoint.listen));
                Some(
                    bound
                        .with_context(|| format!("listen on {} (http.listen)", endpoint.listen))?,
                )
            }
            None => None,
        };
        let http = http_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let nbd_listener = match &settings.block {
            Some(block) => Some(runtime.block_on(bind(&block.listen, "block.listen"))?),
            None => None,
        };
        let nbd = nbd_listener.as_ref().map(|(_, listen)| listen.clone());
        let tls = match settings.kv.as_ref().and_then(|kv| kv.tls.as_ref()) {
            Some(files) => Some(Arc::new(Tls::new(certificates(files).context("kv.tls")?))),
            None => None,
        };
        let http_tls =
            match settings.series.as_ref().and_then(|(_, endpoint)| endpoint.tls.as_ref()) {
                Some(files) => Some(Arc::new(Tls::new(certificates(files).context("http.tls")?))),
                None => None,
            };
        let nbd_tls = match settings.block.as_ref().and_then(|block| block.tls.as_ref()) {
            Some(files) => Some(Arc::new(Tls::new(certificates(files).context("block.tls")?))),
            None => None,
        };
        let clock = Clock::real();
        let stores = Stores::open(&settings, &clock)?;
        let prepared = {
            let _inside = runtime.enter();
            before_serving()?
        };
        let (resp, points, mqtt) = (Late::default(), Late::default(), Late::default());
        let devices = Late::default();
        let keys = settings.kv.as_ref().zip(listener).map(|(kv, listener)| Keys {
            listener,
            endpoint: kv.endpoint.clone(),
            tls: tls.clone(),
            service: Arc::clone(&resp),
        });
        let series = settings.series.as_ref().zip(http_listener);
        let series = series.map(|((_, http), listener)| Points {
            listener,
            endpoint: http.endpoint.clone(),
            tls: http_tls.clone(),
            broker: settings.mqtt.as_ref().map(|mqtt| mqtt.subscriber.clone()),
            service: Arc::clone(&points),
            stats: Arc::clone(&mqtt),
        });
        let block = settings.block.as_ref().map(|block| Devices {
            endpoint: block.endpoint.clone(),
            cache_epoch: cache_epoch(block.options.durable),
            tls: nbd_tls.clone(),
            service: Arc::clone(&devices),
        });
        let admin_names =
            settings.admin.as_ref().map(|admin| admin.hosts.clone()).unwrap_or_default();
        let program = Program::new(stores, clock, file, settings, tls, http_tls, nbd_tls);
        let program = Arc::new(program);
        let (stop, stopped) = watch::channel(());
        let mut endpoints = Vec::new();
        if let Some(keys) = keys {
            let service = keys.start(&program)?;
            let serving = keys.run(Arc::clone(&program), service, stopped.clone());
            endpoints.push(runtime.spawn(serving));
        }
        if let Some(series) = series {
            let services = series.start(&program);
            let serving = series.run(Arc::clone(&program), services, stopped.clone());
            endpoints.push(runtime.spawn(serving));
        }
        if let Some((block, (listener, _))) = block.zip(nbd_listener) {
            let (program, stopped) = (Arc::clone(&program), stopped.clone());
            endpoints.push(match listener {
                Listener::Tcp(listener) => runtime.spawn(block.run(listener, program, stopped)),
                Listener::Unix(listener) => runtime.spawn(block.run(listener, program, stopped)),
            });
        }
        endpoints.push(runtime.spawn(divide(Arc::clone(&program), stopped.clone())));
        if let Some((listener, _)) = admin_listener {
            let control = Arc::clone(&program) as _;
            let figures = Arc::clone(&program) as _;
            let endpoint = Admin { control, figures, resp, http: points, mqtt, nbd: devices };
            let until = stopping(stopped);
            endpoints.push(match listener {
                Listener::Tcp(listener) => {
                    let hosts = Hosts::of(listener.local_addr()?.ip(), &admin_names);
                    runtime.spawn(async move {
                        admin::run(listener, endpoint, hosts, until).await;
                        Ok(())
                    })
                }
                Listener::Unix(listener) => runtime.spawn(async move {
                    admin::run(listener, endpoint, Hosts::any(), until).await;
                    Ok(())
                }),
            });
        }
        let serving = Self { runtime, program, redis, admin, http, nbd, stop, endpoints };
        Ok((serving, prepared))
    }

    /// The address for Redis clients, if any.
    pub(crate) const fn redis(&self) -> Option<std::net::SocketAddr> {
        self.redis
    }

    /// The running program.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// The administrator's listener, if any.
    pub(crate) fn admin(&self) -> Option<&Listen> {
        self.admin.as_ref()
    }

    /// The open listeners, in words.
    fn open_endpoints(&self) -> String {
        let tls = |speaks: bool| if speaks { " (TLS)" } else { "" };
        let mut endpoints = Vec::new();
        if let Some(redis) = &self.redis {
            endpoints.push(format!("redis on {redis}{}", tls(self.program.speaks_tls())));
        }
        if let Some(http) = &self.http {
            endpoints.push(format!("series on {http}{}", tls(self.program.points_speak_tls())));
        }
        if let Some(nbd) = &self.nbd {
            endpoints.push(format!("nbd on {nbd}{}", tls(self.program.devices_speak_tls())));
        }
        if let Some(admin) = &self.admin {
            endpoints.push(format!("admin on {admin}"));
        }
        endpoints.join(", ")
    }

    /// [`Signals::handle`].
    pub(crate) fn signals(&self) -> io::Result<Signals> {
        let _inside = self.runtime.enter();
        Signals::handle()
    }

    /// Serves until SIGTERM or SIGINT, then stops.
    pub(crate) fn until(self, mut signals: Signals) -> anyhow::Result<()> {
        while self.runtime.block_on(signals.next()) == Signal::HangUp {
            reload(&*self.program);
        }
        self.stop()
    }

    /// Answers all requests that have arrived, closes the listeners, and makes everything durable.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let Self { runtime, program, stop, endpoints, admin, nbd, .. } = self;
        drop(stop);
        for endpoint in endpoints {
            runtime.block_on(endpoint).context("a listener failed")??;
        }
        for listen in [admin, nbd].into_iter().flatten() {
            if let Listen::Unix(path) = listen {
                // Best effort: the next start replaces a socket left behind.
                let _ = std::fs::remove_file(path);
            }
        }
        // Waits for running tasks, such as a reload, which may still hold the program.
        drop(runtime);
        let program = Arc::into_inner(program).context("a task still uses the store")?;
        program.close()
    }
}

/// A signal from the system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    HangUp,
}

/// The signals that the program handles.
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    /// From now on signals do not end the process; one that arrives early is kept for the next wait. To be called inside a
    /// runtime.
    fn handle() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hang_up.recv() => Signal::HangUp,
        }
    }
}

fn reload(program: &dyn Control) {
    match program.reload() {
        Ok(lines) => lines.iter().for_each(|line| tracing::info!("reload: {line}")),
        Err(wrong) => tracing::error!("reload: {wrong}; nothing was changed"),
    }
}

fn runtime(settings: &Settings) -> io::Result<Runtime> {
    // More threads than requests use, so that an administrator never waits behind requests.
    const THREADS_MORE: usize = 8;
    let threads = settings.kv.as_ref().map_or(0, |kv| 2 * kv.endpoint.threads) + THREADS_MORE;
    // One worker serves while another is blocked, for example by a new log of the store.
    const WORKERS_MIN: usize = 2;
    let workers = std::thread::available_parallelism().map_or(WORKERS_MIN, usize::from);
    Builder::new_multi_thread()
        .enable_all()
        .worker_threads(workers.max(WORKERS_MIN))
        .max_blocking_threads(threads)
        .build()
}

/// A bound listener of either kind.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Binds, and returns the actual address: the system may have chosen the port. `key` is the setting.
async fn bind(listen: &Listen, key: &str) -> anyhow::Result<(Listener, Listen)> {
    let bound = || format!("listen on {listen} ({key})");
    Ok(match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).await.with_context(bound)?;
            let address = listener.local_addr()?;
            (Listener::Tcp(listener), Listen::Tcp(address))
        }
        Listen::Unix(path) => {
            let is_socket = path.metadata().is_ok_and(|file| file.file_type().is_socket());
            if is_socket && UnixStream::connect(path).await.is_err() {
                // The connection is refused: a dead process left the socket.
                std::fs::remove_file(path).with_context(bound)?;
            }
            let listener = UnixListener::bind(path).with_context(bound)?;
            std::fs::set_permissions(path, Permissions::from_mode(0o600)).with_context(bound)?;
            (Listener::Unix(listener), listen.clone())
        }
    })
}
/// Divides the machine's limits among the volumes from time to time, until the listeners close.
async fn divide(program: Arc<Program>, stopped: watch::Receiver<()>) -> io::Result<()> {
    let mut stopping = std::pin::pin!(stopping(stopped));
    loop {
        tokio::select! {
            () = &mut stopping => return Ok(()),
            () = tokio::time::sleep(INSTANCE_EVERY) => program.divide_instance(),
        }
    }
}
