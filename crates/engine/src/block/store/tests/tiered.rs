//! On a cache tier that keeps writes back, and loses its fast volume.

use ::pool::Member;
use ::pool::tier::{Always, Options as TierOptions, Tier, Writes};

use super::*;

/// A tier over `slow`, with `fast`.
async fn tier(slow: &Mem, fast: Option<&Mem>, clock: &Clock) -> Arc<Tier> {
    let fast = fast.map(|fast| Arc::new(fast.clone()) as Arc<dyn Volume>);
    let options = TierOptions { writes: Writes::Back, ..TierOptions::new(64 << 20, 7) };
    let opened = Tier::open(Arc::new(slow.clone()), fast, options, Box::new(Always), clock);
    Arc::new(opened.await.unwrap())
}

async fn store(tier: &Arc<Tier>, clock: &Clock) -> (Spread, Store) {
    let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(7));
    let members = vec![Member::new("t", Arc::clone(tier) as Arc<dyn Volume>)];
    let pool = Spread::open(members, opening).await.unwrap();
    let options = Options { extent_bytes: 2 * REGION, ..Options::default() };
    let store = Store::open(Arc::new(pool.clone()), options, clock.clone()).await.unwrap();
    (pool, store)
}

/// Marks of regions, slots of checksums and blocks are on the fast volume alone, and lost with it. Before, a device whose marks
/// were lost did not open, and a region whose slot was lost took no writes.
#[test]
fn a_lost_fast_volume_costs_the_blocks_that_it_had_and_no_others() {
    let clock = Clock::simulated();
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let run = clock.clone();
    run.run(async {
        let t = tier(&slow, Some(&fast), &clock).await;
        let (pool, disks) = store(&t, &clock).await;
        disks.create("disk", 4 * REGION).await.unwrap();
        let disk = device(&disks, "disk").await;
        disk.write(0, bytes(4 * REGION as usize, 1), Durable::Now).await.unwrap();
        disks.close().await.unwrap();
        pool.close().await.unwrap();
        t.flush().await.unwrap();
        assert_eq!(t.figures().dirty_bytes, 0);
        // The slow volume has everything; what is overwritten now is on the fast one alone.
        let (pool, disks) = store(&t, &clock).await;
        let disk = device(&disks, "disk").await;
        disk.write(0, bytes(64 << 10, 2), Durable::Now).await.unwrap();
        // A write of a page that is being installed goes to the slow volume.
        t.install_all().await;
        disk.write(0, bytes(64 << 10, 3), Durable::Now).await.unwrap();
        disks.close().await.unwrap();
        pool.close().await.unwrap();
        t.close().await;
        assert!(t.figures().dirty_bytes >= 64 << 10, "{:?}", t.figures());

        let t = tier(&slow, None, &clock).await;
        assert_eq!(t.stale().len(), 2, "an extent with its checksums, and marks: {:?}", t.stale());
        let (pool, disks) = store(&t, &clock).await;
        let disk = device(&disks, "disk").await;
        assert!(matches!(read(&*disk, 0, 4096).await, Err(Error::Corrupt(_))));
        let others = read(&*disk, 2 << 20, 2 << 20).await.unwrap();
        assert!(others.iter().all(|&byte| byte == 1));
        let partial = disk.write(4096 + 5, bytes(10, 4), Durable::Now).await;
        assert!(matches!(partial, Err(Error::Corrupt(_))), "{partial:?}");
        // A pass over regions in doubt ends, and says what is damaged.
        let disk = Arc::clone(&disks.0.devices.lock()["disk"]);
        disk.clean_all().await.unwrap();
        assert!(disks.health().damaged > 0);
        disk.write(0, bytes(1 << 20, 5), Durable::Now).await.unwrap();
        assert_eq!(read(&*disk, 0, 4096).await.unwrap(), [5; 4096]);
        assert_eq!(disks.health().damaged, 0);
        disks.close().await.unwrap();
        pool.close().await.unwrap();
        t.close().await;
        assert_eq!(t.figures().stale_bytes, 0, "{:?}", t.stale());
    });
}
