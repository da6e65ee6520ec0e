//! The cost of a hit's bookkeeping in a cache tier: reads of 512 B of hot pages on volumes in memory, through the tier and
//! directly, by one thread and by two. The difference is what the tier adds: finding the unit, the policy's bit, the
//! filter's batch, the pins. Pages of 1 MiB stay in the processor's cache. Those of 64 MiB do not: there the tier also makes
//! the processor wait for memory that it fetches ahead in direct reads, one after the other.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_util::FutureExt;
use policy::purpose::{Origin, Step};
use policy::units::{GIB, MIB};
use pool::tier::{Options, Promotion, Tier};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Intent, Io, IoBuf, IoBufMut, Name, Object, Volume};

const LEN: u64 = 64 * MIB;

/// Bytes whose pages are read.
const HOT: [u64; 2] = [MIB, LEN];
const READ: usize = 512;
const IO: Io = Io::new(Origin::UserRead, Step::Data);

async fn filled(volume: &dyn Volume) -> Arc<dyn Object> {
    let name = Name::new("a").expect("a name");
    let object = volume.create(&name, &Intent::DATA).await.expect("a volume in memory");
    object.write_at(0, IoBuf::from(&vec![7; LEN as usize][..]), IO).await.expect("room");
    object.sync(IO).await.expect("a volume in memory");
    object
}

/// A tier of which all of an object is cached.
fn warm(promotion: Promotion) -> (Tier, Arc<dyn Object>) {
    let clock = Clock::real();
    block_on(async {
        let options = Options { queue_bytes: GIB, ..Options::new(2 * LEN, 1) };
        let admit = promotion.admit(&options, clock.now());
        let (slow, fast) = (Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")));
        let tier = Tier::open(slow, Some(fast), options, admit, &clock).await.expect("blank");
        let object = filled(&tier).await;
        // Twice, and never in a sequence.
        for unit in (0..LEN / MIB).rev().chain((0..LEN / MIB).rev()) {
            let read = object.read_at(unit * MIB, IoBufMut::zeroed(MIB as usize), IO).await;
            read.expect("volumes in memory");
            tier.install_all().await;
        }
        assert_eq!(tier.figures().cached_bytes, LEN, "all of it is warm");
        (tier, object)
    })
}

fn read(object: &dyn Object, hot: u64, count: u64, from: u64) {
    let mut into = IoBufMut::zeroed(READ);
    for i in 0..count {
        let offset = (from + i * 7919) % (hot / 4096) * 4096;
        // Memory answers at once.
        let read = object.read_at(offset, into, IO).now_or_never();
        into = read.expect("it is ready").expect("volumes in memory");
    }
}

/// The time that `threads` need for `count` reads each.
fn timed(object: &Arc<dyn Object>, hot: u64, threads: u64, count: u64) -> Duration {
    let begin = Instant::now();
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || read(&**object, hot, count, number * 1000));
        }
    });
    begin.elapsed()
}

fn hits(c: &mut Criterion) {
    let direct = block_on(filled(&Mem::new("fast")));
    let [demand, lazy] = [Promotion::Demand, Promotion::Lazy].map(warm);
    for hot in HOT {
        let mut group = c.benchmark_group(format!("512 B of pages of {} MiB", hot / MIB));
        for threads in [1, 2] {
            for (what, object) in
                [("directly", &direct), ("tier, demand", &demand.1), ("tier, lazy", &lazy.1)]
            {
                group.bench_function(BenchmarkId::new(what, threads), |b| {
                    b.iter_custom(|count| timed(object, hot, threads, count));
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, hits);
criterion_main!(benches);
