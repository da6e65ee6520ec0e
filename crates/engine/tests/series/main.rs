//! Stored bytes of a store of points: a sample of each version of the format still opens.
//!
//! `WRITE_SAMPLE=1` writes the sample of the current version if there is none; an existing one is never changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::log::StoreId;
use engine::series::store::{Options, Store};
use engine::series::{
    Batch, Database, Durability, Kind, Result, Scalar, Scan, Selector, Series, Session, Span, Value,
};
use volume::mem::{Image, Mem};
use volume::{Clock, Name, Volume};

const ID: StoreId = StoreId([5; 16]);
const SECOND: i64 = 1_000_000_000;

fn testdata(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/series").join(version)
}

fn options() -> Options {
    let mut options = Options::new(1);
    options.durability = Durability::Always;
    options.buffer_bytes = 64 << 10;
    options.wal_bytes = 64 << 10;
    options.log.file_bytes = 64 << 10;
    options.log.groups = 1;
    options
}

/// The objects of a volume, each in a file of its own.
fn read(dir: &Path) -> Image {
    let mut image = Image::new();
    for store in std::fs::read_dir(dir).expect("the sample is in the repository") {
        let store = store.expect("a directory");
        for file in std::fs::read_dir(store.path()).expect("objects") {
            let file = file.expect("an object");
            let name = [store.file_name(), file.file_name()].map(|name| name.into_string());
            let name = name.map(|name| name.expect("UTF-8")).join("/");
            let bytes = std::fs::read(file.path()).expect("an object");
            image.insert(Name::new(&name).expect("a good name"), bytes);
        }
    }
    image
}

async fn open(mem: &Mem, clock: &Clock, create: Option<StoreId>) -> Result<Store> {
    let volume: Arc<dyn Volume> = Arc::new(mem.clone());
    let opened = Store::open(vec![("v".into(), volume)], options(), clock.clone(), create).await;
    let (store, report) = opened?;
    assert!(report.damage.is_empty(), "{report:?}");
    Ok(store)
}

fn session(sequence: u64) -> Option<Session> {
    Some(Session { client: "ship".into(), sequence })
}

/// The value of a field at the n-th second.
fn value(field: &str, n: i64) -> Scalar {
    match field {
        "float" => Scalar::Float((n * n % 97) as f64 / 10.0),
        "full" => Scalar::Float((n as f64 * 0.7).sin()),
        "integer" => Scalar::Integer(n * 1_000_003 - 7),
        "unsigned" => Scalar::Unsigned(u64::MAX - n as u64),
        "boolean" => Scalar::Boolean(n % 3 == 0),
        _ => Scalar::Text(format!("watch {}, ü", n % 5).into()),
    }
}

const FIELDS: [&str; 6] = ["boolean", "float", "full", "integer", "text", "unsigned"];
/// Sources, and the number of their rows in the sample.
const SOURCES: [(&str, i64); 3] = [("bow", 400), ("stern", 30), ("mast", 12)];

/// Rows of every source, for some seconds.
fn rows(from: i64, to: i64) -> Batch {
    let mut batch = Batch::new("harbour");
    for (source, count) in SOURCES {
        for n in from..to.min(count) {
            batch.begin("deck, port");
            batch.tag("at", source);
            batch.tag("k=", "ü ,");
            for field in FIELDS {
                // Some have gaps.
                if field != "text" || n % 2 == 0 {
                    batch.field(field, value(field, n).as_value());
                }
            }
            batch.end(n * SECOND).expect("a good row");
        }
    }
    batch
}

fn write_sample() {
    let (mem, clock) = (Mem::new("v"), Clock::simulated());
    let made = clock.run(async {
        let store = open(&mem, &clock, Some(ID)).await?;
        let keep = Some(std::time::Duration::from_secs(1 << 30));
        store.create_database(Database { name: "harbour".into(), keep }).await?;
        // Blocks of one source and of several, then rows that are in the log alone, with a delete.
        store.write(rows(0, 200), session(1)).await?;
        store.flush().await?;
        store.write(rows(200, 400), session(2)).await?;
        let mut batch = Batch::new("harbour");
        batch.begin("gone");
        batch.field("v", Value::Integer(1));
        batch.end(7).expect("a good row");
        store.write(batch, session(4)).await?;
        store.delete(Selector::all("harbour").of("gone"), Span::ALL).await?;
        Ok::<_, engine::series::Error>(())
    });
    made.expect("memory does not fail");
    keep(&mem, "v1");
}

/// Stores the objects of a volume as a crash leaves them.
fn keep(mem: &Mem, version: &str) {
    for (name, bytes) in mem.image() {
        let path = testdata(version).join(name.as_str());
        std::fs::create_dir_all(path.parent().expect("in a directory")).expect("room");
        std::fs::write(path, bytes).expect("room");
    }
}

#[test]
fn the_sample_of_version_1_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !testdata("v1").exists() {
        write_sample();
    }
    let (mem, clock) = (Mem::from_image("v", read(&testdata("v1"))), Clock::simulated());
    let checked = clock.run(async {
        let store = open(&mem, &clock, None).await?;
        assert_eq!(store.databases()[0].keep, Some(std::time::Duration::from_secs(1 << 30)));
        let all = Selector::all("harbour").of("deck, port");
        let kinds = store.fields("harbour", "deck, port")?.into_iter().map(|(_, kind)| kind);
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [Kind::Boolean, Kind::Float, Kind::Float, Kind::Integer, Kind::Text, Kind::Unsigned]
        );
        let series = store.find(&all, None, 100)?;
        assert_eq!(series.len(), SOURCES.len() * FIELDS.len());
        for info in series {
            assert_eq!(info.tag("k="), "ü ,");
            let (_, count) =
                SOURCES.into_iter().find(|(at, _)| *at == info.tag("at")).expect("one");
            let mut found = Vec::new();
            let mut cursor = store.read(info.id, Scan::of(Span::ALL));
            while let Some(points) = cursor.next().await? {
                found.extend(points.iter().map(|(time, value)| (time, value.to_scalar())));
            }
            let wanted = (0..count).filter(|n| &*info.field != "text" || n % 2 == 0);
            let wanted: Vec<_> = wanted.map(|n| (n * SECOND, value(&info.field, n))).collect();
            assert_eq!(found, wanted, "{info:?}");
        }
        let gone = store.find(&Selector::all("harbour").of("gone"), None, 2)?;
        assert!(store.read(gone[0].id, Scan::of(Span::ALL)).next().await?.is_none());
        for (sequence, repeated) in [(1, true), (2, true), (3, false), (4, true)] {
            let written = store.write(rows(0, 1), session(sequence)).await?;
            assert_eq!(written.repeated, repeated, "{sequence}");
        }
        store.close().await
    });
    checked.expect("it opens");
}

/// The number of fields of version 2's rows; each row has one.
const SPARSE: i64 = 40;

fn sparse_field(n: i64) -> String {
    format!("f{:02}", n % SPARSE)
}

/// One field a row, all different: blocks whose columns list the rows they have.
fn sparse_rows() -> Batch {
    let mut batch = Batch::new("harbour");
    for n in 0..400 {
        batch.begin("log");
        batch.tag("at", "bow");
        batch.field(&sparse_field(n), Value::Float(n as f64 / 4.0));
        batch.end(n * SECOND).expect("a good row");
    }
    batch
}

fn write_sparse_sample() {
    let (mem, clock) = (Mem::new("v"), Clock::simulated());
    let made = clock.run(async {
        let store = open(&mem, &clock, Some(ID)).await?;
        store.create_database(Database { name: "harbour".into(), keep: None }).await?;
        store.write(sparse_rows(), None).await?;
        store.flush().await
    });
    made.expect("memory does not fail");
    keep(&mem, "v2");
}

#[test]
fn the_sample_of_blocks_of_version_2_opens() {
    if std::env::var_os("WRITE_SAMPLE").is_some() && !testdata("v2").exists() {
        write_sparse_sample();
    }
    let image = read(&testdata("v2"));
    // A block's version follows its magic and checksum.
    let is_of_version_2 =
        |bytes: &[u8]| bytes.windows(9).any(|window| window.starts_with(b"PlSe") && window[8] == 2);
    assert!(image.values().any(|bytes| is_of_version_2(bytes)), "it is about such blocks");
    let (mem, clock) = (Mem::from_image("v", image), Clock::simulated());
    let checked = clock.run(async {
        let store = open(&mem, &clock, None).await?;
        let series = store.find(&Selector::all("harbour"), None, 1000)?;
        assert_eq!(series.len() as i64, SPARSE);
        for info in series {
            let mut found = Vec::new();
            let mut cursor = store.read(info.id, Scan::of(Span::ALL));
            while let Some(points) = cursor.next().await? {
                found.extend(points.iter().map(|(time, value)| (time, value.to_scalar())));
            }
            let wanted = (0..400).filter(|&n| *info.field == *sparse_field(n));
            let wanted: Vec<_> =
                wanted.map(|n| (n * SECOND, Scalar::Float(n as f64 / 4.0))).collect();
            assert_eq!(found, wanted, "{info:?}");
        }
        store.close().await
    });
    checked.expect("it opens");
}
