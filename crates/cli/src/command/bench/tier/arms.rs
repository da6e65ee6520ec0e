//! What is compared.

use policy::units::{KIB, MIB};
use pool::tier::Promotion;

/// A tier or a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arm {
    /// A tier with units of so many bytes.
    Tier(Promotion, u64),
    /// The tier of [`LAZY`], with writes that stay on the fast volume.
    Back(Flushes),
    /// The tier of [`PAGES`], with writes that stay on the fast volume.
    BackPages,
    /// Whole units promoted by every miss, which waits for it.
    Demand,
    /// The slow volume alone.
    Slow,
    /// A volume as the slow one with more operations.
    Wide,
    /// The fast volume alone, with room for everything.
    Fast,
}

/// How what is dirty is written back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flushes {
    /// By the valve, in the class of copies: the default.
    Valve,
    /// In the class of copies, whatever the load is.
    Open,
    /// In the class of users' reads, whatever the load is.
    Foreground,
}

/// A tier that is written back.
pub(super) const BACK: Arm = Arm::Back(Flushes::Valve);

/// The default of a tier.
pub(super) const LAZY: Arm = Arm::Tier(Promotion::Lazy, MIB);

/// A tier with the smallest units.
pub(super) const SMALL: Arm = Arm::Tier(Promotion::Lazy, 64 * KIB);

/// A tier that installs the pages of every miss.
pub(super) const PAGES: Arm = Arm::Tier(Promotion::Demand, MIB);

impl Arm {
    /// The name in reports.
    pub(super) fn name(self) -> String {
        match self {
            LAZY => "tier".into(),
            PAGES => "tier, pages on demand".into(),
            Self::Tier(promotion, unit) => {
                format!("tier, {}, units of {} KiB", promotion.name(), unit / KIB)
            }
            BACK => "tier, write-back".into(),
            Self::Back(Flushes::Foreground) => "write-back, no valve, flushed as users read".into(),
            Self::Back(_) => "write-back, no valve".into(),
            Self::BackPages => "write-back, pages on demand".into(),
            Self::Demand => "objects on demand".into(),
            Self::Slow => "gp3 of 3,000".into(),
            Self::Wide => "gp3 of 16,000".into(),
            Self::Fast => "local disk".into(),
        }
    }

    /// Whether it has something to warm.
    pub(super) const fn is_cached(self) -> bool {
        matches!(self, Self::Tier(..) | Self::Back(_) | Self::BackPages | Self::Demand)
    }

    /// Whether writes stay in it.
    pub(super) const fn is_back(self) -> bool {
        matches!(self, Self::Back(_) | Self::BackPages)
    }
}
