//! Forwards RocksDB's info log to `tracing`.
//!
//! RocksDB writes it while it holds the lock that every write needs, so nothing here may wait: lines
//! go through a bounded channel, and lines that do not fit are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// RocksDB's `InfoLogLevel`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    /// Headers (5) are information: they list every option.
    fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Debug,
            2 => Self::Warn,
            3 | 4 => Self::Error,
            _ => Self::Info,
        }
    }
}

struct Line {
    level: Level,
    text: String,
}

/// The sender of lines, shared by all threads of RocksDB.
pub(crate) struct InfoLog {
    lines: Option<SyncSender<Line>>,
    lost: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

impl InfoLog {
    /// Starts the thread that forwards lines. Up to `lines_max` wait; each names its `database`.
    pub(crate) fn start(database: &str, lines_max: usize) -> Self {
        let (sender, receiver) = sync_channel(lines_max.max(1));
        let lost = Arc::new(AtomicU64::new(0));
        let writer = {
            let (database, lost) = (database.to_owned(), Arc::clone(&lost));
            std::thread::Builder::new()
                .name("rocksdb-log".into())
                .spawn(move || write(&database, &receiver, &lost))
                .expect("the system has room for one more thread")
        };
        Self { lines: Some(sender), lost, writer: Some(writer) }
    }

    /// Queues a line, or counts it as lost. Never waits.
    pub(crate) fn line(&self, level: u8, text: &[u8]) {
        let line = Line {
            level: Level::from_code(level),
            text: String::from_utf8_lossy(text).trim_end().to_owned(),
        };
        let handed_on = self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok());
        if !handed_on {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InfoLog {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            // The panic hook has reported a subscriber that panicked.
            let _ = writer.join();
        }
    }
}

/// RocksDB's `Info` is a line for every flush and compaction, so it becomes `debug` here.
fn write(database: &str, lines: &Receiver<Line>, lost: &AtomicU64) {
    for Line { level, text } in lines {
        match level {
            Level::Debug => tracing::trace!(target: "rocksdb", database, "{text}"),
            Level::Info => tracing::debug!(target: "rocksdb", database, "{text}"),
            Level::Warn => tracing::warn!(target: "rocksdb", database, "{text}"),
            Level::Error => tracing::error!(target: "rocksdb", database, "{text}"),
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(target: "rocksdb", database, lost, "lines came too fast and were lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_find_no_place_are_counted_and_nobody_waits() {
        let (sender, nobody_reads) = sync_channel(2);
        let log = InfoLog { lines: Some(sender), lost: Arc::default(), writer: None };
        for _ in 0..5 {
            log.line(1, b"a line\n");
        }
        assert_eq!(log.lost.load(Ordering::Relaxed), 3);
        let kept: Vec<_> = nobody_reads.try_iter().map(|line| (line.level, line.text)).collect();
        assert_eq!(kept, [(Level::Info, "a line".into()), (Level::Info, "a line".into())]);
    }

    #[test]
    fn levels_are_rocksdbs() {
        let levels = [0, 1, 2, 3, 4, 5].map(Level::from_code);
        use Level::{Debug, Error, Info, Warn};
        assert_eq!(levels, [Debug, Info, Warn, Error, Error, Info]);
    }
}
