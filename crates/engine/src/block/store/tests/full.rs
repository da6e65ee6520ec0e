//! Devices on a pool that has no room left.

use policy::units::MIB;

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
