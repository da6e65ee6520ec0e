//! Objects that are written in place on a pool of fragments: writes go to a log, and later in place.
//!
//! ```text
//!   write ─▶ log of blocks (k + 1 copies, a sync for many writes) ─▶ acknowledged
//!                 │ later, the oldest first, a row at a time:
//!                 │   read what the new parity takes ─▶ new parity to the log of rows ─▶ data and parity in place
//!   read  ─▶ what the log of blocks has newer, else in place
//! ```
//! A write in place of one block of a row changes a block of each parity fragment, and takes the old bytes to compute them: 2 +
//! 2 k operations on the data and its k parity fragments. The log takes k + 1 appends, which many writes share, and each block goes
//! in place once, however often it was written meanwhile, together with the others of its row.
//!
//! An object is uncommitted until its first sync or durable write, and so is a length until the next one. These make the log
//! durable first, and then record object and length in the manifest. An opening leaves out what the log has of other
//! objects, or behind the end of one.
//!
//! What survives: an acknowledged durable write, as many losses as the code has parity fragments, also together with a crash.
//! The new parity is in the log before the first byte of a row changes in place, so a crash in between is repeated from the
//! log, whichever volumes are lost with it.
//!
//! Everything else of the pool passes through: logs, tables, and objects with copies.

mod fetch;
mod figures;
mod index;
mod kept;
mod log;
mod object;
mod record;
mod recycle;
mod replay;
mod turn;
mod value;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::lock::{Mutex as AsyncMutex, MutexGuard};
use parking_lot::Mutex;
use policy::intent::Kind;
use policy::price::Price;
use policy::purpose::Io;
use policy::recycle::BLOCK;
use policy::recycle::pace::Pace;
use policy::recycle::room::Room;
use policy::units::MIB;
use volume::heartbeat::Heartbeat;
use volume::{
    Clock, Error, ErrorKind, Intent, IoBuf, Limits, Listed, Name, Object, Pending, ReadTime,
    Result, Space, Volume,
};

use self::figures::Counts;
pub use self::figures::Figures;
use self::log::{Log, PREFIX};
use self::object::Base;
use self::recycle::Spending;
use crate::leaf::ObjectId;
use crate::spread::{Handle, Spread};

/// The names of the logs.
const BLOCKS: &str = "blocks";
const ROWS: &str = "rows";

/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time between two rounds of the background task.
const ROUND: Duration = Duration::from_secs(10);

/// How the log is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of the log, each copy counted once, from which on writes wait until it has room again. From a quarter of it on,
    /// [`Logged::run`] brings blocks in place with operations that users leave over, and the more of it is newer than its places, the
    /// more urgently. Files that only changes of rows need do not count; with them it is half as long again at most.
    pub limit: u64,
    /// Bytes of a file of the log: it is removed when all of them are in place.
    pub file_len: u64,
    /// Bytes of the log that are in memory at most: half of them the newest, which are not read back, half of them read for
    /// rows that go in place.
    pub memory: u64,
    /// What the volumes charge.
    pub price: Price,
}

impl Default for Options {
    fn default() -> Self {
        let price = Price::new(Some(43_690), MIB / 4);
        Self { limit: 1024 * MIB, file_len: 32 * MIB, memory: 128 * MIB, price }
    }
}

/// A pool, and its log. See the [module](self). Clones are handles to the same one.
#[derive(Clone)]
pub struct Logged {
    shared: Arc<Shared>,
    /// The handle of a store.
    spread: Spread,
}

struct Shared {
    spread: Spread,
    options: Options,
    /// The log of blocks.
    blocks: Log,
    /// The log of rows that change in place.
    rows: Log,
    open: Mutex<HashMap<ObjectId, Weak<Base>>>,
    /// Changes of each row that were decided and are not known to be in place.
    decided: Mutex<BTreeMap<(ObjectId, u64), Vec<u64>>>,
    /// The files of blocks that each change needs which was decided.
    needed: Mutex<HashMap<u64, BTreeSet<u64>>>,
    /// The number of the last change of a row.
    changes: AtomicU64,
    recycling: AsyncMutex<()>,
    /// The clock of [`Logged::run`], while that runs.
    runs: Mutex<Option<Clock>>,
    /// Whether its last round brought nothing in place.
    is_stuck: AtomicBool,
    /// Says when the log takes writes, and what makes room in it.
    room: Room,
    /// Says when writes go while there is little room.
    pace: Mutex<Pace>,
    /// Locked while blocks of the oldest file are appended again.
    moving: AsyncMutex<()>,
    /// Writes that wait for room.
    waiting: Mutex<Vec<Waker>>,
    spending: Mutex<Spending>,
    due: Mutex<Option<Waker>>,
    figures: Counts,
}

impl Logged {
    /// Reads the log of a pool, and repeats what a crash cut off. To be called before copies are made or dropped.
    ///
    /// # Errors
    /// Those of the pool: too many volumes are away to read the log, or to repeat a change of a row.
    pub async fn open(spread: Spread, options: Options) -> Result<Self> {
        let blocks = replay::files(&spread, BLOCKS).await?;
        let rows = replay::files(&spread, ROWS).await?;
        let log = |name, memory, files: &replay::Files| {
            let last = files.last().map_or(0, |(number, _)| *number);
            Log::new(spread.clone(), name, options.file_len, memory, last)
        };
        let shared = Shared {
            blocks: log(BLOCKS, options.memory / 2, &blocks),
            rows: log(ROWS, 0, &rows),
            spread: spread.clone(),
            options,
            open: Mutex::default(),
            decided: Mutex::default(),
            needed: Mutex::default(),
            changes: AtomicU64::new(0),
            recycling: AsyncMutex::default(),
            runs: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            room: Room::new(options.limit, options.file_len),
            pace: Mutex::default(),
            moving: AsyncMutex::default(),
            waiting: Mutex::default(),
            spending: Mutex::new(Spending::new(options.price)),
            due: Mutex::default(),
            figures: Counts::default(),
        };
        let behind = shared.read(&shared.blocks, &blocks).await?.behind;
        let changes = shared.read(&shared.rows, &rows).await?;
        shared.repeat(changes).await?;
        shared.clear_behind_ends(behind).await?;
        spread.rows_are_whole();
        Ok(Self { shared: Arc::new(shared), spread })
    }

    /// The same for a store: `spread` is its handle of the pool.
    #[must_use]
    pub fn with(&self, spread: Spread) -> Self {
        Self { shared: Arc::clone(&self.shared), spread }
    }

    /// What it did so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let Shared { blocks, figures, .. } = &*self.shared;
        let newer = blocks.with_index(|index| index.blocks());
        figures.with(blocks.bytes(), newer, self.shared.appended())
    }

    /// Brings blocks in place while the log is more than a quarter full. Runs until it is dropped, and tells `heartbeat` of its
    /// rounds.
    pub async fn run(&self, clock: &Clock, heartbeat: &Heartbeat) {
        let _runs = Runs::begin(&self.shared, clock);
        loop {
            if !self.wait_until_due(clock).await {
                heartbeat.completed();
                continue;
            }
            let round = async {
                let _one = self.shared.recycling.lock().await;
                self.shared.make_more_room().await
            };
            let recycled = self.watched(round, clock, heartbeat).await;
            match &recycled {
                Ok(_) => heartbeat.completed(),
                Err(e) => {
                    tracing::warn!("blocks stay in the log of objects in place for now: {e}");
                    heartbeat.failed(e);
                }
            }
            let is_stuck = !recycled.unwrap_or(false);
            self.shared.is_stuck.store(is_stuck, Ordering::Release);
            if is_stuck {
                self.shared.wake_waiting();
                clock.sleep(PAUSE).await;
            }
        }
    }

    /// A round takes minutes where users leave few operations over. While rows come in place, it is at work.
    async fn watched<T>(
        &self,
        round: impl Future<Output = T>,
        clock: &Clock,
        heartbeat: &Heartbeat,
    ) -> T {
        let mut round = pin!(round);
        loop {
            let rows = self.shared.figures.rows();
            match select(round.as_mut(), pin!(clock.sleep(ROUND))).await {
                Either::Left((ended, _)) => return ended,
                Either::Right(_) if self.shared.figures.rows() > rows => heartbeat.completed(),
                Either::Right(_) => {}
            }
        }
    }

    /// False if the log is not a quarter full after some seconds.
    async fn wait_until_due(&self, clock: &Clock) -> bool {
        let mut sleep = pin!(clock.sleep(ROUND));
        poll_fn(|cx| {
            *self.shared.due.lock() = Some(cx.waker().clone());
            match self.shared.is_due() {
                true => Poll::Ready(true),
                false => sleep.as_mut().poll(cx).map(|()| false),
            }
        })
        .await
    }

    /// Brings everything in place.
    ///
    /// # Errors
    /// Those of the pool.
    pub async fn drain(&self) -> Result<()> {
        let shared = &self.shared;
        let _one = shared.recycling.lock().await;
        for object in shared.blocks.with_index(|index| index.objects()) {
            let base = match shared.base(object) {
                Ok(base) => base,
                Err(e) if e.kind() == ErrorKind::Gone => {
                    shared.forget(object);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let rows = base.handle.len().div_ceil(base.width() * BLOCK);
            shared.bring_in_place(&base, 0..rows).await?;
        }
        // Else an opening would take all of the last file for newer than its places.
        shared.blocks.end_file().await;
        shared.rows.end_file().await;
        shared.make_more_room().await.map(drop)
    }
}

/// While it lives, [`Logged::run`] brings blocks in place, and writes only wait for it.
struct Runs<'a>(&'a Shared);

impl<'a> Runs<'a> {
    fn begin(shared: &'a Shared, clock: &Clock) -> Self {
        *shared.runs.lock() = Some(clock.clone());
        Self(shared)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        *self.0.runs.lock() = None;
        self.0.is_stuck.store(false, Ordering::Release);
        self.0.wake_waiting();
    }
}

impl Shared {
    fn next_change(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// An object that is kept as fragments and written in place.
    ///
    /// # Errors
    /// `Gone`: there is none of this number.
    fn base(&self, object: ObjectId) -> Result<Arc<Base>> {
        let mut open = self.open.lock();
        if let Some(base) = open.get(&object).and_then(Weak::upgrade) {
            return Ok(base);
        }
        let handle = self.spread.handle_by_id(object)?;
        let Some(code) = handle.in_place_code() else {
            let what = format!("object {object}: it is not kept as fragments in place");
            return Err(Error::new(ErrorKind::Gone, what));
        };
        let base = Arc::new(Base::new(handle, code));
        open.retain(|_, base| base.strong_count() > 0);
        open.insert(object, Arc::downgrade(&base));
        Ok(base)
    }

    /// Waits until the log takes a write.
    ///
    /// # Errors
    /// Nothing can be brought in place, and the log has outgrown its limit by as much again.
    async fn make_room(&self, object: ObjectId, blocks: Range<u64>) -> Result<()> {
        if self.is_due()
            && let Some(waker) = self.due.lock().take()
        {
            waker.wake();
        }
        self.keep_pace(object, &blocks).await;
        let has_room = || self.has_room(object, &blocks);
        if has_room() {
            return Ok(());
        }
        self.figures.waited();
        while let Some(_one) = self.turn_without_room(has_room).await {
            match self.make_more_room().await {
                Ok(true) => {}
                Err(e) if self.blocks.bytes() >= 2 * self.options.limit => {
                    return Err(e.within("the log is full"));
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// While there is little room, waits until a write of these blocks may take some.
    async fn keep_pace(&self, object: ObjectId, blocks: &Range<u64>) {
        if self.is_left_to_writes() {
            return;
        }
        let Some(ease) = self.room.ease(self.blocks.fill()) else { return };
        let Some(clock) = self.runs.lock().clone() else { return };
        let live = self.blocks.with_index(|index| index.count(object, blocks.clone()));
        let takes = (blocks.end - blocks.start).saturating_sub(live);
        let now = clock.now();
        let goes = self.pace.lock().enter(now, takes, ease);
        if goes > now {
            self.figures.waited();
            clock.sleep_until(goes).await;
        }
    }

    /// Whether the log takes a write of these blocks. While none can go in place, it takes twice as much.
    fn has_room(&self, object: ObjectId, blocks: &Range<u64>) -> bool {
        if self.is_stuck.load(Ordering::Acquire) {
            return self.blocks.bytes() < 2 * self.options.limit;
        }
        let count = blocks.end - blocks.start;
        let over = || self.blocks.with_index(|index| index.count(object, blocks.clone()) == count);
        let fill = self.blocks.fill();
        if self.blocks.bytes() >= self.options.limit / 2 * 3 {
            return false;
        }
        self.room.takes(fill, false) || self.room.takes(fill, true) && over()
    }

    /// Whether writes do not leave it to [`Logged::run`] to bring blocks in place.
    fn is_left_to_writes(&self) -> bool {
        self.runs.lock().is_none() || self.is_stuck.load(Ordering::Acquire)
    }

    /// Waits until the log takes a write: then none; or it is the caller's turn to bring blocks in place.
    async fn turn_without_room(&self, has_room: impl Fn() -> bool) -> Option<MutexGuard<'_, ()>> {
        let mut turn = pin!(self.recycling.lock());
        poll_fn(|cx| {
            // Before the look: room that is made after it wakes this call.
            self.waiting.lock().push(cx.waker().clone());
            match has_room() {
                true => Poll::Ready(None),
                false if self.is_left_to_writes() => turn.as_mut().poll(cx).map(Some),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Blocks came in place.
    fn came_in_place(&self, blocks: u64) {
        self.figures.recycled(blocks);
        if self.room.ease(self.blocks.fill()).is_some()
            && let Some(clock) = &*self.runs.lock()
        {
            self.pace.lock().placed(clock.now(), blocks);
        }
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether blocks should go in place.
    fn is_due(&self) -> bool {
        let has_old_files = self.blocks.bytes() >= self.options.limit;
        has_old_files || self.room.is_due(self.blocks.fill())
    }

    fn object(self: &Arc<Self>, handle: Handle, spread: &Spread) -> Result<Arc<dyn Object>> {
        if handle.in_place_code().is_none() {
            return Ok(Arc::new(handle));
        }
        let base = self.base_of(handle)?;
        Ok(Arc::new(object::Logged::new(Arc::clone(self), base, spread.clone())))
    }

    /// The object of a handle, which may be uncommitted.
    fn base_of(&self, handle: Handle) -> Result<Arc<Base>> {
        let mut open = self.open.lock();
        if let Some(base) = open.get(&handle.id()).and_then(Weak::upgrade) {
            return Ok(base);
        }
        let Some(code) = handle.in_place_code() else {
            return Err(Error::new(ErrorKind::Invalid, "it is not kept as fragments in place"));
        };
        let (id, base) = (handle.id(), Arc::new(Base::new(handle, code)));
        open.insert(id, Arc::downgrade(&base));
        Ok(base)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Logged {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let Some(code) = self.spread.code().filter(|_| intent.kind == Kind::InPlace) else {
            return self.spread.create(name, intent);
        };
        let name = name.clone();
        Box::pin(async move {
            // It is uncommitted. An opening takes what the log says of objects that the manifest has.
            let handle = self.spread.create_in_place(&name, code).await?;
            self.shared.object(handle, &self.spread)
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let handle = self.spread.open_handle(&name).await?;
            self.shared.object(handle, &self.spread)
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            let mut all = Volume::list(&self.spread).await?;
            all.retain(|listed| !listed.name.as_str().starts_with(PREFIX));
            Ok(all)
        })
    }

    volume::forward! {
        self => self.spread;
        fn remove(name: &Name) -> Pending<'_, ()>;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
    }

    /// With a code, a stripe is a row.
    fn limits(&self) -> Limits {
        let limits = self.spread.limits();
        let row = self.spread.code().map(|code| code.strip() * code.data() as u64);
        Limits { stripe: row.or(limits.stripe), ..limits }
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        Volume::rename(&self.spread, from, to)
    }

    fn link(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        Volume::link(&self.spread, from, to)
    }

    fn space(&self) -> Pending<'_, Space> {
        Volume::space(&self.spread)
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Volume::write_whole(&self.spread, name, intent, data, io)
    }
}
