//! A user with a model of its acknowledged and possible data.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use policy::intent::{Family, Intent, Kind};
use policy::purpose::{Io, Origin, Step};
use pool::Spread;
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Name, Object, Result, Volume};

use crate::Sim;

const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);
const READ: Io = Io::new(Origin::UserRead, Step::Data);

/// The names that a user replaces tables under.
const REGISTERS: u64 = 3;
/// Objects longer than an eighth of this are removed.
const LENGTH_MAX: usize = 40_000;

/// A user's expectation under a name.
#[derive(Clone, Debug)]
enum Thing {
    /// A table that is replaced by a newer one: the version acknowledged, and the newest tried.
    Register { acked: u64, tried: u64 },
    /// An object with appends: every byte whose sync was acknowledged. `acked` is `None` if not even its name
    /// was acknowledged; `going` if a removal was requested and not acknowledged.
    Appended { acked: Option<Vec<u8>>, going: bool },
    /// It was removed.
    Removed,
}

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
    memory: RefCell<Memory>,
}

#[derive(Default)]
struct Memory {
    things: BTreeMap<String, Thing>,
    /// The name of the current operation.
    busy: Option<String>,
    /// The names that must be readable without the lost volume.
    promised: BTreeSet<String>,
    made: u64,
    acknowledged: u64,
    refused: u64,
}

impl Client {
    pub(super) fn new(sim: &Sim, number: u32) -> Self {
        let home = format!("user-{number}");
        let random = RefCell::new(sim.random(&home));
        Self { home, random, memory: RefCell::default() }
    }

    pub(super) fn home(&self) -> &str {
        &self.home
    }

    /// Operations that were acknowledged, and those that were not.
    pub(super) fn counts(&self) -> (u64, u64) {
        let memory = self.memory.borrow();
        (memory.acknowledged, memory.refused)
    }

    /// From now on objects with a copy that is not on `lost` must stay readable without it, unless they
    /// change.
    pub(super) fn take_promise(&self, pool: &Spread, lost: policy::placement::VolumeId) {
        let memory = &mut *self.memory.borrow_mut();
        let begins = format!("{}/", self.home);
        let safe = |object: &pool::spread::ObjectStat| {
            object.copies.iter().any(|placed| !placed.layout.volumes().contains(&lost))
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

    /// Notes that the pool crashed.
    pub(super) fn stop(&self) {
        self.memory.borrow_mut().busy = None;
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
            let choice = self.random.borrow_mut().random_range(0..10);
            let (what, done) = match choice {
                0..3 => self.replace(&pool).await,
                3..9 => self.append(&sim, &pool).await,
                _ => self.remove(&pool).await,
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
            let data = IoBuf::from(&table(&name, version)[..]);
            pool.write_whole(&draft, &Intent { kind, len: None }, data, WRITE).await?;
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

    /// Appends to a log or another object and syncs it. After a failure, the next append cuts off the rest, or
    /// the object is never written again.
    async fn append(&self, sim: &Sim, pool: &Spread) -> (String, Result<()>) {
        let (name, acked, bytes) = {
            let memory = &mut *self.memory.borrow_mut();
            let random = &mut *self.random.borrow_mut();
            let may = |(_, thing): &(&String, &Thing)| {
                matches!(thing, Thing::Appended { going: false, .. })
            };
            let there: Vec<_> = memory.things.iter().filter(may).map(|(name, _)| name).collect();
            let old = (!there.is_empty() && random.random_bool(0.8))
                .then(|| there[random.random_range(0..there.len())].clone());
            let name = old.unwrap_or_else(|| {
                memory.made += 1;
                format!("a{}.{}", memory.made, ["log", "dat"][random.random_range(0..2)])
            });
            let thing = Thing::Appended { acked: None, going: false };
            let thing = memory.things.entry(name.clone()).or_insert(thing);
            let Thing::Appended { acked, .. } = thing else { unreachable!("its name says so") };
            let acked = acked.clone().unwrap_or_default();
            memory.busy = Some(name.clone());
            let mut bytes = vec![0; random.random_range(1..3_000)];
            random.fill_bytes(&mut bytes);
            (name, acked, bytes)
        };
        let two = self.random.borrow_mut().random_bool(0.3);
        let done = async {
            let path = self.at(&name);
            let object = match pool.open(&path).await {
                Ok(object) => object,
                Err(e) if e.kind() == ErrorKind::NotFound && acked.is_empty() => {
                    let intent = if path.is_log() { Intent::LOG } else { Intent::DATA };
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
            object.sync(WRITE).await
        };
        let done = done.await;
        let memory = &mut *self.memory.borrow_mut();
        match &done {
            Ok(()) => {
                let mut all = acked;
                all.extend_from_slice(&bytes);
                let thing = Thing::Appended { acked: Some(all), going: false };
                memory.things.insert(name.clone(), thing);
            }
            // Half of the time it is never written again.
            Err(_) if self.random.borrow_mut().random_bool(0.5) => {
                let thing = memory.things.get_mut(&name);
                if let Some(Thing::Appended { acked: Some(_), .. }) = thing {
                    let thing = memory.things.remove(&name).expect("just found");
                    sim.note(&self.home, format_args!("  {name} is left alone"));
                    memory.things.insert(name.clone(), thing.left_alone());
                }
            }
            Err(_) => {}
        }
        (name, done)
    }

    async fn remove(&self, pool: &Spread) -> (String, Result<()>) {
        let name = {
            let memory = &mut *self.memory.borrow_mut();
            let long = |(_, thing): &(&String, &Thing)| match thing {
                Thing::Appended { acked, going } => {
                    *going || acked.as_ref().is_some_and(|acked| acked.len() > LENGTH_MAX / 8)
                }
                Thing::Register { .. } | Thing::Removed => false,
            };
            let found = memory.things.iter().find(long).map(|(name, _)| name.clone());
            let Some(name) = found else { return ("nothing".into(), Ok(())) };
            if let Some(Thing::Appended { going, .. }) = memory.things.get_mut(&name) {
                *going = true;
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

    /// Compares the pool's objects with the acknowledged ones.
    pub(super) async fn verify(&self, pool: &Spread, sure: Sure) {
        let things = self.memory.borrow().things.clone();
        for (name, thing) in things {
            let found = match pool.open(&self.at(&name)).await {
                Ok(object) => read(&*object).await,
                Err(e) => Err(e),
            };
            let must = match sure {
                Sure::All => true,
                Sure::Promised => self.memory.borrow().promised.contains(&name),
                Sure::Nothing => false,
            };
            if let Err(why) = thing.explains(&name, found, must, sure) {
                panic!("{}/{name}: {why}", self.home);
            }
        }
    }
}

impl Thing {
    /// The expectation for an object that this user never writes again.
    fn left_alone(self) -> Self {
        match self {
            Self::Appended { acked, .. } => Self::Appended { acked, going: true },
            other => other,
        }
    }

    fn explains(
        &self,
        name: &str,
        found: Result<Vec<u8>>,
        must: bool,
        sure: Sure,
    ) -> std::result::Result<(), String> {
        let found = match found {
            Ok(found) => Some(found),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) if !must && may_be_away(&e, sure) => return Ok(()),
            Err(e) => return Err(format!("cannot be read: {e}")),
        };
        match (self, found) {
            (Self::Removed, Some(_)) => Err("is back".into()),
            (Self::Register { acked: 0, .. }, None)
            | (Self::Removed | Self::Appended { acked: None, .. }, None)
            | (Self::Appended { going: true, .. }, None)
            | (Self::Appended { acked: None, .. }, Some(_)) => Ok(()),
            (_, None) => Err("is not there".into()),
            (Self::Register { acked, tried }, Some(found)) => {
                let version = found.get(..8).map(|bytes| {
                    u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken"))
                });
                match version {
                    Some(version) if (*acked..=*tried).contains(&version) => {
                        if found == table(name, version) {
                            Ok(())
                        } else {
                            Err(format!("version {version} has other bytes"))
                        }
                    }
                    found => Err(format!("is {found:?}, acknowledged was {acked}, tried {tried}")),
                }
            }
            (Self::Appended { acked: Some(acked), .. }, Some(found)) => {
                if found.len() < acked.len() {
                    return Err(format!("has {} bytes of {}", found.len(), acked.len()));
                }
                let differs = found.iter().zip(acked).position(|(found, acked)| found != acked);
                match differs {
                    Some(at) => Err(format!("has other bytes from {at} on of {}", acked.len())),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Whether a read may fail with `e` while volumes are away or fail.
fn may_be_away(e: &Error, sure: Sure) -> bool {
    match e.kind() {
        ErrorKind::Unavailable => true,
        ErrorKind::Io | ErrorKind::Poisoned => sure == Sure::Nothing,
        _ => false,
    }
}

/// The bytes of a version of a table.
fn table(name: &str, version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    let len = 8 + (version as usize * 7919 + name.len() * 31) % 9_000;
    let salt = name.bytes().map(u64::from).sum::<u64>();
    bytes.extend((8..len as u64).map(|i| (i * 31 + version * 17 + salt) as u8));
    bytes
}

async fn read(object: &dyn Object) -> Result<Vec<u8>> {
    let len = usize::try_from(object.len()).expect("it fits in memory");
    Ok(object.read_at(0, IoBufMut::zeroed(len), READ).await?.to_vec())
}
