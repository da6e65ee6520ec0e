//! Zeros, holes, and writes that are durable by themselves.

use futures_util::future::join;

use super::*;
use crate::{Extent, Zeros};

pub(super) const CASES: &[(&str, Case)] = &[
    ("durable writes stay", durable_writes_stay),
    ("zeros replace bytes and keep the length", zeros_replace_bytes_and_keep_the_length),
    ("extents cover a range, and holes are zeros", extents_cover_a_range),
    ("an alignment keeps the bytes", an_alignment_keeps_the_bytes),
    ("limits are sizes that work", limits_are_sizes_that_work),
];

const PAGE: usize = 4096;

fn durable_writes_stay(harness: &mut dyn Harness) {
    let expected = |text: &str| {
        let mut bytes = pattern(3 * PAGE + 7, 1);
        bytes[PAGE..2 * PAGE].copy_from_slice(&pattern(PAGE, 2));
        bytes[5..900].copy_from_slice(&pattern(895, 3));
        if text == "data" {
            bytes.resize(5 * PAGE, 0);
            bytes.extend(pattern(PAGE, 4));
        }
        bytes
    };
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            write_durable(&*object, 0, &pattern(3 * PAGE + 7, 1)).await;
            write_durable(&*object, PAGE as u64, &pattern(PAGE, 2)).await;
            write_durable(&*object, 5, &pattern(895, 3)).await;
            write_durable(&*object, 1 << 40, &[]).await;
            if text == "data" {
                write_durable(&*object, 5 * PAGE as u64, &pattern(PAGE, 4)).await;
            }
            assert_eq!(content(&*object).await, expected(text), "{text}");
        });
    }
    if harness.reopen() {
        for text in BOTH {
            run_part(harness, |volume| async move {
                assert_eq!(content(&*open(&*volume, text).await).await, expected(text), "{text}");
            });
        }
    }
}

fn zeros_replace_bytes_and_keep_the_length(harness: &mut dyn Harness) {
    const LEN: usize = 10 * PAGE + 100;
    for room in [Zeros::Free, Zeros::Keep] {
        for text in BOTH {
            let bytes = run_part(harness, |volume| async move {
                let object = create(&*volume, text).await;
                let mut bytes = pattern(LEN, 1);
                write(&*object, 0, &bytes).await;
                for (offset, len) in
                    [(0, PAGE), (5 * PAGE - 3, PAGE + 6), (8 * PAGE, 1 << 30), (1 << 40, 7), (3, 0)]
                {
                    let zeroed = object.zero(offset as u64, len as u64, room, IO).await;
                    if kind(zeroed) == Some(ErrorKind::Unsupported) {
                        assert!(!volume.limits().holes || room == Zeros::Keep);
                        break;
                    }
                    let end = (offset + len).min(LEN);
                    bytes[offset.min(end)..end].fill(0);
                    assert_eq!(content(&*object).await, bytes, "{len} bytes at {offset}");
                }
                write(&*object, 5 * PAGE as u64, b"again").await;
                bytes[5 * PAGE..5 * PAGE + 5].copy_from_slice(b"again");
                sync(&*object).await;
                bytes
            });
            harness.reopen();
            run_part(harness, |volume| async move {
                assert_eq!(content(&*open(&*volume, text).await).await, bytes, "{text}");
                volume.remove(&name(text)).await.expect("it is there");
            });
        }
    }
}

fn an_alignment_keeps_the_bytes(harness: &mut dyn Harness) {
    const LEN: usize = 80 * PAGE + 100;
    for (text, intent) in
        [("data", Intent::DATA), ("wal.log", Intent::LOG), ("in-place", Intent::IN_PLACE)]
    {
        let mut expected = pattern(LEN, 1);
        expected[PAGE..3 * PAGE].fill(7);
        let expected_first = expected.clone();
        run_part(harness, |volume| async move {
            let object = volume.create(&name(text), &intent).await.expect("a new name");
            assert_eq!(object.is_log(), intent.is_log(), "{text}");
            object.align(0, 1 << 30, IO).await.expect("it is empty");
            write(&*object, 0, &pattern(LEN, 1)).await;
            let over =
                join(object.align(0, LEN as u64, IO), write(&*object, PAGE as u64, &[7; 2 * PAGE]));
            over.await.0.expect("a volume aligns its copies");
            for (offset, len) in [(5, 7), (3, 0), (79 * PAGE as u64, 1 << 40), (1 << 40, 9)] {
                object.align(offset, len, IO).await.expect("a volume aligns its copies");
            }
            assert_eq!(content(&*object).await, expected_first, "{text}");
            sync(&*object).await;
        });
        if harness.reopen() {
            run_part(harness, |volume| async move {
                let object = open(&*volume, text).await;
                object.align(PAGE as u64, 70 * PAGE as u64, IO).await.expect("it is open");
                assert_eq!(content(&*object).await, expected, "{text}");
            });
        }
    }
}

fn extents_cover_a_range(harness: &mut dyn Harness) {
    const LEN: u64 = 64 * PAGE as u64;
    run_part(harness, |volume| async move {
        let object = create(&*volume, "data").await;
        write(&*object, 0, &pattern(4 * PAGE, 1)).await;
        write(&*object, LEN - PAGE as u64, &pattern(PAGE, 2)).await;
        sync(&*object).await;
        let _ = object.zero(0, PAGE as u64, Zeros::Free, IO).await;
        let all = content(&*object).await;
        for (offset, len) in
            [(0, LEN), (1, 5), (3 * PAGE as u64, LEN), (LEN, 1), (9, 0), (7, u64::MAX)]
        {
            let found = object.extents(offset, len).await.expect("a volume knows its extents");
            let mut at = offset.min(LEN);
            for Extent { range, is_hole } in found {
                assert!(range.start == at && range.end > at, "{range:?} after {at}");
                at = range.end;
                let bytes = &all[range.start as usize..range.end as usize];
                assert!(!is_hole || bytes.iter().all(|&byte| byte == 0), "{range:?} is no hole");
            }
            assert_eq!(at, offset.saturating_add(len).min(LEN).max(offset.min(LEN)));
        }
    });
}

fn limits_are_sizes_that_work(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let limits = volume.limits();
        assert!(limits.unit.is_power_of_two() && limits.atomic.is_power_of_two(), "{limits:?}");
        assert!(limits.atomic <= limits.unit, "{limits:?}");
        assert!(limits.io_max.is_none_or(|most| most >= limits.unit), "{limits:?}");
        let object = create(&*volume, "data").await;
        let unit = limits.unit as usize;
        write_durable(&*object, unit as u64, &pattern(unit, 1)).await;
        assert_eq!(read(&*object, unit as u64, unit).await, pattern(unit, 1));
        let zeroed = object.zero(0, limits.unit, Zeros::Free, IO).await;
        assert_eq!(kind(zeroed).is_none(), limits.holes);
    });
}
