//! The traces of Florida International University (webmail, homes, online).

use std::time::Duration;

use super::number::{self, Origin};
use super::volumes::Volumes;
use super::{LineParser, Parsed, Request, SECTOR};

/// `time pid process block count W|R major minor hash`; the time in nanoseconds, block and count in sectors.
#[derive(Default)]
pub(super) struct Fiu {
    origin: Origin,
    volumes: Volumes,
}

impl LineParser for Fiu {
    fn parse(&mut self, line: &str) -> Parsed {
        const EXPECTED: &str = "nanoseconds pid process block count W or R major minor hash";
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // The name of the process may contain blanks, so the fields behind it count from the end.
        let [time, _, .., block, count, kind, major, minor, _] = fields[..] else {
            return Err(EXPECTED);
        };
        let is_write = match kind {
            "W" => true,
            "R" => false,
            _ => return Err(EXPECTED),
        };
        let offset = number::bytes(number::next(Some(block), EXPECTED)?, SECTOR)?;
        let count = number::bytes(number::next(Some(count), EXPECTED)?, SECTOR)?;
        let len = u32::try_from(count).map_err(|_| EXPECTED)?;
        let at = self.origin.since(Duration::from_nanos(number::next(Some(time), EXPECTED)?));
        let volume = self.volumes.number(&format!("{major},{minor}"))?;
        number::within_bounds(Request { at, volume, offset, len, is_write })
    }
}
