//! A file on the volume, and loads on it: many requests at once, or one now and then.
//!
//! On a real clock each loop has its own thread and makes blocking system calls; in virtual time all loops run on the
//! current thread.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::future::join_all;
use hdrhistogram::Histogram;
use policy::purpose::{Io, Origin, Step};
use policy::time::Instant;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{Clock, IoBuf, IoBufMut, Object, task};

use super::Progress;
use super::fit::Curve;
use crate::machine;

const IO: Io = Io::new(Origin::UserRead, Step::Data);
const MIB: usize = 1 << 20;

/// The interval between checks of the stop flag.
const LOOK: Duration = Duration::from_millis(20);

/// After this many answers in zero time the probe gives up.
const INSTANT_MAX: u64 = 1_000_000;

/// Writes under way at once while the file is made.
const FILLERS: usize = 4;

/// The kind of time, and the threads of loops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Time {
    /// Real time, with a thread for each request under way.
    Real,
    /// A simulated clock, on this thread.
    Virtual,
}

/// The file and the environment for loads.
pub(super) struct Fixture<'a> {
    pub(super) clock: &'a Clock,
    pub(super) time: Time,
    pub(super) object: Arc<dyn Object>,
    /// Bytes of the file that were written.
    pub(super) bytes: u64,
    pub(super) seed: u64,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a dyn Progress,
}

/// What a request does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// Requests one after the other, in several loops at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    /// The operations of the loops, in turn.
    pub(super) kinds: &'a [Kind],
    /// Bytes of each request, in whole pages.
    pub(super) bytes: u64,
    pub(super) at_once: usize,
    pub(super) time: Duration,
}

/// The result of a load.
pub(super) struct Ran {
    pub(super) reads: Side,
    pub(super) writes: Side,
    pub(super) began: Instant,
    /// When the last request was answered.
    pub(super) ended: Instant,
    /// The share of the machine's processors that this process used.
    pub(super) ours: f64,
    /// The share of them that all processes used.
    pub(super) busy: f64,
}

impl Ran {
    pub(super) fn side(&self, kind: Kind) -> &Side {
        match kind {
            Kind::Read => &self.reads,
            Kind::Write => &self.writes,
        }
    }
}

/// The result of one kind of request.
pub(super) struct Side {
    pub(super) curve: Curve,
    /// In nanoseconds, from request to answer.
    pub(super) latency: Histogram<u64>,
}

impl Fixture<'_> {
    /// Writes random bytes to the file until it has `bytes` or `time` is over, but `least` in any case. Random bytes
    /// defeat compression and holes.
    pub(super) fn fill(&mut self, bytes: u64, least: u64, time: Duration) -> anyhow::Result<()> {
        let next = AtomicU64::new(0);
        let until = self.clock.now() + time;
        let this = &*self;
        this.loops(FILLERS, |number| {
            let (next, this) = (&next, this);
            async move {
                let mut random = this.random(number);
                let mut piece = IoBufMut::zeroed(MIB);
                loop {
                    let enough = next.load(Ordering::Relaxed) >= least;
                    if this.is_stopped() || (enough && this.clock.now() >= until) {
                        return Ok(());
                    }
                    let at = next.fetch_add(MIB as u64, Ordering::Relaxed);
                    if at + MIB as u64 > bytes {
                        return Ok(());
                    }
                    random.fill_bytes(&mut piece);
                    let data = piece.freeze();
                    this.object.write_at(at, data.clone(), IO).await?;
                    piece = data.reclaim().context("the volume keeps what it was given")?;
                    piece.resize(MIB);
                }
            }
        })?;
        let synced = async { Ok(self.object.sync(IO).await?) };
        self.alone(synced)?;
        self.check_stop()?;
        self.bytes = self.object.len();
        Ok(())
    }

    /// Loads the volume as fully as it can.
    pub(super) fn saturate(&self, load: Load<'_>) -> anyhow::Result<Ran> {
        let steps = usize::try_from(load.time.as_millis()).context("a run is shorter")?;
        let counts =
            [(); 2].map(|()| -> Vec<_> { (0..steps).map(|_| AtomicU32::new(0)).collect() });
        let (cpu, machine) = (machine::cpu_time(), machine::processors());
        let began = self.clock.now();
        let until = began + load.time;
        let latencies = self.loops(load.at_once, |number| {
            let kind = load.kinds[number % load.kinds.len()];
            let counts = &counts[kind as usize];
            async move {
                let mut requests = Requests::new(self, kind, load.bytes, number);
                let (mut latency, mut instant, mut ended) = (histogram(), 0, began);
                loop {
                    let start = self.clock.now();
                    if start >= until || self.is_stopped() {
                        return Ok((kind, latency, ended));
                    }
                    requests.next().await?;
                    let end = self.clock.now();
                    ended = end;
                    let step = end.since(began).as_millis();
                    if let Some(count) = usize::try_from(step).ok().and_then(|at| counts.get(at)) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    latency.saturating_record(nanos(end.since(start)));
                    instant = if end == start { instant + 1 } else { 0 };
                    ensure!(
                        instant < INSTANT_MAX,
                        "the volume answers in no time: nothing to find"
                    );
                }
            }
        })?;
        let took = self.clock.now().since(began).as_secs_f64().max(1e-9);
        self.check_stop()?;
        let (ours, busy) = match self.time {
            Time::Virtual => (0.0, 0.0),
            Time::Real => {
                let used = machine::cpu_time().saturating_sub(cpu).as_secs_f64();
                let all = std::thread::available_parallelism().map_or(1, usize::from) as f64;
                (used / took / all, machine::processors().busy_since(machine))
            }
        };
        let side = |kind: Kind| -> anyhow::Result<Side> {
            let mut latency = histogram();
            for (of, loop_latency, _) in &latencies {
                if *of == kind {
                    latency.add(loop_latency).context("histograms of one kind add up")?;
                }
            }
            let counts: Vec<_> =
                counts[kind as usize].iter().map(|n| n.load(Ordering::Relaxed)).collect();
            Ok(Side { curve: Curve::of(&counts), latency })
        };
        let ended = latencies.iter().map(|&(.., ended)| ended).max().unwrap_or(began);
        let (reads, writes) = (side(Kind::Read)?, side(Kind::Write)?);
        Ok(Ran { reads, writes, began, ended, ours, busy })
    }

    /// One request at a time, at most `per_sec` per second. Returns their latencies in nanoseconds.
    pub(super) fn pace(
        &self,
        kind: Kind,
        per_sec: f64,
        time: Duration,
    ) -> anyhow::Result<Histogram<u64>> {
        let gap = Duration::from_secs_f64(1.0 / per_sec);
        let until = self.clock.now() + time;
        let mut all = self.loops(1, |number| async move {
            let mut requests = Requests::new(self, kind, volume::buf::PAGE as u64, number);
            let mut latency = histogram();
            loop {
                let start = self.clock.now();
                if start >= until || self.is_stopped() {
                    return Ok(latency);
                }
                requests.next().await?;
                latency.saturating_record(nanos(self.clock.now().since(start)));
                self.clock.sleep_until(start + gap).await;
            }
        })?;
        self.check_stop()?;
        all.pop().context("there was one loop")
    }

    /// Leaves the volume alone.
    pub(super) fn idle(&self, time: Duration) -> anyhow::Result<()> {
        let until = self.clock.now() + time;
        while self.clock.now() < until && !self.is_stopped() {
            let at = until.min(self.clock.now() + LOOK);
            self.alone(async {
                self.clock.sleep_until(at).await;
                Ok(())
            })?;
            self.progress.passes(self.clock.now());
        }
        self.check_stop()
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn check_stop(&self) -> anyhow::Result<()> {
        if self.is_stopped() {
            bail!(super::Interrupted);
        }
        Ok(())
    }

    fn random(&self, number: usize) -> Xoshiro256PlusPlus {
        let moment = self.clock.now().as_nanos();
        Xoshiro256PlusPlus::seed_from_u64(self.seed ^ moment.rotate_left(16) ^ number as u64)
    }

    fn alone<T>(&self, future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        match self.time {
            Time::Real => task::block_on(future),
            Time::Virtual => self.clock.run(future),
        }
    }

    /// Runs `many` loops at once to their ends; `make` makes each from its number.
    fn loops<T: Send, F: Future<Output = anyhow::Result<T>>>(
        &self,
        many: usize,
        make: impl Fn(usize) -> F + Sync,
    ) -> anyhow::Result<Vec<T>> {
        if self.time == Time::Virtual {
            let ended = self.clock.run(join_all((0..many).map(make)));
            self.progress.passes(self.clock.now());
            return ended.into_iter().collect();
        }
        std::thread::scope(|scope| {
            let make = &make;
            let start = |number| {
                let thread = std::thread::Builder::new().name("probe".into());
                thread.spawn_scoped(scope, move || task::block_on(make(number)))
            };
            let threads = (0..many).map(start).collect::<Result<Vec<_>, _>>();
            let threads = threads.context("this machine has no room for that many threads")?;
            while threads.iter().any(|thread| !thread.is_finished()) {
                task::block_on(self.clock.sleep(LOOK));
                self.progress.passes(self.clock.now());
            }
            threads.into_iter().map(|t| t.join().expect("a loop does not panic")).collect()
        })
    }
}

/// Requests of one loop, each at its own offset.
struct Requests<'a> {
    fixture: &'a Fixture<'a>,
    kind: Kind,
    bytes: u64,
    random: Xoshiro256PlusPlus,
    into: Option<IoBufMut>,
    /// Random bytes; writes use slices of them.
    data: IoBuf,
}

impl<'a> Requests<'a> {
    fn new(fixture: &'a Fixture<'a>, kind: Kind, bytes: u64, number: usize) -> Self {
        let mut random = fixture.random(number);
        let mut data = IoBufMut::zeroed(0);
        if kind == Kind::Write {
            // A surplus, so that writes differ.
            data.resize(index(bytes) + 64 * volume::buf::PAGE);
            random.fill_bytes(&mut data);
        }
        Self { fixture, kind, bytes, random, into: None, data: data.freeze() }
    }

    async fn next(&mut self) -> anyhow::Result<()> {
        let align = 1 << self.bytes.ilog2();
        let places = (self.fixture.bytes - self.bytes) / align + 1;
        let offset = self.random.random_range(0..places) * align;
        let wanted = index(self.bytes);
        match self.kind {
            Kind::Read => {
                let mut into = self.into.take().unwrap_or_else(|| IoBufMut::zeroed(wanted));
                into.resize(wanted);
                let read = self.fixture.object.read_at(offset, into, IO).await?;
                ensure!(read.len() == wanted, "the probe's file was cut while it was read");
                self.into = Some(read);
            }
            Kind::Write => {
                let from = self.random.random_range(0..=64) * volume::buf::PAGE;
                let data = self.data.slice(from..from + wanted);
                self.fixture.object.write_at(offset, data, IO).await?;
            }
        }
        Ok(())
    }
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a request fits into memory")
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Three significant digits, up to a minute.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3).expect("the bounds are in order")
}
