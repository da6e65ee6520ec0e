mod bytes;
mod prices;

use super::*;
use crate::units::{GIB, MIB};

/// A volume of 3,000 operations/s and 125 MiB/s.
const GP3: Price = Price::new(Some(125 * MIB / 3000), 256 * KIB);
const ALL_OPERATIONS: Price = Price::new(None, 256 * KIB);

fn code() -> Code {
    Code::new(4, 2, 256 * KIB).unwrap()
}

fn spans(of: &[Span]) -> Vec<(usize, Range<u64>)> {
    of.iter()
        .map(|span| (span.fragment, span.range.start / BLOCK..span.range.end / BLOCK))
        .collect()
}

/// The dirty blocks of `fragments`: the same ones of each.
fn dirty(fragments: Range<usize>, blocks: &[u32]) -> Vec<(usize, u32)> {
    fragments.flat_map(|fragment| blocks.iter().map(move |&block| (fragment, block))).collect()
}

#[test]
fn one_block_is_changed_with_its_parity_alone() {
    let plan = plan(code(), &[(1, 7)], &[], GP3).unwrap();
    assert_eq!(plan.how, How::Delta);
    assert_eq!(plan.columns, Vec::from_iter(Some(7 * BLOCK..8 * BLOCK)));
    assert_eq!(spans(&plan.reads), [(1, 7..8), (4, 7..8), (5, 7..8)]);
    assert_eq!(plan.reads, plan.writes);
    let cost = plan.cost(GP3);
    assert_eq!((cost.operations, cost.bytes), (6, 6 * BLOCK));
    assert!((cost.weight - (3.0 + 0.28125)).abs() < 1e-3, "{cost:?}");
}

#[test]
fn blocks_of_a_file_share_a_read_where_the_gap_weighs_less() {
    let at = |blocks: &[u64]| blocks.iter().map(|block| block * BLOCK).collect::<Vec<_>>();
    let read = |blocks: &[u64], price| -> Vec<_> {
        let spans = reads(&at(blocks), price).into_iter();
        spans.map(|span| span.start / BLOCK..span.end / BLOCK).collect()
    };
    // 43,690 bytes weigh as much as an operation.
    assert_eq!(read(&[0, 1, 12, 24], GP3), [0..13, 24..25]);
    assert_eq!(read(&[0, 40, 63, 64], ALL_OPERATIONS), [0..64, 64..65], "as much as an I/O has");
    let bytes = Price { operation_share: 0.05, ..GP3 };
    assert_eq!(read(&[0, 1, 2, 3, 5], bytes), [0..4, 5..6]);
    assert_eq!(read(&[], GP3), []);
}

#[test]
fn old_values_that_are_not_to_be_trusted_are_not_read() {
    let plan = plan_of_new(code(), &[(1, 7)], &[], GP3).unwrap();
    assert_eq!(plan.how, How::Encode);
    assert_eq!(spans(&plan.reads), [0, 2, 3].map(|i| (i, 7..8)));
    assert_eq!(spans(&plan.writes), [1, 4, 5].map(|i| (i, 7..8)));
}

#[test]
fn a_row_that_is_dirty_as_a_whole_reads_nothing() {
    let blocks: Vec<u32> = (0..64).collect();
    let plan = plan(code(), &dirty(0..4, &blocks), &[], GP3).unwrap();
    assert_eq!(plan.how, How::Encode);
    assert_eq!(plan.reads, []);
    assert_eq!(spans(&plan.writes), (0..6).map(|i| (i, 0..64)).collect::<Vec<_>>());
    let cost = plan.cost(GP3);
    assert_eq!((cost.operations, cost.bytes), (6, 3 * MIB / 2));
    let smaller = plan.cost(Price { io_max: 64 * KIB, ..GP3 });
    assert_eq!((smaller.operations, smaller.bytes), (24, 3 * MIB / 2));
}

#[test]
fn columns_that_are_mostly_dirty_read_the_other_data() {
    let plan = plan(code(), &dirty(0..3, &[8, 9, 10]), &[], GP3).unwrap();
    assert_eq!(plan.how, How::Encode);
    assert_eq!(spans(&plan.reads), [(3, 8..11)]);
    assert_eq!(spans(&plan.writes), [0, 1, 2, 4, 5].map(|i| (i, 8..11)));
}

#[test]
fn gaps_are_filled_where_their_bytes_weigh_less_than_an_operation() {
    // A gap is read and written and saves an operation of each: up to 10 blocks with 43,690 bytes to an operation.
    let near = plan(code(), &[(0, 3), (0, 14)], &[], GP3).unwrap();
    assert_eq!(spans(&near.writes), [(0, 3..15), (4, 3..15), (5, 3..15)]);
    assert_eq!(near.reads, near.writes);
    let far = plan(code(), &[(0, 3), (0, 15)], &[], GP3).unwrap();
    assert_eq!(spans(&far.writes), [0, 4, 5].map(|i| [(i, 3..4), (i, 15..16)]).concat());
    let free = plan(code(), &[(0, 0), (0, 63)], &[], ALL_OPERATIONS).unwrap();
    assert_eq!(spans(&free.writes), [0, 4, 5].map(|i| (i, 0..64)));
    // A range that needs two operations anyway is not filled.
    let short = Price { io_max: 8 * BLOCK, ..ALL_OPERATIONS };
    let split = plan(code(), &[(0, 0), (0, 7), (0, 9)], &[], short).unwrap();
    assert_eq!(spans(&split.writes), [0, 4, 5].map(|i| [(i, 0..1), (i, 7..10)]).concat());
}

#[test]
fn blocks_of_different_fragments_share_the_parity_of_their_span() {
    let plan = plan(code(), &[(0, 3), (2, 5)], &[], GP3).unwrap();
    assert_eq!(plan.how, How::Delta);
    assert_eq!(spans(&plan.writes), [(0, 3..4), (2, 5..6), (4, 3..6), (5, 3..6)]);
    assert_eq!(plan.columns, Vec::from_iter(Some(3 * BLOCK..6 * BLOCK)));
}

#[test]
fn missing_parity_is_computed_and_not_written() {
    let one = plan(code(), &[(1, 7)], &[4], GP3).unwrap();
    assert_eq!(one.how, How::Encode, "a difference to what it lacks gives nothing");
    assert_eq!(spans(&one.reads), [(0, 7..8), (2, 7..8), (3, 7..8)]);
    assert_eq!(spans(&one.writes), [(1, 7..8), (5, 7..8)]);
    let both = plan(code(), &[(1, 7)], &[5, 4], GP3).unwrap();
    assert_eq!((&both.reads, spans(&both.writes)), (&one.reads, vec![(1, 7..8)]));
    assert_eq!(both.columns, Vec::from_iter(Some(7 * BLOCK..8 * BLOCK)));
}

#[test]
fn parity_takes_the_change_of_other_data_while_one_is_missing() {
    let plan = plan(code(), &[(1, 7)], &[0], GP3).unwrap();
    assert_eq!(plan.how, How::Delta);
    assert_eq!(spans(&plan.writes), [(1, 7..8), (4, 7..8), (5, 7..8)]);
}

#[test]
fn parity_is_encoded_where_missing_data_is_dirty() {
    let plan = plan(code(), &[(0, 7), (1, 7)], &[0], GP3).unwrap();
    assert_eq!(plan.how, How::Encode);
    assert_eq!(spans(&plan.reads), [(2, 7..8), (3, 7..8)]);
    assert_eq!(spans(&plan.writes), [(1, 7..8), (4, 7..8), (5, 7..8)]);
}

#[test]
fn missing_data_is_computed_where_it_is_not_dirty() {
    let plan = plan(code(), &[(0, 7), (1, 8)], &[0], GP3).unwrap();
    assert_eq!(plan.how, How::Decode);
    // Column 7 needs no old value of fragment 0; column 8 needs four fragments for it.
    assert_eq!(spans(&plan.reads), [(1, 7..9), (2, 7..9), (3, 7..9), (4, 8..9)]);
    assert_eq!(spans(&plan.writes), [(1, 8..9), (4, 7..9), (5, 7..9)]);
}

#[test]
fn an_object_with_too_few_fragments_has_no_plan() {
    let few = TooFew { present: 3, needed: 4 };
    assert_eq!(plan(code(), &[(0, 7)], &[0, 1, 5], GP3), Err(few));
    assert_eq!(few.to_string(), "3 fragments are present, 4 are needed");
    assert!(plan(code(), &[(0, 7)], &[5, 5, 5], GP3).is_ok(), "one fragment, named three times");
}

#[test]
fn a_row_without_dirty_blocks_has_nothing_to_do() {
    let plan = plan(code(), &[], &[0], GP3).unwrap();
    assert_eq!((&plan.columns, &plan.reads, &plan.writes), (&vec![], &vec![], &vec![]));
    assert_eq!(plan.cost(GP3), Cost { operations: 0, bytes: 0, weight: 0.0 });
}

#[test]
#[should_panic(expected = "block 64 of 4+2")]
fn a_block_past_the_strip_is_refused() {
    let _ = plan(code(), &[(0, 64)], &[], GP3);
}

#[test]
#[should_panic(expected = "block 3 of 1 is dirty once")]
fn a_block_that_is_named_twice_is_refused() {
    let _ = plan(code(), &[(1, 3), (1, 3)], &[], GP3);
}

#[test]
fn extreme_prices_keep_the_order_of_plans() {
    for price in [
        Price { operation_share: 0.0, ..GP3 },
        Price { operation_share: 1.0, ..GP3 },
        Price { bytes_per_operation: Some(0), io_max: 0, operation_share: 0.5 },
        Price { bytes_per_operation: Some(u64::MAX), io_max: u64::MAX, operation_share: 0.0 },
        Price { io_max: GIB, ..ALL_OPERATIONS },
    ] {
        let one = plan(code(), &[(1, 7)], &[], price).unwrap();
        assert_eq!(spans(&one.writes), [(1, 7..8), (4, 7..8), (5, 7..8)], "{price:?}");
    }
    // What counts nothing decides between equals.
    let bytes = Price { operation_share: 0.0, ..GP3 };
    let joined = plan(code(), &[(1, 7), (1, 8)], &[], bytes).unwrap();
    assert_eq!(spans(&joined.writes), [(1, 7..9), (4, 7..9), (5, 7..9)]);
}
