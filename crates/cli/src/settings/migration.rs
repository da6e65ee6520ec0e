//! The part of `[pool.<name>]` about copies of hot tables.

use std::time::Duration;

use policy::migrate::{Policy, Terms};

use super::document::Section;
use super::{Entry, units};

/// The keys.
pub(super) const KEYS: &[&str] = &["migrate", "migrate_interval", "migrate_copies_max"];

/// The policy, and its terms.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Migration {
    /// Default: level; off for a pool of pools, which level their own volumes.
    pub(crate) policy: Policy,
    /// Default: every 10 s, at most 4 copies.
    pub(crate) terms: Terms,
}

/// A shorter interval shows nothing new.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// A copy is useful for less than a day.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

impl Migration {
    /// Reads it for a pool of volumes, or of pools.
    pub(super) fn read(section: &Section<'_>, is_of_pools: bool) -> Self {
        let mut migration = Self::default();
        let usual = if is_of_pools { Policy::Off } else { Policy::default() };
        let words = Policy::ALL.map(Policy::name);
        let word = section.read("migrate", |field| field.word(&words));
        migration.policy = word.and_then(Policy::named).unwrap_or(usual);
        let terms = &mut migration.terms;
        terms.every = section.read_or("migrate_interval", terms.every, |field| {
            field.parsed("a duration from \"1s\" to \"1h\"", |text| {
                let range = INTERVAL_MIN..=INTERVAL_MAX;
                units::duration(text).filter(|interval| range.contains(interval))
            })
        });
        let copies_max = section.read("migrate_copies_max", |field| field.number(1..=64));
        terms.copies_max = copies_max.map_or(terms.copies_max, |number| number as usize);
        migration
    }

    pub(super) fn entries(&self, section: &str) -> [Entry; 3] {
        let Self { policy, terms } = self;
        [
            Entry::new(section, "migrate", format_args!("{:?}", policy.name())),
            Entry::new(section, "migrate_interval", units::show_duration(terms.every)),
            Entry::new(section, "migrate_copies_max", terms.copies_max),
        ]
    }
}
