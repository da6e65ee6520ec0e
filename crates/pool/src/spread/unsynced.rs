//! Which bytes of an object were written since its copies were synced: a copy that fails may have lost them, whatever it
//! answered to the writes.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;

use super::resync::PIECE;

/// The bytes that were written since the last sync.
#[derive(Default)]
pub(super) struct Unsynced(Mutex<Writes>);

#[derive(Default)]
struct Writes {
    /// How many syncs began.
    syncs: u64,
    /// Where pieces begin that were written, and how many syncs had begun then.
    pieces: BTreeMap<u64, u64>,
    /// The first byte of changes without an end, and how many syncs had begun at the last of them.
    from: Option<(u64, u64)>,
}

impl Unsynced {
    /// Notes a write before it begins, and again when it ends: a sync that began in between may not have its bytes.
    pub(super) fn note(&self, range: &Range<u64>) {
        let mut writes = self.0.lock();
        let syncs = writes.syncs;
        if range.end == u64::MAX {
            let from = writes.from.map_or(range.start, |(from, _)| from.min(range.start));
            writes.from = Some((from, syncs));
            return;
        }
        let pieces = (range.start / PIECE * PIECE..range.end).step_by(PIECE as usize);
        writes.pieces.extend(pieces.map(|at| (at, syncs)));
    }

    /// A sync of all copies begins; returns its number.
    pub(super) fn sync_begins(&self) -> u64 {
        let mut writes = self.0.lock();
        writes.syncs += 1;
        writes.syncs
    }

    /// A sync ended well: the writes that ended before it began are durable.
    pub(super) fn synced(&self, sync: u64) {
        let mut writes = self.0.lock();
        writes.pieces.retain(|_, syncs| *syncs >= sync);
        writes.from = writes.from.filter(|(_, syncs)| *syncs >= sync);
    }

    /// The bytes.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let writes = self.0.lock();
        let pieces = writes.pieces.keys().map(|&at| at..at + PIECE);
        pieces.chain(writes.from.map(|(from, _)| from..u64::MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_leaves_the_writes_that_had_not_ended_when_it_began() {
        let unsynced = Unsynced::default();
        unsynced.note(&(5..7));
        unsynced.note(&(PIECE - 1..PIECE + 1));
        unsynced.note(&(9 * PIECE..u64::MAX));
        let first = unsynced.sync_begins();
        // The end of the second write, and the beginning of another.
        unsynced.note(&(PIECE - 1..PIECE + 1));
        unsynced.note(&(3 * PIECE..3 * PIECE + 1));
        let all = [0..PIECE, PIECE..2 * PIECE, 3 * PIECE..4 * PIECE, 9 * PIECE..u64::MAX];
        assert_eq!(unsynced.ranges(), all);
        let second = unsynced.sync_begins();
        unsynced.synced(first);
        assert_eq!(unsynced.ranges(), all[..3]);
        unsynced.synced(second);
        assert_eq!(unsynced.ranges(), []);
    }
}
