//! Detects other users of a volume: a probe would slow their I/O, and they would distort its figures.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use volume::Clock;
use volume::dir::BlockDevice;
use volume::task::block_on;

/// How long to watch the device's counters.
const WATCHED: Duration = Duration::from_secs(1);

/// I/Os per second that a file system does on its own.
const QUIET: u64 = 5;

/// Fails if something else uses the volume that `path` is on.
pub(super) fn refuse(path: &Path, clock: &Clock) -> anyhow::Result<()> {
    let place = path.display();
    const WAY_OUT: &str = "stop that first, or give --in-use";
    if let Some(holder) = holder(path) {
        bail!("{place} is in use: process {holder} has it open as a volume: {WAY_OUT}");
    }
    if path.join("objects/pool.header").exists() {
        bail!(
            "{place} is a volume of a pool: while no server runs on it, the probe does the pool's data no \
             harm: give --in-use"
        );
    }
    let Some(device) = BlockDevice::of(path) else { return Ok(()) };
    let before = device.ios();
    block_on(clock.sleep(WATCHED));
    let moved = device.ios().zip(before).map_or(0, |(after, before)| after.saturating_sub(before));
    if moved > QUIET {
        bail!(
            "{place} is in use: its device {} did {moved} I/Os within a second: {WAY_OUT}",
            device.name()
        );
    }
    Ok(())
}

/// The process that has the directory open as a volume.
pub(in crate::command) fn holder(path: &Path) -> Option<String> {
    let lock = path.join("plimsoll.lock");
    let file = File::open(&lock).ok()?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&lock).unwrap_or_default().trim().to_owned();
            Some(if holder.is_empty() { "unknown".into() } else { holder })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::dir::{Dir, DirOptions};

    #[test]
    fn a_volume_that_is_open_or_of_a_pool_is_in_use() {
        let clock = Clock::simulated();
        let place = tempfile::tempdir().expect("room for a directory");
        let volume = Dir::open(place.path(), DirOptions::default()).expect("a volume");
        let refused = refuse(place.path(), &clock).expect_err("it is open").to_string();
        let process = format!("process {}", std::process::id());
        assert!(refused.contains(&process) && refused.contains("--in-use"), "{refused}");
        drop(volume);
        assert_eq!(holder(place.path()), None);
        fs::write(place.path().join("objects/pool.header"), "").expect("room for a file");
        let refused = refuse(place.path(), &clock).expect_err("it is a pool's").to_string();
        assert!(refused.contains("pool") && refused.contains("--in-use"), "{refused}");
    }
}
