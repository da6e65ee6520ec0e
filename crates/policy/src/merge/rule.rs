use crate::units::MIB;

/// By what rule files are chosen for merging.
///
/// Whatever the rule: a dead file is removed at once, without reading it; one that has nothing dead is
/// never chosen; and when there is no room for another file, the one with the least left alive goes
/// first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Rule {
    /// Bitcask's: fixed thresholds of dead bytes, oldest file first, however full the volume is. See
    /// [`Triggers`].
    Static,
    /// The file with most dead, as soon as the fill is above the target.
    Greedy,
    /// The fisherman's rule with the threshold (1 - H) · ewma: the other reading of the paper's damaged
    /// formula.
    FishermanProduct,
    /// The fisherman's rule: the file with most dead, if that is at least min(1 - H, ewma) of it, where
    /// ewma remembers what was worth merging lately. Hunger lowers the bar, and so does small fish.
    Fisherman,
    /// Records that die together lie together ([`super::Groups`]), so that files die whole; what is
    /// known to die soon is waited for as long as there is room; and what has to be copied is what gives
    /// the most room for the longest time.
    #[default]
    DeathTime,
}

impl Rule {
    /// All of them, plainest first.
    pub const ALL: [Self; 5] =
        [Self::Static, Self::Greedy, Self::FishermanProduct, Self::Fisherman, Self::DeathTime];

    /// The word for it in settings, reports and metrics.
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

    /// The one that is called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The part of a file that has to be dead for it to be merged, at a hunger and a memory of what was
    /// merged lately: D_T. At 1 only dead files are.
    #[must_use]
    pub fn threshold(self, hunger: f64, eaten: f64) -> f64 {
        if hunger <= 0.0 {
            return 1.0;
        }
        let bar = match self {
            Self::Static => 1.0,
            Self::Greedy | Self::DeathTime => 0.0,
            Self::FishermanProduct => (1.0 - hunger) * eaten,
            Self::Fisherman => (1.0 - hunger).min(eaten),
        };
        bar.max(0.0)
    }
}

/// When Bitcask merges: from its schema (`bitcask.schema`, defaults), without the key counts, which say
/// the same for records of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Triggers {
    /// A file that is dead in at least this part starts a merge.
    pub trigger_share: f64,
    /// So does one with as many dead bytes.
    pub trigger_bytes: u64,
    /// A merge takes all files that are dead in at least this part,
    pub share: f64,
    /// or have as many dead bytes,
    pub bytes: u64,
    /// or are smaller than this; but never one that has nothing dead.
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

    /// Whether a merge takes it.
    #[must_use]
    pub fn take(&self, dead: u64, bytes: u64) -> bool {
        bytes < self.small || dead >= self.bytes || dead as f64 >= self.share * bytes as f64
    }
}
