//! Each call of a short run to its volumes fails once, in each way it can. The test asserts the
//! effects on the database that docs/guide/faults.md lists, and that nothing acknowledged is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use pool::spread::Spread;
use rocks::{Db, Settings};
use rust_rocksdb::{Error, ErrorKind as RocksKind, WriteOptions};
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::trace::{Outcome, Trace, TraceLog};
use volume::mem::Mem;
use volume::{Clock, ErrorKind};

use super::kinds::{File, Kinds, Spy};
use crate::support::{
    NAME, at_once, compact, key, label, layered, opening, options, pool_of, rounds_asked, value,
    volumes,
};

const VOLUMES: usize = 3;
const BATCH: u32 = 12;

/// How a call fails.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Way {
    /// The volume is away for a moment: the call is not done.
    Away,
    /// The call is done, but reported as failed.
    Late,
    /// The device cannot read or write these bytes, and works otherwise: what a directory gives for such an error.
    Broken,
    /// This process lacks something, such as file descriptors: the call is not done.
    Process,
    /// The volume gave no answer within its limit, and the call is done.
    Hung,
    /// There is no space.
    Full,
    /// A sync failed: the state of the device is unknown.
    Lost,
}

impl Way {
    const ALL: [Self; 7] =
        [Self::Away, Self::Late, Self::Broken, Self::Process, Self::Hung, Self::Full, Self::Lost];

    const fn effect(self) -> Effect {
        match self {
            Self::Away => Effect::Fail(ErrorKind::Unavailable),
            Self::Late => Effect::FailAfter(ErrorKind::Unavailable),
            Self::Broken => Effect::Fail(ErrorKind::Io),
            Self::Process => Effect::Fail(ErrorKind::Busy),
            Self::Hung => Effect::FailAfter(ErrorKind::TimedOut),
            Self::Full => Effect::Fail(ErrorKind::OutOfSpace),
            Self::Lost => Effect::Fail(ErrorKind::Poisoned),
        }
    }

    /// Whether a call can fail this way.
    const fn concerns(self, op: Op) -> bool {
        match self {
            Self::Away | Self::Late | Self::Process | Self::Hung => true,
            // A failed sync is always one that lost bytes.
            Self::Broken => !matches!(op, Op::Sync | Op::List | Op::Space),
            Self::Full => matches!(op, Op::Create | Op::Write | Op::SetLen),
            Self::Lost => matches!(op, Op::Sync),
        }
    }
}

/// The effect on a database.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Fate {
    /// Every call of the user succeeds.
    Unnoticed,
    /// The user's call fails. RocksDB recovers by itself, or with `resume`.
    GoesOn,
    /// It is read only until it is opened again.
    ReadOnly,
    /// It does not open at first, but at the second attempt.
    OpensLater,
}

/// One row of docs/guide/faults.md.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Case {
    file: File,
    op: Op,
    way: Way,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, op, way } = self;
        write!(f, "{file}, {}, {way:?}", op.name())
    }
}

/// Volumes that fail as planned and record every call.
struct Rig {
    plan: FaultPlan,
    calls: TraceLog,
    kinds: Kinds,
    pool: Spread,
}

impl Rig {
    fn new(volumes: &[Mem]) -> Self {
        let (plan, calls, kinds) = (FaultPlan::new(0), TraceLog::new(100_000), Kinds::default());
        let clock = Clock::real();
        let layers = layered(volumes, |volume, label| {
            let failing = Fault::new(volume, label, &plan, &clock);
            let traced = Trace::new(failing, label, &calls, &clock);
            Spy { inner: traced, kinds: kinds.clone() }
        });
        let pool = pool_of(layers, opening().meta([label(0)])).unwrap();
        Self { plan, calls, kinds, pool }
    }
}

/// A short run of a database, and the worst effect seen.
struct Life {
    pool: Spread,
    fate: Fate,
    /// Versions of each key: acknowledged, and tried.
    keys: BTreeMap<u32, [u32; 2]>,
}

impl Life {
    fn new(pool: &Spread) -> Self {
        Self { pool: pool.clone(), fate: Fate::Unnoticed, keys: BTreeMap::new() }
    }

    fn noticed(&mut self, fate: Fate) {
        self.fate = self.fate.max(fate);
    }

    /// Opens the database, at the second attempt if need be.
    fn open(&mut self) -> Db {
        self.try_open().unwrap_or_else(|_| {
            self.noticed(Fate::OpensLater);
            self.try_open().expect("it opens at the second attempt")
        })
    }

    fn try_open(&self) -> rocks::Result<Db> {
        // No background work while calls are counted.
        let settings =
            Settings { wal_sync_interval: Duration::from_secs(3600), ..Settings::default() };
        let mut options = options();
        options.set_disable_auto_compactions(true);
        rocks::open(self.pool.clone(), Clock::real(), NAME, options, settings)
    }

    /// Runs `what` on the database; after an error, records its effect.
    fn does(&mut self, db: &Db, what: impl FnOnce(&Db) -> Result<(), Error>) {
        if self.fate < Fate::ReadOnly
            && let Err(error) = what(db)
        {
            self.noticed(if resumes(db) { Fate::GoesOn } else { Fate::ReadOnly });
            assert!(!error.as_ref().contains("a bug"), "{error}");
            self.read(db);
        }
    }

    fn write(&mut self, db: &Db, version: u32) {
        let mut sync = WriteOptions::default();
        sync.set_sync(true);
        for i in 0..BATCH {
            let known = self.keys.entry(i).or_default();
            if self.fate == Fate::ReadOnly {
                return;
            }
            known[1] = version;
            let done = db.put_opt(key(i), value(i, version), &sync);
            known[0] = if done.is_ok() { version } else { known[0] };
            self.does(db, |_| done);
        }
    }

    /// Reads every key, at the second attempt if need be, and checks its value.
    fn read(&mut self, db: &Db) {
        for (&i, versions) in &self.keys.clone() {
            let found = db.get(key(i)).or_else(|_| {
                self.noticed(Fate::GoesOn);
                db.get(key(i))
            });
            let found = found.expect("a key is read at the second attempt");
            let allowed = versions.map(|version| (version > 0).then(|| value(i, version)));
            assert!(allowed.contains(&found), "key {i} is {found:?}, not of {versions:?}");
        }
    }

    fn live(&mut self) {
        {
            let db = self.open();
            self.write(&db, 1);
            self.does(&db, |db| db.flush());
            self.write(&db, 2);
            self.does(&db, |db| db.flush());
            compact(&db);
            self.write(&db, 3);
            self.does(&db, |db| db.flush());
            self.read(&db);
        }
        if self.fate != Fate::ReadOnly {
            let db = self.open();
            self.read(&db);
            self.write(&db, 4);
            self.does(&db, |db| db.flush());
            self.read(&db);
        }
    }
}

/// Whether the database takes writes again without a reopening.
fn resumes(db: &Db) -> bool {
    loop {
        match db.resume() {
            // RocksDB is recovering by itself.
            Err(error) if error.kind() == RocksKind::Busy => std::thread::yield_now(),
            done => return done.is_ok(),
        }
    }
}

/// The effects that a failed call may have.
fn allowed(case: Case) -> &'static [Fate] {
    use Fate::{GoesOn, OpensLater, ReadOnly, Unnoticed};
    let Case { file, op, way } = case;
    match (file, op, way) {
        // Another volume takes its place.
        (File::PoolManifest | File::PoolHeader | File::Volume, ..) => &[Unnoticed],
        (_, Op::Create | Op::Remove | Op::SetLen, _) => &[Unnoticed],
        (File::Table, Op::Open | Op::Read, _) => &[Unnoticed, GoesOn],
        (File::Table, ..) => &[Unnoticed],
        (File::Wal, Op::Write | Op::Sync, Way::Lost) => &[Unnoticed, ReadOnly],
        (File::Wal, Op::Write | Op::Sync, _) => &[Unnoticed, GoesOn],
        (File::Wal, ..) => &[Unnoticed, OpensLater],
        (File::Manifest, Op::Write | Op::Sync, Way::Lost) => &[ReadOnly, OpensLater],
        (File::Manifest, Op::Write | Op::Sync, _) => &[GoesOn, OpensLater],
        (File::Manifest | File::Current | File::Options | File::Identity, ..) => &[OpensLater],
    }
}

/// One run in which call `k` fails; returns that case and its effect. `None` if the run made fewer
/// calls.
fn fail(k: u64, way: Way, kinds: &Kinds) -> Option<(Case, Fate)> {
    let volumes = volumes(VOLUMES);
    let rig = Rig::new(&volumes);
    rig.plan.inject(Rule::new(way.effect()).nth(k));
    let mut life = Life::new(&rig.pool);
    life.live();
    let Life { fate, keys, pool } = life;
    let (Effect::Fail(kind) | Effect::FailAfter(kind)) = way.effect() else { return None };
    let calls = rig.calls.records();
    let failed = calls.iter().find(|record| record.outcome == Outcome::Failed(kind))?;
    let file = rig.kinds.of(failed.call.name.as_ref());
    // An object that failed before its first write has the kind that it had in the run without faults.
    // The only object that no run writes to is the log of a database that is closed at once.
    let file = file.or_else(|| kinds.of(failed.call.name.as_ref())).unwrap_or(File::Wal);
    let case = Case { file, op: failed.call.op, way };
    drop((pool, rig));
    // The process restarts: every acknowledged write is there.
    let mut again = Life::new(&Rig::new(&volumes).pool);
    again.keys = keys;
    let db = again.open();
    again.read(&db);
    assert_eq!(again.fate, Fate::Unnoticed, "{case}");
    again.write(&db, 9);
    db.flush().unwrap();
    again.read(&db);
    Some((case, fate))
}

#[test]
fn every_call_fails_once_in_every_way_and_nothing_acknowledged_is_lost() {
    let (calls, kinds) = {
        let rig = Rig::new(&volumes(VOLUMES));
        let before = rig.calls.records().len();
        let mut life = Life::new(&rig.pool);
        life.live();
        assert_eq!(life.fate, Fate::Unnoticed);
        (rig.calls.records().split_off(before), rig.kinds)
    };
    let all = calls.iter().zip(0..).flat_map(|(record, k)| {
        let ways: Vec<_> =
            Way::ALL.into_iter().filter(|way| way.concerns(record.call.op)).collect();
        // One way by default, more with `PLIMSOLL_ROUNDS`.
        let asked = rounds_asked().map_or(1, |rounds| ways.len().min(rounds as usize));
        (0..asked).map(move |i| (k, ways[(k as usize + i) % ways.len()]))
    });
    let all: Vec<(u64, Way)> = all.collect();
    let seen: Mutex<BTreeMap<Case, BTreeSet<Fate>>> = Mutex::default();
    at_once(0..all.len() as u64, |i| {
        let (k, way) = all[i as usize];
        if let Some((case, fate)) = fail(k, way, &kinds) {
            seen.lock().entry(case).or_default().insert(fate);
        }
    });
    let seen = seen.into_inner();
    for (case, fates) in &seen {
        let allowed = allowed(*case);
        assert!(fates.iter().all(|fate| allowed.contains(fate)), "{case}: {fates:?}");
    }
    // At any speed of the machine, each kind of file was written, synced and read.
    let tried = |file, op| seen.keys().any(|case| (case.file, case.op) == (file, op));
    for file in [File::Table, File::Wal, File::Manifest, File::Current, File::PoolManifest] {
        assert!(tried(file, Op::Write) && tried(file, Op::Sync), "{file}");
    }
    for file in [File::Table, File::Manifest, File::Current] {
        assert!(tried(file, Op::Read) && tried(file, Op::Remove) && tried(file, Op::Create));
    }
}
