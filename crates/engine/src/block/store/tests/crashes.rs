//! What a power cut, or the death of the process, leaves.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

/// Two extents.
const SIZE: u64 = 2 * REGION;
/// The blocks that are written: some of each extent.
const WRITTEN: [u64; 6] = [0, 1, 2, 1023, 1024, 1025];

/// What each block may hold, as a stamp: 0 is zeros.
#[derive(Clone)]
struct Block {
    /// After a crash now.
    possible: BTreeSet<u64>,
    /// What a read gives, if it is known.
    now: Option<u64>,
}

struct Model {
    blocks: Vec<Block>,
    stamp: u64,
    random: Xoshiro256PlusPlus,
}

impl Model {
    fn new(seed: u64) -> Self {
        let block = Block { possible: BTreeSet::from([0]), now: Some(0) };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { blocks: vec![block; WRITTEN.len()], stamp: 0, random }
    }

    /// Some calls, until the power is cut.
    async fn work(&mut self, device: &dyn BlockDevice, store: &Store) -> Result<()> {
        loop {
            let at = self.random.random_range(0..WRITTEN.len());
            // Neighbours are written together at times.
            let count = if matches!(at, 0 | 2 | 4) && self.random.random_bool(0.3) { 2 } else { 1 };
            let neighbours = WRITTEN.get(at + 1) == Some(&(WRITTEN[at] + 1));
            let count = if neighbours { count } else { 1 };
            let offset = WRITTEN[at] * BLOCK;
            let range = offset..offset + count as u64 * BLOCK;
            match self.random.random_range(0..10) {
                0..5 => {
                    self.stamp += 1;
                    let durable = [Durable::Now, Durable::Later][self.random.random_range(0..2)];
                    let data = stamped(self.stamp, count);
                    let done = device.write(offset, data, durable).await;
                    self.changed(at..at + count, self.stamp, durable, &done);
                    done?;
                }
                5 => {
                    let done = device.discard(range, Durable::Later).await;
                    self.changed(at..at + count, 0, Durable::Later, &done);
                    done?;
                }
                6 => {
                    device.flush().await?;
                    for block in &mut self.blocks {
                        block.possible = block.now.into_iter().collect();
                    }
                }
                7 => store.tend().await?,
                _ => {
                    let read = read(device, range.start, count * BLOCK as usize).await?;
                    for (block, bytes) in (at..).zip(read.chunks(BLOCK as usize)) {
                        assert_eq!(Some(stamp_of(bytes)), self.blocks[block].now, "block {block}");
                    }
                }
            }
        }
    }

    fn changed(&mut self, blocks: Range<usize>, stamp: u64, durable: Durable, done: &Result<()>) {
        for block in &mut self.blocks[blocks] {
            block.possible.insert(stamp);
            block.now = done.is_ok().then_some(stamp);
            if durable == Durable::Now && done.is_ok() {
                block.possible = BTreeSet::from([stamp]);
            }
        }
    }

    /// After a crash: every block has one of the bytes that it may have, and keeps them.
    async fn check(&mut self, device: &dyn BlockDevice, context: &str) {
        for _ in 0..2 {
            for (block, number) in self.blocks.iter_mut().zip(WRITTEN) {
                let read = read(device, number * BLOCK, BLOCK as usize).await.unwrap();
                let stamp = stamp_of(&read);
                let Block { possible, .. } = &*block;
                assert!(
                    possible.contains(&stamp),
                    "{context}: block {number}: {stamp} of {possible:?}"
                );
                *block = Block { possible: BTreeSet::from([stamp]), now: Some(stamp) };
            }
        }
    }
}

/// Blocks with a stamp in each sector.
fn stamped(stamp: u64, blocks: usize) -> IoBuf {
    let mut data = IoBufMut::zeroed(blocks * BLOCK as usize);
    data.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&stamp.to_le_bytes()));
    data.freeze()
}

/// The stamp of a block; it must be the same all over the block.
fn stamp_of(block: &[u8]) -> u64 {
    let words = block.as_chunks::<8>().0;
    let torn = words.iter().any(|word| *word != words[0]);
    if torn { u64::MAX } else { u64::from_le_bytes(words[0]) }
}

#[test]
fn a_power_cut_at_any_step_leaves_what_was_durable_or_written_later() {
    let rounds = std::env::var("BLOCK_ROUNDS").map_or(60, |rounds| rounds.parse().unwrap());
    for seed in 0..rounds {
        let mut rig = Rig::new(2, 1 + (seed % 2) as usize);
        rig.options.clean_after = Duration::ZERO;
        let mut model = Model::new(seed);
        let clock = rig.clock.clone();
        clock.run(async {
            let (_pool, store) = rig.open().await.unwrap();
            store.create("disk", SIZE).await.unwrap();
        });
        for life in 0..4 {
            let context = format!("seed {seed}, life {life}");
            let is_kill = model.random.random_bool(0.3);
            clock.run(async {
                let (_pool, store) = rig.open().await.unwrap();
                let device = device(&store, "disk").await;
                model.check(&*device, &context).await;
                rig.power.cut_after(model.random.random_range(1..60));
                let ended = model.work(&*device, &store).await;
                assert!(ended.is_err() && rig.power.is_off(), "{context}: {ended:?}");
            });
            if is_kill {
                // A call under way may have taken effect; all others were acknowledged.
                for block in &mut model.blocks {
                    if let Some(now) = block.now {
                        block.possible = BTreeSet::from([now]);
                    }
                }
                rig.kill();
            } else {
                rig.crash(seed * 10 + life);
            }
        }
    }
}

#[test]
fn an_opening_after_a_crash_reads_no_blocks() {
    let mut rig = Rig::new(2, 2);
    let clock = rig.clock.clone();
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 16 * REGION).await.unwrap();
        let device = device(&store, "disk").await;
        for extent in 0..16 {
            device.write(extent * REGION, bytes(1 << 18, 7), Durable::Now).await.unwrap();
        }
    });
    rig.crash(1);
    clock.run(async {
        let before = rig.log.records().len();
        let (_pool, store) = rig.open().await.unwrap();
        let records = rig.log.records().split_off(before);
        let read: u64 = records.iter().map(|record| record.call).filter_map(read_bytes).sum();
        assert!(read < 256 << 10, "{read} bytes are read");
        assert_eq!(store.figures().dirty_regions, 16);
        let device = device(&store, "disk").await;
        assert_eq!(super::read(&*device, 5 * REGION, 1 << 18).await.unwrap(), vec![7; 1 << 18]);
        store.tend().await.unwrap();
    });
}

fn read_bytes(call: volume::layer::call::Call) -> Option<u64> {
    (call.op == volume::layer::call::Op::Read).then_some(call.len)
}
