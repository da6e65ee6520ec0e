//! The rules for admission, by name.

use policy::time::Instant;

use super::admit::{Admit, Always};
use super::lazy::Lazy;
use super::options::Options;

/// A rule for admission.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Promotion {
    /// [`Always`]: every miss is admitted, as by Ceph's cache tiering, dm-cache and bcache.
    Demand,
    /// [`Lazy`]: a unit is admitted after several reads within a window, and a page of it after two.
    #[default]
    Lazy,
}

impl Promotion {
    /// Every rule.
    pub const ALL: [Self; 2] = [Self::Demand, Self::Lazy];

    /// The name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Lazy => "lazy",
        }
    }

    /// The rule for a tier with these options. `now` is the start of its first period.
    #[must_use]
    pub fn admit(self, options: &Options, now: Instant) -> Box<dyn Admit> {
        match self {
            Self::Demand => Box::new(Always),
            Self::Lazy => Box::new(Lazy::new(options.entries().into(), now)),
        }
    }
}
