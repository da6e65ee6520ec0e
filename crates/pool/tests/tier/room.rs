//! The room of the fast volume is given by the page.

use pool::tier::{Figures, Tier};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Object, Volume};

use crate::rig::{PAGE, UNIT, content, fill, open_now, options, read};

const PAGES: u64 = UNIT / PAGE;

fn tier(units: u64) -> Tier {
    open_now(&Mem::new("slow"), &(std::sync::Arc::new(Mem::new("fast")) as _), options(units))
}

/// Reads a page of a unit, and has it installed.
async fn get(tier: &Tier, object: &dyn Object, unit: u64, page: u64) {
    let at = unit * UNIT + page % PAGES * PAGE;
    assert_eq!(read(object, at, PAGE).await, content(at + PAGE, 1)[at as usize..]);
    tier.install_all().await;
}

fn hits_of(before: Figures, after: Figures) -> (u64, u64) {
    let pages = |bytes: u64| bytes / PAGE;
    (pages(after.hit_bytes - before.hit_bytes), pages(after.missed_bytes - before.missed_bytes))
}

#[test]
fn as_many_scattered_pages_are_cached_as_there_is_room_for() {
    // One place is kept free.
    const COUNT: u64 = 4 * PAGES - 1;
    let tier = tier(4);
    block_on(async {
        let object = fill(&tier, "a", COUNT * UNIT, 1).await;
        for unit in 0..COUNT {
            get(&tier, &*object, unit, 7 * unit).await;
        }
        let before = tier.figures();
        assert_eq!((before.cached_bytes, before.evictions), (COUNT * PAGE, 0));
        for unit in 0..COUNT {
            get(&tier, &*object, unit, 7 * unit).await;
        }
        assert_eq!(hits_of(before, tier.figures()), (COUNT, 0));
    });
}

#[test]
fn hot_pages_stay_while_cold_ones_of_their_units_pass() {
    const UNITS: u64 = 8;
    let tier = tier(4);
    block_on(async {
        let object = fill(&tier, "a", UNITS * UNIT, 1).await;
        let hot = async || {
            for unit in 0..UNITS {
                get(&tier, &*object, unit, 5).await;
            }
        };
        hot().await;
        hot().await;
        let before = tier.figures();
        let mut cold = 0;
        for page in (0..PAGES).filter(|page| *page != 5) {
            for unit in 0..UNITS {
                get(&tier, &*object, unit, page).await;
                cold += 1;
            }
            hot().await;
        }
        let after = tier.figures();
        assert_eq!(hits_of(before, after), ((PAGES - 1) * UNITS, cold), "{after:?}");
        assert!(after.trims > 5 && after.evictions == 0, "{after:?}");
    });
}

/// The checkpoint names the place: a crash would give one page the bytes of another.
#[test]
fn a_place_that_a_checkpoint_names_is_used_again_only_after_a_record() {
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let opened = || open_now(&slow, &(std::sync::Arc::new(fast.clone()) as _), options(2));
    let tier = opened();
    block_on(async {
        let object = fill(&tier, "a", 8 * UNIT, 1).await;
        for unit in 0..2 {
            read(&*object, unit * UNIT, UNIT - PAGE).await;
            tier.install_all().await;
        }
        tier.write_checkpoint().await;
        // Half of each stays.
        for unit in 0..2 {
            read(&*object, unit * UNIT, UNIT / 2).await;
        }
        for unit in 2..8 {
            get(&tier, &*object, unit, 3).await;
            get(&tier, &*object, unit, 4).await;
        }
    });
    let figures = tier.figures();
    // The process dies.
    drop(tier);
    let tier = opened();
    block_on(async {
        let object = tier.open(&crate::rig::name("a")).await.unwrap();
        assert_eq!(read(&*object, 0, 8 * UNIT).await, content(8 * UNIT, 1));
    });
    assert!(figures.deferred_pages > 0 && figures.doubts > 0, "{figures:?}");
}
