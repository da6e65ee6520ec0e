//! A flipped byte, or a file cut short: an error or the right answer, never a wrong one.
//!
//! RocksDB names the damaged file in its log, but not in every error.

use pool::spread::Spread;
use rust_rocksdb::{DBRecoveryMode, ErrorKind as RocksKind, IteratorMode};
use volume::Name;
use volume::mem::Mem;
use volume::task::block_on;

use super::survey;
use crate::support::{
    check, fill, key, label, names, open, opening, options, plain, pool, pool_of, try_open, volumes,
};

#[test]
fn a_flipped_byte_is_an_error_and_never_a_wrong_answer() {
    let volumes = volumes(1);
    {
        let db = open(&pool(&volumes));
        fill(&db, 0..500, 1);
        db.flush().unwrap();
    }
    let image = volumes[0].image();
    let (table, bytes) =
        image.iter().find(|(name, _)| name.as_str().ends_with(".tab")).expect("a table");
    let mut found = 0;
    for offset in (0..bytes.len() as u64).step_by(1777) {
        volumes[0].damage(table, offset, |byte| *byte ^= 0x10);
        {
            let db = open(&pool(&volumes));
            let (_, errors) = survey(&db, 500, 1);
            for error in &errors {
                assert_eq!(error.kind(), RocksKind::Corruption, "{error}");
            }
            found += u32::from(!errors.is_empty());
            let scanned = db.iterator(IteratorMode::Start).try_for_each(|found| found.map(drop));
            assert_eq!(scanned.is_err(), !errors.is_empty());
        }
        volumes[0].damage(table, offset, |byte| *byte ^= 0x10);
    }
    assert!(found > 10, "only {found} of the bytes were read");
    check(&open(&pool(&volumes)), 0..500, 1);
}

#[test]
fn a_table_cut_short_is_an_error() {
    let volumes = volumes(1);
    {
        let db = open(&pool(&volumes));
        fill(&db, 0..500, 1);
        db.flush().unwrap();
    }
    let mut image = volumes[0].image();
    let table = image.iter_mut().find(|(name, _)| name.as_str().ends_with(".tab")).unwrap();
    let half = table.1.len() / 2;
    table.1.truncate(half);
    let cut = Mem::from_image(&label(0), image);
    let db = open(&pool(&[cut]));
    let (_, errors) = survey(&db, 500, 1);
    assert!(!errors.is_empty());
    for error in errors {
        assert_eq!(error.kind(), RocksKind::Corruption, "{error}");
    }
}

/// A closed database with 100 keys in a table and 100 in its log.
fn stored() -> Vec<Mem> {
    let volumes = volumes(1);
    let db = open(&pool(&volumes));
    fill(&db, 0..100, 1);
    db.flush().unwrap();
    fill(&db, 100..200, 1);
    drop(db);
    volumes
}

/// The object of the only file whose name begins with `prefix` and ends with `end`, and its length.
fn leaf(pool: &Spread, prefix: &str, end: &str) -> (Name, u64) {
    let files = names(pool, &format!("kv/{prefix}"));
    let file = files.iter().rfind(|file| file.as_str().ends_with(end)).expect("a file");
    let stat = block_on(pool.stat(file)).expect("a file that was listed");
    let kind = if end == ".sst" { "tab" } else { "log" };
    (Name::new(&format!("o{}.{kind}", stat.id)).expect("digits"), stat.len)
}

/// Flips bytes of a file, one at a time, and passes the opened database to `look`.
fn flip(file: (&str, &str), step: usize, mut look: impl FnMut(u64, rocks::Result<rocks::Db>)) {
    let volumes = stored();
    let (name, len) = leaf(&pool(&volumes), file.0, file.1);
    for offset in (0..len).step_by(step) {
        // A copy, because the opened database changes its files.
        let copy = Mem::from_image(&label(0), volumes[0].image());
        copy.damage(&name, offset, |byte| *byte ^= 0x10);
        look(offset, try_open(&pool(&[copy]), options()));
    }
}

#[test]
fn a_flipped_byte_of_a_log_ends_it_there() {
    let mut ended = 0;
    flip(("", ".log"), 97, |offset, opened| {
        let db = opened.expect("a log that ends early is normal after a crash");
        check(&db, 0..100, 1);
        let found = |i| db.get(key(i)).expect("a get");
        let last = (100..200).find(|&i| found(i).is_none()).unwrap_or(200);
        assert!(last <= 100 + 2 + offset as u32 / 100, "byte {offset}: key {last} was behind it");
        check(&db, 100..last, 1);
        assert!((last..200).all(|i| found(i).is_none()), "byte {offset}: a hole before {last}");
        ended += 1;
    });
    assert!(ended > 100, "{ended} bytes were flipped");
}

#[test]
fn a_flipped_byte_of_a_log_is_an_error_to_whoever_asks_for_that() {
    let volumes = stored();
    let (name, len) = leaf(&pool(&volumes), "", ".log");
    volumes[0].damage(&name, len / 2, |byte| *byte ^= 0x10);
    let mut strict = options();
    strict.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    let Err(error) = try_open(&pool(&volumes), strict) else {
        panic!("half a log is all there is")
    };
    assert!(error.to_string().contains("orruption"), "{error}");
    volumes[0].damage(&name, len / 2, |byte| *byte ^= 0x10);
    check(&open(&pool(&volumes)), 0..200, 1);
}

#[test]
fn a_flipped_byte_of_rocksdbs_manifest_is_an_error() {
    let mut refused = 0;
    flip(("MANIFEST-", ""), 5, |offset, opened| match opened {
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("orruption"), "{offset}: {said}");
            refused += 1;
        }
        Ok(db) => check(&db, 0..200, 1),
    });
    assert!(refused > 30, "only {refused} of the bytes were read");
}

#[test]
fn a_flipped_byte_of_a_small_file_is_an_error_or_makes_no_difference() {
    for (file, refusals) in [("CURRENT", 10), ("IDENTITY", 0), ("OPTIONS-", 0)] {
        let mut refused = 0;
        flip((file, ""), if file == "OPTIONS-" { 331 } else { 1 }, |_, opened| match opened {
            Err(_) => refused += 1,
            Ok(db) => check(&db, 0..200, 1),
        });
        assert!(refused >= refusals, "{file}: {refused} refusals");
    }
}

/// A pool with two copies.
fn twice(volumes: &[Mem]) -> Spread {
    pool_of(plain(volumes), opening().copies(2)).expect("a pool")
}

/// Copies of these volumes.
fn images(volumes: &[Mem]) -> Vec<Mem> {
    volumes.iter().map(|volume| Mem::from_image(volume.label(), volume.image())).collect()
}

/// The leaf objects of a file on two volumes, and its length.
fn leaves(volumes: &[Mem], prefix: &str, end: &str) -> (Vec<Name>, u64) {
    let pool = twice(volumes);
    let files = names(&pool, &format!("kv/{prefix}"));
    let file = files.iter().rfind(|file| file.as_str().ends_with(end)).expect("a file");
    let stat = block_on(pool.stat(file)).expect("a file that was listed");
    let leaf = |mem: &Mem| {
        let begins = format!("o{}.", stat.id);
        let also = format!("o{}-", stat.id);
        let is_one =
            |name: &Name| name.as_str().starts_with(&begins) || name.as_str().starts_with(&also);
        mem.image().into_keys().find(is_one).expect("a copy on each volume")
    };
    (volumes.iter().map(leaf).collect(), stat.len)
}

/// RocksDB itself asks no other copy of these files: it would take the log to end there, and drop what follows for good.
#[test]
fn damage_of_one_copy_of_a_log_or_of_a_small_file_makes_no_difference() {
    let large = || {
        let mut options = options();
        options.set_write_buffer_size(1 << 20);
        options
    };
    for closes in [true, false] {
        let volumes = volumes(2);
        {
            let pool = twice(&volumes);
            let db = try_open(&pool, large()).unwrap();
            fill(&db, 0..100, 1);
            db.flush().unwrap();
            // The log has several blocks.
            fill(&db, 100..1000, 1);
            drop(db);
            if closes {
                block_on(pool.close()).unwrap();
            }
        }
        for (prefix, end, step) in [("", ".log", 4999), ("MANIFEST-", "", 97), ("CURRENT", "", 5)] {
            let (leaves, len) = leaves(&images(&volumes), prefix, end);
            for (offset, wrong) in (0..len).step_by(step).flat_map(|at| [(at, 0), (at, 1)]) {
                let volumes = images(&volumes);
                volumes[wrong].damage(&leaves[wrong], offset, |byte| *byte ^= 0x10);
                // Another block of the other copy is damaged, too.
                if end == ".log" {
                    let other = (offset + len / 2) % len;
                    volumes[1 - wrong].damage(&leaves[1 - wrong], other, |byte| *byte ^= 0x10);
                }
                let said = format!("{prefix}{end}, byte {offset} of copy {wrong}, {closes}");
                let db = try_open(&twice(&volumes), large());
                let db = db.unwrap_or_else(|error| panic!("{said}: {error}"));
                let last = (0..1000).rfind(|&i| db.get(key(i)).expect("a get").is_some());
                assert_eq!(last, Some(999), "{said}");
                check(&db, 0..1000, 1);
            }
        }
    }
}

#[test]
fn a_flipped_byte_of_the_pools_manifest_is_read_from_another_copy_or_an_error() {
    for count in [1, 3] {
        let volumes = volumes(count);
        {
            let pool = pool(&volumes);
            let db = open(&pool);
            fill(&db, 0..200, 1);
            db.flush().unwrap();
            drop(db);
            block_on(pool.close()).unwrap();
        }
        let image = volumes[0].image();
        let (name, bytes) =
            image.iter().find(|(name, _)| name.as_str().starts_with("manifest-")).expect("a copy");
        let used = bytes.iter().rposition(|&byte| byte != 0).expect("bytes that are not zero");
        for offset in (0..used as u64).step_by(37) {
            let copies: Vec<_> =
                volumes.iter().map(|v| Mem::from_image(v.label(), v.image())).collect();
            copies[0].damage(name, offset, |byte| *byte ^= 0x10);
            let members = plain(&copies);
            match pool_of(members, opening()) {
                Ok(pool) => check(&open(&pool), 0..200, 1),
                Err(error) => {
                    assert_eq!(count, 1, "byte {offset}: there are other copies: {error}");
                    assert_eq!(error.kind(), volume::ErrorKind::Corrupt, "{error}");
                    assert!(error.to_string().contains("manifest"), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_flipped_byte_at_the_end_of_a_table_is_an_error() {
    let volumes = stored();
    let (name, len) = leaf(&pool(&volumes), "", ".sst");
    // Footer, index, properties and filter are the last few hundred bytes.
    let mut found = 0;
    for offset in (len.saturating_sub(1200)..len).step_by(7) {
        let copy = Mem::from_image(&label(0), volumes[0].image());
        copy.damage(&name, offset, |byte| *byte ^= 0x10);
        match try_open(&pool(std::slice::from_ref(&copy)), options()) {
            Err(error) => assert!(error.to_string().contains("orruption"), "{offset}: {error}"),
            Ok(db) => {
                let (_, errors) = survey(&db, 100, 1);
                for error in &errors {
                    assert_eq!(error.kind(), RocksKind::Corruption, "{offset}: {error}");
                }
                found += u32::from(!errors.is_empty());
            }
        }
    }
    assert!(found > 20, "only {found} of the bytes were read");
    check(&open(&pool(&volumes)), 0..200, 1);
}
