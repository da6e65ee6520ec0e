//! `/figures`: the figures of the program at one moment, as JSON, for programs that poll.
//!
//! Unlike `/metrics` it is meant to be read back: both ends use [`Snapshot`]. Counters only grow while the program
//! runs; rates follow from the differences of two snapshots and of their `uptime_s`. Fields may be added; none changes
//! its meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Admin;
use crate::figures::{self, Block, Copies, Log, Tier};

/// The program at one moment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Snapshot {
    /// Seconds since the program started.
    pub uptime_s: f64,
    /// Resident memory of the process, in bytes.
    pub memory_resident_bytes: u64,
    /// Bytes in the store's caches and buffers.
    pub memory_store_bytes: u64,
    /// The limit on those bytes.
    pub memory_store_max_bytes: u64,
    /// Its device volumes.
    pub volumes: Vec<Volume>,
    /// Blocks requested of the store's cache, by what answered: `volume` is a miss. Empty without a cache.
    #[serde(default)]
    pub cache_reads: BTreeMap<String, u64>,
    /// Copies of tables, if stores are on one pool only; see `pools`.
    #[serde(default)]
    pub copies: Option<Copies>,
    /// Copies of tables of each pool, those below others after them.
    #[serde(default)]
    pub pools: Vec<Copies>,
    /// The log store under time series, if there is one.
    #[serde(default)]
    pub log: Option<Log>,
    /// The store of block devices, if there is one.
    #[serde(default)]
    pub block: Option<Block>,
    /// The cache tiers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// The listener for Redis clients, if there is one.
    pub resp: Option<Resp>,
}

/// A device volume and its paid rate.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Volume {
    /// Its name in the settings.
    pub name: String,
    /// The pool with stores that it is below; empty if a store has it for itself.
    #[serde(default)]
    pub pool: String,
    /// The pools between it and that of the stores, outermost first, with slashes between them; mostly empty.
    #[serde(default)]
    pub below: String,
    /// The name of its contract.
    pub contract: String,
    /// The paid operations per second; `None` if unlimited.
    pub paid_iops: Option<u64>,
    /// The paid bytes per second; `None` if unlimited.
    pub paid_bytes_per_s: Option<u64>,
    /// The use of the busiest limit in the last second: 1 is the paid rate.
    pub used: f64,
    /// The share of the paid rates in use.
    #[serde(default)]
    pub rho: f64,
    /// Seconds of the paid rates that are saved up at most.
    #[serde(default)]
    pub beta: f64,
    /// Why they are what they are, as a label of `plimsoll_volume_finding`; `None` while its gate does not adapt.
    #[serde(default)]
    pub finding: Option<String>,
    /// The share of its contract that it seems to provide; `None` if that is all.
    pub available: Option<f64>,
    /// The remaining share of burst credits; `None` without credits.
    pub credits: Option<f64>,
    /// Operations let through.
    pub ops: u64,
    /// Bytes let through.
    pub bytes: u64,
    /// Operations its simulated provider throttled; `None` if the provider is real.
    pub throttled: Option<u64>,
    /// Its load by the heat of its tables; 1 is the paid rate; `None` if heat is not measured.
    #[serde(default)]
    pub weight: Option<f64>,
    /// Its size in bytes; `None` while it does not answer.
    pub size_bytes: Option<u64>,
    /// Bytes still writable; `None` while it does not answer.
    pub free_bytes: Option<u64>,
    /// Waits at its gate by class, most urgent first.
    pub classes: Vec<Class>,
    /// Operations let through for each purpose that had any, by its name.
    #[serde(default)]
    pub purpose_ops: BTreeMap<String, u64>,
    /// Operations let through of each store, by its name; `pool` is the pool itself.
    #[serde(default)]
    pub store_ops: BTreeMap<String, u64>,
}

/// One class of a volume's gate.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Operations granted.
    pub granted: u64,
    /// Requests admitted.
    pub requests: u64,
    /// The sum of their waits, in seconds.
    pub waited_s: f64,
    /// Requests waiting now.
    pub queued: u64,
    /// Requests rejected.
    pub denied: u64,
}

/// The listener for Redis clients.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Resp {
    /// Connections open.
    pub clients: u64,
    /// Commands executed.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
}

impl Snapshot {
    pub(super) fn of(admin: &Admin) -> Self {
        let figures = &*admin.figures;
        let memory = figures.memory();
        let reads = figures.cache().map(|cache| cache.reads);
        let pools = figures.copies();
        let reads = reads.iter().flatten().map(|&(path, count)| (path.to_owned(), count));
        Self {
            uptime_s: figures.uptime().as_secs_f64(),
            memory_resident_bytes: memory.resident,
            memory_store_bytes: memory.store,
            memory_store_max_bytes: memory.store_max,
            volumes: figures.volumes().into_iter().map(Volume::from).collect(),
            cache_reads: reads.collect(),
            copies: only(&pools),
            pools,
            log: figures.log(),
            block: figures.block(),
            tiers: figures.tiers(),
            resp: admin.resp.get().map(|service| &service.stats).map(|stats| Resp {
                clients: stats.clients.get(),
                commands: stats.commands(),
                errors: stats.errors.get(),
            }),
        }
    }
}

/// The pool that stores are on, if they are on one only.
fn only(pools: &[Copies]) -> Option<Copies> {
    let mut with_stores = pools.iter().filter(|pool| pool.below.is_empty());
    with_stores.next().filter(|_| with_stores.next().is_none()).cloned()
}

impl From<figures::Volume> for Volume {
    fn from(volume: figures::Volume) -> Self {
        let finding = volume.findings.iter().find(|(_, holds)| *holds);
        Self {
            name: volume.name,
            pool: volume.pool,
            below: volume.below,
            contract: volume.contract,
            paid_iops: volume.paid_iops,
            paid_bytes_per_s: volume.paid_bytes_per_sec,
            used: volume.used,
            rho: volume.rho,
            beta: volume.beta,
            finding: finding.map(|(name, _)| (*name).to_owned()),
            available: volume.available,
            credits: volume.credits,
            ops: volume.ops,
            bytes: volume.bytes,
            throttled: volume.throttled,
            weight: volume.weight,
            size_bytes: volume.space.map(|space| space.total),
            free_bytes: volume.space.map(|space| space.free),
            classes: volume.classes.iter().map(Class::from).collect(),
            purpose_ops: volume
                .purposes
                .iter()
                .filter(|purpose| purpose.ops > 0)
                .map(|purpose| (purpose.name.to_owned(), purpose.ops))
                .collect(),
            store_ops: volume.stores.into_iter().map(|store| (store.name, store.ops)).collect(),
        }
    }
}

impl From<&figures::Class> for Class {
    fn from(class: &figures::Class) -> Self {
        Self {
            name: class.name.to_owned(),
            granted: class.granted,
            requests: class.waits.requests(),
            waited_s: class.waits.total.as_secs_f64(),
            queued: class.queued,
            denied: class.denied,
        }
    }
}
