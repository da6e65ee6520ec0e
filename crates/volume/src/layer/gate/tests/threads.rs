//! The gate under real threads and the real clock. The tests check that every request is answered
//! and every token accounted for, never how long it took.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::task::block_on;

/// Fast enough for a short test, slow enough that requests always wait for each other.
const IOPS: u64 = 50_000;

fn with_threads(work: impl Fn(u64, &Gate<Device>, &dyn Object) + Sync) -> (Cost, Vec<Issued>) {
    let clock = Clock::real();
    let device = Device::new(&clock);
    let gate = Gate::new(device.clone(), "vol", &contract(IOPS), Share::default(), clock);
    let object = block_on(gate.create(&name("data"), &Intent::DATA)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (work, gate, object) = (&work, &gate, &*object);
            scope.spawn(move || work(thread, gate, object));
        }
    });
    assert!(gate.meter().classes.iter().all(|class| class.queued == 0));
    (gate.meter().spent(), device.take())
}

fn total(issued: &[Issued]) -> Cost {
    Cost::reads(issued.len() as u64, issued.iter().map(|a| a.len).sum())
}

#[test]
fn everyone_is_woken() {
    let (spent, issued) = with_threads(|thread, _, object| {
        let io = [READ, WRITE, DEEP, COPY][thread as usize % 4];
        for _ in 0..500 {
            block_on(object.read_at(0, page(), io)).unwrap();
        }
    });
    assert_eq!(issued.len(), 8 * 500);
    assert_eq!(spent, total(&issued));
}

#[test]
fn giving_up_in_a_storm_loses_no_token_and_no_waker() {
    let (spent, issued) = with_threads(|thread, gate, object| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(thread);
        for round in 0..300 {
            let io = [READ, WRITE, DEEP][random.random_range(0..3)];
            let mut reads: Vec<_> = (0..6).map(|_| object.read_at(0, page(), io)).collect();
            // Some are ready at once, some stay in the queue, some are granted by now.
            reads.retain_mut(|read| poll_once(read).is_pending());
            reads.truncate(random.random_range(0..3));
            block_on(join_all(reads)).into_iter().for_each(|read| drop(read.unwrap()));
            if thread == 0 && round % 50 == 0 {
                gate.set_contract(&contract(random.random_range(IOPS / 2..IOPS * 2)));
            }
            block_on(object.read_at(0, page(), io)).unwrap();
        }
    });
    assert!(issued.len() >= 8 * 300);
    assert_eq!(spent, total(&issued));
}

#[test]
fn closing_answers_every_thread() {
    let outcomes = Mutex::new(Vec::new());
    with_threads(|thread, gate, object| {
        if thread == 0 {
            block_on(object.read_at(0, page(), READ)).unwrap();
            gate.close();
        }
        let error = loop {
            if let Err(error) = block_on(object.read_at(0, page(), DEEP)) {
                break error;
            }
        };
        outcomes.lock().push(error.kind());
    });
    assert_eq!(*outcomes.lock(), [ErrorKind::Fenced; 8]);
}
