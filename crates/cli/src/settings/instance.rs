//! `[instance]`: the limits of the machine for all its volumes together.

use policy::contract::instance;
use policy::units::{BytesPerSec, Iops, MIB};

use super::Entry;
use super::document::Section;

/// The keys of the instance.
pub(super) const KEYS: &[&str] = &["iops", "mib_per_s"];

/// The limits of the machine. Default: none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Instance {
    iops: Option<u64>,
    mib_per_s: Option<u64>,
}

impl Instance {
    /// Reads the limits of a machine with `volumes` volumes in use: each must get at least one unit.
    pub(super) fn read(section: &Section<'_>, volumes: u64) -> Self {
        let number = |key, most| section.read(key, |field| field.number(volumes..=most));
        Self { iops: number("iops", u64::MAX), mib_per_s: number("mib_per_s", u64::MAX / MIB) }
    }

    pub(crate) fn limits(self) -> instance::Instance {
        instance::Instance {
            ops_per_sec: self.iops,
            bytes_per_sec: self.mib_per_s.map(|mib| mib * MIB),
        }
    }

    /// The limits in words: `12000 IOPS, 593 MiB/s`.
    pub(crate) fn in_words(self) -> String {
        let instance::Instance { ops_per_sec, bytes_per_sec } = self.limits();
        let limits = [
            ops_per_sec.map(|iops| Iops(iops).to_string()),
            bytes_per_sec.map(|bytes| BytesPerSec(bytes).to_string()),
        ];
        let limits: Vec<_> = limits.into_iter().flatten().collect();
        if limits.is_empty() { "no limits".into() } else { limits.join(", ") }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let limits = [("iops", self.iops), ("mib_per_s", self.mib_per_s)];
        let given = limits.into_iter().filter_map(|(key, value)| Some((key, value?)));
        given.map(|(key, value)| Entry::new("instance", key, value)).collect()
    }
}
