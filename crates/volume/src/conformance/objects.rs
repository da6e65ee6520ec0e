//! What an object does with bytes: exact lengths, any offset, gaps, cuts.

use futures_util::future::join_all;

use super::*;

pub(super) const CASES: &[(&str, Case)] = &[
    ("lengths are exact", lengths_are_exact),
    ("reads over the end give what there is", reads_over_the_end_give_what_there_is),
    ("gaps read as zeros", gaps_read_as_zeros),
    ("a write of nothing changes nothing", a_write_of_nothing_changes_nothing),
    ("later writes win", later_writes_win),
    ("neighbours in a page keep their bytes", neighbours_in_a_page_keep_their_bytes),
    ("cut bytes do not come back", cut_bytes_do_not_come_back),
    ("large writes arrive whole", large_writes_arrive_whole),
    ("appends add up", appends_add_up),
    ("slices of one buffer are written as they are", slices_of_one_buffer),
    ("reopening keeps bytes and lengths", reopening_keeps_bytes_and_lengths),
];

/// Lengths around every boundary that padding, pages and sectors could get wrong.
const LENS: [usize; 12] = [1, 2, 511, 512, 513, 4095, 4096, 4097, 8191, 8192, 12_287, 65_537];

fn lengths_are_exact(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            for len in LENS {
                let object = create(&*volume, text).await;
                write(&*object, 0, &pattern(len, len)).await;
                assert_eq!(object.len(), len as u64);
                sync(&*object).await;
                assert_eq!(object.len(), len as u64, "after a sync");
                assert_eq!(content(&*object).await, pattern(len, len));
                assert_eq!(open(&*volume, text).await.len(), len as u64);
                volume.remove(&name(text)).await.expect("an open object can be removed");
            }
        });
    }
}

fn reads_over_the_end_give_what_there_is(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            let bytes = pattern(5000, 1);
            write(&*object, 0, &bytes).await;
            for (offset, len) in
                [(0, 5000), (0, 5001), (4999, 9), (4000, 9000), (4096, 4096), (17, 1)]
            {
                let end = (offset + len).min(5000);
                assert_eq!(
                    read(&*object, offset as u64, len).await,
                    bytes[offset..end],
                    "{len} bytes at {offset}"
                );
            }
            for offset in [5000, 5001, 8192, 1 << 40, u64::MAX] {
                assert_eq!(read(&*object, offset, 10).await, b"", "at {offset}");
            }
            assert_eq!(read(&*object, 3, 0).await, b"");
        });
    }
}

fn gaps_read_as_zeros(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            write(&*object, 3, b"abc").await;
            write(&*object, 20_001, b"def").await;
            let mut expected = vec![0; 20_004];
            expected[3..6].copy_from_slice(b"abc");
            expected[20_001..].copy_from_slice(b"def");
            assert_eq!(content(&*object).await, expected);
        });
    }
}

fn a_write_of_nothing_changes_nothing(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            write(&*object, 9, &[]).await;
            assert_eq!(object.len(), 0);
        });
    }
}

fn later_writes_win(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            let mut expected = pattern(20_000, 1);
            write(&*object, 0, &expected).await;
            for (i, (offset, len)) in
                [(0, 1), (4095, 2), (4096, 4096), (100, 9000), (12_288, 7712), (19_999, 1)]
                    .into_iter()
                    .enumerate()
            {
                let bytes = pattern(len, i + 2);
                write(&*object, offset as u64, &bytes).await;
                expected[offset..offset + len].copy_from_slice(&bytes);
                assert_eq!(content(&*object).await, expected, "{len} bytes at {offset}");
            }
        });
    }
}

fn neighbours_in_a_page_keep_their_bytes(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            let bytes = pattern(100 * 101, 1);
            let object = &*object;
            join_all(bytes.chunks(101).enumerate().map(|(i, chunk)| async move {
                write(object, (i * 101) as u64, chunk).await;
            }))
            .await;
            assert_eq!(content(object).await, bytes);
        });
    }
}

fn cut_bytes_do_not_come_back(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            let mut expected = pattern(10_000, 1);
            write(&*object, 0, &expected).await;
            for len in [9999, 4097, 10_500, 4096, 4095, 20_000, 1, 513, 0, 77] {
                object.set_len(len as u64).await.unwrap_or_else(|e| panic!("set_len {len}: {e}"));
                expected.resize(len, 0);
                assert_eq!(object.len(), len as u64);
                assert_eq!(content(&*object).await, expected, "cut or extended to {len}");
            }
            write(&*object, 100, b"behind").await;
            expected.resize(100, 0);
            expected.extend_from_slice(b"behind");
            assert_eq!(content(&*object).await, expected);
            sync(&*object).await;
            assert_eq!(content(&*object).await, expected);
        });
    }
}

fn large_writes_arrive_whole(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            let bytes = pattern((1 << 20) + 4097, 7);
            write(&*object, 0, &bytes).await;
            write(&*object, 4095, &bytes).await;
            sync(&*object).await;
            assert_eq!(object.len(), 4095 + bytes.len() as u64);
            assert_eq!(read(&*object, 0, 4095).await, bytes[..4095]);
            assert_eq!(read(&*object, 4095, bytes.len()).await, bytes);
            assert_eq!(read(&*object, 4096 + 300_000, 17).await, bytes[300_001..300_018]);
        });
    }
}

fn appends_add_up(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            let bytes = pattern(60_000, 5);
            let mut at = 0;
            for i in 0.. {
                let record = (1 + i * 67 % 3000).min(bytes.len() - at);
                write(&*object, at as u64, &bytes[at..at + record]).await;
                at += record;
                assert_eq!(object.len(), at as u64);
                if i % 4 == 0 {
                    sync(&*object).await;
                }
                if at == bytes.len() {
                    break;
                }
            }
            assert_eq!(content(&*object).await, bytes);
        });
    }
}

fn slices_of_one_buffer(harness: &mut dyn Harness) {
    for text in BOTH {
        run_part(harness, |volume| async move {
            let object = create(&*volume, text).await;
            let buf = IoBuf::from(&pattern(30_000, 3)[..]);
            // Memory at any alignment, to any alignment of the object.
            for (range, offset) in [(1..9000, 0), (4096..12_288, 9000), (511..30_000, 17_193)] {
                let slice = buf.slice(range.clone());
                let written = object.write_at(offset, slice, IO).await;
                written.unwrap_or_else(|e| panic!("write {range:?} at {offset}: {e}"));
                assert_eq!(read(&*object, offset, range.len()).await, buf[range]);
            }
        });
    }
}

fn reopening_keeps_bytes_and_lengths(harness: &mut dyn Harness) {
    let text = |i: usize| format!("{}/{}", i, BOTH[i % 2]);
    run_part(harness, move |volume| async move {
        for (i, len) in LENS.into_iter().enumerate() {
            let object = create(&*volume, &text(i)).await;
            write(&*object, 0, &pattern(len, i)).await;
            sync(&*object).await;
        }
    });
    if harness.reopen() {
        run_part(harness, move |volume| async move {
            for (i, len) in LENS.into_iter().enumerate() {
                let object = open(&*volume, &text(i)).await;
                assert_eq!(object.len(), len as u64);
                assert_eq!(content(&*object).await, pattern(len, i));
                write(&*object, len as u64, b"more").await;
                sync(&*object).await;
            }
        });
    }
    if harness.reopen() {
        run_part(harness, move |volume| async move {
            for (i, len) in LENS.into_iter().enumerate() {
                let bytes = [&pattern(len, i)[..], b"more"].concat();
                assert_eq!(content(&*open(&*volume, &text(i)).await).await, bytes);
            }
        });
    }
}
