//! The volumes of a pool, each in its seat: here, or away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use policy::placement::VolumeId;
use volume::{Error, ErrorKind, Result, Volume};

/// A volume handed to a pool.
#[derive(Clone)]
pub struct Member {
    /// What people call it: names it in messages, and in the manifest for when it is missing.
    pub label: String,
    /// The volume itself, behind its gate.
    pub volume: Arc<dyn Volume>,
}

impl Member {
    /// A volume and what people call it.
    #[must_use]
    pub fn new(label: impl Into<String>, volume: impl Volume + 'static) -> Self {
        Self { label: label.into(), volume: Arc::new(volume) }
    }
}

/// The place of one volume in its pool.
pub(crate) struct Seat {
    pub(crate) id: VolumeId,
    pub(crate) label: String,
    /// `None`: it was not there when the pool was opened.
    pub(crate) volume: Option<Arc<dyn Volume>>,
    /// It is the pool's no more: it was lost, with what was only there.
    lost: bool,
    /// It joins or leaves the pool: it may hold the manifest, but no new object.
    closed: AtomicBool,
    /// Objects that are being made here, and that nobody knows of yet.
    occupants: AtomicUsize,
    /// Reads that have a choice go elsewhere so many times more, after one failed here.
    avoided: AtomicU32,
}

/// How many reads go elsewhere when one failed: few enough that a volume which is well again is
/// used again soon, enough that one which is not costs little.
const AVOID: u32 = 64;

impl Seat {
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

    /// Lets objects be made here, or not any more. Whether nobody is making one.
    pub(crate) fn set_closed(&self, closed: bool) -> bool {
        self.closed.store(closed, Ordering::SeqCst);
        self.occupants.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// To be held while an object is made here; `None` if that must not be.
    pub(crate) fn occupy(self: &Arc<Self>) -> Option<Occupied> {
        // Counted first: who closes the seat looks at the count last.
        self.occupants.fetch_add(1, Ordering::SeqCst);
        let occupied = Occupied(Arc::clone(self));
        (!self.is_closed()).then_some(occupied)
    }

    /// The volume, to be used.
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

    /// A read failed here that another copy may answer.
    pub(crate) fn avoid(&self) {
        self.avoided.store(AVOID, Ordering::Relaxed);
    }

    /// Whether a read that has a choice should go elsewhere. Each time it is asked brings the time
    /// nearer when it should not.
    pub(crate) fn is_avoided(&self) -> bool {
        if self.volume.is_none() {
            return true;
        }
        let left = self.avoided.load(Ordering::Relaxed);
        if left > 0 {
            self.avoided.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// How long a read would wait here.
    pub(crate) fn expected_wait(&self) -> Duration {
        self.volume.as_ref().map_or(Duration::MAX, |volume| volume.expected_wait())
    }
}

/// Somebody makes an object on a volume, which therefore cannot leave the pool.
pub(crate) struct Occupied(Arc<Seat>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.occupants.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Every volume of a pool by its id.
pub(crate) struct Seats(RwLock<Arc<[Arc<Seat>]>>);

impl Seats {
    pub(crate) fn new(mut seats: Vec<Seat>) -> Self {
        seats.sort_by_key(|seat| seat.id);
        Self(RwLock::new(seats.into_iter().map(Arc::new).collect()))
    }

    pub(crate) fn all(&self) -> Arc<[Arc<Seat>]> {
        Arc::clone(&self.0.read())
    }

    /// The volumes that are there.
    pub(crate) fn present(&self) -> Vec<(Arc<Seat>, Arc<dyn Volume>)> {
        let all = self.all();
        let present = all.iter().filter_map(|seat| {
            let volume = seat.volume.as_ref()?;
            Some((Arc::clone(seat), Arc::clone(volume)))
        });
        present.collect()
    }

    pub(crate) fn get(&self, id: VolumeId) -> Option<Arc<Seat>> {
        let all = self.0.read();
        all.binary_search_by_key(&id, |seat| seat.id).ok().map(|at| Arc::clone(&all[at]))
    }

    /// The seat of a volume; of one that left the pool an empty one.
    pub(crate) fn seat(&self, id: VolumeId) -> Arc<Seat> {
        self.get(id).unwrap_or_else(|| {
            Arc::new(Seat { lost: true, ..Seat::new(id, format!("number {id}"), None) })
        })
    }

    /// What people call volume `id`.
    pub(crate) fn label(&self, id: VolumeId) -> String {
        self.seat(id).label.clone()
    }

    /// The volume, to be used.
    ///
    /// # Errors
    /// `Unavailable` when it is away.
    pub(crate) fn volume(&self, id: VolumeId) -> Result<Arc<dyn Volume>> {
        self.seat(id).device().cloned()
    }

    /// One volume more.
    pub(crate) fn add(&self, seat: Arc<Seat>) {
        let mut all = self.0.write();
        let mut next: Vec<_> = all.to_vec();
        next.push(seat);
        next.sort_by_key(|seat| seat.id);
        *all = next.into();
    }

    /// Takes a volume out.
    pub(crate) fn remove(&self, id: VolumeId) {
        let mut all = self.0.write();
        *all = all.iter().filter(|seat| seat.id != id).cloned().collect();
    }
}
