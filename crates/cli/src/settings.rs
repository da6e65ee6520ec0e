//! The settings file: TOML in, valid types out, or all mistakes with their places.
//!
//! ```text
//! text -> document (tables with places) -> volume, instance, pool, kv, series, http, mqtt, block, admin
//!                                       (defaults, units, limits)
//!                                       -> between sections: names that exist, paths that differ
//! ```
//!
//! Every default is in the `Default` of its section; no crate below the binary reads settings.

mod admin;
mod block;
mod document;
mod edit;
mod http;
mod instance;
mod kv;
mod listen;
mod migration;
mod mistake;
mod mqtt;
mod nearest;
mod pool;
mod series;
mod store;
mod tier;
mod units;
mod volume;

use std::fmt;
use std::path::Path;

pub(crate) use self::admin::Admin;
pub(crate) use self::block::Block;
use self::document::{Document, Section};
pub(crate) use self::edit::Edit;
pub(crate) use self::http::Http;
use self::instance::Instance;
pub(crate) use self::kv::Kv;
pub(crate) use self::listen::Listen;
use self::mistake::Mistake;
pub(crate) use self::mistake::Mistakes;
pub(crate) use self::mqtt::Mqtt;
pub(crate) use self::pool::{Overlap, PLACEMENTS, Placement, Pool};
pub(crate) use self::series::{On, Series};
pub(crate) use self::tier::Tier;
pub(crate) use self::units::size;
pub(crate) use self::volume::{Volume, sold, terms};

/// All settings of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// The device volumes, by name.
    pub(crate) volumes: Vec<Volume>,
    /// The limits of the machine for all of them.
    pub(crate) instance: Instance,
    /// The pools over them, by name.
    pub(crate) pools: Vec<Pool>,
    /// The key-value store and its listener, if there is one.
    pub(crate) kv: Option<Kv>,
    /// The store of time series and its listener, if there is one.
    pub(crate) series: Option<(Series, Http)>,
    /// The broker that delivers more points, if there is one.
    pub(crate) mqtt: Option<Mqtt>,
    /// The store of block devices and its listener, if there is one.
    pub(crate) block: Option<Block>,
    /// The admin listener, if there is one.
    pub(crate) admin: Option<Admin>,
}

/// One effective setting, as written in a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    /// Its section: `volume.a`.
    pub(crate) section: String,
    /// Its key.
    pub(crate) key: &'static str,
    /// Its value in TOML; masked if secret.
    pub(crate) value: String,
}

impl Entry {
    fn new(section: &str, key: &'static str, value: impl fmt::Display) -> Self {
        Self { section: section.into(), key, value: value.to_string() }
    }

    fn dotted(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }
}

const SECTIONS: &[&str] =
    &["admin", "block", "http", "instance", "kv", "mqtt", "pool", "series", "volume"];

impl Settings {
    /// Reads the file at `path`. Relative paths in it are relative to its directory.
    ///
    /// # Errors
    /// All mistakes in it; only the first if it is not TOML.
    pub(crate) fn load(path: &Path) -> Result<Self, Mistakes> {
        let text = std::fs::read_to_string(path).map_err(|e| Mistake::unreadable(path, &e))?;
        Self::parse(path, &text)
    }

    /// Reads `text` as the contents of `file`.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, Mistakes> {
        let document = Document::new(file, text);
        let tables = document.parse()?;
        let settings = Self::read(&document.root(&tables, SECTIONS));
        document.mistakes()?;
        Ok(settings.expect("what keeps settings from being whole was noted as a mistake"))
    }

    /// Reads every section and notes all mistakes. `None` if these leave no settings.
    fn read(root: &Section<'_>) -> Option<Self> {
        // Invalid sections have names too, which others may use.
        let (volume_names, pool_names) = (root.names("volume"), root.names("pool"));
        let volumes = root.each("volume", volume::KEYS, Volume::read);
        let on_volume = Pool::tiers_on(root, &volume_names);
        let (has_kv, has_block) = (root.get("kv").is_some(), root.get("block").is_some());
        let pools = match root.get("pool").is_some() || has_kv || has_block {
            true => root.each("pool", pool::KEYS, |section| {
                Pool::read(section, &volume_names, &pool_names, &on_volume)
            }),
            false => Vec::new(),
        };
        let kv = root.optional_section("kv", kv::KEYS);
        let kv = kv.map(|section| Kv::read(&section, &pool_names, &pools));
        let http = root.optional_section("http", http::KEYS).map(|section| Http::read(&section));
        let series = root.optional_section("series", series::KEYS);
        // The pools of stores, each after the section that names it.
        let mut taken: Vec<(&str, String)> = Vec::new();
        taken.extend(kv.iter().flatten().map(|kv| ("kv", kv.pool.clone())));
        let series = series.map(|section| Series::read(&section, &volume_names, &pools, &taken));
        let has_series = root.get("series").is_some();
        if !has_kv && !has_series && !has_block {
            root.note(root.missing("kv", "a store: a section [kv], [series] or [block]"));
        }
        if http.is_some() && !has_series {
            root.note(root.missing("series", "the store that [http] serves"));
        }
        let mqtt = root.optional_section("mqtt", mqtt::KEYS);
        if mqtt.is_some() && !has_series {
            root.note(root.missing("series", "the store that [mqtt] writes points to"));
        }
        let mqtt = mqtt.map(|section| Mqtt::read(&section));
        let admin = root.optional_section("admin", admin::KEYS);
        let admin = admin.map(|section| Admin::read(&section));
        volume::check_apart(root, &volumes);
        pool::check_trees(root, &pools, &volume_names);
        pool::check_losses(root, &pools);
        let own = match series.iter().flatten().map(|series| &series.on).next() {
            Some(On::Pool(name)) => {
                taken.push(("series", name.clone()));
                0
            }
            Some(On::Volumes(names)) => names.len(),
            None => 0,
        };
        let block = root.optional_section("block", block::KEYS);
        let block = block.map(|section| Block::read(&section, &pools, &taken));
        taken.extend(block.iter().flatten().map(|block| ("block", block.pool.clone())));
        let is_root = |pool: &&Pool| taken.iter().any(|(_, name)| *name == pool.name);
        let leaves = pools.iter().filter(is_root).map(|pool| pool.leaves(&pools).len());
        let in_use = own + leaves.sum::<usize>();
        let instance = root.optional_section("instance", instance::KEYS);
        let instance = instance.map(|section| Instance::read(&section, in_use.max(1) as u64));
        let series = match series {
            None => None,
            Some(series) => Some((series?, http.unwrap_or_default())),
        };
        let kv = match kv {
            None => None,
            Some(kv) => Some(kv?),
        };
        let mqtt = match mqtt {
            None => None,
            Some(mqtt) => Some(mqtt?),
        };
        let block = match block {
            None => None,
            Some(block) => Some(block?),
        };
        let instance = instance.unwrap_or_default();
        Some(Self { volumes, instance, pools, kv, series, mqtt, block, admin })
    }

    /// Adds a volume, also to the pool called `to`.
    pub(crate) fn add_volume(&mut self, volume: Volume, to: &str) {
        let name = volume.name.clone();
        self.remove_volume(&name);
        // In the order in which a file is read.
        let at = self.volumes.partition_point(|other| other.name < name);
        self.volumes.insert(at, volume);
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.name == to) {
            pool.volumes.push(name);
        }
    }

    /// Removes a volume, also from its pool.
    pub(crate) fn remove_volume(&mut self, name: &str) {
        self.volumes.retain(|volume| volume.name != name);
        for pool in &mut self.pools {
            pool.volumes.retain(|volume| volume != name);
        }
    }

    /// The pool of this name.
    pub(crate) fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The stores that are on pools, by their sections, and these pools' names.
    pub(crate) fn stores_on_pools(&self) -> Vec<(&'static str, &str)> {
        let kv = self.kv.iter().map(|kv| ("kv", &*kv.pool));
        let series = self.series.iter().filter_map(|(series, _)| match &series.on {
            On::Pool(name) => Some(("series", &**name)),
            On::Volumes(_) => None,
        });
        let block = self.block.iter().map(|block| ("block", &*block.pool));
        kv.chain(series).chain(block).collect()
    }

    /// The pools that stores are on, each once; none if there is only a store of time series, on volumes of its own.
    pub(crate) fn roots(&self) -> Vec<&Pool> {
        let mut roots: Vec<&Pool> = Vec::new();
        for (_, name) in self.stores_on_pools() {
            let pool =
                self.pool(name).filter(|pool| roots.iter().all(|root| root.name != pool.name));
            roots.extend(pool);
        }
        roots
    }

    /// The pool that has this member, among those in use.
    pub(crate) fn pool_with(&self, member: &str) -> Option<&Pool> {
        self.pools_in_use().into_iter().find(|pool| pool.volumes.iter().any(|name| name == member))
    }

    /// The pools that stores are on, and those below them.
    pub(crate) fn pools_in_use(&self) -> Vec<&Pool> {
        let mut found = self.roots();
        let mut at = 0;
        while let Some(pool) = found.get(at).copied() {
            found.extend(pool.volumes.iter().filter_map(|name| self.pool(name)));
            at += 1;
        }
        found
    }

    /// The volumes that stores use: those below pools, then the others.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Volume> {
        let own = match &self.series {
            Some((Series { on: On::Volumes(names), .. }, _)) => &names[..],
            _ => &[],
        };
        let below: Vec<_> =
            self.roots().into_iter().flat_map(|pool| pool.leaves(&self.pools)).collect();
        let names = below.into_iter().chain(own.iter().map(String::as_str));
        names.filter_map(|name| self.volumes.iter().find(|volume| volume.name == name))
    }

    /// The dotted keys whose values differ from `other`'s.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let (ours, theirs) = (self.entries(), other.entries());
        let only_in = |some: &[Entry], others: &[Entry]| {
            let only = some.iter().filter(|entry| !others.contains(entry));
            only.map(Entry::dotted).collect::<Vec<_>>()
        };
        let mut keys = only_in(&ours, &theirs);
        keys.extend(only_in(&theirs, &ours));
        // Secrets are masked in entries, so compare them here.
        if let (Some(ours), Some(theirs)) = (&self.kv, &other.kv) {
            if ours.endpoint.password != theirs.endpoint.password {
                keys.push("kv.password".into());
            }
            if ours.endpoint.users != theirs.endpoint.users {
                keys.push("kv.users".into());
            }
        }
        if let (Some((_, ours)), Some((_, theirs))) = (&self.series, &other.series)
            && ours.endpoint.tokens != theirs.endpoint.tokens
        {
            keys.push("http.tokens".into());
        }
        if let (Some(ours), Some(theirs)) = (&self.mqtt, &other.mqtt)
            && ours.subscriber.login != theirs.subscriber.login
        {
            keys.push("mqtt.password".into());
        }
        for (ours, theirs) in self.volumes.iter().zip(&other.volumes) {
            if ours.name == theirs.name && ours.contract != theirs.contract {
                keys.push(format!("volume.{}.contract", ours.name));
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// Every effective setting, including defaults, in the order of the sections.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<_> = self.volumes.iter().flat_map(Volume::entries).collect();
        entries.extend(self.instance.entries());
        entries.extend(self.pools.iter().flat_map(Pool::entries));
        entries.extend(self.kv.iter().flat_map(Kv::entries));
        if let Some((series, http)) = &self.series {
            entries.extend(series.entries());
            entries.extend(http.entries());
        }
        entries.extend(self.mqtt.iter().flat_map(Mqtt::entries));
        entries.extend(self.block.iter().flat_map(Block::entries));
        entries.extend(self.admin.iter().flat_map(Admin::entries));
        entries
    }
}

impl fmt::Display for Settings {
    /// The settings as a file that states every value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = String::new();
        for entry in self.entries() {
            if entry.section != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                writeln!(f, "{gap}[{}]", entry.section)?;
                section = entry.section;
            }
            writeln!(f, "{} = {}", entry.key, entry.value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
