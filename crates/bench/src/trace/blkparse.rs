//! The text that blkparse prints by default.

use super::number::{self, Origin};
use super::volumes::Volumes;
use super::{LineParser, Mismatch, Parsed, Request, SECTOR};

/// `major,minor cpu sequence seconds pid action kind sector + count [process]`, then a summary that starts at a line of
/// other form. A request passes several actions; counts it when it is queued (`Q`). Skips discards and flushes, which
/// move no data.
#[derive(Default)]
pub(super) struct Blkparse {
    origin: Origin,
    volumes: Volumes,
    /// Whether there was an event of another action.
    has_others: bool,
    has_queued: bool,
    is_summary: bool,
}

const EXPECTED: &str = "major,minor cpu sequence seconds pid action kind sector + count";

impl LineParser for Blkparse {
    fn parse(&mut self, line: &str) -> Parsed {
        self.is_summary |= line.starts_with("CPU") || line.starts_with("Total");
        let mut fields = line.split_ascii_whitespace();
        let device = match fields.next() {
            Some(device) if !self.is_summary => device,
            _ => return Ok(None),
        };
        if !device.contains(',') {
            return Err(EXPECTED);
        }
        let [_, _, secs, _, action] = [(); 5].map(|()| fields.next());
        let secs: f64 = number::next(secs, EXPECTED)?;
        if action.ok_or(EXPECTED)? != "Q" {
            self.has_others = true;
            return Ok(None);
        }
        self.has_queued = true;
        let kind = fields.next().ok_or(EXPECTED)?;
        let is_write = kind.contains('W');
        let at = self.origin.since_secs(secs)?;
        let (Some(sector), Some("+"), Some(count)) = (fields.next(), fields.next(), fields.next())
        else {
            // A flush without data has no sector.
            return if kind.contains('F') { Ok(None) } else { Err(EXPECTED) };
        };
        if kind.contains('D') || !(is_write || kind.contains('R')) {
            return Ok(None);
        }
        let offset = number::bytes(number::next(Some(sector), EXPECTED)?, SECTOR)?;
        let len = number::bytes(number::next(Some(count), EXPECTED)?, SECTOR)?;
        let len = u32::try_from(len).map_err(|_| EXPECTED)?;
        let volume = self.volumes.number(device)?;
        number::within_bounds(Request { at, volume, offset, len, is_write })
    }

    fn finish(&self) -> Result<(), Mismatch> {
        match self.has_others && !self.has_queued {
            true => Err("queued requests (action Q), but there are other actions only"),
            false => Ok(()),
        }
    }
}
