mod devices;

use super::*;
use crate::contract::{Latency, Limit, Percentiles};

const RHO: f64 = 0.98;
const IOPS: u64 = 1000;
/// The 99th percentile without throttling.
const P99: Duration = Duration::from_micros(500);

/// One that says its depth.
fn contract() -> Contract {
    let latency = Percentiles::constant(P99);
    Contract {
        limits: vec![Limit { counts: Counted::Ops, rate_per_sec: IOPS, depth: IOPS / 2 }],
        latency: Latency { read: latency, write: latency },
        ..Contract::unlimited()
    }
}

/// A volume under as much load as the estimate allows; it answers at once while the load is below
/// what it can give.
struct Stage {
    estimate: Estimate,
    now: Instant,
    seen: Seen,
    /// The part of the contract that is available.
    gives: f64,
    /// How many of a hundred I/Os answered at once take ten times as long anyway.
    tail: u64,
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
            gives: 1.0,
            tail: 0,
            credits: None,
            reported: Vec::new(),
            slow: 0,
        }
    }

    fn answer(&mut self, count: u64, time: Duration) {
        (0..count).for_each(|_| self.seen.answers[IoKind::SmallRead.index()].record(time));
    }

    /// The factor after each interval of `seconds`.
    fn run(&mut self, seconds: u64) -> Vec<f64> {
        (0..2 * seconds).map(|_| self.interval()).collect()
    }

    fn interval(&mut self) -> f64 {
        let wanted = self.estimate.part().rate * RHO;
        let got = (wanted.min(self.gives) * IOPS as f64 / 2.0) as u64;
        let slow = wanted > self.gives;
        self.slow += u32::from(slow);
        if slow {
            // Ten requests queue at the volume.
            self.answer(got, Duration::from_secs_f64(10.0 / (self.gives * IOPS as f64)));
        } else {
            let late = got * self.tail / 100;
            self.answer(late, 10 * P99);
            self.answer(got - late, P99 / 2);
        }
        self.seen.spent.ops += got;
        self.now = self.now + INTERVAL;
        match self.estimate.look(self.now, self.seen.clone(), Share::default(), self.credits) {
            Some(Advice::ForgetCredits) => self.credits = Some(0.0),
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

#[test]
fn what_lowering_does_not_cure_is_not_treated_with_it() {
    let mut stage = Stage::new(&contract());
    let mut worst = 1.0f64;
    let mut last = 0.0;
    for _ in 0..240 {
        // Every request is answered, late.
        let got = (stage.estimate.part().rate * RHO * IOPS as f64 / 2.0) as u64;
        stage.answer(got, 10 * P99);
        stage.seen.spent.ops += got;
        stage.now = stage.now + INTERVAL;
        let _ = stage.estimate.look(stage.now, stage.seen.clone(), Share::default(), None);
        last = stage.estimate.part().rate;
        worst = worst.min(last);
    }
    assert!(worst >= 0.4, "{worst}");
    assert_eq!((last, stage.estimate.finding()), (1.0, Finding::SlowOtherwise));
    // After some calm it adapts again.
    stage.run(10);
    stage.gives = 0.7;
    assert!(*stage.run(10).last().unwrap() < 0.72);
}

#[test]
fn credits_that_are_spent_are_found_out_before_the_share_suffers() {
    let mut stage = Stage::new(&contract());
    stage.credits = Some(0.8);
    stage.gives = 0.5;
    stage.run(2);
    assert_eq!((stage.credits, stage.estimate.part().rate), (Some(0.0), 1.0));
}

#[test]
fn without_a_contract_that_knows_the_fastest_interval_is_the_measure() {
    let mut stage = Stage::new(&Contract { latency: Latency::default(), ..contract() });
    stage.run(10);
    stage.gives = 0.7;
    assert!(*stage.run(10).last().unwrap() < 0.72);
}

#[test]
fn too_few_say_nothing() {
    let mut stage = Stage::new(&contract());
    for _ in 0..100 {
        stage.answer(ANSWERED_MIN - 1, 10 * P99);
        stage.now = stage.now + INTERVAL;
        assert_eq!(
            stage.estimate.look(stage.now, stage.seen.clone(), Share::default(), None),
            None
        );
    }
}

#[test]
fn what_was_learned_is_used_from_the_start() {
    let contract = Contract::unlimited();
    let learned = Learned { rate: 1.0, depth: 0.06, bad: 0.25, bad_for: Duration::from_secs(120) };
    let mut estimate = Estimate::new(&contract, Instant::ZERO);
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

    let mut stage = Stage::new(&contract());
    (stage.tail, stage.credits) = (10, Some(0.8));
    stage.run(60);
    assert_eq!(stage.estimate.part(), Part::ALL, "credits may be spent: they come first");

    let mut stage = Stage::new(&contract());
    for _ in 0..120 {
        // Half of the rate: a day on which some take long.
        stage.answer(225, P99 / 2);
        stage.answer(25, 10 * P99);
        stage.seen.spent.ops += 250;
        stage.now = stage.now + INTERVAL;
        let seen = stage.seen.clone();
        assert_eq!(stage.estimate.look(stage.now, seen, Share::default(), None), None);
    }
    assert_eq!(stage.estimate.part(), Part::ALL);
}
