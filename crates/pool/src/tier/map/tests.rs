use std::sync::atomic::AtomicU32;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::room::Take;
use super::*;

const PAGES: u32 = 8;

fn map(places: u32, entries: u32) -> Map {
    Map::new(Size { places, entries, pages: PAGES, at_once: 512 }, Kind::Lru)
}

impl Map {
    fn snapshot(&mut self, counts: impl Fn(Unit) -> bool) -> Vec<(u32, Placed)> {
        let mut snapshot = self.begin_snapshot();
        while self.add_to(&mut snapshot, &counts) {}
        snapshot.units
    }
}

const fn unit(extent: u32) -> Unit {
    Unit { object: 1, extent }
}

/// Installs pages of a unit; its entry if there was room.
fn fill(map: &mut Map, extent: u32, pages: Range<u32>) -> Option<Slot> {
    let unit = unit(extent);
    let entry = map.find(unit).or_else(|| map.take_entry(unit))?;
    let number = map.begin_fill(entry, &pages)?;
    let placed = map.place_fill(entry, number, &pages);
    if placed.is_some() {
        map.set_filled(entry, &pages);
        map.unpin(entry);
    }
    map.end_fill(entry, number);
    placed.map(|_| entry)
}

fn mark_all(map: &mut Map) {
    assert!(!map.snapshot(|_| true).is_empty());
    map.switch_checkpoint();
}

/// Every place is free, waits in limbo, or has one page.
fn check(map: &Map) {
    let tables = map.entries.iter().flat_map(|entry| entry.table.runs(0..PAGES));
    let held: Vec<_> = tables.map(Run::places).collect();
    let all = held.into_iter().chain(map.limbo.values().flatten().cloned()).flatten();
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    assert!(all.is_sorted_by(|one, other| one < other), "no place has two pages");
    assert_eq!(all.len() as u32 + map.places.free(), map.size.places, "no place is lost");
    let limbo = map.limbo.values().flatten().map(|places| places.end - places.start);
    let leaving = map.leaving.iter().map(|&entry| map.entries[entry as usize].table.pages());
    assert_eq!(map.waiting, limbo.chain(leaving).sum::<u32>());
    let mut valid = 0;
    for entry in 0..map.entries.len() as Slot {
        for page in (0..PAGES).filter(|&page| map.is_valid(entry, page)) {
            assert!(map.place_of(entry, page).is_some(), "a valid page has a place");
            valid += PAGE;
        }
    }
    assert_eq!(map.counted.cached_bytes, valid);
    let units = map.entries.iter().filter(|entry| entry.flags & HELD != 0);
    assert_eq!(units.count() + map.free.len(), map.entries.len());
}

#[test]
fn room_is_counted_by_the_page() {
    let mut map = map(8, 20);
    for extent in 0..8 {
        fill(&mut map, extent, 3..4).unwrap();
    }
    assert_eq!(map.counted, Room { cached_bytes: 8 * PAGE, ..Room::default() });
    fill(&mut map, 8, 0..2).unwrap();
    let held: Vec<_> = (0..9).filter(|&extent| map.find(unit(extent)).is_some()).collect();
    assert_eq!(held, [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(map.within(1, 0..u32::MAX).len(), 7);
    assert_eq!(map.within(1, 7..9).len(), 2);
    check(&map);
}

#[test]
fn pages_that_are_read_stay_and_others_of_their_unit_leave() {
    let mut map = map(16, 16);
    let first = fill(&mut map, 0, 0..8).unwrap();
    fill(&mut map, 1, 0..8).unwrap();
    let place = map.place_of(first, 5).unwrap();
    map.see(first, &(5..6));
    fill(&mut map, 2, 0..7).unwrap();
    assert_eq!(map.place_of(first, 5), Some(place), "it moves nowhere");
    assert!((0..8).all(|page| map.is_valid(first, page) == (page == 5)));
    assert_eq!((map.counted.trims, map.counted.evictions), (1, 0));
    // The next visits free too little, until what was read twice leaves, too.
    while map.find(unit(0)).is_some() {
        assert!(map.evict(Take::Unworthy));
        map.release();
    }
    check(&map);
}

#[test]
fn visits_that_take_nothing_are_followed_by_some_that_do() {
    let mut map = map(8, 8);
    let entry = fill(&mut map, 0, 0..8).unwrap();
    map.see(entry, &(0..8));
    let kept = |map: &Map| map.counted.cached_bytes == 8 * PAGE;
    let visits = (0..100).take_while(|_| map.evict(Take::Unworthy) && kept(&map)).count();
    assert!((5..50).contains(&visits), "{visits}");
    assert_eq!((map.counted.cached_bytes, map.counted.evictions), (0, 1));
}

#[test]
fn units_leave_where_entries_run_out() {
    let mut map = map(64, 2);
    for extent in 0..5 {
        let entry = fill(&mut map, extent, 0..2).unwrap();
        map.see(entry, &(0..2));
    }
    let held: Vec<_> = (0..5).filter(|&extent| map.find(unit(extent)).is_some()).collect();
    assert_eq!((held, map.counted.evictions), (vec![3, 4], 3));
    assert!(map.is_short() && map.make_room() && map.free_entries() == 1);
    check(&map);
}

#[test]
fn a_marked_entry_keeps_its_unit_until_it_has_a_record() {
    let mut map = map(64, 1);
    let entry = fill(&mut map, 0, 0..1).unwrap();
    mark_all(&mut map);
    assert_eq!(map.take_entry(unit(1)), None);
    assert_eq!(map.find(unit(0)), Some(entry), "a write must find it");
    assert_eq!(map.release(), [entry]);
    map.unmark(entry);
    assert_eq!(map.take_entry(unit(1)), Some(entry));
    assert_eq!(map.find(unit(0)), None);
}

/// The checkpoint says that they hold what they held.
#[test]
fn places_that_a_marked_unit_lost_wait_for_its_record() {
    for is_written in [false, true] {
        let mut map = map(8, 8);
        let entry = fill(&mut map, 0, 0..8).unwrap();
        map.snapshot(|_| true);
        if is_written {
            map.switch_checkpoint();
        }
        map.see(entry, &(2..3));
        assert_eq!(fill(&mut map, 1, 0..1), None, "seven places wait");
        assert_eq!((map.places.free(), map.room(), map.counted.deferred_pages), (0, 7, 7));
        assert_eq!(map.release(), [entry]);
        assert_eq!(map.counted.trims, 1, "no more is taken meanwhile");
        check(&map);
        map.unmark(entry);
        let other = fill(&mut map, 1, 0..7).unwrap();
        assert!(map.is_valid(entry, 2) && map.is_valid(other, 6));
        check(&map);
    }
}

#[test]
fn a_dropped_page_keeps_its_place_for_the_next_fill() {
    let mut map = map(8, 8);
    let entry = fill(&mut map, 0, 0..4).unwrap();
    let place = map.place_of(entry, 1).unwrap();
    map.drop_pages(entry, &(1..2));
    assert_eq!((map.place_of(entry, 1), map.runs(entry, 1..2).count()), (None, 1));
    fill(&mut map, 0, 0..4).unwrap();
    assert_eq!((map.place_of(entry, 1), map.places.free()), (Some(place), 4));
    assert_eq!(map.row_of(entry, &(0..4)), Some(place - 1));
    assert_eq!(map.row_of(entry, &(0..5)), None);
}

#[test]
fn a_fill_without_room_leaves_no_entry() {
    let mut map = map(4, 8);
    let entry = fill(&mut map, 0, 0..4).unwrap();
    map.pin(entry);
    assert_eq!(fill(&mut map, 1, 0..1), None);
    map.release();
    assert_eq!((map.find(unit(1)), map.free.len()), (None, 1));
    check(&map);
}

#[test]
fn a_change_makes_the_fills_under_way_void() {
    let mut map = map(16, 2);
    let entry = fill(&mut map, 0, 7..8).unwrap();
    let first = map.begin_fill(entry, &(0..2)).unwrap();
    let second = map.begin_fill(entry, &(2..4)).unwrap();
    assert!(!map.is_writable(entry, &(1..3)) && map.is_writable(entry, &(4..8)));
    map.drop_pages(entry, &(0..1));
    assert!(map.is_void(entry, first) && !map.is_void(entry, second));
    assert_eq!(map.place_fill(entry, first, &(0..2)), None);
    assert_eq!(map.begin_fill(entry, &(1..2)), None, "the old fill may write later");
    map.end_fill(entry, first);
    assert!(map.begin_fill(entry, &(1..2)).is_some());
    map.leave(entry);
    assert!(map.is_void(entry, second), "the unit leaves");
}

#[test]
fn a_pinned_unit_is_no_victim() {
    let mut map = map(2, 8);
    let first = fill(&mut map, 0, 0..1).unwrap();
    map.pin(first);
    let second = fill(&mut map, 1, 0..1).unwrap();
    let third = fill(&mut map, 2, 0..1).unwrap();
    assert_eq!((map.find(unit(0)), map.find(unit(1))), (Some(first), None));
    map.pin(third);
    assert_eq!(fill(&mut map, 3, 0..1), None);
    map.unpin(third);
    map.release();
    assert_eq!(fill(&mut map, 3, 0..1), Some(second), "the entry is used again");
}

#[test]
fn what_is_dirty_is_no_victim_until_it_was_flushed() {
    let mut map = map(16, 20);
    let entry = fill(&mut map, 0, 0..4).unwrap();
    map.begin_back(entry, &(1..2));
    assert!(map.end_back(entry, &(1..2), &[]));
    for _ in 0..2 {
        assert!(map.evict(Take::Unworthy) && !map.evict(Take::Unit));
        let bytes = Room { cached_bytes: PAGE, dirty_bytes: PAGE, trims: 1, ..Room::default() };
        assert_eq!(Room { trims: 1, ..map.counted }, bytes);
    }
    let pages = map.dirty_pages(entry, &(0..PAGES));
    map.begin_flush(&pages);
    let (unchanged, recorded) = map.flushed(&pages);
    assert_eq!((unchanged.runs.len(), recorded), (1, Vec::new()));
    map.set_clean(&unchanged);
    assert!(map.evict(Take::Unit));
    assert_eq!((map.counted().cached_bytes, map.counted().dirty_bytes), (0, 0));
    check(&map);
}

#[test]
fn a_snapshot_holds_the_map_for_some_entries_at_a_time_and_has_dirty_units_first() {
    const UNITS: u32 = 2000;
    let mut map = map(2 * UNITS, UNITS);
    for extent in 0..UNITS {
        let entry = fill(&mut map, extent, 0..1).unwrap();
        if extent % 100 == 99 {
            map.begin_back(entry, &(0..1));
            assert!(map.end_back(entry, &(0..1), &[]));
            let pages = map.dirty_pages(entry, &(0..1));
            map.set_recorded(&pages);
        }
    }
    let mut snapshot = map.begin_snapshot();
    let (mut before, mut rounds) = (0, 1);
    while map.add_to(&mut snapshot, |_| true) {
        assert!(snapshot.units.len() - before <= 512);
        (before, rounds) = (snapshot.units.len(), rounds + 1);
    }
    assert_eq!(rounds, 2 * UNITS.div_ceil(512));
    let extents: Vec<_> = snapshot.units.iter().map(|(_, placed)| placed.extent).collect();
    let dirty = (99..UNITS).step_by(100);
    let clean = (0..UNITS).filter(|extent| extent % 100 != 99);
    assert_eq!(extents, dirty.chain(clean).collect::<Vec<_>>());
}

#[test]
fn what_a_snapshot_says_is_restored() {
    let mut map = map(32, 8);
    for (extent, pages) in [(0, 0..2), (1, 3..8), (0, 4..6), (2, 0..1)] {
        fill(&mut map, extent, pages).unwrap();
    }
    map.drop_pages(0, &(5..6));
    let named = map.snapshot(|unit| unit.extent < 2);
    let mut again = self::map(32, 8);
    for (object, placed) in &named {
        let unit = Unit { object: *object, extent: placed.extent };
        assert!(again.restore(unit, placed));
        assert!(!again.restore(unit, placed), "twice");
    }
    again.restored();
    check(&again);
    assert_eq!(again.counted.cached_bytes, 8 * PAGE);
    assert_eq!(again.snapshot(|_| true), named);
    let mut few = self::map(32, 1);
    assert!(!few.restore(unit(9), &named[1].1), "there is no such entry");
}

/// What the bytes of each place are, after any work: those of the page that has it, and those that a checkpoint says as
/// long as it counts.
#[test]
fn no_page_and_no_checkpoint_ever_has_the_bytes_of_another_page() {
    let (mut trims, mut deferred) = (0, 0);
    for seed in 0..60 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let kind = Kind::ALL[seed as usize % Kind::ALL.len()];
        let entries = 4 + seed as u32 % 13;
        let size = Size { places: 40, entries, pages: PAGES, at_once: 3 };
        let mut map = Map::new(size, kind);
        let mut bytes = [(0, 0); 40];
        let (mut current, mut next) = (Vec::<(Slot, u32, Run)>::new(), None);
        for step in 0..3000 {
            let (extent, from) = (random.random_range(0..16), random.random_range(0..PAGES));
            let pages = from..random.random_range(from..PAGES) + 1;
            match random.random_range(0..20) {
                0..9 => {
                    let entry = map.find(unit(extent)).or_else(|| map.take_entry(unit(extent)));
                    let begun = entry.and_then(|e| Some((e, map.begin_fill(e, &pages)?)));
                    let Some((entry, number)) = begun else { continue };
                    if let Some(runs) = map.place_fill(entry, number, &pages) {
                        assert_eq!(
                            runs.iter().map(|run| u32::from(run.count)).sum::<u32>(),
                            pages.end - pages.start
                        );
                        for run in runs {
                            for page in run.pages() {
                                bytes[run.place_of(page) as usize] = (extent, page);
                            }
                        }
                        map.set(entry, &pages);
                        map.unpin(entry);
                    }
                    map.end_fill(entry, number);
                }
                9..15 => {
                    if let Some(entry) = map.find(unit(extent)) {
                        map.see(entry, &pages);
                        map.hit(entry);
                    }
                }
                15 => {
                    // A change is preceded by its record.
                    if let Some(entry) = map.find(unit(extent)) {
                        map.unmark(entry);
                        current.retain(|(other, ..)| *other != entry);
                        next.iter_mut().for_each(|next: &mut Vec<(Slot, u32, Run)>| {
                            next.retain(|(other, ..)| *other != entry);
                        });
                        map.drop_pages(entry, &pages);
                    }
                }
                16 => {
                    let named = map.snapshot(|_| true).into_iter();
                    let runs = named.flat_map(|(_, placed)| {
                        let Placed { extent, entry, runs, dirty: _ } = placed;
                        runs.into_iter().map(move |run| (entry, extent, run))
                    });
                    next = Some(runs.collect());
                }
                17 => {
                    if let Some(next) = next.take() {
                        map.switch_checkpoint();
                        current = next;
                    }
                }
                18 => {
                    map.make_room();
                }
                _ => {
                    for entry in map.release() {
                        map.unmark(entry);
                        current.retain(|(other, ..)| *other != entry);
                        next.iter_mut().for_each(|next: &mut Vec<(Slot, u32, Run)>| {
                            next.retain(|(other, ..)| *other != entry);
                        });
                    }
                }
            }
            check(&map);
            for (entry, extent, run) in current.iter().chain(next.iter().flatten()) {
                for page in run.pages() {
                    let found = bytes[run.place_of(page) as usize];
                    assert_eq!(found, (*extent, page), "seed {seed}, step {step}, entry {entry}");
                }
            }
            for extent in 0..16 {
                let Some(entry) = map.find(unit(extent)) else { continue };
                for page in 0..PAGES {
                    let place = map.place_of(entry, page);
                    assert!(place.is_none_or(|place| bytes[place as usize] == (extent, page)));
                }
            }
        }
        trims += map.counted.trims;
        deferred += map.counted.deferred_pages;
    }
    assert!(trims > 1000 && deferred > 1000, "{trims} {deferred}");
}

#[test]
fn what_a_unit_takes_in_memory() {
    let entry = size_of::<Entry>() + size_of::<Slot>() + size_of::<AtomicU32>();
    let lists = 2 * size_of::<Slot>();
    let pages = 4 * Bits::new(256).bytes_per_entry() + Uses::new(256, 1).bytes_per_entry();
    // Links of 8 bytes and an entry of 24 in the policy, whose ghosts are at most as many as its entries.
    assert!(entry + lists + pages + 32 <= 376, "{}", entry + lists + pages + 32);
}
