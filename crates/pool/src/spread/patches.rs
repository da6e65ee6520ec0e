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

/// The patches of rows that were decided and have not reached every fragment. Until then the parity of such a row does not
/// fit its data, so no fragment of it is computed from others.
#[derive(Default)]
pub(super) struct Unapplied(Mutex<BTreeMap<u64, Arc<[Patch]>>>);

impl Unapplied {
    /// Decides the patches of a row. Its earlier ones were applied.
    pub(super) fn decide(&self, row: u64, patches: Vec<Patch>) {
        self.0.lock().insert(row, patches.into());
    }

    /// The first of these rows with patches, and those.
    pub(super) fn first(&self, rows: &Range<u64>) -> Option<(u64, Arc<[Patch]>)> {
        let all = self.0.lock();
        all.range(rows.clone()).next().map(|(row, patches)| (*row, Arc::clone(patches)))
    }

    /// The patches of a row have reached every fragment.
    pub(super) fn applied(&self, row: u64) {
        self.0.lock().remove(&row);
    }
}
