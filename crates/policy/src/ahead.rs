//! Which logs are written ahead, and how far.
//!
//! A sync that makes a file longer also makes the file system write its journal: three writes on ext4 where one has the
//! data, so a log of small synced records costs three times its data. Bytes over others cost no journal. So a sync now and then writes
//! filling behind the end of the log, and the syncs after it write over that.
//!
//! The filling is written once more than the data need. Where syncs are large that costs more than the journal: such logs
//! are left alone, and so are those that were synced a few times only.

/// A log is written ahead after as many small syncs in a row that made it longer.
const SYNCS: u32 = 4;
/// The same after an attempt for which the volume had no room.
const SYNCS_AFTER_FAILURE: u32 = 64;
/// A sync is small if as many of its kind find room in what is written ahead at once.
const SHARE: usize = 4;

/// What a gate knows of one log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ahead {
    /// The small syncs that have to make it longer first.
    before: u32,
    /// Bytes below are written, if only with filling.
    end: u64,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { before: SYNCS, end: 0 }
    }
}

impl Ahead {
    /// Whether a write up to `end` makes the file longer.
    #[must_use]
    pub const fn is_longer(&self, end: u64) -> bool {
        end > self.end
    }

    /// How many bytes of filling a sync of `bytes` writes behind the end of the log at `len`; at most `max` with those bytes, which is what one
    /// operation of the volume moves. Zero for most syncs.
    #[must_use]
    pub fn wanted(&self, len: u64, bytes: usize, is_longer: bool, max: usize) -> usize {
        if bytes == 0 || bytes > max / SHARE {
            return 0;
        }
        let is_ahead = self.end > 0;
        let is_due = match is_ahead {
            // The next sync of this kind would make the file longer.
            true => self.end < len + bytes as u64,
            false => is_longer && self.before == 0,
        };
        if is_due { max - bytes } else { 0 }
    }

    /// A sync of `bytes` begins, which writes `wanted` bytes ahead of `len`.
    pub fn begin(&mut self, len: u64, bytes: usize, is_longer: bool, wanted: usize, max: usize) {
        if wanted > 0 {
            self.end = len + wanted as u64;
        }
        if bytes > max / SHARE {
            self.before = self.before.max(SYNCS);
        } else if bytes > 0 && is_longer {
            self.before = self.before.saturating_sub(1);
        }
    }

    /// The volume wrote nothing ahead.
    pub const fn failed(&mut self) {
        *self = Self { before: SYNCS_AFTER_FAILURE, end: 0 };
    }

    /// The log was cut. Says whether something was written ahead.
    pub const fn cut(&mut self) -> bool {
        std::mem::replace(&mut self.end, 0) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 256 << 10;

    /// Appends `records`, each with a sync; returns how many syncs made the file longer, and the filling of all.
    fn log_of(records: impl IntoIterator<Item = usize>) -> (u32, usize) {
        let (mut ahead, mut len) = (Ahead::default(), 0);
        let (mut longer, mut filling) = (0, 0);
        for bytes in records {
            let end = len + bytes as u64;
            let is_longer = ahead.is_longer(end);
            len = end;
            let wanted = ahead.wanted(len, bytes, is_longer, MAX);
            ahead.begin(len, bytes, is_longer, wanted, MAX);
            longer += u32::from(is_longer || wanted > 0);
            filling += wanted;
        }
        (longer, filling)
    }

    #[test]
    fn small_syncs_seldom_make_the_file_longer() {
        let (longer, filling) = log_of([4096; 6304]);
        assert_eq!(longer, 4 + 100, "one in 63");
        assert!(filling < 6500 * 4096, "the data once more: {filling}");
    }

    #[test]
    fn every_size_finds_room_for_three_more() {
        let (longer, _) = log_of([64 << 10; 404]);
        assert_eq!(longer, 4 + 134);
        let (longer, _) = log_of((0..10_000).map(|nth| 100 + nth % 4000));
        assert!(longer < 100, "{longer} of 10,000");
    }

    #[test]
    fn logs_of_few_or_large_syncs_are_left_alone() {
        assert_eq!(log_of([4096; 4]), (4, 0));
        assert_eq!(log_of([65 << 10; 100]), (100, 0));
        let mixed = (0..100).map(|nth| if nth % 4 == 0 { 1 << 20 } else { 4096 });
        assert_eq!(log_of(mixed), (100, 0));
        assert_eq!(log_of([0; 100]), (0, 0), "nothing was written");
    }

    #[test]
    fn a_log_that_was_cut_begins_anew() {
        let mut ahead = Ahead { before: 0, end: 0 };
        let wanted = ahead.wanted(4096, 4096, true, MAX);
        ahead.begin(4096, 4096, true, wanted, MAX);
        assert!(!ahead.is_longer(MAX as u64) && ahead.is_longer(MAX as u64 + 1));
        assert!(ahead.cut() && !ahead.cut());
        assert!(ahead.is_longer(1));
        assert!(ahead.wanted(4096, 4096, true, MAX) > 0, "at once: its syncs are small");
    }

    #[test]
    fn a_volume_without_room_is_asked_seldom() {
        let mut ahead = Ahead::default();
        let attempts = (0..640).filter(|_| {
            let wanted = ahead.wanted(4096, 4096, true, MAX);
            ahead.begin(4096, 4096, true, wanted, MAX);
            if wanted > 0 {
                ahead.failed();
            }
            wanted > 0
        });
        assert_eq!(attempts.count(), 10);
    }
}
