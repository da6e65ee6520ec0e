//! Files of the log of objects in place that a power cut left in fewer copies, since they were never synced.

use std::collections::BTreeSet;

use volume::mem::Mem;
use volume::task::block_on;
use volume::{Intent, Name, Volume};

use crate::logged::{filled, numbered, open, small};
use crate::rig::{IO, copies, mems, name, read_all};

/// The leaf objects of each volume.
fn leaves(volumes: &[Mem]) -> Vec<BTreeSet<Name>> {
    volumes.iter().map(|volume| volume.image().into_keys().collect()).collect()
}

/// The opening synced such a file, so it counted from then on, with as few copies as it had. Then a volume that was away kept the pool
/// closed (seed 10647 of `sim block`).
#[test]
fn a_file_that_an_opening_takes_over_survives_as_many_losses_as_any_other() {
    for keeps in 1..=2 {
        let volumes = mems(6);
        block_on(async {
            let (_, logged) = open(&numbered(&volumes), small()).await.unwrap();
            let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
            object.write_durable(0, filled(16 << 10, 1), IO).await.unwrap();
            logged.drain().await.unwrap();
            let before = leaves(&volumes);
            object.write_at(4 << 10, filled(4 << 10, 2), IO).await.unwrap();
            drop((object, logged));
            // The power fails: the file of the last write stays on some of its volumes.
            let after = leaves(&volumes).into_iter().zip(&before).zip(&volumes);
            let of_write: Vec<_> = after
                .flat_map(|((after, before), volume)| {
                    let new = after.into_iter().filter(|leaf| !before.contains(leaf));
                    new.map(move |leaf| (volume, leaf)).collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(
                of_write.len(),
                3,
                "{:?}",
                of_write.iter().map(|(_, l)| l).collect::<Vec<_>>()
            );
            for (volume, leaf) in &of_write[keeps..] {
                volume.remove(leaf).await.unwrap();
            }
            let (_, logged) = open(&numbered(&volumes), small()).await.unwrap();
            let object = logged.open(&name("disk")).await.unwrap();
            let found = read_all(&*object).await.unwrap();
            assert!(found[4 << 10..8 << 10].iter().all(|&byte| byte == 2), "the write is there");
            drop((object, logged));
            for one in 0..6 {
                for other in one + 1..6 {
                    let mut here = numbered(&copies(&volumes));
                    here.retain(|(number, _)| ![one, other].contains(number));
                    let (_, logged) = open(&here, small()).await.unwrap();
                    let object = logged.open(&name("disk")).await.unwrap();
                    let read = read_all(&*object).await.unwrap();
                    assert!(read == found, "without {one} and {other}, {keeps} copies kept");
                }
            }
        });
    }
}

/// A file that was synced counted before. Its missing copies are the mover's work, and no opening waits for them.
#[test]
fn an_opening_makes_no_copies_of_a_file_that_was_synced() {
    let volumes = mems(7);
    block_on(async {
        let (_, logged) = open(&numbered(&volumes), small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, filled(4 << 10, 1), IO).await.unwrap();
        drop((object, logged));
        let logs = || {
            let all = leaves(&volumes).into_iter().zip(&volumes);
            let logs =
                all.flat_map(|(leaves, volume)| leaves.into_iter().map(move |leaf| (volume, leaf)));
            logs.filter(|(_, leaf)| {
                leaf.as_str().starts_with('o') && leaf.as_str().ends_with(".log")
            })
            .collect::<Vec<_>>()
        };
        let of_write = logs();
        assert_eq!(of_write.len(), 3, "copies of the file");
        of_write[0].0.remove(&of_write[0].1).await.unwrap();
        let (pool, logged) = open(&numbered(&volumes), small()).await.unwrap();
        assert_eq!(logs().len(), 2, "the opening made a copy");
        assert_eq!(pool.redundancy(&BTreeSet::new()).short, 1, "the mover knows");
        let object = logged.open(&name("disk")).await.unwrap();
        assert!(read_all(&*object).await.unwrap().iter().all(|&byte| byte == 1));
    });
}
