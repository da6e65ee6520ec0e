//! Chooses volumes for objects, further copies and fragments, by placement and the space that volumes report.

use policy::placement::{Candidate, Layout, VolumeId};
use volume::{Error, ErrorKind, Space};

use super::Spread;
use super::leaves::At;
use super::placing::{Flight, Wanted};
use crate::members::Occupied;

/// A place for a copy. None of its volumes leaves the pool meanwhile.
pub(super) struct Place<'a> {
    pub(super) flight: Flight<'a>,
    pub(super) occupied: Vec<Occupied>,
}

impl Spread {
    /// Whether volumes have room for a copy above their reserve, below which copies are dropped.
    pub(super) async fn has_room_to_spare(&self, layout: &Layout, len: u64) -> bool {
        let held = self.held();
        for (part, &volume) in layout.volumes().iter().enumerate() {
            let Ok(Space { free, total, .. }) = self.space_of(volume).await else { return false };
            let held = held.get(&volume).map_or(0, |held| held.bytes);
            let left = free.saturating_sub(layout.part_len(len, part));
            if left < policy::migrate::reserve(total, held) {
                return false;
            }
        }
        true
    }

    /// Asks placement, with the current state of the volumes. A further copy of an object goes only to
    /// volumes that are not `taken` by the others. The error lists the volumes that did not answer.
    pub(super) async fn choose(
        &self,
        wanted: Wanted<'_>,
        failed: &[At],
        taken: Option<&[VolumeId]>,
    ) -> Result<Place<'_>, Vec<At>> {
        loop {
            let (candidates, away) = self.candidates(failed, taken.unwrap_or_default()).await;
            let flight = self.0.placing.choose(wanted, &candidates, taken.is_some()).ok_or(away)?;
            let volumes = flight.layout().volumes().iter();
            let occupied = volumes.map(|&volume| self.0.members.slot(volume).occupy());
            // A volume that has begun to leave is not among the next candidates.
            if let Some(occupied) = occupied.collect() {
                return Ok(Place { flight, occupied });
            }
        }
    }

    /// The space of each volume that may take an object, and the errors of those that do not answer.
    async fn candidates(&self, failed: &[At], taken: &[VolumeId]) -> (Vec<Candidate>, Vec<At>) {
        let draining = self.0.journal.draining();
        let (mut all, mut away) = (Vec::new(), Vec::new());
        for (volume, space) in self.0.members.spaces().await {
            let is_out = failed.iter().any(|(other, _)| *other == volume)
                || taken.contains(&volume)
                || draining.contains(&volume);
            all.push(match space {
                Ok(Space { total, free, .. }) if !is_out => Candidate::new(volume, free, total),
                Err(e) if !is_out => {
                    away.push((volume, e));
                    Candidate::away(volume)
                }
                _ => Candidate::away(volume),
            });
        }
        (all, away)
    }
}

/// Whether another volume may succeed after this error.
pub(super) fn is_about_the_volume(e: &Error) -> bool {
    // The process may be `Busy` on one volume only: it has no right to its files.
    matches!(
        e.kind(),
        ErrorKind::OutOfSpace
            | ErrorKind::Unavailable
            | ErrorKind::Busy
            | ErrorKind::TimedOut
            | ErrorKind::Poisoned
            | ErrorKind::Io
    )
}
