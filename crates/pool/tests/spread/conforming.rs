//! A spread pool passes the conformance suite, on one volume and on six, with every placement.

use std::sync::Arc;

use pool::Member;
use pool::spread::Spread;
use volume::conformance::{self, Blocking, Harness, Work};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Volume};

use crate::jitter::Jitter;
use crate::rig::{PLACEMENTS, members, mems, opening};

#[test]
fn conforms_with_every_placement() {
    for placement in PLACEMENTS {
        for count in [1, 6] {
            eprintln!("{placement} over {count}");
            conformance::run(|| {
                let volumes = mems(count);
                let open = move || {
                    let opened = Spread::open(members(&volumes), opening(placement));
                    Arc::new(block_on(opened).unwrap()) as _
                };
                Box::new(Blocking::reopening(open))
            });
        }
    }
}

/// With what each call costs the devices.
#[test]
fn conforms_with_copies() {
    for (copies, volumes) in [(1, 2), (2, 2), (2, 4), (3, 3)] {
        conformance::run(|| {
            let (mems, calls) = (mems(volumes), TraceLog::new(4000));
            let traced = calls.clone();
            let open = move || {
                let clock = Clock::simulated();
                let volumes = mems.iter().map(|mem| {
                    let device = Trace::new(mem.clone(), mem.label(), &traced, &clock);
                    Member::new(mem.label(), device)
                });
                let opening = opening("round-robin").copies(copies);
                Arc::new(block_on(Spread::open(volumes.collect(), opening)).unwrap()) as _
            };
            Box::new(Blocking::reopening(open).counted(&calls, copies))
        });
    }
}

/// In virtual time, on volumes that take a random time for each call.
struct Slow {
    clock: Clock,
    volumes: Vec<Jitter<Mem>>,
    pool: Option<Arc<dyn Volume>>,
}

impl Harness for Slow {
    fn volume(&self) -> Arc<dyn Volume> {
        Arc::clone(self.pool.as_ref().expect("it is open between reopenings"))
    }

    fn run(&mut self, work: Work) {
        self.clock.run(work);
    }

    fn reopen(&mut self) -> bool {
        self.pool = None;
        let opening = opening("round-robin").copies(2);
        let opened = self.clock.run(Spread::open(members(&self.volumes), opening));
        self.pool = Some(Arc::new(opened.unwrap()));
        true
    }
}

/// Overlapping writes reached the copies in different orders, and a reader could get new bytes from one and then old ones
/// from the other.
#[test]
fn conforms_with_copies_on_slow_volumes() {
    for seed in 0..3 {
        eprintln!("seed {seed}");
        conformance::run(|| {
            let clock = Clock::simulated();
            let mems = mems(2).into_iter().zip(2 * seed..);
            let volumes = mems.map(|(mem, seed)| Jitter::new(mem, &clock, seed)).collect();
            let mut slow = Slow { clock, volumes, pool: None };
            slow.reopen();
            Box::new(slow)
        });
    }
}

#[test]
fn conforms_over_pools() {
    for placement in PLACEMENTS {
        conformance::run(|| {
            let volumes = [mems(3), mems(2)];
            let open = move || {
                let pools = volumes.iter().enumerate().map(|(at, volumes)| {
                    let pool = block_on(Spread::open(members(volumes), opening(placement)));
                    Member::new(format!("pool {at}"), pool.unwrap())
                });
                Arc::new(block_on(Spread::open(pools.collect(), opening(placement))).unwrap()) as _
            };
            Box::new(Blocking::reopening(open))
        });
    }
}
