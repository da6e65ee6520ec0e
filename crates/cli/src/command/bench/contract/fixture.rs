//! A store to measure: a loaded database in memory, and copies of it on simulated volumes or on real ones.
//!
//! Memory answers immediately, so that all latency comes from the simulated contract (and the machine, whose part is
//! measured). Reads and writes are charged as with O_DIRECT, without a page cache.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use bench::compare::CountedBy;
use bench::mixgraph::{self, Lengths};
use plimsoll::kv::{CachePolicy, Durability, Options, RocksDb, Store};
use plimsoll::volumes::{Device, Volume};
use policy::contract::spec::Bought;
use policy::contract::{Contract, catalogue};
use policy::placement::Single;
use policy::sched::Policy;
use policy::units::{Bytes, GIB, MIB};
use pool::spread::Opening;
use rust_rocksdb::Options as RocksOptions;
use rust_rocksdb::statistics::{StatsLevel, Ticker};
use volume::Clock;
use volume::dir::BlockDevice;
use volume::mem::Mem;

use super::super::fixture::{compact, family, levels, load_bar, options};
use super::super::real::RealVolume;
use super::baselines::{PLAIN, Scheme};
use super::scale::{Scale, VALUE_BYTES};

/// Values of all records.
pub(super) const VALUES: Lengths = Lengths::Fixed(VALUE_BYTES as usize);

/// The name of a store's volume in its manifest.
const LABEL: &str = "v";

/// The rate of a volume on which reads that fill caches cost next to nothing.
const WARM_IOPS: u64 = 256_000;

/// The options of a store besides its scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setup {
    /// The name of the volume's contract.
    pub(super) contract: &'static str,
    /// Paid operations per second.
    pub(super) paid: u64,
    /// Bytes of cached blocks, without indexes and filters; `None` for no cache.
    pub(super) cache: Option<u64>,
    /// Whether every write is synced.
    pub(super) durable: bool,
}

impl Setup {
    /// The contract as sold.
    pub(super) fn contract(&self) -> anyhow::Result<Contract> {
        contract(self.contract, self.paid)
    }
}

/// The contract `name` with `iops` operations per second; buys the size or rate it needs.
fn contract(name: &str, iops: u64) -> anyhow::Result<Contract> {
    let spec = catalogue::find(name)?;
    // gp2 includes three operations per second for each GiB, and bursts below a TiB: buy the size that the rate needs.
    let size = Bytes(iops.div_ceil(3).max(4) * GIB);
    let bought = Bought { iops: (name != "gp2").then_some(iops), mib_per_s: None };
    let contract = spec.contract((name == "gp2").then_some(size), bought);
    contract.with_context(|| format!("{name} with {iops} IOPS"))
}

/// A loaded database, closed.
pub(super) struct Image {
    mem: Mem,
    pub(super) records: u64,
    /// Bytes of its tables' indexes and filters in RocksDB's memory.
    metadata: u64,
    /// Tables of each level.
    pub(super) levels: Vec<u64>,
    scale: Scale,
}

impl Image {
    /// Loads records in random order, and waits for the compactions.
    pub(super) fn load(
        scale: &Scale,
        seed: u64,
        clock: &Clock,
        stop: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let (mem, records) = (Mem::new("image"), scale.records());
        let volume = Volume::other(LABEL, mem.clone(), Contract::unlimited()).scheduler(PLAIN.gate);
        let setup = Setup { contract: "io2", paid: WARM_IOPS, cache: None, durable: false };
        let store = open(volume, scale, &PLAIN, &setup, &setup.contract()?, 0, clock)?;
        let bar = load_bar(records);
        mixgraph::load(&**store.db(), records, VALUES, 2, seed, &bar, stop)?;
        compact(&store)?;
        bar.finish_and_clear();
        let metadata = metadata(&store);
        let levels = levels(store.db());
        store.close()?;
        Ok(Self { mem, records, metadata, levels, scale: *scale })
    }

    /// Opens a copy of it: on a simulated volume, without the contract yet, or on a `real` one.
    pub(super) fn open(
        &self,
        scheme: &Scheme,
        setup: &Setup,
        real: Option<&RealVolume>,
        clock: &Clock,
    ) -> anyhow::Result<Fixture> {
        let (volume, contract) = match real {
            None => {
                let copy = Mem::from_image(LABEL, self.mem.image());
                let volume = Volume::other(LABEL, copy, contract("io2", WARM_IOPS)?).simulated();
                (volume, setup.contract()?)
            }
            Some(real) => {
                let (path, contract) = (real.copy(&self.mem)?, real.contract.clone());
                // As published, only our schedulers adapt.
                let adapts = matches!(scheme.gate, Policy::Tags | Policy::TagsP99);
                (Volume::directory(LABEL, path, contract.clone()).adapt(adapts), contract)
            }
        };
        let volume = volume.scheduler(scheme.gate);
        let store = open(volume, &self.scale, scheme, setup, &contract, self.metadata, clock)?;
        let tickers = store.family_options("default").context("the family every store has")?;
        let simulated = real.is_none();
        let kernel = real.and_then(|real| real.counters.clone());
        Ok(Fixture { store, tickers, contract, cache: scheme.cache, simulated, kernel })
    }
}

/// A store of one scheme.
pub(super) struct Fixture {
    pub(super) store: Store,
    tickers: RocksOptions,
    pub(super) contract: Contract,
    cache: CachePolicy,
    simulated: bool,
    /// The kernel's counters of its real device.
    kernel: Option<BlockDevice>,
}

impl Fixture {
    pub(super) fn device(&self) -> Arc<Device> {
        Arc::clone(&self.store.devices().here()[0])
    }

    /// Applies the contract from now on. A real volume has it from the beginning.
    pub(super) fn enforce(&self) {
        if self.simulated {
            self.device().set_contract(&self.contract);
        }
    }

    /// What counts its operations below the gate.
    pub(super) const fn counted_by(&self) -> CountedBy {
        match (self.simulated, &self.kernel) {
            (true, _) => CountedBy::Simulator,
            (false, Some(_)) => CountedBy::Kernel,
            (false, None) => CountedBy::Nothing,
        }
    }

    /// Operations of its device so far, as the kernel counts them.
    pub(super) fn kernel_count(&self) -> Option<u64> {
        self.kernel.as_ref().and_then(BlockDevice::ios)
    }

    /// Hits and look-ups of cached blocks so far.
    pub(super) fn lookups(&self) -> (u64, u64) {
        if self.cache == CachePolicy::RocksDb {
            // A missed block is added to the cache. RocksDB counts a miss twice, in the cache and on its way in, so
            // count additions.
            let [hits, misses] = [Ticker::BlockCacheDataHit, Ticker::BlockCacheDataAdd]
                .map(|ticker| self.tickers.get_ticker_count(ticker));
            return (hits, hits + misses);
        }
        let figures = self.store.cache().unwrap_or_default();
        let hits = figures.hits + figures.prefetched_hits + figures.tail_hits;
        (hits, hits + figures.misses)
    }

    /// The limit on bytes of cached blocks now, without indexes and filters.
    pub(super) fn cache_bytes(&self) -> u64 {
        let own = self.store.options().cache().unwrap_or(0);
        self.store.cache().map_or(own, |figures| figures.bytes_max)
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        if self.simulated {
            // Running compactions end sooner under a fast contract.
            self.device().set_contract(&contract("io2", WARM_IOPS)?);
        }
        drop(self.tickers);
        self.store.close().context("closing a store that was measured")
    }
}

fn open(
    volume: Volume,
    scale: &Scale,
    scheme: &Scheme,
    setup: &Setup,
    contract: &Contract,
    metadata: u64,
    clock: &Clock,
) -> anyhow::Result<Store> {
    // RocksDB holds indexes and filters in every scheme, in memory beside its block cache. Our cache counts them as
    // part of its bytes, so it gets that much more.
    let below = scheme.cache != CachePolicy::RocksDb;
    let cache = setup.cache.map(|bytes| if below { bytes + metadata } else { bytes });
    let options = Options {
        durability: if setup.durable { Durability::Always } else { Durability::EverySec },
        cache,
        cache_data: cache.is_some(),
        cache_policy: scheme.cache,
        prefetch: scheme.prefetch,
        ..options(scale.sizes)
    };
    let limit = scheme.limiter.then(|| bandwidth(contract));
    let family = family(move |rocks| {
        rocks.enable_statistics();
        rocks.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        if let Some(bytes) = limit {
            rocks.set_auto_tuned_ratelimiter(bytes, REFILL_US, FAIRNESS);
        }
    });
    let family = family.tables(|tables| tables.set_cache_index_and_filter_blocks(false));
    let store = Store::builder()
        .volume(volume)
        .opening(Opening::new(Single))
        .options(options)
        .family(family)
        .clock(clock.clone());
    store.open().with_context(|| format!("a store of the scheme {}", scheme.name))
}

/// RocksDB's own defaults for its rate limiter.
const REFILL_US: i64 = 100_000;
const FAIRNESS: i32 = 10;

/// The write bandwidth in bytes per second: the sold one, or that of the operations, whichever is smaller.
fn bandwidth(contract: &Contract) -> i64 {
    let carried = contract.paid_iops().map(|iops| iops.saturating_mul(MIB / 4));
    let sold = contract.paid_bytes_per_sec();
    let bytes = sold.into_iter().chain(carried).min().unwrap_or(u64::MAX);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn metadata(db: &RocksDb) -> u64 {
    db.property_int_value("rocksdb.estimate-table-readers-mem").ok().flatten().unwrap_or(0)
}

/// The time between opening and measuring, for estimates of the duration.
pub(super) const OPENING: Duration = Duration::from_secs(3);
