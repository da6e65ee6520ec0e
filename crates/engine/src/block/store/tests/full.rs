//! Devices on a pool that has no room left.

use ::pool::logged::{Logged, Options as LogOptions};
use policy::placement::Code;
use policy::units::{KIB, MIB};

use super::*;

#[test]
fn a_full_pool_refuses_new_blocks_and_takes_all_others() {
    let mut rig = Rig::new(1, 1);
    rig.crashes = vec![Crash::new(Mem::with_capacity("v0", 64 * MIB), &rig.power)];
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 100 * REGION).await.unwrap();
        let device = device(&store, "disk").await;
        let mut written = 0;
        let refused = loop {
            match device.write(written * REGION, bytes(4096, 1), Durable::Later).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(&refused, Error::OutOfSpace(why) if why.contains("fstrim")), "{refused}");
        assert!(written >= 5, "{written}");
        assert!(store.health().writes_refused.is_some());
        device.write(0, bytes(4096, 2), Durable::Now).await.unwrap();
        assert_eq!(read(&*device, 0, 4096).await.unwrap(), [2; 4096]);
        device.discard(0..3 * REGION, Durable::Now).await.unwrap();
        store.tend().await.unwrap();
        assert!(store.health().writes_refused.is_none());
        device.write(0, bytes(4096, 3), Durable::Now).await.unwrap();
    });
}

/// A pool of fragments, one of whose volumes is smaller than the others.
async fn coded(mems: &[Mem], clock: &Clock) -> (Spread, Logged, Store) {
    let code = Code::new(4, 2, 8 * KIB).unwrap();
    let members = mems.iter().map(|mem| ::pool::Member::new(mem.label(), mem.clone()));
    let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(7)).code(code);
    let pool = Spread::open(members.collect(), opening).await.unwrap();
    let log = LogOptions { limit: 512 * KIB, file_len: 128 * KIB, ..LogOptions::default() };
    let logged = Logged::open(pool.clone(), log).await.unwrap();
    let options = Options { extent_bytes: REGION, ..Options::default() };
    let store = Store::open(Arc::new(logged.clone()), options, clock.clone()).await.unwrap();
    (pool, logged, store)
}

#[test]
fn a_full_pool_of_fragments_refuses_new_blocks_and_goes_on_when_extents_are_discarded() {
    for small in [12 * MIB, 48 * MIB] {
        let mem =
            |n: u64| Mem::with_capacity(&format!("v{n}"), if n == 2 { small } else { 48 * MIB });
        let mems: Vec<_> = (0..6).map(mem).collect();
        let clock = Clock::simulated();
        clock.run(async {
            let (pool, logged, store) = coded(&mems, &clock).await;
            store.create("disk", 200 * REGION).await.unwrap();
            let disk = device(&store, "disk").await;
            let mut fills = Vec::new();
            let refused = loop {
                let (extent, fill) = (fills.len() as u64, (fills.len() % 200 + 1) as u8);
                match disk.write(extent * REGION, bytes(64 << 10, fill), Durable::Now).await {
                    Ok(()) => fills.push(fill),
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused, Error::OutOfSpace(_)), "{refused}");
            assert!(fills.len() >= 5 && fills.len() < 200, "{}", fills.len());
            // Blocks with room are written many times over: the log is emptied meanwhile.
            for (extent, fill) in (0..).zip(&mut fills).take(8) {
                *fill += 1;
                let data = bytes(64 << 10, *fill);
                disk.write(extent * REGION, data, Durable::Now).await.unwrap();
            }
            let same = async |disk: &dyn BlockDevice, fills: &[u8]| {
                for (extent, &fill) in (0..).zip(fills) {
                    let found = read(disk, extent * REGION, 64 << 10).await.unwrap();
                    assert!(found.iter().all(|&byte| byte == fill), "extent {extent}");
                }
            };
            same(&*disk, &fills).await;
            drop((disk, store, logged, pool));
            let (_pool, _logged, store) = coded(&mems, &clock).await;
            let disk = device(&store, "disk").await;
            same(&*disk, &fills).await;
            disk.discard(0..2 * REGION, Durable::Now).await.unwrap();
            fills[..2].fill(0);
            store.tend().await.unwrap();
            disk.write(0, bytes(64 << 10, 250), Durable::Now).await.unwrap();
            fills[0] = 250;
            same(&*disk, &fills).await;
        });
    }
}
