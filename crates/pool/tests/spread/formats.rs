//! A sample of each format version, as that version wrote it, still opens.
//!
//! A sample is a directory for each volume with a file for each object. `WRITE_SAMPLE=1` writes that of
//! the current version if it does not exist; existing samples never change.

use std::fs;
use std::path::{Path, PathBuf};

use policy::placement::{Code, VolumeId};
use policy::units::KIB;
use pool::Kind;
use pool::logged::{self, Logged};
use pool::spread::{Spread, VolumeState};
use volume::mem::{Image, Mem};
use volume::task::block_on;
use volume::{ErrorKind, Intent, IoBuf, Volume, Zeros};

use crate::copying::{COPY, id_of, places};
use crate::model::view;
use crate::rig::{IO, POOL, get, members, mems, name, opening, put, read_all};

const VOLUMES: usize = 3;

fn sample(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(version)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// Objects of every kind, some in the snapshot and some in later edits.
async fn write_v1(volumes: &[Mem]) {
    let pool = Spread::open(members(volumes), opening("stripe")).await.unwrap();
    put(&pool, "kv/000001.sst", &pattern(700)).await.unwrap();
    put(&pool, "kv/000002.sst", &pattern(140_000)).await.unwrap();
    drop(pool);
    let pool = Spread::open(members(volumes), opening("stripe")).await.unwrap();
    let log = pool.create(&name("kv/000003.log"), &Intent::LOG).await.unwrap();
    log.write_at(0, IoBuf::from(&b"record"[..]), IO).await.unwrap();
    log.sync(IO).await.unwrap();
    let data = pool.create(&name("kv/data"), &Intent::DATA).await.unwrap();
    data.write_at(0, IoBuf::from(&pattern(100)[..]), IO).await.unwrap();
    data.sync(IO).await.unwrap();
    data.set_len(50).await.unwrap();
    pool.link(&name("kv/000001.sst"), &name("copy/000001.sst")).await.unwrap();
    pool.rename(&name("kv/000003.log"), &name("kv/CURRENT")).await.unwrap();
    pool.rename_prefix(&name("copy"), &name("checkpoint/1")).await.unwrap();
    put(&pool, "removed", b"removed").await.unwrap();
    pool.remove(&name("removed")).await.unwrap();
    pool.close().await.unwrap();
}

/// The additions of version 2: copies, made at once and later, one of them instead of the first; a draining
/// volume; one that joined.
async fn write_v2(volumes: &[Mem]) {
    let members = || members(volumes);
    let twice = || opening("single").copies(2);
    let pool = Spread::open(members()[..2].to_vec(), twice()).await.unwrap();
    put(&pool, "kv/000001.sst", &pattern(700)).await.unwrap();
    pool.add_volume(members()[2].clone()).await.unwrap();
    drop(pool);
    let pool = Spread::open(members(), opening("stripe")).await.unwrap();
    put(&pool, "kv/000002.sst", &pattern(140_000)).await.unwrap();
    let log = pool.create(&name("kv/000003.log"), &Intent::LOG).await.unwrap();
    log.write_at(0, IoBuf::from(&b"record"[..]), IO).await.unwrap();
    log.sync(IO).await.unwrap();
    let first = id_of(&pool, "kv/000001.sst").await;
    pool.copy(first, VolumeId(2), COPY).await.unwrap();
    pool.drop_copy(first, VolumeId(0)).await.unwrap();
    let from = places(&pool, "kv/000003.log").await[0];
    let log_id = id_of(&pool, "kv/000003.log").await;
    pool.copy(log_id, VolumeId((from + 1) % 3), COPY).await.unwrap();
    pool.set_draining(VolumeId(1), true).await.unwrap();
    pool.close().await.unwrap();
}

/// The addition of version 3: a sealed log, in the snapshot and in a later edit.
async fn write_v3(volumes: &[Mem]) {
    let open = || Spread::open(members(volumes), opening("single").copies(2));
    for text in ["kv/000001.log", "kv/000002.log"] {
        let pool = open().await.unwrap();
        let log = pool.create(&name(text), &Intent::LOG).await.unwrap();
        log.write_at(0, IoBuf::from(&b"record"[..]), IO).await.unwrap();
        log.seal(IO).await.unwrap();
    }
}

/// The addition of version 4: objects that are in place, in the snapshot and in a later edit.
async fn write_v4(volumes: &[Mem]) {
    let open = || Spread::open(members(volumes), opening("single").copies(2));
    for text in ["device/000001", "device/000002"] {
        let pool = open().await.unwrap();
        let object = pool.create(&name(text), &Intent::IN_PLACE).await.unwrap();
        object.write_at(0, IoBuf::from(&pattern(700)[..]), IO).await.unwrap();
        object.sync(IO).await.unwrap();
    }
}

/// The additions of version 5: fragments, of an object written whole and of one that had copies before.
async fn write_v5(volumes: &[Mem]) {
    let open = || Spread::open(members(volumes), opening("single").code(small_code()));
    let pool = open().await.unwrap();
    put(&pool, "kv/000001.sst", &pattern(20_000)).await.unwrap();
    drop(pool);
    let pool = open().await.unwrap();
    let log = pool.create(&name("kv/000002.log"), &Intent::LOG).await.unwrap();
    log.write_at(0, IoBuf::from(&pattern(9000)[..]), IO).await.unwrap();
    log.seal(IO).await.unwrap();
    assert_eq!(pool.recode(IO).await, 1);
}

fn small_code() -> Code {
    Code::new(2, 1, 4 * KIB).unwrap()
}

fn load(version: &str) -> Vec<Mem> {
    let volume = |i: usize| {
        let label = format!("s{i}");
        let mut image = Image::new();
        for entry in fs::read_dir(sample(version).join(&label)).expect("the sample is there") {
            let path = entry.expect("a file").path();
            let file = path.file_name().and_then(|file| file.to_str()).expect("a plain name");
            image.insert(name(file), fs::read(&path).expect("a file"));
        }
        Mem::from_image(&label, image)
    };
    (0..VOLUMES).map(volume).collect()
}

fn save(version: &str, volumes: &[Mem]) {
    for volume in volumes {
        let directory = sample(version).join(volume.label());
        fs::create_dir_all(&directory).unwrap();
        for (name, bytes) in volume.image() {
            fs::write(directory.join(name.as_str()), bytes).unwrap();
        }
    }
}

#[test]
fn version_1_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !sample("v1").exists() {
        let volumes = mems(VOLUMES);
        block_on(write_v1(&volumes));
        save("v1", &volumes);
    }
    let volumes = load("v1");
    block_on(async {
        let report = Spread::inspect(&members(&volumes)).await.unwrap();
        assert_eq!((report.objects, report.findings), (4, vec![]));
        let pool = Spread::open(members(&volumes), opening("single")).await.unwrap();
        assert_eq!(pool.id(), POOL);
        let held = view(&pool).await.unwrap();
        let expected = [
            ("checkpoint/1/000001.sst", pattern(700)),
            ("kv/000001.sst", pattern(700)),
            ("kv/000002.sst", pattern(140_000)),
            ("kv/CURRENT", b"record".to_vec()),
            ("kv/data", pattern(50)),
        ];
        assert_eq!(held, expected.map(|(name, bytes)| (name.to_owned(), bytes)).into());
        let stat = pool.stat(&name("kv/000002.sst")).await.unwrap();
        assert_eq!(stat.layout.to_string(), "striped by 64 KiB over 2 0 1");
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        // And it can be used.
        put(&pool, "new", b"new").await.unwrap();
        assert_eq!(get(&pool, "new").await.unwrap(), b"new");
    });
}

#[test]
fn version_2_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !sample("v2").exists() {
        let volumes = mems(VOLUMES);
        block_on(write_v2(&volumes));
        save("v2", &volumes);
    }
    let volumes = load("v2");
    block_on(async {
        let report = Spread::inspect(&members(&volumes)).await.unwrap();
        assert_eq!((report.objects, report.findings), (3, vec![]));
        let pool = Spread::open(members(&volumes), opening("single")).await.unwrap();
        let held = view(&pool).await.unwrap();
        let expected = [
            ("kv/000001.sst", pattern(700)),
            ("kv/000002.sst", pattern(140_000)),
            ("kv/000003.log", b"record".to_vec()),
        ];
        assert_eq!(held, expected.map(|(name, bytes)| (name.to_owned(), bytes)).into());
        assert_eq!(places(&pool, "kv/000001.sst").await, [1, 2]);
        assert_eq!(places(&pool, "kv/000002.sst").await, [0, 1, 2]);
        assert_eq!(places(&pool, "kv/000003.log").await.len(), 2);
        let states: Vec<_> = pool.volumes().into_iter().map(|volume| volume.state).collect();
        use VolumeState::{Active, Draining};
        assert_eq!(states, [Active, Draining, Active]);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
    });
}

#[test]
fn version_3_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !sample("v3").exists() {
        let volumes = mems(VOLUMES);
        block_on(write_v3(&volumes));
        save("v3", &volumes);
    }
    let volumes = load("v3");
    block_on(async {
        let report = Spread::inspect(&members(&volumes)).await.unwrap();
        assert_eq!((report.objects, report.findings), (2, vec![]));
        let pool = Spread::open(members(&volumes), opening("single")).await.unwrap();
        for text in ["kv/000001.log", "kv/000002.log"] {
            assert_eq!(places(&pool, text).await.len(), 2);
            assert_eq!(get(&pool, text).await.unwrap(), b"record");
            let log = pool.open(&name(text)).await.unwrap();
            let refused = log.write_at(6, IoBuf::from(&b"more"[..]), IO).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        }
        assert!(pool.objects().iter().all(|object| object.sealed));
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
    });
}

#[test]
fn version_4_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !sample("v4").exists() {
        let volumes = mems(VOLUMES);
        block_on(write_v4(&volumes));
        save("v4", &volumes);
    }
    let volumes = load("v4");
    block_on(async {
        let report = Spread::inspect(&members(&volumes)).await.unwrap();
        assert_eq!((report.objects, report.findings), (2, vec![]));
        let pool = Spread::open(members(&volumes), opening("single")).await.unwrap();
        for text in ["device/000001", "device/000002"] {
            assert_eq!(places(&pool, text).await.len(), 2);
            assert_eq!(get(&pool, text).await.unwrap(), pattern(700));
            assert_eq!(pool.stat(&name(text)).await.unwrap().kind, Kind::InPlace);
            let object = pool.open(&name(text)).await.unwrap();
            object.align(0, 700, IO).await.unwrap();
        }
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
    });
}

#[test]
fn version_5_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !sample("v5").exists() {
        let volumes = mems(VOLUMES);
        block_on(write_v5(&volumes));
        save("v5", &volumes);
    }
    for away in [None, Some(0), Some(1), Some(2)] {
        let volumes = load("v5");
        let here = members(&volumes).into_iter().enumerate();
        let here = here.filter(|(at, _)| Some(*at) != away).map(|(_, member)| member).collect();
        block_on(async {
            let report = Spread::inspect(&members(&volumes)).await.unwrap();
            assert_eq!((report.objects, report.findings), (2, vec![]));
            let pool = Spread::open(here, opening("single").allow_away()).await.unwrap();
            for (text, len) in [("kv/000001.sst", 20_000), ("kv/000002.log", 9000)] {
                assert_eq!(get(&pool, text).await.unwrap(), pattern(len), "without {away:?}");
                let on = id_of(&pool, text).await;
                let layouts = pool.copies_of(on).into_iter().map(|placed| placed.layout);
                let codes = layouts.filter_map(|layout| Some(layout.fragment()?.code));
                assert_eq!(codes.collect::<Vec<_>>(), [small_code(); 3]);
            }
            if away.is_none() {
                assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
            }
        });
    }
}

/// The log of objects in place, version 1: blocks in place and others that are not, and zeros.
async fn write_log1(volumes: &[Mem]) {
    let pool = Spread::open(members(volumes), opening("single").code(small_code())).await.unwrap();
    let logged = Logged::open(pool, logged::Options::default()).await.unwrap();
    let object = logged.create(&name("device/000001"), &Intent::IN_PLACE).await.unwrap();
    object.write_durable(0, IoBuf::from(&pattern(40_000)[..]), IO).await.unwrap();
    object.zero(4096, 4096, Zeros::Free, IO).await.unwrap();
    object.write_durable(8000, IoBuf::from(&b"newer"[..]), IO).await.unwrap();
    logged.drain().await.unwrap();
    object.write_durable(20_000, IoBuf::from(&b"last"[..]), IO).await.unwrap();
}

#[test]
fn version_1_of_the_log_of_objects_in_place_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !sample("log1").exists() {
        let volumes = mems(VOLUMES);
        block_on(write_log1(&volumes));
        save("log1", &volumes);
    }
    let mut expected = pattern(40_000);
    expected[4096..8192].fill(0);
    expected[8000..8005].copy_from_slice(b"newer");
    expected[20_000..20_004].copy_from_slice(b"last");
    for away in [None, Some(0), Some(1), Some(2)] {
        let volumes = load("log1");
        let here = members(&volumes).into_iter().enumerate();
        let here = here.filter(|(at, _)| Some(*at) != away).map(|(_, member)| member).collect();
        block_on(async {
            let pool = Spread::open(here, opening("single").allow_away()).await.unwrap();
            let logged = Logged::open(pool, logged::Options::default()).await.unwrap();
            let object = logged.open(&name("device/000001")).await.unwrap();
            assert!(read_all(&*object).await.unwrap() == expected, "without {away:?}");
            assert!(logged.figures().blocks > 0);
        });
    }
}

#[test]
fn a_log_of_a_later_version_is_refused() {
    let volumes = load("log1");
    let is_log = |bytes: &[u8]| bytes.starts_with(b"plimupd1");
    for mem in &volumes {
        let logs = mem.image().into_iter().filter(|(_, bytes)| is_log(bytes));
        logs.for_each(|(leaf, _)| mem.damage(&leaf, 7, |byte| *byte = b'2'));
    }
    let refused = block_on(async {
        let pool = Spread::open(members(&volumes), opening("single")).await.unwrap();
        Logged::open(pool, logged::Options::default()).await.err().unwrap()
    });
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

#[test]
fn a_later_version_is_refused_by_name() {
    let volumes = load("v1");
    // A newer version of the header, with a valid checksum.
    let header = name("pool.header");
    for slot in [0, 4096] {
        let bytes = volumes[0].image()[&header].clone();
        let mut page = bytes[slot..slot + 4096].to_vec();
        page[8] = 2;
        let checksum = crc32c::crc32c(&page[..4092]).to_le_bytes();
        volumes[0].damage(&header, slot as u64 + 8, |byte| *byte = 2);
        for (i, new) in checksum.into_iter().enumerate() {
            volumes[0].damage(&header, (slot + 4092 + i) as u64, |byte| *byte = new);
        }
    }
    let refused = block_on(Spread::open(members(&volumes), opening("single")));
    let e = refused.err().expect("a later version is not opened");
    assert_eq!(e.kind(), ErrorKind::Invalid);
    assert!(e.to_string().contains("volume s0: its header has format 2"), "{e}");
}
