//! A user of a pool that works in its own directory, one operation after the other.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use policy::intent::{Family, Intent, Kind};
use policy::purpose::{Io, Origin, Step};
use pool::Spread;
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::Power;
use volume::{IoBuf, IoBufMut, Name, Object, Result, Volume};

use super::model::{Death, Found, Model, Seen};
use super::op::Op;
use crate::Sim;

const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);
const READ: Io = Io::new(Origin::UserRead, Step::Data);

const DIRECTORIES: [&str; 3] = ["a", "b", "c"];
const FILES: [&str; 6] = ["1", "2", "3", "4", "w.log", "x.log"];

impl Op {
    /// A random operation that is possible in this state.
    fn random(model: &Model, random: &mut Xoshiro256PlusPlus) -> Self {
        let any = random.random_range(0..FILES.len());
        let directory = *pick(random, &DIRECTORIES);
        let free = format!("{directory}/{}", FILES[any]);
        let has = |name: &str| model.bytes(name).is_some();
        let taken: Vec<_> = model.names().cloned().collect();
        if taken.is_empty() || (!has(&free) && random.random_bool(0.4)) {
            let name = free;
            let bytes = any_bytes(random);
            return match name.ends_with(".log") || random.random_bool(0.5) {
                true => Self::Put { name, bytes },
                false => Self::WriteWhole { name, bytes },
            };
        }
        let name = pick(random, &taken).clone();
        let is_log = name.ends_with(".log");
        // A log keeps a name of a log.
        let other = match is_log {
            true => format!("{directory}/{}", FILES[4 + any % 2]),
            false => format!("{directory}/{}", FILES[any % 4]),
        };
        match random.random_range(0..12) {
            0..3 if model.may_grow(&name) => Self::Append { name, bytes: any_bytes(random) },
            3..5 => Self::Sync { name },
            5 | 6 if other != name => Self::Rename { from: name, to: other },
            7 if !has(&other) => Self::Link { from: name, to: other },
            8 => Self::RemoveSoon { name },
            9 => {
                let from = name.split('/').next().expect("every name is in a directory");
                let begins = format!("{directory}/");
                match taken.iter().any(|name| name.starts_with(&begins)) {
                    true => Self::Remove { name },
                    false => Self::RenameDirectory { from: from.into(), to: directory.into() },
                }
            }
            10 => Self::Flush,
            _ => Self::Remove { name },
        }
    }

    /// Whether earlier removals of names are durable once this was acknowledged.
    pub(super) const fn makes_names_durable(&self) -> bool {
        !matches!(self, Self::Append { .. } | Self::Sync { .. } | Self::RemoveSoon { .. })
    }

    async fn run(&self, pool: &Spread, home: &str) -> Result<()> {
        let at = |name: &str| Name::new(&format!("{home}/{name}")).expect("a good name");
        match self {
            Self::WriteWhole { name, bytes } => {
                let family = Family("default".into());
                let kind = Kind::Table { family, level: None, range: None };
                let intent = Intent { kind, len: None, ..Intent::DATA };
                pool.write_whole(&at(name), &intent, IoBuf::from(&bytes[..]), WRITE).await
            }
            Self::Put { name, bytes } => {
                let name = at(name);
                let intent =
                    if name.as_str().ends_with(".log") { Intent::LOG } else { Intent::DATA };
                let object = pool.create(&name, &intent).await?;
                object.write_at(0, IoBuf::from(&bytes[..]), WRITE).await?;
                object.sync(WRITE).await
            }
            Self::Append { name, bytes } => {
                let object = pool.open(&at(name)).await?;
                object.write_at(object.len(), IoBuf::from(&bytes[..]), WRITE).await
            }
            Self::Sync { name } => pool.open(&at(name)).await?.sync(WRITE).await,
            Self::Rename { from, to } => pool.rename(&at(from), &at(to)).await,
            Self::Link { from, to } => pool.link(&at(from), &at(to)).await,
            Self::Remove { name } => pool.remove(&at(name)).await,
            Self::RemoveSoon { name } => pool.remove_soon(&at(name)).await,
            Self::RenameDirectory { from, to } => pool.rename_prefix(&at(from), &at(to)).await,
            Self::Flush => pool.flush().await,
        }
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WriteWhole { name, bytes } => write!(f, "write {name}, {} bytes", bytes.len()),
            Self::Put { name, bytes } => write!(f, "put {name}, {} bytes", bytes.len()),
            Self::Append { name, bytes } => write!(f, "append {} bytes to {name}", bytes.len()),
            Self::Sync { name } => write!(f, "sync {name}"),
            Self::Rename { from, to } => write!(f, "rename {from} to {to}"),
            Self::Link { from, to } => write!(f, "link {from} as {to}"),
            Self::Remove { name } => write!(f, "remove {name}"),
            Self::RemoveSoon { name } => write!(f, "remove {name} soon"),
            Self::RenameDirectory { from, to } => write!(f, "rename directory {from} to {to}"),
            Self::Flush => f.write_str("flush"),
        }
    }
}

/// A user, over all lives of the pool.
pub(super) struct Client {
    home: String,
    random: RefCell<Xoshiro256PlusPlus>,
    memory: RefCell<Memory>,
}

/// The state of a user across crashes of the pool.
#[derive(Default)]
struct Memory {
    model: Model,
    under_way: Option<Op>,
    /// The worst crash since the model was last compared with the pool.
    death: Option<Death>,
    answered: u64,
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

    pub(super) fn answered(&self) -> u64 {
        self.memory.borrow().answered
    }

    /// Notes a crash of the pool.
    pub(super) fn witness(&self, death: Death) {
        let worst = &mut self.memory.borrow_mut().death;
        *worst = (*worst).max(Some(death));
    }

    /// Works for a while.
    pub(super) async fn work(self: Rc<Self>, sim: Sim, pool: Spread, power: Power) {
        let ops = self.random.borrow_mut().random_range(5..40);
        for _ in 0..ops {
            let pause = self.random.borrow_mut().random_range(0..4_000);
            sim.clock().sleep(Duration::from_micros(pause)).await;
            let op = {
                let memory = &mut *self.memory.borrow_mut();
                let op = Op::random(&memory.model, &mut self.random.borrow_mut());
                memory.under_way = Some(op.clone());
                op
            };
            sim.note(&self.home, format_args!("> {op:?}"));
            let answer = op.run(&pool, &self.home).await;
            if let Err(error) = answer {
                assert!(power.is_off(), "{}: {op:?}: {error}", self.home);
                sim.note(&self.home, format_args!(". {error}"));
                return;
            }
            {
                let memory = &mut *self.memory.borrow_mut();
                memory.model.done(&op);
                memory.under_way = None;
                memory.answered += 1;
            }
            sim.note(&self.home, format_args!(". {op:?}"));
            if let Err(error) = self.read_one(&pool).await {
                assert!(power.is_off(), "{}: reading: {error}", self.home);
                return;
            }
        }
    }

    /// Reads one of its objects: acknowledged bytes are there at once.
    async fn read_one(&self, pool: &Spread) -> Result<()> {
        let (name, expected) = {
            let model = &self.memory.borrow().model;
            let names: Vec<_> = model.names().collect();
            if names.is_empty() {
                return Ok(());
            }
            let name = pick(&mut self.random.borrow_mut(), &names).to_string();
            (name.clone(), model.bytes(&name).expect("it is one of its names").to_vec())
        };
        let path = Name::new(&format!("{}/{name}", self.home)).expect("a good name");
        let found = read(&*pool.open(&path).await?).await?;
        assert!(found == expected, "{}/{name} is not what was written", self.home);
        Ok(())
    }

    /// Compares the pool after a crash with the model, and continues from there.
    pub(super) async fn recover(&self, pool: &Spread) -> Result<()> {
        let begins = format!("{}/", self.home);
        let mut found = Found::new();
        for listed in pool.list_prefix(&begins).await? {
            let object = pool.open(&listed.name).await?;
            let bytes = read(&*object).await?;
            assert_eq!(bytes.len() as u64, listed.len, "the listed length of {}", listed.name);
            // As a store does before it goes on from what it read.
            object.sync(READ).await?;
            let stat = pool.stat(&listed.name).await?;
            let seen = Seen { id: stat.id, is_sealed: stat.kind == pool::Kind::Table, bytes };
            found.insert(listed.name.as_str()[begins.len()..].into(), seen);
        }
        let memory = &mut *self.memory.borrow_mut();
        let death = memory.death.take().unwrap_or(Death::Process);
        let explained = memory.model.explains(memory.under_way.as_ref(), death, &found);
        if let Err(why) = explained {
            panic!("{} after the death of the {death:?}: {why}", self.home);
        }
        memory.model = Model::of(&found);
        memory.under_way = None;
        Ok(())
    }
}

async fn read(object: &dyn Object) -> Result<Vec<u8>> {
    let len = usize::try_from(object.len()).expect("it fits in memory");
    Ok(object.read_at(0, IoBufMut::zeroed(len), READ).await?.to_vec())
}

fn pick<'a, T>(random: &mut Xoshiro256PlusPlus, from: &'a [T]) -> &'a T {
    &from[random.random_range(0..from.len())]
}

fn any_bytes(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let most = if random.random_bool(0.1) { 150_000 } else { 6_000 };
    let mut bytes = vec![0; random.random_range(0..most)];
    random.fill_bytes(&mut bytes);
    bytes
}
