//! More connections than the limit.

use std::io::{Read, Write};
use std::net::TcpStream;

use serve::http::server::Terms;
use serve::http::{Settings, Token};

use crate::endpoint::Endpoint;

/// Whether the server closed the connection without an answer.
fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

/// The status line of the next answer, which has no body.
fn status(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the server answers");
        answer.push(byte[0]);
    }
    let text = String::from_utf8(answer).expect("a head");
    text.lines().next().unwrap_or_default().to_owned()
}

fn ping(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is read");
    status(stream)
}

const SERVED: &str = "HTTP/1.1 204 No Content";

/// As for Redis: once, silent connections and unfinished heads kept all other clients out.
#[test]
fn silent_connections_give_way_to_those_who_ask() {
    const MOST: usize = 50;
    let terms = Terms { connections_max: MOST, ..Terms::default() };
    let endpoint = Endpoint::new(Settings { terms, ..Settings::default() });
    let mut silent: Vec<_> = (0..MOST).map(|_| endpoint.connect()).collect();
    for stream in &mut silent {
        stream.write_all(b"GET /ping HTTP/1.1\r\n").expect("it is read");
    }
    let mut known: Vec<_> = (0..10).map(|_| endpoint.connect()).collect();
    for stream in &mut known {
        assert_eq!(ping(stream), SERVED);
    }
    assert!(silent[..10].iter_mut().all(is_closed), "those that came first");
    silent[10].write_all(b"Host: localhost\r\n\r\n").expect("it is read");
    assert_eq!(status(&mut silent[10]), SERVED, "the others are served");
    assert_eq!(ping(&mut known[0]), SERVED);
}

#[test]
fn who_is_known_keeps_its_connection() {
    let terms = Terms { connections_max: 2, ..Terms::default() };
    let endpoint = Endpoint::new(Settings { terms, ..Settings::default() });
    let mut known = [endpoint.connect(), endpoint.connect()];
    known.iter_mut().for_each(|stream| assert_eq!(ping(stream), SERVED));
    assert!(is_closed(&mut endpoint.connect()), "there is no room");
    known.iter_mut().for_each(|stream| assert_eq!(ping(stream), SERVED));
}

#[test]
fn who_shows_no_token_gives_way_whatever_it_asked() {
    let terms = Terms { connections_max: 1, ..Terms::default() };
    let tokens = vec![Token::full("one")];
    let endpoint = Endpoint::new(Settings { terms, tokens, ..Settings::default() });
    let mut stranger = endpoint.connect();
    let request = b"POST /write?db=db HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    stranger.write_all(request).expect("it is read");
    assert_eq!(status(&mut stranger), "HTTP/1.1 401 Unauthorized");
    assert_eq!(ping(&mut endpoint.connect()), SERVED);
    let mut rest = Vec::new();
    // The body of the answer, then the end.
    let _ = stranger.read_to_end(&mut rest);
}
