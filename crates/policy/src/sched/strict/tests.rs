use super::*;
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
    let cost = large.cost(2048 * KIB);
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
    let cost = Cost { ops: 8, bytes: 2048 * KIB };
    assert_eq!((grant.ticket, grant.cost), (Ticket(1), cost));
    assert_eq!(scheduler.figures(Class::Urgent).spent, cost);
    assert!(now > millis(3000), "2 MiB at 640 KiB a second");
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
