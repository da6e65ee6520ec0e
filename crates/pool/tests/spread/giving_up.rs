//! Writes of objects in place that are given up while their records wait for the log of a pool of fragments: they take
//! effect before the next call begins, or never.

use std::time::Duration;

use futures_util::future::join;
use pool::logged::Options;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::{Clock, Intent, IoBufMut, Volume};

use crate::jitter::give_up_after;
use crate::logged::{filled, numbered, open};
use crate::rig::{IO, mems, name};

const BLOCK: usize = 4096;

/// The first reader writes the record; the second one comes while it does, and got the old bytes although the write was
/// over, and took effect after it.
#[test]
fn readers_wait_for_another_that_writes_what_was_given_up() {
    let (clock, plan) = (Clock::simulated(), FaultPlan::new(0));
    let volume = |mem: &volume::mem::Mem| {
        std::sync::Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock))
    };
    let volumes: Vec<_> = mems(6).iter().map(volume).collect();
    clock.run(async {
        let (_pool, logged) = open(&numbered(&volumes), Options::default()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, filled(BLOCK as u64, 1), IO).await.unwrap();
        plan.inject(Rule::new(Effect::Slow(Duration::from_secs(1))).on(Op::Write));
        let write = object.write_at(0, filled(BLOCK as u64, 2), IO);
        assert!(give_up_after(&clock, Duration::from_millis(1), write).await.is_none());
        let read = async || object.read_at(0, IoBufMut::zeroed(BLOCK), IO).await.unwrap()[0];
        let (first, second) = join(read(), read()).await;
        assert_eq!((first, second, read().await), (2, 2, 2));
        // A reader that gives up meanwhile leaves the rest to the next one.
        let write = object.write_at(0, filled(BLOCK as u64, 3), IO);
        assert!(give_up_after(&clock, Duration::from_millis(1), write).await.is_none());
        let reading = async { Ok(read().await) };
        assert!(give_up_after(&clock, Duration::from_millis(1), reading).await.is_none());
        assert_eq!((read().await, read().await), (3, 3));
    });
}
