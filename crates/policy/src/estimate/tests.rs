mod devices;

use super::*;
use crate::contract::{Counted, Latency, Limit, Percentiles};

const RHO: f64 = 0.98;
const IOPS: u64 = 1000;
/// The 99th percentile without throttling.
const P99: Duration = Duration::from_micros(500);
/// What 64 callers get of 3000 IOPS while three of five I/Os take 0.4 s.
const STALLED_GIVES: f64 = 64.0 / 0.24 / 3000.0;
/// How long credits of [`credits`] last at the rate.
const CREDITS_LAST: f64 = 1800.0;
/// What is earned of them in half a second.
const EARNED_AGAIN: f64 = 0.5 / CREDITS_LAST;

/// One that says its depth.
fn contract() -> Contract {
    let latency = Percentiles::constant(P99);
    Contract {
        limits: vec![Limit { counts: Counted::Ops, rate_per_sec: IOPS, depth: IOPS / 2 }],
        latency: Latency { read: latency, write: latency },
        ..Contract::unlimited()
    }
}

/// The same with credits: three times the rate while they last.
fn credits() -> Contract {
    let burst = Limit { counts: Counted::Ops, rate_per_sec: 3 * IOPS, depth: IOPS };
    let depth = CREDITS_LAST as u64 * IOPS;
    let sustained = Limit { counts: Counted::Ops, rate_per_sec: IOPS, depth };
    Contract { limits: vec![burst, sustained], ..contract() }
}

/// A volume under as much load as the estimate allows; it answers at once while the load is below
/// what it can give.
struct Stage {
    estimate: Estimate,
    now: Instant,
    seen: Seen,
    /// The rate in force.
    iops: u64,
    /// The part of it that is available.
    gives: f64,
    /// How many of a hundred I/Os answered at once take ten times as long anyway.
    tail: u64,
    /// The volume stalls: three of five I/Os take 0.4 s, and 64 callers wait for theirs before they ask for more.
    stalls: bool,
    credits: Option<f64>,
    reported: Vec<f64>,
    /// Intervals that were slow.
    slow: u32,
}

impl Stage {
    fn new(contract: &Contract) -> Self {
        Self {
            estimate: Estimate::new(contract, Instant::ZERO),
            now: Instant::ZERO,
            seen: Seen::default(),
            iops: IOPS,
            gives: 1.0,
            tail: 0,
            stalls: false,
            credits: None,
            reported: Vec::new(),
            slow: 0,
        }
    }

    fn answer(&mut self, count: u64, time: Duration) {
        self.answer_as(IoKind::SmallRead, count, time);
    }

    fn answer_as(&mut self, kind: IoKind, count: u64, time: Duration) {
        (0..count).for_each(|_| self.seen.answers[kind.index()].record(time));
    }

    /// What the estimate does after half a second in which `spent` operations went.
    fn look(&mut self, spent: u64) -> Option<Advice> {
        self.seen.spent.ops += spent;
        self.now = self.now + INTERVAL;
        self.estimate.look(self.now, self.seen.clone(), Share::default(), self.credits)
    }

    /// The factor after each interval of `seconds`.
    fn run(&mut self, seconds: u64) -> Vec<f64> {
        (0..2 * seconds).map(|_| self.interval()).collect()
    }

    fn interval(&mut self) -> f64 {
        let wanted = self.estimate.part().rate * RHO;
        let gives = if self.stalls { STALLED_GIVES } else { self.gives };
        let got = (wanted.min(gives) * self.iops as f64 / 2.0) as u64;
        let slow = wanted > self.gives;
        self.slow += u32::from(slow || self.stalls);
        if self.stalls {
            self.answer(got * 3 / 5, Duration::from_millis(400));
            self.answer(got - got * 3 / 5, P99 / 2);
        } else if slow {
            // Ten requests queue at the volume.
            self.answer(got, Duration::from_secs_f64(10.0 / (self.gives * self.iops as f64)));
        } else {
            let late = got * self.tail / 100;
            self.answer(late, 10 * P99);
            self.answer(got - late, P99 / 2);
        }
        match self.look(got) {
            // Until the next look the gate earns some again.
            Some(Advice::ForgetCredits) => self.credits = Some(EARNED_AGAIN),
            Some(Advice::Report(part)) => self.reported.push(part),
            Some(Advice::Use(part) | Advice::Lower { part, .. }) => {
                assert_eq!(part, self.estimate.part());
            }
            None => {}
        }
        self.estimate.part().rate
    }
}

#[test]
fn a_volume_that_answers_at_once_is_left_alone() {
    let mut stage = Stage::new(&contract());
    stage.tail = 20;
    assert!(stage.run(600).into_iter().all(|factor| factor == 1.0), "whatever its tail");
    assert_eq!((stage.estimate.available(), stage.reported.len()), (None, 0));
}

#[test]
fn another_client_is_made_room_for_and_its_room_taken_back() {
    let mut stage = Stage::new(&contract());
    assert!(stage.run(10).into_iter().all(|factor| factor == 1.0));
    stage.gives = 0.7;
    let fits = 0.7 / RHO;
    // Within six seconds the volume answers at once again.
    assert!(*stage.run(6).last().unwrap() <= fits);
    stage.slow = 0;
    let held = stage.run(300);
    for factor in &held {
        assert!((0.85 * fits..=1.03 * fits).contains(factor), "{factor} of {fits}");
    }
    assert!(stage.slow < 600 / 20, "{} of 600 intervals were slow", stage.slow);
    assert_eq!(stage.reported.len(), 1);
    assert!((stage.reported[0] - 0.7).abs() < 0.05, "{:?}", stage.reported);

    stage.gives = 1.0;
    let back = stage.run(75);
    assert_eq!(back.last(), Some(&1.0), "within half a minute and a second for each percent");
    assert!(back.is_sorted());
    assert_eq!(stage.estimate.available(), None);
}

/// What a volume did while it stalled was taken for what it gives: a failover of 5 s cost 30 s of the line.
#[test]
fn a_stall_costs_a_few_seconds_of_the_line() {
    for seconds in 1..=15 {
        let mut stage = Stage::new(&contract());
        stage.run(10);
        stage.stalls = true;
        stage.run(seconds);
        stage.stalls = false;
        let after = stage.run(120);
        let lost: f64 = after.iter().map(|factor| (1.0 - factor) / 2.0).sum();
        assert!(lost <= 6.0, "{lost} s of the line after a stall of {seconds} s");
        assert_eq!(after[30], 1.0, "back after 15 s");
        assert_eq!(stage.estimate.available(), None);
    }
}

/// The first raise after a stall goes fast, and past a volume that gives less anyway.
#[test]
fn a_volume_that_gives_less_is_found_after_a_stall_too() {
    let mut stage = Stage::new(&contract());
    stage.run(10);
    (stage.stalls, stage.gives) = (true, 0.7);
    stage.run(6);
    stage.stalls = false;
    stage.run(20);
    for factor in stage.run(120) {
        assert!((0.6..=0.74).contains(&factor), "{factor}");
    }
}

/// A minute without I/O raised the rate by all of its sixty percent, and the load that came back was throttled.
#[test]
fn an_idle_minute_is_no_reason_to_raise() {
    let mut stage = Stage::new(&contract());
    stage.gives = 0.2;
    let found = *stage.run(30).last().unwrap();
    assert!(found < 0.25, "{found}");
    for minute in 0..10 {
        stage.now = stage.now + Duration::from_secs(60);
        stage.answer(1, P99 / 2);
        let _ = stage.look(1);
        assert_eq!(stage.estimate.part().rate, found, "minute {minute}");
    }
    // A load that uses little of the rate shows no more.
    for _ in 0..600 {
        stage.answer(20, P99 / 2);
        let _ = stage.look(20);
    }
    assert_eq!(stage.estimate.part().rate, found);
    stage.gives = 1.0;
    assert_eq!(stage.run(120).last(), Some(&1.0));
}

/// Such a contract was reported as kept to a part of 0, and the rate went up and down without an effect.
#[test]
fn without_limits_nothing_is_too_much() {
    let latency = contract().latency;
    let mut stage = Stage::new(&Contract { latency, ..Contract::unlimited() });
    for _ in 0..300 {
        stage.answer(100, 100 * P99);
        assert_eq!(stage.look(100), None);
    }
    assert_eq!(stage.estimate.finding(), Finding::GivesAll);
}

#[test]
fn the_finding_is_the_reason_for_what_is_in_use() {
    let mut stage = Stage::new(&contract());
    stage.run(10);
    assert_eq!(stage.estimate.finding(), Finding::GivesAll);
    // The first answer to slowness is less depth.
    stage.gives = 0.7;
    stage.interval();
    assert_eq!((stage.estimate.finding(), stage.estimate.part().rate), (Finding::BurstsQueue, 1.0));
    stage.run(6);
    assert_eq!((stage.estimate.finding(), stage.estimate.part().depth), (Finding::GivesLess, 0.0));
    stage.gives = 1.0;
    stage.run(75);
    assert_eq!((stage.estimate.finding(), stage.estimate.part()), (Finding::GivesAll, Part::ALL));
}

#[test]
fn a_moment_is_no_reason() {
    let mut stage = Stage::new(&contract());
    for _ in 0..20 {
        stage.gives = 0.5;
        stage.interval();
        stage.interval();
        stage.interval();
        stage.gives = 1.0;
        assert!(stage.run(2).into_iter().all(|factor| factor == 1.0));
    }
}

#[test]
fn a_contract_that_is_not_what_was_bought_is_found_and_reported() {
    let mut stage = Stage::new(&contract());
    stage.gives = 0.2;
    stage.run(120);
    assert!((stage.estimate.available().unwrap() - 0.2).abs() < 0.02);
    assert_eq!(stage.reported.len(), 1);
    let mut right = contract();
    right.limits[0].rate_per_sec = 200;
    stage.estimate.set_contract(&right, stage.now);
    assert_eq!((stage.estimate.part().rate, stage.estimate.available()), (1.0, None));
}

fn ops(rate_per_sec: u64) -> Contract {
    let limit = Limit { counts: Counted::Ops, rate_per_sec, depth: rate_per_sec / 2 };
    Contract { limits: vec![limit], ..contract() }
}

/// A machine's limits are divided anew whenever a volume joins or leaves, and that began the estimate of each volume
/// anew.
#[test]
fn a_part_of_the_contract_keeps_what_was_found_of_all_of_it() {
    let mut stage = Stage::new(&contract());
    stage.gives = 0.4;
    let found = *stage.run(60).last().unwrap();
    assert!((0.35..0.42).contains(&found), "{found}");
    let (learned, available) = (stage.estimate.learned(), stage.estimate.available());
    // Half of it: the volume gives four fifths of that.
    stage.estimate.set_most(&ops(IOPS / 2));
    assert_eq!((stage.estimate.learned(), stage.estimate.available()), (learned, available));
    assert!((stage.estimate.part().rate - 2.0 * found).abs() < 1e-9);
    assert_eq!(stage.estimate.finding(), Finding::GivesLess);
    // A fifth: the volume gives all of that.
    stage.estimate.set_most(&ops(IOPS / 5));
    assert_eq!((stage.estimate.learned(), stage.estimate.part()), (learned, Part::ALL));
    assert_eq!(stage.estimate.finding(), Finding::GivesAll);
    stage.estimate.set_most(&contract());
    assert_eq!((stage.estimate.learned(), stage.estimate.part().rate), (learned, found));
    // The same terms again are no reason either.
    stage.estimate.set_contract(&contract(), stage.now);
    assert_eq!(stage.estimate.learned(), learned);
}

/// What is asked of a volume is what the terms in force let through.
#[test]
fn a_volume_is_found_to_give_less_than_its_part_of_the_contract() {
    let mut stage = Stage::new(&contract());
    stage.iops = IOPS / 2;
    stage.estimate.set_most(&ops(stage.iops));
    stage.run(10);
    assert_eq!(stage.estimate.finding(), Finding::GivesAll);
    stage.gives = 0.7;
    let fits = 0.7 / RHO;
    let found = *stage.run(30).last().unwrap();
    assert!((0.85 * fits..=1.03 * fits).contains(&found), "{found} of {fits}");
    assert!((stage.estimate.available().unwrap() - 0.35).abs() < 0.03);
    stage.gives = 1.0;
    assert_eq!(stage.run(120).last(), Some(&1.0));
    // More than the part was never tried.
    stage.estimate.set_most(&contract());
    assert_eq!(stage.estimate.part().rate, 0.5);
    stage.iops = IOPS;
    assert_eq!(stage.run(30).last(), Some(&1.0));
}

#[test]
fn what_lowering_does_not_cure_is_not_treated_with_it() {
    let mut stage = Stage::new(&contract());
    let mut worst = 1.0f64;
    let mut last = 0.0;
    let mut gave_up = false;
    for _ in 0..240 {
        // Every request is answered, late.
        let got = (stage.estimate.part().rate * RHO * IOPS as f64 / 2.0) as u64;
        stage.answer(got, 10 * P99);
        let _ = stage.look(got);
        last = stage.estimate.part().rate;
        worst = worst.min(last);
        gave_up |= stage.estimate.finding() == Finding::SlowOtherwise;
    }
    assert!(worst >= 0.4, "{worst}");
    // Meanwhile its times were learned, and it adapts again.
    assert_eq!((gave_up, last, stage.estimate.finding()), (true, 1.0, Finding::GivesAll));
    stage.run(10);
    stage.gives = 0.7;
    assert!(*stage.run(10).last().unwrap() < 0.72);
}

#[test]
fn credits_that_are_spent_are_found_out_before_the_share_suffers() {
    let mut stage = Stage::new(&credits());
    stage.credits = Some(0.8);
    stage.gives = 0.5;
    stage.run(2);
    assert_eq!((stage.credits, stage.estimate.part().rate), (Some(EARNED_AGAIN), 1.0));
}

/// What was earned since the last look counted as credits, so they were forgotten every two seconds and nothing else
/// was ever tried.
#[test]
fn a_gate_without_credits_adapts_under_a_contract_with_them() {
    let mut stage = Stage::new(&credits());
    (stage.credits, stage.gives) = (Some(0.8), 0.7);
    assert!(*stage.run(12).last().unwrap() < 0.72);
    assert_eq!(stage.estimate.finding(), Finding::GivesLess);
}

#[test]
fn without_a_contract_that_knows_the_fastest_interval_is_the_measure() {
    let mut stage = Stage::new(&Contract { latency: Latency::default(), ..contract() });
    stage.run(10);
    stage.gives = 0.7;
    assert!(*stage.run(10).last().unwrap() < 0.72);
}

/// The sync of a log is several I/Os, one after the other, and a flush. Taken for a write, it was late every time under
/// a contract that promises fast writes, and the estimate gave up.
#[test]
fn a_sync_takes_longer_than_a_write() {
    let us = Duration::from_micros;
    let (read, write) = (Percentiles::constant(us(133)), Percentiles::constant(us(300)));
    let latency = Latency { read, write };
    let mut stage = Stage::new(&Contract { latency, ..contract() });
    for _ in 0..240 {
        stage.answer(270, us(100));
        stage.answer_as(IoKind::Sync, 180, us(660));
        let _ = stage.look(450);
        assert_eq!(stage.estimate.part(), Part::ALL);
    }
    assert_eq!(
        stage.estimate.learned().usual[IoKind::Sync.index()].map(|time| time > us(600)),
        Some(true)
    );
}

/// Slow intervals taught nothing, so a volume that had become slower for good was `slow_otherwise` for good, and no
/// other client was noticed.
#[test]
fn a_volume_that_became_slower_is_judged_by_its_new_times() {
    for latency in [Latency::default(), contract().latency] {
        let mut stage = Stage::new(&Contract { latency, ..contract() });
        stage.run(120);
        let slower = 10 * P99;
        let slowly = |stage: &mut Stage| {
            let got = (stage.estimate.part().rate * RHO * IOPS as f64 / 2.0) as u64;
            stage.answer(got, slower);
            let _ = stage.look(got);
        };
        (0..60).for_each(|_| slowly(&mut stage));
        assert_eq!(stage.estimate.finding(), Finding::SlowOtherwise);
        (0..300).for_each(|_| slowly(&mut stage));
        assert_eq!(
            (stage.estimate.finding(), stage.estimate.part()),
            (Finding::GivesAll, Part::ALL)
        );
        // Another client makes it slower still.
        stage.gives = 0.2;
        for _ in 0..40 {
            let got = (stage.estimate.part().rate * RHO).min(0.2) * IOPS as f64 / 2.0;
            stage.answer(got as u64, 5 * slower);
            let _ = stage.look(got as u64);
        }
        assert!(stage.estimate.part().rate < 0.3, "{}", stage.estimate.part().rate);
    }
}

/// A volume that another client uses from the first second on taught its throttled times.
#[test]
fn a_time_from_an_earlier_start_stands_against_a_throttled_one() {
    let throttled = |resumed: bool| {
        let mut stage = Stage::new(&Contract { latency: Latency::default(), ..contract() });
        if resumed {
            stage.estimate.resume_usual(IoKind::SmallRead, P99);
        }
        stage.gives = 0.7;
        *stage.run(400).last().unwrap()
    };
    assert_eq!(throttled(false), 1.0, "nobody knows better");
    assert!(throttled(true) < 0.8);
}

#[test]
fn too_few_say_nothing() {
    let mut stage = Stage::new(&contract());
    for _ in 0..100 {
        stage.answer(ANSWERED_MIN - 1, 10 * P99);
        assert_eq!(stage.look(0), None);
    }
}

#[test]
fn what_was_learned_is_used_from_the_start() {
    let sync = Some(Duration::from_millis(3));
    let learned = Learned {
        rate: 1.0,
        depth: 0.06,
        bad: 0.25,
        bad_for: Duration::from_secs(120),
        usual: [None, None, None, None, sync],
        credits: None,
    };
    let mut estimate = Estimate::new(&contract(), Instant::ZERO);
    assert_eq!(estimate.learned().depth, 1.0);
    estimate.resume(&learned, Instant::ZERO);
    assert_eq!(estimate.learned(), learned);
    assert_eq!((estimate.part(), estimate.available()), (Part { rate: 1.0, depth: 0.06 }, None));
    let less = Learned { rate: 0.7, ..learned };
    estimate.resume(&less, Instant::ZERO);
    assert_eq!(estimate.learned(), less);
    assert_eq!(estimate.part(), Part { rate: 0.7, depth: 0.0 });
    assert_eq!(estimate.available(), Some(0.7));
    // Nonsense is not believed.
    estimate.resume(&Learned { rate: 7.0, depth: 9.0, ..learned }, Instant::ZERO);
    assert_eq!(estimate.part(), Part::ALL);
}

/// As the kernel does at the end of each slice of time.
#[test]
fn a_few_that_wait_long_at_the_rate_lower_the_depth_and_never_the_rate() {
    let mut stage = Stage::new(&contract());
    stage.tail = 10;
    assert!(stage.run(60).into_iter().all(|factor| factor == 1.0));
    assert!(stage.estimate.part().depth < 0.3, "{:?}", stage.estimate.part());

    let mut stage = Stage::new(&credits());
    (stage.tail, stage.credits) = (10, Some(0.8));
    stage.run(60);
    assert_eq!(stage.estimate.part(), Part::ALL, "credits may be spent: they come first");

    let mut stage = Stage::new(&contract());
    for _ in 0..120 {
        // Half of the rate: a day on which some take long.
        stage.answer(225, P99 / 2);
        stage.answer(25, 10 * P99);
        assert_eq!(stage.look(250), None);
    }
    assert_eq!(stage.estimate.part(), Part::ALL);
}
