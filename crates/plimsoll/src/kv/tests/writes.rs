//! Writes without options: the store redefines each of RocksDB's, to wait for what the store's options say.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use engine::kv::Durability;
use policy::contract::Contract;
use rust_rocksdb::{MergeOperands, ReadOptions, WriteBatch, WriteBatchWithIndex};
use volume::layer::crash::{Crash, Power};

use super::*;
use crate::kv::{Builder, Family, Store};
use crate::volumes::Volume;

/// How many writes without options there are.
const WRITES_IN_ALL: usize = 17;

const HOUR: Duration = Duration::from_hours(1);

/// Its name says already that it does not wait.
const SAYS_IT_ITSELF: &str = "write_without_wal";

/// The source of RocksDB's bindings that defines its handle, of the linked version.
fn bindings() -> String {
    let cargo = std::env::var("CARGO").expect("cargo runs this");
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        // Without this, cargo would ask for packages that only other systems need.
        .arg(format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value =
        serde_json::from_slice(&metadata.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "rust-rocksdb");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let source = std::path::Path::new(manifest.expect("it is linked")).with_file_name("src/db.rs");
    std::fs::read_to_string(source).expect("what was compiled is there")
}

/// The public functions of a source, each with its text up to the next one.
fn functions(source: &str) -> Vec<(&str, &str)> {
    let parts = source.split("pub fn ").skip(1);
    parts.map(|part| (part.split(['(', '<']).next().unwrap_or(part).trim(), part)).collect()
}

/// Functions that write with options that the caller did not pass.
fn writes_without_options(source: &str) -> BTreeSet<&str> {
    let writes = functions(source).into_iter().filter(|(_, text)| {
        let (signature, body) = text.split_once("{\n").unwrap_or((text, ""));
        let own = body.contains("DEFAULT_WRITE_OPTS") || body.contains("WriteOptions::");
        own && signature.contains("&self") && !signature.contains("WriteOptions")
    });
    writes.map(|(name, _)| name).collect()
}

/// `single_delete`, `write_wbwi` and calls with timestamps were once RocksDB's own, with its default options: not
/// synced in a store that promised it.
#[test]
fn every_write_of_rocksdb_without_options_is_one_of_the_stores() {
    let source = bindings();
    let theirs = writes_without_options(&source);
    let ours: BTreeSet<_> =
        functions(include_str!("../writes.rs")).into_iter().map(|(name, _)| name).collect();
    let known =
        ["put", "merge_cf", "single_delete", "put_cf_with_ts", "write_wbwi", SAYS_IT_ITSELF];
    assert!(known.iter().all(|name| theirs.contains(name)), "what was read of it: {theirs:?}");
    // Every write with a twin that takes options was found, whatever its text looks like.
    let twins = functions(&source).into_iter().filter(|(_, text)| {
        text.split_once("{\n").is_some_and(|(signature, _)| signature.contains("&WriteOptions"))
    });
    let twins: BTreeSet<_> = twins.filter_map(|(name, _)| name.strip_suffix("_opt")).collect();
    let all: BTreeSet<_> =
        theirs.union(&twins).copied().filter(|&name| name != SAYS_IT_ITSELF).collect();
    let missing: Vec<_> = all.difference(&ours).collect();
    assert!(missing.is_empty(), "they escape the store's durability: {missing:?}");
    assert_eq!(all.len(), WRITES_IN_ALL);
}

/// Gives keys timestamps, the newest first.
fn timed(family: Family) -> Family {
    fn key(of: &[u8]) -> &[u8] {
        &of[..of.len() - 8]
    }
    fn ts(of: &[u8]) -> u64 {
        u64::from_le_bytes(of[of.len() - 8..].try_into().expect("eight bytes"))
    }
    family.rocks(|options| {
        options.set_comparator_with_ts(
            "timed",
            8,
            Box::new(|a, b| key(a).cmp(key(b)).then_with(|| ts(b).cmp(&ts(a)))),
            Box::new(|a, b| ts(a).cmp(&ts(b))),
            Box::new(|a, a_has_ts, b, b_has_ts| {
                let bare = |of: &'_ [u8], has| if has { of.len() - 8 } else { of.len() };
                a[..bare(a, a_has_ts)].cmp(&b[..bare(b, b_has_ts)])
            }),
        );
    })
}

fn last(_: &[u8], old: Option<&[u8]>, added: &MergeOperands) -> Option<Vec<u8>> {
    added.iter().last().or(old).map(<[u8]>::to_vec)
}

fn merging(family: Family) -> Family {
    family.rocks(|options| options.set_merge_operator_associative("last", last))
}

fn open_store(
    volume: impl volume::Volume + 'static,
    durability: Durability,
    main: Family,
) -> Store {
    let options = Options { durability, wal_sync_interval: HOUR, ..small() };
    let volume = Volume::other("a", volume, Contract::unlimited());
    let store = Store::builder().volume(volume).options(options).family(main);
    let families = [merging(Family::new("plain")), timed(Family::new("timed"))];
    families.into_iter().fold(store, Builder::family).open().expect("the store opens")
}

/// A write, and a check that its change is there.
struct Write {
    name: &'static str,
    write: fn(&Db) -> Result<(), engine::kv::Error>,
    is_there: fn(&Db) -> bool,
}

fn family<'a>(db: &'a Db, name: &str) -> Arc<rust_rocksdb::BoundColumnFamily<'a>> {
    db.cf_handle(name).expect("it was made")
}

fn at(ts: u64) -> [u8; 8] {
    ts.to_le_bytes()
}

/// The value of the key `old`, in a family with timestamps.
fn timed_value(db: &Db, name: &str) -> Option<Vec<u8>> {
    let mut options = ReadOptions::default();
    options.set_timestamp(at(9));
    db.get_cf_opt(&family(db, name), "old", &options).expect("a get")
}

fn plain_value(db: &Db, key: &str) -> Option<Vec<u8>> {
    db.get_cf(&family(db, "plain"), key).expect("a get")
}

fn value(db: &Db, key: &str) -> Option<Vec<u8>> {
    db.get(key).expect("a get")
}

/// The writes of a store whose main family has no timestamps.
const WRITES: [Write; 14] = [
    Write {
        name: "put",
        write: |db| db.put("new", "x"),
        is_there: |db| value(db, "new").is_some(),
    },
    Write {
        name: "put_cf",
        write: |db| db.put_cf(&family(db, "plain"), "new", "x"),
        is_there: |db| plain_value(db, "new").is_some(),
    },
    Write {
        name: "put_cf_with_ts",
        write: |db| db.put_cf_with_ts(&family(db, "timed"), "old", at(2), "newer"),
        is_there: |db| timed_value(db, "timed").is_some_and(|value| value == b"newer"),
    },
    Write {
        name: "merge",
        write: |db| db.merge("new", "x"),
        is_there: |db| value(db, "new").is_some(),
    },
    Write {
        name: "merge_cf",
        write: |db| db.merge_cf(&family(db, "plain"), "new", "x"),
        is_there: |db| plain_value(db, "new").is_some(),
    },
    Write {
        name: "delete",
        write: |db| db.delete("old"),
        is_there: |db| value(db, "old").is_none(),
    },
    Write {
        name: "delete_cf",
        write: |db| db.delete_cf(&family(db, "plain"), "old"),
        is_there: |db| plain_value(db, "old").is_none(),
    },
    Write {
        name: "delete_cf_with_ts",
        write: |db| db.delete_cf_with_ts(&family(db, "timed"), "old", at(2)),
        is_there: |db| timed_value(db, "timed").is_none(),
    },
    Write {
        name: "single_delete",
        write: |db| db.single_delete("old"),
        is_there: |db| value(db, "old").is_none(),
    },
    Write {
        name: "single_delete_cf",
        write: |db| db.single_delete_cf(&family(db, "plain"), "old"),
        is_there: |db| plain_value(db, "old").is_none(),
    },
    Write {
        name: "single_delete_cf_with_ts",
        write: |db| db.single_delete_cf_with_ts(&family(db, "timed"), "old", at(2)),
        is_there: |db| timed_value(db, "timed").is_none(),
    },
    Write {
        name: "delete_range_cf",
        write: |db| db.delete_range_cf(&family(db, "plain"), "a", "z"),
        is_there: |db| plain_value(db, "old").is_none(),
    },
    Write {
        name: "write",
        write: |db| {
            let mut batch = WriteBatch::default();
            batch.put("new", "x");
            db.write(&batch)
        },
        is_there: |db| value(db, "new").is_some(),
    },
    Write {
        name: "write_wbwi",
        write: |db| {
            let mut batch = WriteBatchWithIndex::new(0, true);
            batch.put("new", "x");
            db.write_wbwi(&batch)
        },
        is_there: |db| value(db, "new").is_some(),
    },
];

/// The writes of a store whose main family has timestamps.
const TIMED: [Write; 3] = [
    Write {
        name: "put_with_ts",
        write: |db| db.put_with_ts("old", at(2), "newer"),
        is_there: |db| timed_value(db, "default").is_some_and(|value| value == b"newer"),
    },
    Write {
        name: "delete_with_ts",
        write: |db| db.delete_with_ts("old", at(2)),
        is_there: |db| timed_value(db, "default").is_none(),
    },
    Write {
        name: "single_delete_with_ts",
        write: |db| db.single_delete_with_ts("old", at(2)),
        is_there: |db| timed_value(db, "default").is_none(),
    },
];

/// Whether a write survives a power cut right after it, whatever the device kept.
fn survives(write: &Write, durability: Durability, main: fn() -> Family) -> bool {
    let power = Power::new();
    let crash = Crash::new(Mem::new("a"), &power);
    let store = open_store(crash.clone(), durability, main());
    for name in ["plain", "timed", "default"] {
        let put = match store.put_cf(&family(&store, name), "old", "x") {
            // The family requires a timestamp.
            Err(_) => store.put_cf_with_ts(&family(&store, name), "old", at(1), "x"),
            done => done,
        };
        put.expect("a put");
    }
    store.flush_wal(true).expect("what was there before is durable");
    (write.write)(store.db()).expect(write.name);
    power.cut();
    drop(store);
    (0..8).all(|seed| {
        let store = open_store(crash.survivor(seed), durability, main());
        (write.is_there)(store.db())
    })
}

fn plain_main() -> Family {
    merging(Family::main())
}

fn timed_main() -> Family {
    timed(Family::main())
}

#[test]
fn every_write_without_options_survives_a_power_cut() {
    let lost = |writes: &[Write], main| {
        let lost = writes.iter().filter(|write| !survives(write, Durability::Always, main));
        lost.map(|write| write.name).collect::<Vec<_>>()
    };
    assert!(lost(&WRITES, plain_main).is_empty() && lost(&TIMED, timed_main).is_empty());
    assert_eq!(WRITES.len() + TIMED.len(), WRITES_IN_ALL);
    // A write that is not waited for may be lost, or the test would show nothing.
    assert!(!survives(&WRITES[0], Durability::EverySec, plain_main));
}
