//! A temporary directory that is removed even after an interrupt, and soon after a kill.
//!
//! Its owner holds a lock on a file in it. A killed process releases the lock, so the next process that makes a scratch
//! directory beside it removes the orphan.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

const LOCK: &str = "lock";

/// A directory that is not locked within this time is an orphan: its owner was killed at once.
const LOCKED_WITHIN: Duration = Duration::from_secs(60);

/// The directory, removed with its contents when this is dropped.
pub(crate) struct Scratch {
    path: PathBuf,
    /// Keeps the lock while open.
    _lock: File,
}

impl Scratch {
    /// Makes one under `parent` for `purpose`, a word, and removes orphans of the same purpose.
    pub(crate) fn new(parent: &Path, purpose: &str) -> anyhow::Result<Self> {
        remove_orphans(parent, purpose);
        let path = parent.join(format!("{}{}", prefix(purpose), std::process::id()));
        let made = || format!("create the directory {}", path.display());
        fs::create_dir(&path).with_context(made)?;
        let mut lock = File::create(path.join(LOCK)).with_context(made)?;
        lock.lock().with_context(made)?;
        // From here on it is an orphan once the lock is released.
        lock.write_all(b"plimsoll\n").with_context(made)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::error!("{} could not be removed: {error}", self.path.display());
        }
    }
}

fn prefix(purpose: &str) -> String {
    format!("plimsoll-{purpose}-")
}

/// Best effort: what cannot be read or removed belongs to others.
fn remove_orphans(parent: &Path, purpose: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(&prefix(purpose));
        if is_ours && is_orphan(&entry.path()) {
            tracing::info!(
                "{}: removed, a run that was killed had left it",
                entry.path().display()
            );
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_orphan(dir: &Path) -> bool {
    let lock = dir.join(LOCK);
    // An empty lock file is about to be locked.
    let written = lock.metadata().is_ok_and(|lock| lock.is_file() && lock.len() > 0);
    let unlocked = || File::open(&lock).is_ok_and(|lock| lock.try_lock().is_ok());
    if written { unlocked() } else { is_bare(dir) && is_old(dir) }
}

/// Whether it holds nothing but an empty lock, as when its maker is killed at once.
fn is_bare(dir: &Path) -> bool {
    let is_empty_lock = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            entry.file_name() == LOCK && entry.metadata().is_ok_and(|data| data.len() == 0)
        })
    };
    fs::read_dir(dir).is_ok_and(|mut entries| entries.all(is_empty_lock))
}

fn is_old(dir: &Path) -> bool {
    let age = dir.metadata().and_then(|data| data.modified()).map(|made| made.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age > LOCKED_WITHIN))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn it_goes_with_its_owner_and_orphans_go_with_the_next() {
        let parent = tempfile::tempdir().expect("room for a directory");
        let orphan = parent.path().join("plimsoll-bench-orphan");
        let other = parent.path().join("plimsoll-bench-notes");
        let bare = parent.path().join("plimsoll-bench-bare");
        let new = parent.path().join("plimsoll-bench-new");
        let probe = parent.path().join("plimsoll-probe-orphan");
        for dir in [&orphan, &other, &bare, &new, &probe] {
            fs::create_dir(dir).expect("room for a directory");
        }
        fs::write(orphan.join(LOCK), "plimsoll\n").expect("room for a file");
        fs::write(other.join("notes"), "mine").expect("room for a file");
        fs::write(probe.join(LOCK), "plimsoll\n").expect("room for a file");
        let long_ago = SystemTime::now() - 2 * LOCKED_WITHIN;
        for dir in [&bare, &other] {
            let dir = File::open(dir).expect("it is there");
            dir.set_modified(long_ago).expect("it is ours");
        }

        let scratch = Scratch::new(parent.path(), "bench").expect("room for a directory");
        fs::write(scratch.path().join("data"), "bytes").expect("room for a file");
        assert!(!orphan.exists(), "its owner is gone");
        assert!(other.exists(), "it has no lock file");
        assert!(!bare.exists(), "its owner was killed before it wrote anything");
        assert!(new.exists(), "its owner may be about to lock it");
        assert!(probe.exists(), "it is not a bench's");
        remove_orphans(parent.path(), "bench");
        assert!(scratch.path().join("data").exists(), "its owner is here");
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
