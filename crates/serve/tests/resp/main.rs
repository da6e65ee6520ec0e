//! The RESP listener over loopback, with clients that behave and clients that do not.

mod crowd;
mod endpoint;
mod tls;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::keyspace::Keyspace;
use engine::kv::{self, Change, Count, Durability, KeyRange, KeyValue, Memory, Scan};
use proptest::collection::vec;
use proptest::prelude::*;
use serve::Secret;
use serve::resp::Settings;

use crate::endpoint::{Client, Endpoint};

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let endpoint = Endpoint::open(Settings::default());
    let mut client = endpoint.connect();
    let requests: String =
        (0..5000).map(|n| format!("set k {n}\r\necho {n}\r\nget k\r\n")).collect();
    let mut sender = client.0.get_ref().try_clone().expect("a second handle");
    let sending = std::thread::spawn(move || sender.write_all(requests.as_bytes()));
    for n in 0..5000 {
        let n = n.to_string();
        let len = format!("${}", n.len());
        for expected in ["+OK", &len, &n, &len, &n] {
            assert_eq!(client.line(), expected);
        }
    }
    sending.join().expect("no panic").expect("all was sent");
    assert_eq!(endpoint.service.stats.commands(), 15_000);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let endpoint = Endpoint::open(Settings { clients_max: 2, ..Settings::default() });
    let (mut one, mut two) = (endpoint.connect(), endpoint.connect());
    assert_eq!((one.ask("ping"), two.ask("ping")), ("+PONG".into(), "+PONG".into()));
    let mut three = endpoint.connect();
    assert_eq!(three.line(), "-ERR max number of clients reached");
    assert_eq!(three.line(), "", "closed");
    assert_eq!(endpoint.service.stats.rejected.get(), 1);
    assert_eq!(one.ask("quit"), "+OK");
    assert_eq!(one.line(), "");
    // The place is free once the server notices, which is after the client does.
    let served = std::iter::repeat_with(|| endpoint.connect()).take(1000).find_map(|mut client| {
        client.send("ping\r\n");
        (client.line() == "+PONG").then_some(client)
    });
    assert!(served.is_some());
    assert_eq!(two.ask("ping"), "+PONG");
}

#[test]
fn a_broken_stream_is_answered_and_closed_and_others_go_on() {
    let endpoint = Endpoint::open(Settings::default());
    let mut other = endpoint.connect();
    let mut client = endpoint.connect();
    client.send("set k v\r\n*1\r\nboom\r\nset k w\r\n");
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.line(), "-ERR Protocol error: expected '$', got 'b'");
    assert_eq!(client.line(), "");
    let mut half = endpoint.connect();
    half.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nab");
    drop(half);
    assert_eq!(other.ask("get k"), "$1");
    assert_eq!(other.line(), "v");
}

#[test]
fn a_web_page_cannot_talk_its_way_in() {
    let endpoint = Endpoint::open(Settings::default());
    let mut client = endpoint.connect();
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\n\r\nset k v\r\n");
    assert_eq!(client.line(), "", "closed without a word");
    assert_eq!(endpoint.connect().ask("exists k"), ":0");
}

#[test]
fn who_said_who_it_is_may_send_more_in_the_same_breath() {
    let settings = Settings { password: Some(Secret::new("line")), ..Settings::default() };
    let endpoint = Endpoint::open(settings);
    let value = vec![b'x'; 100_000];
    let mut client = endpoint.connect();
    client.send([b"AUTH line\r\n".to_vec(), set("k", &value)].concat());
    assert_eq!((client.line(), client.line()), ("+OK".into(), "+OK".into()));
    let mut stranger = endpoint.connect();
    stranger.send(set("k", &value));
    assert_eq!(stranger.line(), "-ERR Protocol error: unauthenticated bulk length");
    assert_eq!(stranger.line(), "");
}

#[test]
fn unfinished_requests_together_hold_no_more_than_was_allowed() {
    let settings = Settings { clients_bytes_max: 1 << 20, ..Settings::default() };
    let endpoint = Endpoint::open(settings);
    let mut clients: Vec<_> = (0..4).map(|_| endpoint.connect()).collect();
    let whole = set("k", &vec![b'x'; 512 << 10]);
    let (most, rest) = whole.split_at(400 << 10);
    for client in &mut clients {
        client.send(most);
    }
    for client in &mut clients {
        // The server may have closed it already.
        let _ = client.0.get_mut().write_all(rest);
    }
    let replies: Vec<_> = clients.iter_mut().map(Client::line).collect();
    let refused = "-ERR too much data in unfinished requests";
    assert!(replies.iter().all(|reply| reply == "+OK" || reply == refused), "{replies:?}");
    drop(clients);
    assert_eq!(endpoint.connect().ask("ping"), "+PONG");
}

#[test]
fn who_does_not_read_stops_nobody_else() {
    let endpoint = Endpoint::open(Settings::default());
    let mut slow = endpoint.connect();
    let value = vec![b'x'; 1 << 20];
    slow.send(set("k", &value));
    assert_eq!(slow.line(), "+OK");
    // More than socket buffers hold: the server must wait for the client to read.
    slow.send("get k\r\n".repeat(64));
    let mut other = endpoint.connect();
    assert_eq!(other.ask("ping"), "+PONG");
    let mut read = vec![0; value.len() + 2];
    for _ in 0..64 {
        assert_eq!(slow.line(), format!("${}", value.len()));
        slow.0.read_exact(&mut read).expect("the reply goes on");
        assert!(read.starts_with(&value));
    }
}

/// A store whose writes report that they have begun, and end on a signal.
struct Slow {
    memory: Arc<Memory>,
    begun: SyncSender<()>,
    let_end: Mutex<Receiver<()>>,
}

impl KeyValue for Slow {
    fn get_many(&self, keys: &[Bytes]) -> kv::Result<Vec<Option<Bytes>>> {
        self.memory.get_many(keys)
    }

    fn apply(&self, changes: &[Change]) -> kv::Result<()> {
        self.begun.send(()).expect("the test listens");
        self.let_end.lock().expect("no panic").recv().expect("the test lets it end");
        self.memory.apply(changes)
    }

    fn scan(&self, scan: &Scan) -> kv::Result<Vec<(Bytes, Bytes)>> {
        self.memory.scan(scan)
    }

    fn count(&self, range: &KeyRange) -> kv::Result<Count> {
        self.memory.count(range)
    }

    fn durability(&self) -> Durability {
        self.memory.durability()
    }
}

#[test]
fn a_stop_answers_what_was_read_and_closes() {
    let ((begun, has_begun), (end, let_end)) = (sync_channel(1), sync_channel(1));
    let memory = Arc::new(Memory::default());
    Keyspace::open(Arc::clone(&memory) as _, Box::new(|| 0), 1).expect("the store is made");
    let slow = Arc::new(Slow { memory, begun, let_end: Mutex::new(let_end) });
    let mut endpoint = Endpoint::to(Arc::clone(&slow) as _, Settings::default());
    let mut idle = endpoint.connect();
    assert_eq!(idle.ask("ping"), "+PONG");
    let mut client = endpoint.connect();
    client.send("set k v\r\nget k\r\n");
    has_begun.recv().expect("the write begins");
    endpoint.begin_stop();
    assert_eq!(idle.line(), "", "an idle connection is closed at once");
    end.send(()).expect("the write waits");
    assert_eq!([client.line(), client.line(), client.line()], ["+OK", "$1", "v"]);
    assert_eq!(client.line(), "");
    endpoint.wait_until_stopped();
    assert!(TcpStream::connect(endpoint.address).is_err());
}

#[test]
fn a_stop_does_not_wait_for_ever_on_who_does_not_read() {
    let settings = Settings { stop_grace: Duration::ZERO, ..Settings::default() };
    let mut endpoint = Endpoint::open(settings);
    let mut slow = endpoint.connect();
    slow.send(set("k", &vec![b'x'; 1 << 20]));
    assert_eq!(slow.line(), "+OK");
    slow.send("get k\r\n".repeat(64));
    assert!(slow.line().starts_with('$'), "its replies are being written");
    endpoint.wait_until_stopped();
}

#[test]
fn who_does_not_say_who_it_is_is_cut_off_in_time() {
    let settings = Settings {
        password: Some(Secret::new("line")),
        auth_timeout: Duration::from_millis(50),
        ..Settings::default()
    };
    let endpoint = Endpoint::open(settings);
    let mut known = endpoint.connect();
    assert_eq!(known.ask("auth line"), "+OK");
    let mut stranger = endpoint.connect();
    assert_eq!(stranger.ask("get k"), "-NOAUTH Authentication required.");
    assert_eq!(stranger.line(), "", "closed without a word");
    // The stranger came later, so both deadlines have passed.
    assert_eq!(known.ask("get k"), "$-1");
}

#[test]
fn who_is_silent_for_too_long_is_cut_off() {
    let settings =
        Settings { idle_timeout: Some(Duration::from_millis(50)), ..Settings::default() };
    let endpoint = Endpoint::open(settings);
    let mut client = endpoint.connect();
    client.send("set k v\r\n*1\r\n$4\r\npi");
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.line(), "");
}

#[test]
fn who_does_not_take_its_replies_for_too_long_is_cut_off() {
    let settings = Settings {
        idle_timeout: Some(Duration::from_millis(50)),
        stop_grace: Duration::from_secs(3600),
        ..Settings::default()
    };
    let mut endpoint = Endpoint::open(settings);
    let mut slow = endpoint.connect();
    slow.send(set("k", &vec![b'x'; 1 << 20]));
    assert_eq!(slow.line(), "+OK");
    slow.send("get k\r\n".repeat(64));
    assert!(slow.line().starts_with('$'), "its replies are being written");
    // Without a cut, a stop would wait an hour for the client to read its replies.
    endpoint.wait_until_stopped();
}

/// The value of `key` in a client's line of a list.
fn listed(line: &str, key: &str) -> String {
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find(|(name, _)| *name == key).map(|(_, value)| value.into()).unwrap_or_default()
}

#[test]
fn clients_see_and_end_each_other() {
    let endpoint = Endpoint::open(Settings::default());
    let mut one = endpoint.connect();
    let mut two = endpoint.connect();
    assert_eq!(one.ask("client setname one"), "+OK");
    assert_eq!(one.ask("client setinfo lib-name sailor"), "+OK");
    assert_eq!(two.ask("hello 3"), "%7");
    while two.line() != "*0" {}
    assert!(one.ask("client list").starts_with('$'));
    let (first, second) = (one.line(), one.line());
    assert_eq!(one.line(), "");
    assert_eq!(listed(&first, "addr"), one.0.get_ref().local_addr().expect("bound").to_string());
    assert_eq!(listed(&first, "laddr"), endpoint.address.to_string());
    assert_eq!((&*listed(&first, "name"), &*listed(&first, "lib-name")), ("one", "sailor"));
    assert_eq!((&*listed(&first, "resp"), &*listed(&second, "resp")), ("2", "3"));
    assert_eq!((&*listed(&first, "cmd"), &*listed(&second, "cmd")), ("client", "hello"));

    let id = listed(&second, "id");
    assert_eq!(one.ask(&format!("client kill id {id} laddr 1.2.3.4:5")), ":0");
    assert_eq!(one.ask(&format!("client kill id {id} laddr {}", endpoint.address)), ":1");
    assert_eq!(two.line(), "");
    let mut three = endpoint.connect();
    let address = three.0.get_ref().local_addr().expect("bound");
    assert_eq!(three.ask("ping"), "+PONG");
    assert_eq!(one.ask(&format!("client kill {address}")), "+OK");
    assert_eq!(three.line(), "");
    assert_eq!(one.ask(&format!("client kill {address}")), "-ERR No such client");
    assert_eq!(one.ask("client kill type normal"), ":0", "not itself");
    assert_eq!(one.ask("client kill type normal skipme no"), ":1", "the reply before the end");
    assert_eq!(one.line(), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary input, cut off anywhere: the server answers or closes, and serves the next client.
    #[test]
    fn noise_is_survived(
        noise in vec(prop_oneof![
            vec(any::<u8>(), 0..200),
            Just(b"*3\r\n$3\r\nSET\r\n$1\r\n".to_vec()),
            Just(b"*1000000\r\n".to_vec()),
            Just(b"$999999999\r\n".to_vec()),
            Just(b"get k\r\n".to_vec()),
            Just(b"hello 3\r\n".to_vec()),
        ], 1..20),
    ) {
        static DOOR: std::sync::LazyLock<Endpoint> =
            std::sync::LazyLock::new(|| Endpoint::open(Settings::default()));
        let mut client = DOOR.connect();
        // The server may close before it has read everything.
        let _ = client.0.get_mut().write_all(&noise.concat());
        drop(client);
        prop_assert_eq!(DOOR.connect().ask("ping"), "+PONG");
    }
}
