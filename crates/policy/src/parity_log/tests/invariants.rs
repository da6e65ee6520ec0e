//! The invariants, each as a function.

use super::super::record::{Group, Piece};
use super::world::{Check, DATA, GROUPS, STRIP, World};

impl World {
    /// I1 and I5, on each index.
    pub(super) fn check_indexes(&self) -> Check {
        for (j, server) in self.parity.iter().enumerate() {
            let Some(server) = server else { continue };
            for g in 0..GROUPS {
                for i in 0..DATA {
                    if self.members[g].contains(&j)
                        && let Some(index) = server.index(g as Group, i)
                    {
                        index
                            .check()
                            .map_err(|error| format!("{error}: parity {j}, strip {i} of {g}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// I2: each parity strip on disk counts the bases.
    pub(super) fn check_bases(&self) -> Check {
        for g in (0..GROUPS).filter(|&g| self.lost[g].is_empty()) {
            for &j in &self.members[g] {
                let Some(server) = &self.parity[j] else { continue };
                let (on_disk, header) = &self.parity_strips[g][j];
                if server.header(g as Group).as_ref() != Some(header) {
                    return Err(format!("I6: header of parity {j} of {g}: {header:?}"));
                }
                let mut bases = self.strips[g].clone();
                for (i, base) in bases.iter_mut().enumerate() {
                    let index = server.index(g as Group, i).expect("a strip of the group");
                    for (range, place) in index.base(0..STRIP as u64) {
                        let (start, end) = (range.start as usize, range.end as usize);
                        base[start..end].copy_from_slice(&self.value(j, place, &range));
                    }
                }
                let parity = self.encode(j, &bases);
                if let Some(at) = (0..STRIP).find(|&at| parity[at] != on_disk[at]) {
                    return Err(format!(
                        "I2: byte {at} of parity {j} of {g} is not that of its bases"
                    ));
                }
            }
        }
        Ok(())
    }

    /// I4: before a strip is written in place, all parity servers of the view have the new value and the base.
    pub(super) fn check_order(&self, g: usize, i: usize, piece: &Piece) -> Check {
        self.check_logged(g, i, piece).map_err(|error| format!("I4: {error}"))
    }

    /// I3: when a write is to be acknowledged.
    pub(super) fn check_written(&self, g: usize, i: usize, piece: &Piece) -> Check {
        self.check_logged(g, i, piece).map_err(|error| format!("I3: {error}"))
    }

    fn check_logged(&self, g: usize, i: usize, piece: &Piece) -> Check {
        let view = self.views[g];
        if self.data[g][i].as_ref().is_none_or(|server| server.view() != view) {
            return Ok(());
        }
        for &j in &self.members[g] {
            let Some(server) = &self.parity[j] else { continue };
            if server.view(g as Group) != view {
                continue;
            }
            let index = server.index(g as Group, i).expect("a strip of the group");
            let mut at = piece.range().start;
            for (range, place) in index.current(piece.range()) {
                if range.start != at || self.value(j, place, &range) != piece.slice(&range) {
                    break;
                }
                at = range.end;
            }
            if at != piece.range().end {
                return Err(format!(
                    "parity {j} of {g} lacks {at} of {:?} of strip {i}",
                    piece.range()
                ));
            }
        }
        Ok(())
    }

    /// At a quiet end, parity and journals give the parity of the strips.
    pub(super) fn check_parity(&self) -> Check {
        for g in 0..GROUPS {
            for &j in &self.members[g] {
                let server = self.parity[j].as_ref().expect("all run at the end");
                let mut parity = self.parity_strips[g][j].0.clone();
                for i in 0..DATA {
                    let index = server.index(g as Group, i).expect("a strip of the group");
                    self.add(j, &index.changes(i, 0..STRIP as u64), &mut parity);
                }
                if parity != self.encode(j, &self.strips[g]) {
                    return Err(format!("parity {j} of group {g} does not fit at the end"));
                }
            }
        }
        Ok(())
    }
}
