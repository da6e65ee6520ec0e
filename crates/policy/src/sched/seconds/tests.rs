use std::time::Duration;

use super::*;
use crate::contract::Counted;
use crate::sched::Policy;
use crate::sched::tests::{granted, millis, poll_all, request};

/// `iops` operations a second; bytes are free.
fn terms(iops: u64) -> Contract {
    let limit = crate::contract::Limit { counts: Counted::Ops, rate_per_sec: iops, depth: iops };
    Contract { limits: vec![limit], ..Contract::unlimited() }
}

/// A scheduler and the number of its last ticket.
struct Stage {
    scheduler: Box<dyn Scheduler>,
    next: u64,
}

impl Stage {
    fn new(policy: Policy, iops: u64) -> Self {
        let now = millis(0);
        Self { scheduler: policy.build(&terms(iops), Share::default(), 1, now), next: 0 }
    }

    fn submit(&mut self, class: Class, ops: u64, at_ms: u64) {
        self.next += 1;
        let request = request(class, ops);
        self.scheduler.submit(Ticket(self.next), request, millis(at_ms)).unwrap();
    }

    /// Submits `count` requests of a class; returns how many go at once.
    fn burst(&mut self, class: Class, count: usize, at_ms: u64) -> usize {
        for _ in 0..count {
            self.submit(class, 1, at_ms);
        }
        self.poll(at_ms)
    }

    fn poll(&mut self, at_ms: u64) -> usize {
        poll_all(&mut *self.scheduler, millis(at_ms)).len()
    }

    fn next_ms(&self) -> u64 {
        self.scheduler.next_wakeup().unwrap().since(millis(0)).as_millis() as u64
    }
}

#[test]
fn the_stabilizer_gives_a_seconds_tokens_at_its_start_and_loses_what_is_left() {
    let mut stage = Stage::new(Policy::Stabilizer, 1000);
    assert_eq!(stage.burst(Class::Foreground, 300, 0), 300);
    assert_eq!(stage.burst(Class::Idle, 800, 900), 700);
    assert_eq!(stage.next_ms(), 1000);
    assert_eq!(stage.poll(1000), 100);
    assert_eq!(stage.burst(Class::Foreground, 1000, 1050), 900, "1600 in 150 ms");
    assert_eq!(stage.burst(Class::Foreground, 3000, 9_500), 1000, "nothing was saved up");
}

/// They were added to those of the next second.
#[test]
fn tokens_that_are_put_back_in_the_next_second_are_lost() {
    let mut stage = Stage::new(Policy::Stabilizer, 100);
    stage.submit(Class::Commit, 8, 900);
    let grant = granted(stage.scheduler.poll(millis(900)).unwrap());
    assert_eq!(stage.burst(Class::Foreground, 50, 1000), 50);
    stage.scheduler.put_back(grant, grant.cost, millis(1000));
    assert_eq!(stage.poll(1000), 1, "what was put back is granted again");
    assert_eq!(stage.burst(Class::Foreground, 100, 1010), 42);
}

#[test]
fn nobody_is_more_urgent_for_the_stabilizer() {
    let mut stage = Stage::new(Policy::Stabilizer, 2);
    assert_eq!(stage.burst(Class::Commit, 2, 0), 2);
    for class in [Class::Idle, Class::Commit, Class::Background] {
        stage.submit(class, 1, 10);
    }
    let granted = poll_all(&mut *stage.scheduler, millis(1000)).into_iter().map(granted);
    let granted: Vec<_> = granted.map(|grant| (grant.ticket, grant.cost)).collect();
    assert_eq!(granted, [3, 4].map(|n| (Ticket(n), request(Class::Idle, 1).cost)));
}

#[test]
fn a_request_larger_than_a_pool_takes_several_seconds() {
    let mut stage = Stage::new(Policy::Static, 30);
    stage.submit(Class::Idle, 8, 0);
    assert_eq!((stage.poll(0), stage.next_ms()), (0, 1000));
    assert_eq!((stage.poll(1000), stage.next_ms()), (0, 2000));
    assert_eq!(stage.poll(2000), 1);
    let mut stage = Stage::new(Policy::Static, 1);
    assert_eq!(stage.burst(Class::Idle, 1, 0), 1, "even then there is one");
}

#[test]
fn static_pools_are_private() {
    let mut stage = Stage::new(Policy::Static, 1000);
    assert_eq!(stage.burst(Class::Idle, 2000, 0), 100);
    assert_eq!(stage.burst(Class::Background, 2000, 500), 300);
    assert_eq!(stage.burst(Class::Urgent, 400, 600), 400);
    assert_eq!(stage.burst(Class::Foreground, 400, 700), 200, "flushes share their pool");
}

/// What successive seconds give to background, with this much foreground in each.
fn background(policy: Policy, foreground: &[usize]) -> Vec<u64> {
    let mut stage = Stage::new(policy, 1000);
    stage.burst(Class::Background, 10_000, 0);
    let went = |stage: &Stage| stage.scheduler.figures(Class::Background).granted;
    let mut before = 0;
    let mut given = Vec::new();
    for (second, &users) in (0..).zip(foreground) {
        for step in 0..100 {
            let at = second * 1000 + step * 10;
            stage.burst(Class::Foreground, users / 100, at);
        }
        given.push(went(&stage) - before);
        before = went(&stage);
    }
    given
}

#[test]
fn dynamic_pools_follow_what_users_leave() {
    // t = 0 and slack above a tenth: 0.7 of 20 more each second, up to 400.
    let steady = background(Policy::Dynamic, &[300; 12]);
    assert_eq!(steady[..6], [300, 300, 314, 328, 342, 356]);
    assert_eq!(steady[11], 400);
    // Users come back: the pool shrinks by 0.7 of what they take more.
    let back = background(Policy::Dynamic, &[300, 300, 500, 500]);
    assert_eq!(back[..3], [300, 300, 314]);
    // I_H is 586, slack 86: t = -200, nothing added.
    assert_eq!(back[3], 174);
}

#[test]
fn windows_open_late_and_move_with_the_load() {
    let mut stage = Stage::new(Policy::Windows, 1000);
    stage.burst(Class::Background, 100, 0);
    stage.burst(Class::Idle, 100, 0);
    assert_eq!(stage.next_ms(), 700);
    assert_eq!(stage.poll(699), 0);
    // The windows move at the first look: u = 0 after 850, a = 0, so d = 0.85. alloc_L is 0.1 + 0.3
    // · 0.85 = 0.355: the low window opens at 0.645, and all are open.
    assert_eq!(stage.poll(700), 200);
    let mut busy = Stage::new(Policy::Windows, 1000);
    busy.burst(Class::Foreground, 1000, 0);
    busy.burst(Class::Background, 1, 0);
    busy.burst(Class::Idle, 1, 0);
    // u = 1, d = -0.15 + 0.05: alloc_M 0.23, alloc_L 0.07.
    assert_eq!(busy.poll(750), 0);
    assert_eq!(busy.burst(Class::Foreground, 100, 1000), 100);
    assert_eq!(busy.next_ms(), 1770);
    // Now u = 0.1 after 1: that moves both windows to before this moment.
    assert_eq!(busy.poll(1770), 2);
}

#[test]
fn no_window_stays_shut() {
    for policy in [Policy::Windows, Policy::WindowsReleased] {
        let mut stage = Stage::new(policy, 1000);
        stage.burst(Class::Idle, 1, 0);
        let mut went = 0;
        for second in 0..60 {
            // Each second uses more than the one before: all allocations end at 0.
            stage.burst(Class::Foreground, 10 * second as usize, second * 1000);
            stage.poll(second * 1000 + 945);
            stage.submit(Class::Idle, 1, second * 1000 + 946);
            went += stage.poll(second * 1000 + 951);
        }
        assert!(went >= 59, "{policy:?}: {went}");
    }
}

#[test]
fn the_released_windows_drain_a_class_that_was_drawn() {
    let mut stage = Stage::new(Policy::WindowsReleased, 1000);
    stage.burst(Class::Foreground, 1000, 0);
    for _ in 0..50 {
        for class in [Class::Commit, Class::Foreground, Class::Urgent] {
            stage.submit(class, 1, 10);
        }
    }
    let order: Vec<_> = poll_all(&mut *stage.scheduler, millis(1000)).into_iter().collect();
    let class = |event: &Event| match event {
        Event::Granted(Grant { ticket, .. }) => (ticket.0 - 1001) % 3,
        Event::Expired { .. } => panic!("no request has a deadline"),
    };
    let runs = order.chunks(50).map(|run| run.iter().map(class).collect::<Vec<_>>());
    for run in runs {
        assert!(run.iter().all(|class| *class == run[0]), "{run:?}");
    }
    assert_eq!(order.len(), 150);
}

#[test]
fn a_clock_that_steps_back_neither_freezes_nor_gives() {
    let mut stage = Stage::new(Policy::Stabilizer, 100);
    assert_eq!(stage.burst(Class::Foreground, 150, 5_500), 100);
    assert_eq!(stage.poll(2_000), 0);
    assert_eq!(stage.burst(Class::Foreground, 1, 3_000), 0);
    assert_eq!(stage.poll(5_999), 0);
    assert_eq!(stage.poll(6_000), 51);
}

#[test]
fn bytes_are_kept_by_our_own_budget() {
    let mut contract = terms(1000);
    let limit =
        crate::contract::Limit { counts: Counted::Bytes, rate_per_sec: 1 << 20, depth: 1 << 20 };
    contract.limits.push(limit);
    let mut scheduler = Policy::Stabilizer.build(&contract, Share::default(), 1, millis(0));
    for ticket in 0..8 {
        scheduler.submit(Ticket(ticket), request(Class::Foreground, 1), millis(0)).unwrap();
    }
    let mut now = millis(0);
    while scheduler.figures(Class::Foreground).granted < 8 {
        poll_all(&mut *scheduler, now);
        now = scheduler.next_wakeup().unwrap_or(now);
    }
    // 2 MiB at 0.98 MiB a second.
    assert_eq!(now.since(millis(0)).as_millis(), 2040);
}

#[test]
fn fewer_paid_operations_count_at_once_and_more_from_the_next_second() {
    let mut stage = Stage::new(Policy::Stabilizer, 1000);
    stage.poll(0);
    stage.scheduler.set_contract(&terms(100), millis(100));
    assert_eq!(stage.burst(Class::Foreground, 600, 200), 100);
    stage.scheduler.set_contract(&terms(400), millis(300));
    assert_eq!(stage.poll(400), 0);
    assert_eq!(stage.poll(1000), 400);
    assert_eq!(stage.next_ms(), Duration::from_secs(2).as_millis() as u64);
}
