//! A manifest that has become long moves to a new home, with a power cut at any step.

use pool::spread::Spread;
use volume::Volume;
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::task::block_on;

use crate::rig::{get, manifests, mems, name, open, put, survivors};

/// Edits of some 400 bytes each.
async fn rename_back_and_forth(pool: &Spread, edits: usize) -> volume::Result<()> {
    let (long, longer) = (names().0, names().1);
    for edit in 0..edits {
        let (from, to) = if edit % 2 == 0 { (&long, &longer) } else { (&longer, &long) };
        pool.rename(&name(from), &name(to)).await?;
    }
    Ok(())
}

fn names() -> (String, String) {
    ("a".repeat(180), "b".repeat(181))
}

async fn begin<V: Volume + Clone + 'static>(volumes: &[V]) -> volume::Result<Spread> {
    let pool = open(volumes).await?;
    put(&pool, &names().0, b"bytes").await?;
    Ok(pool)
}

/// The number of edits until the manifest moves.
fn edits_until_it_moves() -> usize {
    let volumes = mems(1);
    block_on(async {
        let pool = begin(&volumes).await.unwrap();
        let home = manifests(&volumes[0]);
        let mut edits = 0;
        while manifests(&volumes[0]) == home {
            rename_back_and_forth(&pool, 2).await.unwrap();
            edits += 2;
        }
        edits
    })
}

#[test]
fn a_manifest_stays_small() {
    let volumes = mems(2);
    let edits = edits_until_it_moves();
    block_on(async {
        let pool = begin(&volumes).await.unwrap();
        rename_back_and_forth(&pool, 3 * edits + 100).await.unwrap();
        for volume in &volumes {
            let [manifest] = &manifests(volume)[..] else { panic!("one copy on each volume") };
            assert_eq!(manifest.as_str(), "manifest-0000000000000004.log");
            let len = volume.image()[manifest].len();
            assert!(len < 200_000, "{len}");
        }
        drop(pool);
        assert_eq!(get(&open(&volumes).await.unwrap(), &names().0).await.unwrap(), b"bytes");
    });
}

#[test]
fn a_cut_at_any_step_of_a_move_loses_nothing() {
    let edits = edits_until_it_moves() - 2;
    let mut cut = 0;
    loop {
        let power = Power::new();
        let volumes: Vec<_> =
            (0..4).map(|i| Crash::new(Mem::new(&format!("s{i}")), &power)).collect();
        let acknowledged = block_on(async {
            let pool = begin(&volumes).await.unwrap();
            rename_back_and_forth(&pool, edits).await.unwrap();
            power.cut_after(cut);
            let mut acknowledged = 0;
            while acknowledged < 4 {
                let (long, longer) = names();
                let (from, to) =
                    if acknowledged % 2 == 0 { (long, longer) } else { (longer, long) };
                if pool.rename(&name(&from), &name(&to)).await.is_err() {
                    break;
                }
                acknowledged += 1;
            }
            acknowledged
        });
        for seed in 0..6 {
            let survivors = survivors(&volumes, seed);
            let context = format!("cut {cut}, seed {seed}, {acknowledged} acknowledged");
            block_on(async {
                let pool = open(&survivors).await.unwrap_or_else(|e| panic!("{context}: {e}"));
                let (long, longer) = names();
                let before = if acknowledged % 2 == 0 { &long } else { &longer };
                let after = if acknowledged % 2 == 0 { &longer } else { &long };
                let listed = pool.list().await.unwrap();
                let [listed] = &listed[..] else { panic!("{context}: {listed:?}") };
                let found = listed.name.as_str();
                assert!(found == before || found == after && power.is_off(), "{context}");
                assert_eq!(get(&pool, found).await.unwrap(), b"bytes", "{context}");
                assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
            });
        }
        if !power.is_off() {
            break;
        }
        cut += 1;
    }
    // Four renames of four steps each, and a move of many more.
    assert!(cut > 30, "{cut} steps");
}
