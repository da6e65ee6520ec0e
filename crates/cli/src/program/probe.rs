//! Queries to volumes that may hang.
//!
//! A hanging device blocks the thread that queries it. So each volume is queried on its own thread, one query at a
//! time, and the caller waits a bounded time.
//!
//! A file system tells its space from memory, also while the device below hangs. So each few seconds a page is written
//! and synced, too. The request for `/health` does not wait for that write, which may have to wait for tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use plimsoll::volumes::Device;
use policy::time::Instant;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Space, Volume as _};

/// The limit on the time for all volumes together to report their space.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The time between two pages written to a volume that takes them.
const PAGE_EVERY: Duration = Duration::from_secs(5);

/// The queried volumes, by name.
#[derive(Default)]
pub(super) struct Probes(Mutex<BTreeMap<String, Arc<Probe>>>);

/// The space on each volume, or its problem in words.
pub(super) type Spaces = BTreeMap<String, Result<Space, String>>;

/// The queries to one volume.
#[derive(Default)]
struct Probe {
    space: Arc<Question<Space>>,
    page: Arc<Question<()>>,
    page_after: Mutex<Instant>,
}

impl Probes {
    /// The space on each of these volumes, or its problem in words.
    pub(super) fn spaces(&self, devices: &[Arc<Device>], clock: &Clock) -> Spaces {
        let ask = |device: &Arc<Device>| {
            let (probe, device) = (self.of(device), Arc::clone(device));
            let asked = Arc::clone(&device);
            probe.space.ask(move || block_on(asked.gate().space()).map_err(|e| e.to_string()));
            (device, probe)
        };
        let asked: Vec<_> = devices.iter().map(ask).collect();
        let until = clock.now() + ANSWER_MAX;
        let answers = asked.into_iter().map(|(device, probe)| {
            let answer = match device.silent_for() {
                Some(silent) => Err(format!(
                    "its device does not answer (found out {} s ago), and calls to it are refused: see that it \
                     is attached and healthy",
                    silent.as_secs()
                )),
                None => probe.space.answer(clock, until).unwrap_or_else(|| {
                    Err(format!("it does not answer within {} s", ANSWER_MAX.as_secs()))
                }),
            };
            let answer = answer.and_then(|space| match probe.page.answered() {
                Some(Err(why)) => Err(why),
                _ => Ok(space),
            });
            (device.name().to_owned(), answer)
        });
        answers.collect()
    }

    /// Writes a page to each of these volumes, unless one is being written or was lately. Waits for none.
    pub(super) fn write_pages(&self, devices: &[Arc<Device>], clock: &Clock) {
        for device in devices {
            let (probe, device) = (self.of(device), Arc::clone(device));
            let failed = matches!(probe.page.answered(), Some(Err(_)));
            let mut after = probe.page_after.lock();
            if failed || clock.now() >= *after {
                *after = clock.now() + PAGE_EVERY;
                probe.page.ask(move || match block_on(device.try_out()) {
                    // A full volume answers, and its stores tell that they take no writes.
                    Err(error) if error.kind() != ErrorKind::OutOfSpace => Err(error.to_string()),
                    _ => Ok(()),
                });
            }
        }
    }

    fn of(&self, device: &Device) -> Arc<Probe> {
        Arc::clone(self.0.lock().entry(device.name().to_owned()).or_default())
    }
}

/// A question to a volume, asked on a thread of its own.
struct Question<T> {
    state: Mutex<State<T>>,
    answered: Condvar,
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { is_asked: false, answer: None }),
            answered: Condvar::new(),
        }
    }
}

struct State<T> {
    is_asked: bool,
    /// The last one.
    answer: Option<Result<T, String>>,
}

impl<T: Clone + Send + 'static> Question<T> {
    /// Starts the query, unless one is under way.
    fn ask(self: &Arc<Self>, question: impl FnOnce() -> Result<T, String> + Send + 'static) {
        let mut state = self.state.lock();
        if state.is_asked {
            return;
        }
        let asked = Arc::clone(self);
        let started = std::thread::Builder::new().name("probe".into()).spawn(move || {
            let answer = question();
            *asked.state.lock() = State { is_asked: false, answer: Some(answer) };
            asked.answered.notify_all();
        });
        match started {
            Ok(_) => state.is_asked = true,
            Err(error) => state.answer = Some(Err(format!("its check cannot be started: {error}"))),
        }
    }

    /// The last answer.
    fn answered(&self) -> Option<Result<T, String>> {
        self.state.lock().answer.clone()
    }

    /// The answer to the last query, if it arrives before `until`.
    fn answer(&self, clock: &Clock, until: Instant) -> Option<Result<T, String>> {
        let mut state = self.state.lock();
        while state.is_asked {
            let now = clock.now();
            if now >= until {
                return None;
            }
            self.answered.wait_for(&mut state, until.since(now));
        }
        state.answer.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use plimsoll::volumes::{Devices, Volume};
    use policy::contract::Contract;
    use volume::layer::call::Op;
    use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
    use volume::mem::Mem;

    use super::*;

    #[test]
    fn a_volume_that_hangs_is_asked_once_and_not_waited_for() {
        let (probe, clock) = (Arc::<Question<Space>>::default(), Clock::real());
        let (hang, hung) = mpsc::channel::<()>();
        // Ends when the sender is dropped.
        probe.ask(move || {
            hung.recv().map(|()| unreachable!("nothing is sent")).map_err(|_| "woken".into())
        });
        for _ in 0..3 {
            probe.ask(|| unreachable!("a question is under way"));
            assert_eq!(probe.answer(&clock, clock.now()), None);
        }
        drop(hang);
        let never = clock.now() + Duration::from_secs(3600);
        assert_eq!(probe.answer(&clock, never), Some(Err("woken".into())));
        probe.ask(|| Ok(Space { total: 7, free: 3, lacks_files: false }));
        assert_eq!(
            probe.answer(&clock, never),
            Some(Ok(Space { total: 7, free: 3, lacks_files: false }))
        );
    }

    /// A file system tells its space from memory.
    #[test]
    fn a_volume_whose_writes_hang_is_found_out_by_its_page() {
        let (clock, plan, probes) = (Clock::real(), FaultPlan::new(0), Probes::default());
        let fault = Fault::new(Mem::new("v"), "v", &plan, &clock);
        let volume = Volume::other("v", fault, Contract::unlimited());
        let volume = volume.timeout(Duration::from_millis(10));
        let here = Devices::open(&[volume], &clock).expect("it is in memory").here();
        plan.inject(Rule::new(Effect::Slow(Duration::from_secs(3600))).on(Op::Write));
        assert!(probes.spaces(&here, &clock)["v"].is_ok());
        probes.write_pages(&here, &clock);
        while probes.spaces(&here, &clock)["v"].is_ok() {
            std::thread::yield_now();
        }
    }
}
