//! The cost of a point in a store of points: of accepting it, of writing it to a block, and of reading it back; and the
//! time of a start after a crash.
//!
//! Rows are those of the Time Series Benchmark Suite's `cpu-only`: ten tags, and ten fields with random walks. The
//! volume is memory, and nothing is synced: only the processor's time counts. `cargo bench -p plimsoll-engine --bench
//! series`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::log::{Durability, StoreId};
use engine::series::store::{Options, Store};
use engine::series::{Batch, Database, Scan, Selector, Series, Span, Value};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Volume};

const FIELDS: usize = 10;
const ROWS: usize = 5000;
const SECOND: i64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Readings {
    Integers,
    Decimals,
    Doubles,
}

/// Rows of hosts that report in turn.
struct Load {
    readings: Readings,
    random: Xoshiro256PlusPlus,
    walks: Vec<[f64; FIELDS]>,
    row: usize,
}

impl Load {
    fn new(readings: Readings, hosts: usize) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        Self { readings, random, walks: vec![[50.0; FIELDS]; hosts], row: 0 }
    }

    fn batch(&mut self) -> Batch {
        let mut batch = Batch::new("db");
        for _ in 0..ROWS {
            let host = self.row % self.walks.len();
            let time = (self.row / self.walks.len()) as i64 * 10 * SECOND;
            self.row += 1;
            batch.begin("cpu");
            batch.tag("hostname", &format!("host_{host}"));
            for tag in
                ["arch", "datacenter", "os", "rack", "region", "service", "team", "version", "zone"]
            {
                batch.tag(tag, TAGS[host % TAGS.len()]);
            }
            for (field, walk) in NAMES.iter().zip(&mut self.walks[host]) {
                let step = (0..4).map(|_| self.random.random::<f64>() - 0.5).sum::<f64>() * 1.7;
                *walk = (*walk + step).clamp(0.0, 100.0);
                let value = match self.readings {
                    Readings::Integers => Value::Integer(*walk as i64),
                    Readings::Decimals => Value::Float((*walk * 100.0).round() / 100.0),
                    Readings::Doubles => Value::Float(*walk),
                };
                batch.field(field, value);
            }
            batch.end(time).expect("a valid row");
        }
        batch
    }
}

const TAGS: [&str; 5] = ["x64", "eu-west-1a", "Ubuntu16.10", "staging", "SF"];
const NAMES: [&str; FIELDS] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

fn store(buffer: u64) -> Store {
    let store = store_on(&Mem::new("v0"), buffer);
    block_on(store.create_database(Database { name: "db".into(), keep: None }))
        .expect("a database");
    store
}

/// The store on a volume, which may be new.
fn store_on(volume: &Mem, buffer: u64) -> Store {
    let mut options = Options::new(1);
    options.durability = Durability::Never;
    options.buffer_bytes = buffer;
    let volume: Arc<dyn Volume> = Arc::new(volume.clone());
    let opening =
        Store::open(vec![("v0".into(), volume)], options, Clock::real(), Some(StoreId([1; 16])));
    block_on(opening).expect("a store").0
}

/// Accepts rows: into the log and the buffers.
fn ingest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ingest");
    group.throughput(Throughput::Elements((ROWS * FIELDS) as u64));
    for hosts in [100, 100_000] {
        group.bench_function(BenchmarkId::new("a batch", format!("{hosts} hosts")), |bencher| {
            bencher.iter_custom(|rounds| {
                let store = store(8 << 30);
                let mut load = Load::new(Readings::Integers, hosts);
                // Let the store know every host.
                for _ in 0..hosts.div_ceil(ROWS) {
                    block_on(store.write(load.batch(), None)).expect("written");
                }
                let mut took = Duration::ZERO;
                for _ in 0..rounds {
                    let batch = load.batch();
                    let start = Instant::now();
                    block_on(store.write(batch, None)).expect("written");
                    took += start.elapsed();
                }
                took
            });
        });
    }
}

/// Writes buffers as blocks, and reads one field back.
fn blocks(criterion: &mut Criterion) {
    const BATCHES: usize = 20;
    for readings in [Readings::Integers, Readings::Decimals, Readings::Doubles] {
        let mut group = criterion.benchmark_group(format!("{readings:?}"));
        let points = (ROWS * FIELDS * BATCHES) as u64;
        let filled = || {
            let store = store(8 << 30);
            let mut load = Load::new(readings, 25);
            for _ in 0..BATCHES {
                block_on(store.write(load.batch(), None)).expect("written");
            }
            store
        };
        group.sample_size(10).throughput(Throughput::Elements(points));
        group.bench_function("rows to blocks", |bencher| {
            bencher.iter_custom(|rounds| {
                let mut took = Duration::ZERO;
                for _ in 0..rounds {
                    let store = filled();
                    let start = Instant::now();
                    block_on(store.flush()).expect("flushed");
                    took += start.elapsed();
                }
                took
            });
        });
        let store = filled();
        block_on(store.flush()).expect("flushed");
        let bytes = store.figures().block_bytes;
        println!("{readings:?}: {:.2} bytes a point", bytes as f64 / points as f64);
        let field = Selector::all("db").field(NAMES[3]);
        let series = store.find(&field, None, 1).expect("there are series")[0].id;
        group.throughput(Throughput::Elements((ROWS * BATCHES / 25) as u64));
        group.bench_function("a series read", |bencher| {
            bencher.iter(|| {
                let mut cursor = store.read(series, Scan::of(Span::ALL));
                let mut count = 0;
                while let Some(points) = block_on(cursor.next()).expect("read") {
                    count += points.len();
                }
                assert_eq!(count, ROWS * BATCHES / 25);
            });
        });
    }
}

/// Reads the newest row of every host, as `lastpoint` of the Time Series Benchmark Suite does: field by field, and the
/// fields of a host side by side.
fn last(criterion: &mut Criterion) {
    const HOSTS: usize = 1000;
    let store = store(8 << 30);
    let mut load = Load::new(Readings::Integers, HOSTS);
    // Some rows are in blocks, some in buffers.
    for batch in 0..20 {
        block_on(store.write(load.batch(), None)).expect("written");
        if batch == 9 {
            block_on(store.flush()).expect("flushed");
        }
    }
    let infos = store.find(&Selector::all("db"), None, usize::MAX).expect("there are series");
    let ids: Vec<_> = infos.iter().map(|info| info.id).collect();
    let scan = Scan { descending: true, limit: 1, ..Scan::of(Span::ALL) };
    let mut group = criterion.benchmark_group("the last of every series");
    group.throughput(Throughput::Elements(ids.len() as u64));
    group.bench_function("one by one", |bencher| {
        bencher.iter(|| {
            for &id in &ids {
                let points = block_on(store.read(id, scan).next()).expect("read");
                assert_eq!(points.map(|points| points.len()), Some(1));
            }
        });
    });
    group.bench_function("side by side", |bencher| {
        bencher.iter(|| {
            for ids in ids.chunks(FIELDS) {
                let columns = block_on(store.read_columns(ids, scan).next()).expect("read");
                assert_eq!(columns.map(|columns| columns.len()), Some(FIELDS));
            }
        });
    });
}

/// Opens a store whose process was killed: reads and replays 120 MiB of write-ahead log.
fn start(criterion: &mut Criterion) {
    const LOG_BYTES: u64 = 120 << 20;
    let mut group = criterion.benchmark_group("a start after a kill");
    group.throughput(Throughput::Bytes(LOG_BYTES));
    for (readings, hosts) in
        [(Readings::Integers, 1000), (Readings::Doubles, 1000), (Readings::Integers, 100_000)]
    {
        let volume = Mem::new("v0");
        let store = store_on(&volume, 256 << 20);
        block_on(store.create_database(Database { name: "db".into(), keep: None }))
            .expect("a database");
        let mut load = Load::new(readings, hosts);
        let segments = |volume: &Mem| -> u64 {
            let listed = block_on(volume.list()).expect("a volume in memory");
            let segments = listed.iter().filter(|listed| listed.name.as_str().contains("-wal/"));
            segments.map(|listed| listed.len).sum()
        };
        while segments(&volume) < LOG_BYTES {
            block_on(store.write(load.batch(), None)).expect("written");
        }
        group.bench_function(BenchmarkId::new(format!("{readings:?}"), hosts), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut took = Duration::ZERO;
                for _ in 0..rounds {
                    let volume = volume.fork("v0");
                    let start = Instant::now();
                    let store = store_on(&volume, 256 << 20);
                    took += start.elapsed();
                    assert_eq!(store.figures().blocks, 0, "a start writes no blocks");
                }
                took
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500)).sample_size(10);
    targets = ingest, blocks, last, start
}
criterion_main!(benches);
