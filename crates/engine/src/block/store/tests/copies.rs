//! Blocks and pages of checksums that rot, and copies that a failed write leaves different.

use futures_util::future::join;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Rule};

use super::*;

/// A store with two copies of everything and one device of which block 3 was written.
async fn written(rig: &Rig, fill: u8) {
    let (pool, store) = rig.open().await.unwrap();
    store.create("disk", REGION).await.unwrap();
    let device = device(&store, "disk").await;
    device.write(3 * BLOCK, bytes(4096, fill), Durable::Now).await.unwrap();
    store.close().await.unwrap();
    pool.close().await.unwrap();
}

impl Rig {
    /// Flips bits of the extent's copy on a volume.
    async fn rot(&self, volume: usize, offset: u64) {
        let mut extents = self.crashes[volume].list().await.unwrap();
        extents.retain(|object| object.len > REGION);
        assert_eq!(extents.len(), 1);
        let name = &extents[0].name;
        assert!(self.crashes[volume].damage(name, offset, |byte| byte ^ 4).is_some());
    }
}

#[test]
fn a_block_with_one_rotten_copy_is_read_and_repaired() {
    for volume in 0..2 {
        let rig = Rig::new(2, 2);
        rig.clock.run(async {
            written(&rig, 9).await;
            rig.rot(volume, 3 * BLOCK + 77).await;
            let (_pool, store) = rig.open().await.unwrap();
            let device = device(&store, "disk").await;
            for _ in 0..4 {
                assert_eq!(read(&*device, 3 * BLOCK, 4096).await.unwrap(), [9; 4096]);
            }
            // Which copy a read asks is the pool's choice.
            let figures = store.figures();
            assert_eq!(figures.damaged, 0);
            rig.rot(1 - volume, 3 * BLOCK + 78).await;
            assert_eq!(
                read(&*device, 3 * BLOCK, 4096).await.unwrap(),
                [9; 4096],
                "the first was repaired"
            );
            assert!(store.figures().repaired >= 1);
        });
    }
}

#[test]
fn a_block_that_no_copy_has_is_an_error_until_it_is_written() {
    let rig = Rig::new(2, 2);
    rig.clock.run(async {
        written(&rig, 9).await;
        for volume in 0..2 {
            rig.rot(volume, 3 * BLOCK + 77).await;
        }
        let (_pool, store) = rig.open().await.unwrap();
        let device = device(&store, "disk").await;
        let damaged = read(&*device, 3 * BLOCK, 4096).await;
        assert!(
            matches!(&damaged, Err(Error::Corrupt(text)) if text.contains("disk")),
            "{damaged:?}"
        );
        assert!(read(&*device, 0, 4096).await.is_ok(), "others are read");
        let partial = device.write(3 * BLOCK + 5, bytes(10, 1), Durable::Now).await;
        assert!(matches!(partial, Err(Error::Corrupt(_))), "it needs the rest of the block");
        assert_eq!(store.health().damaged, 1);
        device.write(3 * BLOCK, bytes(4096, 8), Durable::Now).await.unwrap();
        assert_eq!(read(&*device, 3 * BLOCK, 4096).await.unwrap(), [8; 4096]);
        assert_eq!(store.health().damaged, 0, "the damage is of the past");
    });
}

#[test]
fn a_page_of_checksums_with_one_rotten_copy_is_repaired_and_a_lost_one_is_made_anew() {
    let rig = Rig::new(2, 2);
    rig.clock.run(async {
        written(&rig, 9).await;
        rig.rot(0, REGION + 100).await;
        let (pool, store) = rig.open().await.unwrap();
        let disk = device(&store, "disk").await;
        assert_eq!(read(&*disk, 3 * BLOCK, 4096).await.unwrap(), [9; 4096]);
        assert_eq!(store.figures().unverified_reads, 0);
        store.close().await.unwrap();
        pool.close().await.unwrap();
        for volume in 0..2 {
            rig.rot(volume, REGION + 100).await;
        }
        let (pool, store) = rig.open().await.unwrap();
        let disk = device(&store, "disk").await;
        assert_eq!(read(&*disk, 3 * BLOCK, 4096).await.unwrap(), [9; 4096]);
        let figures = store.figures();
        assert_eq!((figures.unverified_reads, figures.damaged), (1, 1));
        store.close().await.unwrap();
        pool.close().await.unwrap();
        // The new page protects.
        for volume in 0..2 {
            rig.rot(volume, 3 * BLOCK).await;
        }
        let (_pool, store) = rig.open().await.unwrap();
        let disk = device(&store, "disk").await;
        assert!(matches!(read(&*disk, 3 * BLOCK, 4096).await, Err(Error::Corrupt(_))));
    });
}

/// The reader had begun when no copy was in doubt, and then waited for the write. It was given the bytes of one copy, and a
/// crash brought back those of the other.
#[test]
fn a_read_that_waits_for_a_write_that_fails_aligns_the_copies() {
    for written_on in 0..2 {
        let mut rig = Rig::new(2, 2);
        let before = rig.clock.clone().run(async {
            let (_pool, store) = rig.open().await.unwrap();
            store.create("disk", REGION).await.unwrap();
            let device = device(&store, "disk").await;
            device.write(3 * BLOCK, bytes(4096, 8), Durable::Now).await.unwrap();
            let once = |effect, volume: usize| {
                let rule = Rule::new(effect).on(Op::Write).named("*.inp");
                rig.plan.inject(rule.volume(&format!("v{volume}")).nth(0));
            };
            once(Effect::FailAfter(ErrorKind::Io), written_on);
            once(Effect::Slow(Duration::from_secs(1)), 1 - written_on);
            once(Effect::Fail(ErrorKind::Io), 1 - written_on);
            let write = device.write(3 * BLOCK, bytes(4096, 9), Durable::Now);
            let read = async {
                rig.clock.sleep(Duration::from_millis(500)).await;
                read(&*device, 3 * BLOCK, 4096).await
            };
            let (write, read) = join(write, read).await;
            assert!(write.is_err(), "no copy took it");
            assert_eq!(store.figures().regions_aligned, 1);
            read.unwrap()
        });
        rig.kill();
        rig.clock.clone().run(async {
            let (_pool, store) = rig.open().await.unwrap();
            let device = device(&store, "disk").await;
            assert_eq!(read(&*device, 3 * BLOCK, 4096).await.unwrap(), before);
        });
    }
}

/// The checksums of the whole region were forgotten, and the copy that an alignment took was the rotten one.
#[test]
fn a_write_that_fails_leaves_the_checksums_of_other_blocks() {
    for rotten in 0..2 {
        let rig = Rig::new(2, 2);
        rig.clock.run(async {
            let (_pool, store) = rig.open().await.unwrap();
            store.create("disk", REGION).await.unwrap();
            let device = device(&store, "disk").await;
            device.write(3 * BLOCK, bytes(4096, 8), Durable::Now).await.unwrap();
            for volume in 0..2 {
                let rule = Rule::new(Effect::FailAfter(ErrorKind::Io)).on(Op::Write).named("*.inp");
                rig.plan.inject(rule.volume(&format!("v{volume}")).nth(0));
            }
            device.write(9 * BLOCK, bytes(4096, 9), Durable::Now).await.unwrap_err();
            rig.rot(rotten, 3 * BLOCK + 77).await;
            assert!(read(&*device, 9 * BLOCK, 4096).await.is_ok());
            assert_eq!(store.figures().regions_aligned, 1);
            for _ in 0..4 {
                assert_eq!(read(&*device, 3 * BLOCK, 4096).await.unwrap(), [8; 4096]);
            }
        });
    }
}
