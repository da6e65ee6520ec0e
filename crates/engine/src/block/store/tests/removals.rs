//! Extents that are removed while other calls use them.

use std::time::Duration;

use futures_util::future::{join_all, join4};
use futures_util::join;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

use super::*;

/// Regions in doubt are settled two at a time, so the calls on the third wait. Meanwhile it is removed, and when they go on
/// there is no object to open.
#[test]
fn an_extent_may_be_removed_while_its_checksums_and_holes_are_asked_for_and_it_is_cleaned() {
    let (clock, plan) = (Clock::simulated(), FaultPlan::new(0));
    let mems = [Mem::new("v0"), Mem::new("v1")];
    let open = async || {
        let fault = |mem: &Mem| Fault::new(mem.clone(), mem.label(), &plan, &clock);
        let members = mems.iter().map(|mem| ::pool::Member::new(mem.label(), fault(mem)));
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(7)).copies(2);
        let pool = Spread::open(members.collect(), opening).await.unwrap();
        let options = Options { extent_bytes: REGION, ..Options::default() };
        let options = Options { clean_after: Duration::ZERO, ..options };
        Store::open(Arc::new(pool), options, clock.clone()).await.unwrap()
    };
    clock.run(async {
        let store = open().await;
        store.create("disk", 3 * REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        for extent in 0..3 {
            disk.write(extent * REGION, bytes(4096, 1), Durable::Now).await.unwrap();
        }
        drop((disk, store));
        // The process died: all three are in doubt.
        let store = open().await;
        let disk = device(&store, "disk").await;
        plan.inject(Rule::new(Effect::Slow(Duration::from_secs(1))).on(Op::Read).named("o*"));
        let reads = join_all([1, 2].map(|extent| read(&*disk, extent * REGION, 4096)));
        let uses = join4(
            disk.prefetch(0..REGION),
            disk.extents(0..REGION, usize::MAX),
            store.tend(),
            disk.discard(0..REGION, Durable::Later),
        );
        let (reads, (fetched, parts, tended, removed)) = join!(reads, uses);
        assert!(reads.into_iter().all(|read| read.unwrap() == [1; 4096]));
        removed.unwrap();
        fetched.unwrap();
        assert_eq!(parts.unwrap(), [Part { range: 0..REGION, is_hole: true }]);
        tended.unwrap();
        assert_eq!(read(&*disk, 0, 4096).await.unwrap(), [0; 4096]);
    });
}
