//! The same random operations on the volume and on plain byte vectors; the first difference wins.

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::Zeros;
use crate::buf::with_scratch;

pub(super) const CASES: &[(&str, Case)] = &[
    ("random operations match byte vectors", random),
    ("blocking calls match byte vectors", blocking),
];

const SEEDS: u64 = 4;
const ROUNDS: usize = 3;
const OPERATIONS: usize = 120;
const NAMES: [&str; 4] = ["a", "b/c", "d.log", "e/f.log"];
/// No write begins, and no change of length ends, beyond this.
const LEN_MAX: u64 = 40_000;

fn random(harness: &mut dyn Harness) {
    for seed in 0..SEEDS {
        eprintln!("conformance model: seed {seed}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut model = Model::new();
        for _ in 0..ROUNDS {
            (rng, model) = run_part(harness, |volume| round(volume, rng, model));
            harness.reopen();
        }
        run_part(harness, |volume| async move {
            for text in model.into_keys() {
                volume.remove(&name(text)).await.unwrap_or_else(|e| panic!("remove {text}: {e}"));
            }
        });
    }
}

/// Blocking and asynchronous reads both see what a blocking thread writes.
fn blocking(harness: &mut dyn Harness) {
    if !harness.may_block() {
        return;
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
    for text in BOTH {
        let object = run_part(harness, |volume| async move { create(&*volume, text).await });
        let mut bytes = Vec::new();
        for _ in 0..OPERATIONS {
            let (offset, len) = range(&mut rng);
            if rng.random_ratio(1, 2) {
                let mut data = vec![0; len];
                rng.fill_bytes(&mut data);
                let written = object.blocking_write_at(offset, &data, IO);
                written.unwrap_or_else(|e| panic!("write {len} bytes at {offset}: {e}"));
                overwrite(&mut bytes, offset as usize, &data);
            } else {
                compare_blocking(&*object, &bytes, offset, len);
            }
            assert_eq!(object.len(), bytes.len() as u64);
        }
        let all = run_part(harness, |_| async move { content(&*object).await });
        assert!(all == bytes, "{text}");
    }
}

/// Reads into page-aligned and into unaligned memory.
fn compare_blocking(object: &dyn Object, bytes: &[u8], offset: u64, len: usize) {
    let start = (offset as usize).min(bytes.len());
    let expected = &bytes[start..(offset as usize + len).min(bytes.len())];
    with_scratch(len + 1, |scratch| {
        let (aligned, unaligned) = (0..len, 1..len + 1);
        for range in [aligned, unaligned] {
            let into = &mut scratch[range];
            let read = object.blocking_read_at(offset, into, IO);
            let read = read.unwrap_or_else(|e| panic!("read {len} bytes at {offset}: {e}"));
            assert!(into[..read] == *expected, "read {len} bytes at {offset} of {}", bytes.len());
        }
    });
}

/// A write of `data` at `at`.
fn overwrite(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if !data.is_empty() {
        bytes.resize(bytes.len().max(at + data.len()), 0);
        bytes[at..at + data.len()].copy_from_slice(data);
    }
}

type Model = BTreeMap<&'static str, Vec<u8>>;

/// Many operations; at the end compares and syncs everything, so that it survives a reopening.
async fn round(
    volume: Arc<dyn Volume>,
    mut rng: Xoshiro256PlusPlus,
    mut model: Model,
) -> (Xoshiro256PlusPlus, Model) {
    let mut handles = BTreeMap::new();
    for text in model.keys().copied() {
        handles.insert(text, open(&*volume, text).await);
    }
    for _ in 0..OPERATIONS {
        let text = NAMES[rng.random_range(0..NAMES.len())];
        match (model.get_mut(text), handles.get(text)) {
            (Some(bytes), Some(object)) => {
                if rng.random_ratio(1, 40) {
                    volume.remove(&name(text)).await.expect("what is there can be removed");
                    handles.remove(text);
                    model.remove(text);
                } else {
                    step(&**object, bytes, &mut rng).await;
                }
            }
            _ => {
                assert_eq!(kind(volume.open(&name(text)).await), Some(ErrorKind::NotFound));
                handles.insert(text, create(&*volume, text).await);
                model.insert(text, Vec::new());
            }
        }
    }
    for (text, bytes) in &model {
        let object = &handles[text];
        assert_eq!(content(&**object).await, *bytes, "{text}");
        sync(&**object).await;
    }
    assert_eq!(volume.list().await.expect("a volume lists its objects").len(), model.len());
    (rng, model)
}

/// One operation on one object and on its model.
async fn step(object: &dyn Object, bytes: &mut Vec<u8>, rng: &mut (impl Rng + Send)) {
    let (offset, len) = range(rng);
    let at = offset as usize;
    match rng.random_range(0..10) {
        0..4 => {
            let mut data = vec![0; len];
            rng.fill_bytes(&mut data);
            write(object, offset, &data).await;
            overwrite(bytes, at, &data);
        }
        4 => {
            let mut data = vec![0; len];
            rng.fill_bytes(&mut data);
            write_durable(object, offset, &data).await;
            overwrite(bytes, at, &data);
        }
        5 => {
            let room = if rng.random() { Zeros::Free } else { Zeros::Keep };
            let zeroed = object.zero(offset, len as u64, room, IO).await;
            if kind(zeroed) != Some(ErrorKind::Unsupported) {
                let start = at.min(bytes.len());
                let end = (at + len).min(bytes.len());
                bytes[start..end].fill(0);
            }
        }
        6..8 => {
            let start = at.min(bytes.len());
            let end = (at + len).min(bytes.len());
            let got = read(object, offset, len).await;
            assert!(got == bytes[start..end], "read {len} bytes at {offset} of {}", bytes.len());
        }
        8 => {
            object.set_len(offset).await.unwrap_or_else(|e| panic!("set_len {offset}: {e}"));
            bytes.resize(at, 0);
        }
        _ => sync(object).await,
    }
    assert_eq!(object.len(), bytes.len() as u64);
}

/// An offset and a length; each is sometimes a whole number of pages.
fn range(rng: &mut impl Rng) -> (u64, usize) {
    let page = 4096;
    let mut offset = rng.random_range(0..=LEN_MAX);
    let mut len = rng.random_range(0..=3 * page);
    if rng.random_ratio(1, 3) {
        offset -= offset % page;
    }
    if rng.random_ratio(1, 3) {
        len -= len % page;
    }
    (offset, len as usize)
}
