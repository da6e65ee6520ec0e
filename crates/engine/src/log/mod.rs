//! A log-structured store: keys and values in append-only files, an index in memory, merges that take
//! back the room of what was overwritten.
//!
//! ```text
//!   put ─▶ partition by hash ─▶ group by expected death ─▶ open file ── at R ─▶ sealed, with a hint
//!                                                                                  │
//!   index: key ─▶ file, offset, length        merge: live records ─▶ another file ◀┘ dead: unlinked
//! ```
//! It is made for objects that are written once, all the time, and kept until their key comes round
//! again: readings of sensors. Such a store has to write at the full bandwidth of its disks while
//! these are nearly full. What is merged, and when, is policy: [`policy::merge`]. Every file goes
//! through the volume's gate, users' writes as commits, merges in a class that rises as room runs out.
//!
//! # What an answer means
//!
//! | [`Durability`] | when a put or delete is answered, it survives |
//! |---|---|
//! | `Always` | the death of the machine |
//! | `Interval` | the death of the process; that of the machine after the interval, or [`Store::sync`] |
//! | `Never` | the death of the process; that of the machine after [`Store::sync`] or [`Store::close`] |
//!
//! An operation that failed, or whose future was dropped, may have happened. A failed sync poisons
//! the file: puts that waited for it fail, nothing is written there any more, and what it held is
//! copied elsewhere as soon as the volume takes new objects.
//!
//! # Who does the work
//!
//! A caller that waits writes what others wait for, too; [`Store::tend`] seals and merges, and the store's owner runs it
//! for each volume. Without it puts still go on until there is no room.

mod append;
mod bell;
mod dirty;
mod figures;
mod file;
mod format;
mod health;
mod index;
mod inspect;
mod lease;
mod merge;
mod recovery;
mod scan;
mod scrub;
mod sealing;
mod state;
mod stream;
mod writeback;
mod writer;

use std::collections::VecDeque;
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
use volume::layer::reserve::Reserve;
use volume::{Clock, Error, ErrorKind, IoBuf, Object, Result, Volume};

use self::bell::Bell;
pub use self::figures::{Counts, Figures, VolumeFigures};
use self::file::{File, Names};
pub use self::format::{Bad, KEY_MAX, StoreId, VALUE_MAX};
pub use self::inspect::{Flaw, Inspected, inspect, stores_on};
pub use self::recovery::{Damage, Report};
pub use self::scrub::Scrubbed;
use self::sealing::Sealing;
use self::state::State;

/// Files are not made smaller than this, whatever there is room for: to begin one costs a disk two seeks.
const FILE_MIN: u64 = 4 * MIB;
/// But where room is set aside a file is at most this part of the volume, 1/32, since the reserve has one; of a
/// small volume, then, it is smaller.
const FILE_SHARE: u64 = 32;
/// No more than this part of a volume is set aside, 1/10. With a file for merges it is less than a fifth.
const SET_ASIDE_SHARE: u64 = 10;

const READ: Io = Io::new(Origin::UserRead, Step::Data);
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);

/// When what was answered survives the machine; see the [module](self).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// At once: one sync for all who wait. Each costs the device a flush.
    Always,
    /// At the latest after this time.
    Interval(Duration),
    /// When [`Store::sync`] is called.
    Never,
}

/// How a store is kept. All of it may change from one opening to the next.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its objects' names begin with; default `log`.
    pub name: String,
    /// How many partitions keys are dealt to, over the volumes in turn; default 1 for each volume.
    /// More write in parallel, and have as many more files open.
    pub partitions: u16,
    /// Files are sealed at this many bytes: R; default 64 MiB, at most 2 GiB. Larger ones seek less,
    /// and keep more room unused: where that is more than `live` leaves, [`Rule::DeathTime`]
    /// seals them earlier, down to 4 MiB ([`Figures::file_bytes`]).
    pub file_bytes: u64,
    /// When an answer is given; default `Always`.
    pub durability: Durability,
    /// What may be used of each volume, in bytes; default all of it.
    pub quota: u64,
    /// The part of it that will hold living records; default 0.5. Checked at the start against what
    /// open files need.
    pub live: f64,
    /// By what rule files are merged; default by expected death.
    pub rule: Rule,
    /// When [`Rule::Static`] merges; default as Bitcask comes.
    pub triggers: Triggers,
    /// Up to this fill only dead files are removed: U_m; default 0.8.
    pub target: f64,
    /// From this fill on puts wait: U_l; default 0.95 of what they may use.
    pub delay_from: f64,
    /// What they wait at most; default 1 s.
    pub delay_max: Duration,
    /// How the wait grows up to that; default 2: slowly at first. 1 is evenly (PSTA 8(3), 2017), and delays
    /// each put by 20 ms where a thousandth of the volume is missing.
    pub delay_exponent: f64,
    /// How many files a partition has open at once, to keep records apart that die at different times;
    /// default 4. Counts only with [`Rule::DeathTime`].
    pub groups: u8,
    /// What the index may take, in bytes; default 1 GiB. A key takes its length and 30 to 40 bytes.
    pub index_bytes_max: u64,
    /// What people call that bound where they set it; default `index_bytes_max`.
    pub index_setting: &'static str,
    /// What reading costs on the volumes, for merges; default a volume paid by operation.
    pub device: Device,
    /// Bytes of each volume that only [`Store::write_upkeep`], deletions and merges use; default none, at most a tenth
    /// of the volume. They are kept together with what merges need, and no other program can take them: see
    /// [`volume::layer::reserve`].
    pub set_aside: u64,
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
        }
    }

    /// How many files may be open at once on a volume: of puts, and of copies.
    fn open_files(&self, partitions: u64) -> u64 {
        partitions * u64::from(self.groups_used()) * 2
    }

    fn groups_used(&self) -> u8 {
        if self.rule == Rule::DeathTime { self.groups.max(1) } else { 1 }
    }

    fn limits(&self, capacity: u64, partitions: u64) -> PutLimits {
        // What closing a file takes: the padding of its last page, and a hint.
        let closing = (self.file_bytes / 64).max(8 << 10);
        let reserve = PutLimits::reserve(self.file_bytes, self.open_files(partitions), closing);
        let mut limits = PutLimits::new(reserve);
        (limits.low, limits.delay_max) = (self.delay_from, self.delay_max);
        limits.exponent = self.delay_exponent;
        limits.set_aside = self.set_aside.min(capacity / SET_ASIDE_SHARE);
        limits
    }

    /// Whether a store that is to be made can go on for ever on a volume of `capacity` bytes.
    fn check_room(&self, label: &str, capacity: u64, partitions: u64) -> Result<()> {
        let room = Room {
            capacity,
            live: self.live,
            open: self.open_files(partitions),
            file_bytes: self.file_bytes,
            target: self.target,
            // The file a merge writes is counted as one of the files.
            reserve: self.limits(capacity, partitions).kept() - self.file_bytes,
        };
        room.check().map_err(|infeasible| {
            Error::new(ErrorKind::Invalid, format!("log store on volume {label}: {infeasible}"))
        })
    }

    /// The largest files, up to what was told, that are dead before their room is needed, on a volume of so
    /// many bytes. The published rules go by what they are told, and can be compared at any size.
    fn file_bytes_for(&self, capacity: u64, partitions: u64) -> u64 {
        if self.rule != Rule::DeathTime || self.live >= self.delay_from {
            return self.file_bytes;
        }
        let most = if self.set_aside > 0 { capacity / FILE_SHARE } else { u64::MAX };
        let capacity = capacity as f64;
        // Of each group and partition the oldest file is half dead on average; with one group all of it may
        // be. Puts leave room for one more, and for what closing files takes.
        let dead = partitions.max(1) as f64 * f64::from(self.groups_used() + 1) / 2.0;
        let open = (self.open_files(partitions) + 1) as f64;
        let reserve = 1.0 + open / 64.0;
        let waited = capacity * (self.delay_from - self.live) / (dead + self.delay_from * reserve);
        // Less what rounding adds.
        let feasible = 0.99 * capacity * (1.0 - self.live) / (open * (1.0 + 1.0 / 64.0));
        let fits = (waited.min(feasible) as u64).max(FILE_MIN).min(most.max(64 << 10));
        self.file_bytes.min(fits)
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

/// A volume of a store, and what people call it.
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

/// A log store. Clones are handles to the same one. One process, and in it one store, has the
/// volumes at a time.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// One change of a batch.
#[derive(Clone, Debug)]
pub enum Edit {
    /// The key has this value now.
    Put {
        /// 1 to 255 bytes.
        key: Bytes,
        /// Up to a quarter of a file.
        value: Bytes,
        /// How many more bytes will have been put into the store when the key is overwritten or
        /// deleted, if that is known.
        lives: Option<u64>,
    },
    /// The key has no value any more.
    Delete {
        /// 1 to 255 bytes.
        key: Bytes,
    },
}

/// Whose changes they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum For {
    /// Of users: puts leave the reserve alone.
    Users,
    /// They may use what was set aside.
    Upkeep,
}

struct Inner {
    id: StoreId,
    names: Names,
    /// Their `file_bytes` is what files are sealed at.
    options: Options,
    /// What it was before.
    file_bytes_told: u64,
    clock: Clock,
    state: Mutex<State>,
    disks: Vec<Disk>,
    bell: Bell,
    closing: AtomicBool,
    /// A write failed since the store was opened.
    is_unsure: AtomicBool,
    /// The generation of the store's own objects.
    lease: AsyncMutex<Lease>,
}

/// What is reached on a volume.
struct Disk {
    label: String,
    volume: Arc<dyn Volume>,
    /// Room of it that is kept back.
    reserve: Option<Reserve>,
    /// Files that wait to be synced and get their hints, oldest first.
    sealing: Mutex<VecDeque<Arc<Sealing>>>,
    /// Held by the one who seals.
    sealer: AsyncMutex<()>,
    /// Held by the one who merges, or removes files.
    merger: AsyncMutex<()>,
    /// The store's own object there.
    own: Mutex<Arc<dyn Object>>,
}

/// Which sequences and files are the store's. It guards against files that come back after they were removed;
/// [`Volume`]s guard against a second program, by their locks.
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

    /// The most a batch may take, in bytes of keys, values and some 64 for each: more may fit where it
    /// is dealt to several partitions.
    #[must_use]
    pub fn batch_max(&self) -> u64 {
        self.0.batch_max()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `Corrupt`: the record is damaged, and lost; `Unavailable`: try again when the volume is back.
    pub async fn get(&self, key: &[u8]) -> Result<Option<IoBuf>> {
        let (place, file) = {
            let state = self.0.state();
            let Some(place) = state.index.get(key).filter(|place| !place.is_deleted()) else {
                return Ok(None);
            };
            (place, Arc::clone(&state.files[&place.file].handle))
        };
        let read = file.record(place.offset, place.len, READ).await.and_then(|(bytes, whole)| {
            let is_it = bytes[whole.key.clone()] == *key && whole.head.sequence == place.sequence;
            if is_it {
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

    /// Sets the value of a key. `lives` says how many more bytes will have been put into the store when it
    /// is overwritten or deleted, if that is known: records that die together are kept together.
    ///
    /// It is durable as [`Options::durability`] says. Near the end of the room the answer is delayed.
    ///
    /// # Errors
    /// `Invalid`: key or value are too long; `OutOfSpace`: only what merges need is left, or the index
    /// is full: delete something, or try again later; `Poisoned`: a sync failed, and the value may or may
    /// not be there after a crash; `Unavailable`: the store is closed, or try again when the volume is back.
    pub async fn put(&self, key: &[u8], value: Bytes, lives: Option<u64>) -> Result<()> {
        let key = Bytes::copy_from_slice(key);
        self.0.submit(vec![Edit::Put { key, value, lives }], For::Users).await
    }

    /// Takes a key's value away; says whether it had one. Never delayed, and refused only when nothing at
    /// all can be written.
    ///
    /// # Errors
    /// As for [`Store::put`].
    pub async fn delete(&self, key: &[u8]) -> Result<bool> {
        let had = self.contains(key);
        // What failed to be put may be on the volume, and come up after a crash.
        if had || self.0.is_unsure.load(Ordering::SeqCst) {
            let edit = Edit::Delete { key: Bytes::copy_from_slice(key) };
            self.0.submit(vec![edit], For::Users).await?;
        }
        Ok(had)
    }

    /// Makes all of these changes, in this order. Those of one partition count all at once or not at
    /// all, after a crash too.
    ///
    /// # Errors
    /// As for [`Store::put`].
    pub async fn write(&self, edits: Vec<Edit>) -> Result<()> {
        self.0.submit(edits, For::Users).await
    }

    /// The same for changes that free room, or bring to rest what was accepted before: they may use what
    /// [`Options::set_aside`] keeps, and are never delayed. Where that is used up, too, merges make room first,
    /// whether the owner runs [`Store::tend`] or not.
    ///
    /// # Errors
    /// As for [`Store::put`]; `OutOfSpace`: nothing that is dead is left to be merged.
    pub async fn write_upkeep(&self, edits: Vec<Edit>) -> Result<()> {
        self.0.submit_upkeep(edits).await
    }

    /// Asks for room for `bytes` of users, which are to be put later or are kept beside the store on its volumes.
    /// Gives how long to wait before they are answered, as for a put.
    ///
    /// # Errors
    /// `OutOfSpace`: every volume has only left what deletions and merges need.
    pub fn admit(&self, bytes: u64) -> Result<Duration> {
        self.0.admit_beside(bytes)
    }

    /// Whether the volume at this position takes `bytes` of users' puts.
    #[must_use]
    pub fn takes(&self, volume: usize, bytes: u64) -> bool {
        self.0.takes(volume, bytes)
    }

    /// Objects that are kept beside the store on the volume at this position, and count as its own, grew by
    /// `grown` bytes and shrank by `shrunk`.
    pub fn count_beside(&self, volume: usize, grown: u64, shrunk: u64) {
        let mut state = self.0.state();
        let own = &mut state.seats[volume].own;
        *own = (*own + grown).saturating_sub(shrunk);
    }

    /// The volume at this position as the store uses it: what is written through it gets room that is kept back
    /// where there is no other.
    #[must_use]
    pub fn volume(&self, position: usize) -> Arc<dyn Volume> {
        Arc::clone(&self.0.disks[position].volume)
    }

    /// What is set aside, and how much there is, of all volumes together, in bytes.
    #[must_use]
    pub fn room_set_aside(&self) -> (u64, u64) {
        let state = self.0.state();
        let of = |seat: &state::Seat| (seat.limits.set_aside, seat.fill(0).capacity);
        state.seats.iter().map(of).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// How full the fullest volume is, of what users may use: 1 where puts are refused.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let state = self.0.state();
        let share = |seat: &state::Seat| seat.limits.share(&seat.fill(state.sequence));
        state.seats.iter().map(share).fold(0.0, f64::max)
    }

    /// Up to `limit` keys that begin with `prefix`, in order, from behind `after` on; from memory.
    ///
    /// It is no snapshot: keys that come or go between two calls may be seen or not; every other key is
    /// seen once. A snapshot would keep a copy of the index, or every file it leads to.
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
    /// No snapshot either: a value is what the key has when it comes to it.
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

    /// Everything answered before the call survives the machine when it is ready.
    ///
    /// # Errors
    /// `Poisoned`: a sync failed, and what it was for is not copied elsewhere yet.
    pub async fn sync(&self) -> Result<()> {
        self.0.sync_all().await
    }

    /// Seals every file, so that the next opening reads hints only. Later changes fail; reads go on.
    ///
    /// # Errors
    /// As for [`Store::sync`]; what was answered is as durable as it was.
    pub async fn close(&self) -> Result<()> {
        self.0.closing.store(true, Ordering::SeqCst);
        self.0.bell.ring();
        self.0.seal_everything().await
    }

    /// Tends the volume at this position until the store is closed: seals files, removes dead ones,
    /// merges, and syncs at intervals. The owner of the store runs it for each volume; to run it twice
    /// does no harm.
    pub async fn tend(&self, volume: usize) {
        self.0.tend(volume).await;
    }

    /// Seals what waits, removes what is dead, and merges one file if there is one to merge now; says
    /// whether it did anything. For who does not run [`Store::tend`].
    ///
    /// # Errors
    /// What the work failed with; it is taken up again the next time.
    pub async fn tend_once(&self, volume: usize) -> Result<bool> {
        self.0.tend_once(volume).await
    }

    /// How the store is.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }

    /// Which store it is.
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
    /// The next key and its value; none at the end.
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
            // It may be gone by now.
            if let Some(value) = self.store.get(&key).await? {
                return Ok(Some((key, value)));
            }
        }
    }
}

impl Inner {
    /// What is known in memory. Never held while waiting.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// How many partitions are on a volume.
    fn partitions_of(&self, seat: usize) -> u16 {
        partitions_of(self.options.partitions, seat, self.disks.len())
    }

    /// The volume of a partition, by its position.
    fn seat(&self, partition: u16) -> usize {
        usize::from(partition) % self.disks.len()
    }

    /// A damaged record is logged and counted once, however often it is read.
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
            .zip(&state.seats)
            .map(|(disk, seat)| {
                let fill = seat.fill(state.sequence);
                VolumeFigures {
                    label: disk.label.clone(),
                    capacity: fill.capacity,
                    fill: fill.share(),
                    hunger: seat.merges.hunger(&fill),
                    release_threshold: seat.merges.threshold(&fill),
                    dead_fraction_eaten: seat.merges.eaten(),
                    put_delay: seat.limits.delay(&fill),
                    files: 0,
                    live_bytes: 0,
                    dying_bytes: seat.dying.iter().map(|dying| dying.len).sum(),
                    counts: seat.counts,
                }
            })
            .collect();
        for facts in state.files.values() {
            volumes[facts.seat].files += 1;
            volumes[facts.seat].live_bytes += facts.live;
        }
        let (keys, index_bytes) = (state.index.len() as u64, state.index.memory() as u64);
        Figures { keys, index_bytes, file_bytes: self.options.file_bytes, volumes }
    }
}

/// Partitions are dealt to volumes in turn.
fn partitions_of(partitions: u16, seat: usize, seats: usize) -> u16 {
    (seat..usize::from(partitions)).step_by(seats).count() as u16
}

#[cfg(test)]
mod tests;
