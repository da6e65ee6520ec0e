//! What is compared: a policy of replacement, and a rule for which misses install their unit.

use policy::cache::Kind;
use policy::promote::{Access, Filter, Options, Period, Verdict};
use policy::time::Instant;

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
    /// A miss of a unit that [`Filter`] finds hot does, reads and writes alike.
    Lazy,
}

/// A [`Promotion`] at work in one cache.
pub(super) trait Promote {
    /// Whether a miss installs its unit. Called once for each miss.
    fn promotes(&mut self, miss: Access, now: Instant) -> bool;

    /// A unit was installed.
    fn promoted(&mut self, key: u64) -> Period {
        let _ = key;
        Period::default()
    }

    /// A hit of a unit that was installed in this period.
    fn hit(&mut self, promoted: Period, now: Instant) {
        let _ = (promoted, now);
    }
}

impl Scheme {
    /// Every scheme.
    pub fn all() -> impl Iterator<Item = Self> {
        Promotion::ALL.into_iter().flat_map(Self::of)
    }

    /// The schemes with one rule, by policy.
    pub(super) fn of(promotion: Promotion) -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().map(move |kind| Self { kind, promotion })
    }

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> String {
        match self.promotion {
            Promotion::Demand => self.kind.name().into(),
            Promotion::Lazy => format!("{} lazy", self.kind.name()),
        }
    }
}

impl Promotion {
    /// Every rule.
    pub(super) const ALL: [Self; 2] = [Self::Demand, Self::Lazy];

    /// The name in titles.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Demand => "on demand",
            Self::Lazy => "lazy",
        }
    }

    /// The rule for one cache of `room` units.
    pub(super) fn start(self, room: usize) -> Box<dyn Promote> {
        match self {
            Self::Demand => Box::new(Always),
            Self::Lazy => Box::new(Filter::new(Options::new(room as u64), Instant::ZERO)),
        }
    }
}

struct Always;

impl Promote for Always {
    fn promotes(&mut self, _: Access, _: Instant) -> bool {
        true
    }
}

impl Promote for Filter {
    fn promotes(&mut self, miss: Access, now: Instant) -> bool {
        self.adjust(now);
        self.note(miss, now) == Verdict::Promote
    }

    fn promoted(&mut self, key: u64) -> Period {
        Self::promoted(self, key)
    }

    fn hit(&mut self, promoted: Period, now: Instant) {
        Self::hit(self, promoted, now);
    }
}
