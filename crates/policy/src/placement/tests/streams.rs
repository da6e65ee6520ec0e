//! Streams of stores, and the volumes that they are written to.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::intent::Stream;

/// Volumes of a pool, and what was placed last of each stream.
struct Pool {
    placement: LeastOverlap,
    volumes: Vec<Candidate>,
    objects: u64,
    on: BTreeMap<Stream, Vec<VolumeId>>,
}

impl Pool {
    fn new(volumes: u16) -> Self {
        let volume = |number| Candidate {
            paid: 1000.0,
            ..Candidate::new(VolumeId(number), 1 << 40, 1 << 40)
        };
        let volumes = (0..volumes).map(volume).collect();
        Self { placement: LeastOverlap::default(), volumes, objects: 0, on: BTreeMap::new() }
    }

    /// Places another object of a stream, with so many copies.
    fn goes_on(&mut self, stream: Stream, copies: usize) {
        let intent = Intent { stream: Some(stream), ..Intent::LOG };
        self.objects += 1;
        let mut on = Vec::new();
        for _ in 0..copies {
            let free: Vec<_> =
                self.volumes.iter().filter(|c| !on.contains(&c.volume)).copied().collect();
            let new = New::cold(self.objects, &intent);
            let layout = self.placement.choose(new, &free, &Tables::default()).expect("room");
            on.extend(layout.volumes());
        }
        self.on.insert(stream, on);
    }

    /// How many streams are written to each volume now.
    fn streams(&self) -> Vec<usize> {
        let count = |c: &Candidate| self.on.values().filter(|on| on.contains(&c.volume)).count();
        self.volumes.iter().map(count).collect()
    }
}

/// Two streams on one of the volumes, and none on another: half of what they can write.
#[test]
fn streams_that_go_on_in_any_order_are_spread_over_all_volumes() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for (streams, copies) in [(5, 1), (10, 1), (5, 2), (3, 1)] {
        let mut pool = Pool::new(5);
        let mut all: Vec<_> = (0..streams).map(Stream).collect();
        all.iter().for_each(|&stream| pool.goes_on(stream, copies));
        for _ in 0..100 {
            all.shuffle(&mut random);
            for &stream in &all {
                // What they write is a part of the loads, which differ somewhat.
                pool.volumes.iter_mut().for_each(|c| c.weight = random.random_range(0.4..0.9));
                pool.goes_on(stream, copies);
                let now = pool.streams();
                let even = streams as usize * copies / 5;
                let bounds = (now.iter().min().copied(), now.iter().max().copied());
                assert_eq!(bounds, (Some(even), Some(even.max(1))), "{:?}", pool.on);
            }
        }
    }
}

/// A volume of three times the price writes three times as much.
#[test]
fn a_volume_gets_as_many_streams_as_its_part_of_what_is_paid_for() {
    let mut pool = Pool::new(2);
    pool.volumes[1].paid = 3000.0;
    for _ in 0..10 {
        (0..4).for_each(|stream| pool.goes_on(Stream(stream), 1));
        assert_eq!(pool.streams(), [1, 3]);
    }
}

#[test]
fn a_stream_leaves_a_volume_that_is_much_busier_than_others() {
    let mut pool = Pool::new(2);
    (0..2).for_each(|stream| pool.goes_on(Stream(stream), 1));
    let busy = pool.on[&Stream(0)][0];
    let of_busy = |c: &&mut Candidate| c.volume == busy;
    pool.volumes.iter_mut().find(of_busy).expect("it is there").weight = 0.4;
    pool.goes_on(Stream(0), 1);
    assert_eq!(pool.streams(), [1, 1], "its own load is no reason");
    pool.volumes.iter_mut().find(of_busy).expect("it is there").weight = 0.9;
    pool.goes_on(Stream(0), 1);
    assert_ne!(pool.on[&Stream(0)], [busy]);
}

/// A log of a store that writes one at a time.
#[test]
fn a_log_without_a_stream_goes_where_none_is_written() {
    let mut pool = Pool::new(3);
    (0..2).for_each(|stream| pool.goes_on(Stream(stream), 1));
    let free: Vec<_> = pool.streams().iter().map(|&streams| streams == 0).collect();
    for object in 100..103 {
        let new = New::cold(object, &Intent::LOG);
        let layout = pool.placement.choose(new, &pool.volumes, &Tables::default()).expect("room");
        assert!(free[usize::from(layout.volumes()[0].0)], "{layout}");
    }
}
