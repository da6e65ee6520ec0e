//! How a command talks to a running server: HTTP at its admin listener.
//!
//! One request per connection, answered with JSON. The listener is on this machine, or behind a tunnel, so there is
//! nothing to negotiate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serve::admin::Refused;

use crate::settings::{Admin, Listen, Settings};

/// The limit on connecting. The answer may take longer: the server writes first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The largest answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Which server to ask.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Where {
    /// The server's settings file, which names its admin listener
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// The server's admin listener: an address and port, or unix:<path> [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "file")]
    pub(crate) admin: Option<String>,
}

impl Where {
    /// The selected listener.
    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        match (&self.admin, &self.file) {
            (Some(address), _) => Endpoint::at(address),
            (None, None) => Ok(Endpoint::of(Admin::default().listen)),
            (None, Some(file)) => match Settings::load(file)?.admin {
                Some(admin) => Ok(Endpoint::of(admin.listen)),
                None => bail!("{}: the settings have no section [admin]: add one", file.display()),
            },
        }
    }
}

/// The admin listener of a running server.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    listen: Listen,
    /// The limit on an answer, if there is one.
    answer_timeout: Option<Duration>,
}

impl Endpoint {
    fn at(address: &str) -> anyhow::Result<Self> {
        let listen = match address.strip_prefix("unix:") {
            Some(path) => Listen::Unix(path.into()),
            None => Listen::Tcp(resolve(address)?),
        };
        Ok(Self::of(listen))
    }

    const fn of(listen: Listen) -> Self {
        Self { listen, answer_timeout: Some(ANSWER_TIMEOUT) }
    }

    /// Waits for answers without a limit: what is asked may take long.
    pub(crate) const fn patient(mut self) -> Self {
        self.answer_timeout = None;
        self
    }

    /// Sends a GET and returns the answer.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask("GET", path, None)
    }

    /// Sends a POST and returns the answer.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<T> {
        self.ask("POST", path, body.map(serde_json::to_string).transpose()?.as_deref())
    }

    /// Sends a DELETE and returns the answer.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask("DELETE", path, None)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> anyhow::Result<T> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        if let Some(body) = body {
            let len = body.len();
            request
                .push_str(&format!("Content-Type: application/json\r\nContent-Length: {len}\r\n"));
        }
        request.push_str("Connection: close\r\n\r\n");
        request.push_str(body.unwrap_or_default());
        let answer = self.exchange(&request).with_context(|| {
            format!(
                "no server answers at the admin listener {}: start it, or name another with -c or --admin",
                self.listen
            )
        })?;
        let (status, body) = parse(&answer).with_context(|| {
            format!("{}: this is not an admin listener of plimsoll", self.listen)
        })?;
        if (200..300).contains(&status) {
            return serde_json::from_str(body).with_context(|| {
                format!("{}: the server is another version of plimsoll", self.listen)
            });
        }
        match serde_json::from_str::<Refused>(body) {
            Ok(refused) => bail!("{}", refused.error),
            Err(_) => bail!("{}: {method} {path}: status {status} {}", self.listen, body.trim()),
        }
    }

    fn exchange(&self, request: &str) -> std::io::Result<String> {
        match &self.listen {
            Listen::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?;
                stream.set_read_timeout(self.answer_timeout)?;
                talk(stream, request)
            }
            Listen::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(self.answer_timeout)?;
                talk(stream, request)
            }
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.listen.fmt(f)
    }
}

fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let found = address.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        anyhow!("--admin {address}: give an address such as 127.0.0.1:9180, or unix:<path>")
    })
}

fn talk(mut stream: impl Read + Write, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

/// The status and the body of an answer.
fn parse(answer: &str) -> anyhow::Result<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n").context("its answer is cut short")?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    Ok((status.context("its answer is not HTTP")?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let answer = "HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\nno";
        assert_eq!(parse(answer).expect("an answer"), (409, "no"));
        for wrong in ["", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 2\r\n\r\n"] {
            parse(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn an_address_that_is_none_says_what_is() {
        let error = Endpoint::at("nonsense").expect_err("no port").to_string();
        assert!(error.contains("127.0.0.1:9180") && error.contains("unix:"), "{error}");
        assert_eq!(Endpoint::at("unix:/run/admin").expect("a path").to_string(), "unix:/run/admin");
    }

    #[test]
    fn where_nobody_serves_the_error_says_how_to_name_another() {
        let place = tempfile::tempdir().expect("room for a directory");
        let path = format!("unix:{}", place.path().join("admin").display());
        let endpoint = Endpoint::at(&path).expect("a path");
        let error =
            format!("{:#}", endpoint.get::<u64>("/figures").expect_err("nothing listens there"));
        assert!(error.contains(&path) && error.contains("--admin"), "{error}");
    }
}
