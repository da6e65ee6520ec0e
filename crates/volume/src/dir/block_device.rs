//! The block device under a directory, and the kernel's counters of it or of those that it is made of: whether other processes use it, whether each
//! request becomes one I/O, and whether the tokens of a gate are what the device did.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// A block device, as the kernel shows it under `/sys`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BlockDevice {
    device: PathBuf,
    /// What its I/Os become: those that it is made of (LVM, dm-crypt, md), or itself.
    lowest: Vec<PathBuf>,
}

impl BlockDevice {
    /// The device that holds the file or directory at `path`; the whole device where it is partitioned, since a provider
    /// sells the whole. `None` if the kernel shows none: btrfs, overlays, file systems in memory and over a network.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let number = fs::metadata(path).ok()?.dev();
        Self::at(format!("/sys/dev/block/{}:{}", major(number), minor(number)))
    }

    fn at(link: impl AsRef<Path>) -> Option<Self> {
        let device = whole(link.as_ref())?;
        let mut lowest = Vec::new();
        add_lowest(&device, &mut lowest);
        let found = Self { device, lowest };
        found.ios().is_some().then_some(found)
    }

    /// The device's name: `nvme1n1`.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(&self.device)
    }

    /// I/Os that ended since the device was attached: reads and writes, each as the device had it, after the kernel split
    /// and merged requests. Of a device that is made of others, theirs: the device mapper counts before requests are merged.
    #[must_use]
    pub fn ios(&self) -> Option<u64> {
        let of = |device: &PathBuf| ios(&fs::read_to_string(device.join("stat")).ok()?);
        self.lowest.iter().map(of).sum()
    }

    /// Bytes that were written to it, or to those that it is made of, since they were attached.
    #[must_use]
    pub fn bytes_written(&self) -> Option<u64> {
        let of = |device: &PathBuf| {
            let stat = fs::read_to_string(device.join("stat")).ok()?;
            Some(512 * stat.split_whitespace().nth(6)?.parse::<u64>().ok()?)
        };
        self.lowest.iter().map(of).sum()
    }

    /// The largest I/O that the kernel sends to it, or to one that it is made of, in bytes: it splits larger requests.
    #[must_use]
    pub fn request_bytes_max(&self) -> Option<u64> {
        self.limits().map(|(_, bytes)| bytes).min()
    }

    /// The names of those to which the kernel sends no I/O of so many bytes, the lowest first.
    #[must_use]
    pub fn splitting(&self, bytes: u64) -> Vec<String> {
        let small = self.limits().filter(|&(_, max)| max < bytes);
        small.map(|(device, _)| name_of(device)).collect()
    }

    /// Those that it is made of, and itself, each with its largest I/O.
    fn limits(&self) -> impl Iterator<Item = (&PathBuf, u64)> {
        let itself = Some(&self.device).filter(|device| !self.lowest.contains(device));
        self.lowest.iter().chain(itself).filter_map(|device| {
            let kib = fs::read_to_string(device.join("queue/max_sectors_kb")).ok()?;
            Some((device, kib.trim().parse::<u64>().ok()? * 1024))
        })
    }
}

fn name_of(device: &Path) -> String {
    device.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The device that a link leads to, and all of it where that is a partition.
fn whole(link: &Path) -> Option<PathBuf> {
    let mut device = fs::canonicalize(link).ok()?;
    if device.join("partition").exists() {
        device.pop();
    }
    Some(device)
}

/// Adds the devices that this one is made of, or itself, each once.
fn add_lowest(device: &Path, lowest: &mut Vec<PathBuf>) {
    let below = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<_> = below.filter_map(|entry| whole(&entry.path())).collect();
    below.iter().for_each(|device| add_lowest(device, lowest));
    if below.is_empty() && !lowest.iter().any(|known| known == device) {
        lowest.push(device.into());
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

    /// A sync on LVM was charged with every block of the journal, which the device gets in one write.
    #[test]
    fn the_lowest_devices_of_a_stack_count() {
        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| tree.path().join(path);
        let make = |path: &str, ios: u64| {
            fs::create_dir_all(at(path).join("slaves")).unwrap();
            fs::write(at(path).join("stat"), format!("{ios} 0 0 0 0 0 0 0 0 0 0\n")).unwrap();
        };
        let link = |of: &str, to: &str| {
            let name = Path::new(to).file_name().unwrap();
            std::os::unix::fs::symlink(at(to), at(of).join("slaves").join(name)).unwrap();
        };
        for (path, ios) in [("a", 1), ("b", 10), ("raid", 100), ("volume", 1000)] {
            make(path, ios);
        }
        // The same disk by two partitions, and another one.
        for partition in ["a/a1", "a/a2"] {
            make(partition, 7);
            fs::write(at(partition).join("partition"), "1").unwrap();
            link("raid", partition);
        }
        link("raid", "b");
        link("volume", "raid");
        let ios = |path: &str| BlockDevice::at(at(path)).and_then(|device| device.ios());
        assert_eq!(["volume", "raid", "a/a1", "b"].map(ios), [11, 11, 1, 10].map(Some));
        assert_eq!(BlockDevice::at(at("volume")).unwrap().name(), "volume");
        let volume = BlockDevice::at(at("volume")).unwrap();
        assert_eq!(volume.request_bytes_max(), None);
        for (path, kib) in [("volume", "1280"), ("b", "128")] {
            fs::create_dir(at(path).join("queue")).unwrap();
            fs::write(at(path).join("queue/max_sectors_kb"), format!("{kib}\n")).unwrap();
        }
        assert_eq!(volume.request_bytes_max(), Some(128 << 10), "the least");
        assert_eq!(volume.splitting(256 << 10), ["b"]);
        assert_eq!(volume.splitting(2048 << 10), ["b", "volume"]);
        assert!(volume.splitting(128 << 10).is_empty());
        fs::remove_file(at("b/stat")).unwrap();
        assert_eq!(BlockDevice::at(at("volume")), None, "not all of it is counted");
    }

    #[test]
    fn no_device_is_found_where_the_kernel_shows_none() {
        assert_eq!(BlockDevice::of(Path::new("/proc/self")), None);
        assert_eq!(BlockDevice::of(Path::new("/nowhere/at/all")), None);
    }
}
