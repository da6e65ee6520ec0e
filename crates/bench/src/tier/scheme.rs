//! What is compared: a policy of replacement, and a rule for which misses install their unit.

use policy::cache::Kind;

/// A column of the report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Scheme {
    /// Which unit of a full cache is evicted.
    pub kind: Kind,
    /// Which misses install their unit.
    pub promotion: Promotion,
}

/// A rule for which misses install their unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Promotion {
    /// Every miss does.
    Demand,
}

/// A [`Promotion`] at work in one cache.
pub(super) trait Promote {
    /// Whether a miss of the unit with this key installs it. Called once for each miss.
    fn promotes(&mut self, key: u64) -> bool;
}

impl Scheme {
    /// Every scheme.
    pub fn all() -> impl Iterator<Item = Self> {
        let promotions = Promotion::ALL.into_iter();
        promotions
            .flat_map(|promotion| Kind::ALL.into_iter().map(move |kind| Self { kind, promotion }))
    }

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> String {
        match self.promotion {
            Promotion::Demand => self.kind.name().into(),
        }
    }
}

impl Promotion {
    const ALL: [Self; 1] = [Self::Demand];

    /// The rule for one cache.
    pub(super) fn start(self) -> Box<dyn Promote> {
        match self {
            Self::Demand => Box::new(Always),
        }
    }
}

struct Always;

impl Promote for Always {
    fn promotes(&mut self, _: u64) -> bool {
        true
    }
}
