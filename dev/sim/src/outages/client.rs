//! A user with a model of its acknowledged and possible data.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use policy::intent::{Family, Intent, Kind};
use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use pool::Spread;
use pool::spread::Handle;
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{Check, Error, ErrorKind, IoBuf, IoBufMut, Name, Object, Result, Volume};

use super::coded;
use super::expect::{self, Overwrites, Stage, Thing};
use super::rot::Rot;
use crate::Sim;

const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);
const READ: Io = Io::new(Origin::UserRead, Step::Data);

/// The names that a user replaces tables under.
const REGISTERS: u64 = 3;
/// Objects longer than an eighth of this are removed.
const LENGTH_MAX: usize = 40_000;

/// What must be readable.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Sure {
    /// Everything: all volumes are present and none fails.
    All,
    /// The objects recorded by [`Client::take_promise`]: volumes are away, none fails.
    Promised,
    /// Any read may fail.
    Nothing,
}

/// A user, over all lives of the pool.
pub(super) struct Client {
    home: String,
    random: RefCell<Xoshiro256PlusPlus>,
    rot: Rc<Rot>,
    /// The pool has an erasure code: it also writes objects at once, which become fragments.
    has_code: bool,
    memory: RefCell<Memory>,
    /// The process ends in order: no operation is begun any more.
    finishes: Cell<bool>,
}

#[derive(Default)]
struct Memory {
    things: BTreeMap<String, Thing>,
    /// The name of the current operation.
    busy: Option<String>,
    /// The name of an append that failed, and is tried again next.
    again: Option<String>,
    /// The names that must be readable without the lost volume.
    promised: BTreeSet<String>,
    made: u64,
    acknowledged: u64,
    refused: u64,
}

impl Client {
    pub(super) fn new(sim: &Sim, number: u32, rot: Rc<Rot>, has_code: bool) -> Self {
        let home = format!("user-{number}");
        let random = RefCell::new(sim.random(&home));
        let (memory, finishes) = (RefCell::default(), Cell::new(false));
        Self { home, random, rot, has_code, memory, finishes }
    }

    pub(super) fn home(&self) -> &str {
        &self.home
    }

    /// Operations that were acknowledged, and those that were not.
    pub(super) fn counts(&self) -> (u64, u64) {
        let memory = self.memory.borrow();
        (memory.acknowledged, memory.refused)
    }

    /// From now on objects with a copy, or enough fragments, that are not on `lost` must stay readable without these
    /// volumes, unless they change.
    pub(super) fn take_promise(&self, pool: &Spread, lost: &[VolumeId]) {
        let memory = &mut *self.memory.borrow_mut();
        let begins = format!("{}/", self.home);
        let safe = |object: &pool::spread::ObjectStat| {
            let stays = |placed: &pool::Placed| {
                let is_lost = placed.layout.volumes().iter().any(|volume| lost.contains(volume));
                !is_lost && !self.rot.is_in(object.id, placed)
            };
            coded::suffice(object, stays)
        };
        let objects = pool.objects();
        let names = objects.iter().filter(|object| safe(object));
        let names = names.filter_map(|object| object.name.as_str().strip_prefix(&begins));
        memory.promised = names.map(str::to_owned).collect();
        if let Some(busy) = &memory.busy {
            memory.promised.remove(busy);
        }
    }

    pub(super) fn forget_promise(&self) {
        self.memory.borrow_mut().promised.clear();
    }

    /// Begins no further operation in this life.
    pub(super) fn finish(&self) {
        self.finishes.set(true);
    }

    /// Notes that the process ended.
    pub(super) fn stop(&self) {
        self.finishes.set(false);
        let memory = &mut *self.memory.borrow_mut();
        (memory.busy, memory.again) = (None, None);
    }

    fn at(&self, name: &str) -> Name {
        Name::new(&format!("{}/{name}", self.home)).expect("a good name")
    }

    /// Works for a while, also after failures.
    pub(super) async fn work(self: Rc<Self>, sim: Sim, pool: Spread) {
        let ops = self.random.borrow_mut().random_range(10..80);
        for _ in 0..ops {
            let pause = self.random.borrow_mut().random_range(0..6_000);
            sim.clock().sleep(Duration::from_micros(pause)).await;
            if self.finishes.get() {
                return;
            }
            let choice =
                self.random.borrow_mut().random_range(0..if self.has_code { 19 } else { 13 });
            let again = self.memory.borrow().again.is_some();
            let (what, done) = match choice {
                _ if again => self.append(&sim, &pool).await,
                0..3 => self.replace(&pool).await,
                3..9 => self.append(&sim, &pool).await,
                9 => self.seal(&pool).await,
                10..12 => self.overwrite(&pool).await,
                12 => self.remove(&pool).await,
                _ => self.write_whole(&pool).await,
            };
            let memory = &mut *self.memory.borrow_mut();
            memory.busy = None;
            match done {
                Ok(()) => {
                    memory.acknowledged += 1;
                    // The volume to be lost may be the only one with the new state.
                    memory.promised.remove(&what);
                    sim.note(&self.home, format_args!(". {what}"));
                }
                Err(e) => {
                    memory.refused += 1;
                    sim.note(&self.home, format_args!("! {what}: {e}"));
                }
            }
        }
    }

    /// Replaces a table by a newer one.
    async fn replace(&self, pool: &Spread) -> (String, Result<()>) {
        let name = format!("r{}", self.random.borrow_mut().random_range(0..REGISTERS));
        let version = {
            let memory = &mut *self.memory.borrow_mut();
            let thing = Thing::Register { acked: 0, tried: 0 };
            let thing = memory.things.entry(name.clone()).or_insert(thing);
            let Thing::Register { tried, .. } = thing else { unreachable!("its name says so") };
            *tried += 1;
            memory.busy = Some(name.clone());
            *tried
        };
        let done = async {
            let draft = self.at(&format!("draft-{name}-{version}"));
            let family = Family("default".into());
            let kind = Kind::Table { family, level: None, range: None };
            let data = IoBuf::from(&expect::table(&name, version)[..]);
            pool.write_whole(&draft, &Intent { kind, len: None, ..Intent::DATA }, data, WRITE)
                .await?;
            pool.rename(&draft, &self.at(&name)).await
        };
        let done = done.await;
        if done.is_ok()
            && let Some(Thing::Register { acked, .. }) =
                self.memory.borrow_mut().things.get_mut(&name)
        {
            *acked = version;
        }
        (name, done)
    }

    /// Writes an object at once, mostly one that is longer than a strip.
    async fn write_whole(&self, pool: &Spread) -> (String, Result<()>) {
        let (name, bytes) = {
            let (memory, random) = (&mut *self.memory.borrow_mut(), &mut *self.random.borrow_mut());
            memory.made += 1;
            let name = format!("w{}.dat", memory.made);
            let len_max = [6_000, 20_000, LENGTH_MAX][random.random_range(0..3)];
            let mut bytes = vec![0; random.random_range(1..len_max)];
            random.fill_bytes(&mut bytes);
            let bytes: Arc<[u8]> = bytes.into();
            let thing =
                Thing::Whole { bytes: Arc::clone(&bytes), acked: false, stage: Stage::Sealed };
            memory.things.insert(name.clone(), thing);
            memory.busy = Some(name.clone());
            (name, bytes)
        };
        let data = IoBuf::from(&bytes[..]);
        let done = pool.write_whole(&self.at(&name), &Intent::DATA, data, WRITE).await;
        if done.is_ok()
            && let Some(Thing::Whole { acked, .. }) = self.memory.borrow_mut().things.get_mut(&name)
        {
            *acked = true;
        }
        (name, done)
    }

    /// Appends to a log or another object, and mostly syncs it. After a failure, or without a sync, the next append cuts
    /// off the rest, or the object is never written again.
    async fn append(&self, sim: &Sim, pool: &Spread) -> (String, Result<()>) {
        let (name, acked, bytes) = {
            let memory = &mut *self.memory.borrow_mut();
            let random = &mut *self.random.borrow_mut();
            let may = |(_, thing): &(&String, &Thing)| {
                matches!(thing, Thing::Appended { stage: Stage::Grows, .. })
            };
            let there: Vec<_> = memory.things.iter().filter(may).map(|(name, _)| name).collect();
            let old = (!there.is_empty() && random.random_bool(0.8))
                .then(|| there[random.random_range(0..there.len())].clone());
            let name = memory.again.take().or(old).unwrap_or_else(|| {
                memory.made += 1;
                format!("a{}.{}", memory.made, ["log", "dat"][random.random_range(0..2)])
            });
            let thing = memory.things.entry(name.clone()).or_insert(Thing::created());
            let Thing::Appended { acked, .. } = thing else { unreachable!("its name says so") };
            let acked = acked.clone().unwrap_or_default();
            memory.busy = Some(name.clone());
            let mut bytes = vec![0; random.random_range(1..3_000)];
            random.fill_bytes(&mut bytes);
            (name, acked, bytes)
        };
        let two = self.random.borrow_mut().random_bool(0.3);
        let syncs = self.random.borrow_mut().random_bool(0.9);
        let done = async {
            let path = self.at(&name);
            let object = match pool.open(&path).await {
                Ok(object) => object,
                Err(e) if e.kind() == ErrorKind::NotFound && acked.is_empty() => {
                    let intent =
                        if path.as_str().ends_with(".log") { Intent::LOG } else { Intent::DATA };
                    pool.create(&path, &intent).await?
                }
                Err(e) => return Err(e),
            };
            let from = acked.len() as u64;
            if object.len() > from {
                object.set_len(from).await?;
            }
            let half = if two { bytes.len() / 2 } else { 0 };
            let (first, second) = bytes.split_at(half);
            let first = object.write_at(from, IoBuf::from(first), WRITE);
            let second = object.write_at(from + half as u64, IoBuf::from(second), WRITE);
            let (first, second) = futures_util::future::join(first, second).await;
            first.and(second)?;
            if !syncs {
                return Err(Error::new(ErrorKind::Invalid, "its user gives it up before a sync"));
            }
            object.sync(WRITE).await
        };
        let done = done.await;
        let memory = &mut *self.memory.borrow_mut();
        match &done {
            Ok(()) => {
                if let Some(Thing::Appended { acked, .. }) = memory.things.get_mut(&name) {
                    acked.get_or_insert_default().extend_from_slice(&bytes);
                }
            }
            // Half of the time it is never written again.
            Err(_) if self.random.borrow_mut().random_bool(0.5) => {
                let thing = memory.things.get_mut(&name);
                if let Some(Thing::Appended { acked: Some(_), stage, .. }) = thing {
                    sim.note(&self.home, format_args!("  {name} is left alone"));
                    *stage = Stage::Final;
                }
            }
            Err(_) => memory.again = Some(name.clone()),
        }
        (name, done)
    }

    /// Writes over acknowledged bytes, and syncs. After a failure the next overwrite is of the same bytes.
    async fn overwrite(&self, pool: &Spread) -> (String, Result<()>) {
        let name = {
            let memory = &mut *self.memory.borrow_mut();
            let may = |(_, thing): &(&String, &Thing)| {
                matches!(thing, Thing::Appended { acked: Some(_), stage: Stage::Grows, .. })
            };
            let there: Vec<_> = memory.things.iter().filter(may).map(|(name, _)| name).collect();
            let Some(last) = there.len().checked_sub(1) else { return ("nothing".into(), Ok(())) };
            let name = there[self.random.borrow_mut().random_range(0..=last)].clone();
            memory.busy = Some(name.clone());
            name
        };
        let object = match pool.open_handle(&self.at(&name)).await {
            Ok(object) => object,
            Err(e) => return (name, Err(e)),
        };
        // Only the bytes that rotted are known, not those that they are replaced by.
        if self.rot.has(object.id()) {
            return (name, Ok(()));
        }
        let (range, bytes) = {
            let (random, memory) = (&mut *self.random.borrow_mut(), &mut *self.memory.borrow_mut());
            let thing = memory.things.get_mut(&name);
            let Some(Thing::Appended { acked: Some(acked), over, .. }) = thing else {
                unreachable!("one operation of a user follows the other")
            };
            over.begun += 1;
            if over.torn.is_empty() {
                let from = random.random_range(0..acked.len());
                let len = random.random_range(1..=(acked.len() - from).min(3_000));
                over.torn = from..from + len;
            }
            let mut bytes = vec![0; over.torn.len()];
            random.fill_bytes(&mut bytes);
            (over.torn.clone(), bytes)
        };
        let done = async {
            object.write_at(range.start as u64, IoBuf::from(&bytes[..]), WRITE).await?;
            object.sync(WRITE).await
        };
        let done = done.await;
        if done.is_ok()
            && let Some(Thing::Appended { acked: Some(acked), over, .. }) =
                self.memory.borrow_mut().things.get_mut(&name)
        {
            acked[range].copy_from_slice(&bytes);
            over.torn = 0..0;
        }
        (name, done)
    }

    async fn remove(&self, pool: &Spread) -> (String, Result<()>) {
        let name = {
            let memory = &mut *self.memory.borrow_mut();
            let long = |(_, thing): &(&String, &Thing)| match thing {
                Thing::Appended { acked, stage, .. } => {
                    *stage == Stage::Going
                        || acked.as_ref().is_some_and(|acked| acked.len() > LENGTH_MAX / 8)
                }
                Thing::Whole { bytes, acked, stage } => {
                    *stage == Stage::Going || (*acked && bytes.len() > LENGTH_MAX / 2)
                }
                Thing::Register { .. } | Thing::Removed => false,
            };
            let found = memory.things.iter().find(long).map(|(name, _)| name.clone());
            let Some(name) = found else { return ("nothing".into(), Ok(())) };
            if let Some(Thing::Appended { stage, .. } | Thing::Whole { stage, .. }) =
                memory.things.get_mut(&name)
            {
                *stage = Stage::Going;
            }
            memory.promised.remove(&name);
            memory.busy = Some(name.clone());
            name
        };
        let done = match pool.remove(&self.at(&name)).await {
            // An earlier, unacknowledged removal took effect.
            Err(e) if e.kind() == ErrorKind::NotFound => pool.flush().await,
            done => done,
        };
        if done.is_ok() {
            self.memory.borrow_mut().things.insert(name.clone(), Thing::Removed);
        }
        (name, done)
    }

    /// Seals an object, which is then never appended to again.
    async fn seal(&self, pool: &Spread) -> (String, Result<()>) {
        let name = {
            let memory = &mut *self.memory.borrow_mut();
            let is_open = |(name, thing): (&String, &Thing)| match thing {
                Thing::Appended { acked: Some(_), stage: Stage::Grows | Stage::Final, .. } => {
                    Some(name.clone())
                }
                _ => None,
            };
            let open: Vec<_> = memory.things.iter().filter_map(is_open).collect();
            let Some(last) = open.len().checked_sub(1) else { return ("nothing".into(), Ok(())) };
            let name = open[self.random.borrow_mut().random_range(0..=last)].clone();
            if let Some(Thing::Appended { stage, .. }) = memory.things.get_mut(&name) {
                *stage = Stage::Final;
            }
            memory.busy = Some(name.clone());
            name
        };
        let done = async {
            let object = pool.open_handle(&self.at(&name)).await?;
            object.seal(WRITE).await?;
            // Bytes of failed writes stay, or not. From now on they are what they are.
            let len = usize::try_from(object.len()).expect("it fits in memory");
            if let Ok(read) = object.read_at(0, IoBufMut::zeroed(len), READ).await
                && !self.rot.has(object.id())
                && let Some(thing) = self.memory.borrow_mut().things.get_mut(&name)
                && thing.accepts(&name, &read)
            {
                let (acked, over) = (Some(read.to_vec()), Overwrites::default());
                *thing = Thing::Appended { acked, stage: Stage::Sealed, over };
            }
            Ok(())
        };
        let done = done.await;
        (name, done)
    }

    /// How many bytes of an object were acknowledged, `u64::MAX` for all; `None` if it is none of this user's, is being
    /// written over, or may be removed.
    pub(super) fn len_of(&self, name: &Name) -> Option<u64> {
        let name = name.as_str().strip_prefix(&format!("{}/", self.home))?;
        match self.memory.borrow().things.get(name)? {
            Thing::Register { acked: 0, .. } => None,
            Thing::Register { .. } => Some(u64::MAX),
            Thing::Appended { stage: Stage::Going, .. } | Thing::Removed => None,
            Thing::Whole { stage: Stage::Going, .. } | Thing::Whole { acked: false, .. } => None,
            Thing::Whole { bytes, .. } => Some(bytes.len() as u64),
            Thing::Appended { over, .. } if !over.torn.is_empty() => None,
            Thing::Appended { acked, .. } => Some(acked.as_ref()?.len() as u64),
        }
    }

    /// Reads for a while, beside the work.
    pub(super) async fn watch(self: Rc<Self>, sim: Sim, pool: Spread, sure: Sure) {
        let reads = self.random.borrow_mut().random_range(0..60);
        for _ in 0..reads {
            let pause = self.random.borrow_mut().random_range(0..8_000);
            sim.clock().sleep(Duration::from_micros(pause)).await;
            if self.finishes.get() {
                return;
            }
            let name = {
                let things = &self.memory.borrow().things;
                let at = match things.len() {
                    0 => continue,
                    len => self.random.borrow_mut().random_range(0..len),
                };
                things.keys().nth(at).expect("it is within the length").clone()
            };
            self.check(&pool, &name, sure).await;
        }
    }

    /// Compares the pool's objects with the acknowledged ones, and syncs them, as a store does when it is opened: from here
    /// on what was read may be served.
    pub(super) async fn verify(&self, pool: &Spread, sure: Sure) {
        let names: Vec<_> = self.memory.borrow().things.keys().cloned().collect();
        for name in names {
            self.check(pool, &name, sure).await;
            let synced = async { pool.open_handle(&self.at(&name)).await?.sync(READ).await };
            let synced = synced.await;
            let things = &self.memory.borrow().things;
            let may_fail = |e: &Error| {
                let is_acknowledged = things.get(&name).is_some_and(Thing::is_acknowledged);
                // Whether it must be there is known by now.
                sure != Sure::All || !is_acknowledged || e.kind() == ErrorKind::NotFound
            };
            assert!(synced.as_ref().err().is_none_or(may_fail), "{}/{name}: {synced:?}", self.home);
        }
    }

    /// Reads an object, also while it is written, and compares it with what was acknowledged before.
    async fn check(&self, pool: &Spread, name: &str, sure: Sure) {
        let now = || self.memory.borrow().things.get(name).cloned().expect("no name is forgotten");
        let before = now();
        let mut rotten = false;
        let found = match pool.open_handle(&self.at(name)).await {
            Ok(object) => {
                rotten = self.rot.has(object.id());
                self.read(pool, &object, name, &before).await
            }
            Err(e) => Err(e),
        };
        let must = match sure {
            Sure::All => before.is_acknowledged(),
            Sure::Promised => self.memory.borrow().promised.contains(name),
            Sure::Nothing => false,
        };
        if before.is_overwritten(&now()) {
            return;
        }
        let found = match found {
            Ok(found) => Some(found),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) if !must && may_fail(&e, sure, rotten) => return,
            // The object was removed or replaced meanwhile.
            Err(e) if e.kind() == ErrorKind::Gone && before.may_end(&now()) => return,
            Err(e) => panic!("{}/{name}: cannot be read: {e}", self.home),
        };
        if let Err(why) = before.explains(&now(), name, found.as_deref()) {
            panic!("{}/{name}: {why}", self.home);
        }
    }

    /// Reads an object as a store does: what its checksums refuse is read again from all copies.
    async fn read(
        &self,
        pool: &Spread,
        object: &Handle,
        name: &str,
        thing: &Thing,
    ) -> Result<Vec<u8>> {
        let len = usize::try_from(object.len()).expect("it fits in memory");
        let read = object.read_at(0, IoBufMut::zeroed(len), READ).await?;
        if thing.accepts(name, &read) {
            return Ok(read.to_vec());
        }
        let now = self.memory.borrow().things.get(name).cloned();
        let is_same = now.is_some_and(|now| *thing == now);
        // A fragment that was verified may not rot before others are dropped.
        let _held = self.has_code.then(|| self.rot.hold(Some(object.id())));
        assert!(
            !is_same || matches!(thing, Thing::Register { .. }) || self.rot.has(object.id()),
            "{}/{name}: a copy is not good, and none rotted",
            self.home
        );
        // The key-value store does so with its tables.
        if matches!(thing, Thing::Register { .. }) && self.random.borrow_mut().random() {
            pool.distrust(object, READ).await;
            let read = object.read_at(0, IoBufMut::zeroed(len), READ).await?;
            if thing.accepts(name, &read) {
                return Ok(read.to_vec());
            }
        }
        let (thing, name) = (thing.clone(), name.to_owned());
        let check: Check = Arc::new(move |bytes| thing.accepts(&name, bytes));
        Ok(object.read_again(0, IoBufMut::zeroed(len), READ, check).await?.to_vec())
    }

    /// Reads every copy of every object twice, and syncs it: the first time repairs what rotted, the second time all are good,
    /// and equal also where nothing was acknowledged. After a scrub that replaced damaged copies, those of sealed objects are
    /// good at once. No volume fails, and nothing is written.
    pub(super) async fn heal(&self, pool: &Spread, scrubbed: bool) {
        let objects = pool.objects();
        let is_sealed = |id| objects.iter().any(|object| object.id == id && object.sealed);
        let things = self.memory.borrow().things.clone();
        for (name, thing) in things {
            let object = match pool.open_handle(&self.at(&name)).await {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                opened => opened.unwrap_or_else(|e| panic!("{}/{name}: {e}", self.home)),
            };
            let len = usize::try_from(object.len()).expect("it fits in memory");
            for must_be_good in [false, true] {
                let good = Arc::new(AtomicUsize::new(0));
                let bytes = Arc::new(Mutex::new(Vec::new()));
                let check: Check = {
                    let (good, thing, name) = (Arc::clone(&good), thing.clone(), name.clone());
                    let all = Arc::clone(&bytes);
                    Arc::new(move |bytes| {
                        let accepts = thing.accepts(&name, bytes);
                        all.lock().push(bytes.to_vec());
                        good.fetch_add(usize::from(accepts), Ordering::Relaxed);
                        accepts
                    })
                };
                let read = object.read_again(0, IoBufMut::zeroed(len), READ, check).await;
                read.unwrap_or_else(|e| panic!("{}/{name}: no good copy: {e}", self.home));
                // From here on what was read may be served.
                let synced = object.sync(READ).await;
                synced.unwrap_or_else(|e| panic!("{}/{name}: a sync: {e}", self.home));
                let (good, copies) = (good.load(Ordering::Relaxed), pool.copies_of(object.id()));
                let equal = !must_be_good || bytes.lock().windows(2).all(|two| two[0] == two[1]);
                assert!(equal, "{}/{name}: the copies {copies:?} differ", self.home);
                let must_be_good = must_be_good || (scrubbed && is_sealed(object.id()));
                // What is read of fragments is one object; `must_be_complete` looks at each.
                let is_one = coded::has_fragments(&copies) && good == 1;
                let all = !must_be_good || is_one || good == copies.len();
                assert!(all, "{}/{name}: {good} good copies of {copies:?}", self.home);
            }
        }
    }
}

/// Whether a read may fail with `e` while volumes are away or fail; `rotten` if a copy is not good.
fn may_fail(e: &Error, sure: Sure, rotten: bool) -> bool {
    match e.kind() {
        ErrorKind::Unavailable | ErrorKind::TimedOut => true,
        ErrorKind::Corrupt => rotten && sure != Sure::All,
        ErrorKind::Io | ErrorKind::Poisoned => sure == Sure::Nothing,
        _ => false,
    }
}
