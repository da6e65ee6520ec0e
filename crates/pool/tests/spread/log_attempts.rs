//! What the log of objects in place has of writes that failed, and of changes that were given up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use policy::units::KIB;
use pool::Member;
use pool::logged::Options;
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, Volume};

use crate::faults::Rig;
use crate::logged::{assert_parity, filled, numbered, open, small};
use crate::rig::{IO, mems, name, read_all};

/// A file for each write.
fn tiny() -> Options {
    Options { limit: 96 * KIB, file_len: 1, memory: 0, ..Options::default() }
}

/// The file was left behind when all later ones had gone: the next opening took its write for the last of the log, or all
/// before those of other files for lost.
#[test]
fn a_write_that_failed_does_not_come_back_when_later_files_of_the_log_are_gone() {
    let unavailable = Effect::Fail(ErrorKind::Unavailable);
    let mut refused = 0;
    let cases = [(false, false), (true, false), (false, true), (true, true)];
    // A copy of the file fails, and the manifest from one of its writes on.
    for (volume, nth) in (0..6).flat_map(|volume| (0..12).map(move |nth| (volume, nth))) {
        for (closes, writes_after) in cases {
            let rig = Rig::new(mems(6));
            let volumes = numbered(&rig.faults);
            block_on(async {
                let (pool, logged) = open(&volumes, tiny()).await.unwrap();
                let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
                object.write_durable(0, filled(4 * KIB, 1), IO).await.unwrap();
                let manifest = Rule::new(unavailable).on(Call::Write).named("manifest-*");
                rig.plan.inject(manifest.calls(nth..u64::MAX));
                // The file has the bytes.
                let log = Rule::new(Effect::FailAfter(ErrorKind::Unavailable)).on(Call::Write);
                rig.plan.inject(log.named("o*.log").volume(&format!("s{volume}")));
                let written = object.write_durable(0, filled(4 * KIB, 2), IO).await;
                refused += u64::from(written.is_err());
                rig.mend();
                object.write_durable(0, filled(4 * KIB, 3), IO).await.unwrap();
                logged.drain().await.unwrap();
                if writes_after {
                    object.write_durable(4 * KIB, filled(4 * KIB, 4), IO).await.unwrap();
                }
                drop((object, logged));
                if closes {
                    pool.close().await.unwrap();
                }
            });
            block_on(async {
                let context =
                    format!("s{volume}, cut {nth}, closed: {closes}, written: {writes_after}");
                let opened = open(&volumes, tiny()).await;
                let (_, logged) = opened.unwrap_or_else(|e| panic!("{context}: {e}"));
                let object = logged.open(&name("disk")).await.unwrap();
                assert_eq!(read_all(&*object).await.unwrap()[0], 3, "{context}");
            });
        }
    }
    assert!(refused > 0);
}

/// The record was in the log, but not known to be durable, when its writer gave up. Then a parity fragment was made from the
/// old bytes of the row, and the next opening repeated the change, which had no bytes for that one.
#[test]
fn a_change_that_was_given_up_fits_a_parity_fragment_that_was_made_after_it() {
    let (clock, plan, mems) = (Clock::simulated(), FaultPlan::new(0), mems(7));
    clock.run(async {
        let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
        let volumes = numbered(&mems.iter().map(fault).collect::<Vec<_>>());
        let (pool, logged) = open(&volumes[..6], small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, filled(64 * KIB, 1), IO).await.unwrap();
        logged.drain().await.unwrap();
        let stat = pool.objects().into_iter().find(|o| o.name.as_str() == "disk").unwrap();
        let mut fragments = stat.copies.iter().filter_map(|placed| placed.layout.fragment());
        let lost = fragments.find(|own| own.index == 4).unwrap().volume;
        pool.drop_copy(stat.id, lost).await.unwrap();
        object.write_durable(0, filled(4 * KIB, 2), IO).await.unwrap();
        let slow = Rule::new(Effect::Slow(Duration::from_secs(5))).on(Call::Sync);
        let slow = plan.inject(slow.named("o*.log"));
        select(pin!(logged.drain()), pin!(clock.sleep(Duration::from_secs(1)))).await;
        plan.lift(slow);
        pool.add_volume(Member::new("s6", volumes[6].1.clone())).await.unwrap();
        assert_eq!(pool.repair(IO, |_| ()).await.unwrap().made, 1);
    });
    block_on(async {
        let volumes = numbered(&mems);
        let (pool, logged) = open(&volumes, small()).await.unwrap();
        logged.drain().await.unwrap();
        assert_parity(&pool, &volumes, "repeated").await;
    });
}
