//! A tier passes the conformance suite: cold, and with every read promoted and few slots.

use std::sync::Arc;

use pool::tier::{Always, Tier};
use volume::conformance::{self, Blocking, Harness, Work};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Volume};

use crate::delay::Delay;
use crate::rig::{beside, options};

/// With what each call costs the slow volume: as much as without the tier.
#[test]
fn conforms_and_costs_the_slow_volume_no_more() {
    conformance::run(|| {
        let (slow, fast, calls) = (Mem::new("slow"), Mem::new("fast"), TraceLog::new(4000));
        let traced = calls.clone();
        let open = move || {
            let clock = Clock::simulated();
            let slow = Trace::new(slow.clone(), "slow", &traced, &clock);
            let opened = Tier::open(
                Arc::new(slow),
                Some(Arc::new(fast.clone())),
                options(8),
                Box::new(Always),
                &clock,
            );
            Arc::new(block_on(opened).unwrap()) as _
        };
        Box::new(Blocking::reopening(open).counted(&calls, 1))
    });
}

/// In virtual time, on volumes that take a random time for each call, beside the tier's own work.
struct Busy {
    clock: Clock,
    slow: Arc<dyn Volume>,
    fast: Arc<dyn Volume>,
    slots: u64,
    tier: Option<Arc<Tier>>,
}

impl Harness for Busy {
    fn volume(&self) -> Arc<dyn Volume> {
        Arc::clone(self.tier.as_ref().expect("it is open between reopenings")) as _
    }

    fn run(&mut self, work: Work) {
        let tier = Arc::clone(self.tier.as_ref().expect("it is open between reopenings"));
        self.clock.run(beside(&tier, work));
    }

    fn reopen(&mut self) -> bool {
        if let Some(tier) = self.tier.take() {
            self.clock.run(tier.close());
        }
        let (slow, fast) = (Arc::clone(&self.slow), Some(Arc::clone(&self.fast)));
        let opened = Tier::open(slow, fast, options(self.slots), Box::new(Always), &self.clock);
        self.tier = Some(Arc::new(self.clock.run(opened).unwrap()));
        true
    }
}

#[test]
fn conforms_beside_promotions_and_evictions() {
    for (seed, slots) in [(0, 2), (1, 5), (2, 200)] {
        eprintln!("seed {seed}, {slots} slots");
        conformance::run(|| {
            let clock = Clock::simulated();
            let slow = Arc::new(Delay::new(Mem::new("slow"), &clock, 200, 2 * seed));
            let fast = Arc::new(Delay::new(Mem::new("fast"), &clock, 60, 2 * seed + 1));
            let mut busy = Busy { clock, slow, fast, slots, tier: None };
            busy.reopen();
            Box::new(busy)
        });
    }
}
