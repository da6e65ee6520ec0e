//! Small files in a volume's directory that hold hints over restarts.
//!
//! A hint is no data: it is not synced, and its reader ignores one that is missing or damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// A write takes longer only where the volume does not answer.
const WRITE_MAX: Duration = Duration::from_secs(1);

/// The file, and what it says or would say.
pub(super) struct HintFile {
    path: PathBuf,
    kept: Arc<Mutex<Kept>>,
}

struct Kept {
    text: String,
    is_being_written: bool,
}

impl HintFile {
    /// The file of this name in `dir`, read once.
    pub(super) fn open(dir: &Path, name: &str) -> Self {
        let path = dir.join(name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self { path, kept: Arc::new(Mutex::new(Kept { text, is_being_written: false })) }
    }

    /// What it says.
    pub(super) fn text(&self) -> String {
        self.kept.lock().text.clone()
    }

    /// Takes `text` for what it says, without a write.
    pub(super) fn assume(&self, text: String) {
        self.kept.lock().text = text;
    }

    /// Writes `now`, if that is not what it says. Blocks for a second at most: a write to a volume that does not
    /// answer goes on in a thread of its own, and until it ends nothing more is written.
    pub(super) fn keep(&self, now: String) {
        let mut kept = self.kept.lock();
        if kept.is_being_written || now == kept.text {
            return;
        }
        kept.is_being_written = true;
        drop(kept);
        // Written under another name first, so that a full volume keeps what it has.
        let (path, new) = (self.path.clone(), new_name(&self.path));
        let kept = Arc::clone(&self.kept);
        let (done, written) = channel::<()>();
        let write = move || {
            let result = fs::write(&new, &now).and_then(|()| fs::rename(&new, &path));
            let mut kept = kept.lock();
            kept.is_being_written = false;
            match result {
                Ok(()) => kept.text = now,
                // A full or failed volume says so elsewhere.
                Err(error) => tracing::debug!("{} is not written: {error}", path.display()),
            }
            drop(done);
        };
        match thread::Builder::new().name("hint".into()).spawn(write) {
            // Disconnected when the write has ended.
            Ok(_) => _ = written.recv_timeout(WRITE_MAX),
            Err(error) => {
                self.kept.lock().is_being_written = false;
                tracing::debug!("{} is not written: {error}", self.path.display());
            }
        }
    }
}

fn new_name(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    new.into()
}
