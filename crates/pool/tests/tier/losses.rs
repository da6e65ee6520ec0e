//! Fast volumes that fail, hang or go while the tier serves.

use std::sync::Arc;
use std::time::Duration;

use policy::intent::PageReads;
use policy::time::Instant;
use pool::tier::{Always, Tier};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::{Clock, ErrorKind, Intent, IoBuf, Volume};

use crate::rig::{IO, UNIT, content, fill, name, options, read};

/// What a deadline layer does to a device that hangs: an error after this time.
const HANG: Duration = Duration::from_millis(200);

/// A tier with one warm, checkpointed unit of an object `a`, whose fast volume then fails with these effects.
fn fails(effects: &[Effect], then: impl AsyncFnOnce(&Clock, &Tier, &dyn volume::Object, Mem)) {
    let (clock, plan, slow) = (Clock::simulated(), FaultPlan::new(1), Mem::new("slow"));
    let fast = Fault::new(Mem::new("fast"), "fast", &plan, &clock);
    let opened = Tier::open(
        Arc::new(slow.clone()),
        Some(Arc::new(fast)),
        options(8),
        Box::new(Always),
        &clock,
    );
    clock.run(async {
        let tier = opened.await.unwrap();
        let object = fill(&tier, "a", UNIT, 1).await;
        read(&*object, 0, UNIT).await;
        tier.install_all().await;
        tier.write_checkpoint().await;
        assert_eq!(tier.figures().cached_bytes, UNIT);
        for effect in effects {
            plan.inject(Rule::new(*effect));
        }
        then(&clock, &tier, &*object, slow).await;
    });
}

#[test]
fn a_fast_volume_that_hangs_is_given_up_and_service_goes_on() {
    let effects = [Effect::Slow(HANG), Effect::Fail(ErrorKind::TimedOut)];
    fails(&effects, async |clock, tier, object, _| {
        let began = clock.now();
        assert_eq!(read(object, 0, UNIT).await, content(UNIT, 1));
        assert_eq!(clock.now().since(began), HANG, "one wait, then the slow volume");
        assert!(!tier.is_attached());
        let began: Instant = clock.now();
        assert_eq!(read(object, 0, UNIT).await, content(UNIT, 1));
        object.write_at(5, IoBuf::from(&[7; 9][..]), IO).await.unwrap();
        assert_eq!(read(object, 5, 9).await, [7; 9]);
        assert_eq!(clock.now(), began);
        assert_eq!(tier.figures().detached, 1);
    });
}

#[test]
fn a_write_never_fails_because_of_the_fast_volume() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Poisoned, ErrorKind::Io, ErrorKind::OutOfSpace]
    {
        fails(&[Effect::Fail(kind)], async |_, tier, object, slow| {
            object.write_at(0, IoBuf::from(&content(UNIT, 2)[..]), IO).await.unwrap();
            assert_eq!(read(object, 0, UNIT).await, content(UNIT, 2));
            assert!(!tier.is_attached(), "no record could be made");
            assert!(slow.image().keys().any(|name| name.as_str() == "tier.head-0"), "{kind:?}");
        });
    }
}

/// A table whose pages are cached as they are written: the write waits for the fast volume once, however many pages there are.
#[test]
fn a_fast_volume_that_hangs_delays_a_table_once() {
    let effects = [Effect::Slow(HANG), Effect::Fail(ErrorKind::TimedOut)];
    fails(&effects, async |clock, tier, _, _| {
        let reads: Vec<_> = (0..64).map(|page| PageReads { page: 4 * page, reads: 15 }).collect();
        let intent = Intent { reads: Some(reads.into()), ..Intent::DATA };
        let table = tier.create(&name("table"), &intent).await.unwrap();
        let began = clock.now();
        let data = content(16 * UNIT, 3);
        table.write_at(0, IoBuf::from(&data[..]), IO).await.unwrap();
        table.sync(IO).await.unwrap();
        assert_eq!(clock.now().since(began), HANG);
        assert!(!tier.is_attached());
        assert_eq!(tier.figures().inherited_bytes, 0);
        assert_eq!(read(&*table, 0, 16 * UNIT).await, data);
    });
}

#[test]
fn damaged_bytes_are_read_from_the_slow_volume_and_the_fast_one_stays() {
    for kind in [ErrorKind::Corrupt, ErrorKind::Io] {
        fails(&[Effect::Fail(kind)], async |_, tier, object, _| {
            assert_eq!(read(object, 0, UNIT).await, content(UNIT, 1));
            assert!(tier.is_attached());
            assert_eq!(tier.figures().cached_bytes, 0);
        });
    }
}

#[test]
fn an_empty_device_is_taken_in_service_and_a_second_one_refused() {
    fails(&[Effect::Fail(ErrorKind::Unavailable)], async |_, tier, object, slow| {
        read(object, 0, UNIT).await;
        assert!(!tier.is_attached());
        let new = Mem::new("new");
        tier.reattach(Arc::new(new.clone())).await.unwrap();
        let again = tier.reattach(Arc::new(Mem::new("other"))).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Invalid);
        read(object, 0, UNIT).await;
        tier.install_all().await;
        assert_eq!(tier.figures().cached_bytes, UNIT);
        assert_eq!(read(object, 9, 99).await, content(UNIT, 1)[9..108]);
        tier.close().await;
        let clock = Clock::simulated();
        let new: Arc<dyn Volume> = Arc::new(new);
        let tier = crate::rig::open(&slow, Some(&new), options(8), &clock).await.unwrap();
        assert_eq!(tier.figures().cached_bytes, UNIT, "and it is warm after a restart");
    });
}
