//! Logs: appended at once, synced when RocksDB asks, and otherwise by a timer.
//!
//! Appended bytes are in the page cache and survive a crash of the process. The kernel's own writeback
//! would bypass the gate, so a timer syncs dirty logs every
//! [`Settings::wal_sync_interval`](crate::Settings::wal_sync_interval).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use volume::heartbeat::{Heartbeat, SILENCE_MAX, TaskHealth};
use volume::task::block_on;
use volume::{Clock, ErrorKind, Name, Object, Result};

use crate::origin;

/// A log that is being written. Appending and syncing may overlap.
pub(crate) struct LogFile {
    name: Name,
    object: Arc<dyn Object>,
    /// Where the next record goes; in a recycled log, before its end.
    at: AtomicU64,
    /// Has bytes that were not synced.
    dirty: AtomicBool,
    /// Is on the timer's list.
    listed: AtomicBool,
    logs: Arc<Dirty>,
}

impl LogFile {
    /// Bytes written from the beginning.
    pub(crate) fn len(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// Appends `data`; on return it survives a crash of the process. RocksDB appends from one thread at a
    /// time.
    pub(crate) fn append(self: &Arc<Self>, data: &[u8]) -> Result<()> {
        self.object.blocking_write_at(self.len(), data, origin::LOG)?;
        self.at.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.mark();
        Ok(())
    }

    /// Makes everything appended before durable.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        // Before the sync, because an append during it makes the log dirty again.
        self.dirty.store(false, Ordering::Release);
        let done = block_on(self.object.sync(origin::LOG));
        // A volume that was away or full must still sync. One that lost bytes fails the next sync too.
        if done.as_ref().is_err_and(|error| is_owed(error.kind())) {
            self.mark();
        }
        done
    }

    /// Cuts the log to `len` bytes; the next append follows them.
    pub(crate) fn truncate(self: &Arc<Self>, len: u64) -> Result<()> {
        block_on(self.object.set_len(len))?;
        self.at.store(len, Ordering::Relaxed);
        self.mark();
        Ok(())
    }

    fn mark(self: &Arc<Self>) {
        // Sequentially consistent: this thread sets `dirty`, then reads `listed`; the timer clears `listed`,
        // then reads `dirty`. So the timer sees a dirty log, or this thread lists it again.
        self.dirty.store(true, Ordering::SeqCst);
        if !self.listed.load(Ordering::SeqCst) && !self.listed.swap(true, Ordering::SeqCst) {
            self.logs.0.lock().files.push(Arc::clone(self));
        }
    }
}

/// Whether a sync that failed with `kind` may succeed later.
const fn is_owed(kind: ErrorKind) -> bool {
    kind.is_away() || matches!(kind, ErrorKind::Busy | ErrorKind::OutOfSpace)
}

/// Every log of a database, and the thread that syncs the dirty ones.
pub(crate) struct Logs {
    dirty: Arc<Dirty>,
    timer: Option<JoinHandle<()>>,
    heartbeat: Heartbeat,
}

impl Logs {
    /// Starts a thread that syncs dirty logs every `interval`, until this is dropped.
    pub(crate) fn start(interval: Duration, clock: &Clock) -> Self {
        let dirty = Arc::new(Dirty::default());
        let heartbeat = Heartbeat::new("syncing logs", interval.saturating_add(SILENCE_MAX), clock);
        let timer = {
            let (dirty, heartbeat) = (Arc::clone(&dirty), heartbeat.clone());
            std::thread::Builder::new()
                .name("wal-sync".into())
                .spawn(move || {
                    heartbeat.supervise(|| dirty.sync_until_stopped(interval, &heartbeat))
                })
                .expect("the system has room for one more thread")
        };
        Self { dirty, timer: Some(timer), heartbeat }
    }

    /// How the timer does.
    pub(crate) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
    }

    /// Syncs every log that is dirty now.
    pub(crate) fn sync_all(&self) {
        let files = std::mem::take(&mut self.dirty.0.lock().files);
        // Errors are logged where they happen.
        let _ = sync_each(&files);
    }

    /// Releases a removed log: its space is free once no handle is left. At the full rate of a device, the
    /// logs of one interval can fill a small volume.
    pub(crate) fn forget(&self, name: &Name) {
        self.dirty.0.lock().files.retain(|file| file.name != *name);
    }

    /// A log whose next record goes to `at`.
    pub(crate) fn open(&self, name: Name, object: Arc<dyn Object>, at: u64) -> Arc<LogFile> {
        let logs = Arc::clone(&self.dirty);
        let clean = || AtomicBool::new(false);
        let at = AtomicU64::new(at);
        Arc::new(LogFile { name, object, at, dirty: clean(), listed: clean(), logs })
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.dirty.0.lock().stopped = true;
        self.dirty.1.notify_one();
        if let Some(timer) = self.timer.take() {
            // The timer fails only by a panic, which `health` reports.
            let _ = timer.join();
        }
        self.sync_all();
        // A log whose volume is away listed itself again, but the timer has ended.
        self.dirty.0.lock().files.clear();
    }
}

#[derive(Default)]
struct Dirty(Mutex<Waiting>, Condvar);

#[derive(Default)]
struct Waiting {
    files: Vec<Arc<LogFile>>,
    stopped: bool,
}

impl Dirty {
    fn sync_until_stopped(&self, interval: Duration, heartbeat: &Heartbeat) {
        loop {
            let mut waiting = self.0.lock();
            if !waiting.stopped {
                self.1.wait_for(&mut waiting, interval);
            }
            if waiting.stopped {
                return;
            }
            let files = std::mem::take(&mut waiting.files);
            drop(waiting);
            heartbeat.record(&sync_each(&files));
        }
    }
}

/// Syncs the dirty ones of `files`, all of them though one fails; gives the first error.
fn sync_each(files: &[Arc<LogFile>]) -> Result<()> {
    let synced: Vec<_> = files.iter().map(sync).collect();
    synced.into_iter().collect()
}

fn sync(file: &Arc<LogFile>) -> Result<()> {
    file.listed.store(false, Ordering::SeqCst);
    // A log that RocksDB synced itself in the meantime is clean and costs nothing.
    if !file.dirty.load(Ordering::SeqCst) {
        return Ok(());
    }
    let synced = file.sync();
    if let Err(error) = &synced {
        // RocksDB deleted the log in the meantime.
        if matches!(error.kind(), ErrorKind::Gone | ErrorKind::NotFound) {
            return Ok(());
        }
        tracing::error!(log = %file.name, %error, "a log could not be synced");
    }
    synced
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use volume::layer::crash::{Crash, Power};
    use volume::mem::Mem;
    use volume::{Error, Intent, Io, IoBuf, IoBufMut, Pending, Volume};

    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);

    fn name() -> Name {
        Name::new("a.log").unwrap()
    }

    /// Whether the next sync fails, and how.
    type Fails = Box<dyn FnMut() -> Option<ErrorKind> + Send>;

    /// An object that reports every sync.
    struct Telling(Arc<dyn Object>, Sender<()>, Mutex<Fails>);

    impl Object for Telling {
        fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
            self.0.read_at(offset, into, io)
        }
        fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
            self.0.write_at(offset, data, io)
        }
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn is_log(&self) -> bool {
            self.0.is_log()
        }
        fn set_len(&self, len: u64) -> Pending<'_, ()> {
            self.0.set_len(len)
        }
        fn sync(&self, io: Io) -> Pending<'_, ()> {
            self.1.send(()).expect("the test listens");
            match (self.2.lock())() {
                Some(kind) => Box::pin(async move { Err(Error::new(kind, "asked for")) }),
                None => self.0.sync(io),
            }
        }
    }

    fn telling() -> (Arc<dyn Object>, Receiver<()>) {
        failing(|| None)
    }

    fn failing(
        fails: impl FnMut() -> Option<ErrorKind> + Send + 'static,
    ) -> (Arc<dyn Object>, Receiver<()>) {
        let (tell, told) = channel();
        let object = block_on(Mem::new("v").create(&name(), &Intent::LOG)).unwrap();
        (Arc::new(Telling(object, tell, Mutex::new(Box::new(fails)))), told)
    }

    #[test]
    fn what_nobody_syncs_is_synced_by_the_timer() {
        let (object, told) = telling();
        let logs = Logs::start(Duration::from_millis(1), &Clock::simulated());
        let log = logs.open(name(), object, 0);
        for _ in 0..3 {
            log.append(b"record").unwrap();
            told.recv().expect("the timer syncs");
        }
        assert_eq!(log.len(), 18);
    }

    #[test]
    fn a_clean_log_is_left_alone() {
        let (object, told) = telling();
        {
            let logs = Logs::start(NEVER, &Clock::simulated());
            let log = logs.open(name(), object, 0);
            for _ in 0..5 {
                log.append(b"record").unwrap();
                log.sync().unwrap();
            }
            logs.sync_all();
        }
        assert_eq!(told.try_iter().count(), 5);
    }

    /// Only a volume that was away was synced again: a full or busy one stayed unsynced until the next append.
    #[test]
    fn a_sync_that_may_do_better_is_asked_for_again() {
        for kind in
            [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::OutOfSpace, ErrorKind::Busy]
        {
            let mut first = Some(kind);
            let (object, told) = failing(move || first.take());
            let logs = Logs::start(NEVER, &Clock::simulated());
            let log = logs.open(name(), object, 0);
            log.append(b"record").unwrap();
            for expected in [1, 1, 0] {
                logs.sync_all();
                assert_eq!(told.try_iter().count(), expected, "{kind:?}");
            }
        }
    }

    /// Its errors once reached only the log file.
    #[test]
    fn syncs_of_the_timer_that_fail_again_and_again_are_a_problem() {
        let is_away = Arc::new(AtomicBool::new(true));
        let fails = Arc::clone(&is_away);
        let (object, told) =
            failing(move || fails.load(Ordering::SeqCst).then_some(ErrorKind::Unavailable));
        let logs = Logs::start(Duration::from_millis(1), &Clock::simulated());
        let log = logs.open(name(), object, 0);
        log.append(b"record").unwrap();
        // A fifth sync begins after the fourth was recorded.
        (0..5).for_each(|_| told.recv().expect("the timer syncs"));
        let problem = logs.health().problem.expect("it fails");
        assert!(problem.contains("asked for"), "{problem}");
        is_away.store(false, Ordering::SeqCst);
        while logs.health().problem.is_some() {
            std::thread::yield_now();
        }
    }

    /// A panic of the timer once ended the promise of each interval silently.
    #[test]
    fn a_panic_of_the_timer_is_a_problem() {
        let (object, _told) = failing(|| panic!("asked for"));
        let logs = Logs::start(Duration::from_millis(1), &Clock::simulated());
        let log = logs.open(name(), object, 0);
        log.append(b"record").unwrap();
        let problem = loop {
            if let Some(problem) = logs.health().problem {
                break problem;
            }
            std::thread::yield_now();
        };
        assert!(problem.contains("ended with a panic"), "{problem}");
        logs.forget(&name());
    }

    #[test]
    fn a_log_that_was_removed_is_let_go_of() {
        let (object, told) = telling();
        {
            let logs = Logs::start(NEVER, &Clock::simulated());
            let log = logs.open(name(), Arc::clone(&object), 0);
            log.append(b"record").unwrap();
            drop(log);
            assert_eq!(Arc::strong_count(&object), 2);
            logs.forget(&name());
            assert_eq!(Arc::strong_count(&object), 1);
        }
        assert_eq!(told.try_iter().count(), 0, "nothing is left to sync");
    }

    #[test]
    fn what_was_appended_is_durable_when_the_last_log_is_closed() {
        let power = Power::new();
        let crash = Crash::new(Mem::new("v"), &power);
        {
            let object = block_on(crash.create(&name(), &Intent::LOG)).unwrap();
            let logs = Logs::start(NEVER, &Clock::simulated());
            logs.open(name(), object, 0).append(b"record").unwrap();
        }
        power.cut();
        assert_eq!(crash.survivor(3).image()[&name()], b"record");
    }
}
