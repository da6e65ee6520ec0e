use super::*;
use crate::contract::Direction;
use crate::sched::QUEUE_MAX;
use crate::sched::tests::{T0, granted, millis, poll_all, request, terms};
use crate::units::KIB;

fn strict(iops: u64) -> Strict {
    Strict::new(&terms(iops), Share::default(), QUEUE_MAX, T0)
}

#[test]
fn a_request_split_under_larger_terms_pays_in_parts() {
    let mut large = terms(1000);
    large.op_bytes_max = 2048 * KIB;
    let mut scheduler = Strict::new(&large, Share::default(), QUEUE_MAX, T0);
    let cost = large.cost(Direction::Read, 2048 * KIB);
    assert_eq!(cost.ops, 1);
    let request = Request { cost, ..request(Class::Urgent, 1) };
    scheduler.submit(Ticket(1), request, T0).unwrap();
    scheduler.set_contract(&terms(10), T0);
    let mut now = T0;
    let grant = loop {
        if let Some(event) = scheduler.poll(now) {
            break granted(event);
        }
        now = scheduler.next_wakeup().unwrap();
    };
    let cost = Cost::reads(8, 2048 * KIB);
    assert_eq!((grant.ticket, grant.cost), (Ticket(1), cost));
    assert_eq!(scheduler.figures(Class::Urgent).spent, cost);
    assert!(now > millis(3000), "2 MiB at 640 KiB a second");
}

/// New terms took the operations of its journal from a sync that waited.
#[test]
fn what_a_request_costs_beside_its_bytes_is_kept_under_other_terms() {
    let mut scheduler = strict(1000);
    let sync = terms(1000).cost(Direction::Write, 264 * KIB).plus(Cost::writes(1, 0));
    assert_eq!(sync, Cost::writes(3, 264 * KIB));
    let request = Request { cost: sync, ..request(Class::Commit, 1) };
    scheduler.submit(Ticket(1), request, T0).unwrap();
    scheduler.set_contract(&terms(100), T0);
    let mut larger = terms(100);
    larger.op_bytes_max = 1024 * KIB;
    scheduler.set_contract(&larger, T0);
    let events = poll_all(&mut scheduler, millis(1000));
    assert_eq!(
        events.into_iter().map(|event| granted(event).cost).collect::<Vec<_>>(),
        [Cost::writes(2, 264 * KIB)]
    );
}

#[test]
fn nobody_waits_on_an_idle_volume() {
    let mut scheduler = strict(1000);
    let mut waits = Vec::new();
    for ticket in 0..100 {
        let now = millis(100 + 5 * ticket);
        scheduler.submit(Ticket(ticket), request(Class::Foreground, 1), now).unwrap();
        waits.push(poll_all(&mut scheduler, now).len());
        assert_eq!(scheduler.next_wakeup(), None);
    }
    assert_eq!(waits, [1; 100]);
    assert_eq!(scheduler.figures(Class::Foreground).waits.counts[0], 100);
}
