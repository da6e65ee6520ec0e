//! Disks with queues, and journals.

use std::collections::VecDeque;
use std::time::Duration;

use policy::disk::Disk;
use policy::time::Instant;

use super::timeline::Action;

/// The longest time for which a disk keeps its arm over a range that was read to be written: longer than a round trip and
/// an append, shorter than a turn.
pub(super) const HOLD_MAX: Duration = Duration::from_millis(2);

/// A sync of a journal on flash: in the middle of the 0.3 to 1 ms that the cost model of PARIX gives an append.
pub(super) const APPEND: Duration = Duration::from_micros(500);

/// A read from a journal on flash.
pub(super) const FLASH_READ: Duration = Duration::from_micros(100);

/// Bytes a second of a journal on flash.
pub(super) const FLASH_BYTES_PER_SEC: u64 = 500_000_000;

/// A request to a disk.
pub(super) struct Job<W> {
    pub(super) address: u64,
    pub(super) len: u64,
    /// Whether a write of the same address follows soon.
    pub(super) is_held: bool,
    pub(super) done: Action<W>,
}

/// A disk and its queue: first come, first served, but for [`Job::is_held`].
pub(super) struct Spindle<W> {
    pub(super) disk: Disk,
    pub(super) queue: VecDeque<Job<W>>,
    pub(super) is_busy: bool,
    /// The address that the arm waits for.
    pub(super) held: Option<u64>,
    /// Counts what was held.
    pub(super) holds: u64,
}

impl<W> Spindle<W> {
    pub(super) fn new(disk: Disk) -> Self {
        Self { disk, queue: VecDeque::new(), is_busy: false, held: None, holds: 0 }
    }

    /// The next request, if the disk is free for one.
    pub(super) fn take_next(&mut self) -> Option<Job<W>> {
        if self.is_busy {
            return None;
        }
        let next = match self.held {
            Some(address) => self.queue.iter().position(|job| job.address == address)?,
            None => 0,
        };
        let job = self.queue.remove(next)?;
        self.held = None;
        Some(job)
    }
}

/// What journals are kept on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Medium {
    /// A device without an arm, one for each server.
    Flash,
    /// A disk of its own, one for each server.
    OwnDisk,
    /// The middle of the disk that has the strips.
    SharedDisk,
}

impl Medium {
    pub(super) const ALL: [Self; 3] = [Self::Flash, Self::OwnDisk, Self::SharedDisk];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Flash => "journals on flash",
            Self::OwnDisk => "journals on disks of their own",
            Self::SharedDisk => "journals on the same disks",
        }
    }
}

/// Where a journal's bytes are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Flash { free_at: Instant },
    Disk { spindle: usize, from: u64, len: u64 },
}

/// A journal that shares syncs among appends that arrive meanwhile.
pub(super) struct Journal<W> {
    pub(super) place: Place,
    /// Bytes that were ever appended.
    pub(super) end: u64,
    /// Bytes of them that no sync has begun to write.
    pub(super) pending: u64,
    pub(super) waiting: Vec<Action<W>>,
    pub(super) is_syncing: bool,
}

impl<W> Journal<W> {
    pub(super) fn new(place: Place) -> Self {
        Self { place, end: 0, pending: 0, waiting: Vec::new(), is_syncing: false }
    }

    /// Appends bytes, to be written by the next sync; returns where they begin.
    pub(super) fn add(&mut self, bytes: u64) -> u64 {
        let from = self.end;
        self.end += bytes;
        self.pending += bytes;
        from
    }
}
