//! What a limit on each call costs a thread that blocks: by `io_uring`, and by another thread and back.
//!
//! `cargo bench -p plimsoll-volume --bench deadline`. All ways use the same directory on the device that the build is
//! on. Reads and durable writes are of the device. An append to a log goes to the page cache, through a thread in both
//! ways, and shows the hop between the threads.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use policy::purpose::{Origin, Step};
use volume::buf::with_scratch;
use volume::dir::{Dir, DirOptions};
use volume::io_pool::{IoPool, THREADS};
use volume::layer::deadline::{Deadline, LIMIT};
use volume::task::block_on;
use volume::{Clock, Intent, Io, IoBufMut, Name, Volume};

const IO: Io = Io::new(Origin::UserWrite, Step::Log);
const PAGE: usize = 4096;
const PAGES: u64 = 16_384;
const RECORD: [u8; 256] = [7; 256];
/// A log begins anew at this length.
const LOG_MAX: u64 = 64 << 20;

fn measure(c: &mut Criterion, way: &str, volume: &dyn Volume) {
    let create = |text: &str, intent: &Intent| {
        let name = Name::new(text).expect("a good name");
        block_on(volume.create(&name, intent)).expect("a new object")
    };
    let data = create("data", &Intent::DATA);
    let piece = IoBufMut::zeroed(PAGE * 256).freeze();
    for at in 0..PAGES / 256 {
        let written = block_on(data.write_at(at * piece.len() as u64, piece.clone(), IO));
        written.expect("room for the object");
    }
    let mut page = 0;
    c.bench_function(&format!("read 4 KiB, {way}"), |b| {
        b.iter(|| {
            page = (page + 7919) % PAGES;
            with_scratch(PAGE, |into| data.blocking_read_at(page * PAGE as u64, into, IO))
        });
    });
    let one = piece.slice(0..PAGE);
    c.bench_function(&format!("write 4 KiB durably, {way}"), |b| {
        b.iter(|| {
            page = (page + 7919) % PAGES;
            block_on(data.write_durable(page * PAGE as u64, one.clone(), IO)).expect("room");
        });
    });
    let log = create("a.log", &Intent::LOG);
    let mut at = 0;
    c.bench_function(&format!("append 256 B to a log, {way}"), |b| {
        b.iter(|| {
            log.blocking_write_at(black_box(at), &RECORD, IO).expect("room for the log");
            at = (at + RECORD.len() as u64) % LOG_MAX;
        });
    });
}

fn open(path: &Path, io: IoPool) -> Dir {
    let options = DirOptions { create: true, io, ..DirOptions::default() };
    Dir::open(path, options).expect("a directory beside the program")
}

fn deadline(c: &mut Criterion) {
    let program = std::env::current_exe().expect("a program knows its file");
    let temp = tempfile::TempDir::new_in(program.parent().expect("a program is in a directory"));
    let temp = temp.expect("room beside the program");
    measure(c, "in place", &open(&temp.path().join("in-place"), IoPool::new(THREADS)));
    for (way, io) in
        [("by io_uring", IoPool::apart(THREADS)), ("by threads", IoPool::threads(THREADS))]
    {
        let apart = open(&temp.path().join(way), io);
        measure(c, way, &Deadline::new(apart, way, LIMIT, Clock::real()));
    }
}

criterion_group!(benches, deadline);
criterion_main!(benches);
