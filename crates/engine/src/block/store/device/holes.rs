//! Which bytes of a device have room, and which are holes.

use std::ops::Range;

use volume::{Extent as Part, extent as parts};

use super::super::super::Result;
use super::super::extents::Extent;
use super::super::shape::Piece;
use super::Device;

impl Device {
    pub(super) async fn extents_of(&self, range: Range<u64>, most: usize) -> Result<Vec<Part>> {
        self.begin(&range)?;
        let mut found = Vec::new();
        let mut end = range.start;
        for Piece { extent: number, range: inside, .. } in self.present(&range) {
            let base = number * self.shape.extent();
            parts::push(&mut found, end..base + inside.start, true);
            end = base + inside.end;
            for Part { range, is_hole } in self.parts_of(number, &inside).await? {
                parts::push(&mut found, base + range.start..base + range.end, is_hole);
            }
            if found.len() > most {
                end = range.end;
                break;
            }
        }
        parts::push(&mut found, end..range.end, true);
        found.truncate(most);
        // The extents of a deleted device are gone.
        self.must_live()?;
        Ok(found)
    }

    /// The same for a range of one extent.
    async fn parts_of(&self, number: u64, range: &Range<u64>) -> Result<Vec<Part>> {
        loop {
            let Some(extent) = self.extent(number).await? else {
                return Ok(vec![Part { range: range.clone(), is_hole: true }]);
            };
            match self.parts_in(&extent, range).await {
                // It was removed meanwhile, and may be made again.
                Err(_) if extent.is_gone() => {}
                found => return found,
            }
        }
    }

    async fn parts_in(&self, extent: &Extent, range: &Range<u64>) -> Result<Vec<Part>> {
        self.settle(extent, range).await?;
        let object = self.object(extent).await?;
        let found = object.extents(range.start, range.end - range.start).await;
        found.map_err(|e| self.failed(e))
    }
}
