//! Tables and blob files, read at random by users and sequentially by compactions.
//!
//! RocksDB runs in its buffered mode and asks for exactly the bytes it wants. This module chooses the
//! reads of the volume, because it knows what an operation costs:
//!
//! - a user's read takes the pages it needs; reads of one call that lie close together share an
//!   operation, and all operations run at once;
//! - a sequential reader (a compaction, a verification, a long scan) reads aligned windows of exactly
//!   one operation, so that a table of n windows costs n operations, whatever its block size.
//!   RocksDB's own readahead would begin each read where the last one ended, and waste a part of
//!   most operations.
//!
//! Random reads of users go through the cache, in the ranges that RocksDB asked for. RocksDB verifies
//! each block; it reads a damaged one [`again`](Why::again). If one copy of the table is good, the pool
//! then drops the damaged copies, and a good one answers.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use policy::purpose::{Io, Step};
use pool::cache::CachedObject;
use pool::spread::{Handle, Spread};
use volume::buf::with_scratch;
use volume::task::block_on;
use volume::{Clock, Error, IoBuf, IoBufMut, Object, Result};

use crate::error::Call;
use crate::extent::{self, Extent, WINDOW};
use crate::memory::Tail;
use crate::origin::{self, Activity};
use crate::thread;

/// A user's read of at least this many bytes is part of a scan: RocksDB doubles its readahead while
/// an iterator goes on.
const SCAN_BYTES_MIN: usize = (WINDOW / 2) as usize;

/// Windows that a file remembers. Several readers may be at different places of it: the
/// subcompactions of a compaction, and their reads of the index.
const WINDOWS_MAX: usize = 4;

/// RocksDB's reason for a read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Why {
    pub(crate) activity: Activity,
    /// The longest time that the caller waits.
    pub(crate) timeout: Option<Duration>,
    /// The same range was read before, and was damaged.
    pub(crate) again: bool,
}

impl Why {
    /// The type of call, which decides the answer to an error.
    pub(crate) const fn call(self) -> Call {
        if self.activity.is_background() { Call::BackgroundRead } else { Call::Read }
    }
}

/// One read: its offset, buffer and result.
pub(crate) struct Read<'a> {
    pub(crate) offset: u64,
    pub(crate) into: &'a mut [MaybeUninit<u8>],
    /// The number of bytes read: all of `into`, or up to the end of the file.
    pub(crate) got: Result<usize>,
}

impl<'a> Read<'a> {
    pub(crate) fn new(offset: u64, into: &'a mut [MaybeUninit<u8>]) -> Self {
        Self { offset, into, got: Ok(0) }
    }
}

/// An open table or blob file. Any thread may read it.
pub(crate) struct Readable {
    object: Arc<dyn Object>,
    clock: Clock,
    tail: Weak<Tail>,
    windows: Windows,
    cache: Option<CachedObject>,
    /// The pool and the same object, to find out which of its copies are good.
    copies: Option<(Spread, Arc<Handle>)>,
}

impl Readable {
    /// `tail` is its end, if that is still in memory; `cache` holds its cached blocks.
    pub(crate) fn new(
        object: Arc<dyn Object>,
        clock: Clock,
        tail: Weak<Tail>,
        cache: Option<CachedObject>,
    ) -> Self {
        Self { object, clock, tail, windows: Windows::default(), cache, copies: None }
    }

    /// The same with an object that may have several copies.
    pub(crate) fn with_copies(mut self, pool: &Spread, object: Arc<Handle>) -> Self {
        self.copies = Some((pool.clone(), object));
        self
    }

    /// Verifies all copies after a damaged read; the next one passes over the damaged ones if one is good.
    fn distrust(&self, io: Io) {
        let Some((pool, object)) = &self.copies else { return };
        if block_on(pool.distrust(object, io)) > 0 {
            self.windows.forget();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.object.len()
    }

    /// Fills `into` from `offset` on; returns the number of bytes read.
    pub(crate) fn read(
        &self,
        offset: u64,
        into: &mut [MaybeUninit<u8>],
        why: Why,
    ) -> Result<usize> {
        self.read_one(offset, into, why, self.io(why))
    }

    /// Does all `reads`, and stores the result in each.
    pub(crate) fn read_all(&self, reads: &mut [Read<'_>], why: Why) {
        let io = self.io(why);
        if why.again {
            self.distrust(io);
        }
        if is_sequential(why.activity, 0) {
            for read in reads {
                read.got = self.read_one(read.offset, read.into, why, io);
            }
            return;
        }
        let missed: Vec<_> =
            reads.iter_mut().filter_map(|read| self.read_cached(read, why)).collect();
        if why.activity == Activity::User {
            thread::count_table_reads(missed.len());
        }
        self.read_many(missed, self.cache_for(why), io);
    }

    /// Answers a read from the cache, or returns it.
    fn read_cached<'r, 'a>(&self, read: &'r mut Read<'a>, why: Why) -> Option<&'r mut Read<'a>> {
        let range = self.clamp(read.offset, read.into.len());
        if !self.fill_from_cache(&range, read.into, why) {
            return Some(read);
        }
        read.got = Ok(length(&range));
        None
    }

    /// The cached blocks, for reads of users only: RocksDB's own work reads each block once.
    fn cache_for(&self, why: Why) -> Option<&CachedObject> {
        self.cache.as_ref().filter(|_| why.activity == Activity::User)
    }

    /// Fills `into` from the cache if all of `range` is there.
    fn fill_from_cache(&self, range: &Range<u64>, into: &mut [MaybeUninit<u8>], why: Why) -> bool {
        let Some(cache) = self.cache_for(why) else { return false };
        if why.again {
            cache.distrust(range.start, length(range));
            return false;
        }
        let mut done = 0;
        cache.get(range.start, length(range), |bytes| done += copy(bytes, &mut into[done..]))
    }

    fn io(&self, why: Why) -> Io {
        let origin = origin::of_read(why.activity, thread::job());
        let mut io = Io::new(origin, Step::Data);
        if why.activity == Activity::User {
            io.deadline = why.timeout.map(|timeout| self.clock.now() + timeout);
        }
        io
    }

    fn read_one(
        &self,
        offset: u64,
        into: &mut [MaybeUninit<u8>],
        why: Why,
        io: Io,
    ) -> Result<usize> {
        let range = self.clamp(offset, into.len());
        if range.is_empty() {
            return Ok(0);
        }
        if why.again {
            self.distrust(io);
        }
        if let Some(tail) = self.tail.upgrade()
            && let Some(bytes) = tail.get(range.start, into.len().min(length(&range)))
        {
            if let Some(cache) = self.cache_for(why) {
                cache.count_tail_hit();
            }
            return Ok(copy(bytes, into));
        }
        if is_sequential(why.activity, into.len()) {
            return self.read_windows(range, into, why, io);
        }
        if self.fill_from_cache(&range, into, why) {
            return Ok(length(&range));
        }
        if why.activity == Activity::User {
            thread::count_table_reads(1);
        }
        let pages = extent::whole_pages(&range);
        with_scratch(length(&pages), |bytes| {
            let got = self.object.blocking_read_at(pages.start, bytes, io)?;
            self.check(&pages, got)?;
            let bytes = &bytes[length(&(pages.start..range.start))..][..length(&range)];
            if let Some(cache) = self.cache_for(why) {
                cache.insert(range.start, bytes);
            }
            Ok(copy(bytes, into))
        })
    }

    /// Reads at random, all at once.
    fn read_many(&self, mut reads: Vec<&mut Read<'_>>, cache: Option<&CachedObject>, io: Io) {
        let mut order: Vec<usize> = (0..reads.len()).collect();
        order.sort_unstable_by_key(|&i| reads[i].offset);
        let ranges: Vec<_> =
            order.iter().map(|&i| self.clamp(reads[i].offset, reads[i].into.len())).collect();
        let extents = extent::plan(&ranges);
        let under_way = extents.iter().map(|extent| self.read_pages(extent.bytes.clone(), io));
        let done = block_on(futures_util::future::join_all(under_way));
        for (extent, bytes) in extents.iter().zip(done) {
            match bytes {
                Ok(bytes) => {
                    for position in extent.reads.clone() {
                        let from = length(&(extent.bytes.start..ranges[position].start));
                        let bytes = &bytes[from..][..length(&ranges[position])];
                        if let Some(cache) = cache {
                            cache.insert(ranges[position].start, bytes);
                        }
                        let read = &mut *reads[order[position]];
                        read.got = Ok(copy(bytes, read.into));
                    }
                }
                Err(error) => fail(&mut reads, &order, extent, &error),
            }
        }
    }

    fn read_windows(
        &self,
        range: Range<u64>,
        into: &mut [MaybeUninit<u8>],
        why: Why,
        io: Io,
    ) -> Result<usize> {
        let mut done = 0;
        for (window, bytes) in self.windows_over(&range, why, io)? {
            let start = window * WINDOW;
            let part = range.start.max(start)..range.end.min(start + bytes.len() as u64);
            let bytes = &bytes[length(&(start..part.start))..length(&(start..part.end))];
            done += copy(bytes, &mut into[done..]);
        }
        self.windows.leave(&range, self.len());
        Ok(done)
    }

    /// The windows that cover `range`, in order. Missing ones are read concurrently.
    fn windows_over(&self, range: &Range<u64>, why: Why, io: Io) -> Result<Vec<(u64, IoBuf)>> {
        let wanted = range.start / WINDOW..range.end.div_ceil(WINDOW);
        let mut here = self.windows.find(wanted.clone());
        // A prefetched window costs no operation. A verification must read the volume.
        if let Some(cache) = &self.cache
            && why.activity != Activity::Verify
            && !why.again
        {
            for window in wanted.clone() {
                if here.iter().all(|(found, _)| *found != window) {
                    here.extend(cache.block(window).map(|bytes| (window, bytes)));
                }
            }
            here.sort_unstable_by_key(|&(window, _)| window);
        }
        if here.len() as u64 == wanted.end - wanted.start {
            return Ok(here);
        }
        let missing = wanted.filter(|index| here.iter().all(|(window, _)| window != index));
        let reads = missing.map(async |index| {
            let start = index * WINDOW;
            let pages = extent::whole_pages(&self.clamp(start, WINDOW as usize));
            Ok::<_, Error>((index, self.read_pages(pages, io).await?.freeze()))
        });
        let read = block_on(try_join_all(reads))?;
        self.windows.remember(&read);
        here.extend(read);
        here.sort_unstable_by_key(|&(window, _)| window);
        Ok(here)
    }

    /// Whole pages of the file.
    async fn read_pages(&self, pages: Range<u64>, io: Io) -> Result<IoBufMut> {
        let bytes = self.object.read_at(pages.start, IoBufMut::zeroed(length(&pages)), io).await?;
        self.check(&pages, bytes.len())?;
        Ok(bytes)
    }

    /// An open table does not change its length, so a short read within it is damage.
    fn check(&self, pages: &Range<u64>, got: usize) -> Result<()> {
        let expected = length(&(pages.start..pages.end.min(self.len())));
        if got < expected {
            let message = format!(
                "{got} bytes at {} where {expected} were written: the file is cut short",
                pages.start
            );
            return Err(Error::new(volume::ErrorKind::Corrupt, message));
        }
        Ok(())
    }

    /// The part of `len` bytes at `offset` that the file has.
    fn clamp(&self, offset: u64, len: usize) -> Range<u64> {
        let end = self.len();
        offset.min(end)..offset.saturating_add(len as u64).min(end)
    }
}

/// Whether a read is part of a sequential pass over the file.
fn is_sequential(activity: Activity, len: usize) -> bool {
    activity.is_background() || activity == Activity::Verify || len >= SCAN_BYTES_MIN
}

/// The length of a range that fits memory.
fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).expect("what is read at once fits an address")
}

/// Copies `bytes` to the start of `into`; returns their number.
fn copy(bytes: &[u8], into: &mut [MaybeUninit<u8>]) -> usize {
    into[..bytes.len()].write_copy_of_slice(bytes);
    bytes.len()
}

fn fail(reads: &mut [&mut Read<'_>], order: &[usize], extent: &Extent, error: &Error) {
    for position in extent.reads.clone() {
        reads[order[position]].got = Err(Error::new(error.kind(), error.to_string()));
    }
}

/// The last few windows that were read, oldest first.
#[derive(Default)]
struct Windows(Mutex<VecDeque<(u64, IoBuf)>>);

impl Windows {
    fn find(&self, wanted: Range<u64>) -> Vec<(u64, IoBuf)> {
        let windows = self.0.lock();
        let mut found: Vec<_> =
            windows.iter().filter(|(window, _)| wanted.contains(window)).cloned().collect();
        found.sort_unstable_by_key(|&(window, _)| window);
        // Two readers may have missed the same window at once.
        found.dedup_by_key(|(window, _)| *window);
        found
    }

    fn remember(&self, read: &[(u64, IoBuf)]) {
        let mut windows = self.0.lock();
        windows.extend(read.iter().cloned());
        let surplus = windows.len().saturating_sub(WINDOWS_MAX);
        windows.drain(..surplus);
    }

    /// Forgets all windows.
    fn forget(&self) {
        self.0.lock().clear();
    }

    /// Forgets the windows that a sequential reader has left behind after `range`. The windows of
    /// other readers stay.
    fn leave(&self, range: &Range<u64>, file_len: u64) {
        let end =
            if range.end == file_len { range.end.next_multiple_of(WINDOW) } else { range.end };
        let left = range.start / WINDOW..end / WINDOW;
        self.0.lock().retain(|(window, _)| !left.contains(window));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use volume::mem::Mem;
    use volume::{Intent, Name, Volume};

    use super::*;
    use crate::ffi;
    use crate::memory::Tails;

    /// A file of `len` bytes that differ from their neighbours, and those bytes.
    fn file(len: usize, tail: Weak<Tail>) -> (Readable, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|i| (i / 251 + i) as u8).collect();
        let mem = Mem::new("v");
        let io = Io::new(policy::purpose::Origin::Flush, Step::Data);
        let object = block_on(async {
            let object = mem.create(&Name::new("a").unwrap(), &Intent::DATA).await.unwrap();
            object.write_at(0, IoBuf::from(&bytes[..]), io).await.unwrap();
            object
        });
        (Readable::new(object, Clock::real(), tail, None), bytes)
    }

    /// Reads `reads` in one call, and compares every byte.
    fn compare(file: &Readable, bytes: &[u8], reads: &[(u64, usize)], activity: Activity) {
        let mut buffers: Vec<_> = reads.iter().map(|&(_, len)| vec![0xee; len]).collect();
        let with_buffers = reads.iter().zip(&mut buffers);
        let mut asked: Vec<_> = with_buffers
            .map(|(&(offset, _), into)| Read::new(offset, ffi::buffer_over(into)))
            .collect();
        let why = Why { activity, timeout: None, again: false };
        let got: Vec<_> = match &mut asked[..] {
            [read] => vec![file.read(read.offset, read.into, why).unwrap()],
            _ => {
                file.read_all(&mut asked, why);
                asked.into_iter().map(|read| read.got.unwrap()).collect()
            }
        };
        for ((&(offset, len), into), got) in reads.iter().zip(buffers).zip(got) {
            let start = (offset as usize).min(bytes.len());
            let expected = &bytes[start..(start + len).min(bytes.len())];
            assert!(into[..got] == *expected, "{len} bytes at {offset} for {activity:?}");
        }
    }

    fn any_activity() -> impl Strategy<Value = Activity> {
        prop::sample::select(vec![Activity::User, Activity::Compaction, Activity::Verify])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn every_read_gives_the_bytes_of_the_file(
            len in 0usize..1_500_000,
            calls in prop::collection::vec(
                (
                    prop::collection::vec((0u64..1_600_000, 0usize..400_000), 1..5),
                    any_activity(),
                ),
                1..8,
            ),
        ) {
            let (file, bytes) = file(len, Weak::new());
            for (reads, activity) in calls {
                compare(&file, &bytes, &reads, activity);
            }
        }
    }

    #[test]
    fn the_end_of_a_fresh_table_is_read_from_memory() {
        let tails = Tails::new(1000);
        let name = Name::new("a").unwrap();
        tails.keep(Tail::new(name.clone(), 9900, &[7; 100]));
        let (file, mut bytes) = file(10_000, tails.find(&name));
        bytes[9900..].fill(7);
        for activity in [Activity::Flush, Activity::User] {
            compare(&file, &bytes, &[(9950, 50)], activity);
            compare(&file, &bytes, &[(9900, 500)], activity);
        }
    }
}
