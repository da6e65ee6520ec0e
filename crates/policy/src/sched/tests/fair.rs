//! Stores that share a volume, each with callers that send the next request as soon as one is granted.

use super::*;
use crate::contract::Direction;
use crate::sched::policy::QUEUE_MAX;

/// One store: its requests' class and size, and how many callers it has.
#[derive(Clone, Copy)]
struct Store {
    class: Class,
    bytes: u64,
    callers: usize,
    weight: f64,
}

const READS: Store = Store { class: Class::Foreground, bytes: 4 * KIB, callers: 32, weight: 1.0 };

/// Runs the stores for ten seconds at a gate of this kind. Gives what each was granted in the last eight, as parts of
/// the line.
fn run(policy: Policy, contract: &Contract, stores: &[Store]) -> Vec<f64> {
    let share = Share::new(1.0, 0.9).unwrap();
    let mut scheduler = policy.build(contract, share, QUEUE_MAX, T0);
    let mut sent = BTreeMap::new();
    let mut submit = |scheduler: &mut dyn Scheduler, number: usize, now| {
        let Store { class, bytes, .. } = stores[number];
        let ticket = Ticket(sent.len() as u64);
        sent.insert(ticket, number);
        let cost = contract.cost(Direction::Read, bytes);
        let tenant = Tenant(number as u32 + 1);
        scheduler.submit(ticket, Request { tenant, cost, ..request(class, 1) }, now).unwrap();
        ticket
    };
    let mut owners = BTreeMap::new();
    for (number, store) in stores.iter().enumerate() {
        scheduler.set_weight(Tenant(number as u32 + 1), store.weight);
        for _ in 0..store.callers {
            owners.insert(submit(&mut *scheduler, number, T0), number);
        }
    }
    let (mut now, warm, end) = (T0, millis(2000), millis(10_000));
    let mut spent = vec![Cost::default(); stores.len()];
    while now < end {
        while let Some(event) = scheduler.poll(now) {
            let grant = granted(event);
            let number = owners.remove(&grant.ticket).expect("it waits");
            if now >= warm {
                let sum = &mut spent[number];
                (sum.ops, sum.bytes) = (sum.ops + grant.cost.ops, sum.bytes + grant.cost.bytes);
            }
            owners.insert(submit(&mut *scheduler, number, now), number);
        }
        now = scheduler.next_wakeup().expect("requests wait").max(now + Duration::from_nanos(1));
    }
    for (number, figures) in scheduler.tenants() {
        let callers = stores[number.0 as usize - 1].callers;
        assert!(figures.granted > 0 && figures.queued == callers as u64, "{figures:?}");
    }
    let part = |spent: &Cost, limit: &Limit| {
        let used = if limit.counts == Counted::Ops { spent.ops } else { spent.bytes };
        used as f64 / (limit.rate_per_sec as f64 * end.since(warm).as_secs_f64())
    };
    let most = |spent| contract.limits.iter().map(|limit| part(spent, limit)).fold(0.0, f64::max);
    spent.iter().map(most).collect()
}

/// The policies that share a class fairly.
const FAIR: [Policy; 3] = [Policy::Tags, Policy::TagsP99, Policy::Strict];

#[test]
fn two_stores_that_want_more_than_the_line_get_half_each() {
    for policy in FAIR {
        for class in [Class::Commit, Class::Foreground, Class::Background] {
            // One asks with many more callers, in requests of another size.
            for (bytes, callers) in [(4 * KIB, 32), (4 * KIB, 1000), (16 * KIB, 500)] {
                let first = Store { class, ..READS };
                let stores = [first, Store { bytes, callers, ..first }];
                let parts = run(policy, &terms(1000), &stores);
                let what = (policy.name(), class, bytes, callers, &parts);
                assert!(parts.iter().all(|part| (0.45..0.55).contains(part)), "{what:?}");
            }
        }
    }
}

#[test]
fn a_store_alone_gets_all() {
    for policy in FAIR {
        let parts = run(policy, &terms(1000), &[READS]);
        assert!(parts[0] > 0.97, "{} {parts:?}", policy.name());
    }
}

#[test]
fn classes_stay_before_stores() {
    for policy in FAIR {
        let idle = Store { class: Class::Idle, ..READS };
        let parts = run(policy, &terms(1000), &[READS, idle]);
        assert!(parts[0] > 0.9 && parts.iter().sum::<f64>() > 0.97, "{} {parts:?}", policy.name());
    }
}

#[test]
fn weights_divide_the_line() {
    for policy in FAIR {
        let parts = run(policy, &terms(1000), &[Store { weight: 3.0, ..READS }, READS]);
        let [first, second] = parts[..] else { panic!("two stores") };
        let what = (policy.name(), first, second);
        assert!((0.72..0.78).contains(&first) && (0.22..0.28).contains(&second), "{what:?}");
    }
}

#[test]
fn bytes_are_divided_where_bytes_are_short() {
    let rate_per_sec = 64 * 1024 * KIB;
    let limit = Limit { counts: Counted::Bytes, rate_per_sec, depth: rate_per_sec };
    let contract = Contract { limits: vec![limit], ..Contract::unlimited() };
    for policy in FAIR {
        let small = Store { bytes: 16 * KIB, callers: 64, ..READS };
        let parts = run(policy, &contract, &[small, Store { bytes: 256 * KIB, ..small }]);
        assert!(
            parts.iter().all(|part| (0.45..0.55).contains(part)),
            "{} {parts:?}",
            policy.name()
        );
    }
}

/// Requests of one store go in order of arrival, and a store that comes later saved up nothing.
#[test]
fn a_store_that_was_idle_has_saved_up_nothing() {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: 1, depth: 1 };
    let contract = Contract { limits: vec![limit], ..Contract::unlimited() };
    let mut strict = Strict::new(&contract, Share::new(1.0, 0.9).unwrap(), QUEUE_MAX, T0);
    let mut tickets = (0..).map(Ticket);
    let mut submit = |strict: &mut Strict, tenant, now| {
        let tenant = Tenant(tenant);
        let ticket = tickets.next().unwrap();
        let request = Request { tenant, ..request(Class::Foreground, 1) };
        strict.submit(ticket, request, now).unwrap();
    };
    let next = |strict: &mut Strict| {
        let at = strict.next_wakeup().unwrap();
        let next = granted(strict.poll(at).expect("it is paid")).ticket.0;
        assert_eq!(poll_all(strict, at), []);
        next
    };
    (0..6).for_each(|_| submit(&mut strict, 1, T0));
    assert_eq!(poll_all(&mut strict, T0), []);
    let first: Vec<_> = (0..3).map(|_| next(&mut strict)).collect();
    assert_eq!(first, [0, 1, 2]);
    (0..3).for_each(|_| submit(&mut strict, 2, millis(3000)));
    assert_eq!(poll_all(&mut strict, millis(3000)), []);
    let then: Vec<_> = (0..6).map(|_| next(&mut strict)).collect();
    assert_eq!(then, [6, 3, 7, 4, 8, 5]);
}
