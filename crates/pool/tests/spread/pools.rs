//! A pool whose members are pools, each on a volume of its own.

use std::sync::Arc;

use pool::spread::{Damage, Spread};
use pool::{Member, PoolId};
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Check, ErrorKind, Intent, IoBuf, IoBufMut, Volume};

use crate::copying::COPY;
use crate::rig::{IO, mems, name, opening};

const SYNCED: &[u8] = b"acknowledged";

/// The pool with two copies of everything.
async fn open<V: Volume + Clone + 'static>(volumes: &[V]) -> volume::Result<Spread> {
    let mut pools = Vec::new();
    for (volume, id) in volumes.iter().zip(2..) {
        let member = vec![Member::new("only", volume.clone())];
        let below = opening("round-robin").create_if_missing(PoolId(id));
        pools.push(Member::new(format!("pool {id}"), Spread::open(member, below).await?));
    }
    Spread::open(pools, opening("round-robin").copies(2)).await
}

/// The pools below were told of a seal before the manifest said so. After a crash in between, the pool cut the object to
/// its length at the last sync, which those refused, so that no read reached the acknowledged bytes.
#[test]
fn a_crash_while_an_object_is_sealed_leaves_what_was_synced_and_a_state_that_all_agree_on() {
    for steps in 0.. {
        let power = Power::new();
        let volumes: Vec<_> = mems(2).into_iter().map(|mem| Crash::new(mem, &power)).collect();
        let sealed = block_on(async {
            let pool = open(&volumes).await.unwrap();
            let object = pool.create(&name("data"), &Intent::DATA).await.unwrap();
            object.write_at(0, IoBuf::from(SYNCED), IO).await.unwrap();
            object.sync(IO).await.unwrap();
            object
                .write_at(SYNCED.len() as u64, IoBuf::from(&b", and more"[..]), IO)
                .await
                .unwrap();
            power.cut_after(steps);
            object.seal(IO).await.is_ok()
        });
        let is_done = !power.is_off();
        power.cut();
        let survivors: Vec<Mem> = volumes.iter().map(Crash::after_process_death).collect();
        block_on(async {
            let pool = open(&survivors).await.unwrap();
            let object = pool.open(&name("data")).await.unwrap();
            let read = object.read_at(0, IoBufMut::zeroed(SYNCED.len()), IO).await.unwrap();
            assert_eq!(&read[..], SYNCED, "cut after {steps} steps");
            let is_sealed = pool.objects()[0].sealed;
            assert!(is_sealed || !sealed, "cut after {steps} steps: the seal is gone");
            let written = object.write_at(object.len(), IoBuf::from(&b"!"[..]), IO).await;
            let refused = written.err().map(|e| e.kind());
            let expected = is_sealed.then_some(ErrorKind::Invalid);
            assert_eq!(refused, expected, "cut after {steps} steps");
        });
        if is_done {
            assert!(sealed && steps > 4, "{steps} steps");
            return;
        }
    }
}

#[test]
fn a_damaged_copy_that_is_sealed_below_is_replaced_and_not_written_to() {
    block_on(async {
        let mems = mems(3);
        let pool = open(&mems).await.unwrap();
        let object = pool.create(&name("data"), &Intent::DATA).await.unwrap();
        object.write_at(0, IoBuf::from(SYNCED), IO).await.unwrap();
        object.seal(IO).await.unwrap();
        let is_leaf = |mem: &Mem| mem.image().into_iter().find(|(_, bytes)| bytes == SYNCED);
        let damaged = mems.iter().find(|mem| is_leaf(mem).is_some()).unwrap();
        let (leaf, _) = is_leaf(damaged).unwrap();
        damaged.damage(&leaf, 3, |byte| *byte ^= 1);
        let check: Check = Arc::new(|bytes| bytes == SYNCED);
        let read = object.read_again(0, IoBufMut::zeroed(SYNCED.len()), IO, check).await;
        assert_eq!(&read.unwrap()[..], SYNCED);
        assert_eq!(pool.damage(), Damage { found: 1, repaired: 1, left: 0 });
        assert_eq!(pool.objects()[0].copies.len(), 1);
        assert_eq!(pool.repair(COPY, |_| ()).await.unwrap().short, []);
        assert_eq!(mems.iter().filter(|mem| is_leaf(mem).is_some()).count(), 2);
    });
}
