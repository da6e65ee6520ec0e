//! The cost of counting heat for a read that goes to a volume: reads of 4 KiB of a table in memory, of
//! origin `UserRead`, which count, and `Bulk`, which do not. By one thread, and by four of the same table.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use policy::intent::{Family, Kind};
use policy::placement::Single;
use policy::purpose::{Origin, Step};
use policy::units::MIB;
use pool::spread::{Handle, Opening, Spread};
use pool::{Member, PoolId};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Intent, Io, IoBuf, Name, Object};

const LEN: u64 = 8 * MIB;

fn table() -> Arc<Handle> {
    let name = Name::new("kv/1.sst").expect("a name");
    let kind = Kind::Table { family: Family("kv".into()), level: None, range: None };
    let intent = Intent { kind, len: Some(LEN), ..Intent::DATA };
    let io = Io::new(Origin::Flush, Step::Data);
    block_on(async {
        let members = vec![Member::new("a", Mem::new("a"))];
        let opening = Opening::new(Single).create_if_missing(PoolId(1));
        let pool = Spread::open(members, opening).await.expect("blank volumes");
        let data = IoBuf::from(&vec![7; LEN as usize][..]);
        pool.write_whole(&name, &intent, data, io).await.expect("room");
        Arc::new(pool.open_handle(&name).await.expect("it is there"))
    })
}

fn read(table: &Handle, count: u64, origin: Origin) {
    let mut into = [0; 4096];
    for i in 0..count {
        let offset = i * 7919 % (LEN / 4096) * 4096;
        table.blocking_read_at(offset, &mut into, Io::new(origin, Step::Data)).expect("a read");
    }
}

/// The time that `threads` need for `count` reads each.
fn timed(table: &Arc<Handle>, threads: u32, count: u64, origin: Origin) -> Duration {
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| read(table, count, origin));
        }
    });
    begin.elapsed()
}

fn reads(c: &mut Criterion) {
    let table = table();
    let mut group = c.benchmark_group("read 4 KiB");
    for threads in [1, 4] {
        for (what, origin) in [("counted", Origin::UserRead), ("not counted", Origin::Bulk)] {
            group.bench_function(BenchmarkId::new(what, threads), |b| {
                b.iter_custom(|count| timed(&table, threads, count, origin));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, reads);
criterion_main!(benches);
