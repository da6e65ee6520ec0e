//! A directory that nothing is left of: not after an interrupt, and not for long after a kill.
//!
//! Whoever uses one holds a lock on a file in it. A process that was killed holds none any more, so the
//! next one that makes a scratch directory beside it removes what was left.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

const PREFIX: &str = "plimsoll-bench-";
const LOCK: &str = "lock";

/// The directory. It goes with everything in it when this is dropped.
pub(super) struct Scratch {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl Scratch {
    /// Makes one under `parent`, and removes those whose owners are gone.
    pub(super) fn new(parent: &Path) -> anyhow::Result<Self> {
        remove_orphans(parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        let made = || format!("make the directory {}", path.display());
        fs::create_dir(&path).with_context(made)?;
        let mut lock = File::create(path.join(LOCK)).with_context(made)?;
        lock.lock().with_context(made)?;
        // From here on it is an orphan once nobody holds the lock.
        lock.write_all(b"plimsoll bench\n").with_context(made)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::error!("{} is left behind: {error}", self.path.display());
        }
    }
}

/// Best effort: what cannot be read or removed is somebody else's.
fn remove_orphans(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_orphan(&entry.path()) {
            tracing::info!("{}: left by a run that was killed, removed", entry.path().display());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_orphan(dir: &Path) -> bool {
    let lock = dir.join(LOCK);
    // One that is empty is about to be locked.
    let written = lock.metadata().is_ok_and(|lock| lock.is_file() && lock.len() > 0);
    written && File::open(lock).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_its_owner_and_orphans_go_with_the_next() {
        let parent = tempfile::tempdir().expect("room for a directory");
        let orphan = parent.path().join("plimsoll-bench-orphan");
        let other = parent.path().join("plimsoll-bench-notes");
        for dir in [&orphan, &other] {
            fs::create_dir(dir).expect("room for a directory");
        }
        fs::write(orphan.join(LOCK), "plimsoll bench\n").expect("room for a file");
        fs::write(other.join("notes"), "mine").expect("room for a file");

        let scratch = Scratch::new(parent.path()).expect("room for a directory");
        fs::write(scratch.path().join("data"), "bytes").expect("room for a file");
        assert!(!orphan.exists(), "its owner is gone");
        assert!(other.exists(), "nobody says it is ours");
        remove_orphans(parent.path());
        assert!(scratch.path().join("data").exists(), "its owner is here");
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
