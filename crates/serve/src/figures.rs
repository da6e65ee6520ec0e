//! Figures of the surrounding program, for listeners to report.
//!
//! `INFO` and `/metrics` read the same figures, so they agree. Counters only grow, from zero at the start of the
//! program.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use engine::series::store::Figures as Series;
use serde::{Deserialize, Serialize, Serializer};

/// A source of figures; polled from a thread that may block.
pub trait Figures: Send + Sync {
    /// The time since the program started.
    fn uptime(&self) -> Duration;

    /// The process's memory.
    fn memory(&self) -> Memory;

    /// Every device volume, in the order of the settings.
    fn volumes(&self) -> Vec<Volume>;

    /// The store's cache of blocks; `None` if its figures are not available.
    fn cache(&self) -> Option<Cache> {
        None
    }

    /// Copies of tables that each pool with stores makes and drops.
    fn copies(&self) -> Vec<Copies> {
        Vec::new()
    }

    /// The cache tiers.
    fn tiers(&self) -> Vec<Tier> {
        Vec::new()
    }

    /// The scrub of each pool with stores.
    fn scrub(&self) -> Vec<Scrub> {
        Vec::new()
    }

    /// The log store, if there is one.
    fn log(&self) -> Option<Log> {
        None
    }

    /// The store of block devices, if there is one.
    fn block(&self) -> Option<Block> {
        None
    }

    /// The store of time series, if there is one.
    fn series(&self) -> Option<Series> {
        None
    }
}

/// No figures, for listeners without a program, such as in tests.
impl Figures for () {
    fn uptime(&self) -> Duration {
        Duration::ZERO
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn volumes(&self) -> Vec<Volume> {
        Vec::new()
    }
}

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    /// Resident memory of the process.
    pub resident: u64,
    /// Bytes in the store's caches and buffers.
    pub store: u64,
    /// The limit on those bytes.
    pub store_max: u64,
}

/// Reads of blocks and prefetches, by outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cache {
    /// Reads by the name of what answered them, with their numbers.
    pub reads: [(&'static str, u64); 4],
    /// Bytes of reads answered from memory.
    pub hit_bytes: u64,
    /// Single blocks kept.
    pub entries: u64,
    /// Whole blocks in the cache, prefetched or re-warmed.
    pub blocks: u64,
    /// Blocks prefetched.
    pub prefetches: u64,
    /// Blocks of new tables cached as they were written.
    pub rewarmed: u64,
    /// Of those, the ones that answered a read.
    pub rewarmed_useful: u64,
    /// Blocks that answered a read, however they came into the cache.
    pub useful: u64,
    /// Blocks evicted without a read.
    pub wasted: u64,
    /// Bytes held.
    pub bytes: u64,
    /// The limit on bytes held.
    pub bytes_max: u64,
}

/// Copies of tables: made when volumes are hot, drained or lost, and dropped again.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Copies {
    /// The name of the pool.
    #[serde(default)]
    pub pool: String,
    /// The pool with stores that it is below; empty if it has stores itself.
    #[serde(default)]
    pub below: String,
    /// Copies made, by purpose; empty when read back.
    #[serde(serialize_with = "as_map", skip_deserializing)]
    pub made: Vec<(&'static str, u64)>,
    /// Their bytes.
    pub bytes: u64,
    /// The durations of copies.
    #[serde(skip)]
    pub times: Waits,
    /// New tables that began with more copies than the replication target.
    #[serde(skip)]
    pub born: u64,
    /// Tables streamed for lack of memory to hold them whole.
    #[serde(skip)]
    pub streamed: u64,
    /// Copies dropped, by reason.
    #[serde(skip)]
    pub dropped: Vec<(&'static str, u64)>,
    /// Copies begun and failed, by reason.
    #[serde(skip)]
    pub failed: Vec<(&'static str, u64)>,
    /// Copies planned and not begun.
    pub planned: u64,
    /// Copies in progress.
    pub in_flight: u64,
    /// Copies not planned, by reason.
    #[serde(skip)]
    pub skipped: Vec<(&'static str, u64)>,
    /// The pool's replication target.
    pub promised: u64,
    /// Objects with fewer copies on volumes that are present and stay.
    pub short_objects: u64,
    /// Their bytes.
    pub short_bytes: u64,
    /// Objects without a readable copy.
    pub unreadable_objects: u64,
    /// Ranges that reads computed from other fragments.
    pub decoded: u64,
    /// Objects cut into fragments that had copies.
    pub recoded: u64,
    /// Bytes of the log of objects in place, each copy counted once.
    pub write_log_bytes: u64,
    /// Blocks that it has newer than their places.
    pub write_log_blocks: u64,
    /// Blocks that were brought in place from it.
    pub write_log_recycled: u64,
    /// Blocks that were appended to it again, so that its oldest files could go.
    pub write_log_moved: u64,
    /// Writes that waited because it was full.
    pub write_log_waits: u64,
}

/// The policies that choose which unit of a cache tier leaves.
pub const POLICIES: [&str; 6] = ["arc", "clock2q+", "lrfu", "lru", "s3-fifo", "sieve"];

/// How a tier flushes: little is dirty; it waits as the slow side is busy; the slow side is idle; too much is dirty to wait.
pub const FLUSH_MODES: [&str; 4] = ["idle", "closed", "open", "forced"];

/// A cache tier: counters since the start, and what is cached now.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Tier {
    /// The pool with stores that it is below.
    #[serde(default)]
    pub pool: String,
    /// Its name.
    pub name: String,
    /// The name of the side with the cache.
    pub fast: String,
    /// The name of the side that has everything.
    pub slow: String,
    /// Whether the fast side is in use.
    pub attached: bool,
    /// Bytes of reads that came from the fast side.
    pub hit_bytes: u64,
    /// Bytes of reads that came from the slow side, of objects that may be cached.
    pub missed_bytes: u64,
    /// Installs that ended.
    pub promotions: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// Those of them that were installed as they were written, because what they hold was read before.
    #[serde(default)]
    pub inherited_bytes: u64,
    /// Installs that were given up.
    pub promotions_dropped: u64,
    /// Units that were evicted.
    pub evictions: u64,
    /// The name of the policy that chooses them now, one of [`POLICIES`]; empty without a fast side.
    #[serde(default)]
    pub policy: String,
    /// Units that lost the pages which were read seldom, and kept others.
    #[serde(default)]
    pub trims: u64,
    /// Pages whose places had to wait for a record before they were free.
    #[serde(default)]
    pub deferred_pages: u64,
    /// Records that a unit is not as the checkpoint says.
    pub doubts: u64,
    /// Durable appends that carried them.
    pub appends: u64,
    /// Checkpoints of the map.
    pub checkpoints: u64,
    /// How often the fast side was given up.
    pub detached: u64,
    /// Bytes cached now.
    pub cached_bytes: u64,
    /// Bytes that may be cached; `None` while that is unknown.
    pub size_bytes: Option<u64>,
    /// Whether writes may stay on the fast side.
    #[serde(default)]
    pub keeps_writes: bool,
    /// Bytes whose newest state is only on the fast side.
    #[serde(default)]
    pub dirty_bytes: u64,
    /// Seconds since the first write of the unit that is dirty for longest; `None` if none is dirty.
    #[serde(default)]
    pub dirty_age_s: Option<f64>,
    /// Bytes that were lost with a fast side: reads of them fail until they are written.
    #[serde(default)]
    pub stale_bytes: u64,
    /// Writes that stayed on the fast side.
    #[serde(default)]
    pub kept_writes: u64,
    /// Their bytes.
    #[serde(default)]
    pub kept_bytes: u64,
    /// Bytes of other writes of block devices, while writes may stay.
    #[serde(default)]
    pub written_through_bytes: u64,
    /// Writes to the slow side that wrote dirty bytes back.
    #[serde(default)]
    pub flush_writes: u64,
    /// Their bytes.
    #[serde(default)]
    pub flushed_bytes: u64,
    /// Flushes of a unit that failed.
    #[serde(default)]
    pub flushes_failed: u64,
    /// How dirty units are flushed now: one of [`FLUSH_MODES`].
    #[serde(default)]
    pub flush: String,
}

/// The scrub of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scrub {
    /// The name of the pool.
    pub pool: String,
    /// Objects read.
    pub objects: u64,
    /// Bytes read: those of each copy count.
    pub bytes: u64,
    /// Copies with missing, wrong or unreadable bytes.
    pub damaged: u64,
    /// The time since the last pass over all objects ended; `None` before the first.
    pub age: Option<Duration>,
}

fn as_map<S: Serializer>(counts: &[(&str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().copied())
}

/// A store of block devices.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Block {
    /// Its devices, by name.
    pub devices: Vec<BlockDevice>,
    /// Reads.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes, and ranges made zeros.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Discards.
    pub discards: u64,
    /// Flushes.
    pub flushes: u64,
    /// Pages of checksums read because they were not in memory.
    pub checksum_fetches: u64,
    /// Pages of checksums written.
    pub checksum_writes: u64,
    /// Memory of the checksums, in bytes.
    pub checksum_bytes: u64,
    /// Blocks read because a write covers a part of them.
    pub completing_reads: u64,
    /// Extents made.
    pub extents_made: u64,
    /// Writes of marks of regions.
    pub region_marks: u64,
    /// Regions of 4 MiB whose copies were read and made equal after a crash.
    pub regions_aligned: u64,
    /// Regions with marks: a crash leaves them in doubt.
    pub dirty_regions: u64,
    /// Blocks read that have no checksum yet.
    pub unverified_reads: u64,
    /// Blocks and pages of checksums that one copy gave wrongly, and another one had.
    pub repaired: u64,
    /// Reads of blocks that no copy has as they were written, and pages of checksums that were lost.
    pub damaged: u64,
}

/// A block device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BlockDevice {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that its extents take on the pool at most, each copy counted once.
    pub room_bytes: u64,
    /// Reads since the store was opened.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes, ranges made zeros, and discards.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The lasting operations a second that its clients get at most.
    pub limit_iops: Option<u64>,
    /// The lasting bytes a second that they get at most.
    pub limit_bytes_per_s: Option<u64>,
    /// Calls that waited because the device was at its limit.
    pub limited: u64,
    /// Seconds that they waited, in all.
    pub limited_s: f64,
}

/// A log store.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Log {
    /// Keys that have a value.
    pub keys: u64,
    /// Memory of its index, in bytes.
    pub index_bytes: u64,
    /// Each of its volumes.
    pub volumes: Vec<LogVolume>,
}

/// A log store on one volume; the letters are those of the paper (PSTA 8(3), 2017).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LogVolume {
    /// Its name.
    pub name: String,
    /// The used share: U.
    pub fill: f64,
    /// Space pressure: how far the fill is above the target on the way to full: H.
    pub hunger: f64,
    /// The dead share above which a file is merged: D_T.
    pub release_threshold: f64,
    /// The dead share of recently merged files.
    pub dead_fraction_eaten: f64,
    /// Bytes written for each byte put.
    pub write_amplification: f64,
    /// Seconds a put waits now because the volume is nearly full.
    pub put_delay_s: f64,
    /// Files.
    pub files: u64,
    /// Bytes of live records.
    pub live_bytes: u64,
    /// Bytes of records that users put.
    pub put_bytes: u64,
    /// Bytes of records that merges copied.
    pub copied_bytes: u64,
    /// Files that died whole and were removed unread.
    pub died_whole: u64,
    /// Files merged.
    pub merged: u64,
    /// Damaged records found by merges and reads.
    pub damaged: u64,
    /// Puts that waited because the volume was nearly full.
    pub delayed: u64,
    /// Puts that were refused because only the reserve was left.
    pub refused: u64,
}

impl From<engine::log::Figures> for Log {
    fn from(figures: engine::log::Figures) -> Self {
        let volumes = figures.volumes.into_iter().map(|volume| LogVolume {
            name: volume.label,
            fill: volume.fill,
            hunger: volume.space_pressure,
            release_threshold: volume.release_threshold,
            dead_fraction_eaten: volume.dead_fraction_eaten,
            write_amplification: volume.counts.write_amplification(),
            put_delay_s: volume.put_delay.as_secs_f64(),
            files: volume.files,
            live_bytes: volume.live_bytes,
            put_bytes: volume.counts.put_bytes,
            copied_bytes: volume.counts.copied_bytes,
            died_whole: volume.counts.died_whole,
            merged: volume.counts.merged,
            damaged: volume.counts.damaged,
            delayed: volume.counts.delayed,
            refused: volume.counts.refused,
        });
        Self { keys: figures.keys, index_bytes: figures.index_bytes, volumes: volumes.collect() }
    }
}

/// One device volume and its paid rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Its name in the settings.
    pub name: String,
    /// The pool with stores that it is below; empty if a store has it for itself.
    pub pool: String,
    /// The pools between it and that of the stores, outermost first, with slashes between them; mostly empty.
    pub below: String,
    /// The name of its contract.
    pub contract: String,
    /// The paid operations per second; `None` if unlimited.
    pub paid_iops: Option<u64>,
    /// The paid bytes per second; `None` if unlimited.
    pub paid_bytes_per_sec: Option<u64>,
    /// The share of the paid rates that budgets use now.
    pub rho: f64,
    /// The seconds of them that budgets save up at most now.
    pub beta: f64,
    /// The possible reasons for `rho` and `beta`, and which of them holds; empty while its gate does not adapt.
    pub findings: Vec<(&'static str, bool)>,
    /// The use of the busiest limit in the last second: 1 is the paid rate.
    pub used: f64,
    /// The share of its contract that the volume seems to provide; `None` if that is all.
    pub available: Option<f64>,
    /// The remaining share of burst credits; `None` without credits.
    pub credits: Option<f64>,
    /// Tokens spent: I/O operations passed to the device, as the contract counts them.
    pub ops: u64,
    /// Bytes passed to the device and from it.
    pub bytes: u64,
    /// Operations charged for the file system's journal at each sync of a changed length.
    pub journal_ops: u64,
    /// Reads and writes that the kernel counted on the device since the volume was opened, of all programs; `None` if the
    /// volume is simulated or the kernel does not count for it.
    pub kernel_ops: Option<u64>,
    /// Operations that the provider counted; `None` if it cannot be queried. They equal `ops`, except for operations in
    /// flight.
    pub provider_ops: Option<u64>,
    /// Operations the simulated provider throttled; `None` if the provider is real.
    pub throttled: Option<u64>,
    /// Waits of admitted requests at the gate by class, most urgent first.
    pub classes: Vec<Class>,
    /// What it was used for.
    pub purposes: Vec<PurposeLoad>,
    /// What each store on its pool got of it.
    pub stores: Vec<StoreLoad>,
    /// Whether it has operations to spare for prefetching; `None` without prefetching.
    pub spare: Option<bool>,
    /// Its load by the heat of its tables; 1 is the paid rate; `None` if heat is not measured.
    pub weight: Option<f64>,
    /// Space for data; `None` while the volume is away.
    pub space: Option<Space>,
}

impl Volume {
    /// The operations spent for each that the kernel counted; `None` before it counted any.
    #[must_use]
    pub fn kernel_ratio(&self) -> Option<f64> {
        let counted = self.kernel_ops.filter(|&counted| counted > 0)?;
        Some(self.ops as f64 / counted as f64)
    }
}

/// What a volume was used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PurposeLoad {
    /// The name of the purpose.
    pub name: &'static str,
    /// Operations passed to the device, as the contract counts them.
    pub ops: u64,
    /// Bytes passed to the device and from it.
    pub bytes: u64,
}

/// What a store got of a volume.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StoreLoad {
    /// The store's name; `pool` for the work of the pool itself.
    pub name: String,
    /// Tokens granted: operations as the contract counts them.
    pub ops: u64,
    /// Bytes granted.
    pub bytes: u64,
    /// Requests waiting now.
    pub queued: u64,
}

/// One class of a volume's gate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Tokens granted: operations as the contract counts them.
    pub granted: u64,
    /// The waits of admitted requests for their tokens.
    pub waits: Waits,
    /// The device's time to answer them, without that wait.
    pub answers: Waits,
    /// Requests waiting now.
    pub queued: u64,
    /// Requests rejected: the queue was full or the deadline had passed.
    pub denied: u64,
}

/// A distribution of waits or durations.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Waits {
    /// The sum of all.
    pub total: Duration,
    /// The number of requests up to each bound and above the previous one, ascending. The last bound is
    /// [`Duration::MAX`].
    pub counts: Vec<(Duration, u64)>,
}

impl Waits {
    /// The number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

/// Space on a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Space {
    /// The total.
    pub total: u64,
    /// The writable rest.
    pub free: u64,
}

/// A counter that many connections add to.
#[derive(Debug, Default)]
pub struct Counter {
    all: AtomicU64,
    /// The number at the last [`Counter::begin_anew`].
    before: AtomicU64,
}

impl Counter {
    /// Adds one and returns the new number.
    pub fn add_one(&self) -> u64 {
        self.add(1)
    }

    /// Adds `more` and returns the new number.
    pub fn add(&self, more: u64) -> u64 {
        // Wrapping takes centuries. `fetch_add` makes ids unique; their order is not guaranteed.
        self.all.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
    }

    /// Subtracts `less`, for gauges.
    pub fn sub(&self, less: u64) {
        self.all.fetch_sub(less, Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// The number added since the last [`Counter::begin_anew`].
    #[must_use]
    pub fn recent(&self) -> u64 {
        self.get().saturating_sub(self.before.load(Ordering::Relaxed))
    }

    /// Resets [`Counter::recent`]; the number itself stays.
    pub fn begin_anew(&self) {
        self.before.store(self.get(), Ordering::Relaxed);
    }
}
