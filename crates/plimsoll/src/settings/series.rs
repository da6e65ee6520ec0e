//! `[series]`: the store of time series.

use std::time::Duration;

use engine::series::Durability;
use engine::series::store::Options;
use policy::units::MIB;

use super::document::Section;
use super::{Entry, Mistake, Pool, Volume, units};

/// The keys of the store.
pub(super) const KEYS: &[&str] = &[
    "volumes",
    "durability",
    "sync_interval",
    "memory",
    "source_memory",
    "age",
    "wal",
    "series_max",
    "index_memory",
    "full",
];

const DURABILITIES: [&str; 3] = ["always", "everysec", "none"];

/// Fewer bytes make blocks of a few points.
const MEMORY_MIN: u64 = MIB;

/// The store.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// The volumes it is on, which are of no pool.
    pub(crate) volumes: Vec<String>,
    /// How it is kept.
    pub(crate) options: Options,
    /// What an answer survives: one of [`DURABILITIES`].
    durability: &'static str,
    sync_interval: Duration,
}

impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        // Everything people can set shows.
        self.entries() == other.entries()
    }
}

impl Series {
    pub(super) fn read(
        section: &Section<'_>,
        volumes: &[Volume],
        pools: &[Pool],
    ) -> Result<Self, Mistake> {
        let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        let listed = section.require("volumes", "a list of volumes that are of no pool")?;
        let mut chosen = Vec::new();
        for field in listed.list("a list of volumes that are of no pool")? {
            let name = field.word(&names)?.to_owned();
            if let Some(pool) = pools.iter().find(|pool| pool.volumes.contains(&name)) {
                let found = format!("{name:?}, a volume of pool.{}", pool.name);
                return Err(field.mistaken(found, "volumes of no pool"));
            }
            chosen.push(name);
        }
        let mut options = Options::new(u16::try_from(chosen.len()).unwrap_or(u16::MAX));
        let durability =
            section.get("durability").map_or(Ok("everysec"), |field| field.word(&DURABILITIES))?;
        let interval =
            section.get("sync_interval").map_or(Ok(Duration::from_secs(1)), |field| {
                let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(60));
                field.parsed("a duration from \"10ms\" to \"60s\"", |text| {
                    units::duration(text).filter(|wait| (shortest..=longest).contains(wait))
                })
            })?;
        options.durability = match durability {
            "always" => Durability::Always,
            "none" => Durability::Never,
            _ => Durability::Interval(interval),
        };
        let size = |key, usual: u64| match section.get(key) {
            None => Ok(usual),
            Some(field) => field.parsed("a size of at least \"1KiB\"", |text| {
                units::size(text).filter(|&bytes| bytes >= 1024)
            }),
        };
        options.buffer_bytes = size("memory", options.buffer_bytes)?;
        if let (Some(field), true) = (section.get("memory"), options.buffer_bytes < MEMORY_MIN) {
            return Err(field.mistake("at least \"1MiB\""));
        }
        options.source_bytes = size("source_memory", options.source_bytes)?;
        options.wal_bytes = size("wal", options.wal_bytes)?;
        if let Some(field) = section.get("age") {
            let positive = |text: &str| units::duration(text).filter(|age| !age.is_zero());
            options.age = field.parsed("a duration above zero, such as \"1h\"", positive)?;
        }
        if let Some(field) = section.get("series_max") {
            options.series_max = field.number(1..=1 << 40)?;
        }
        options.log.index_bytes_max = size("index_memory", options.log.index_bytes_max)?;
        options.log.index_setting = "index_memory under [series]";
        if let Some(field) = section.get("full") {
            options.full = field.fraction()?;
            if !(0.1..=1.0).contains(&options.full) {
                return Err(field.mistake("a part of a volume, from 0.1 to 1"));
            }
        }
        Ok(Self { volumes: chosen, options, durability, sync_interval: interval })
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |key, value: &dyn std::fmt::Display| Entry::new("series", key, value);
        let size = units::show_size;
        let Options { buffer_bytes, source_bytes, age, wal_bytes, series_max, full, log, .. } =
            &self.options;
        vec![
            entry("volumes", &toml::Value::from(self.volumes.clone())),
            entry("durability", &format_args!("{:?}", self.durability)),
            entry("sync_interval", &units::show_duration(self.sync_interval)),
            entry("memory", &size(*buffer_bytes)),
            entry("source_memory", &size(*source_bytes)),
            entry("age", &units::show_duration(*age)),
            entry("wal", &size(*wal_bytes)),
            entry("series_max", series_max),
            entry("index_memory", &size(log.index_bytes_max)),
            entry("full", &toml::Value::from(*full)),
        ]
    }
}
