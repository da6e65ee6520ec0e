//! Clients: which bytes they read and write, and how often.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::{Either, join_all, select};
use hdrhistogram::Histogram;
use policy::time::Instant;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{Clock, IoBuf, IoBufMut};

use super::target::Target;
use crate::trace::{Requests, StandIn};
use crate::ycsb::Zipfian;

/// Bytes that have one stamp.
const BLOCK: u64 = 4096;

/// An odd number that sends neighbours far apart.
const SCATTER: u64 = 0x9e37_79b1;

/// Clients of an offered load: as many requests may be under way.
const CLIENTS: u32 = 512;

/// Which request comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chosen {
    /// Any, with the same chance.
    Uniform,
    /// Each begins where the one before ended.
    Sequential,
    /// By Zipf's law with an exponent of 0.99, the most popular first.
    ZipfTogether,
    /// The same, the popular ones scattered.
    ZipfScattered,
    /// Those of a stand-in for a trace, with its lengths and writes, on a footprint as large as the data.
    StandIn(StandIn),
}

/// Requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Which.
    pub chosen: Chosen,
    /// Bytes of each: a multiple of 4 KiB. A stand-in has lengths of its own.
    pub bytes: u64,
    /// Of a hundred requests those that write. A stand-in has a share of its own.
    pub writes_percent: u32,
}

/// When requests come, whatever became of those before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Requests a second, of waves in the busy half or in the mean.
    pub per_sec: u64,
    /// How the rate changes; `None`: requests come at equal distances.
    pub wave: Option<Wave>,
}

/// A rate that changes, and the time of one wave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wave {
    /// All requests come in the first half.
    Halves(Duration),
    /// A sine around the mean, up and down by this part of it, from 0 to 1.
    Sine(Duration, f64),
}

/// What clients got.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The time that was measured.
    pub elapsed: Duration,
    /// Requests that were answered in it.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their latencies, in nanoseconds; of an offered load from the time of its turn.
    pub nanos: Histogram<u64>,
    /// Blocks that were not those that were stored.
    pub wrong: u64,
}

impl Default for Answers {
    fn default() -> Self {
        let nanos = Histogram::new(3).expect("three digits are allowed");
        Self { elapsed: Duration::ZERO, count: 0, bytes: 0, nanos, wrong: 0 }
    }
}

/// The requests of one load, and what became of them.
struct Clients<'a> {
    load: Load,
    requests: u64,
    zipfian: Zipfian,
    clock: &'a Clock,
    target: &'a dyn Target,
    next: Cell<u64>,
    traced: Option<RefCell<std::iter::Cycle<Requests>>>,
    data: u64,
    answers: RefCell<Answers>,
}

/// `len` bytes whose blocks of 4 KiB begin with their number.
#[must_use]
pub fn stamped(from: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    for (nth, block) in bytes.chunks_mut(BLOCK as usize).enumerate() {
        let number = from / BLOCK + nth as u64;
        block[..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// The result of `work`, with `forever` beside it.
pub async fn beside<T>(work: impl Future<Output = T>, forever: impl Future<Output = ()>) -> T {
    match select(pin!(work), pin!(forever)).await {
        Either::Left((done, _)) => done,
        Either::Right(((), work)) => work.await,
    }
}

impl Load {
    /// Keeps `depth` requests to the first `data` bytes of a target under way, for `time`.
    ///
    /// # Errors
    /// A request failed.
    pub async fn closed(
        self,
        clock: &Clock,
        target: &dyn Target,
        data: u64,
        depth: usize,
        time: Duration,
        seed: u64,
    ) -> anyhow::Result<Answers> {
        let clients = Clients::new(self, clock, target, data, seed);
        let until = clock.now() + time;
        let all = (0..depth as u64).map(async |client| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 16 | client);
            while clock.now() < until {
                let begun = clock.now();
                clients.request(&mut random, begun, until).await?;
            }
            anyhow::Ok(())
        });
        join_all(all).await.into_iter().collect::<anyhow::Result<()>>()?;
        Ok(clients.end(time))
    }

    /// Offers requests for `time`. A request whose turn comes while too many are under way waits for them.
    ///
    /// # Errors
    /// A request failed.
    pub async fn offered(
        self,
        clock: &Clock,
        target: &dyn Target,
        data: u64,
        offer: Offer,
        time: Duration,
        seed: u64,
    ) -> anyhow::Result<Answers> {
        let clients = Clients::new(self, clock, target, data, seed);
        let (begin, until) = (clock.now(), clock.now() + time);
        let all = (0..CLIENTS).map(async |client| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 16 | u64::from(client));
            let mut turns = (u64::from(client)..).step_by(CLIENTS as usize);
            let mut next = || turns.next().map(|nth| begin + offer.turn(nth));
            while let Some(due) = next().filter(|&due| due < until && clock.now() < until) {
                clock.sleep_until(due).await;
                clients.request(&mut random, due, until).await?;
            }
            anyhow::Ok(())
        });
        join_all(all).await.into_iter().collect::<anyhow::Result<()>>()?;
        Ok(clients.end(time))
    }
}

impl Offer {
    /// When the turn of a request comes, from the start of the load.
    fn turn(self, nth: u64) -> Duration {
        let busy = Duration::from_secs(1).div_f64(self.per_sec as f64).mul_f64(nth as f64);
        match self.wave {
            // Every wave before has had an idle half.
            Some(Wave::Halves(wave)) => {
                let half = wave / 2;
                let waves = u32::try_from(busy.as_nanos() / half.as_nanos()).unwrap_or(u32::MAX);
                busy + half * waves
            }
            Some(Wave::Sine(wave, part)) => Duration::from_secs_f64(on_a_sine(
                busy.as_secs_f64(),
                part,
                std::f64::consts::TAU / wave.as_secs_f64(),
            )),
            None => busy,
        }
    }
}

/// The time at which as many requests have come at a rate of `1 + part · sin(radians · t)` as come in `level` at a rate of 1.
fn on_a_sine(level: f64, part: f64, radians: f64) -> f64 {
    // What has come grows with the time, and is at most this much ahead.
    let ahead = 2.0 * part / radians;
    let (mut low, mut high) = ((level - ahead).max(0.0), level);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        let come = middle + part / radians * (1.0 - (radians * middle).cos());
        if come < level { low = middle } else { high = middle }
    }
    high
}

impl<'a> Clients<'a> {
    fn new(load: Load, clock: &'a Clock, target: &'a dyn Target, data: u64, seed: u64) -> Self {
        let requests = (data / load.bytes).max(1);
        let zipfian = Zipfian::new(requests);
        let traced = match load.chosen {
            Chosen::StandIn(of) => {
                // As many as make the footprint as large as the data.
                let count = u128::from(of.requests) * u128::from(data / BLOCK)
                    / u128::from(of.footprint_blocks);
                let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
                Some(RefCell::new(of.requests(count, seed).cycle()))
            }
            _ => None,
        };
        let (next, answers) = (Cell::new(0), Default::default());
        Self { load, requests, zipfian, clock, target, next, traced, data, answers }
    }

    /// Where the next request begins, its length, and whether it writes.
    fn next(&self, random: &mut Xoshiro256PlusPlus) -> (u64, u64, bool) {
        if let Some(traced) = &self.traced
            && let Some(request) = traced.borrow_mut().next()
        {
            let len = u64::from(request.len).min(self.data);
            return (request.offset.min(self.data - len), len, request.is_write);
        }
        let at = self.choose(random) * self.load.bytes;
        (at, self.load.bytes, random.random_range(0..100) < self.load.writes_percent)
    }

    /// The number of the next request.
    fn choose(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        match self.load.chosen {
            Chosen::Uniform | Chosen::StandIn(_) => random.random_range(0..self.requests),
            Chosen::Sequential => {
                let next = self.next.get();
                self.next.set((next + 1) % self.requests);
                next
            }
            Chosen::ZipfTogether => self.zipfian.rank(random),
            // A bijection where the number of requests is a power of two; else some share a place.
            Chosen::ZipfScattered => self.zipfian.rank(random) * SCATTER % self.requests,
        }
    }

    /// Makes a request; its answer counts until `until`, its latency from `due` on.
    async fn request(
        &self,
        random: &mut Xoshiro256PlusPlus,
        due: Instant,
        until: Instant,
    ) -> anyhow::Result<()> {
        let (at, len, is_write) = self.next(random);
        let mut wrong = 0;
        if is_write {
            let data = stamped(at, len);
            self.target.write(at, IoBuf::from(&data[..])).await.context("a write")?;
        } else {
            let into = IoBufMut::zeroed(len as usize);
            let read = self.target.read(at, into).await.context("a read")?;
            let stamp = |nth: usize| (at / BLOCK + nth as u64).to_le_bytes();
            let mut blocks = read.chunks(BLOCK as usize).enumerate();
            let is_wrong = blocks.any(|(nth, block)| block[..8] != stamp(nth));
            wrong = u64::from(is_wrong || read.len() as u64 != len);
        }
        let now = self.clock.now();
        let mut answers = self.answers.borrow_mut();
        answers.wrong += wrong;
        if now <= until {
            answers.count += 1;
            answers.bytes += len;
            let nanos = u64::try_from(now.since(due).as_nanos()).unwrap_or(u64::MAX);
            // A saturating one does not grow the histogram, which begins at 2 ns.
            answers.nanos.record(nanos).expect("it grows");
        }
        Ok(())
    }

    fn end(self, elapsed: Duration) -> Answers {
        Answers { elapsed, ..self.answers.into_inner() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use volume::mem::Mem;
    use volume::{Intent, Name, Object, Volume};

    use super::*;

    /// A target of `len` stamped bytes.
    async fn target(len: u64) -> Arc<dyn Object> {
        let name = Name::new("data").expect("a name");
        let mem = Mem::new("mem");
        let object = mem.create(&name, &Intent::DATA).await.expect("room");
        let io = policy::purpose::Io::new(
            policy::purpose::Origin::UserWrite,
            policy::purpose::Step::Data,
        );
        object.write_at(0, IoBuf::from(&stamped(0, len)[..]), io).await.expect("room");
        object
    }

    const LEN: u64 = 64 * BLOCK;

    #[test]
    fn an_offered_load_makes_its_requests_and_sees_wrong_blocks() {
        let clock = Clock::simulated();
        let load = Load { chosen: Chosen::Sequential, bytes: BLOCK, writes_percent: 0 };
        let second = Duration::from_secs(1);
        clock.run(async {
            let object = target(LEN).await;
            let offer = Offer { per_sec: 640, wave: None };
            let offered =
                load.offered(&clock, &object, LEN, offer, second, 1).await.expect("memory");
            assert_eq!((offered.count, offered.wrong), (640, 0));
            assert_eq!(offered.nanos.max(), 0);
            Target::write(&object, 3 * BLOCK, IoBuf::from(&[7; 8][..])).await.expect("memory");
            let offered =
                load.offered(&clock, &object, LEN, offer, second, 1).await.expect("memory");
            assert_eq!(offered.wrong, 10);
            let offer = Offer { wave: Some(Wave::Halves(second / 2)), ..offer };
            let offered =
                load.offered(&clock, &object, LEN, offer, second, 1).await.expect("memory");
            assert_eq!(offered.count, 320, "every other quarter of a second is idle");
        });
    }

    #[test]
    fn a_stand_in_covers_the_data_with_its_writes_and_lengths() {
        let clock = Clock::simulated();
        let len = 4096 * BLOCK;
        let object = clock.run(target(len));
        let of = StandIn::ALL[2];
        let load = Load { chosen: Chosen::StandIn(of), bytes: BLOCK, writes_percent: 0 };
        let clients = Clients::new(load, &clock, &object, len, 1);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let requests: Vec<_> = (0..10_000).map(|_| clients.next(&mut random)).collect();
        assert!(requests.iter().all(|(at, bytes, _)| at + bytes <= len && bytes % BLOCK == 0));
        assert!(requests.iter().any(|(at, bytes, _)| at + bytes > len / 8 * 7));
        let mean = requests.iter().map(|(_, bytes, _)| bytes).sum::<u64>() as f64 / 1e4;
        let writes = requests.iter().filter(|(.., is_write)| *is_write).count() as f64 / 1e4;
        assert!((mean / of.mean_bytes - 1.0).abs() < 0.1, "{mean}");
        assert!((writes - of.write_share).abs() < 0.05, "{writes}");
    }

    #[test]
    fn requests_of_a_wave_come_in_its_first_half() {
        let offer = Offer { per_sec: 10, wave: Some(Wave::Halves(Duration::from_secs(2))) };
        let turns = [0, 9, 10, 19, 20].map(|nth| offer.turn(nth).as_millis());
        assert_eq!(turns, [0, 900, 2000, 2900, 4000]);
        let turns = [0, 9, 10].map(|nth| Offer { wave: None, ..offer }.turn(nth).as_millis());
        assert_eq!(turns, [0, 900, 1000]);
    }

    #[test]
    fn requests_of_a_sine_come_by_its_rate() {
        let wave = Wave::Sine(Duration::from_secs(4), 0.8);
        let offer = Offer { per_sec: 1000, wave: Some(wave) };
        let turns: Vec<_> = (0..8000).map(|nth| offer.turn(nth).as_secs_f64()).collect();
        assert!(turns.is_sorted());
        // The integral of the rate over each half, which has the crest or the trough in its middle.
        for (half, expected) in
            [2000.0 + 3200.0 / std::f64::consts::PI, 2000.0 - 3200.0 / std::f64::consts::PI]
                .into_iter()
                .cycle()
                .take(4)
                .enumerate()
        {
            let half = 2.0 * half as f64;
            let come = turns.iter().filter(|turn| (half..half + 2.0).contains(*turn)).count();
            assert!((come as f64 - expected).abs() < 2.0, "{come} came, not {expected}");
        }
    }

    #[test]
    fn scattered_requests_are_the_same_ones_elsewhere() {
        let clock = Clock::simulated();
        let object = clock.run(target(LEN));
        let of = |chosen| {
            let load = Load { chosen, bytes: BLOCK, writes_percent: 0 };
            let clients = Clients::new(load, &clock, &object, LEN, 1);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut counts = vec![0; 64];
            (0..10_000).for_each(|_| counts[clients.choose(&mut random) as usize] += 1);
            counts
        };
        let [together, scattered] = [of(Chosen::ZipfTogether), of(Chosen::ZipfScattered)];
        assert!(together[0] > 1000 && together[1] > together[60]);
        let moved = (0..64).all(|at| scattered[at * SCATTER as usize % 64] == together[at]);
        assert!(moved && scattered != together);
    }
}
