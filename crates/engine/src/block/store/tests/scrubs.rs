//! Scrubs: cold blocks and pages of checksums that rot are found and repaired without a reader, on copies.

use ::pool::spread::{Finding, Problem, Verifying};

use super::*;

/// The device's only extent with blocks.
const EXTENT: &str = "block/00000000/00000000";

/// A store with two copies of everything. Of the device's only region, blocks 3 to 5 and block 900 were written.
async fn written(rig: &Rig) {
    let (pool, store) = rig.open().await.unwrap();
    store.create("disk", REGION).await.unwrap();
    let device = device(&store, "disk").await;
    for (block, count) in [(3, 3), (900, 1)] {
        let data = bytes(count * BLOCK as usize, block as u8);
        device.write(block * BLOCK, data, Durable::Now).await.unwrap();
    }
    store.close().await.unwrap();
    pool.close().await.unwrap();
}

async fn must_be_as_written(store: &Store) {
    let device = device(store, "disk").await;
    assert_eq!(read(&*device, 3 * BLOCK, 3 * 4096).await.unwrap(), [3; 3 * 4096]);
    assert_eq!(read(&*device, 900 * BLOCK, 4096).await.unwrap(), [900_u64 as u8; 4096]);
    assert_eq!(read(&*device, 6 * BLOCK, 4096).await.unwrap(), [0; 4096]);
}

impl Rig {
    /// Flips bits of the extent's copy on a volume.
    async fn rot_cold(&self, volume: usize, offset: u64) {
        let mut extents = self.crashes[volume].list().await.unwrap();
        extents.retain(|object| object.len > REGION);
        let name = &extents[0].name;
        assert!(self.crashes[volume].damage(name, offset, |byte| byte ^ 4).is_some());
    }
}

fn verified(pool: &Spread, store: &Store) -> Verifying {
    pool.verify_with("block/", Arc::new(store.clone()))
}

async fn scrub(store: &Store) -> (u64, usize) {
    let found = store.scrub(&Name::new(EXTENT).unwrap()).await.unwrap();
    (found.repaired, found.lost.len())
}

fn problems(findings: &[Finding]) -> Vec<(&str, &Problem)> {
    findings.iter().map(|found| (&*found.volume, &found.problem)).collect()
}

#[test]
fn a_cold_block_that_rots_on_one_copy_is_repaired_before_the_other_one_rots_too() {
    for volume in 0..2 {
        let rig = Rig::new(2, 2);
        rig.clock.run(async {
            written(&rig).await;
            rig.rot_cold(volume, 3 * BLOCK + 77).await;
            let (pool, store) = rig.open().await.unwrap();
            let _verified = verified(&pool, &store);
            let report = pool.scrub(|_| ()).await.unwrap();
            let label = format!("v{volume}");
            assert_eq!(problems(&report.findings), [(&*label, &Problem::Repaired)]);
            assert_eq!((store.figures().repaired, store.figures().damaged), (1, 0));
            assert_eq!(report.left_out, 0);
            let report = pool.scrub(|_| ()).await.unwrap();
            assert_eq!(report.findings, [], "it was repaired");
            assert_eq!(scrub(&store).await, (0, 0));
            rig.rot_cold(1 - volume, 3 * BLOCK + 78).await;
            must_be_as_written(&store).await;
        });
    }
}

#[test]
fn blocks_that_rot_on_different_copies_of_a_run_are_each_repaired() {
    let rig = Rig::new(2, 2);
    rig.clock.run(async {
        written(&rig).await;
        for (volume, block) in [(0, 3), (1, 5), (1, 900)] {
            rig.rot_cold(volume, block * BLOCK).await;
        }
        let (_pool, store) = rig.open().await.unwrap();
        assert_eq!(scrub(&store).await, (3, 0));
        assert_eq!(scrub(&store).await, (0, 0));
        for (volume, block) in [(1, 3), (0, 5), (0, 900)] {
            rig.rot_cold(volume, block * BLOCK).await;
        }
        must_be_as_written(&store).await;
    });
}

#[test]
fn a_block_that_no_copy_has_is_named_and_does_not_stop_the_pass() {
    let rig = Rig::new(2, 2);
    rig.clock.run(async {
        written(&rig).await;
        for volume in 0..2 {
            rig.rot_cold(volume, 4 * BLOCK + 77).await;
        }
        rig.rot_cold(0, 900 * BLOCK).await;
        let (pool, store) = rig.open().await.unwrap();
        let _verified = verified(&pool, &store);
        let report = pool.scrub(|_| ()).await.unwrap();
        let found = problems(&report.findings);
        let [("v0", Problem::Repaired), ("v0, v1", Problem::Lost(what))] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(what.contains("device disk: 4096 bytes at 16384 "), "{what}");
        assert!(report.findings[1].is_loss());
        assert_eq!(store.health().damaged, 1);
        assert_eq!((store.figures().repaired, store.figures().damaged), (1, 1));
        let disk = device(&store, "disk").await;
        assert_eq!(read(&*disk, 3 * BLOCK, 4096).await.unwrap(), [3; 4096], "others are served");
        disk.write(4 * BLOCK, bytes(4096, 3), Durable::Now).await.unwrap();
        assert_eq!(scrub(&store).await, (0, 0));
        assert_eq!(store.health().damaged, 0);
        must_be_as_written(&store).await;
    });
}

#[test]
fn a_page_of_checksums_that_rots_on_a_copy_is_repaired_and_on_all_of_them_written_from_memory() {
    let rig = Rig::new(2, 2);
    rig.clock.run(async {
        written(&rig).await;
        let (pool, store) = rig.open().await.unwrap();
        must_be_as_written(&store).await;
        for volume in 0..2 {
            rig.rot_cold(volume, REGION + 100).await;
            assert_eq!(scrub(&store).await, (1, 0));
            assert_eq!(scrub(&store).await, (0, 0));
        }
        for volume in 0..2 {
            rig.rot_cold(volume, REGION + 200).await;
        }
        assert_eq!(scrub(&store).await, (1, 0));
        store.close().await.unwrap();
        pool.close().await.unwrap();
        let (_pool, store) = rig.open().await.unwrap();
        must_be_as_written(&store).await;
        let figures = store.figures();
        assert_eq!((figures.unverified_reads, figures.damaged), (0, 0), "{figures:?}");
    });
}

#[test]
fn blocks_that_a_crash_left_without_checksums_get_theirs() {
    let mut rig = Rig::new(2, 2);
    let clock = rig.clock.clone();
    clock.run(async {
        written(&rig).await;
        let (_pool, store) = rig.open().await.unwrap();
        let disk = device(&store, "disk").await;
        disk.write(7 * BLOCK, bytes(4096, 7), Durable::Now).await.unwrap();
    });
    rig.kill();
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        assert_eq!(scrub(&store).await, (0, 0));
        assert_eq!(store.figures().regions_aligned, 1);
        rig.rot_cold(0, 7 * BLOCK).await;
        assert_eq!(scrub(&store).await, (1, 0), "the checksum that it got tells it");
        must_be_as_written(&store).await;
    });
}

#[test]
fn a_store_that_is_not_open_has_its_objects_left_out_and_holes_are_not_read() {
    let rig = Rig::new(2, 2);
    rig.clock.run(async {
        let (pool, store) = rig.open().await.unwrap();
        store.create("disk", 4 * REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        disk.write(2 * REGION, bytes(4096, 1), Durable::Now).await.unwrap();
        disk.zero(REGION..2 * REGION, Zeros::Keep, false, Durable::Now).await.unwrap();
        store.tend().await.unwrap();
        let report = pool.scrub(|_| ()).await.unwrap();
        assert_eq!(report.left_out, 3, "two extents and the marks");
        let verified = verified(&pool, &store);
        let before = rig.log.records().len();
        let report = pool.scrub(|_| ()).await.unwrap();
        assert_eq!((report.left_out, report.findings), (0, Vec::new()));
        let records = rig.log.records().split_off(before);
        let read: u64 = records.iter().map(|record| record.call.len).sum();
        assert!(read < REGION, "{read} bytes for a block and pages");
        drop(verified);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().left_out, 3);
    });
}
