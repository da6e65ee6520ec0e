//! Random calls on a device and on an array of bytes.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::block::Memory;

/// Two extents and a part of a third.
const SIZE: u64 = 2 * REGION + 5 * BLOCK;

struct Model {
    bytes: Vec<u8>,
    random: Xoshiro256PlusPlus,
}

impl Model {
    fn new(seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { bytes: vec![0; SIZE as usize], random }
    }

    /// A range around a border of extents, a block, or the end, often not of whole blocks.
    fn range(&mut self) -> Range<u64> {
        let around = [0, REGION, 2 * REGION, SIZE][self.random.random_range(0..4)];
        let from = (around + self.random.random_range(0..9 * BLOCK)).saturating_sub(5 * BLOCK);
        let from = from.min(SIZE);
        let len = match self.random.random_range(0..10) {
            0 => self.random.random_range(0..REGION + REGION / 2),
            _ => self.random.random_range(0..4 * BLOCK),
        };
        let to = (from + len).min(SIZE);
        match self.random.random_bool(0.5) {
            true => from / BLOCK * BLOCK..to.next_multiple_of(BLOCK).min(SIZE),
            false => from..to,
        }
    }

    /// One call on both.
    async fn step(&mut self, device: &dyn BlockDevice) {
        let range = self.range();
        let part = range.start as usize..range.end as usize;
        let durable = [Durable::Now, Durable::Later][self.random.random_range(0..2)];
        let room = [Zeros::Free, Zeros::Keep][self.random.random_range(0..2)];
        match self.random.random_range(0..12) {
            0..5 => {
                let mut data = vec![0; part.len()];
                self.random.fill(&mut data[..]);
                device.write(range.start, IoBuf::from(&data[..]), durable).await.unwrap();
                self.bytes[part].copy_from_slice(&data);
            }
            5..8 => {
                let read = read(device, range.start, part.len()).await.unwrap();
                assert!(read == self.bytes[part], "{range:?}");
            }
            8 => {
                device.zero(range, room, self.random.random(), durable).await.unwrap();
                self.bytes[part].fill(0);
            }
            9 => {
                device.discard(range.clone(), durable).await.unwrap();
                let whole = shape::inward(&range);
                self.bytes[whole.start as usize..whole.end as usize].fill(0);
            }
            10 => device.flush().await.unwrap(),
            _ => self.check_extents(device, range).await,
        }
    }

    async fn check_extents(&mut self, device: &dyn BlockDevice, range: Range<u64>) {
        let most = self.random.random_range(1..5);
        let mut at = range.start;
        while at < range.end {
            let found = device.extents(at..range.end, most).await.unwrap();
            assert!((1..=most).contains(&found.len()), "{found:?} of {range:?}");
            for part in found {
                assert!(part.range.start == at && !part.range.is_empty(), "{part:?} at {at}");
                at = part.range.end;
                let bytes = &self.bytes[part.range.start as usize..at as usize];
                assert!(!part.is_hole || bytes.iter().all(|&byte| byte == 0), "{part:?}");
            }
        }
        assert_eq!(at, range.end.max(range.start));
    }

    async fn check(&self, device: &dyn BlockDevice) {
        assert!(read(device, 0, SIZE as usize).await.unwrap() == self.bytes);
    }
}

#[test]
fn a_device_is_an_array_of_bytes() {
    for seed in 0..20 {
        let clock = Clock::simulated();
        let (memory, mut model) = (Memory::default().with("disk", SIZE), Model::new(seed));
        clock.run(async {
            let device = memory.open("disk").await.unwrap();
            for _ in 0..100 {
                model.step(&*device).await;
            }
            model.check(&*device).await;
        });
    }
}

#[test]
fn a_device_of_a_store_is_too_also_when_it_is_opened_again() {
    for seed in 0..30 {
        let copies = 1 + (seed % 2) as usize;
        let mut rig = Rig::new(2, copies);
        // Pages of checksums are evicted and come back.
        rig.options.checksum_bytes = 0;
        rig.options.clean_after = Duration::ZERO;
        rig.options.extent_bytes = REGION * (1 + seed % 3);
        let mut model = Model::new(seed);
        let clock = rig.clock.clone();
        clock.run(async {
            let (pool, store) = rig.open().await.unwrap();
            store.create("disk", SIZE).await.unwrap();
            drop((pool, store));
        });
        for life in 0..4 {
            clock.run(async {
                let (pool, store) = rig.open().await.unwrap();
                let device = device(&store, "disk").await;
                model.check(&*device).await;
                for step in 0..40 {
                    model.step(&*device).await;
                    if step % 10 == 0 {
                        store.tend().await.unwrap();
                    }
                }
                model.check(&*device).await;
                if life % 2 == 0 {
                    store.close().await.unwrap();
                    pool.close().await.unwrap();
                    assert_eq!(store.figures().dirty_regions, 0);
                }
            });
            rig.kill();
        }
    }
}

#[test]
fn a_range_behind_the_end_is_refused() {
    let rig = Rig::new(1, 1);
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 8192).await.unwrap();
        let device = device(&store, "disk").await;
        let data = bytes(4096, 1);
        assert!(matches!(
            device.write(4097, data.clone(), Durable::Later).await,
            Err(Error::Invalid(_))
        ));
        assert!(matches!(
            device.write(u64::MAX, data, Durable::Later).await,
            Err(Error::Invalid(_))
        ));
        assert!(matches!(read(&*device, 8192, 1).await, Err(Error::Invalid(_))));
        assert!(matches!(device.discard(0..8193, Durable::Later).await, Err(Error::Invalid(_))));
        assert!(matches!(device.extents(8193..8194, 1).await, Err(Error::Invalid(_))));
        assert_eq!(read(&*device, 8191, 1).await.unwrap(), [0]);
    });
}
