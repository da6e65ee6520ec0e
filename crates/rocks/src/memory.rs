//! Bounded memory: buffers of tables under construction, and the ends of fresh tables.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use volume::{IoBufMut, Name};

/// Buffers that are kept for the next tables: two tables are mostly built at once.
const SPARES_MAX: usize = 2;

/// A budget of bytes that several threads share. No thread waits: a table that gets no share is streamed.
///
/// The buffers of the last few tables are kept, with their shares: fresh memory of the system costs more than
/// filling it, above all in a virtual machine.
#[derive(Debug)]
pub(crate) struct Allowance {
    free: AtomicU64,
    spares: Mutex<Vec<Spare>>,
}

/// An unused buffer, and its share of the allowance.
#[derive(Debug)]
struct Spare {
    buffer: IoBufMut,
    bytes: u64,
}

impl Allowance {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { free: AtomicU64::new(bytes), spares: Mutex::default() })
    }

    /// An empty buffer with room for `capacity` bytes, and its share: that of a kept buffer, or empty.
    pub(crate) fn buffer(self: &Arc<Self>, capacity: usize) -> (IoBufMut, Share) {
        let mut spares = self.spares.lock();
        let fitting = spares.iter().position(|spare| spare.buffer.capacity() == capacity);
        let spare = fitting.map(|at| spares.swap_remove(at));
        drop(spares);
        let Spare { buffer, bytes } =
            spare.unwrap_or_else(|| Spare { buffer: IoBufMut::with_capacity(capacity), bytes: 0 });
        (buffer, Share { of: Arc::clone(self), bytes })
    }

    fn take(&self, bytes: u64) -> bool {
        let less = |free: u64| free.checked_sub(bytes);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }

    fn drop_spares(&self) {
        let spares = std::mem::take(&mut *self.spares.lock());
        self.give(spares.iter().map(|spare| spare.bytes).sum());
    }
}

/// Bytes of an [`Allowance`], held until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Allowance>,
    bytes: u64,
}

impl Share {
    /// The bytes it holds.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `more` bytes; false, and none taken, if fewer are left.
    pub(crate) fn grow(&mut self, more: u64) -> bool {
        let taken = self.of.take(more) || {
            self.of.drop_spares();
            self.of.take(more)
        };
        self.bytes += if taken { more } else { 0 };
        taken
    }

    /// Keeps the buffer that this share is for.
    pub(crate) fn keep(mut self, buffer: IoBufMut) {
        let mut spares = self.of.spares.lock();
        if spares.len() < SPARES_MAX {
            spares.push(Spare { buffer, bytes: std::mem::take(&mut self.bytes) });
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.give(self.bytes);
    }
}

/// The end of a table that was just written: index, filter, footer.
#[derive(Debug)]
pub(crate) struct Tail {
    name: Name,
    start: u64,
    bytes: Box<[u8]>,
}

impl Tail {
    /// Copies `bytes`, which begin at `start` of the table: a slice would keep the whole table in memory.
    pub(crate) fn new(name: Name, start: u64, bytes: &[u8]) -> Self {
        Self { name, start, bytes: bytes.into() }
    }

    /// The bytes at `offset`, if all of them are here.
    pub(crate) fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

/// The ends of the newest tables, as many as fit. RocksDB opens a table as soon as it has written it.
#[derive(Debug)]
pub(crate) struct Tails {
    bytes_max: u64,
    kept: Mutex<VecDeque<Arc<Tail>>>,
}

impl Tails {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// Keeps `tail`, and drops the oldest ones to make room.
    pub(crate) fn keep(&self, tail: Tail) {
        let mut kept = self.kept.lock();
        kept.push_back(Arc::new(tail));
        let mut bytes: u64 = kept.iter().map(|tail| tail.bytes.len() as u64).sum();
        while bytes > self.bytes_max {
            let oldest = kept.pop_front().map_or(0, |tail| tail.bytes.len() as u64);
            bytes -= oldest;
        }
    }

    /// The end of this table, if it is kept. It may be dropped at any time.
    pub(crate) fn find(&self, name: &Name) -> Weak<Tail> {
        let kept = self.kept.lock();
        kept.iter().rfind(|tail| tail.name == *name).map_or_else(Weak::new, Arc::downgrade)
    }

    /// Forgets a name: another file may have it next.
    pub(crate) fn forget(&self, name: &Name) {
        self.kept.lock().retain(|tail| tail.name != *name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(name: &str, start: u64, bytes: &[u8]) -> Tail {
        Tail::new(Name::new(name).unwrap(), start, bytes)
    }

    fn found(tails: &Tails, name: &str) -> bool {
        tails.find(&Name::new(name).unwrap()).upgrade().is_some()
    }

    #[test]
    fn an_allowance_is_never_overdrawn_and_comes_back() {
        let allowance = Allowance::new(10);
        let share = || allowance.buffer(0).1;
        let (mut one, mut other) = (share(), share());
        assert!(one.grow(3) && one.grow(4));
        assert!(!other.grow(4) && other.grow(3));
        drop(one);
        assert!(other.grow(7) && !other.grow(1));
    }

    #[test]
    fn a_buffer_serves_again_with_what_it_holds_unless_others_need_that() {
        let allowance = Allowance::new(10);
        let (buffer, mut share) = allowance.buffer(8192);
        assert!(share.grow(6));
        share.keep(buffer);
        let (_, other) = allowance.buffer(4096);
        assert_eq!(other.bytes(), 0, "a buffer of another size");
        let (buffer, again) = allowance.buffer(8192);
        assert_eq!(again.bytes(), 6);
        again.keep(buffer);
        let (_, mut needy) = allowance.buffer(4096);
        assert!(needy.grow(10), "a spare gives way to a table that needs its bytes");
        assert!(allowance.spares.lock().is_empty());
    }

    #[test]
    fn a_tail_gives_only_what_it_has_whole() {
        let tail = tail("a", 100, b"index footer");
        assert_eq!(tail.get(100, 5), Some(&b"index"[..]));
        assert_eq!(tail.get(106, 6), Some(&b"footer"[..]));
        assert_eq!(tail.get(99, 5), None);
        assert_eq!(tail.get(106, 7), None);
    }

    #[test]
    fn the_oldest_tails_make_room() {
        let tails = Tails::new(10);
        tails.keep(tail("a", 0, b"12345"));
        tails.keep(tail("b", 0, b"12345"));
        assert!(found(&tails, "a") && found(&tails, "b"));
        tails.keep(tail("c", 0, b"1"));
        assert!(!found(&tails, "a") && found(&tails, "b") && found(&tails, "c"));
        tails.keep(tail("d", 0, b"larger than all"));
        assert!(!found(&tails, "d"), "one that does not fit is not kept");
    }

    #[test]
    fn a_forgotten_name_is_free_for_another_file() {
        let tails = Tails::new(10);
        tails.keep(tail("a", 0, b"1"));
        tails.forget(&Name::new("a").unwrap());
        assert!(!found(&tails, "a"));
    }
}
