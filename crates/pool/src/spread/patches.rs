//! Bytes that go in place in the fragments of an object, row by row: decided, and not yet known to be in all of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use volume::IoBuf;

/// New bytes of one fragment.
#[derive(Clone)]
pub(crate) struct Patch {
    /// The index of the fragment.
    pub(crate) fragment: usize,
    /// Where they go, in bytes of the fragment.
    pub(crate) at: u64,
    /// The bytes.
    pub(crate) bytes: IoBuf,
}

impl Patch {
    /// The bytes of the fragment that it changes.
    pub(super) fn range(&self) -> Range<u64> {
        self.at..self.at + self.bytes.len() as u64
    }
}

/// The patches of rows that were decided and have not reached every fragment. Until then the parity of such a row does not
/// fit its data, so no fragment of it is computed from the bytes that others have in place.
#[derive(Default)]
pub(super) struct Unapplied(Mutex<BTreeMap<u64, Row>>);

/// Which parity fragments do not get a change of a row, in the log of an earlier version: the numbers of the copies that were
/// missing when it was computed. `None`: all for which it has no bytes. Now a change has bytes for every parity fragment, so
/// that one may be made again before the change or after it.
pub(crate) type Missed = Option<Vec<u64>>;

struct Row {
    patches: Arc<[Patch]>,
    missed: Arc<Missed>,
    /// A volume had no room for it. Until it has, readers put the patches over what they read.
    waits: bool,
}

impl Unapplied {
    /// Decides the patches of a row. Its earlier ones were applied.
    pub(super) fn decide(&self, row: u64, patches: Vec<Patch>, missed: Missed) {
        let row_of = Row { patches: patches.into(), missed: missed.into(), waits: false };
        self.0.lock().insert(row, row_of);
    }

    /// The first of these rows with patches, those, and who missed them; of rows that wait for room only if `also_waiting`.
    pub(super) fn first(
        &self,
        rows: &Range<u64>,
        also_waiting: bool,
    ) -> Option<(u64, Arc<[Patch]>, Arc<Missed>)> {
        let all = self.0.lock();
        let mut due = all.range(rows.clone()).filter(|(_, row)| also_waiting || !row.waits);
        let (number, row) = due.next()?;
        Some((*number, Arc::clone(&row.patches), Arc::clone(&row.missed)))
    }

    /// A volume has no room for the patches of a row.
    pub(super) fn wait(&self, row: u64) {
        if let Some(row) = self.0.lock().get_mut(&row) {
            row.waits = true;
        }
    }

    /// The patches of a row have reached every fragment.
    pub(super) fn applied(&self, row: u64) {
        self.0.lock().remove(&row);
    }

    /// Puts patches of a fragment over the bytes that it has at `at`.
    pub(super) fn put_over(&self, fragment: usize, at: u64, bytes: &mut [u8]) {
        let all = self.0.lock();
        let patches = all.values().flat_map(|row| row.patches.iter());
        for patch in patches.filter(|patch| patch.fragment == fragment) {
            let from = patch.at.max(at);
            let to = (patch.at + patch.bytes.len() as u64).min(at + bytes.len() as u64);
            if from < to {
                let new = &patch.bytes[(from - patch.at) as usize..(to - patch.at) as usize];
                bytes[(from - at) as usize..(to - at) as usize].copy_from_slice(new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(fragment: usize, at: u64, byte: u8) -> Patch {
        Patch { fragment, at, bytes: IoBuf::from(&[byte; 4][..]) }
    }

    #[test]
    fn a_row_that_waits_is_put_over_what_is_read_until_it_is_applied() {
        let unapplied = Unapplied::default();
        unapplied.decide(3, vec![patch(0, 8, 1), patch(1, 8, 2)], None);
        assert_eq!(unapplied.first(&(0..9), false).map(|(row, ..)| row), Some(3));
        unapplied.wait(3);
        assert!(unapplied.first(&(0..9), false).is_none());
        assert!(unapplied.first(&(0..3), true).is_none());
        assert_eq!(unapplied.first(&(3..4), true).map(|(row, ..)| row), Some(3));
        let mut bytes = [9; 8];
        unapplied.put_over(0, 6, &mut bytes);
        assert_eq!(bytes, [9, 9, 1, 1, 1, 1, 9, 9]);
        unapplied.put_over(1, 10, &mut bytes[..4]);
        assert_eq!(bytes, [2, 2, 1, 1, 1, 1, 9, 9]);
        unapplied.applied(3);
        unapplied.put_over(0, 0, &mut bytes);
        assert_eq!(bytes, [2, 2, 1, 1, 1, 1, 9, 9]);
    }
}
