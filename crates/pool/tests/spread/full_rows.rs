//! Objects in place on a pool of fragments whose volumes are full: rows wait in the log until there is room, and writes are
//! refused when the log is full.

use std::sync::Arc;

use policy::units::KIB;
use pool::logged::Logged;
use pool::spread::Spread;
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Fault, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Error, ErrorKind, Intent, Object, Volume};

use crate::faults::Rig;
use crate::logged::{assert_parity, filled, numbered, open, small};
use crate::rig::{IO, mems, name, read_all};
use crate::together::mend;

const LEN: u64 = 256 * KIB;

/// An object of ones, all of it in place.
async fn disk(volumes: &[(u16, Arc<Fault<Mem>>)]) -> (Spread, Logged, Arc<dyn Object>) {
    let (pool, logged) = open(volumes, small()).await.unwrap();
    let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
    object.set_len(LEN).await.unwrap();
    object.write_durable(0, filled(LEN, 1), IO).await.unwrap();
    logged.drain().await.unwrap();
    (pool, logged, object)
}

/// Writes other blocks of a few rows, each anew, until one is refused.
async fn write_until_refused(object: &dyn Object, model: &mut [u8], step: u64) -> Error {
    for nth in 0..500 {
        let at = nth * step % LEN;
        let byte = (nth % 200 + 2) as u8;
        match object.write_durable(at, filled(4 * KIB, byte), IO).await {
            Ok(()) => model[at as usize..][..4 << 10].fill(byte),
            Err(e) => return e,
        }
    }
    panic!("no write is refused");
}

fn fragments(pool: &Spread) -> usize {
    pool.objects().into_iter().find(|o| o.name.as_str() == "disk").unwrap().copies.len()
}

#[test]
fn rows_wait_for_room_on_one_volume_and_no_fragment_is_dropped() {
    for full in ["s0", "s5"] {
        let rig = Rig::new(mems(6));
        let volumes = numbered(&rig.faults);
        block_on(async {
            let (pool, logged, object) = disk(&volumes).await;
            let mut model = vec![1; LEN as usize];
            let rule = Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).on(Call::Write);
            rig.plan.inject(rule.volume(full).named("*.inp"));
            let refused = write_until_refused(&*object, &mut model, 20 * KIB).await;
            assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");
            assert_eq!(fragments(&pool), 6);
            assert!(read_all(&*object).await.unwrap() == model);
            drop((object, logged, pool));

            // Any two are lost meanwhile: the full one has old bytes.
            let mut here = volumes.clone();
            here.retain(|(number, _)| ![1, 2].contains(number));
            let images = here.iter().map(|(n, _)| {
                let mem = &rig.mems[usize::from(*n)];
                (*n, Mem::from_image(mem.label(), mem.image()))
            });
            let other = Rig::new(images.map(|(_, mem)| mem).collect());
            let rule = Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).on(Call::Write);
            other.plan.inject(rule.volume(full).named("*.inp"));
            let here: Vec<_> = here.iter().map(|(n, _)| *n).zip(other.faults.clone()).collect();
            let (_pool, logged) = open(&here, small()).await.unwrap();
            let object = logged.open(&name("disk")).await.unwrap();
            assert!(read_all(&*object).await.unwrap() == model, "without two volumes");
            drop((object, logged));

            // An opening changes nothing of it.
            let (pool, logged) = open(&volumes, small()).await.unwrap();
            let object = logged.open(&name("disk")).await.unwrap();
            assert!(read_all(&*object).await.unwrap() == model);
            assert_eq!(fragments(&pool), 6);
            let refused = logged.drain().await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");

            // There is room again.
            mend(&rig);
            object.write_durable(0, filled(4 * KIB, 250), IO).await.unwrap();
            model[..4 << 10].fill(250);
            logged.drain().await.unwrap();
            assert_eq!(logged.figures().blocks, 0);
            assert!(logged.figures().bytes <= small().limit, "{:?}", logged.figures());
            assert_eq!(fragments(&pool), 6);
            assert!(read_all(&*object).await.unwrap() == model);
            assert_parity(&pool, &numbered(&rig.mems), full).await;
        });
    }
}

#[test]
fn a_log_without_room_refuses_writes_and_leaves_no_files_behind() {
    let rig = Rig::new(mems(6));
    let volumes = numbered(&rig.faults);
    block_on(async {
        let (pool, logged, object) = disk(&volumes).await;
        let mut model = vec![1; LEN as usize];
        let rule = Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).on(Call::Write);
        rig.plan.inject(rule.named("o*.log"));
        for _ in 0..20 {
            let refused = write_until_refused(&*object, &mut model, 20 * KIB).await;
            assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");
        }
        let logs = pool.objects().into_iter().filter(|o| o.name.as_str().starts_with("pool.log/"));
        assert!(logs.count() <= 2);
        assert!(read_all(&*object).await.unwrap() == model);
        mend(&rig);
        object.write_durable(0, filled(4 * KIB, 250), IO).await.unwrap();
        model[..4 << 10].fill(250);
        drop((object, logged, pool));
        let (_pool, logged) = open(&volumes, small()).await.unwrap();
        let object = logged.open(&name("disk")).await.unwrap();
        assert!(read_all(&*object).await.unwrap() == model);
    });
}

#[test]
fn an_object_that_cannot_become_longer_for_lack_of_room_keeps_its_fragments_and_its_length() {
    let rig = Rig::new(mems(6));
    let volumes = numbered(&rig.faults);
    block_on(async {
        let (pool, logged, object) = disk(&volumes).await;
        rig.plan.inject(Rule::new(Effect::Full).volume("s3").named("*.inp"));
        let refused = object.write_durable(LEN, filled(64 * KIB, 2), IO).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");
        assert_eq!((object.len(), fragments(&pool)), (LEN, 6));
        object.write_durable(0, filled(4 * KIB, 3), IO).await.unwrap();
        logged.drain().await.unwrap();
        assert_eq!(fragments(&pool), 6);
        mend(&rig);
        object.write_durable(LEN, filled(64 * KIB, 2), IO).await.unwrap();
        assert_eq!(object.len(), LEN + 64 * KIB);
    });
}
