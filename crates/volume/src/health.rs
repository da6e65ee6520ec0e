//! State after a failed sync: the object is never written again, and new objects wait for a probe
//! of the volume.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::Name;

/// Which objects, and whether the volume, had a failed sync.
#[derive(Default)]
pub(crate) struct Health {
    poisoned: AtomicBool,
    objects: Mutex<BTreeSet<Name>>,
}

impl Health {
    /// A sync for `name` failed.
    pub(crate) fn poison(&self, name: &Name) {
        self.objects.lock().insert(name.clone());
        self.poisoned.store(true, Ordering::SeqCst);
    }

    /// Whether new objects have to wait for a probe.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }

    /// Whether a sync for `name` failed.
    pub(crate) fn has_lost(&self, name: &Name) -> bool {
        self.objects.lock().contains(name)
    }

    /// A write and a sync worked again.
    pub(crate) fn probed(&self) {
        self.poisoned.store(false, Ordering::SeqCst);
    }

    /// Another object may get the name: the one whose sync failed is removed.
    pub(crate) fn forget(&self, name: &Name) {
        self.objects.lock().remove(name);
    }
}
