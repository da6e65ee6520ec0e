//! Stored bytes of a log store: samples of the format, and what survives changes to them.
//!
//! `WRITE_SAMPLE=1` writes the sample of the current version if there is none; an existing one is never changed.

mod entry;

use std::path::PathBuf;

use bytes::Bytes;
use engine::log::{Edit, Member, Options, Store};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::mem::{Image, Mem};
use volume::{Clock, Name};

fn testdata(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/log").join(file)
}

/// The objects of the sample store.
const OBJECTS: [(&str, &str); 3] = [
    ("log/store", "v1.store"),
    ("log/0000000001.seg", "v1.seg"),
    ("log/0000000001.hint", "v1.hint"),
];

fn sample() -> Image {
    let read = |(name, file): &(&str, &str)| {
        let bytes = std::fs::read(testdata(file)).expect("a sample in testdata");
        (Name::new(name).expect("a good name"), bytes)
    };
    OBJECTS.iter().map(read).collect()
}

fn options() -> Options {
    let mut options = Options::new(1);
    options.file_bytes = 64 << 10;
    options.groups = 1;
    options
}

fn write_sample() {
    let mem = Mem::new("v");
    let clock = Clock::simulated();
    let made = clock.run(async {
        let members = vec![Member::new("v", mem.clone())];
        let (store, _) = Store::open(members, options(), clock.clone(), Some(entry::ID)).await?;
        store.put(b"depth", Bytes::from_static(b"12 fathoms"), Some(5_000)).await?;
        store.put(b"wind", Bytes::from_static(b"SW 4"), None).await?;
        let edit = |key, value| Edit::Put {
            key: Bytes::from_static(key),
            value: Bytes::from_static(value),
            lives: None,
        };
        store.write(vec![edit(b"lat", b"54 N"), edit(b"lon", b"10 E")]).await?;
        store.delete(b"wind").await?;
        store.close().await
    });
    made.expect("memory does not fail");
    let image = mem.image();
    for (name, file) in OBJECTS {
        let bytes = &image[&Name::new(name).expect("a good name")];
        std::fs::write(testdata(file), bytes).expect("testdata can be written");
    }
    let object = |name: &str| image[&Name::new(name).expect("a good name")].clone();
    let found = input(&object("log/0000000001.hint"), &object("log/0000000001.seg"));
    std::fs::create_dir_all(testdata("fuzz")).expect("testdata can be written");
    std::fs::write(testdata("fuzz/v1"), found).expect("testdata can be written");
}

/// The input of [`entry::run`].
fn input(hint: &[u8], file: &[u8]) -> Vec<u8> {
    let len = u16::try_from(hint.len()).expect("a short hint");
    [&len.to_le_bytes()[..], hint, file].concat()
}

#[test]
fn the_sample_of_version_1_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !testdata("v1.seg").exists() {
        write_sample();
    }
    for hint in [true, false] {
        let mut image = sample();
        if !hint {
            image.remove("log/0000000001.hint");
        }
        let clock = Clock::simulated();
        let found = clock.run(async {
            let members = vec![Member::new("v", Mem::from_image("v", image))];
            let (store, report) = Store::open(members, options(), clock.clone(), None).await?;
            assert_eq!((report.files, report.damage), (1, vec![]));
            let mut found = Vec::new();
            let mut iter = store.iter(b"");
            while let Some((key, value)) = iter.next().await? {
                found.push((key.to_vec(), value.to_vec()));
            }
            Ok::<_, volume::Error>(found)
        });
        let text = |(key, value): &(Vec<u8>, Vec<u8>)| {
            format!("{}: {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
        };
        let found: Vec<_> = found.expect("it opens").iter().map(text).collect();
        assert_eq!(found, ["depth: 12 fathoms", "lat: 54 N", "lon: 10 E"]);
    }
}

#[test]
fn bytes_of_any_kind_do_no_harm() {
    let image = sample();
    let object = |name: &str| image[&Name::new(name).expect("a good name")].clone();
    let (file, hint) = (object("log/0000000001.seg"), object("log/0000000001.hint"));
    entry::run(&input(&hint, &file));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for round in 0..400 {
        let mut data = input(if round % 2 == 0 { &hint } else { &[] }, &file);
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..data.len());
            match random.random_range(0..4) {
                0 => data.truncate(at.max(2)),
                1 => data.extend_from_within(at..),
                2 => data[at] = random.random(),
                _ => data[at] ^= 1 << random.random_range(0..8),
            }
        }
        entry::run(&data);
    }
}
