//! The schedulers that a volume's settings can choose, by name.

use super::seconds::{Dynamic, Seconds, Stabilizer, Static, Windows};
use super::{Pass, Scheduler, Strict, Tags};
use crate::budget::Share;
use crate::contract::Contract;
use crate::time::Instant;

/// The default length of a class's queue from which refusable requests are refused. A copy keeps eight pieces in
/// flight; this is room for eight copies.
pub const QUEUE_MAX: usize = 64;

/// The scheduler of a gate.
///
/// [`Policy::Tags`] is the default; [`Policy::TagsP99`] is for users who care for the 99th percentile alone. The others
/// are for comparison: docs/adr/0009-the-scheduler-of-a-gate.md says what was published and what differs here.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Policy {
    /// Every request goes at once and is counted: the provider throttles. See [`Pass`].
    None,
    /// One pool of the paid tokens a second, first come first served: the paper's NA. See [`Stabilizer`].
    Stabilizer,
    /// A fixed pool for each group of classes: the paper's SA. See [`Static`].
    Static,
    /// Pools resized each second: the paper's DA. See [`Dynamic`].
    Dynamic,
    /// One pool, and for each class a part of the second in which it may take tokens: the paper's TWA. See
    /// [`Windows::published`].
    Windows,
    /// The same with the constants and the random order of the paper's released code. See
    /// [`Windows::released`].
    WindowsReleased,
    /// Our continuous budget, the most urgent class first. See [`Strict`].
    Strict,
    /// Our continuous budget with a reservation for each class. See [`Tags`].
    #[default]
    Tags,
    /// The same for the best 99th percentile: users pause together, so that few wait and the others go at once. See
    /// [`Tags::for_p99`].
    TagsP99,
}

impl Policy {
    /// All of them, simplest first.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Stabilizer,
        Self::Static,
        Self::Dynamic,
        Self::Windows,
        Self::WindowsReleased,
        Self::Strict,
        Self::Tags,
        Self::TagsP99,
    ];

    /// Those that a volume in use may have, the default first: none of them overdraws the provider. The others are
    /// published schedulers and [`Policy::None`], for comparisons.
    pub const SERVED: [Self; 3] = [Self::Tags, Self::TagsP99, Self::Strict];

    /// Its name in settings, reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stabilizer => "stabilizer",
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::Windows => "windows",
            Self::WindowsReleased => "windows-released",
            Self::Strict => "strict",
            Self::Tags => "tags",
            Self::TagsP99 => "tags-p99",
        }
    }

    /// The policy called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether it never asks the provider for more than was paid, if its gate is the volume's only client and the
    /// share's rho is at most 0.98. The paper's schemes hand out a second's tokens at its start; the provider has not
    /// earned them by then if the second before ended in a burst.
    #[must_use]
    pub const fn never_overdraws(self) -> bool {
        matches!(self, Self::Strict | Self::Tags | Self::TagsP99)
    }

    /// A scheduler of that kind.
    ///
    /// `queue_max` bounds the queue of a class for refusable requests only, usually [`QUEUE_MAX`]. `share` says how
    /// much of the contract is used; the paper's schemes use all paid operations, and apply it to bytes only.
    #[must_use]
    pub fn build(
        self,
        contract: &Contract,
        share: Share,
        queue_max: usize,
        now: Instant,
    ) -> Box<dyn Scheduler> {
        let seconds = (contract, share, queue_max, now);
        match self {
            Self::None => Box::new(Pass::new(contract)),
            Self::Stabilizer => Box::new(Seconds::new(Stabilizer, seconds)),
            Self::Static => Box::new(Seconds::new(Static, seconds)),
            Self::Dynamic => Box::new(Seconds::new(Dynamic::new(), seconds)),
            Self::Windows => Box::new(Seconds::new(Windows::published(), seconds)),
            Self::WindowsReleased => Box::new(Seconds::new(Windows::released(), seconds)),
            Self::Strict => Box::new(Strict::new(contract, share, queue_max, now)),
            Self::Tags => Box::new(Tags::new(contract, share, queue_max, now)),
            Self::TagsP99 => Box::new(Tags::for_p99(contract, share, queue_max, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(Policy::named(policy.name()), Some(policy));
        }
        assert_eq!(Policy::named("tag"), None);
        assert_eq!(Policy::default().name(), "tags");
    }
}
