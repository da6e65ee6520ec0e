//! Acknowledged writes survive the death of the process, repeatedly and under load.
//!
//! Writers send pipelined `SET`s, `HSET`s and `DEL`s on their own keys, and record what was acknowledged. The test
//! kills or stops the server after some pipelines. After the restart each key must hold the result of its last
//! acknowledged command, or of a later one that was sent but not acknowledged; a hash must be whole. `PLIMSOLL_ROUNDS`
//! sets the number of rounds.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Sender, channel};

use crate::place::{Client, Place, Server};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The number of deaths, unless `PLIMSOLL_ROUNDS` is set.
const ROUNDS: u64 = 60;
/// One round in this many ends with SIGTERM.
const TERM_ONE_IN: u64 = 4;
const WRITERS: u64 = 4;
const KEYS: u64 = 200;
/// Commands a writer sends before it reads their replies.
const PIPELINE: usize = 16;

/// A key and its new value; `None` for a deletion.
type Sent = (String, Option<String>);

/// One writing connection, and the expected state of its keys.
struct Writer {
    number: u64,
    random: Xoshiro256PlusPlus,
    /// The result of every acknowledged command of all rounds.
    acknowledged: BTreeMap<String, String>,
    /// Commands sent in this round and not acknowledged, in order.
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

    /// Writes until the connection ends; notifies `tell` after each acknowledged pipeline.
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

    /// Compares every key with its allowed values, and records the value found.
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

/// Marks the names of keys that hold hashes.
const HASH: &str = "hash:";

fn is_hash(key: &str) -> bool {
    key.contains(HASH)
}

/// The value of the key; of a hash, the value that all its fields share.
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
                // Connect before the first writer starts: the server may die after the first pipeline.
                let (tell, client) = (tell.clone(), server.client());
                scope.spawn(move || writer.run(client, &tell));
            }
            drop(tell);
            told.iter().take(pipelines).for_each(drop);
            end(server);
            // Waits until the last writer has ended.
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
