//! The throughput of the coder: encoding, recovery of one and of two data fragments, and updates, each for fragments of
//! 16 KiB, which stay in the processor's cache, and for 64 MiB of data, which do not stay in its second level.
//!
//! Bytes are those of data: all data fragments, and for an update the one that changed. `dev/isal` measures ISA-L under the
//! same names.

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use policy::units::{KIB, MIB};
use pool::code::Coder;
use volume::IoBufMut;

const CODES: [(usize, usize); 4] = [(4, 2), (6, 3), (8, 4), (10, 4)];
/// Fragments are whole pages.
const PAGE: usize = 4096;

/// A coder, and an object's fragments in buffers as volumes read and write them.
struct Object {
    coder: Coder,
    fragments: Vec<IoBufMut>,
}

impl Object {
    fn new(data: usize, parity: usize, len: usize) -> Self {
        let coder = Coder::new(data, parity).expect("numbers within bounds");
        let fragment = |index: usize| {
            let bytes: Vec<u8> = (0..len).map(|x| (x * 31 + index * 7 + x / 256) as u8).collect();
            IoBufMut::from(&bytes[..])
        };
        Self { coder, fragments: (0..data + parity).map(fragment).collect() }
    }

    fn encode(&mut self, b: &mut Bencher<'_>) {
        let (data, parity) = self.fragments.split_at_mut(self.coder.data());
        let data: Vec<&[u8]> = data.iter().map(|bytes| &**bytes).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|bytes| &mut **bytes).collect();
        b.iter(|| self.coder.encode(&data, &mut parity).expect("the coder's numbers"));
    }

    /// The first `count` data fragments from the other ones and the first parities.
    fn recover(&mut self, count: usize, b: &mut Bencher<'_>) {
        let (lost, have) = self.fragments.split_at_mut(count);
        let have: Vec<(usize, &[u8])> =
            (count..).zip(have.iter().map(|bytes| &**bytes)).take(self.coder.data()).collect();
        let mut lost: Vec<(usize, &mut [u8])> =
            lost.iter_mut().map(|bytes| &mut **bytes).enumerate().collect();
        b.iter(|| self.coder.recover(&have, &mut lost).expect("the coder's numbers"));
    }

    fn update(&mut self, b: &mut Bencher<'_>) {
        let (data, parity) = self.fragments.split_at_mut(self.coder.data());
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|bytes| &mut **bytes).collect();
        b.iter(|| self.coder.update(0, &data[0], &mut parity).expect("the coder's numbers"));
    }
}

fn code(c: &mut Criterion) {
    for (data, parity) in CODES {
        let from_memory = (64 * MIB) as usize / data / PAGE * PAGE;
        for (size, len) in [("16 KiB", (16 * KIB) as usize), ("64 MiB", from_memory)] {
            let mut object = Object::new(data, parity, len);
            let id = BenchmarkId::new(format!("{data}+{parity}"), size);
            let mut measure =
                |what: &str, bytes: usize, run: &dyn Fn(&mut Object, &mut Bencher<'_>)| {
                    let mut group = c.benchmark_group(what);
                    group.throughput(Throughput::Bytes(bytes as u64)).sample_size(10);
                    group.bench_function(id.clone(), |b| run(&mut object, b));
                    group.finish();
                };
            measure("encode", data * len, &Object::encode);
            measure("recover 1", data * len, &|object, b| object.recover(1, b));
            measure("recover 2", data * len, &|object, b| object.recover(2, b));
            measure("update", len, &Object::update);
        }
    }
}

criterion_group!(benches, code);
criterion_main!(benches);
