//! Queries to volumes that may hang.
//!
//! A hanging device blocks the thread that queries it. So each volume is queried on its own thread, one query at a
//! time, and the caller waits a bounded time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use plimsoll::volumes::Device;
use policy::time::Instant;
use volume::task::block_on;
use volume::{Clock, Space, Volume as _};

/// The limit on the time for all volumes together to report their space.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The queried volumes, by name.
#[derive(Default)]
pub(super) struct Probes(Mutex<BTreeMap<String, Arc<Probe>>>);

impl Probes {
    /// The space on each of these volumes, or its problem in words.
    pub(super) fn spaces(
        &self,
        devices: &[Arc<Device>],
        clock: &Clock,
    ) -> BTreeMap<String, Result<Space, String>> {
        let ask = |device: &Arc<Device>| {
            let name = device.name().to_owned();
            let probe = Arc::clone(self.0.lock().entry(name.clone()).or_default());
            let device = Arc::clone(device);
            probe.ask(move || block_on(device.gate().space()).map_err(|error| error.to_string()));
            (name, probe)
        };
        let asked: Vec<_> = devices.iter().map(ask).collect();
        let until = clock.now() + ANSWER_MAX;
        let answers = asked.into_iter().map(|(name, probe)| {
            let answer = probe.answer(clock, until).unwrap_or_else(|| {
                Err(format!("it does not answer within {} s", ANSWER_MAX.as_secs()))
            });
            (name, answer)
        });
        answers.collect()
    }
}

type Answer = Result<Space, String>;

/// One volume.
#[derive(Default)]
struct Probe {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Asked,
    Answered(Answer),
}

impl Probe {
    /// Starts the query, unless one is under way.
    fn ask(self: &Arc<Self>, question: impl FnOnce() -> Answer + Send + 'static) {
        let mut state = self.state.lock();
        if matches!(*state, State::Asked) {
            return;
        }
        let probe = Arc::clone(self);
        let started = std::thread::Builder::new().name("probe".into()).spawn(move || {
            let answer = question();
            *probe.state.lock() = State::Answered(answer);
            probe.answered.notify_all();
        });
        *state = match started {
            Ok(_) => State::Asked,
            Err(error) => State::Answered(Err(format!("its check cannot be started: {error}"))),
        };
    }

    /// The answer, if it arrives before `until`.
    fn answer(&self, clock: &Clock, until: Instant) -> Option<Answer> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Idle => return None,
                State::Answered(answer) => return Some(answer.clone()),
                State::Asked => {}
            }
            let now = clock.now();
            if now >= until {
                return None;
            }
            self.answered.wait_for(&mut state, until.since(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_volume_that_hangs_is_asked_once_and_not_waited_for() {
        let (probe, clock) = (Arc::<Probe>::default(), Clock::real());
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
        probe.ask(|| Ok(Space { total: 7, free: 3 }));
        assert_eq!(probe.answer(&clock, never), Some(Ok(Space { total: 7, free: 3 })));
    }
}
