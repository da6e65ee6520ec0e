//! Which bytes of a device have room, and which are holes.

use std::ops::Range;

use volume::{Extent as Part, extent as parts};

use super::super::super::Result;
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
            let Some(extent) = self.extent(number).await? else {
                parts::push(&mut found, base + inside.start..end, true);
                continue;
            };
            self.settle(&extent, &inside).await?;
            let object = self.object(&extent).await?;
            let of = object.extents(inside.start, inside.end - inside.start).await;
            for Part { range, is_hole } in of.map_err(|e| self.failed(e))? {
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
}
