//! What was acknowledged survives the death of the process, again and again under load.
//!
//! Writers send pipelined `SET`s, `HSET`s and `DEL`s on keys of their own, and know what was
//! acknowledged; a hash has to be there whole. `PLIMSOLL_ROUNDS` asks for more rounds. The server is killed, or told to stop, once they got some way; after the restart each key has to hold
//! what its last acknowledged command left, or what a later one, sent and not acknowledged, would have.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Sender, channel};

use crate::place::{Client, Place, Server};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How many times it dies, unless `PLIMSOLL_ROUNDS` says.
const ROUNDS: u64 = 60;
/// One round in so many ends with SIGTERM.
const TERM_ONE_IN: u64 = 4;
const WRITERS: u64 = 4;
const KEYS: u64 = 200;
/// Commands a writer sends before it reads their replies.
const PIPELINE: usize = 16;

/// A key and its new value; none for a deletion.
type Sent = (String, Option<String>);

/// One connection that writes, and what it knows of its keys.
struct Writer {
    number: u64,
    random: Xoshiro256PlusPlus,
    /// What every acknowledged command of all rounds left.
    acknowledged: BTreeMap<String, String>,
    /// Sent in this round and not acknowledged, in order.
    pending: Vec<Sent>,
}

impl Writer {
    fn new(number: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(number);
        Self { number, random, acknowledged: BTreeMap::new(), pending: Vec::new() }
    }

    fn command(&mut self) -> (String, Sent) {
        let n = self.random.random_range(0..KEYS);
        let key = self.key(n);
        if self.random.random_range(0..5) == 0 {
            return (format!("DEL {key}\r\n"), (key, None));
        }
        let len = self.random.random_range(1..2000);
        let value = format!("{:016x}", self.random.random::<u64>()).repeat(len / 16 + 1);
        let text = if is_hash(&key) {
            format!("HSET {key} bow {value} stern {value}\r\n")
        } else {
            format!("SET {key} {value}\r\n")
        };
        (text, (key, Some(value)))
    }

    fn key(&self, n: u64) -> String {
        let kind = if n.is_multiple_of(4) { HASH } else { "" };
        format!("w{}:{kind}{n}", self.number)
    }

    /// Writes until the connection ends, and tells each time a pipeline was acknowledged.
    fn run(&mut self, mut client: Client, tell: &Sender<()>) {
        loop {
            let (texts, sent): (Vec<_>, Vec<_>) = (0..PIPELINE).map(|_| self.command()).unzip();
            self.pending = sent;
            if client.stream.get_mut().write_all(texts.concat().as_bytes()).is_err() {
                return;
            }
            for _ in 0..PIPELINE {
                let Some(reply) = client.reply() else { return };
                assert!(["+OK", ":0", ":1", ":2"].contains(&reply.as_str()), "{reply}");
                let (key, value) = self.pending.remove(0);
                settle(&mut self.acknowledged, key, value);
            }
            if tell.send(()).is_err() {
                return;
            }
        }
    }

    /// Compares every key with what it may hold, and takes over what it does hold.
    fn verify(&mut self, client: &mut Client) {
        for n in 0..KEYS {
            let key = self.key(n);
            let found = found(client, &key);
            let acknowledged = self.acknowledged.get(&key).cloned();
            let later = self.pending.iter().filter(|(other, _)| *other == key);
            let mut allowed = std::iter::once(&acknowledged).chain(later.map(|(_, value)| value));
            assert!(allowed.any(|value| *value == found), "{key}: {found:?} was not left there");
            settle(&mut self.acknowledged, key, found);
        }
        self.pending.clear();
    }
}

/// In the names of keys that hold hashes.
const HASH: &str = "hash:";

fn is_hash(key: &str) -> bool {
    key.contains(HASH)
}

/// What the key holds; of a hash, what all of its fields hold.
fn found(client: &mut Client, key: &str) -> Option<String> {
    let there = |reply: String| Some(reply).filter(|reply| reply != "$-1");
    if !is_hash(key) {
        return there(client.ask(&format!("GET {key}")));
    }
    let [bow, stern] = ["bow", "stern"].map(|field| client.ask(&format!("HGET {key} {field}")));
    assert_eq!(bow, stern, "{key} is torn");
    let found = there(bow);
    let fields = if found.is_some() { ":2" } else { ":0" };
    assert_eq!(client.ask(&format!("HLEN {key}")), fields, "{key}");
    found
}

fn settle(map: &mut BTreeMap<String, String>, key: String, value: Option<String>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_dies() {
    let rounds = std::env::var("PLIMSOLL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let place = Place::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut writers: Vec<_> = (0..WRITERS).map(Writer::new).collect();
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let server = place.serve();
        for writer in &mut writers {
            writer.verify(&mut server.client());
        }
        let pipelines = random.random_range(10..100);
        let end = if round % TERM_ONE_IN == 0 { Server::stop } else { Server::kill };
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            for writer in &mut writers {
                // Connected before the first of them writes: the end may come as soon as one did.
                let (tell, client) = (tell.clone(), server.client());
                scope.spawn(move || writer.run(client, &tell));
            }
            drop(tell);
            told.iter().take(pipelines).for_each(drop);
            end(server);
            // Until the last writer found out.
            told.iter().for_each(drop);
        });
    }
    let server = place.serve();
    for writer in &mut writers {
        writer.verify(&mut server.client());
        assert!(!writer.acknowledged.is_empty());
    }
    server.stop();
    let ended = place.run(&["check", "-c", "plimsoll.toml", "--scrub"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
}
