//! The log: appends records in batches, syncs them together, reads blocks back, and removes files that nothing needs.
//!
//! Its files are logs of the pool, so each has as many copies as losses are survived, and one. They go in their order, the
//! oldest first: a record counts until a newer one of the same block or row.
//!
//! A pool has two: one of blocks, and one of rows that change in place, whose records are needed for a moment only.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use policy::recycle::BLOCK;
use policy::recycle::room::Fill;
use volume::{Error, ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Result, Volume};

use super::index::{Entry, Index, Live};
use super::kept::Kept;
use super::record::{Batch, Order, Record};
use super::turn::Turns;
use super::value::{Place, Value};
use crate::leaf::ObjectId;
use crate::spread::{Handle, Spread};

/// What the names of the files of both logs begin with.
pub(super) const PREFIX: &str = "pool.log/";

/// A user waits for it.
const IO: Io = Io::new(Origin::UserWrite, Step::Log);
/// From this many bytes of blocks on, a batch takes no further record.
const BATCH: usize = 4 << 20;

/// A file of the log.
pub(super) struct File {
    pub(super) number: u64,
    pub(super) object: Handle,
}

/// See the [module](self).
pub(super) struct Log {
    spread: Spread,
    /// What the names of its files begin with, behind [`PREFIX`].
    name: &'static str,
    file_len: u64,
    index: Mutex<Index>,
    /// Locked after the index.
    files: Mutex<BTreeMap<u64, (Arc<File>, u64)>>,
    pending: Mutex<VecDeque<(Batch, Arc<Outcome>)>>,
    appending: AsyncMutex<Appending>,
    /// The file that is written, or the next one.
    current: AtomicU64,
    written: Mutex<Written>,
    syncing: Turns,
    synced: AtomicU64,
    /// Bytes appended so far, and syncs.
    appended: AtomicU64,
    syncs: AtomicU64,
    /// The bytes of all files.
    bytes: AtomicU64,
    /// The number of callers that gave up while their records were waiting.
    abandoned: AtomicU64,
    /// The number of those whose records were written since, or failed.
    finished: AtomicU64,
    kept: Kept,
}

/// What became of a batch: the number of its file, and its own.
#[derive(Default)]
struct Outcome(OnceLock<std::result::Result<(u64, u64), (ErrorKind, String)>>);

#[derive(Default)]
struct Appending {
    file: Option<Current>,
    /// A batch that a caller began to write, and may have given up.
    unwritten: Option<(Batch, Arc<Outcome>)>,
}

struct Current {
    file: Arc<File>,
    len: u64,
}

/// The last batches, and the files with some that are not synced.
#[derive(Default)]
struct Written {
    /// The last one that was begun.
    begun: u64,
    /// The last one that counts.
    last: u64,
    unsynced: BTreeMap<u64, (Arc<File>, u64)>,
}

impl Outcome {
    fn get(&self) -> Option<Result<(u64, u64)>> {
        let outcome = self.0.get()?;
        Some(outcome.clone().map_err(|(kind, what)| Error::new(kind, what)))
    }
}

/// A caller that waits for its record.
struct Waiting<'a> {
    log: &'a Log,
    outcome: Arc<Outcome>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.outcome.0.get().is_none() {
            self.log.abandoned.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Log {
    /// A log without files; those that it begins have higher numbers than `last`.
    pub(super) fn new(
        spread: Spread,
        name: &'static str,
        file_len: u64,
        memory: u64,
        last: u64,
    ) -> Self {
        Self {
            spread,
            name,
            file_len,
            index: Mutex::default(),
            files: Mutex::default(),
            pending: Mutex::default(),
            appending: AsyncMutex::default(),
            current: AtomicU64::new(last),
            written: Mutex::default(),
            syncing: Turns::default(),
            synced: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            kept: Kept::new(memory),
        }
    }

    /// The name of a file.
    fn file_name(&self, number: u64) -> Result<Name> {
        Name::new(&format!("{PREFIX}{}/{number:016x}", self.name))
    }

    /// Takes over a file that an earlier process wrote.
    pub(super) fn adopt(&self, file: Arc<File>, len: u64) {
        self.index.lock().add_file(file.number);
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.files.lock().insert(file.number, (file, len));
    }

    /// Goes on after the batch `last`; batches up to `seen` were begun, and those behind `last` do not count.
    pub(super) fn go_on(&self, last: u64, seen: u64) {
        let mut written = self.written.lock();
        (written.last, written.begun) = (last, seen.max(last));
        self.synced.store(last, Ordering::Release);
    }

    /// What is newer than its place.
    pub(super) fn with_index<T>(&self, look: impl FnOnce(&mut Index) -> T) -> T {
        look(&mut self.index.lock())
    }

    /// The bytes of the files that have live blocks, and of those after them; and the live blocks. Older files go as soon as no change
    /// of a row needs them.
    pub(super) fn fill(&self) -> Fill {
        let index = self.index.lock();
        let files = self.files.lock();
        let first = index.first_live().unwrap_or(u64::MAX);
        let bytes = files.range(first..).map(|(_, (_, len))| len).sum();
        Fill { bytes, live: index.blocks() }
    }

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes appended so far, and syncs of a file.
    pub(super) fn appended(&self) -> (u64, u64) {
        (self.appended.load(Ordering::Relaxed), self.syncs.load(Ordering::Relaxed))
    }

    /// The newest values of a range of blocks, with the files that hold them.
    pub(super) fn look_up(
        &self,
        object: ObjectId,
        blocks: Range<u64>,
    ) -> Vec<(u64, Entry, Option<Arc<File>>)> {
        let index = self.index.lock();
        let entries = index.get(object, blocks);
        if entries.is_empty() {
            return Vec::new();
        }
        let files = self.files.lock();
        let file = |value| match value {
            Value::Stored(place) => files.get(&place.file).map(|(file, _)| Arc::clone(file)),
            Value::Zeros => None,
        };
        entries.into_iter().map(|(block, entry)| (block, entry, file(entry.value))).collect()
    }

    /// Appends records with their blocks, and returns the file that has them. A sync makes them durable.
    ///
    /// # Errors
    /// Those of the pool: the records may be there after a crash, or not.
    pub(super) async fn append(
        &self,
        records: impl IntoIterator<Item = (Record, Vec<IoBuf>)>,
    ) -> Result<u64> {
        let waiting = self.enqueue(records);
        Ok(self.write_until(&waiting.outcome).await?.0)
    }

    /// [`Log::append`] and [`Log::sync`]. Records that come while an earlier sync is under way wait for its end, and are
    /// written and synced together.
    ///
    /// # Errors
    /// Those of the pool: the records may be there after a crash, or not.
    pub(super) async fn append_durably(
        &self,
        records: impl IntoIterator<Item = (Record, Vec<IoBuf>)>,
    ) -> Result<u64> {
        let waiting = self.enqueue(records);
        let is_durable = || match waiting.outcome.get()? {
            Ok((file, batch)) => self.is_durable(batch).then_some(Ok(file)),
            Err(e) => Some(Err(e)),
        };
        loop {
            match self.syncing.wait(is_durable).await {
                Ok(outcome) => return outcome,
                Err(turn) => {
                    turn.let_others_come().await;
                    self.write_until(&waiting.outcome).await?;
                    self.sync_files().await?;
                }
            }
        }
    }

    /// Appends values again that the log has, each with its bytes, so that the files that have them can go. Those of which a newer
    /// value comes before are left out.
    ///
    /// # Errors
    /// Those of the pool: the values are where they were.
    pub(super) async fn move_blocks(&self, moves: Vec<(Live, Option<IoBuf>)>) -> Result<()> {
        let waiting = {
            let mut pending = self.pending.lock();
            let outcome = Arc::<Outcome>::default();
            pending.push_back((Batch::of_moves(moves), Arc::clone(&outcome)));
            Waiting { log: self, outcome }
        };
        self.write_until(&waiting.outcome).await.map(drop)
    }

    /// Whether a batch, and all before it, are durable.
    fn is_durable(&self, batch: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= batch
    }

    fn enqueue(&self, records: impl IntoIterator<Item = (Record, Vec<IoBuf>)>) -> Waiting<'_> {
        let mut pending = self.pending.lock();
        if pending.back().is_none_or(|(batch, _)| !batch.takes_more(BATCH)) {
            pending.push_back(<(Batch, Arc<Outcome>)>::default());
        }
        let Some((batch, outcome)) = pending.back_mut() else { unreachable!("one is there") };
        records.into_iter().for_each(|(record, blocks)| batch.push(record, blocks));
        Waiting { log: self, outcome: Arc::clone(outcome) }
    }

    /// Writes batches until this one is written.
    async fn write_until(&self, outcome: &Outcome) -> Result<(u64, u64)> {
        loop {
            if let Some(outcome) = outcome.get() {
                return outcome;
            }
            let mut appending = self.appending.lock().await;
            if outcome.0.get().is_none() {
                self.write_next(&mut appending).await;
            }
        }
    }

    /// Writes records whose callers gave up, so that what they change has changed before the next call begins. If another
    /// call does that already, waits for it: a reader that did not would get older bytes than the next one.
    pub(super) async fn write_abandoned(&self) {
        if !self.has_abandoned() {
            return;
        }
        let mut appending = self.appending.lock().await;
        if !self.has_abandoned() {
            return;
        }
        let abandoned = self.abandoned.load(Ordering::Acquire);
        while appending.unwritten.is_some() || !self.pending.lock().is_empty() {
            self.write_next(&mut appending).await;
        }
        // Only now: this caller may give up, too.
        self.finished.store(abandoned, Ordering::Release);
    }

    fn has_abandoned(&self) -> bool {
        self.finished.load(Ordering::Acquire) != self.abandoned.load(Ordering::Acquire)
    }

    /// Writes the next batch, if there is one.
    async fn write_next(&self, appending: &mut Appending) {
        if appending.unwritten.is_none() {
            appending.unwritten = self.pending.lock().pop_front();
        }
        let written = self.write_batch(appending).await;
        let Some((_, outcome)) = appending.unwritten.take() else { return };
        // Only this call ends it.
        let _ = outcome.0.set(written.map_err(|e| (e.kind(), e.to_string())));
    }

    async fn write_batch(&self, appending: &mut Appending) -> Result<(u64, u64)> {
        let Appending { file, unwritten } = appending;
        let Some((batch, _)) = unwritten else { return Ok((0, 0)) };
        if !batch.moves.is_empty() {
            // What comes later is written later.
            let index = self.index.lock();
            batch.keep_moves(|live| index.is_newest(live));
            if batch.moves.is_empty() {
                return Ok((0, 0));
            }
        }
        loop {
            let is_new = file.is_none();
            let current = match file {
                Some(current) => current,
                None => file.insert(self.begin_file().await?),
            };
            let number = current.file.number;
            let order = self.next_order();
            let (bytes, blocks_at) = batch.encode(number, order);
            let len = bytes.len() as u64;
            match current.file.object.write_at(current.len, bytes.clone(), IO).await {
                Ok(()) => {
                    self.kept.put(number, current.len, bytes);
                    let of = (number, order.sequence);
                    self.take_note(batch, of, current.len + blocks_at);
                    current.len += len;
                    self.bytes.fetch_add(len, Ordering::Relaxed);
                    self.appended.fetch_add(len, Ordering::Relaxed);
                    if let Some((_, of)) = self.files.lock().get_mut(&number) {
                        *of = current.len;
                    }
                    let mut written = self.written.lock();
                    written.last = order.sequence;
                    let entry = (Arc::clone(&current.file), order.sequence);
                    written.unsynced.insert(number, entry);
                    if current.len >= self.file_len {
                        *file = None;
                    }
                    return Ok((number, order.sequence));
                }
                // What it has of the batch is unknown: nothing may follow in this file.
                Err(e) => {
                    *file = None;
                    if is_new {
                        self.give_up_file(number).await;
                        return Err(e.within("the log of objects in place"));
                    }
                    tracing::warn!("the log of objects in place goes on in another file: {e}");
                }
            }
        }
    }

    async fn begin_file(&self) -> Result<Current> {
        let number = self.current.fetch_add(1, Ordering::AcqRel) + 1;
        let name = self.file_name(number)?;
        self.spread.create(&name, &Intent::LOG).await?;
        let object = self.spread.open_handle(&name).await?;
        let file = Arc::new(File { number, object });
        self.index.lock().add_file(number);
        self.files.lock().insert(number, (Arc::clone(&file), 0));
        Ok(Current { file, len: 0 })
    }

    /// Removes a new file without a batch that counts: a full pool would get another with each write that it refuses. If that
    /// fails, it goes with [`Log::trim`], before all later files. Else an opening that finds it without them would take its
    /// batch for one that counts.
    async fn give_up_file(&self, number: u64) {
        if let Err(e) = self.remove(number).await {
            tracing::debug!("{PREFIX}{}/{number:016x} is removed later: {e}", self.name);
        }
    }

    /// Removes a file that nothing needs.
    ///
    /// # Errors
    /// Those of the pool: the file stays.
    async fn remove(&self, number: u64) -> Result<()> {
        match self.spread.remove_soon(&self.file_name(number)?).await {
            // An earlier attempt was given up after it had removed the name.
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.index.lock().remove_file(number);
        self.kept.forget(number);
        self.written.lock().unsynced.remove(&number);
        if let Some((_, len)) = self.files.lock().remove(&number) {
            self.bytes.fetch_sub(len, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The order of the next batch, which may fail.
    fn next_order(&self) -> Order {
        let mut written = self.written.lock();
        written.begun += 1;
        let durable = self.synced.load(Ordering::Acquire);
        Order { sequence: written.begun, previous: written.last, durable }
    }

    /// Takes note of the records of a batch of a file, whose blocks begin at `at`.
    fn take_note(&self, batch: &Batch, of: (u64, u64), at: u64) {
        let mut index = self.index.lock();
        if batch.moves.is_empty() {
            return note(&mut index, &batch.records, of, at, &|_, _| true);
        }
        let mut at = at;
        for &(live, _) in &batch.moves {
            let value = match live.entry.value {
                Value::Stored(place) => {
                    let moved = Place { file: of.0, at, checksum: place.checksum };
                    at += BLOCK;
                    Value::Stored(moved)
                }
                Value::Zeros => Value::Zeros,
            };
            index.moved(live, value, of);
        }
    }

    /// Makes all records durable that were appended before this call.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn sync(&self) -> Result<()> {
        let wanted = self.written.lock().last;
        self.sync_batch(wanted).await
    }

    /// The same up to a batch.
    pub(super) async fn sync_batch(&self, wanted: u64) -> Result<()> {
        let is_durable = || self.is_durable(wanted).then_some(());
        while let Err(_turn) = self.syncing.wait(is_durable).await {
            self.sync_files().await?;
        }
        Ok(())
    }

    /// Syncs all that was written before. One caller at a time.
    async fn sync_files(&self) -> Result<()> {
        let (upto, files) = {
            let written = self.written.lock();
            (written.last, written.unsynced.values().cloned().collect::<Vec<_>>())
        };
        for (file, last) in files {
            file.object.sync(IO).await?;
            self.syncs.fetch_add(1, Ordering::Relaxed);
            let mut written = self.written.lock();
            if written.unsynced.get(&file.number).is_some_and(|(_, newest)| *newest == last) {
                written.unsynced.remove(&file.number);
            }
        }
        self.synced.fetch_max(upto, Ordering::AcqRel);
        Ok(())
    }

    /// The file of a number.
    pub(super) fn file(&self, number: u64) -> Option<Arc<File>> {
        self.files.lock().get(&number).map(|(file, _)| Arc::clone(file))
    }

    /// The bytes of a file.
    pub(super) fn len_of(&self, number: u64) -> u64 {
        self.files.lock().get(&number).map_or(0, |(_, len)| *len)
    }

    /// Whether it has this file.
    pub(super) fn has(&self, file: u64) -> bool {
        self.files.lock().contains_key(&file)
    }

    /// Reads blocks that follow each other in a file.
    ///
    /// # Errors
    /// `Corrupt`: no copy has them. Else as for a read.
    pub(super) async fn read(
        &self,
        file: &File,
        at: u64,
        checksums: &[u32],
        io: Io,
    ) -> Result<IoBuf> {
        let len = checksums.len() * BLOCK as usize;
        if let Some(kept) = self.kept.get(file.number, at..at + len as u64)
            && are(&kept, checksums)
        {
            return Ok(kept);
        }
        let read = file.object.read_at(at, IoBufMut::unread(len), io).await?;
        if are(&read, checksums) {
            return Ok(read.freeze());
        }
        let wanted = checksums.to_vec();
        let check = Arc::new(move |bytes: &[u8]| are(bytes, &wanted));
        let read = file.object.read_again(at, IoBufMut::zeroed(len), io, check).await;
        Ok(read?.freeze())
    }

    /// Whether a block is in memory.
    pub(super) fn is_in_memory(&self, place: Place) -> bool {
        self.kept.get(place.file, place.at..place.at + BLOCK).is_some()
    }

    /// Reads a block by its place.
    ///
    /// # Errors
    /// As for [`Log::read`]. `Corrupt`: its file is gone.
    pub(super) async fn read_block(&self, place: Place, io: Io) -> Result<IoBuf> {
        let file = self.file(place.file).ok_or_else(|| {
            let what = format!(
                "{PREFIX}{}/{:016x}: it is missing, and a change needs it",
                self.name, place.file
            );
            Error::new(ErrorKind::Corrupt, what)
        })?;
        self.read(&file, place.at, &[place.checksum], io).await
    }

    /// The file that is written.
    pub(super) async fn current(&self) -> Option<u64> {
        self.appending.lock().await.file.as_ref().map(|current| current.file.number)
    }

    /// The oldest file, if nothing needs it.
    async fn unneeded(&self) -> Option<u64> {
        // Else a file that begins meanwhile would count as unneeded.
        let appending = self.appending.lock().await;
        let current = appending.file.as_ref().map(|current| current.file.number);
        self.index.lock().unneeded(current)
    }

    /// Goes on in another file, so that this one can be removed.
    pub(super) async fn end_file(&self) {
        self.appending.lock().await.file = None;
    }

    /// Removes the files that nothing needs, the oldest first; false if there is none.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn trim(&self) -> Result<bool> {
        let mut removed = false;
        loop {
            let Some(number) = self.unneeded().await else { return Ok(removed) };
            // What it says may be written over by records that are not durable.
            self.sync().await?;
            self.remove(number).await?;
            removed = true;
        }
    }
}

/// Takes note of the records of a batch of a file, whose blocks begin at `at`, as far as `counts` says.
pub(super) fn note(
    index: &mut Index,
    records: &[Record],
    (file, batch): (u64, u64),
    mut at: u64,
    counts: &dyn Fn(ObjectId, u64) -> bool,
) {
    for record in records {
        match record {
            Record::Blocks { object, block, checksums } => {
                for ((block, &checksum), nth) in (*block..).zip(checksums).zip(0..) {
                    let place = Place { file, at: at + nth * BLOCK, checksum };
                    if counts(*object, block) {
                        index.put((*object, block), Value::Stored(place), (file, batch));
                    }
                }
            }
            Record::Zeros { object, block, count } => {
                for block in (*block..).take(*count as usize) {
                    if counts(*object, block) {
                        index.put((*object, block), Value::Zeros, (file, batch));
                    }
                }
            }
            Record::Row { change, .. } => index.begin_change(*change, file),
        }
        at += record.blocks() * BLOCK;
    }
}

/// Whether whole blocks have these checksums.
pub(super) fn are(bytes: &[u8], checksums: &[u32]) -> bool {
    let blocks = bytes.chunks_exact(BLOCK as usize);
    bytes.len() == checksums.len() * BLOCK as usize
        && blocks.zip(checksums).all(|(block, &checksum)| crc32c::crc32c(block) == checksum)
}
