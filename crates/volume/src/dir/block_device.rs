//! The block device under a directory, and the kernel's counters of it: whether other processes use it, whether each
//! request becomes one I/O, and whether the tokens of a gate are what the device did.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// A block device, as the kernel shows it under `/sys`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BlockDevice {
    device: PathBuf,
}

impl BlockDevice {
    /// The device that holds the file or directory at `path`; the whole device where it is partitioned, since a provider
    /// sells the whole. `None` if the kernel shows none: btrfs, overlays, file systems in memory and over a network.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let number = fs::metadata(path).ok()?.dev();
        let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        let mut device = fs::canonicalize(link).ok()?;
        if device.join("partition").exists() {
            device.pop();
        }
        let found = Self { device };
        found.ios().is_some().then_some(found)
    }

    /// The device's name: `nvme1n1`.
    #[must_use]
    pub fn name(&self) -> String {
        self.device.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// I/Os that ended since the device was attached: reads and writes, each as the device had it, after the kernel split
    /// and merged requests.
    #[must_use]
    pub fn ios(&self) -> Option<u64> {
        ios(&fs::read_to_string(self.device.join("stat")).ok()?)
    }

    /// The largest I/O that the kernel sends to it, in bytes: it splits larger requests.
    #[must_use]
    pub fn request_bytes_max(&self) -> Option<u64> {
        let kib = fs::read_to_string(self.device.join("queue/max_sectors_kb")).ok()?;
        Some(kib.trim().parse::<u64>().ok()? * 1024)
    }
}

/// The first and the fifth figure (Documentation/block/stat.rst).
fn ios(stat: &str) -> Option<u64> {
    let figures: Vec<u64> = stat.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some(figures.first()? + figures.get(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_added() {
        let stat = "   12  1  96  3   30  2  240  9  0  11  12  0 0 0 0 5 6\n";
        assert_eq!(ios(stat), Some(42));
        assert_eq!(ios(""), None);
    }

    #[test]
    fn no_device_is_found_where_the_kernel_shows_none() {
        assert_eq!(BlockDevice::of(Path::new("/proc/self")), None);
        assert_eq!(BlockDevice::of(Path::new("/nowhere/at/all")), None);
    }
}
