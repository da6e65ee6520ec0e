//! Random 4 KiB reads by blocking threads: through a directory volume, and the obvious way, `pread` on
//! the same file with `O_DIRECT`.
//!
//! Both ways read in alternate turns of a few reads, so that outside load on the machine and its device affects both
//! alike. The last lines compare the medians of these turns: the speed of the volume, where 1 is that of plain `pread`.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use policy::purpose::{Origin, Step};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::dir::{Dir, DirOptions};
use volume::task::block_on;
use volume::{Intent, Io, IoBufMut, Name, Object, Volume};

const READ: usize = 4096;
const FILE_READS: u64 = 65_536;
const TURN: u64 = 32;
const IO: Io = Io::new(Origin::UserRead, Step::Data);

struct Ways {
    object: Arc<dyn Object>,
    plain: File,
}

/// Time spent on the same reads, turn by turn.
#[derive(Default)]
struct Turns {
    volume: Vec<Duration>,
    plain: Vec<Duration>,
}

impl Turns {
    fn add(&mut self, other: Self) {
        self.volume.extend(other.volume);
        self.plain.extend(other.plain);
    }

    fn speed_of_volume(&mut self) -> f64 {
        let [volume, plain] = [&mut self.volume, &mut self.plain].map(|turns| {
            let middle = turns.len() / 2;
            turns.select_nth_unstable(middle).1.as_secs_f64()
        });
        plain / volume
    }
}

impl Ways {
    fn prepare(path: &Path) -> Self {
        let dir = Dir::open(path, DirOptions::default()).expect("a directory to read in");
        assert!(dir.is_direct(), "without O_DIRECT this would measure the page cache");
        let name = Name::new("reads").expect("a valid name");
        let len = FILE_READS * READ as u64;
        let intent = Intent { len: Some(len), ..Intent::DATA };
        let object = block_on(dir.create(&name, &intent)).expect("a new object");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let piece = 1 << 20;
        for offset in (0..len).step_by(piece) {
            let mut data = IoBufMut::zeroed(piece);
            rng.fill(&mut data[..]);
            block_on(object.write_at(offset, data.freeze(), IO)).expect("room for the file");
        }
        block_on(object.sync(IO)).expect("a device that syncs");
        let plain = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(path.join("objects/reads"))
            .expect("the object's file");
        Self { object, plain }
    }

    /// `reads` reads each way.
    fn take_turns(&self, seed: u64, reads: u64) -> Turns {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut turns = Turns::default();
        let mut buf = IoBufMut::zeroed(READ);
        let mut left = reads;
        while left > 0 {
            let turn = left.min(TURN);
            left -= turn;
            let offsets: Vec<u64> =
                (0..turn).map(|_| rng.random_range(0..FILE_READS) * READ as u64).collect();
            // The order alternates, because the second way may find warm caches.
            for way in [0, 1].map(|way| (way + left / TURN) % 2) {
                let start = Instant::now();
                if way == 0 {
                    for &offset in &offsets {
                        let read = block_on(self.object.read_at(offset, buf, IO));
                        buf = black_box(read.expect("a readable object"));
                    }
                    turns.volume.push(start.elapsed());
                } else {
                    for &offset in &offsets {
                        self.plain.read_exact_at(&mut buf, offset).expect("a readable file");
                        black_box(&buf);
                    }
                    turns.plain.push(start.elapsed());
                }
            }
        }
        turns
    }

    /// `reads` each way by each of `threads`.
    fn run(&self, threads: u64, reads: u64) -> Turns {
        std::thread::scope(|scope| {
            let start = |seed| scope.spawn(move || self.take_turns(seed, reads));
            let running: Vec<_> = (0..threads).map(start).collect();
            running.into_iter().fold(Turns::default(), |mut all, thread| {
                all.add(thread.join().expect("a thread that reads"));
                all
            })
        })
    }
}

fn reads(c: &mut Criterion) {
    // Beside the program: on the device the build is on, never in a memory file system.
    let program = std::env::current_exe().expect("a program knows its file");
    let temp = tempfile::TempDir::new_in(program.parent().expect("a program is in a directory"));
    let temp = temp.expect("room beside the program");
    let ways = Ways::prepare(temp.path());
    let mut group = c.benchmark_group("random 4 KiB reads");
    group.throughput(Throughput::Elements(1));
    let mut speeds = Vec::new();
    for threads in [1, 4] {
        let mut all = Turns::default();
        let mut measure = |reads: u64, way: fn(&Turns) -> &[Duration]| {
            let turns = ways.run(threads, reads);
            let mean = way(&turns).iter().sum::<Duration>() / threads as u32;
            all.add(turns);
            mean
        };
        group.bench_function(BenchmarkId::new("dir", threads), |b| {
            b.iter_custom(|reads| measure(reads, |turns| &turns.volume));
        });
        group.bench_function(BenchmarkId::new("pread", threads), |b| {
            b.iter_custom(|reads| measure(reads, |turns| &turns.plain));
        });
        speeds.push((threads, all.speed_of_volume()));
    }
    group.finish();
    for (threads, speed) in speeds {
        println!("dir, {threads} thread(s): {speed:.3} of pread (target: at least 0.97)");
    }
}

criterion_group!(benches, reads);
criterion_main!(benches);
