//! The store, its disks and its load, and the rules to run it with.

use std::time::Duration;

use engine::log::{Durability, Options};
use policy::contract::catalogue;
use policy::contract::spec::{Bought, SpecError};
use policy::contract::{Contract, Latency};
use policy::merge::{Device, Rule, Triggers};

use super::Load;

/// The paper's file system for each node (PSTA 8(3), 2017), in bytes; the disk is five times as large.
const PAPER_CAPACITY: f64 = 100e9;
const DISK_TO_STORE: u64 = 5;
const KEY_BYTES: u64 = 8;
const RECORD_HEAD: u64 = 40;
const RECORD_ALIGN: u64 = 8;
const PAGE: u64 = 4096;
const MINUTE: Duration = Duration::from_secs(60);

/// A store, its disks and its load. The letters are those of the paper (PSTA 8(3), 2017).
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The number of disks: q.
    pub disks: u16,
    /// Bytes of each disk that the store may use: C.
    pub capacity: u64,
    /// Bytes at which files are sealed: R.
    pub file_bytes: u64,
    /// Partitions on each disk: n.
    pub partitions: u16,
    /// The share of the capacity that live records take: V.
    pub live: f64,
    /// The fill above which merges copy: U_m.
    pub target: f64,
    /// Bytes of a value: B.
    pub value: usize,
    /// The keys to write.
    pub load: Load,
    /// Putting clients for each disk, each with one put under way: M.
    pub clients: usize,
    /// Whether puts wait when the disk is nearly full.
    pub delay: bool,
    /// Puts before and during the measurement, in fillings of all disks.
    pub fills: [f64; 2],
    /// The offered share of the disks' bandwidth; `None` in a closed loop.
    pub pace: Option<f64>,
    /// The divisor of the disk's mechanical times: simulates a store that is this many times as large on a disk of the
    /// same speed.
    pub parts: u32,
    /// Readers that hold an iterator for long and rarely read.
    pub idle_readers: usize,
}

/// A rule and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    /// The rule that chooses files to merge.
    pub rule: Rule,
    /// Open files per partition at most, to separate lifetimes.
    pub groups: u8,
    /// Sets the target so that the fill peaks where it does under this rule.
    pub at_peak_of: Option<Rule>,
    /// [`Rule::Static`] merges a file with this share dead; `None` uses Bitcask's defaults.
    pub dead_percent: Option<u8>,
    /// The disks are a pool, which is the store's only volume; else each is one of its volumes.
    pub in_pool: bool,
}

impl Scheme {
    /// A rule with defaults; [`Rule::DeathTime`] with `groups` groups.
    #[must_use]
    pub const fn new(rule: Rule, groups: u8) -> Self {
        Self { rule, groups, at_peak_of: None, dead_percent: None, in_pool: false }
    }

    /// The greedy rule with the peak fill of `rule`.
    #[must_use]
    pub const fn greedy_at_peak_of(rule: Rule) -> Self {
        Self { at_peak_of: Some(rule), ..Self::new(Rule::Greedy, 1) }
    }

    /// Fixed triggers for a known load: a file of any size is merged once this share of it is dead.
    #[must_use]
    pub const fn static_at(dead_percent: u8) -> Self {
        let bitcask = Self::new(Rule::Static, 1);
        Self { dead_percent: Some(dead_percent), ..bitcask }
    }

    /// The same with the disks in a pool.
    #[must_use]
    pub const fn in_pool(self) -> Self {
        Self { in_pool: true, ..self }
    }

    /// The triggers of [`Rule::Static`], with Bitcask's byte figures scaled from the paper's capacity to this store's.
    fn triggers(&self, capacity: u64) -> Triggers {
        let bitcask = Triggers::default();
        let scaled = |bytes: u64| (bytes as f64 * capacity as f64 / PAPER_CAPACITY) as u64;
        match self.dead_percent {
            None => Triggers {
                trigger_bytes: scaled(bitcask.trigger_bytes),
                bytes: scaled(bitcask.bytes),
                small: scaled(bitcask.small),
                ..bitcask
            },
            Some(percent) => {
                let share = f64::from(percent) / 100.0;
                let never = u64::MAX;
                Triggers {
                    trigger_share: share,
                    share,
                    trigger_bytes: never,
                    bytes: never,
                    small: 0,
                }
            }
        }
    }

    /// The name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        let rule = self.rule.name();
        match (self.at_peak_of, self.dead_percent) {
            (Some(other), _) => format!("{rule} at the peak of {}", other.name()),
            (None, Some(percent)) => format!("{rule} at {percent} %"),
            (None, None) if self.in_pool => format!("{rule}, in a pool"),
            (None, None) => rule.into(),
        }
    }
}

impl Shape {
    /// The disk: a 7200 rpm one whose capacity scales with the store's, so that the same share of it means the same
    /// seek distance. Its bandwidth is not scaled; [`Shape::parts`] scales seeks and rotation.
    ///
    /// # Errors
    /// The catalogue lacks the contract.
    pub fn contract(&self) -> Result<Contract, SpecError> {
        let mut contract = catalogue::find("hdd-7200")?.contract(None, Bought::default())?;
        if let Some(disk) = &mut contract.disk {
            disk.capacity = DISK_TO_STORE * self.capacity;
            disk.rpm *= self.parts;
            disk.seek_track /= self.parts;
            disk.seek_full /= self.parts;
        }
        let part = 1.0 / f64::from(self.parts);
        let Latency { read, write } = &mut contract.latency;
        (*read, *write) = (read.scaled(part), write.scaled(part));
        contract.op_bytes_max = (contract.op_bytes_max / u64::from(self.parts)).max(PAGE);
        Ok(contract)
    }

    /// The paper's minute, scaled with the capacity: the same share of the disk can be written in it.
    #[must_use]
    pub fn minute(&self) -> Duration {
        MINUTE.mul_f64(self.capacity as f64 / PAPER_CAPACITY)
    }

    /// Bytes of all disks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.capacity * u64::from(self.disks)
    }

    /// Bytes of a record with a key of eight bytes, see docs/format/log.md.
    #[must_use]
    pub fn record(&self) -> u64 {
        (RECORD_HEAD + KEY_BYTES + self.value as u64).next_multiple_of(RECORD_ALIGN)
    }

    /// Whether the store planes with one file open for each partition: (4).
    #[must_use]
    pub fn planes(&self) -> bool {
        let open = f64::from(self.partitions) * self.file_bytes as f64 / self.capacity as f64;
        self.live + open < self.target
    }

    /// The options of the store.
    pub(super) fn options(&self, scheme: &Scheme, target: f64, device: Device) -> Options {
        let mut options = Options::new(self.disks);
        options.partitions = self.disks * self.partitions;
        options.file_bytes = self.file_bytes;
        // As in the paper: an answered put survives the process, not the machine.
        options.durability = Durability::Never;
        options.quota = if scheme.in_pool { self.total() } else { self.capacity };
        options.live = self.live;
        options.rule = scheme.rule;
        options.triggers = scheme.triggers(self.capacity);
        options.target = target;
        options.groups = scheme.groups;
        options.device = device;
        options.delay_max =
            if self.delay { options.delay_max / self.parts } else { Duration::ZERO };
        options
    }
}

#[cfg(test)]
pub(super) mod tests {
    use policy::units::{KIB, MIB};

    use super::*;

    pub(in crate::series) fn shape() -> Shape {
        Shape {
            disks: 1,
            capacity: 16 * MIB,
            file_bytes: 256 * KIB,
            partitions: 2,
            live: 0.5,
            target: 0.8,
            value: 8 << 10,
            load: Load::Cyclic,
            clients: 16,
            delay: true,
            fills: [1.0, 1.0],
            pace: None,
            parts: 1,
            idle_readers: 0,
        }
    }

    #[test]
    fn a_scaled_disk_is_as_fast_and_a_minute_writes_as_large_a_part() {
        let shape = Shape { capacity: 1_000_000_000, ..shape() };
        let whole = catalogue::find("hdd-7200").expect("it is in the catalogue");
        let whole = whole.contract(None, Bought::default()).expect("nothing to buy");
        let scaled = shape.contract().expect("it is in the catalogue");
        let (whole, scaled) = (whole.disk.expect("a disk"), scaled.disk.expect("a disk"));
        assert_eq!(scaled.capacity, 5_000_000_000);
        assert_eq!(scaled.transfer_per_sec, whole.transfer_per_sec);
        assert_eq!(shape.minute(), Duration::from_millis(600));
    }

    #[test]
    fn mechanics_are_divided_and_the_bandwidth_is_not() {
        let of = |parts| Shape { parts, ..shape() }.contract().expect("it is in the catalogue");
        let (whole, part) = (of(1), of(64));
        assert_eq!(part.op_bytes_max, whole.op_bytes_max / 64);
        assert_eq!(part.latency.read.quantile(0.5), whole.latency.read.quantile(0.5) / 64);
        let (whole, part) = (whole.disk.expect("a disk"), part.disk.expect("a disk"));
        assert_eq!((part.seek_full, part.rpm), (whole.seek_full / 64, whole.rpm * 64));
        assert_eq!(part.transfer_per_sec, whole.transfer_per_sec);
    }

    #[test]
    fn fixed_triggers_are_bitcasks_scaled_with_the_disk_or_what_somebody_set() {
        let bitcask = Scheme::new(Rule::Static, 1).triggers(PAPER_CAPACITY as u64);
        assert_eq!(bitcask, Triggers::default());
        let tenth = Scheme::new(Rule::Static, 1).triggers(PAPER_CAPACITY as u64 / 10);
        assert_eq!((tenth.trigger_share, tenth.small), (bitcask.trigger_share, MIB));
        let set = Scheme::static_at(90);
        let triggers = set.triggers(MIB);
        assert!(triggers.start(90, 100) && !triggers.take(89, 100));
        assert_eq!(set.name(), "static at 90 %");
    }

    #[test]
    fn planing_is_condition_4() {
        let at = |live| Shape { live, ..shape() }.planes();
        // 2 files of 1/64.
        assert!(at(0.76) && !at(0.77));
    }
}
