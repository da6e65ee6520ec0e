//! The change of block devices between two answers of a server.

use serve::figures::{Block, BlockDevice};

/// All block devices together, and each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BlockRates {
    /// Reads and writes a second.
    pub(super) reads: Option<f64>,
    pub(super) writes: Option<f64>,
    /// Their bytes a second.
    pub(super) read_bytes: Option<f64>,
    pub(super) written_bytes: Option<f64>,
    /// What the store does on its own, a second: writes of marks, pages of checksums read and written, reads of blocks that
    /// a write covers in part, extents made, and regions whose copies are made equal after a crash.
    pub(super) marks: Option<f64>,
    pub(super) checksum_reads: Option<f64>,
    pub(super) checksum_writes: Option<f64>,
    pub(super) completing_reads: Option<f64>,
    pub(super) extents_made: Option<f64>,
    pub(super) aligned: Option<f64>,
    /// Those that use most of their limits first, then those with most operations.
    pub(super) devices: Vec<DeviceRates>,
}

/// One block device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeviceRates {
    pub(super) name: String,
    /// Operations a second.
    pub(super) ops: Option<f64>,
    /// Bytes a second.
    pub(super) bytes: Option<f64>,
    /// The most of both that its clients get; `None` if they are not limited.
    pub(super) limit_ops: Option<u64>,
    pub(super) limit_bytes: Option<u64>,
    /// Calls a second that waited for the limit.
    pub(super) limited: Option<f64>,
    /// How long they waited on average, in milliseconds; `None` without such calls.
    pub(super) limited_ms: Option<f64>,
}

impl BlockRates {
    /// The change between `before` and `now`, `seconds` later.
    pub(super) fn between(before: Option<&Block>, now: &Block, seconds: Option<f64>) -> Self {
        let rate = |of: fn(&Block) -> u64| per_second(before.map(of), of(now), seconds);
        let devices = now.devices.iter().map(|device| {
            let same = |other: &&BlockDevice| other.name == device.name;
            let before = before.and_then(|before| before.devices.iter().find(same));
            DeviceRates::between(before, device, seconds)
        });
        let mut devices: Vec<_> = devices.collect();
        devices.sort_by(|a, b| {
            let order = b.used().total_cmp(&a.used());
            order.then(b.ops.unwrap_or(0.0).total_cmp(&a.ops.unwrap_or(0.0)))
        });
        Self {
            reads: rate(|of| of.reads),
            writes: rate(|of| of.writes),
            read_bytes: rate(|of| of.read_bytes),
            written_bytes: rate(|of| of.written_bytes),
            marks: rate(|of| of.region_marks),
            checksum_reads: rate(|of| of.checksum_fetches),
            checksum_writes: rate(|of| of.checksum_writes),
            completing_reads: rate(|of| of.completing_reads),
            extents_made: rate(|of| of.extents_made),
            aligned: rate(|of| of.regions_aligned),
            devices,
        }
    }
}

impl DeviceRates {
    fn between(before: Option<&BlockDevice>, now: &BlockDevice, seconds: Option<f64>) -> Self {
        let rate = |of: fn(&BlockDevice) -> u64| per_second(before.map(of), of(now), seconds);
        let limited_ms = before.and_then(|before| {
            let calls = now.limited.saturating_sub(before.limited);
            let waited = (now.limited_s - before.limited_s).max(0.0);
            (calls > 0).then(|| waited * 1e3 / calls as f64)
        });
        Self {
            name: now.name.clone(),
            ops: rate(|of| of.reads + of.writes),
            bytes: rate(|of| of.read_bytes + of.written_bytes),
            limit_ops: now.limit_iops,
            limit_bytes: now.limit_bytes_per_s,
            limited: rate(|of| of.limited),
            limited_ms,
        }
    }

    /// The part of its limit that it uses, 0 without one.
    fn used(&self) -> f64 {
        let part = |rate: Option<f64>, limit: Option<u64>| Some(rate? / limit? as f64);
        let (ops, bytes) = (part(self.ops, self.limit_ops), part(self.bytes, self.limit_bytes));
        ops.unwrap_or(0.0).max(bytes.unwrap_or(0.0))
    }
}

fn per_second(before: Option<u64>, now: u64, seconds: Option<f64>) -> Option<f64> {
    Some(now.saturating_sub(before?) as f64 / seconds?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, ops: u64, limit_iops: Option<u64>, limited: u64) -> BlockDevice {
        BlockDevice {
            name: name.into(),
            reads: ops / 2,
            writes: ops / 2,
            written_bytes: ops * 4096,
            limit_iops,
            limited,
            limited_s: limited as f64 * 0.01,
            ..BlockDevice::default()
        }
    }

    #[test]
    fn rates_are_those_in_between_and_the_device_closest_to_its_limit_is_first() {
        let before = Block {
            devices: vec![device("a", 0, None, 0), device("b", 0, Some(100), 5)],
            reads: 10,
            region_marks: 1,
            ..Block::default()
        };
        let devices = vec![
            device("a", 2000, None, 0),
            device("b", 180, Some(100), 25),
            device("c", 10, Some(100), 0),
        ];
        let now = Block { devices, reads: 110, region_marks: 9, ..Block::default() };
        let block = BlockRates::between(Some(&before), &now, Some(2.0));
        assert_eq!((block.reads, block.writes, block.marks), (Some(50.0), Some(0.0), Some(4.0)));
        let [b, a, c] = &block.devices[..] else { panic!("{block:?}") };
        assert_eq!((&*a.name, a.ops, a.limited_ms), ("a", Some(1000.0), None));
        assert_eq!((&*b.name, b.ops, b.bytes), ("b", Some(90.0), Some(368_640.0)));
        assert_eq!((b.limit_ops, b.limited), (Some(100), Some(10.0)));
        assert!((b.limited_ms.expect("calls waited") - 10.0).abs() < 1e-9, "{b:?}");
        assert_eq!((&*c.name, c.ops), ("c", None), "it is new");
        let first = BlockRates::between(None, &now, None);
        assert_eq!((first.devices.len(), first.reads), (3, None));
    }
}
