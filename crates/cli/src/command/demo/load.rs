//! The demo's load: plain Redis clients over TCP, one thread each.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::BytesMut;
use hdrhistogram::Histogram;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::{BorrowedFrame, RangeFrame};
use volume::Clock;

/// As many requests can be under way: as many threads as the server executes requests with.
const CONNECTIONS: u64 = 64;
/// Enough keys that a fifth of them fits the cache.
const KEYS: u64 = 300_000;
const VALUE_BYTES: usize = 1024;
/// Requests a connection sends at once while it stores.
const PIPELINE: u64 = 32;
/// One request in so many writes.
const WRITE_ONE_IN: u64 = 10;

/// A load on the server at one address.
pub(super) struct Load {
    address: SocketAddr,
    clock: Clock,
}

/// What a load did.
pub(super) struct Outcome {
    what: &'static str,
    requests: u64,
    /// How long it took.
    pub(super) elapsed: Duration,
    /// Of requests sent one by one, in microseconds.
    latency_us: Histogram<u64>,
}

impl Load {
    pub(super) fn new(address: SocketAddr, clock: Clock) -> Self {
        Self { address, clock }
    }

    /// Stores every key.
    pub(super) fn store(&self) -> anyhow::Result<Outcome> {
        let mut outcome = self.on_all("stored", |mut client, number, outcome| {
            let share = KEYS * number / CONNECTIONS..KEYS * (number + 1) / CONNECTIONS;
            client.store(share)?;
            outcome.requests += KEYS * (number + 1) / CONNECTIONS - KEYS * number / CONNECTIONS;
            Ok(())
        })?;
        outcome.latency_us.clear();
        Ok(outcome)
    }

    /// Reads keys at random, and writes some, for so long.
    pub(super) fn mix(&self, how_long: Duration) -> anyhow::Result<Outcome> {
        let end = self.clock.now() + how_long;
        self.on_all("read and wrote", |mut client, _, outcome| {
            let mut sent = self.clock.now();
            while sent < end {
                client.one()?;
                let answered = self.clock.now();
                let latency = u64::try_from(answered.since(sent).as_micros()).unwrap_or(u64::MAX);
                outcome.latency_us.saturating_record(latency);
                outcome.requests += 1;
                sent = answered;
            }
            Ok(())
        })
    }

    /// Runs `work` on every connection, each with a thread and a number, and adds up what they did.
    fn on_all(
        &self,
        what: &'static str,
        work: impl Fn(Client, u64, &mut Outcome) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<Outcome> {
        let start = self.clock.now();
        let one = |number| {
            let mut outcome = Outcome::none(what);
            work(Client::connect(self.address, number)?, number, &mut outcome)?;
            anyhow::Ok(outcome)
        };
        let mut all = Outcome::none(what);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..CONNECTIONS).map(|number| scope.spawn(move || one(number))).collect();
            for thread in threads {
                let outcome = thread.join().expect("a client does not panic")?;
                all.requests += outcome.requests;
                all.latency_us.add(outcome.latency_us)?;
            }
            anyhow::Ok(())
        })?;
        all.elapsed = self.clock.now().since(start);
        Ok(all)
    }
}

impl Outcome {
    fn none(what: &'static str) -> Self {
        let minute_us = 60_000_000;
        let latency_us = Histogram::new_with_bounds(1, minute_us, 3).expect("sound bounds");
        Self { what, requests: 0, elapsed: Duration::ZERO, latency_us }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let rate = self.requests as f64 / seconds;
        write!(f, "{} {} keys in {seconds:.1} s: {rate:.0} a second", self.what, self.requests)?;
        if self.latency_us.is_empty() {
            return Ok(());
        }
        let ms = |quantile| self.latency_us.value_at_quantile(quantile) as f64 / 1000.0;
        write!(f, "; latency p50 {:.1} ms, p99 {:.1} ms", ms(0.5), ms(0.99))
    }
}

/// One connection.
struct Client {
    stream: TcpStream,
    random: Xoshiro256PlusPlus,
    output: BytesMut,
    input: Vec<u8>,
    value: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr, seed: u64) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("connect to the server")?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            output: BytesMut::new(),
            input: Vec::new(),
            value: vec![0; VALUE_BYTES],
        })
    }

    /// Stores the keys with these numbers.
    fn store(&mut self, mut keys: Range<u64>) -> anyhow::Result<()> {
        while !keys.is_empty() {
            let batch = keys.start..keys.end.min(keys.start + PIPELINE);
            keys.start = batch.end;
            for key in batch.clone() {
                self.put_set(key)?;
            }
            self.exchange((batch.end - batch.start) as usize)?;
        }
        Ok(())
    }

    /// Reads a key at random, or writes it.
    fn one(&mut self) -> anyhow::Result<()> {
        let key = self.random.random_range(0..KEYS);
        if self.random.random_range(0..WRITE_ONE_IN) == 0 {
            self.put_set(key)?;
        } else {
            self.put(&[b"GET", name(key).as_bytes()])?;
        }
        self.exchange(1)
    }

    fn put_set(&mut self, key: u64) -> anyhow::Result<()> {
        let mut value = std::mem::take(&mut self.value);
        // Random bytes: what compresses to nothing would not need the volumes.
        self.random.fill_bytes(&mut value);
        let put = self.put(&[b"SET", name(key).as_bytes(), &value]);
        self.value = value;
        put
    }

    fn put(&mut self, words: &[&[u8]]) -> anyhow::Result<()> {
        let words: Vec<_> = words.iter().map(|word| BorrowedFrame::BulkString(word)).collect();
        extend_encode_borrowed(&mut self.output, &BorrowedFrame::Array(&words), false)?;
        Ok(())
    }

    /// Sends what was put and waits for `replies`, none of which may be an error.
    fn exchange(&mut self, replies: usize) -> anyhow::Result<()> {
        self.stream.write_all(&self.output)?;
        self.output.clear();
        let mut left = replies;
        let mut chunk = [0; 16 * 1024];
        while left > 0 {
            let Some((reply, len)) = decode_range(&self.input)? else {
                let read = self.stream.read(&mut chunk)?;
                if read == 0 {
                    bail!("the server closed the connection");
                }
                self.input.extend_from_slice(&chunk[..read]);
                continue;
            };
            if let RangeFrame::Error((from, to)) = reply {
                bail!("the server answered {}", String::from_utf8_lossy(&self.input[from..to]));
            }
            self.input.drain(..len);
            left -= 1;
        }
        Ok(())
    }
}

fn name(key: u64) -> String {
    format!("key:{key:012}")
}
