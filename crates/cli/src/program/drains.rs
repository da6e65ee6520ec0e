//! Drains of volumes in the background, each on its own thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll::volumes::Pool;
use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use pool::Spread;
use pool::spread::{Drained, VolumeState};
use serve::admin::volumes::Drain;
use tokio::sync::oneshot;
use volume::Clock;
use volume::task::block_on;

/// An administrator asked for the drain, and can wait.
const IO: Io = Io::new(Origin::Bulk, Step::Data);

/// The pause before a retry of objects that could not move, such as a table being written.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The number of retries without progress.
const TRIES: u32 = 20;

/// The drains under way. They stop when this is dropped, and resume at the next start.
pub(super) struct Drains {
    clock: Clock,
    /// By the names of the volumes.
    running: Mutex<BTreeMap<String, Running>>,
    /// The pools whose earlier drains go on.
    resumed: Mutex<BTreeSet<String>>,
}

struct Running {
    progress: Arc<Mutex<Drain>>,
    /// The drain stops when this is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drains {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), running: Mutex::default(), resumed: Mutex::default() }
    }

    /// Resumes drains of a pool that began before the program started; does nothing when called again.
    pub(super) fn resume(&self, name: &str, pool: &Pool) {
        if self.resumed.lock().insert(name.to_owned()) {
            self.resume_in(pool);
        }
    }

    fn resume_in(&self, pool: &Pool) {
        let volumes = pool.volumes().into_iter();
        for volume in volumes.filter(|volume| volume.state == VolumeState::Draining) {
            tracing::info!("volume {}: its drain continues", volume.label);
            self.start(pool, &volume.label, volume.id);
        }
        pool.all_below().into_iter().for_each(|(_, pool)| self.resume_in(pool));
    }

    /// The progress of a drain, if one was started.
    pub(super) fn progress(&self, volume: &str) -> Option<Drain> {
        Some(self.running.lock().get(volume)?.progress.lock().clone())
    }

    /// Starts a drain, unless it is under way.
    pub(super) fn start(&self, pool: &Spread, name: &str, volume: VolumeId) {
        let mut running = self.running.lock();
        if let Some(before) = running.get(name) {
            let progress = before.progress.lock();
            if !progress.done && progress.stopped.is_none() {
                return;
            }
        }
        let left = pool.held().get(&volume).map_or(0, |held| held.objects);
        let progress = Arc::new(Mutex::new(Drain { left, ..Drain::default() }));
        let (stop, stopped) = oneshot::channel();
        let (pool, clock, told) = (pool.clone(), self.clock.clone(), Arc::clone(&progress));
        let work = async move {
            tokio::select! {
                _ = stopped => {}
                () = empty(&pool, volume, &clock, &told) => {}
            }
        };
        let thread = std::thread::Builder::new().name("drain".into()).spawn(|| block_on(work));
        let thread = thread.expect("the system has room for one more thread");
        let new = Running { progress, stop: Some(stop), thread: Some(thread) };
        running.insert(name.to_owned(), new);
    }

    /// Stops a drain where it is, and forgets it.
    pub(super) fn stop(&self, volume: &str) {
        drop(self.running.lock().remove(volume));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

/// Drains a volume as far as possible.
async fn empty(pool: &Spread, volume: VolumeId, clock: &Clock, progress: &Mutex<Drain>) {
    let mut idle = 0;
    loop {
        let moved = progress.lock().moved;
        let tell = |now: Drained| {
            let mut progress = progress.lock();
            (progress.moved, progress.left) = (moved + now.objects, now.left);
        };
        let why = match pool.drain(volume, IO, tell).await {
            Ok(left) => match left.objects.first() {
                None => {
                    let mut progress = progress.lock();
                    (progress.left, progress.done) = (0, true);
                    return;
                }
                Some((name, why)) => {
                    let more = left.objects.len() - 1;
                    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                    format!("{name} cannot be moved: {why}{more}")
                }
            },
            Err(error) => error.to_string(),
        };
        idle = if progress.lock().moved > moved { 0 } else { idle + 1 };
        if idle == TRIES {
            tracing::warn!("volume {volume}: its drain has stopped: {why}");
            progress.lock().stopped = Some(why);
            return;
        }
        clock.sleep(TRY_AGAIN_AFTER).await;
    }
}
