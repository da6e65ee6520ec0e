use crate::units::MIB;

/// The rule that chooses files to merge.
///
/// Under every rule a dead file is removed at once, without reading it, and a file without dead bytes is never chosen.
/// When there is no room for another file, the one with the fewest live bytes goes first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Rule {
    /// Bitcask's: fixed thresholds of dead bytes, oldest file first, at any fill. See [`Triggers`].
    Static,
    /// The file with the most dead bytes, once the fill is above the target.
    Greedy,
    /// The fisherman's rule with the threshold (1 - H) · ewma: the other reading of the formula, which is damaged in
    /// the paper.
    FishermanProduct,
    /// The fisherman's rule: the file with the largest dead part, if that is at least min(1 - H, ewma), where ewma
    /// averages the dead parts of recently merged files. Space pressure lowers the threshold, and so do small dead
    /// parts.
    Fisherman,
    /// Records that die together are stored together ([`super::Groups`]), so that files die whole. Files that are known
    /// to die soon are left alone while there is room. Among the others, the file that frees the most room for the
    /// longest time is copied.
    #[default]
    DeathTime,
}

impl Rule {
    /// All of them, simplest first.
    pub const ALL: [Self; 5] =
        [Self::Static, Self::Greedy, Self::FishermanProduct, Self::Fisherman, Self::DeathTime];

    /// Its name in settings, reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Greedy => "greedy",
            Self::FishermanProduct => "fisherman-product",
            Self::Fisherman => "fisherman",
            Self::DeathTime => "death-time",
        }
    }

    /// The rule called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The part of a file that must be dead to merge it, at a space pressure and an average of recent merges: D_T. At 1
    /// only dead files qualify.
    #[must_use]
    pub fn threshold(self, space_pressure: f64, eaten: f64) -> f64 {
        if space_pressure <= 0.0 {
            return 1.0;
        }
        let bar = match self {
            Self::Static => 1.0,
            Self::Greedy | Self::DeathTime => 0.0,
            Self::FishermanProduct => (1.0 - space_pressure) * eaten,
            Self::Fisherman => (1.0 - space_pressure).min(eaten),
        };
        bar.max(0.0)
    }
}

/// When Bitcask merges, from its schema (`bitcask.schema`, defaults). The key counts are left out: for records of equal
/// size they are equivalent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Triggers {
    /// A file with at least this dead part starts a merge.
    pub trigger_share: f64,
    /// So does one with this many dead bytes.
    pub trigger_bytes: u64,
    /// A merge takes all files with at least this dead part,
    pub share: f64,
    /// or with this many dead bytes,
    pub bytes: u64,
    /// or smaller than this, but never one without dead bytes.
    pub small: u64,
}

impl Default for Triggers {
    fn default() -> Self {
        Self {
            trigger_share: 0.6,
            trigger_bytes: 512 * MIB,
            share: 0.4,
            bytes: 128 * MIB,
            small: 10 * MIB,
        }
    }
}

impl Triggers {
    /// Whether a file starts a merge.
    #[must_use]
    pub fn start(&self, dead: u64, bytes: u64) -> bool {
        dead >= self.trigger_bytes || dead as f64 >= self.trigger_share * bytes as f64
    }

    /// Whether a merge takes a file.
    #[must_use]
    pub fn take(&self, dead: u64, bytes: u64) -> bool {
        bytes < self.small || dead >= self.bytes || dead as f64 >= self.share * bytes as f64
    }
}
