//! Lazy promotion, through the tier.

use std::sync::Arc;
use std::time::Duration;

use policy::purpose::{Io, Origin, Step};
use pool::tier::{Figures, Options, Promotion, Tier};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Intent, IoBuf, IoBufMut, Object, Volume};

use crate::rig::{IO, PAGE, UNIT, beside, fill, name, options, read};

const SLOTS: u64 = 16;

fn open(promotion: Promotion, options: Options, clock: &Clock) -> Tier {
    let admit = promotion.admit(&options, clock.now());
    let (slow, fast) = (Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")));
    block_on(Tier::open(slow, Some(fast), options, admit, clock)).unwrap()
}

async fn write(object: &dyn Object, offset: u64) {
    object.write_at(offset, IoBuf::from(&[1; PAGE as usize][..]), IO).await.unwrap();
}

/// What the tier did during `work`.
async fn grown(tier: &Tier, work: impl Future<Output = ()>) -> Figures {
    let before = tier.figures();
    work.await;
    tier.install_all().await;
    let after = tier.figures();
    Figures {
        hit_bytes: after.hit_bytes - before.hit_bytes,
        missed_bytes: after.missed_bytes - before.missed_bytes,
        promotions: after.promotions - before.promotions,
        promoted_bytes: after.promoted_bytes - before.promoted_bytes,
        ..after
    }
}

/// Fills the fast volume with an object that nobody else reads.
async fn take_room(tier: &Tier) {
    let object = fill(tier, "other", 2 * SLOTS * UNIT, 9).await;
    for unit in (0..2 * SLOTS).rev() {
        read(&*object, unit * UNIT, UNIT).await;
        tier.install_all().await;
    }
}

#[test]
fn a_unit_has_a_place_after_its_second_read_and_a_page_of_it_after_its_own() {
    let tier = open(Promotion::Lazy, options(SLOTS), &Clock::simulated());
    block_on(async {
        take_room(&tier).await;
        let object = fill(&tier, "a", 8 * UNIT, 1).await;
        let object = &*object;
        let promoted = async |page: u64| {
            grown(&tier, async { drop(read(object, page * PAGE, PAGE).await) }).await.promoted_bytes
        };
        assert_eq!(promoted(3).await, 0, "the first read of the unit");
        assert_eq!(promoted(9).await, PAGE, "the second one: its own page");
        assert_eq!(promoted(9).await, 0, "a hit");
        assert_eq!(promoted(3).await, 0, "the first read since the unit has a place");
        assert_eq!(promoted(3).await, PAGE, "the second one");
        assert_eq!(promoted(3).await, 0, "a hit");
        assert_eq!(promoted(20).await, 0, "another unit");
    });
}

#[test]
fn what_is_read_takes_free_room_at_once() {
    let tier = open(Promotion::Lazy, options(SLOTS), &Clock::simulated());
    block_on(async {
        let object = fill(&tier, "a", 40 * UNIT, 1).await;
        let once = async {
            for unit in (0..40).rev() {
                read(&*object, unit * UNIT, UNIT).await;
                tier.install_all().await;
            }
        };
        let promoted = grown(&tier, once).await.promoted_bytes / UNIT;
        assert!((SLOTS - 3..=SLOTS).contains(&promoted), "{promoted}: as much as there is room");
    });
}

#[test]
fn demand_installs_the_first_read() {
    let tier = open(Promotion::Demand, options(SLOTS), &Clock::simulated());
    block_on(async {
        let object = fill(&tier, "a", UNIT, 1).await;
        let first = grown(&tier, async { drop(read(&*object, 0, PAGE).await) }).await;
        assert_eq!(first.promoted_bytes, PAGE);
    });
}

/// Each unit is read more often than the threshold, and twice.
#[test]
fn a_sequential_scan_is_never_promoted() {
    const LEN: u64 = 64 * UNIT;
    let tier = open(Promotion::Lazy, options(SLOTS), &Clock::simulated());
    block_on(async {
        take_room(&tier).await;
        let object = fill(&tier, "a", LEN, 1).await;
        let scan = async {
            for offset in (0..LEN).step_by(PAGE as usize) {
                read(&*object, offset, PAGE).await;
            }
        };
        assert_eq!(grown(&tier, scan).await.promotions, 0);
    });
}

/// Pages of the scan that are cached must not hide from the filter that it goes on.
#[test]
fn a_scan_over_cached_pages_is_still_a_scan() {
    const LEN: u64 = 8 * UNIT;
    let tier = open(Promotion::Lazy, options(SLOTS), &Clock::simulated());
    block_on(async {
        let object = fill(&tier, "a", LEN, 1).await;
        let warm = async {
            for unit in 0..8 {
                for page in [3, 9, 3, 6] {
                    read(&*object, unit * UNIT + page * PAGE, PAGE).await;
                    tier.install_all().await;
                }
            }
        };
        assert_eq!(grown(&tier, warm).await.promotions, 8 * 3);
        let scan = async {
            for offset in (0..LEN).step_by(PAGE as usize) {
                read(&*object, offset, PAGE).await;
            }
        };
        let scanned = grown(&tier, scan).await;
        assert_eq!(scanned.hit_bytes, 8 * 3 * PAGE);
        assert_eq!(scanned.promotions, 1, "its first request, in a unit that has its place");
    });
}

#[test]
fn writes_and_the_pools_own_reads_do_not_count() {
    let tier = open(Promotion::Lazy, options(SLOTS), &Clock::simulated());
    block_on(async {
        take_room(&tier).await;
        let object = fill(&tier, "a", UNIT, 1).await;
        let work = async {
            for page in [1, 9, 3] {
                write(&*object, page * PAGE).await;
                let scrub = Io::new(Origin::Scrub, Step::Data);
                let into = IoBufMut::zeroed(PAGE as usize);
                object.read_at((page + 4) * PAGE, into, scrub).await.unwrap();
            }
            read(&*object, 12 * PAGE, PAGE).await;
        };
        assert_eq!(grown(&tier, work).await.promotions, 0, "one read of a user");
        let again = grown(&tier, async { drop(read(&*object, 0, PAGE).await) }).await;
        assert_eq!(again.promotions, 1);
    });
}

#[test]
fn a_unit_that_was_evicted_lately_is_promoted_at_once() {
    let eviction = policy::cache::Kind::Clock2QPlus;
    let tier = open(Promotion::Lazy, Options { eviction, ..options(SLOTS) }, &Clock::simulated());
    block_on(async {
        take_room(&tier).await;
        let object = fill(&tier, "a", 40 * UNIT, 1).await;
        let object = &*object;
        // More than fits, in no sequence.
        for unit in (0..20).rev() {
            for _ in 0..2 {
                read(object, unit * UNIT, UNIT).await;
                tier.install_all().await;
            }
        }
        assert!(tier.figures().evictions > 0);
        // Their accesses do not count any more since they had a place.
        let mut back = 0;
        for unit in (0..20).rev() {
            let again = async { drop(read(object, unit * UNIT + PAGE, PAGE).await) };
            back += grown(&tier, again).await.promotions;
        }
        assert!(back > 5, "{back}");
        let new = grown(&tier, async { drop(read(object, 30 * UNIT, PAGE).await) }).await;
        assert_eq!(new.promotions, 0);
    });
}

/// A load where no promotion pays: the filter asks for more reads after its first periods.
#[test]
fn the_filter_adjusts_in_service() {
    let clock = Clock::simulated();
    let tier = open(Promotion::Lazy, options(SLOTS), &clock);
    const UNITS: u64 = 500;
    clock.run(async {
        let object = tier.create(&name("a"), &Intent::DATA).await.unwrap();
        object.set_len(UNITS * UNIT).await.unwrap();
        let work = async {
            let (mut first, mut last, mut random) = (0, 0, 1_u64);
            for period in 0..11 {
                let before = tier.figures().promotions;
                for _ in 0..11_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let page = (random >> 33) % (UNITS * UNIT / PAGE);
                    read(&*object, page * PAGE, PAGE).await;
                    clock.sleep(Duration::from_millis(2)).await;
                }
                let promotions = tier.figures().promotions - before;
                (first, last) = (if period == 0 { promotions } else { first }, promotions);
            }
            (first, last)
        };
        let (first, last) = beside(&tier, work).await;
        assert!(first > 100 && last < first * 2 / 3, "{first} {last}");
    });
}

/// Each install of 64 KiB takes a second of the budget.
#[test]
fn installs_keep_to_their_budget() {
    let clock = Clock::simulated();
    let budget = Options { promotion_bytes_per_sec: UNIT, ..options(SLOTS) };
    let tier = open(Promotion::Demand, budget, &clock);
    clock.run(async {
        let object = fill(&tier, "a", 10 * UNIT, 1).await;
        let work = async {
            for unit in 0..10 {
                read(&*object, unit * UNIT, UNIT).await;
            }
            clock.sleep(Duration::from_millis(5500)).await;
            tier.figures().promotions
        };
        // One at once, one on credit of a second, then one each second.
        let promotions = beside(&tier, work).await;
        assert!((6..=7).contains(&promotions), "{promotions}");
    });
}
