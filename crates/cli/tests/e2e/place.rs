//! The real program, started in its own directory, and a Redis client for it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A directory with volumes and a settings file.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

impl Place {
    /// Unlimited volumes `a`, `b`, `c`, and a store on them that listens on free ports.
    pub(crate) fn new() -> Self {
        let place = Self { dir: TempDir::new().expect("room for a directory") };
        for name in ["a", "b", "c"] {
            std::fs::create_dir(place.path(name)).expect("room for a directory");
        }
        place.write(&settings("unlimited", ""));
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path("plimsoll.toml")
    }

    pub(crate) fn write(&self, settings: &str) {
        std::fs::write(self.file(), settings).expect("room for a file");
    }

    /// The program with these arguments, not yet started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(args).current_dir(self.dir.path());
        command
    }

    /// Runs the program to its end; returns its status and output.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        Ended::of(&mut self.command(args))
    }

    /// Starts serving, and waits until it is ready.
    pub(crate) fn serve(&self) -> Server {
        let served = self.try_serve();
        served.unwrap_or_else(|log| panic!("the server ended before it was ready: {log}"))
    }

    /// As [`Place::serve`], by a command of the caller's for the same program.
    pub(crate) fn serve_by(&self, mut command: Command) -> Server {
        command.args(["serve", "-c", "plimsoll.toml"]).current_dir(self.dir.path());
        let served = Server::start(command, self.dir.path());
        served.unwrap_or_else(|log| panic!("the server ended before it was ready: {log}"))
    }

    /// As [`Place::serve`]; returns the log if it ends before it is ready.
    pub(crate) fn try_serve(&self) -> Result<Server, String> {
        Server::start(self.command(&["serve", "-c", "plimsoll.toml"]), self.dir.path())
    }
}

/// Three volumes under `contract`, with `more` under `[kv]`.
pub(crate) fn settings(contract: &str, more: &str) -> String {
    let mut text = String::new();
    for name in ["a", "b", "c"] {
        writeln!(text, "[volume.{name}]\npath = \"{name}\"\ncontract = \"{contract}\"\n")
            .expect("a string takes any text");
    }
    text + "[pool.main]\nvolumes = [\"a\", \"b\", \"c\"]\n\n\
            [admin]\nlisten = \"127.0.0.1:0\"\n\n\
            [kv]\npool = \"main\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\n"
        + more
}

/// Flips a bit in the middle of a table of the pool, and returns the table's path.
pub(crate) fn flip_a_byte_of_a_table(place: &Place) -> String {
    flip_a_byte(place, "tab")
}

/// Flips a bit in the middle of an object of the pool that is not empty and whose file ends like this; returns its path.
pub(crate) fn flip_a_byte(place: &Place, end: &str) -> String {
    for volume in ["a", "b", "c"] {
        let objects = std::fs::read_dir(place.path(volume).join("objects")).expect("a volume");
        for object in objects {
            let path = object.expect("a file").path();
            // The manifest mends itself.
            let is_object = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'o');
            if is_object && path.extension().is_some_and(|extension| extension == end) {
                let mut bytes = std::fs::read(&path).expect("an object");
                let middle = bytes.len() / 2;
                let Some(byte) = bytes.get_mut(middle) else { continue };
                *byte ^= 1;
                std::fs::write(&path, bytes).expect("room for an object");
                return path.display().to_string();
            }
        }
    }
    panic!("there is no object .{end}");
}

/// Far longer than anything here takes.
const NEVER: Duration = Duration::from_secs(180);

/// Polls until the condition holds.
pub(crate) fn until(is_so: impl FnMut() -> bool) {
    until_or_tell(is_so, String::new);
}

/// The same; if it never holds, the failure has what `tell` says.
pub(crate) fn until_or_tell(mut is_so: impl FnMut() -> bool, tell: impl Fn() -> String) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < NEVER, "it never comes to that: {}", tell());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A program that ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Runs a command to its end.
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes text");
        Self { status: output.status, out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A running program.
pub(crate) struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The listener of Redis clients, if the settings have one.
    redis: Option<SocketAddr>,
    /// The listener of time series, if the settings have one.
    pub(crate) http: Option<SocketAddr>,
    /// The listener for NBD clients, if the settings have one.
    pub(crate) nbd: Option<SocketAddr>,
    /// An address, or `unix:` and a path.
    pub(crate) admin: String,
}

impl Server {
    fn start(mut command: Command, dir: &Path) -> Result<Self, String> {
        // An unread pipe would fill up and stop the server, so its log goes to a file.
        let log = std::fs::File::create(dir.join("log")).expect("room for a file");
        let mut child =
            command.stdout(Stdio::piped()).stderr(log).spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let ready = loop {
            let mut line = String::new();
            if out.read_line(&mut line).expect("text") == 0 {
                child.wait().expect("the program ends");
                return Err(std::fs::read_to_string(dir.join("log")).unwrap_or_default());
            }
            if line.starts_with("ready: ") {
                break line;
            }
        };
        let named = |endpoint: &str| {
            let (_, after) = ready.split_once(endpoint)?;
            Some(after[..after.find([',', '\n']).unwrap_or(after.len())].to_owned())
        };
        // A listener with TLS says so behind its address.
        let address = |endpoint: String| {
            let address = endpoint.strip_suffix(" (TLS)").unwrap_or(&endpoint);
            address.parse().expect("an address")
        };
        let endpoint = |endpoint| named(endpoint).expect("the endpoint is named");
        let redis = named("redis on ").map(address);
        let http = named("series on ").map(address);
        let nbd = named("nbd on ").map(address);
        Ok(Self { child, out, redis, http, nbd, admin: endpoint("admin on ") })
    }

    pub(crate) fn redis(&self) -> SocketAddr {
        self.redis.expect("a listener of Redis clients")
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.redis())
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// Waits until the program has ended.
    pub(crate) fn wait(mut self) -> ExitStatus {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        self.child.wait().expect("the program ends")
    }

    /// Stops it, and checks that it ends cleanly.
    pub(crate) fn stop(self) {
        self.signal("TERM");
        assert!(self.wait().success());
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it was running");
        self.wait();
    }

    /// One request to the admin listener; returns the status line and the body.
    pub(crate) fn admin(&self, request: &str) -> (String, String) {
        match self.admin.strip_prefix("unix:") {
            Some(path) => {
                let stream = UnixStream::connect(path).expect("it is open");
                stream.set_read_timeout(Some(NEVER)).expect("a socket");
                Self::exchange(stream, request)
            }
            None => {
                let stream = TcpStream::connect(&self.admin).expect("it is open");
                stream.set_read_timeout(Some(NEVER)).expect("a socket");
                Self::exchange(stream, request)
            }
        }
    }

    fn exchange(mut stream: impl Read + Write, request: &str) -> (String, String) {
        write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("the endpoint reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the endpoint answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (head.lines().next().unwrap_or_default().into(), body.into())
    }
}

/// A plain Redis client.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the endpoint is open");
        stream.set_read_timeout(Some(NEVER)).expect("a socket");
        Self { stream: BufReader::new(stream) }
    }

    /// Sends one line and returns the reply; a bulk string without its length.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("it reads");
        self.reply().expect("it answers")
    }

    /// The next reply; `None` when the connection ends.
    pub(crate) fn reply(&mut self) -> Option<String> {
        let mut line = String::new();
        // A killed server resets the connection: treat that as an end.
        if self.stream.read_line(&mut line).ok()? == 0 || !line.ends_with("\r\n") {
            return None;
        }
        let line = line.trim_end().to_owned();
        let Some(len) = line.strip_prefix('$').filter(|len| *len != "-1") else {
            return Some(line);
        };
        let mut bulk = vec![0; len.parse::<usize>().ok()? + 2];
        self.stream.read_exact(&mut bulk).ok()?;
        bulk.truncate(bulk.len() - 2);
        String::from_utf8(bulk).ok()
    }
}
