//! What `[pool.<name>]` says about copies of tables that are read a lot.

use std::time::Duration;

use policy::migrate::{Policy, Terms};

use super::document::Section;
use super::{Entry, Mistake, units};

/// The keys.
pub(super) const KEYS: &[&str] = &["migrate", "migrate_interval", "migrate_copies_max"];

/// Which policy, and its terms.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Migration {
    /// Default: level.
    pub(crate) policy: Policy,
    /// Default: every 10 s, at most 4 copies.
    pub(crate) terms: Terms,
}

/// More often than that there is nothing to see.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// A copy is for less than a day.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

impl Migration {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, Mistake> {
        let mut migration = Self::default();
        if let Some(field) = section.get("migrate") {
            let words = Policy::ALL.map(Policy::name);
            migration.policy = Policy::named(field.word(&words)?).unwrap_or_default();
        }
        if let Some(field) = section.get("migrate_interval") {
            migration.terms.every = field.parsed("a duration from \"1s\" to \"1h\"", |text| {
                let range = INTERVAL_MIN..=INTERVAL_MAX;
                units::duration(text).filter(|interval| range.contains(interval))
            })?;
        }
        if let Some(field) = section.get("migrate_copies_max") {
            migration.terms.copies_max = field.number(1..=64)? as usize;
        }
        Ok(migration)
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
