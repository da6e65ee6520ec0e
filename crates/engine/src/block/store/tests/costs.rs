//! Operations on the volumes for each call.

use futures_util::future::try_join_all;
use volume::layer::call::Op;

use super::*;

impl Rig {
    /// The operations on blocks, pages and marks that `work` makes: reads, writes.
    async fn count(&self, work: impl Future<Output = ()>) -> (usize, usize) {
        let before = self.log.records().len();
        work.await;
        let records = self.log.records().split_off(before);
        let of = |wanted: Op| records.iter().filter(|record| record.call.op == wanted).count();
        (of(Op::Read), of(Op::Write) + of(Op::WriteDurable))
    }
}

#[test]
fn a_durable_overwrite_is_one_operation_on_each_copy() {
    for copies in [1, 2] {
        let rig = Rig::new(2, copies);
        rig.clock.run(async {
            let (_pool, store) = rig.open().await.unwrap();
            store.create("disk", 4 * REGION).await.unwrap();
            let device = device(&store, "disk").await;
            let write = async |block: u64| {
                let data = bytes(4096, block as u8);
                device.write(block * BLOCK, data, Durable::Now).await.unwrap();
            };
            write(0).await;
            for block in [0, 5, 1023] {
                let (reads, writes) = rig.count(write(block)).await;
                assert_eq!((reads, writes), (0, copies), "block {block}, {copies} copies");
            }
            let get = async || drop(read(&*device, 0, 4096).await.unwrap());
            assert_eq!(rig.count(get()).await, (1, 0));
            assert_eq!(store.figures().region_marks, 1);
        });
    }
}

/// Every operation on the volumes is one of a client's call, or counted by name.
#[test]
fn no_operation_is_hidden() {
    let mut rig = Rig::new(1, 1);
    rig.options.clean_after = Duration::from_secs(1);
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 64 * REGION).await.unwrap();
        let device = device(&store, "disk").await;
        let before = store.figures();
        let from = rig.log.records().len();
        for at in [0, 9 * BLOCK, 33 * REGION] {
            device.write(at, bytes(4096, 1), Durable::Now).await.unwrap();
        }
        // Parts of a written block, of a written and a new one, and of new ones.
        for (at, len) in [(100, 50), (4000, 200), (20 * BLOCK + 5, 5000)] {
            device.write(at, bytes(len, 2), Durable::Now).await.unwrap();
        }
        rig.clock.sleep(Duration::from_secs(3)).await;
        store.tend().await.unwrap();
        drop(read(&*device, 0, 4096).await.unwrap());
        let records = rig.log.records().split_off(from);
        // Not the pool's manifest.
        let of_object = |name: &Name| name.as_str().starts_with('o');
        let calls = records.iter().map(|record| &record.call);
        let calls = calls.filter(|call| call.name.as_ref().is_some_and(of_object));
        let calls: Vec<_> = calls.map(|call| call.op).collect();
        let count = |ops: &[Op]| calls.iter().filter(|op| ops.contains(op)).count() as u64;
        let (reads, writes) = (count(&[Op::Read]), count(&[Op::Write, Op::WriteDurable]));
        let after = store.figures();
        assert_eq!((after.reads - before.reads, after.writes - before.writes), (1, 6));
        assert_eq!((after.completing_reads, after.extents_made), (2, 2));
        let named = after.region_marks + after.checksum_writes + after.extents_made;
        assert_eq!(writes, 6 + named, "{after:?}");
        let named = after.checksum_fetches + after.completing_reads;
        assert_eq!(reads, 1 + named, "{after:?}");
    });
}

#[test]
fn blocks_that_were_never_written_cost_nothing() {
    let rig = Rig::new(1, 1);
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 1 << 40).await.unwrap();
        let device = device(&store, "disk").await;
        device.write(0, bytes(4096, 1), Durable::Now).await.unwrap();
        let get = async |offset: u64| drop(read(&*device, offset, 4096).await.unwrap());
        assert_eq!(rig.count(get(1 << 39)).await, (0, 0), "there is no extent");
        assert_eq!(rig.count(get(8192)).await, (0, 0), "the checksums say so");
    });
}

#[test]
fn a_discard_of_a_large_device_costs_what_was_written() {
    let mut rig = Rig::new(1, 1);
    rig.options.extent_bytes = 4 * REGION;
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        const SIZE: u64 = 10 << 40;
        store.create("disk", SIZE).await.unwrap();
        let device = device(&store, "disk").await;
        for extent in 0..20 {
            device.write(extent << 36, bytes(4096, 1), Durable::Later).await.unwrap();
        }
        device.flush().await.unwrap();
        assert_eq!(store.list()[0].room, 20 * 4 * REGION);
        let discard = async || {
            device.discard(0..SIZE, Durable::Later).await.unwrap();
            device.flush().await.unwrap();
        };
        let (reads, writes) = rig.count(discard()).await;
        assert!(reads == 0 && writes <= 40, "{reads} reads, {writes} writes");
        assert_eq!(store.list()[0].room, 0);
        let whole = device.extents(0..SIZE, 10).await.unwrap();
        assert_eq!(whole, [Part { range: 0..SIZE, is_hole: true }]);
    });
}

/// The kernel cuts a discard of a large device into many requests, which are under way at the same time.
#[test]
fn discards_of_scattered_extents_share_operations() {
    const EXTENTS: u64 = 64;
    for requests in [1, EXTENTS] {
        let rig = Rig::new(2, 1);
        rig.clock.run(async {
            let (_pool, store) = rig.open().await.unwrap();
            store.create("disk", EXTENTS << 36).await.unwrap();
            let device = device(&store, "disk").await;
            for extent in 0..EXTENTS {
                device.write(extent << 36, bytes(4096, 1), Durable::Later).await.unwrap();
            }
            device.flush().await.unwrap();
            assert_eq!(store.list()[0].room, EXTENTS * REGION);
            let before = rig.log.records().len();
            let len = (EXTENTS << 36) / requests;
            let ranges = (0..requests).map(|n| n * len..(n + 1) * len);
            let discards = ranges.map(|range| device.discard(range, Durable::Later));
            try_join_all(discards).await.unwrap();
            device.flush().await.unwrap();
            let records = rig.log.records().split_off(before);
            // The leaves of a pool are removed and synced without a write of their own.
            let costs = [Op::Read, Op::Write, Op::WriteDurable, Op::Zero, Op::Sync];
            let operations =
                records.iter().filter(|record| costs.contains(&record.call.op)).count();
            assert!(operations <= 100, "{operations} operations of {requests} requests");
            assert_eq!(store.list()[0].room, 0);
        });
    }
}

#[test]
fn regions_of_a_device_that_is_left_alone_lose_their_marks() {
    let mut rig = Rig::new(1, 1);
    rig.options.clean_after = Duration::from_secs(5);
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 4 * REGION).await.unwrap();
        let device = device(&store, "disk").await;
        for region in 0..2 {
            device.write(region * REGION, bytes(4096, 1), Durable::Now).await.unwrap();
        }
        store.tend().await.unwrap();
        rig.clock.sleep(Duration::from_secs(4)).await;
        store.tend().await.unwrap();
        assert_eq!(store.figures().dirty_regions, 2);
        rig.clock.sleep(Duration::from_secs(2)).await;
        store.tend().await.unwrap();
        let figures = store.figures();
        assert_eq!((figures.dirty_regions, figures.checksum_writes), (0, 2));
        device.write(0, bytes(4096, 2), Durable::Now).await.unwrap();
        assert_eq!(store.figures().region_marks, 3, "it needs a mark again");
    });
}

#[test]
fn writes_all_over_a_device_pay_little_for_marks_and_pages() {
    const REGIONS: u64 = 64;
    let mut rig = Rig::new(1, 1);
    rig.options.clean_after = Duration::from_secs(1);
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", REGIONS * REGION).await.unwrap();
        let device = device(&store, "disk").await;
        let write = async |round: u64| {
            for region in 0..REGIONS {
                let at = region * REGION + round % 7 * BLOCK;
                device.write(at, bytes(4096, round as u8), Durable::Now).await.unwrap();
                rig.clock.sleep(Duration::from_millis(100)).await;
                if region % 10 == 0 {
                    store.tend().await.unwrap();
                }
            }
        };
        write(0).await;
        let before = store.figures();
        for round in 1..10 {
            write(round).await;
        }
        let after = store.figures();
        let marks = after.region_marks - before.region_marks;
        let pages = after.checksum_writes - before.checksum_writes;
        assert!((1..=40).contains(&marks) && pages <= 45, "{marks} marks, {pages} pages for 576");
    });
}
