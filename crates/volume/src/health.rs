//! What a failed sync leaves behind: an object nobody may write again, and a volume on probation.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::Name;

/// Whether the volume's syncs can be believed.
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

    /// The name no longer stands for the object whose sync failed.
    pub(crate) fn forget(&self, name: &Name) {
        self.objects.lock().remove(name);
    }
}
