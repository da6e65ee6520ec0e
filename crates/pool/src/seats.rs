//! The volumes of a pool, each in its seat: here, or away.

use std::sync::Arc;

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
}

/// Every volume of a pool by its id.
pub(crate) struct Seats(Vec<Seat>);

impl Seats {
    pub(crate) fn new(mut seats: Vec<Seat>) -> Self {
        seats.sort_by_key(|seat| seat.id);
        Self(seats)
    }

    pub(crate) fn all(&self) -> &[Seat] {
        &self.0
    }

    /// The volumes that were there when the pool was opened.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&Seat, &Arc<dyn Volume>)> {
        self.0.iter().filter_map(|seat| Some((seat, seat.volume.as_ref()?)))
    }

    pub(crate) fn get(&self, id: VolumeId) -> Option<&Seat> {
        self.0.binary_search_by_key(&id, |seat| seat.id).ok().map(|at| &self.0[at])
    }

    /// What people call volume `id`.
    pub(crate) fn label(&self, id: VolumeId) -> &str {
        self.get(id).map_or("?", |seat| &seat.label)
    }

    /// The volume, to be used.
    ///
    /// # Errors
    /// `Unavailable` when it is away.
    pub(crate) fn volume(&self, id: VolumeId) -> Result<&Arc<dyn Volume>> {
        let away = || {
            Error::new(
                ErrorKind::Unavailable,
                format!("volume {} is away: bring it back and open the pool again", self.label(id)),
            )
        };
        self.get(id).and_then(|seat| seat.volume.as_ref()).ok_or_else(away)
    }
}
