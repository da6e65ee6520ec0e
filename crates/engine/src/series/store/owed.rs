//! Deletes that are in the log but not yet in blocks.
//!
//! A delete rewrites blocks, which takes room before it frees any. Where there is none the delete is *owed*: rows in
//! memory are cut at once, reads hide the deleted points of blocks, and upkeep carries it out when there is room. Until
//! then its segment of the log stays.

use std::sync::Arc;

use super::Inner;
use super::cuts::{Cuts, Owed};
use super::rows;
use super::state::{SeriesState, Taken};
use super::upkeep::Upkeep;
use crate::series::batch::take_value;
use crate::series::{Error, Kind, Result};

impl Inner {
    /// Carries out again a delete from a segment of the log.
    pub(super) async fn redo(
        &self,
        upkeep: &mut Upkeep,
        segment: u32,
        body: &[u8],
    ) -> Option<Result<()>> {
        let cuts = Cuts::decode(body)?;
        {
            let mut state = self.state();
            cuts.fields.keys().for_each(|&source| state.take(source));
        }
        Some(match self.carry_out(upkeep, cuts, segment).await {
            // A damaged block cannot be read, either: it must not prevent the opening.
            Err(Error::Corrupt(error)) => {
                tracing::warn!(%error, "deleted points may be left in a damaged block");
                Ok(())
            }
            done => done.map(drop),
        })
    }

    /// Carries out a delete in taken rows and in blocks. Where there is no room, it is owed.
    pub(super) async fn carry_out(
        &self,
        upkeep: &mut Upkeep,
        cuts: Cuts,
        segment: u32,
    ) -> Result<Arc<Cuts>> {
        let cuts = Arc::new(cuts);
        match self.apply(upkeep, &cuts).await {
            Err(error @ (Error::OutOfSpace(_) | Error::Unavailable(_))) => {
                tracing::warn!(store = %self.options.name, %error,
                    "deleted points are hidden, but take room until their blocks can be rewritten");
                self.state().owe(Arc::clone(&cuts), segment);
            }
            done => done?,
        }
        Ok(cuts)
    }

    /// Carries out owed deletes. One that cannot be carried out now stays, and does not hold up the others.
    ///
    /// # Errors
    /// That of the first one that stays.
    pub(super) async fn pay_deletes(&self) -> Result<()> {
        let all: Vec<Arc<Owed>> = self.state().owed.iter().cloned().collect();
        let mut stays = Ok(());
        for owed in all {
            match self.cut_blocks(&owed.cuts, owed.before).await {
                Ok(()) => {}
                // The damaged block cannot be read.
                Err(Error::Corrupt(error)) => {
                    tracing::warn!(%error, "deleted points may be left in a damaged block");
                }
                // The others need room as well.
                Err(error @ Error::OutOfSpace(_)) => return stays.and(Err(error)),
                Err(error) => {
                    stays = stays.and(Err(error));
                    continue;
                }
            }
            self.state().owed.retain(|other| !Arc::ptr_eq(other, &owed));
        }
        stays
    }
}

impl SeriesState {
    /// Queues a delete for later.
    fn owe(&mut self, cuts: Arc<Cuts>, segment: u32) {
        self.cut_taken(&cuts);
        let before = self.round;
        self.owed.push_back(Arc::new(Owed { cuts, before, segment }));
    }

    /// Removes deleted points from taken rows. That needs no room on volumes.
    fn cut_taken(&mut self, cuts: &Cuts) {
        for &source in cuts.fields.keys() {
            let Some(taken) = self.taken.remove(&source) else { continue };
            self.memory -= taken.rows.capacity();
            let mut kept = Vec::new();
            let mut rest = &taken.rows[..];
            while !rest.is_empty() {
                self.cut_row(cuts, source, &mut rest, &mut kept);
            }
            if !kept.is_empty() {
                self.memory += kept.capacity();
                self.taken.insert(source, Arc::new(Taken { first: taken.first, rows: kept }));
            }
        }
    }

    /// Moves a row from `from` to `into`, without its deleted points.
    fn cut_row(&mut self, cuts: &Cuts, source: u32, from: &mut &[u8], into: &mut Vec<u8>) {
        const OURS: &str = "rows were encoded by us";
        let row = *from;
        let (shape, time) = rows::take_head(from).expect(OURS);
        let of = &self.catalogue.shapes[shape as usize];
        let (columns, measurement) = (Arc::clone(&of.columns), of.measurement);
        let (mut stay, mut values) = (Vec::<(u16, Kind)>::new(), Vec::new());
        for &(field, kind) in columns.iter() {
            let before = *from;
            take_value(from, kind).expect(OURS);
            if !cuts.has(source, field) {
                stay.push((field, kind));
                values.extend_from_slice(&before[..before.len() - from.len()]);
            }
        }
        if stay.len() == columns.len() || !cuts.span.contains(time) {
            into.extend_from_slice(&row[..row.len() - from.len()]);
            return;
        }
        if !stay.is_empty() {
            let before = self.catalogue.shape_bytes;
            let (shape, order) = self.catalogue.shape_of(measurement, &stay);
            self.memory += self.catalogue.shape_bytes - before;
            match order {
                None => rows::put(into, shape, time, &values),
                Some(order) => {
                    let kinds = stay.iter().map(|&(_, kind)| kind);
                    rows::put_ordered(into, shape, time, &values, kinds, &order).expect(OURS);
                }
            }
            self.catalogue.shapes[shape as usize].rows += 1;
        }
        self.let_go(shape, 1);
    }
}
