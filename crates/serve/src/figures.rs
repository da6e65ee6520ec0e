//! What a front door shows but cannot know: figures of the program around it.
//!
//! `INFO` and `/metrics` read the same ones, so they never disagree. Counters only grow, from zero at
//! the start of the program.

use std::time::Duration;

/// Gives figures when asked; called now and then, from a thread that may block.
pub trait Figures: Send + Sync {
    /// How long the program has been running.
    fn uptime(&self) -> Duration;

    /// The process's memory.
    fn memory(&self) -> Memory;

    /// Every device volume, in the order of the settings.
    fn volumes(&self) -> Vec<Volume>;

    /// The store's cache of blocks; none if it has none that can be asked.
    fn cache(&self) -> Option<Cache> {
        None
    }

    /// Copies of tables that the pool makes and drops; none if nobody does.
    fn copies(&self) -> Option<Copies> {
        None
    }

    /// The log store; none if there is none.
    fn log(&self) -> Option<Log> {
        None
    }

    /// The store of time series; none if there is none.
    fn series(&self) -> Option<Series> {
        None
    }
}

/// The store of time series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Series known.
    pub series: u64,
    /// Sources known: measurements with tags.
    pub sources: u64,
    /// Sources that have rows in a buffer.
    pub active: u64,
    /// Memory of the catalogue, in bytes.
    pub catalogue_bytes: u64,
    /// Memory of buffers, in bytes.
    pub buffer_bytes: u64,
    /// Part of the buffers that is free, 0 to 1.
    pub room: f64,
    /// Points accepted since the store was opened.
    pub points: u64,
    /// Blocks written, and bytes of them.
    pub blocks: u64,
    /// See `blocks`.
    pub block_bytes: u64,
    /// Slots of which blocks were put together.
    pub regrouped: u64,
    /// Blocks expired.
    pub expired: u64,
}

/// No program around the door: nothing to tell. For doors that are tried alone.
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
    /// What the process occupies.
    pub resident: u64,
    /// What the store's caches and buffers hold now.
    pub store: u64,
    /// What the store's caches and buffers may hold.
    pub store_max: u64,
}

/// What became of reads of blocks, and of blocks that were read ahead.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cache {
    /// Reads by what answered them: a name, and how many.
    pub reads: [(&'static str, u64); 4],
    /// Bytes of reads answered from memory.
    pub hit_bytes: u64,
    /// Single blocks kept.
    pub entries: u64,
    /// Blocks kept whole, prefetched or re-warmed.
    pub blocks: u64,
    /// Blocks read ahead.
    pub prefetches: u64,
    /// Blocks of new tables kept as they were written.
    pub rewarmed: u64,
    /// Those of them that answered a read.
    pub rewarmed_useful: u64,
    /// Blocks that answered a read, however they came.
    pub useful: u64,
    /// Those that went and never answered one.
    pub wasted: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Bytes it may hold.
    pub bytes_max: u64,
}

/// Copies of tables: made where volumes are hot, being emptied or lost, and dropped again.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Copies {
    /// Copies made, by what for.
    pub made: Vec<(&'static str, u64)>,
    /// Their bytes.
    pub bytes: u64,
    /// How long each took.
    pub times: Waits,
    /// New tables that began with a copy more than the pool promises.
    pub born: u64,
    /// Tables that were streamed, for want of memory to hold them whole.
    pub streamed: u64,
    /// Copies dropped, by why.
    pub dropped: Vec<(&'static str, u64)>,
    /// Copies that were begun and came to nothing, by why.
    pub failed: Vec<(&'static str, u64)>,
    /// Copies that are planned and were not begun.
    pub planned: u64,
    /// Copies that are being made.
    pub in_flight: u64,
    /// What was not planned, by why.
    pub skipped: Vec<(&'static str, u64)>,
    /// Copies of everything that the pool promises.
    pub promised: u64,
    /// Objects with fewer of them on volumes that are here and stay.
    pub short_objects: u64,
    /// Their bytes.
    pub short_bytes: u64,
    /// Objects of which no copy can be read.
    pub unreadable_objects: u64,
}

/// A log store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Keys that have a value.
    pub keys: u64,
    /// Memory of its index, in bytes.
    pub index_bytes: u64,
    /// Each of its volumes.
    pub volumes: Vec<LogVolume>,
}

/// What a log store does on one volume; the letters are those of the paper (PSTA 8(3), 2017).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogVolume {
    /// Its name.
    pub name: String,
    /// The part of it that is taken: U.
    pub fill: f64,
    /// How far that is above the target on the way to full: H.
    pub hunger: f64,
    /// The part of a file that has to be dead for it to be merged: D_T.
    pub release_threshold: f64,
    /// What was dead in the files merged lately, as a part.
    pub dead_fraction_eaten: f64,
    /// Bytes written for each byte put.
    pub write_amplification: f64,
    /// What a put waits now because the volume is nearly full.
    pub put_delay: Duration,
    /// Files.
    pub files: u64,
    /// Bytes of records that count.
    pub live_bytes: u64,
    /// Bytes of records that users put.
    pub put_bytes: u64,
    /// Bytes of records that merges copied.
    pub copied_bytes: u64,
    /// Files that died whole and were removed unread.
    pub died_whole: u64,
    /// Files merged.
    pub merged: u64,
    /// Records merges could not read: they are damaged.
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
            hunger: volume.hunger,
            release_threshold: volume.release_threshold,
            dead_fraction_eaten: volume.dead_fraction_eaten,
            write_amplification: volume.counts.write_amplification(),
            put_delay: volume.put_delay,
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

/// One device volume against its line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Its name in the settings.
    pub name: String,
    /// The name of its contract.
    pub contract: String,
    /// The line: paid operations a second; none if they are not limited.
    pub paid_iops: Option<u64>,
    /// Paid bytes a second; none if they are not limited.
    pub paid_bytes_per_sec: Option<u64>,
    /// The share of the paid rates that is used now.
    pub rho: f64,
    /// What was used of them in the last second, of the limit that is used most: 1 is the line.
    pub used: f64,
    /// The part of its contract the volume was found to give; none while that seems all of it.
    pub available: Option<f64>,
    /// Burst credits that are counted on, as a part of those that can be; none without any.
    pub credits: Option<f64>,
    /// Tokens spent: I/O operations let through to the device, as the contract counts them.
    pub ops: u64,
    /// Bytes let through, to the device and from it.
    pub bytes: u64,
    /// Operations the provider itself counted; none where it cannot be asked. They are exactly those
    /// let through, but for what is on its way in between.
    pub provider_ops: Option<u64>,
    /// Operations the simulated provider throttled; none where the provider is real.
    pub throttled: Option<u64>,
    /// What waited at the gate, and went through, by class, most urgent first.
    pub classes: Vec<Class>,
    /// Whether it has operations to spare for prefetching; none if nothing is prefetched.
    pub spare: Option<bool>,
    /// What it carries by the heat of its tables, where 1 is as much as is paid for; none if nobody
    /// measures that.
    pub weight: Option<f64>,
    /// Room for data; none while the volume is away.
    pub space: Option<Space>,
}

/// One class of a volume's gate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Tokens granted: operations as the contract counts them.
    pub granted: u64,
    /// How long the requests that went had waited for their tokens.
    pub waits: Waits,
    /// How long the device took to answer them, without that wait.
    pub answers: Waits,
    /// Requests waiting now.
    pub queued: u64,
    /// Requests turned away: the queue was full or the deadline had passed.
    pub denied: u64,
}

/// How long requests waited, or took.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Waits {
    /// All waits together.
    pub total: Duration,
    /// How many waited at most so long, and longer than the one before; ascending. The last bound is
    /// [`Duration::MAX`]: any longer.
    pub counts: Vec<(Duration, u64)>,
}

impl Waits {
    /// How many requests there were.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

/// Room on a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Space {
    /// All there is.
    pub total: u64,
    /// What can still be written.
    pub free: u64,
}
