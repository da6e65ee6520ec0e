use super::*;

const MILLI: f64 = 1e6;
const SECOND: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// One in a hundred, of 1000 a second.
fn pauses() -> Pauses {
    Pauses::new(0.01, MILLI)
}

/// The length of the pause for users that come at `now`, of whom `queued` wait.
fn takes(pauses: &mut Pauses, now: Instant, queued: u64, nanos: f64) -> Option<Duration> {
    pauses.pause(now, now, queued, nanos, SECOND);
    pauses.until(now, queued).map(|until| until.since(now))
}

#[test]
fn a_pause_is_as_long_as_few_enough_wait_for_it() {
    let takes = |queued, nanos| takes(&mut pauses(), at(0), queued, nanos);
    assert_eq!(takes(1, MILLI), Some(Duration::from_millis(200)));
    assert_eq!(takes(4, MILLI), Some(Duration::from_millis(800)));
    assert_eq!(takes(10, MILLI / 10.0), Some(Duration::from_millis(200)));
    // More wait than the aim, but no pause is longer.
    assert_eq!(takes(10, MILLI), Some(SECOND));
    assert_eq!(takes(40, MILLI), Some(SECOND));
    assert_eq!(takes(41, MILLI), None);
}

#[test]
fn the_last_pause_tells_how_many_will_wait() {
    let mut pauses = pauses();
    assert_eq!(takes(&mut pauses, at(0), 1, MILLI), Some(Duration::from_millis(200)));
    assert_eq!(pauses.until(at(199), 180), Some(at(200)));
    assert_eq!(pauses.until(at(200), 180), None);
    // They come independently of earlier answers.
    assert_eq!(takes(&mut pauses, at(300), 1, MILLI), None);
    assert_eq!(takes(&mut pauses, at(61_000), 1, MILLI), Some(Duration::from_millis(200)));
}

#[test]
fn a_pause_ends_when_nobody_waits() {
    let mut pauses = pauses();
    assert!(takes(&mut pauses, at(0), 1, MILLI).is_some());
    assert_eq!(pauses.until(at(10), 0), None);
    assert_eq!(pauses.until(at(10), 1), None);
}

#[test]
fn nobody_waits_for_the_end_of_two() {
    let mut pauses = pauses();
    assert!(takes(&mut pauses, at(100), 1, MILLI).is_some());
    assert_eq!(pauses.until(at(300), 2), None);
    pauses.pause(at(301), at(150), 1, MILLI, SECOND);
    assert_eq!(pauses.until(at(301), 1), None);
    pauses.pause(at(301), at(300), 1, MILLI, SECOND);
    assert!(pauses.until(at(301), 1).is_some());
}

#[test]
fn one_in_a_hundred_may_wait() {
    let mut pauses = pauses();
    // A minute's credit is there at first: 600 of 60,000.
    let mut waited = 0;
    let mut now = 0;
    while takes(&mut pauses, at(now), 20, MILLI).is_some() {
        now += 1000;
        assert_eq!(pauses.until(at(now), 20), None);
        waited += 20;
    }
    assert_eq!(waited, 600);
    (0..1900).for_each(|_| pauses.went(MILLI));
    assert_eq!(takes(&mut pauses, at(now), 20, MILLI), None);
    (0..101).for_each(|_| pauses.went(MILLI));
    assert!(takes(&mut pauses, at(now), 20, MILLI).is_some());
}
