//! The minimum of HTTP/1.1 for a loader: one persistent connection, bodies in memory.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// The timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection.
pub(super) struct Client(BufReader<TcpStream>);

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    /// The value of `Retry-After`, in seconds.
    pub(super) retry_after: Option<u64>,
    pub(super) body: Vec<u8>,
}

impl Client {
    pub(super) fn connect(to: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(to).with_context(|| format!("connect to {to}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::with_capacity(64 << 10, stream)))
    }

    /// Sends a request and waits for all of its answer.
    pub(super) fn send(&mut self, request: &str, body: &[u8]) -> anyhow::Result<Answer> {
        let length = body.len();
        let head =
            format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        let stream = self.0.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        self.answer().with_context(|| request.chars().take(200).collect::<String>())
    }

    /// A GET that must succeed; returns the body.
    pub(super) fn get(&mut self, path: &str) -> anyhow::Result<Vec<u8>> {
        let answer = self.send(&format!("GET {path}"), b"")?;
        let body = || String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)]);
        ensure!(answer.status < 300, "{path}: {}: {}", answer.status, body());
        Ok(answer.body)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.0.read_line(&mut line)? > 0, "the server closed the connection");
        Ok(line.trim_end().to_owned())
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("no answer of HTTP: {first:?}"))?;
        let (mut length, mut chunked, mut retry_after) = (0, false, None);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse()?,
                "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
                "retry-after" => retry_after = value.parse().ok(),
                _ => {}
            }
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let line = self.line()?;
                let length = line.split(';').next().unwrap_or_default();
                let length = usize::from_str_radix(length, 16)
                    .with_context(|| format!("no chunk: {line:?}"))?;
                self.take(length, &mut body)?;
                // An empty line follows each chunk; no server sends trailers.
                if !self.line()?.is_empty() {
                    bail!("a chunk is longer than it says");
                }
                if length == 0 {
                    break;
                }
            }
        } else {
            self.take(length, &mut body)?;
        }
        Ok(Answer { status, retry_after, body })
    }

    fn take(&mut self, length: usize, into: &mut Vec<u8>) -> anyhow::Result<()> {
        let before = into.len();
        into.resize(before + length, 0);
        Ok(self.0.read_exact(&mut into[before..])?)
    }
}

/// Percent-encodes text for a query.
pub(super) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
                encoded.push(byte as char);
            }
            _ => write!(encoded, "%{byte:02X}").expect("text grows"),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn answers_of_either_shape_are_read_to_their_end_on_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let answers = [
                "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
                "HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nContent-Length: 4\r\n\r\nbusy",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            ];
            for answer in answers {
                let mut request = [0; 64];
                let len =
                    b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi".len();
                stream.read_exact(&mut request[..len]).expect("a request");
                assert!(request[..len].ends_with(b"\r\n\r\nhi"));
                stream.write_all(answer.as_bytes()).expect("it listens");
            }
        });
        let mut client = Client::connect(address).expect("it listens");
        let mut ask = || client.send("POST /x", b"hi").expect("an answer");
        let answer = ask();
        assert_eq!((answer.status, &answer.body[..]), (204, &b""[..]));
        let answer = ask();
        assert_eq!(
            (answer.status, answer.retry_after, &answer.body[..]),
            (503, Some(2), &b"busy"[..])
        );
        let answer = ask();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"abcde"[..]));
        assert!(client.send("POST /x", b"hi").is_err(), "it is gone");
        server.join().expect("it saw what it should");
        assert_eq!(encoded("a b='c'"), "a%20b%3D%27c%27");
    }
}
