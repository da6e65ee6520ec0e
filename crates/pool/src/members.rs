//! The member slots of a pool: each holds a volume, or is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use futures_util::future::join_all;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::RwLock;
use policy::placement::VolumeId;
use volume::{Error, ErrorKind, ReadTime, Result, Space, Volume};

/// A volume handed to a pool.
#[derive(Clone)]
pub struct Member {
    /// Its name in messages, and in the manifest for when it is missing.
    pub label: String,
    /// The volume itself, behind its gate.
    pub volume: Arc<dyn Volume>,
}

impl Member {
    /// A volume with a label.
    #[must_use]
    pub fn new(label: impl Into<String>, volume: impl Volume + 'static) -> Self {
        Self { label: label.into(), volume: Arc::new(volume) }
    }
}

/// The member slot of one volume in its pool.
pub(crate) struct MemberSlot {
    pub(crate) id: VolumeId,
    pub(crate) label: String,
    /// `None` if it was absent when the pool was opened.
    pub(crate) volume: Option<Arc<dyn Volume>>,
    /// It was lost and removed from the pool, with objects that had no other copy.
    lost: bool,
    /// It is joining or leaving the pool: it may hold the manifest, but no new object.
    closed: AtomicBool,
    /// Objects that are being created here, and are not recorded yet.
    occupants: AtomicUsize,
    /// The number of next reads that prefer another copy, after one failed here.
    avoided: AtomicU32,
}

/// The number of reads that avoid a volume after one failed: few enough that a recovered volume is soon
/// used again, enough that a failing one costs little.
const AVOID: u32 = 64;

impl MemberSlot {
    pub(crate) fn new(id: VolumeId, label: String, volume: Option<Arc<dyn Volume>>) -> Self {
        Self {
            id,
            label,
            volume,
            lost: false,
            closed: AtomicBool::new(false),
            occupants: AtomicUsize::new(0),
            avoided: AtomicU32::new(0),
        }
    }

    /// Closes the slot for new objects, or opens it. True if no object is being created here.
    pub(crate) fn set_closed(&self, closed: bool) -> bool {
        self.closed.store(closed, Ordering::SeqCst);
        self.occupants.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// A guard to hold while an object is created here; `None` if the slot is closed.
    pub(crate) fn occupy(self: &Arc<Self>) -> Option<Occupied> {
        // Counts before it reads `closed`; `set_closed` sets `closed` before it reads the count.
        self.occupants.fetch_add(1, Ordering::SeqCst);
        let occupied = Occupied(Arc::clone(self));
        (!self.is_closed()).then_some(occupied)
    }

    /// The volume.
    ///
    /// # Errors
    /// `Unavailable` when it is away; `Corrupt` when it is lost.
    pub(crate) fn device(&self) -> Result<&Arc<dyn Volume>> {
        self.volume.as_ref().ok_or_else(|| {
            if self.lost {
                let what = format!(
                    "volume {} was lost, and taken out of the pool: restore it, or remove the object",
                    self.label
                );
                return Error::new(ErrorKind::Corrupt, what);
            }
            Error::new(
                ErrorKind::Unavailable,
                format!("volume {} is away: bring it back and open the pool again", self.label),
            )
        })
    }

    /// Makes the next reads avoid this volume, after a read failed that another copy may answer.
    pub(crate) fn avoid(&self) {
        self.avoided.store(AVOID, Ordering::Relaxed);
    }

    /// Whether a read should prefer another copy. Counts the read: after [`AVOID`] of them the volume is used again.
    pub(crate) fn take_avoidance(&self) -> bool {
        if self.volume.is_none() {
            return true;
        }
        let left = self.avoided.load(Ordering::Relaxed);
        if left > 0 {
            self.avoided.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// How long a read here would take.
    pub(crate) fn expected_read(&self) -> ReadTime {
        self.volume.as_ref().map_or(ReadTime::NEVER, |volume| volume.expected_read())
    }
}

/// Guards the creation of an object on a volume: until it is dropped, the volume cannot leave the pool.
pub(crate) struct Occupied(Arc<MemberSlot>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.occupants.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Every volume of a pool by its id.
pub(crate) struct Members {
    slots: RwLock<Arc<[Arc<MemberSlot>]>>,
    /// Locked while a volume joins, leaves or begins to drain, before the locks of the manifest.
    pub(crate) changing: AsyncMutex<()>,
}

impl Members {
    pub(crate) fn new(mut slots: Vec<MemberSlot>) -> Self {
        slots.sort_by_key(|slot| slot.id);
        let slots = slots.into_iter().map(Arc::new).collect();
        Self { slots: RwLock::new(slots), changing: AsyncMutex::default() }
    }

    pub(crate) fn all(&self) -> Arc<[Arc<MemberSlot>]> {
        Arc::clone(&self.slots.read())
    }

    /// The volumes that are present.
    pub(crate) fn present(&self) -> Vec<(Arc<MemberSlot>, Arc<dyn Volume>)> {
        let all = self.all();
        let present = all.iter().filter_map(|slot| {
            let volume = slot.volume.as_ref()?;
            Some((Arc::clone(slot), Arc::clone(volume)))
        });
        present.collect()
    }

    pub(crate) fn get(&self, id: VolumeId) -> Option<Arc<MemberSlot>> {
        let all = self.slots.read();
        all.binary_search_by_key(&id, |slot| slot.id).ok().map(|at| Arc::clone(&all[at]))
    }

    /// The slot of a volume; an empty one if the volume left the pool.
    pub(crate) fn slot(&self, id: VolumeId) -> Arc<MemberSlot> {
        self.get(id).unwrap_or_else(|| {
            Arc::new(MemberSlot { lost: true, ..MemberSlot::new(id, format!("number {id}"), None) })
        })
    }

    /// The number of the volume with this label.
    pub(crate) fn by_label(&self, label: &str) -> Option<VolumeId> {
        self.slots.read().iter().find(|slot| slot.label == label).map(|slot| slot.id)
    }

    /// The label of volume `id`.
    pub(crate) fn label(&self, id: VolumeId) -> String {
        self.slot(id).label.clone()
    }

    /// The volume.
    ///
    /// # Errors
    /// `Unavailable` when it is away; `Corrupt` when it is lost.
    pub(crate) fn volume(&self, id: VolumeId) -> Result<Arc<dyn Volume>> {
        self.slot(id).device().cloned()
    }

    /// The space of each present volume that takes new objects.
    pub(crate) async fn spaces(&self) -> Vec<(VolumeId, Result<Space>)> {
        let present = self.present();
        let present = present.iter().filter(|(slot, _)| !slot.is_closed());
        join_all(present.map(async |(slot, volume)| (slot.id, volume.space().await))).await
    }

    /// What failed on volumes, for a message.
    pub(crate) fn causes(&self, failed: &[(VolumeId, Error)]) -> String {
        let causes = failed.iter().map(|(id, e)| format!("volume {}: {e}", self.label(*id)));
        causes.collect::<Vec<_>>().join("; ")
    }

    /// Adds a volume.
    pub(crate) fn add(&self, slot: Arc<MemberSlot>) {
        let mut all = self.slots.write();
        let mut next: Vec<_> = all.to_vec();
        next.push(slot);
        next.sort_by_key(|slot| slot.id);
        *all = next.into();
    }

    /// Removes a volume.
    pub(crate) fn remove(&self, id: VolumeId) {
        let mut all = self.slots.write();
        *all = all.iter().filter(|slot| slot.id != id).cloned().collect();
    }
}
