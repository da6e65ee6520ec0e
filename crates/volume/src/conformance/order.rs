//! Changes of the same bytes: one order for everyone who reads, also after a caller gave up.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::future::{join, join_all};

use super::*;
use crate::Pending;

pub(super) const CASES: &[(&str, Case)] = &[
    ("overlapping writes leave one result", overlapping_writes_leave_one_result),
    ("no read goes back in time", no_read_goes_back_in_time),
    ("a later write wins over one that was given up", a_later_write_wins_over_one_given_up),
    ("many calls are under way at once", many_calls_are_under_way_at_once),
];

const PAGE: usize = 4096;
const ROUNDS: usize = 12;

/// A write of this length takes a device longer than one of a page.
const LARGE: usize = 512 * PAGE;

/// Reads often: each copy of a pool has its turn.
const READS: usize = 16;

fn overlapping_writes_leave_one_result(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let object = create(&*volume, "data").await;
        write(&*object, 0, &[0; 4 * PAGE]).await;
        sync(&*object).await;
        for round in 0..ROUNDS {
            let writes = (1..=6).map(|writer: usize| {
                let from = (writer % 3) * PAGE;
                let byte = (round * 6 + writer) as u8;
                let object = &*object;
                async move { write(object, from as u64, &[byte; 2 * PAGE]).await }
            });
            join_all(writes).await;
            let first = content(&*object).await;
            for page in first.chunks(PAGE) {
                assert!(page.iter().all(|byte| *byte == page[0]), "a page of two writes");
            }
            for _ in 0..READS {
                assert!(content(&*object).await == first, "copies differ in round {round}");
            }
        }
    });
}

fn no_read_goes_back_in_time(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let object = create(&*volume, "data").await;
        write(&*object, 0, &[0; PAGE]).await;
        sync(&*object).await;
        let writer = async {
            for byte in 1..=ROUNDS as u8 {
                write(&*object, 0, &[byte; PAGE]).await;
            }
        };
        let reader = async {
            let mut last = 0;
            for _ in 0..4 * READS {
                let byte = read(&*object, 0, PAGE).await[0];
                assert!(byte >= last, "{byte} was read after {last}");
                last = byte;
            }
        };
        join(
            writer,
            join(reader, async {
                for _ in 0..READS {
                    read(&*object, 0, PAGE).await;
                }
            }),
        )
        .await;
    });
}

/// Polls once.
async fn begin<T>(pending: &mut Pending<'_, T>) {
    poll_fn(|cx| {
        let _ = pending.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

fn a_later_write_wins_over_one_given_up(harness: &mut dyn Harness) {
    run_part(harness, |volume| async move {
        let object = create(&*volume, "data").await;
        write(&*object, 0, &vec![0; LARGE]).await;
        sync(&*object).await;
        let other = create(&*volume, "other").await;
        write(&*other, 0, &pattern(PAGE, 1)).await;
        let last = (LARGE - PAGE) as u64;
        for round in 1..=ROUNDS as u8 {
            let mut given_up = object.write_at(0, IoBuf::from(&vec![round; LARGE][..]), IO);
            begin(&mut given_up).await;
            // Time for it to reach the device.
            read(&*other, 0, PAGE).await;
            drop(given_up);
            if round % 2 == 0 {
                let found = read(&*object, last, PAGE).await;
                for _ in 0..READS {
                    let again = read(&*object, last, PAGE).await;
                    assert!(again == found, "{} after {}", again[0], found[0]);
                }
            }
            write(&*object, last, &[0x80 + round; PAGE]).await;
            for _ in 0..READS {
                let found = read(&*object, last, PAGE).await;
                assert!(found == [0x80 + round; PAGE], "{} in round {round}", found[0]);
            }
        }
    });
}

/// As deep as the deepest queue that a device is given.
fn many_calls_are_under_way_at_once(harness: &mut dyn Harness) {
    const DEPTH: usize = 128;
    run_part(harness, |volume| async move {
        let object = create(&*volume, "data").await;
        let object = &*object;
        let page = |at: usize| pattern(PAGE, at);
        let place = |at: usize| (at * 7 % DEPTH * PAGE) as u64;
        join_all((0..DEPTH).map(|at| async move { write(object, place(at), &page(at)).await }))
            .await;
        let reads = (0..DEPTH).map(|at| async move {
            assert_eq!(read(object, place(at), PAGE).await, page(at));
        });
        join_all(reads).await;
    });
}
