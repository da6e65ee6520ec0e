//! Random work of several users, crashes and lost fast volumes in virtual time. Every read gives the last acknowledged write
//! or a later one, and never goes back; at rest and after each opening the tier gives what is on the slow volume.

use std::cell::Cell as Counter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;
use policy::cache::Kind;
use policy::intent::PageReads;
use policy::valve::Thresholds;
use pool::tier::{Options, Tier, Writes};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::fault::{Effect, Rule};
use volume::mem::Mem;
use volume::{Clock, ErrorKind, Intent, IoBuf, IoBufMut, Object, Volume, Zeros};

use crate::history::{Begun, Cell, Moment};
use crate::rig::{Chance, Device, IO, PAGE, UNIT, beside, name, options};

const SEEDS: u64 = 400;
const CELL: u64 = 1024;
const CELLS: u64 = 4 * UNIT / CELL;
const OBJECTS: usize = 3;
const USERS: usize = 4;
const STEPS: usize = 12;
const ROUNDS: usize = 8;

/// The longest wait before a call takes effect, and after it.
const SLOW_US: u64 = 1500;
const FAST_US: u64 = 150;

/// The objects as they should be.
struct Model {
    cells: [Vec<Cell>; OBJECTS],
    /// When the last sync that succeeded began.
    synced: [Moment; OBJECTS],
    values: u64,
    now: Moment,
}

impl Model {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, object: usize, cells: Range<u64>, value: u64) -> Vec<Begun> {
        let now = self.tick();
        let cells = &mut self.cells[object][cells.start as usize..cells.end as usize];
        cells.iter_mut().map(|cell| cell.begin(value, now)).collect()
    }

    fn end(&mut self, object: usize, from: u64, begun: Vec<Begun>, acknowledged: bool) {
        let now = self.tick();
        for (cell, begun) in self.cells[object][from as usize..].iter_mut().zip(begun) {
            cell.end(begun, acknowledged, now);
        }
    }
}

fn value_of(bytes: &[u8]) -> u64 {
    assert!(bytes.chunks(8).all(|part| part == &bytes[..8]), "a cell of two writes");
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

struct World<'a> {
    seed: u64,
    clock: Clock,
    model: Mutex<Model>,
    random: Mutex<Xoshiro256PlusPlus>,
    crashing: Counter<bool>,
    /// Writes to the first two objects stay on the fast volume.
    keeps: bool,
    /// The fast volume may have failed with dirty pages.
    losing: Counter<bool>,
    /// The fast volume will lose its power, or has.
    doomed: Counter<bool>,
    lost_pages: Counter<u64>,
    /// The handles that objects were created with: only writes through these are cached as they are written.
    made: Mutex<[Option<Arc<dyn Object>>; OBJECTS]>,
    totals: &'a mut Totals,
}

/// That the runs did what they are for.
#[derive(Debug, Default)]
struct Totals {
    hit_bytes: u64,
    promotions: u64,
    inherited_bytes: u64,
    evictions: u64,
    trims: u64,
    deferred_pages: u64,
    doubts: u64,
    detached: u64,
    flushed_bytes: u64,
    lost_pages: u64,
    dirty_bytes: u64,
    warm: u64,
}

impl World<'_> {
    fn object_name(&self, object: usize) -> volume::Name {
        let first = if self.keeps { "o1.inp" } else { "o1.dat" };
        name([first, "o2.inp", "o3.tab"][object])
    }

    /// Whether calls may fail.
    fn tolerates(&self) -> bool {
        self.crashing.get() || self.losing.get()
    }

    fn pick(&self, max: u64) -> u64 {
        self.random.lock().random_range(0..max)
    }

    async fn step(&self, object: usize, handle: &dyn Object) {
        let (from, count) = (self.pick(CELLS - 1), 1 + self.pick(40));
        let to = (from + count).min(CELLS);
        match self.pick(20) {
            0..9 => self.read(object, handle, from, to).await,
            9..15 => self.write(object, handle, from, to).await,
            15 => {
                let begun = self.model.lock().begin(object, from..to, 0);
                let at = from * CELL;
                let zeroed = handle.zero(at, (to - from) * CELL, Zeros::Free, IO).await;
                self.model.lock().end(object, from, begun, zeroed.is_ok());
            }
            16 if !self.keeps || self.pick(4) == 0 => {
                let begun = self.model.lock().begin(object, from..CELLS, 0);
                let cut = handle.set_len(from * CELL).await;
                self.model.lock().end(object, from, begun, cut.is_ok());
            }
            _ => {
                let began = self.model.lock().tick();
                if handle.sync(IO).await.is_ok() {
                    let mut model = self.model.lock();
                    model.synced[object] = model.synced[object].max(began);
                }
            }
        }
    }

    async fn read(&self, object: usize, handle: &dyn Object, from: u64, to: u64) {
        let began = self.model.lock().tick();
        let into = IoBufMut::zeroed(((to - from) * CELL) as usize);
        match handle.read_at(from * CELL, into, IO).await {
            Err(e) => assert!(self.tolerates(), "seed {}: a read failed: {e}", self.seed),
            Ok(read) => {
                let mut model = self.model.lock();
                let now = model.tick();
                for (at, bytes) in (from..).zip(read.chunks_exact(CELL as usize)) {
                    let cell = &mut model.cells[object][at as usize];
                    if let Err(e) = cell.read(value_of(bytes), began, now) {
                        panic!("seed {}: object {object}, cell {at}: {e}", self.seed);
                    }
                }
            }
        }
    }

    async fn write(&self, object: usize, handle: &dyn Object, from: u64, to: u64) {
        let (value, begun) = {
            let mut model = self.model.lock();
            model.values += 1;
            let value = model.values;
            (value, model.begin(object, from..to, value))
        };
        let bytes = value.to_le_bytes().repeat(((to - from) * CELL / 8) as usize);
        let data = IoBuf::from(&bytes[..]);
        let is_durable = self.pick(2) != 0;
        let written = if !is_durable {
            handle.write_at(from * CELL, data, IO)
        } else {
            handle.write_durable(from * CELL, data, IO)
        };
        // Some callers give up.
        let patience = if self.pick(12) == 0 { self.pick(SLOW_US) } else { 1 << 40 };
        let gave_up = self.clock.sleep(Duration::from_micros(patience));
        let acknowledged = match select(written, gave_up).await {
            Either::Left((Ok(()), _)) => true,
            Either::Left((Err(e), _)) => {
                assert!(self.tolerates(), "seed {}: a write failed: {e}", self.seed);
                false
            }
            Either::Right(_) => false,
        };
        let mut model = self.model.lock();
        model.end(object, from, begun.clone(), acknowledged);
        if acknowledged && is_durable {
            for (cell, begun) in model.cells[object][from as usize..].iter_mut().zip(begun) {
                cell.is_durable(begun);
            }
        }
    }

    async fn user(&self, tier: &Tier) {
        for _ in 0..STEPS {
            // One object gets half of the calls, so that they meet.
            let object = (self.pick(2) * self.pick(OBJECTS as u64)) as usize;
            if self.keeps && self.pick(16) == 0 {
                let flushed = tier.flush().await;
                assert!(flushed.is_ok() || self.tolerates(), "seed {}: {flushed:?}", self.seed);
            }
            let made = self.made.lock()[object].clone().filter(|_| self.pick(2) == 0);
            let handle = match made {
                Some(made) => Ok(made),
                None => tier.open(&self.object_name(object)).await,
            };
            match handle {
                Ok(handle) => self.step(object, &*handle).await,
                Err(_) if self.crashing.get() => return,
                Err(e) => panic!("seed {}: {e}", self.seed),
            }
        }
    }

    /// At rest: checks what the tier gives, also of bytes that are only on the fast volume, and flushes it.
    async fn settle(&self, tier: &Tier, crashed: bool) {
        for attempt in 0.. {
            assert!(attempt < 20, "seed {}: it cannot be flushed", self.seed);
            for object in 0..OBJECTS {
                self.settle_object(tier, object, crashed).await;
            }
            match tier.flush().await {
                Ok(()) => break,
                Err(e) => assert!(self.losing.get(), "seed {}: a flush failed: {e}", self.seed),
            }
        }
        if self.losing.get() {
            // The first sync after a loss says so.
            for object in 0..OBJECTS {
                let handle = tier.open(&self.object_name(object)).await.unwrap();
                drop(handle.sync(IO).await);
            }
        }
        self.losing.set(self.doomed.get() || !tier.is_attached());
        if tier.is_attached() {
            assert_eq!((tier.figures().dirty_bytes, tier.figures().stale_bytes), (0, 0));
        }
    }

    async fn settle_object(&self, tier: &Tier, object: usize, crashed: bool) {
        let handle = tier.open(&self.object_name(object)).await.unwrap();
        let cells_of_page = (PAGE / CELL) as usize;
        for page in 0..handle.len().div_ceil(PAGE) {
            let (at, first) = (page * PAGE, page as usize * cells_of_page);
            let began = self.model.lock().tick();
            let read = match handle.read_at(at, IoBufMut::zeroed(PAGE as usize), IO).await {
                Ok(read) => read,
                Err(e) => {
                    assert!(self.losing.get() && object < 2, "seed {}: {at}: {e}", self.seed);
                    self.lost_pages.set(self.lost_pages.get() + 1);
                    // A whole page is good again. A fast volume that fails may take it again.
                    let len = PAGE.min(handle.len() - at) as usize;
                    let mut written = false;
                    for _ in 0..20 {
                        written |= handle
                            .write_durable(at, IoBuf::from(&vec![0; len][..]), IO)
                            .await
                            .is_ok();
                    }
                    assert!(written, "seed {}: page {page} cannot be written", self.seed);
                    let mut model = self.model.lock();
                    let cells = &mut model.cells[object][first..];
                    cells.iter_mut().take(cells_of_page).for_each(|cell| *cell = Cell::new(0));
                    continue;
                }
            };
            let mut model = self.model.lock();
            let (now, synced) = (model.tick(), model.synced[object]);
            for (at, bytes) in (first..).zip(read.chunks_exact(CELL as usize)) {
                let torn = bytes.chunks(8).any(|part| part != &bytes[..8]);
                let what = format!("seed {}: object {object}, cell {at}", self.seed);
                assert!(!torn || crashed, "{what} is torn");
                if torn {
                    continue;
                }
                let (value, cell) = (value_of(bytes), &mut model.cells[object][at]);
                if !crashed {
                    cell.read(value, began, now).unwrap_or_else(|e| panic!("{what}: {e}"));
                } else if value != 0 {
                    assert!(
                        cell.survives(value, synced),
                        "{what}: {value} was overwritten durably"
                    );
                }
            }
        }
    }

    /// At rest: compares what the tier gives to what is on the slow volume, and begins a new history with it.
    async fn compare(&self, tier: &Tier, slow: &Device, crashed: bool) {
        if self.keeps {
            self.settle(tier, crashed).await;
        }
        for object in 0..OBJECTS {
            let name = self.object_name(object);
            let handle = tier.open(&name).await.unwrap();
            let truth = slow.crash.open(&name).await.unwrap();
            let len = truth.len() as usize;
            assert_eq!(handle.len() as usize, len);
            let truth = truth.read_at(0, IoBufMut::zeroed(len), IO).await.unwrap();
            for round in 0..2 {
                let read = handle.read_at(0, IoBufMut::zeroed(len), IO).await.unwrap();
                let cells = read.chunks(CELL as usize).zip(truth.chunks(CELL as usize));
                for (at, (found, truth)) in cells.enumerate() {
                    assert!(
                        found == truth,
                        "seed {}: object {object}, cell {at}, round {round}: {:?} for {:?}",
                        self.seed,
                        &found[..8],
                        &truth[..8]
                    );
                }
                tier.install_all().await;
            }
            let mut model = self.model.lock();
            let synced = model.synced[object];
            for at in 0..CELLS as usize {
                let bytes = truth.get(at * CELL as usize..(at + 1) * CELL as usize);
                let torn = bytes.is_some_and(|bytes| bytes.chunks(8).any(|p| p != &bytes[..8]));
                let value =
                    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes[..8].try_into().unwrap()));
                let cell = &mut model.cells[object][at];
                if torn {
                    assert!(crashed, "seed {}: a torn cell at {at}", self.seed);
                } else if bytes.is_some() && crashed && value != 0 {
                    let lost = format!("seed {}: object {object}, cell {at}: {value}", self.seed);
                    assert!(cell.survives(value, synced), "{lost} was overwritten durably");
                }
            }
        }
        self.rewrite_torn(tier, slow).await;
    }

    /// Gives torn cells a value, and begins a new history.
    async fn rewrite_torn(&self, tier: &Tier, slow: &Device) {
        for object in 0..OBJECTS {
            let name = self.object_name(object);
            let truth = slow.crash.open(&name).await.unwrap();
            let handle = tier.open(&name).await.unwrap();
            let len = truth.len().next_multiple_of(CELL);
            if len != truth.len() {
                handle.set_len(len).await.unwrap();
            }
            let bytes = truth.read_at(0, IoBufMut::zeroed(len as usize), IO).await.unwrap();
            for at in 0..CELLS {
                let place = (at * CELL) as usize..((at + 1) * CELL) as usize;
                let mut value = 0;
                if let Some(bytes) = bytes.get(place) {
                    value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    if bytes.chunks(8).any(|part| part != &bytes[..8]) {
                        let data = IoBuf::from(&vec![0; CELL as usize][..]);
                        handle.write_at(at * CELL, data, IO).await.unwrap();
                        value = 0;
                    }
                }
                self.model.lock().cells[object][at as usize] = Cell::new(value);
            }
            // A history that begins now.
            handle.sync(IO).await.unwrap();
            let mut model = self.model.lock();
            model.synced[object] = 0;
        }
    }

    /// Makes an object that shall hold what was read before, in pages by chance.
    async fn create(&self, tier: &Tier, object: usize) {
        let pages = (0..(CELLS * CELL / PAGE) as u32).filter(|_| self.pick(4) == 0);
        let reads = pages.map(|page| PageReads { page, reads: self.pick(8) as u8 }).collect();
        let intent = Intent { reads: Some(reads), ..Intent::DATA };
        let made = tier.create(&self.object_name(object), &intent).await.unwrap();
        made.sync(IO).await.unwrap();
        self.made.lock()[object] = Some(made);
    }

    /// Removes an object, and makes another one of its name.
    async fn replace(&self, tier: &Tier, object: usize) {
        let name = self.object_name(object);
        tier.remove(&name).await.unwrap();
        self.create(tier, object).await;
        let mut model = self.model.lock();
        model.cells[object].iter_mut().for_each(|cell| *cell = Cell::new(0));
    }

    fn options(&self) -> Options {
        let kinds = Kind::ALL;
        let eviction = kinds[(self.seed % kinds.len() as u64) as usize];
        Options {
            eviction,
            checkpoint_every: Duration::from_millis(1 + self.seed % 7),
            writes: if self.keeps { Writes::Back } else { Writes::Through },
            thresholds: Thresholds {
                dirty_low: [0.0, 0.1, 0.4][(self.seed % 3) as usize],
                ..Thresholds::DEFAULT
            },
            valve_every: Duration::from_millis(1 + self.seed % 3),
            ..options(2 + self.seed % 5)
        }
    }

    async fn open(&self, slow: &Device, fast: Option<&Device>) -> Tier {
        self.made.lock().fill(None);
        let admit = Box::new(Chance(Xoshiro256PlusPlus::seed_from_u64(self.seed)));
        let fast = fast.map(|fast| Arc::clone(&fast.volume));
        Tier::open(Arc::clone(&slow.volume), fast, self.options(), admit, &self.clock)
            .await
            .unwrap()
    }

    fn count(&mut self, tier: &Tier) {
        let figures = tier.figures();
        self.totals.hit_bytes += figures.hit_bytes;
        self.totals.promotions += figures.promotions;
        self.totals.inherited_bytes += figures.inherited_bytes;
        self.totals.evictions += figures.evictions;
        self.totals.trims += figures.trims;
        self.totals.deferred_pages += figures.deferred_pages;
        self.totals.doubts += figures.doubts;
        self.totals.detached += figures.detached;
        self.totals.flushed_bytes += figures.flushed_bytes;
        self.totals.lost_pages += self.lost_pages.take();
        self.totals.dirty_bytes += figures.dirty_bytes;
    }
}

fn run(seed: u64, keeps: bool, totals: &mut Totals) {
    let clock = Clock::simulated();
    let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed));
    let cells = std::array::from_fn(|_| (0..CELLS).map(|_| Cell::new(0)).collect());
    let model = Model { cells, synced: [0; OBJECTS], values: 0, now: 0 };
    let (model, crashing) = (Mutex::new(model), Counter::new(false));
    let (losing, doomed, lost_pages) = (Counter::new(false), Counter::new(false), Counter::new(0));
    let mut world = World {
        seed,
        clock: clock.clone(),
        model,
        random,
        crashing,
        keeps,
        losing,
        doomed,
        lost_pages,
        made: Mutex::default(),
        totals,
    };
    let device = |mem, wait, seed| Device::new(mem, &clock, wait, seed);
    let mut slow = device(Mem::new("slow"), SLOW_US, 2 * seed);
    let mut fast = device(Mem::new("fast"), FAST_US, 2 * seed + 1);
    clock.run(async {
        let mut tier = world.open(&slow, Some(&fast)).await;
        for object in 0..OBJECTS {
            world.create(&tier, object).await;
        }
        for round in 0..ROUNDS as u64 {
            let event = world.pick(10);
            world.doomed.set(world.doomed.get() || (keeps && event == 1));
            world.losing.set(world.losing.get() || (keeps && event < 2));
            let when = Duration::from_micros(world.pick(40_000));
            // A device that fails for some calls, for ever, or without power.
            match event {
                0 => {
                    let kinds = [ErrorKind::TimedOut, ErrorKind::Corrupt, ErrorKind::Busy];
                    let kind = kinds[world.pick(3) as usize];
                    let effects = [Effect::Fail(kind), Effect::FailAfter(kind)];
                    let from = world.pick(60);
                    let rule = Rule::new(effects[world.pick(2) as usize]);
                    fast.plan.inject(rule.calls(from..from + 1 + world.pick(3)));
                }
                1 => fast.power.cut_after(world.pick(60)),
                _ => {}
            }
            let users = join_all((0..USERS).map(|_| world.user(&tier)));
            if event >= 7 {
                // A crash in the middle of it, of the machine or of the process.
                world.crashing.set(true);
                {
                    let work = std::pin::pin!(beside(&tier, users));
                    select(work, clock.sleep(when)).await;
                }
                world.count(&tier);
                drop(tier);
                let luck = 100 * seed + round;
                let of_machine = event > 7;
                let survivor = |device: &Device, luck| {
                    if of_machine {
                        device.crash.survivor(luck)
                    } else {
                        device.crash.after_process_death()
                    }
                };
                slow = device(survivor(&slow, luck), SLOW_US, luck);
                let kept = survivor(&fast, luck + 50);
                // It may be away for one opening with changes, and come back.
                if world.pick(4) == 0 {
                    world.crashing.set(false);
                    world.losing.set(keeps);
                    tier = world.open(&slow, None).await;
                    world.compare(&tier, &slow, true).await;
                    join_all((0..USERS).map(|_| world.user(&tier))).await;
                    for object in 0..OBJECTS {
                        tier.open(&world.object_name(object))
                            .await
                            .unwrap()
                            .sync(IO)
                            .await
                            .unwrap();
                    }
                    world.compare(&tier, &slow, false).await;
                    drop(tier);
                }
                fast = device(kept, FAST_US, luck + 1);
                world.doomed.set(false);
                world.crashing.set(false);
                tier = world.open(&slow, Some(&fast)).await;
                world.totals.warm += u64::from(tier.figures().cached_bytes > 0);
                world.compare(&tier, &slow, true).await;
                continue;
            }
            beside(&tier, users).await;
            // What is dirty may stay so across an orderly end.
            if !(keeps && event == 2 && world.pick(2) == 0) {
                world.compare(&tier, &slow, false).await;
            }
            if !tier.is_attached() {
                let left = fast.crash.after_process_death();
                let empty = world.pick(2) == 0;
                let mem = if empty { Mem::new("fast") } else { left };
                fast = device(mem, FAST_US, round);
                world.doomed.set(false);
                world.losing.set(false);
                tier.reattach(Arc::clone(&fast.volume)).await.unwrap();
            } else if event == 2 {
                tier.close().await;
                world.count(&tier);
                drop(tier);
                tier = world.open(&slow, Some(&fast)).await;
                world.totals.warm += u64::from(tier.figures().cached_bytes > 0);
                world.compare(&tier, &slow, false).await;
            } else if event == 3 {
                let object = world.pick(OBJECTS as u64) as usize;
                beside(&tier, world.replace(&tier, object)).await;
            }
            fast.plan.clear();
        }
        world.count(&tier);
    });
}

/// One seed with `PLIMSOLL_TIER_SEED`, else the first `PLIMSOLL_TIER_SEEDS`.
fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match number("PLIMSOLL_TIER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PLIMSOLL_TIER_SEEDS").unwrap_or(SEEDS),
    }
}

#[test]
fn every_read_gives_the_last_acknowledged_write() {
    let seeds = seeds();
    let mut totals = Totals::default();
    for seed in seeds.clone() {
        let _named = NameOnPanic(seed);
        run(seed, false, &mut totals);
    }
    eprintln!("{totals:?}");
    if seeds.end - seeds.start > 1 {
        let Totals { hit_bytes, promotions, evictions, trims, deferred_pages, .. } = totals;
        let Totals { doubts, detached, warm, inherited_bytes, .. } = totals;
        let room = [evictions, trims, deferred_pages];
        let bytes = [hit_bytes >> 20, inherited_bytes >> 16];
        let least = [&bytes[..], &room, &[promotions, doubts, detached, warm]].concat();
        assert!(least.iter().all(|&count| count > 50), "{least:?}");
    }
}

/// The same with writes that stay on the fast volume, which is the only copy of what is dirty.
#[test]
fn what_is_only_on_the_fast_volume_survives_or_is_named() {
    let seeds = seeds();
    let mut totals = Totals::default();
    for seed in seeds.clone() {
        let _named = NameOnPanic(seed);
        run(seed, true, &mut totals);
    }
    eprintln!("{totals:?}");
    if seeds.end - seeds.start > 1 {
        let Totals { hit_bytes, flushed_bytes, lost_pages, dirty_bytes, detached, warm, .. } =
            totals;
        let bytes = [hit_bytes, flushed_bytes, dirty_bytes].map(|bytes| bytes >> 16);
        let least = [&bytes[..], &[lost_pages, detached, warm]].concat();
        assert!(least.iter().all(|&count| count > 10), "{least:?}");
    }
}

struct NameOnPanic(u64);

impl Drop for NameOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}
