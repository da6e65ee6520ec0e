//! The dirty bytes of a volume, file by file, and the puts that wait until there are fewer.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use super::FileId;
use super::format::Layout;
use super::stream::Stream;

/// The most of a file that is written back at once: on a disk, the seek from another file takes a tenth of its time.
const PIECE_MAX: u64 = 8 << 20;
/// But no more than this part of a device, 1/256.
const PIECE_SHARE: u64 = 256;
/// And no less than this: a sync pads a page.
const PIECE_MIN: u64 = 16 << 10;
/// Pieces at each device at the same time. The next one waits there while one is written, or a disk loses a turn between
/// them.
pub(super) const AT_ONCE: usize = 2;
/// The most for each device in the page cache: a piece of each open file, and those at the device.
const DIRTY_MAX: u64 = 256 << 20;
/// And no more than this part of it, 1/32: dead records keep their space until the records that superseded them are
/// durable.
const DIRTY_SHARE: u64 = 32;

/// The dirty bytes of one volume, and the puts that wait for them to shrink.
pub(super) struct Dirty {
    piece: u64,
    max: u64,
    files: BTreeMap<FileId, DirtyFile>,
    /// Pieces at the devices, and how many there may be.
    pieces: usize,
    pieces_max: usize,
    /// Dirty bytes, and bytes of puts that were admitted.
    total: u64,
    /// Waiting puts, in the order they came.
    queue: VecDeque<Waiter>,
    next_ticket: u64,
}

/// The dirty bytes of a file.
struct DirtyFile {
    stream: Stream,
    /// Whether the file is still written to: then pieces are due. Once it is full, the task that seals it syncs the
    /// rest.
    is_open: bool,
    /// Bytes for which no sync has begun, and the smallest sequence among them.
    waiting: u64,
    first: u64,
    /// The smallest sequence of each part that is synced now.
    syncing: Vec<u64>,
}

/// A waiting put.
pub(super) struct Waiter {
    ticket: u64,
    bytes: u64,
    /// The waiting put is to check whether it has to write back.
    pub(super) is_called: bool,
    pub(super) waker: Option<Waker>,
}

impl Dirty {
    /// A volume of `capacity` bytes, which lies on `devices` equal devices, and to which puts write up to `open` files.
    pub(super) fn of(capacity: u64, devices: usize, open: u64) -> Self {
        let of_device = capacity / devices.max(1) as u64;
        let piece = (of_device / PIECE_SHARE).clamp(PIECE_MIN, PIECE_MAX);
        let pieces_max = AT_ONCE * devices;
        let max = piece * (open + pieces_max as u64);
        let max = max.min(DIRTY_MAX * devices as u64).min(capacity / DIRTY_SHARE);
        Self {
            piece,
            max,
            files: BTreeMap::new(),
            pieces: 0,
            pieces_max,
            total: 0,
            queue: VecDeque::new(),
            next_ticket: 0,
        }
    }

    /// Counts bytes written to the open file of a stream; says whether a piece is due now.
    pub(super) fn wrote(&mut self, file: FileId, stream: Stream, bytes: u64, first: u64) -> bool {
        let dirty = self.files.entry(file).or_insert_with(|| DirtyFile {
            stream,
            is_open: true,
            waiting: 0,
            first: u64::MAX,
            syncing: Vec::new(),
        });
        dirty.waiting += bytes;
        dirty.first = dirty.first.min(first);
        self.total += bytes;
        self.due().is_some()
    }

    /// No more is written to the file.
    pub(super) fn full(&mut self, file: FileId) {
        if let Some(dirty) = self.files.get_mut(&file) {
            dirty.is_open = false;
        }
    }

    /// All of the file is durable, or never will be.
    pub(super) fn forget(&mut self, file: FileId) {
        if let Some(dirty) = self.files.remove(&file) {
            self.total -= dirty.waiting;
        }
    }

    /// The stream to write back now.
    pub(super) fn due(&self) -> Option<Stream> {
        if self.pieces >= self.pieces_max {
            return None;
        }
        let open = self.files.values().filter(|dirty| dirty.is_open && dirty.waiting > 0);
        let most = open.max_by_key(|dirty| dirty.waiting)?;
        (most.waiting >= self.piece || self.total >= self.max / 2).then_some(most.stream)
    }

    /// Admits a put of `bytes`, or queues it and gives its ticket.
    pub(super) fn come(&mut self, bytes: u64) -> Option<u64> {
        if self.queue.is_empty() && self.total < self.max {
            self.total += bytes;
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let is_called = self.queue.is_empty();
        self.queue.push_back(Waiter { ticket, bytes, is_called, waker: None });
        Some(ticket)
    }

    pub(super) fn waiter(&mut self, ticket: u64) -> Option<&mut Waiter> {
        let at = self.queue.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        self.queue.get_mut(at)
    }

    pub(super) fn is_first(&self, ticket: u64) -> bool {
        self.queue.front().is_some_and(|first| first.ticket == ticket)
    }

    /// Admits puts that fit. Gives the wakers of these, and of the first put that still waits.
    pub(super) fn let_in(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        while self.total < self.max
            && let Some(next) = self.queue.pop_front()
        {
            self.total += next.bytes;
            woken.extend(next.waker);
        }
        if let Some(first) = self.queue.front_mut() {
            first.is_called = true;
            woken.extend(first.waker.take());
        }
        woken
    }

    /// An admitted put has ended, or a waiting one gave up.
    pub(super) fn leave(&mut self, ticket: Option<u64>, bytes: u64) -> Vec<Waker> {
        let place = ticket.and_then(|ticket| {
            self.queue.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
        });
        match place {
            Some(at) => drop(self.queue.remove(at)),
            None => self.total -= bytes,
        }
        self.let_in()
    }

    /// Claims the bytes of a file for which no sync has begun; gives their number, and the smallest sequence among
    /// them.
    pub(super) fn claim(&mut self, file: FileId, is_piece: bool) -> (u64, u64) {
        self.pieces += usize::from(is_piece);
        let Some(dirty) = self.files.get_mut(&file).filter(|dirty| dirty.waiting > 0) else {
            return (0, u64::MAX);
        };
        let bytes = std::mem::take(&mut dirty.waiting);
        let first = std::mem::replace(&mut dirty.first, u64::MAX);
        dirty.syncing.push(first);
        (bytes, first)
    }

    /// The sync of [claimed](Self::claim) bytes ended. If it failed, the bytes wait again. Gives the wakers of admitted
    /// puts.
    pub(super) fn settle(
        &mut self,
        file: FileId,
        (bytes, first): (u64, u64),
        is_piece: bool,
        is_durable: bool,
    ) -> Vec<Waker> {
        self.pieces -= usize::from(is_piece);
        self.total -= bytes;
        if bytes > 0
            && let Some(dirty) = self.files.get_mut(&file)
        {
            let at = dirty.syncing.iter().position(|other| *other == first);
            dirty.syncing.swap_remove(at.expect("it was claimed"));
            if !is_durable {
                dirty.waiting += bytes;
                dirty.first = dirty.first.min(first);
                self.total += bytes;
            } else if dirty.waiting == 0 && dirty.syncing.is_empty() {
                self.files.remove(&file);
            }
        }
        self.let_in()
    }

    /// Whether bytes of these layouts, of a sequence up to this one, wait for a sync; and whether such bytes are being
    /// synced.
    pub(super) fn has(&self, upto: u64, is_of: impl Fn(Layout) -> bool) -> (bool, bool) {
        let of = || self.files.values().filter(|dirty| is_of(dirty.stream.layout));
        let waits = of().any(|dirty| dirty.first <= upto);
        let is_syncing = of().any(|dirty| dirty.syncing.iter().any(|first| *first <= upto));
        (waits, is_syncing)
    }
}

#[cfg(test)]
mod tests {
    use policy::merge::Group;
    use policy::units::MIB;

    use super::*;

    /// Pieces of 1 MiB, and room for three.
    fn dirty() -> Dirty {
        let dirty = Dirty::of(256 * MIB, 1, 1);
        assert_eq!((dirty.piece, dirty.max), (MIB, 3 * MIB));
        dirty
    }

    fn stream(partition: u16) -> Stream {
        let layout = Layout { partitions: 2, partition };
        Stream { member: 0, layout, group: Group::default(), copies: false }
    }

    /// With pieces for the whole pool there would be fewer than devices in what may be dirty.
    #[test]
    fn on_a_pool_pieces_are_as_large_as_on_one_of_its_devices() {
        let pool = Dirty::of(5 * 256 * MIB, 5, 5);
        assert_eq!((pool.piece, pool.pieces_max, pool.max), (MIB, 10, 15 * MIB));
    }

    #[test]
    fn puts_are_let_in_in_the_order_they_came_as_room_is_made() {
        let mut dirty = dirty();
        assert_eq!(dirty.come(2 * MIB), None);
        assert_eq!(dirty.come(2 * MIB), None, "less than the limit was there");
        let queue: Vec<_> = (0..4).map(|_| dirty.come(MIB).expect("it is full")).collect();
        assert!(dirty.is_first(queue[0]));
        dirty.leave(Some(queue[1]), MIB);
        assert_eq!((dirty.total, dirty.queue.len()), (4 * MIB, 3), "giving up frees nothing");
        dirty.leave(None, 2 * MIB);
        assert!(dirty.waiter(queue[0]).is_none() && dirty.is_first(queue[2]));
        assert_eq!(dirty.total, 3 * MIB);
        assert!(
            dirty.waiter(queue[2]).is_some_and(|waiter| waiter.is_called),
            "it may have to write back"
        );
        assert_eq!(dirty.come(1), Some(4), "a put does not overtake waiting ones");
    }

    #[test]
    fn a_piece_of_the_fullest_open_file_is_due_and_two_at_a_time() {
        let mut dirty = dirty();
        assert!(!dirty.wrote(FileId(1), stream(0), MIB / 2, 5));
        assert!(!dirty.wrote(FileId(2), stream(1), MIB / 2 - 1, 6));
        assert!(dirty.wrote(FileId(1), stream(0), MIB / 2, 7));
        assert_eq!(dirty.due(), Some(stream(0)));
        dirty.pieces = AT_ONCE;
        assert_eq!(dirty.due(), None);
        dirty.pieces = 0;
        dirty.full(FileId(1));
        assert_eq!(dirty.due(), None, "sealing syncs the full file; the other has too little");
        dirty.forget(FileId(1));
        assert_eq!(dirty.total, MIB / 2 - 1);
    }

    #[test]
    fn half_of_the_room_is_due_whoever_has_it() {
        let mut dirty = dirty();
        for file in 1..=8 {
            dirty.wrote(FileId(file), stream(file as u16), MIB / 4, file);
        }
        assert!(dirty.due().is_some(), "of eight files none has a piece");
    }
}
