//! Two requests and one background copy on two gated volumes: the number of orders that a search reaches.
//!
//! No run should ever fail; the test is that the search reaches many orders. The ending of a run is the
//! order in which the steps of the three were answered.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use policy::budget::Share;
use policy::contract::{Contract, Counted, Latency, Limit, Percentiles};
use policy::intent::Intent;
use policy::purpose::{Io, Origin, Step};
use policy::sched::Policy;
use rand::RngExt;
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::{IoBuf, IoBufMut, Name, Object, Volume};

use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "interleave",
    about: "Two requests and one background copy: how many orders are reached",
    run,
};

const LEN: usize = 4096;
const PIECES: u64 = 3;

fn run(sim: &Sim) -> String {
    let calls = TraceLog::new(usize::MAX);
    let order = Rc::new(RefCell::new(String::new()));
    let (a, b) = (object(sim, &calls, "a"), object(sim, &calls, "b"));
    sim.spawn("set-up", {
        let (sim, order) = (sim.clone(), Rc::clone(&order));
        async move {
            let [a, b] = [a.await, b.await];
            let io = Io::new(Origin::Open, Step::Data);
            a.write_at(0, IoBuf::from(&[7; LEN * PIECES as usize][..]), io).await.expect("room");
            let tell = |who: &'static str| Tell { sim: sim.clone(), order: Rc::clone(&order), who };
            sim.spawn("reader", read(tell("reader"), Arc::clone(&a)));
            sim.spawn("writer", write(tell("writer"), Arc::clone(&b)));
            sim.spawn("copy", copy(tell("copy"), a, b));
        }
    });
    sim.run();
    sim.log().add_calls(&calls);
    order.take()
}

async fn read(tell: Tell, object: Arc<dyn Object>) {
    let io = Io::new(Origin::UserRead, Step::Data);
    for piece in 0..PIECES {
        let read = object.read_at(piece * LEN as u64, IoBufMut::zeroed(LEN), io).await;
        assert_eq!(*read.expect("memory does not fail"), [7; LEN]);
        tell.step(format_args!("read {piece}"));
    }
}

async fn write(tell: Tell, object: Arc<dyn Object>) {
    let io = Io::new(Origin::UserWrite, Step::Data);
    for piece in PIECES..2 * PIECES {
        let written = object.write_at(piece * LEN as u64, IoBuf::from(&[9; LEN][..]), io).await;
        written.expect("memory does not fail");
        tell.step(format_args!("wrote {piece}"));
    }
    object.sync(io).await.expect("memory does not fail");
    tell.step(format_args!("synced"));
}

async fn copy(tell: Tell, from: Arc<dyn Object>, to: Arc<dyn Object>) {
    let io = Io::new(Origin::Copy, Step::Data);
    for piece in 0..PIECES {
        let offset = piece * LEN as u64;
        let bytes = from.read_at(offset, IoBufMut::zeroed(LEN), io).await;
        tell.step(format_args!("fetched {piece}"));
        let bytes = bytes.expect("memory does not fail").freeze();
        to.write_at(offset, bytes, io).await.expect("memory does not fail");
        tell.step(format_args!("stored {piece}"));
    }
}

/// An object on its own gated volume, with the latency of gp3 (Calcspar's traces, ATC 2023).
fn object(
    sim: &Sim,
    calls: &TraceLog,
    label: &str,
) -> impl Future<Output = Arc<dyn Object>> + use<> {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: 2_000, depth: 2_000 };
    let base = Percentiles {
        p1: Duration::from_micros(174),
        p50: Duration::from_micros(408),
        p90: Duration::from_micros(717),
        p99: Duration::from_micros(725),
        p999: Duration::from_micros(848),
    };
    let latency = Latency { read: base, write: base };
    let contract = Contract { limits: vec![limit], latency, ..Contract::unlimited() };
    let clock = sim.clock().clone();
    let device = Trace::new(Mem::new(label), label, calls, &clock);
    let device = Simulate::new(device, &contract, clock.clone(), sim.random(label).random());
    // Under tags the copy would be last in nearly every run, because it waits for the budget to fill.
    let (share, policy) = (Share::default(), Policy::Strict);
    let gate = Gate::with_policy(device, label, &contract, share, policy, clock);
    async move {
        let name = Name::new("object").expect("a good name");
        gate.create(&name, &Intent::DATA).await.expect("a new volume is empty")
    }
}

/// Logs the steps of one task.
struct Tell {
    sim: Sim,
    order: Rc<RefCell<String>>,
    who: &'static str,
}

impl Tell {
    fn step(&self, what: std::fmt::Arguments<'_>) {
        self.sim.note(self.who, format_args!(". {what}"));
        self.order.borrow_mut().push_str(&self.who[..1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn more_than_a_hundred_orders_are_reached() {
        let report = search(&PROGRAM, 0..1_000, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert!(report.distinct >= 100, "{} orders", report.distinct);
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..20 {
            assert_eq!(replay(&PROGRAM, seed).0, replay(&PROGRAM, seed).0);
        }
    }
}
