//! The log: appends records in batches, syncs them together, reads blocks back, and removes files that nothing needs.
//!
//! Its files are logs of the pool, so each has as many copies as losses are survived, and one. They go in their order, the
//! oldest first: a record counts until a newer one of the same block or row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use policy::recycle::BLOCK;
use volume::{Error, ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Result, Volume};

use super::index::{Entry, Index};
use super::record::{Batch, Order, Place, Record, Value};
use crate::leaf::ObjectId;
use crate::spread::{Handle, Spread};

/// What the names of the log's files begin with.
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
    file_len: u64,
    index: Mutex<Index>,
    /// Locked after the index.
    files: Mutex<BTreeMap<u64, (Arc<File>, u64)>>,
    pending: Mutex<VecDeque<(Batch, Arc<Outcome>)>>,
    appending: AsyncMutex<Appending>,
    /// The file that is written, or the next one.
    current: AtomicU64,
    written: Mutex<Written>,
    syncing: AsyncMutex<()>,
    synced: AtomicU64,
    /// The bytes of all files.
    bytes: AtomicU64,
    /// A caller gave up while its record was waiting.
    abandoned: AtomicBool,
    /// Changes of rows that need not be repeated any more, with the files that they needed.
    finished: Mutex<Vec<(u64, BTreeSet<u64>)>>,
}

/// What became of a batch: the number of its file.
#[derive(Default)]
struct Outcome(OnceLock<std::result::Result<u64, (ErrorKind, String)>>);

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
    fn get(&self) -> Option<Result<u64>> {
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
            self.log.abandoned.store(true, Ordering::Release);
        }
    }
}

/// A caller that writes records of others, who gave up.
struct Unfinished<'a> {
    log: &'a Log,
    ended: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.log.abandoned.store(true, Ordering::Release);
        }
    }
}

impl Log {
    /// A log without files; those that it begins have higher numbers than `last`.
    pub(super) fn new(spread: Spread, file_len: u64, last: u64) -> Self {
        Self {
            spread,
            file_len,
            index: Mutex::default(),
            files: Mutex::default(),
            pending: Mutex::default(),
            appending: AsyncMutex::default(),
            current: AtomicU64::new(last),
            written: Mutex::default(),
            syncing: AsyncMutex::default(),
            synced: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
            finished: Mutex::default(),
        }
    }

    /// The name of a file.
    pub(super) fn name(number: u64) -> Result<Name> {
        Name::new(&format!("{PREFIX}{number:016x}"))
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

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
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
        let outcome = {
            let mut pending = self.pending.lock();
            if pending.back().is_none_or(|(batch, _)| batch.len() >= BATCH) {
                pending.push_back(<(Batch, Arc<Outcome>)>::default());
            }
            let Some((batch, outcome)) = pending.back_mut() else { unreachable!("one is there") };
            records.into_iter().for_each(|(record, blocks)| batch.push(record, blocks));
            Arc::clone(outcome)
        };
        let waiting = Waiting { log: self, outcome };
        loop {
            if let Some(outcome) = waiting.outcome.get() {
                return outcome;
            }
            let mut appending = self.appending.lock().await;
            if waiting.outcome.0.get().is_none() {
                self.write_next(&mut appending).await;
            }
        }
    }

    /// Writes records whose callers gave up, so that what they change has changed before the next call begins.
    pub(super) async fn write_abandoned(&self) {
        if !self.abandoned.load(Ordering::Acquire) {
            return;
        }
        let mut appending = self.appending.lock().await;
        if self.abandoned.swap(false, Ordering::AcqRel) {
            // This caller may give up, too.
            let mut unfinished = Unfinished { log: self, ended: false };
            while appending.unwritten.is_some() || !self.pending.lock().is_empty() {
                self.write_next(&mut appending).await;
            }
            unfinished.ended = true;
        }
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

    async fn write_batch(&self, appending: &mut Appending) -> Result<u64> {
        let Appending { file, unwritten } = appending;
        let Some((batch, _)) = unwritten else { return Ok(0) };
        if file.as_ref().is_some_and(|current| current.len >= self.file_len) {
            *file = None;
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
            match current.file.object.write_at(current.len, bytes, IO).await {
                Ok(()) => {
                    self.take_note(batch, number, current.len + blocks_at);
                    current.len += len;
                    self.bytes.fetch_add(len, Ordering::Relaxed);
                    if let Some((_, of)) = self.files.lock().get_mut(&number) {
                        *of = current.len;
                    }
                    let mut written = self.written.lock();
                    written.last = order.sequence;
                    let entry = (Arc::clone(&current.file), order.sequence);
                    written.unsynced.insert(number, entry);
                    return Ok(number);
                }
                // What it has of the batch is unknown: nothing may follow in this file.
                Err(e) => {
                    *file = None;
                    if is_new {
                        return Err(e.within("the log of objects in place"));
                    }
                    tracing::warn!("the log of objects in place goes on in another file: {e}");
                }
            }
        }
    }

    async fn begin_file(&self) -> Result<Current> {
        let number = self.current.fetch_add(1, Ordering::AcqRel) + 1;
        let name = Self::name(number)?;
        self.spread.create(&name, &Intent::LOG).await?;
        let object = self.spread.open_handle(&name).await?;
        let file = Arc::new(File { number, object });
        self.index.lock().add_file(number);
        self.files.lock().insert(number, (Arc::clone(&file), 0));
        Ok(Current { file, len: 0 })
    }

    /// The order of the next batch, which may fail.
    fn next_order(&self) -> Order {
        let mut written = self.written.lock();
        written.begun += 1;
        let durable = self.synced.load(Ordering::Acquire);
        Order { sequence: written.begun, previous: written.last, durable }
    }

    /// Takes note of the records of a batch whose blocks begin at `at` of a file.
    fn take_note(&self, batch: &Batch, file: u64, at: u64) {
        let mut index = self.index.lock();
        note(&mut index, &batch.records, file, at, &|_, _| true);
    }

    /// Makes all records durable that were appended before this call.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn sync(&self) -> Result<()> {
        let wanted = self.written.lock().last;
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let _one_at_a_time = self.syncing.lock().await;
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let (upto, files) = {
            let written = self.written.lock();
            (written.last, written.unsynced.values().cloned().collect::<Vec<_>>())
        };
        for (file, last) in files {
            file.object.sync(IO).await?;
            let mut written = self.written.lock();
            if written.unsynced.get(&file.number).is_some_and(|(_, newest)| *newest == last) {
                written.unsynced.remove(&file.number);
            }
        }
        self.synced.fetch_max(upto, Ordering::AcqRel);
        Ok(())
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
    ) -> Result<IoBufMut> {
        let len = checksums.len() * BLOCK as usize;
        let read = file.object.read_at(at, IoBufMut::unread(len), io).await?;
        if are(&read, checksums) {
            return Ok(read);
        }
        let wanted = checksums.to_vec();
        let check = Arc::new(move |bytes: &[u8]| are(bytes, &wanted));
        file.object.read_again(at, IoBufMut::zeroed(len), io, check).await
    }

    /// Reads a block by its place.
    ///
    /// # Errors
    /// As for [`Log::read`]. `Corrupt`: its file is gone.
    pub(super) async fn read_block(&self, place: Place, io: Io) -> Result<IoBuf> {
        let file = self.files.lock().get(&place.file).map(|(file, _)| Arc::clone(file));
        let file = file.ok_or_else(|| {
            let what = format!("{PREFIX}{:016x}: it is missing, and a change needs it", place.file);
            Error::new(ErrorKind::Corrupt, what)
        })?;
        Ok(self.read(&file, place.at, &[place.checksum], io).await?.freeze())
    }

    /// A change of a row need not be repeated after a crash any more.
    pub(super) fn finished(&self, change: u64, files: BTreeSet<u64>) {
        self.finished.lock().push((change, files));
    }

    /// Removes the files that nothing needs.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn trim(&self) -> Result<()> {
        let finished: Vec<_> = self.finished.lock().drain(..).collect();
        if !finished.is_empty() {
            let records = finished.iter().map(|&(change, _)| (Record::Done { change }, Vec::new()));
            let done = match self.append(records).await {
                Ok(_) => self.sync().await,
                Err(e) => Err(e),
            };
            if let Err(e) = done {
                self.finished.lock().extend(finished);
                return Err(e);
            }
            let mut index = self.index.lock();
            finished.iter().for_each(|(_, files)| index.unpin(files));
        }
        loop {
            let current = self.current.load(Ordering::Acquire);
            let unneeded = self.index.lock().unneeded(current);
            let Some(number) = unneeded else { return Ok(()) };
            // What it says may be written over by records that are not durable.
            self.sync().await?;
            self.spread.remove_soon(&Self::name(number)?).await?;
            self.index.lock().remove_file(number);
            self.written.lock().unsynced.remove(&number);
            if let Some((_, len)) = self.files.lock().remove(&number) {
                self.bytes.fetch_sub(len, Ordering::Relaxed);
            }
        }
    }
}

/// Takes note of records whose blocks begin at `at` of a file, as far as `counts` says.
pub(super) fn note(
    index: &mut Index,
    records: &[Record],
    file: u64,
    mut at: u64,
    counts: &dyn Fn(ObjectId, u64) -> bool,
) {
    for record in records {
        match record {
            Record::Blocks { object, block, checksums } => {
                for ((block, &checksum), nth) in (*block..).zip(checksums).zip(0..) {
                    let place = Place { file, at: at + nth * BLOCK, checksum };
                    if counts(*object, block) {
                        index.put(*object, block, Value::Stored(place), file);
                    }
                }
            }
            Record::Zeros { object, block, count } => {
                for block in (*block..).take(*count as usize) {
                    if counts(*object, block) {
                        index.put(*object, block, Value::Zeros, file);
                    }
                }
            }
            Record::Row { .. } | Record::Done { .. } => {}
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
