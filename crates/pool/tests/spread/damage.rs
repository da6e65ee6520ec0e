//! Damaged bytes in manifest, headers and objects: repaired from another copy, or a clear error, never an
//! unreported loss.

use pool::spread::{Problem, Spread};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{ErrorKind, Intent, IoBuf, Name, Volume};

use crate::model::{View, view};
use crate::rig::{IO, copies, get, manifests, members, mems, name, open, opening, put, refusal};

/// Volumes with a closed pool, and its contents.
fn closed(count: usize) -> (Vec<Mem>, View) {
    let volumes = mems(count);
    let held = block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "old", b"in the snapshot").await.unwrap();
        drop(pool);
        let pool = open(&volumes).await.unwrap();
        put(&pool, "d/a", b"in the log").await.unwrap();
        let log = pool.create(&name("x.log"), &Intent::LOG).await.unwrap();
        log.write_at(0, IoBuf::from(&b"record"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        pool.link(&name("old"), &name("d/b")).await.unwrap();
        pool.rename_prefix(&name("d"), &name("e")).await.unwrap();
        pool.close().await.unwrap();
        view(&pool).await.unwrap()
    });
    (volumes, held)
}

fn manifest(volume: &Mem) -> (Name, u64) {
    let name = manifests(volume).pop().expect("a copy");
    let len = volume.image()[&name].iter().rposition(|&b| b != 0).expect("a manifest") + 1;
    (name, len as u64)
}

#[test]
fn a_flipped_byte_in_the_only_copy_is_found() {
    let (volumes, held) = closed(1);
    let (name, len) = manifest(&volumes[0]);
    let mut refused = 0;
    for offset in 0..len {
        let volumes = copies(&volumes);
        volumes[0].damage(&name, offset, |byte| *byte ^= 1 << (offset % 8));
        let before = volumes[0].image();
        match block_on(open(&volumes)) {
            // Damage in the mark of a clean close changes nothing.
            Ok(pool) => assert_eq!(block_on(view(&pool)).unwrap(), held, "offset {offset}"),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Corrupt, "offset {offset}: {e}");
                assert!(e.to_string().contains("--repair"), "{e}");
                assert!(volumes[0].image() == before, "a damaged volume was touched");
                refused += 1;
            }
        }
    }
    assert!(len - refused < 30, "{refused} of {len}");
}

#[test]
fn a_flipped_byte_in_one_of_three_copies_is_mended() {
    let (volumes, held) = closed(4);
    for copy in 0..3 {
        let (name, len) = manifest(&volumes[copy]);
        for offset in (copy as u64..len + 10).step_by(3) {
            let volumes = copies(&volumes);
            volumes[copy].damage(&name, offset, |byte| *byte = !*byte);
            let pool = block_on(open(&volumes)).unwrap_or_else(|e| panic!("offset {offset}: {e}"));
            assert_eq!(block_on(view(&pool)).unwrap(), held, "copy {copy}, offset {offset}");
        }
    }
}

#[test]
fn copies_damaged_in_different_places_mend_each_other() {
    let (volumes, held) = closed(3);
    let (name, len) = manifest(&volumes[0]);
    // The frames of the log are all shorter than this.
    for offset in (0..len / 2).step_by(7) {
        let volumes = copies(&volumes);
        for (copy, offset) in [(0, offset), (1, offset + len / 2)] {
            volumes[copy].damage(&name, offset, |byte| *byte ^= 0x40);
        }
        volumes[2].damage(&name, 0, |byte| *byte ^= 0x40);
        let pool = block_on(open(&volumes)).unwrap_or_else(|e| panic!("offset {offset}: {e}"));
        assert_eq!(block_on(view(&pool)).unwrap(), held, "offset {offset}");
    }
}

#[test]
fn a_lost_copy_is_made_anew_elsewhere_or_here() {
    let (volumes, held) = closed(4);
    let (name, _) = manifest(&volumes[1]);
    block_on(async {
        volumes[1].remove(&name).await.unwrap();
        assert_eq!(view(&open(&volumes).await.unwrap()).await.unwrap(), held);
    });
    assert_eq!(volumes.iter().filter(|volume| manifests(volume).len() == 1).count(), 3);
}

#[test]
fn a_flipped_byte_in_a_header_does_no_harm() {
    let (volumes, held) = closed(2);
    let header = name("pool.header");
    for offset in (0..8192).filter(|offset| offset % 4096 < 80 || offset % 4096 > 4080) {
        let volumes = copies(&volumes);
        volumes[0].damage(&header, offset, |byte| *byte ^= 1 << (offset % 8));
        let pool = block_on(open(&volumes)).unwrap_or_else(|e| panic!("offset {offset}: {e}"));
        assert_eq!(block_on(view(&pool)).unwrap(), held, "offset {offset}");
    }
    // With both slots damaged, the volume is still not blank.
    for offset in [20, 4096 + 20] {
        volumes[0].damage(&header, offset, |byte| *byte ^= 1);
    }
    let (kind, message) = refusal(block_on(open(&volumes)));
    assert_eq!(kind, ErrorKind::Corrupt, "{message}");
    assert!(message.contains("volume s0") && message.contains("header"), "{message}");
}

#[test]
fn a_lost_header_is_not_taken_for_a_blank_volume() {
    let (volumes, _) = closed(1);
    block_on(volumes[0].remove(&name("pool.header"))).unwrap();
    let (kind, message) = refusal(block_on(open(&volumes)));
    assert_eq!(kind, ErrorKind::Invalid, "{message}");
    assert!(message.contains("header was lost"), "{message}");
}

#[test]
fn objects_that_lost_bytes_are_named() {
    let volumes = mems(3);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        for text in ["flipped", "missing", "short", "whole"] {
            put(&pool, text, &[7; 5000]).await.unwrap();
        }
        let leaf = async |text: &str| {
            let stat = pool.stat(&name(text)).await.unwrap();
            let volume = &volumes[usize::from(stat.layout.volumes()[0].0)];
            (volume, name(&format!("o{}.dat", stat.id)))
        };
        let (volume, flipped) = leaf("flipped").await;
        volume.damage(&flipped, 4321, |byte| *byte ^= 2);
        let (volume, missing) = leaf("missing").await;
        volume.remove(&missing).await.unwrap();
        let (volume, short) = leaf("short").await;
        volume.open(&short).await.unwrap().set_len(4999).await.unwrap();
        drop(pool);

        // The pool opens; reads of damaged objects fail.
        let pool = open(&volumes).await.unwrap();
        assert_eq!(get(&pool, "whole").await.unwrap(), [7; 5000]);
        for text in ["missing", "short"] {
            let e = get(&pool, text).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Corrupt);
            assert!(e.to_string().contains(text), "{e}");
        }
        let found = |report: pool::spread::Report| {
            let named = report.findings.into_iter().map(|f| (f.name, f.problem));
            let mut named: Vec<_> = named.collect();
            named.sort_by(|(a, _), (b, _)| a.cmp(b));
            named
        };
        let expected = [
            ("missing".into(), Problem::Missing),
            ("short".into(), Problem::Short { found: 4999, expected: 5000 }),
        ];
        assert_eq!(found(pool.check().await.unwrap()), expected);
        let mut told = Vec::new();
        let scrubbed = found(pool.scrub(|progress| told.push(progress.done)).await.unwrap());
        assert_eq!(scrubbed[0], ("flipped".into(), Problem::Damaged));
        assert_eq!(scrubbed.len(), 3);
        assert_eq!(told, [0, 5000, 10_000, 15_000, 20_000]);
        drop(pool);
        assert_eq!(found(Spread::inspect(&members(&volumes)).await.unwrap()), expected);
    });
}

#[test]
fn a_striped_object_is_whole_or_named() {
    let volumes = mems(3);
    block_on(async {
        let pool = Spread::open(members(&volumes), opening("stripe")).await.unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
        put(&pool, "a", &data).await.unwrap();
        let stat = pool.stat(&name("a")).await.unwrap();
        assert_eq!(stat.layout.volumes().len(), 3);
        let leaf = name(&format!("o{}.dat", stat.id));
        volumes[1].damage(&leaf, 100, |byte| *byte ^= 1);
        let report = pool.scrub(|_| ()).await.unwrap();
        assert_eq!(report.findings.len(), 1);
        volumes[1].damage(&leaf, 100, |byte| *byte ^= 1);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        assert_eq!(get(&pool, "a").await.unwrap(), data);
    });
}
