//! Which logs are written ahead, and how far.
//!
//! A sync that makes a file longer also makes the file system write its journal: three writes on ext4 where one has the
//! data, so a log of small synced records costs three times its data. Bytes over others cost no journal. So a sync now and then writes
//! filling behind the end of the log, and the syncs after it write over that.
//!
//! The filling is written once more than the data need. What that weighs depends on the volume: nothing where only operations
//! are charged and the filling goes with the data in one, much where bytes are scarce. So logs are left alone where syncs are too
//! large for it, and until a log was synced so often that the journal took as much as the filling will.

use crate::price::Price;

/// Small syncs in a row that have to make the log longer after an attempt for which the volume had no room.
const SYNCS_AFTER_FAILURE: u32 = 64;
/// More than this is not written ahead at once, in operations: the sync that does it takes longer than others.
const OPERATIONS_MAX: usize = 4;
/// A sync writes an operation more of filling only if that saves so many times as much for each byte of the log.
const GAIN: f64 = 1.05;
/// What may be written beside the bytes of a sync and its filling: parts of pages at both ends.
const BESIDE: usize = 2 * 4096;

/// What a volume charges for logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The price of operations and bytes.
    pub price: Price,
    /// The operations that the file system's journal adds to a sync that makes a file longer.
    pub journal_ops: u64,
    /// The most bytes of a sync with its filling; 0 where logs are not written ahead.
    pub max: usize,
}

impl Terms {
    /// The operations of a sync of `bytes`.
    const fn operations(&self, bytes: usize) -> u64 {
        (bytes as u64).div_ceil(self.price.io_max)
    }

    /// What filling up to `window` weighs, beside a sync of `bytes`.
    fn filling(&self, bytes: usize, window: usize) -> f64 {
        let more = self.operations(window).saturating_sub(self.operations(bytes));
        self.price.weight(more, window.saturating_sub(bytes) as u64)
    }

    /// What it saves to write a `window` ahead with a sync of `bytes`, if those that follow have as many: for each of its bytes.
    fn saved(&self, bytes: usize, window: usize) -> f64 {
        // The next filling comes with the last sync that finds room.
        let syncs = (window.saturating_sub(BESIDE) / bytes).saturating_sub(1);
        let journal = self.price.weight(self.journal_ops, 0) * syncs.saturating_sub(1) as f64;
        (journal - self.filling(bytes, window)) / (syncs.max(1) * bytes) as f64
    }

    /// How far ahead a sync of `bytes` writes a log of `len` bytes, with its own; `None` if that saves nothing.
    fn window(&self, len: u64, bytes: usize) -> Option<usize> {
        let operation = usize::try_from(self.price.io_max).unwrap_or(usize::MAX);
        // A log that ends soon has not taken much more room than it needs.
        let most = self.max.min(usize::try_from(len).unwrap_or(usize::MAX).max(operation));
        let sizes = (1..=OPERATIONS_MAX).map(|operations| operation.saturating_mul(operations));
        let mut best = None;
        for window in sizes.map(|size| size.min(most)) {
            let least = best.map_or(0.0, |(saved, _)| saved * GAIN);
            let saved = self.saved(bytes, window);
            if saved > least {
                best = Some((saved, window));
            }
        }
        best.map(|(_, window)| window)
    }

    /// The small syncs after which the journal has taken as much as the filling of `window` will.
    fn syncs_before(&self, bytes: usize, window: usize) -> u32 {
        (self.filling(bytes, window) / self.price.weight(self.journal_ops, 0)).ceil() as u32
    }
}

/// What a gate knows of one log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ahead {
    /// The small syncs in a row that made it longer.
    longer: u32,
    /// As many more have to.
    pause: u32,
    /// Bytes below are written, if only with filling.
    end: u64,
}

impl Ahead {
    /// Whether a write up to `end` makes the file longer.
    #[must_use]
    pub const fn is_longer(&self, end: u64) -> bool {
        end > self.end
    }

    /// How many bytes of filling a sync of `bytes` writes behind the end of the log at `len`. Zero for most syncs.
    #[must_use]
    pub fn wanted(&self, len: u64, bytes: usize, is_longer: bool, terms: &Terms) -> usize {
        let is_ahead = self.end > 0;
        let may_be_due = match is_ahead {
            // The next sync of this kind would make the file longer.
            true => self.end < len + bytes as u64,
            false => is_longer && self.longer >= self.pause,
        };
        if !may_be_due || bytes == 0 {
            return 0;
        }
        let Some(window) = terms.window(len, bytes) else { return 0 };
        let is_due = is_ahead || self.longer - self.pause >= terms.syncs_before(bytes, window);
        if is_due { window.saturating_sub(bytes + BESIDE) } else { 0 }
    }

    /// A sync of `bytes` begins, which writes `wanted` bytes ahead of `len`.
    pub fn begin(&mut self, len: u64, bytes: usize, is_longer: bool, wanted: usize, terms: &Terms) {
        if wanted > 0 {
            self.end = len + wanted as u64;
        }
        if bytes == 0 || !is_longer {
            return;
        }
        match terms.window(len, bytes) {
            Some(_) => self.longer = self.longer.saturating_add(1),
            None => self.longer = 0,
        }
    }

    /// The volume wrote nothing ahead.
    pub const fn failed(&mut self) {
        *self = Self { longer: 0, pause: SYNCS_AFTER_FAILURE, end: 0 };
    }

    /// The log was cut. Says whether something was written ahead.
    pub const fn cut(&mut self) -> bool {
        std::mem::replace(&mut self.end, 0) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{KIB, MIB};

    const GP3: Terms = terms(Some(43_690));
    /// A contract of operations alone.
    const OPERATIONS: Terms = terms(None);

    const fn terms(bytes_per_operation: Option<u64>) -> Terms {
        let price = Price::new(bytes_per_operation, 256 * KIB);
        Terms { price, journal_ops: 2, max: MIB as usize }
    }

    struct Log {
        /// Operations of its syncs.
        operations: u64,
        /// Syncs that made the file longer.
        longer: u64,
        filling: usize,
        /// Bytes of the log, and of its file.
        len: u64,
        file: u64,
    }

    /// Appends `records`, each with a sync.
    fn log_of(terms: Terms, records: impl IntoIterator<Item = usize>) -> Log {
        let mut ahead = Ahead::default();
        let mut log = Log { operations: 0, longer: 0, filling: 0, len: 0, file: 0 };
        for bytes in records {
            log.len += bytes as u64;
            let is_longer = ahead.is_longer(log.len);
            let wanted = ahead.wanted(log.len, bytes, is_longer, &terms);
            ahead.begin(log.len, bytes, is_longer, wanted, &terms);
            let is_longer = is_longer || wanted > 0;
            log.longer += u64::from(is_longer);
            log.operations += terms.operations(bytes + wanted);
            log.operations += if is_longer && bytes > 0 { terms.journal_ops } else { 0 };
            log.filling += wanted;
            log.file = log.file.max(log.len + wanted as u64);
        }
        log
    }

    #[test]
    fn small_syncs_seldom_make_the_file_longer() {
        let log = log_of(GP3, [4096; 3 + 100 * 61]);
        assert_eq!(log.longer, 3 + 100, "one in 61");
        assert!(log.filling as u64 <= log.len, "the data once more: {}", log.filling);
    }

    #[test]
    fn all_small_sizes_are_written_ahead() {
        let log = log_of(GP3, [48 << 10; 400]);
        assert!(log.longer <= 3 + 100, "{}", log.longer);
        let log = log_of(GP3, (0..10_000).map(|nth| 100 + nth % 4000));
        assert!(log.longer < 100, "{} of 10,000", log.longer);
    }

    #[test]
    fn logs_of_few_or_large_syncs_are_left_alone_where_bytes_are_charged() {
        assert_eq!(log_of(GP3, [4096; 3]).filling, 0);
        assert_eq!(log_of(GP3, [100 << 10; 100]).filling, 0);
        let mixed = (0..100).map(|nth| if nth % 4 == 0 { 1 << 20 } else { 4096 });
        let log = log_of(GP3, mixed);
        assert_eq!((log.longer, log.filling), (100, 0));
        assert_eq!(log_of(GP3, [0; 100]).longer, 0, "nothing was written");
    }

    /// A group of 16 pages is a sync of 68 KiB: it cost three operations.
    #[test]
    fn where_bytes_cost_nothing_groups_are_written_ahead_from_the_first() {
        let log = log_of(OPERATIONS, [4096; 1]);
        assert_eq!((log.operations, log.filling > 0), (3, true), "filling costs no operation");
        for (bytes, most) in [(4, 1.1), (68, 1.5), (128, 1.9), (252, 2.7)] {
            let log = log_of(OPERATIONS, [bytes << 10; 1000]);
            let each = log.operations as f64 / 1000.0;
            assert!(each < most, "{bytes} KiB: {each} instead of 3");
        }
        assert_eq!(log_of(OPERATIONS, [MIB as usize; 100]).filling, 0, "it saves nothing");
    }

    #[test]
    fn a_short_log_takes_little_more_room() {
        for mib in 1..40 {
            let log = log_of(OPERATIONS, vec![68 << 10; mib * 15]);
            let more = log.file - log.len;
            assert!(more <= MIB.min(256 * KIB + log.len), "{more} beside {}", log.len);
        }
        assert!(log_of(OPERATIONS, [4096; 3]).file <= 260 * KIB);
    }

    #[test]
    fn a_log_that_was_cut_begins_anew() {
        let mut ahead = Ahead { longer: 9, ..Ahead::default() };
        let wanted = ahead.wanted(4096, 4096, true, &GP3);
        ahead.begin(4096, 4096, true, wanted, &GP3);
        let end = 4096 + wanted as u64;
        assert!(!ahead.is_longer(end) && ahead.is_longer(end + 1));
        assert!(ahead.cut() && !ahead.cut());
        assert!(ahead.is_longer(1));
        assert!(ahead.wanted(4096, 4096, true, &GP3) > 0, "at once: its syncs are small");
    }

    #[test]
    fn a_volume_without_room_is_asked_seldom() {
        for terms in [GP3, OPERATIONS] {
            let mut ahead = Ahead::default();
            let attempts = (0..640).filter(|_| {
                let wanted = ahead.wanted(4096, 4096, true, &terms);
                ahead.begin(4096, 4096, true, wanted, &terms);
                if wanted > 0 {
                    ahead.failed();
                }
                wanted > 0
            });
            let attempts = attempts.count();
            assert!((9..=11).contains(&attempts), "{attempts}");
        }
    }
}
