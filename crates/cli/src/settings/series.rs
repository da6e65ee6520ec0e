//! `[series]`: the store of time series.

use std::time::Duration;

use engine::series::Durability;
use engine::series::store::Options;
use policy::units::MIB;

use super::document::{Field, Section};
use super::mistake::Mistake;
use super::{Entry, Pool, kv, pool, units};

/// The keys of the store.
pub(super) const KEYS: &[&str] = &[
    "pool",
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
    "io_weight",
    "scrub_every",
];

const DURABILITIES: [&str; 3] = ["always", "everysec", "none"];

/// Less memory makes blocks of a few points.
const MEMORY_MIN: u64 = MIB;

/// The store.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// What it is on.
    pub(crate) on: On,
    /// Its options.
    pub(crate) options: Options,
    /// Its I/O weight beside the other store on the pool. Default 1.
    pub(crate) io_weight: u32,
    /// What an acknowledgement survives: one of [`DURABILITIES`].
    durability: &'static str,
    sync_interval: Duration,
}

/// What the store is on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum On {
    /// A pool, which other stores may share.
    Pool(String),
    /// Volumes of its own, which belong to no pool.
    Volumes(Vec<String>),
}

impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        // Entries show every setting.
        self.entries() == other.entries()
    }
}

impl Series {
    /// Reads the store on one of the pools, or on some of the volumes with these names. `others` are the sections of other
    /// stores, and their pools.
    pub(super) fn read(
        section: &Section<'_>,
        volumes: &[&str],
        pools: &[Pool],
        others: &[(&str, String)],
    ) -> Option<Self> {
        let on = match (section.get("pool"), section.get("volumes")) {
            (Some(field), Some(_)) => {
                section.note(field.mistaken("a pool and volumes", "one of the two"));
                None
            }
            (Some(_), None) => {
                section.read("pool", |field| pool_of(field, pools, others)).map(On::Pool)
            }
            (None, _) => {
                let accepted = "volumes that are of no pool, or pool, the name of one";
                let read = |field: &Field<'_>| own_volumes(field, volumes, pools);
                section.need("volumes", accepted, read).map(On::Volumes)
            }
        };
        let count = match &on {
            Some(On::Pool(name)) => {
                let of = pools.iter().find(|pool| pool.name == *name);
                of.map_or(1, |pool| pool.leaves(pools).len())
            }
            Some(On::Volumes(volumes)) => volumes.len(),
            None => 1,
        };
        let mut options = Options::new(u16::try_from(count).unwrap_or(u16::MAX));
        let durability =
            section.read_or("durability", "everysec", |field| field.word(&DURABILITIES));
        let interval = section.read_or("sync_interval", Duration::from_secs(1), |field| {
            let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(60));
            field.parsed("a duration from \"10ms\" to \"60s\"", |text| {
                units::duration(text).filter(|wait| (shortest..=longest).contains(wait))
            })
        });
        options.durability = match durability {
            "always" => Durability::Always,
            "none" => Durability::Never,
            _ => Durability::Interval(interval),
        };
        let size = |key, usual: u64| {
            section.read_or(key, usual, |field| {
                field.parsed("a size of at least \"1KiB\"", |text| {
                    units::size(text).filter(|&bytes| bytes >= 1024)
                })
            })
        };
        options.buffer_bytes = size("memory", options.buffer_bytes);
        if let (Some(field), true) = (section.get("memory"), options.buffer_bytes < MEMORY_MIN) {
            section.note(field.mistake("at least \"1MiB\""));
        }
        options.source_bytes = size("source_memory", options.source_bytes);
        options.wal_bytes = size("wal", options.wal_bytes);
        options.age = section.read_or("age", options.age, |field| {
            let positive = |text: &str| units::duration(text).filter(|age| !age.is_zero());
            field.parsed("a duration above zero, such as \"1h\"", positive)
        });
        let series_max = |field: &Field<'_>| field.number(1..=1 << 40);
        options.series_max = section.read_or("series_max", options.series_max, series_max);
        options.log.index_bytes_max = size("index_memory", options.log.index_bytes_max);
        options.log.index_setting = "index_memory under [series]";
        options.full = section.read_or("full", options.full, |field| {
            let part = field.fraction()?;
            let range = 0.1..=1.0;
            let wrong = || field.mistake("a part of a volume, from 0.1 to 1");
            range.contains(&part).then_some(part).ok_or_else(wrong)
        });
        let io_weight = kv::io_weight(section);
        let is_on_pool = matches!(on, Some(On::Pool(_)));
        options.scrub_every =
            pool::scrub_every(section, (!is_on_pool).then_some(policy::scrub::PERIOD));
        if let (Some(field), true) = (section.get("scrub_every"), is_on_pool) {
            section.note(
                field.mistaken("scrub_every of a store on a pool", "scrub_every of that pool"),
            );
        }
        Some(Self { on: on?, options, io_weight, durability, sync_interval: interval })
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |key, value: &dyn std::fmt::Display| Entry::new("series", key, value);
        let size = units::show_size;
        let Options { buffer_bytes, source_bytes, age, wal_bytes, series_max, full, log, .. } =
            &self.options;
        let mut entries = vec![
            match &self.on {
                On::Pool(pool) => entry("pool", &format_args!("{pool:?}")),
                On::Volumes(volumes) => entry("volumes", &toml::Value::from(volumes.clone())),
            },
            entry("durability", &format_args!("{:?}", self.durability)),
            entry("sync_interval", &units::show_duration(self.sync_interval)),
            entry("memory", &size(*buffer_bytes)),
            entry("source_memory", &size(*source_bytes)),
            entry("age", &units::show_duration(*age)),
            entry("wal", &size(*wal_bytes)),
            entry("series_max", series_max),
            entry("index_memory", &size(log.index_bytes_max)),
            entry("full", &toml::Value::from(*full)),
            entry("io_weight", &self.io_weight),
        ];
        if matches!(self.on, On::Volumes(_)) {
            entries.push(entry("scrub_every", &pool::show_scrub_every(self.options.scrub_every)));
        }
        entries
    }
}

/// The name of a store's pool. It may be that of other stores, whose sections and pools `others` has, or one that has no
/// volume and no pool in common with theirs.
pub(super) fn pool_of(
    field: &Field<'_>,
    pools: &[Pool],
    others: &[(&str, String)],
) -> Result<String, Mistake> {
    let names: Vec<_> = pools.iter().map(|pool| &*pool.name).collect();
    let name = field.known(&names)?;
    Pool::check_for_store(field, name, pools)?;
    for (section, other) in others {
        Pool::check_apart(field, name, (*section, other.as_str()), pools)?;
    }
    Ok(name.to_owned())
}

/// The names of volumes that are of no pool.
fn own_volumes(
    field: &Field<'_>,
    volumes: &[&str],
    pools: &[Pool],
) -> Result<Vec<String>, Mistake> {
    field.list("a list of volumes that are of no pool", |field| {
        let name = field.known(volumes)?;
        let has = |pool: &&Pool| pool.volumes.iter().any(|volume| volume == name);
        match pools.iter().find(has) {
            None => Ok(name.to_owned()),
            Some(pool) => {
                let found = format!("{name:?}, a volume of pool.{}", pool.name);
                Err(field.mistaken(found, format!("volumes of no pool, or pool = {:?}", pool.name)))
            }
        }
    })
}
