//! A log-structured store: keys and values in append-only files, an index in memory, merges that reclaim the space of
//! superseded records.
//!
//! ```text
//!   put ─▶ partition by hash ─▶ group by expected death ─▶ open file ── at R ─▶ sealed, with a hint
//!                                                                                  │
//!   index: key ─▶ file, offset, length        merge: live records ─▶ another file ◀┘ dead: unlinked
//! ```
//! Made for keys that are written continually and live until they are written again: readings of sensors. Such a store
//! writes at the full bandwidth of disks that are nearly full. The policy decides which files to merge, and when:
//! [`policy::merge`]. All I/O goes through the volume's gate: users' writes as commits, merges in a class that rises
//! with space pressure.
//!
//! # What an answer means
//!
//! | [`Durability`] | an answered put or delete survives |
//! |---|---|
//! | `Always` | the loss of the machine |
//! | `Interval` | the end of the process; the loss of the machine after the interval, or [`Store::sync`] |
//! | `Never` | the end of the process; the loss of the machine after [`Store::sync`] or [`Store::close`] |
//!
//! An operation that failed, or whose future was dropped, may have happened. A failed sync poisons the file: puts that
//! waited for it fail, the store writes no more to it, and copies its records elsewhere as soon as the volume takes new
//! objects.
//!
//! # Who does the work
//!
//! A caller that waits writes other callers' puts, too. [`Store::tend`] seals and merges; the store's owner runs it for
//! each volume. Without it, puts go on until there is no room.

mod append;
mod dirty;
mod figures;
mod file;
mod format;
mod health;
mod hints;
mod index;
mod inspect;
mod late;
mod lease;
mod merge;
mod notify;
mod recovery;
mod scan;
mod scrub;
mod sealing;
mod state;
mod stream;
mod writeback;
mod writer;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::{Mutex, MutexGuard};
pub use policy::merge::FileId;
use policy::merge::{Device, PutLimits, Room, Rule, Triggers};
use policy::purpose::{Io, Origin, Step};
use policy::units::MIB;
use volume::heartbeat::Heartbeat;
use volume::layer::reserve::Reserve;
use volume::{Clock, Error, ErrorKind, IoBuf, Object, Result, Volume};

pub use self::figures::{Counts, Figures, VolumeFigures};
use self::file::{File, Names};
use self::format::Layout;
pub use self::format::{Bad, KEY_MAX, StoreId, VALUE_MAX};
use self::hints::Parts;
pub use self::inspect::{Flaw, Inspected, inspect, stores_on};
use self::notify::Notify;
pub use self::recovery::{Damage, Report};
pub use self::scrub::Scrubbed;
use self::sealing::Sealing;
use self::state::LogState;

/// No file is made smaller than this so that it is dead before its room is needed: to begin one costs a disk two seeks.
/// A store makes smaller files only on a volume that has no room for as many of this size as it keeps open.
const FILE_MIN: u64 = 4 * MIB;
/// But with room set aside a file is at most this part of a device, 1/32, since the reserve holds a file for each; on small
/// ones, files are then smaller.
const FILE_SHARE: u64 = 32;
/// At most this part of a volume is set aside, 1/10. With the files for merges the reserve is less than a fifth.
const SET_ASIDE_SHARE: u64 = 10;

const READ: Io = Io::new(Origin::UserRead, Step::Data);
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);

/// When an answered change survives the loss of the machine; see the [module](self).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// At once: one sync for all that wait. Each costs the device a flush.
    Always,
    /// At the latest after this time.
    Interval(Duration),
    /// When [`Store::sync`] is called.
    Never,
}

/// A store's settings. All of them may change from one opening to the next.
#[derive(Clone, Debug)]
pub struct Options {
    /// The prefix of its objects' names; default `log`.
    pub name: String,
    /// The number of partitions that keys are spread over; they are assigned to volumes in turn. Default 1 for each
    /// volume. More write in parallel, and have more files open.
    pub partitions: u16,
    /// The number of devices that the volumes are on: of a pool, its volumes. So many files are merged at once, for which room is
    /// kept, twice as many written back, and four times as many sealed. Default one for each volume.
    pub devices: u16,
    /// Files are sealed at this many bytes: R; default 64 MiB, at most 2 GiB. Larger ones seek less, but keep more room
    /// unused. Where that is more than `live` leaves, [`Rule::DeathTime`] seals them earlier, down to 64 KiB
    /// ([`Figures::file_bytes`]).
    pub file_bytes: u64,
    /// When a change is answered; default `Always`.
    pub durability: Durability,
    /// How many bytes of each volume the store may use; default all of it.
    pub quota: u64,
    /// The part of it that live records will take; default 0.5. Checked at the start against the needs of open files.
    pub live: f64,
    /// The rule that picks files to merge; default by expected death.
    pub rule: Rule,
    /// The thresholds of [`Rule::Static`]; default Bitcask's.
    pub triggers: Triggers,
    /// Up to this fill only dead files are removed: U_m; default 0.8.
    pub target: f64,
    /// From this fill on puts are delayed: U_l; default 0.95 of what they may use.
    pub delay_from: f64,
    /// The longest delay; default 1 s.
    pub delay_max: Duration,
    /// How the delay grows up to that; default 2: slowly at first. 1 is linear (PSTA 8(3), 2017), and delays each put
    /// by 20 ms where a thousandth of the volume is missing.
    pub delay_exponent: f64,
    /// How many files a partition has open at once, to separate records that die at different times; default 4. Ignored
    /// except with [`Rule::DeathTime`].
    pub groups: u8,
    /// How many bytes the index may take; default 1 GiB. A key takes its length and 30 to 40 bytes.
    pub index_bytes_max: u64,
    /// The name of that limit in the user's settings; default `index_bytes_max`.
    pub index_setting: &'static str,
    /// The cost of reads on the volumes, for merges; default a volume paid by operation.
    pub device: Device,
    /// Bytes of each volume reserved for [`Store::write_upkeep`], deletions and merges; default none, at most a tenth
    /// of the volume. No other program can take them, nor the room that merges need: see [`volume::layer::reserve`].
    pub set_aside: u64,
    /// Whether the store allocates that room on its volumes by itself; default yes. No on a volume whose owner does so
    /// for all stores on it: tell it [`Store::room_kept`].
    pub allocates: bool,
}

impl Options {
    /// The defaults for this number of volumes.
    #[must_use]
    pub fn new(volumes: u16) -> Self {
        let device = Device {
            bytes_per_sec: f64::INFINITY,
            jump: Duration::ZERO,
            ops_per_sec: f64::INFINITY,
            op_bytes: policy::contract::OP_BYTES_MAX,
        };
        Self {
            name: "log".into(),
            partitions: volumes,
            devices: volumes,
            file_bytes: 64 * MIB,
            durability: Durability::Always,
            quota: u64::MAX,
            live: 0.5,
            rule: Rule::default(),
            triggers: Triggers::default(),
            target: 0.8,
            delay_from: 0.95,
            delay_max: Duration::from_secs(1),
            delay_exponent: 2.0,
            groups: 4,
            index_bytes_max: 1 << 30,
            index_setting: "index_bytes_max",
            device,
            set_aside: 0,
            allocates: true,
        }
    }

    /// The number of devices below each volume of a store that has `volumes` of them.
    fn devices_of_each(&self, volumes: usize) -> usize {
        (usize::from(self.devices) / volumes).max(1)
    }

    /// How many files may be open at once on a volume, for puts and for copies.
    fn open_files(&self, partitions: u64) -> u64 {
        partitions * u64::from(self.groups_used()) * 2
    }

    fn groups_used(&self) -> u8 {
        if self.rule == Rule::DeathTime { self.groups.max(1) } else { 1 }
    }

    fn limits(&self, capacity: u64, partitions: u64, devices: u64) -> PutLimits {
        // The room that closing a file takes: the padding of its last page, and a hint.
        let closing = (self.file_bytes / 64).max(8 << 10);
        let open = self.open_files(partitions);
        let reserve = PutLimits::reserve(self.file_bytes, devices, open, closing);
        let mut limits = PutLimits::new(reserve);
        (limits.low, limits.delay_max) = (self.delay_from, self.delay_max);
        limits.exponent = self.delay_exponent;
        limits.set_aside = self.set_aside_of(capacity);
        limits
    }

    /// Bytes set aside on a volume of this capacity.
    fn set_aside_of(&self, capacity: u64) -> u64 {
        self.set_aside.min(capacity / SET_ASIDE_SHARE)
    }

    /// Whether a new store can run indefinitely on a volume of `capacity` bytes.
    fn check_room(&self, label: &str, capacity: u64, partitions: u64, devices: u64) -> Result<()> {
        let room = Room {
            capacity,
            live: self.live,
            open: self.open_files(partitions),
            file_bytes: self.file_bytes,
            target: self.target,
            // Without the outputs of merges, which count among the open files.
            reserve: self.limits(capacity, partitions, devices).kept() - devices * self.file_bytes,
        };
        room.check().map_err(|infeasible| {
            Error::new(ErrorKind::Invalid, format!("log store on volume {label}: {infeasible}"))
        })
    }

    /// The largest files, up to the setting, that are dead before their room is needed on a volume of this capacity.
    /// Other rules keep the setting, so that they can be compared at any size.
    fn file_bytes_for(&self, capacity: u64, partitions: u64, devices: u64) -> u64 {
        if self.rule != Rule::DeathTime || self.live >= self.delay_from {
            return self.file_bytes;
        }
        let most = if self.set_aside > 0 { capacity / devices / FILE_SHARE } else { u64::MAX };
        let set_aside = self.set_aside_of(capacity) as f64;
        let capacity = capacity as f64;
        // Of each group and partition the oldest file is half dead on average; with one group all of it may be dead.
        // Puts leave room for a file on each device, and for closing files.
        let dead = partitions.max(1) as f64 * f64::from(self.groups_used() + 1) / 2.0;
        let open = (self.open_files(partitions) + devices) as f64;
        let reserve = devices as f64 + open / 64.0;
        let waited = capacity * (self.delay_from - self.live) / (dead + self.delay_from * reserve);
        // A margin for rounding.
        let spare = 0.99 * capacity * (1.0 - self.live) - set_aside;
        let feasible = spare / (open * (1.0 + 1.0 / 64.0));
        let fits = (waited as u64).max(FILE_MIN).min(feasible as u64).min(most);
        self.file_bytes.min(fits.max(64 << 10))
    }

    fn check(&self) -> Result<()> {
        let refuse =
            |what: String| Err(Error::new(ErrorKind::Invalid, format!("log store: {what}")));
        if self.partitions == 0 {
            return refuse("partitions: 0 given: give at least one".into());
        }
        if !(64 << 10..=2 << 30).contains(&self.file_bytes) {
            let found = self.file_bytes;
            return refuse(format!("file_bytes: {found} given: give 64 KiB to 2 GiB"));
        }
        for (name, share) in
            [("live", self.live), ("target", self.target), ("delay_from", self.delay_from)]
        {
            if !(0.0..=1.0).contains(&share) {
                return refuse(format!("{name}: {share} given: give 0 to 1"));
            }
        }
        Ok(())
    }
}

/// A volume of a store, with its name for people.
pub struct Member {
    label: String,
    volume: Arc<dyn Volume>,
}

impl Member {
    /// `volume`, called `label` in messages.
    pub fn new(label: impl Into<String>, volume: impl Volume + 'static) -> Self {
        Self { label: label.into(), volume: Arc::new(volume) }
    }
}

/// A log store. Clones are handles to the same store. One process, and one store in it, has the volumes at a time.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// One change of a batch.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Sets the key's value.
    Put {
        /// 1 to 255 bytes.
        key: Bytes,
        /// Up to a quarter of a file.
        value: Bytes,
        /// How many more bytes will have been put into the store when the key is overwritten or deleted, if the caller
        /// knows it.
        lives: Option<u64>,
    },
    /// Deletes the key.
    Delete {
        /// 1 to 255 bytes.
        key: Bytes,
    },
}

/// The origin of changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum For {
    /// Users' changes, which never use the reserve.
    Users,
    /// Upkeep, which may use the room that is set aside.
    Upkeep,
}

struct Inner {
    id: StoreId,
    names: Names,
    /// The options, with `file_bytes` as adapted to the volumes.
    options: Options,
    /// The `file_bytes` that was set.
    file_bytes_set: u64,
    clock: Clock,
    state: Mutex<LogState>,
    disks: Vec<Disk>,
    notify: Notify,
    closing: AtomicBool,
    /// A write failed since the store was opened.
    is_unsure: AtomicBool,
    /// The record of syncs at intervals.
    syncs: Heartbeat,
    /// The generation of the store's own objects.
    lease: AsyncMutex<Lease>,
}

/// A volume and the state to work on it.
struct Disk {
    label: String,
    volume: Arc<dyn Volume>,
    /// The reserve of its room.
    reserve: Option<Reserve>,
    /// Files to be synced and given hints, oldest first.
    sealing: Mutex<VecDeque<Arc<Sealing>>>,
    /// Hints to be written of open files.
    parts: Mutex<Parts>,
    /// Held by the task that seals.
    sealer: AsyncMutex<()>,
    /// Held by the task that removes files, or picks one to merge.
    merger: AsyncMutex<()>,
    /// Whose files are being merged: copies of one layout go to the same open files, so they are merged one by one.
    merging: Mutex<BTreeSet<Layout>>,
    /// The store's own object there.
    own: Mutex<Arc<dyn Object>>,
    /// The record of merges and removals.
    merges: Heartbeat,
    /// The record of seals.
    seals: Heartbeat,
}

/// The sequences and files that the store may issue. Guards against removed files that reappear; [`Volume`]s guard
/// against a second program, by their locks.
struct Lease {
    generation: u64,
    /// Of each volume, the page of its own object that may be overwritten: the other one is whole.
    pages: Vec<u64>,
    /// Volumes that the newest lease could not be written to.
    behind: Vec<bool>,
}

impl Store {
    /// The longest value the store takes, in bytes.
    #[must_use]
    pub fn value_max(&self) -> u64 {
        self.0.value_max()
    }

    /// The longest batch, in bytes of keys and values, plus some 64 for each of them. A batch that spans several
    /// partitions may be longer.
    #[must_use]
    pub fn batch_max(&self) -> u64 {
        self.0.batch_max()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Corrupt`: the record is damaged in every copy, and lost; `Unavailable`: try again when the volume is back.
    pub async fn get(&self, key: &[u8]) -> Result<Option<IoBuf>> {
        let (place, file) = {
            let state = self.0.state();
            let Some(place) = state.index.get(key).filter(|place| !place.is_deleted()) else {
                return Ok(None);
            };
            (place, Arc::clone(&state.files[&place.file].handle))
        };
        let read = file.record(place, READ).await.and_then(|(bytes, whole)| {
            if bytes[whole.key.clone()] == *key {
                Ok((bytes, whole))
            } else {
                Err(file.corrupt(place.offset.into(), Bad::Foreign))
            }
        });
        match read {
            Ok((bytes, whole)) => Ok(Some(bytes.slice(whole.value))),
            Err(error) => {
                if error.kind() == ErrorKind::Corrupt {
                    self.0.note_damage(&file, place.offset, &error);
                }
                Err(error)
            }
        }
    }

    /// Whether a key has a value; from memory.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.state().index.get(key).is_some_and(|place| !place.is_deleted())
    }

    /// Sets the value of a key. `lives` says how many more bytes will have been put into the store when it is
    /// overwritten or deleted, if the caller knows it: records that die together are stored together.
    ///
    /// It is durable as [`Options::durability`] says. On a nearly full volume the answer is delayed.
    ///
    /// # Errors
    /// `Invalid`: key or value are too long; `OutOfSpace`: only what merges need is left, or the index
    /// is full: delete something, or try again later; `Poisoned`: a sync failed, and the value may or may
    /// not be there after a crash; `Unavailable`: the store is closed, or try again when the volume is back.
    pub async fn put(&self, key: &[u8], value: Bytes, lives: Option<u64>) -> Result<()> {
        let key = Bytes::copy_from_slice(key);
        self.0.submit(vec![Edit::Put { key, value, lives }], For::Users).await
    }

    /// Deletes a key; says whether it had a value. Never delayed, and refused only when nothing at all can be written.
    ///
    /// # Errors
    /// As for [`Store::put`].
    pub async fn delete(&self, key: &[u8]) -> Result<bool> {
        let had = self.contains(key);
        // A failed put may be on the volume, and reappear after a crash.
        if had || self.0.is_unsure.load(Ordering::SeqCst) {
            let edit = Edit::Delete { key: Bytes::copy_from_slice(key) };
            self.0.submit(vec![edit], For::Users).await?;
        }
        Ok(had)
    }

    /// Makes all of these changes, in this order. Those of one partition count all at once or not at all, after a crash
    /// too.
    ///
    /// # Errors
    /// As for [`Store::put`].
    pub async fn write(&self, edits: Vec<Edit>) -> Result<()> {
        self.0.submit(edits, For::Users).await
    }

    /// The same for changes that free room, or complete work that was accepted before. They may use the room that
    /// [`Options::set_aside`] reserves, and are never delayed. Where that is used up, too, merges make room first,
    /// whether the owner runs [`Store::tend`] or not.
    ///
    /// # Errors
    /// As for [`Store::put`]; `OutOfSpace`: no dead record is left to be merged.
    pub async fn write_upkeep(&self, edits: Vec<Edit>) -> Result<()> {
        self.0.submit_upkeep(edits).await
    }

    /// Checks for room for `bytes` of users that will be put later, or are kept beside the store on its volumes. Gives
    /// the delay before they are answered, as for a put.
    ///
    /// # Errors
    /// `OutOfSpace`: every volume has only the reserve of deletions and merges left.
    pub fn admit(&self, bytes: u64) -> Result<Duration> {
        self.0.admit_beside(bytes)
    }

    /// Whether the volume at this position takes `bytes` of users' puts.
    #[must_use]
    pub fn takes(&self, volume: usize, bytes: u64) -> bool {
        self.0.takes(volume, bytes)
    }

    /// Counts growth by `grown` bytes and shrinkage by `shrunk` of objects that are kept beside the store on the volume
    /// at this position, and count as its own.
    pub fn count_beside(&self, volume: usize, grown: u64, shrunk: u64) {
        let mut state = self.0.state();
        let own = &mut state.members[volume].own;
        *own = (*own + grown).saturating_sub(shrunk);
    }

    /// The volume at this position as the store uses it: writes through it may use the reserve where there is no other
    /// room.
    #[must_use]
    pub fn volume(&self, position: usize) -> Arc<dyn Volume> {
        Arc::clone(&self.0.disks[position].volume)
    }

    /// The bytes set aside, and the capacity, of all volumes together.
    #[must_use]
    pub fn room_set_aside(&self) -> (u64, u64) {
        let state = self.0.state();
        let of = |member: &state::MemberState| (member.limits.set_aside, member.fill(0).capacity);
        state.members.iter().map(of).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// The bytes of all volumes that users' puts never get: those set aside, and the room that merges need.
    #[must_use]
    pub fn room_kept(&self) -> u64 {
        self.0.state().members.iter().map(|member| member.limits.kept()).sum()
    }

    /// How full the fullest volume is, of the part that users may use: 1 where puts are refused.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let state = self.0.state();
        let share = |member: &state::MemberState| member.limits.share(&member.fill(state.sequence));
        state.members.iter().map(share).fold(0.0, f64::max)
    }

    /// Up to `limit` keys that begin with `prefix`, in order, after `after`; from memory.
    ///
    /// Not a snapshot: keys added or removed between two calls may be seen or not; every other key is seen once. A
    /// snapshot would keep a copy of the index, or every file that it leads to.
    #[must_use]
    pub fn keys(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<Bytes> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut keys = Vec::new();
        self.0.state().index.walk(from, |key, place| {
            let is_in = key.starts_with(prefix);
            if is_in && !place.is_deleted() {
                keys.push(Bytes::copy_from_slice(key));
            }
            is_in && keys.len() < limit
        });
        keys
    }

    /// Keys that begin with `prefix`, with their values, in the order of the keys.
    ///
    /// Not a snapshot either: a value is the key's at the time of the read.
    #[must_use]
    pub fn iter(&self, prefix: &[u8]) -> Iter {
        Iter {
            store: self.clone(),
            prefix: prefix.into(),
            keys: VecDeque::new(),
            last: None,
            ended: false,
        }
    }

    /// Makes every change answered before the call survive the loss of the machine.
    ///
    /// # Errors
    /// `Poisoned`: a sync failed, and the records it was for are not copied elsewhere yet.
    pub async fn sync(&self) -> Result<()> {
        self.0.sync_all().await
    }

    /// Seals every file, so that the next opening reads only hints. Later changes fail; reads go on.
    ///
    /// # Errors
    /// As for [`Store::sync`]; answered changes stay as durable as they were.
    pub async fn close(&self) -> Result<()> {
        self.0.closing.store(true, Ordering::SeqCst);
        self.0.notify.notify_all();
        self.0.seal_everything().await
    }

    /// Tends the volume at this position until the store is closed: seals files, removes dead ones, merges, and syncs
    /// at intervals. The owner of the store runs it for each volume; running it twice does no harm.
    pub async fn tend(&self, volume: usize) {
        self.0.tend(volume).await;
    }

    /// Seals waiting files, removes dead ones, and merges one if the policy picks one; says whether it did any of
    /// these. For owners that do not run [`Store::tend`].
    ///
    /// # Errors
    /// The error that stopped the work; the next call resumes it.
    pub async fn tend_once(&self, volume: usize) -> Result<bool> {
        self.0.tend_once(volume).await
    }

    /// The state of the store.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }

    /// The store's id.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.0.id
    }

    /// How many volumes it is on.
    #[must_use]
    pub fn volumes(&self) -> usize {
        self.0.disks.len()
    }
}

/// See [`Store::iter`].
pub struct Iter {
    store: Store,
    prefix: Box<[u8]>,
    keys: VecDeque<Bytes>,
    last: Option<Bytes>,
    ended: bool,
}

/// Keys that are looked up at a time.
const KEYS_AHEAD: usize = 256;

impl Iter {
    /// The next key and its value; `None` at the end.
    ///
    /// # Errors
    /// As for [`Store::get`]; the next call goes on behind that key.
    pub async fn next(&mut self) -> Result<Option<(Bytes, IoBuf)>> {
        loop {
            if self.keys.is_empty() && !self.ended {
                let keys = self.store.keys(&self.prefix, self.last.as_deref(), KEYS_AHEAD);
                self.ended = keys.len() < KEYS_AHEAD;
                self.last = keys.last().cloned().or(self.last.take());
                self.keys = keys.into();
            }
            let Some(key) = self.keys.pop_front() else { return Ok(None) };
            // The key may be deleted by now.
            if let Some(value) = self.store.get(&key).await? {
                return Ok(Some((key, value)));
            }
        }
    }
}

impl Inner {
    /// The state in memory. A task never holds the lock across an await.
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// How many partitions are on a volume.
    fn partitions_of(&self, member: usize) -> u16 {
        partitions_of(self.options.partitions, member, self.disks.len())
    }

    /// How many devices are below a volume.
    fn devices_of_each(&self) -> usize {
        self.options.devices_of_each(self.disks.len())
    }

    /// The volume of a partition, by its position.
    fn member_of(&self, partition: u16) -> usize {
        usize::from(partition) % self.disks.len()
    }

    /// Logs and counts a damaged record once, however often it is read.
    fn note_damage(&self, file: &File, offset: u32, error: &Error) {
        if self.state().found_damaged(file.id, offset) {
            tracing::error!(%error, "a record is damaged");
        }
    }

    fn figures(&self) -> Figures {
        let state = self.state();
        let mut volumes: Vec<_> = self
            .disks
            .iter()
            .zip(&state.members)
            .map(|(disk, member)| {
                let fill = member.fill(state.sequence);
                VolumeFigures {
                    label: disk.label.clone(),
                    capacity: fill.capacity,
                    fill: fill.share(),
                    space_pressure: member.merges.space_pressure(&fill),
                    release_threshold: member.merges.threshold(&fill),
                    dead_fraction_eaten: member.merges.eaten(),
                    put_delay: member.limits.delay(&fill),
                    files: 0,
                    live_bytes: 0,
                    dying_bytes: member.dying.iter().map(|dying| dying.len).sum(),
                    counts: member.counts,
                }
            })
            .collect();
        for facts in state.files.values() {
            volumes[facts.member].files += 1;
            volumes[facts.member].live_bytes += facts.live;
        }
        let (keys, index_bytes) = (state.index.len() as u64, state.index.memory() as u64);
        Figures { keys, index_bytes, file_bytes: self.options.file_bytes, volumes }
    }
}

/// Partitions are assigned to volumes in turn.
fn partitions_of(partitions: u16, member: usize, members: usize) -> u16 {
    (member..usize::from(partitions)).step_by(members).count() as u16
}

#[cfg(test)]
mod tests;
