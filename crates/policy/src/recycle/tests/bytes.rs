//! Plans are carried out on fragments with one byte for each block: the code works byte by byte.

use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::code;

/// What plans may see of a fragment: blocks that they did not read have no value.
type Seen = Vec<Vec<Option<u8>>>;

fn encoded(code: Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let refs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    data.iter().cloned().chain((0..code.parity()).map(|j| code::parity(j, &refs))).collect()
}

fn blocks(range: &Range<u64>) -> Range<usize> {
    assert!(range.start.is_multiple_of(BLOCK) && range.end.is_multiple_of(BLOCK));
    (range.start / BLOCK) as usize..(range.end / BLOCK) as usize
}

/// The new parity of one column.
fn parity(code: Code, how: How, seen: &Seen, new: &[Vec<Option<u8>>], column: usize) -> Vec<u8> {
    let m = code.data();
    if how == How::Delta {
        let change = |j: usize| {
            (0..m).fold(seen[m + j][column], |sum, data| match new[data][column] {
                None => sum,
                Some(new) => {
                    let old = seen[data][column].expect("the old value of a dirty block is read");
                    sum.map(|sum| sum ^ code::product(code::coefficient(m, m + j, data), old ^ new))
                }
            })
        };
        return (0..code.parity()).map(|j| change(j).expect("old parity is read")).collect();
    }
    let mut data: Vec<Option<u8>> = (0..m).map(|i| new[i][column].or(seen[i][column])).collect();
    if data.contains(&None) {
        assert_eq!(how, How::Decode, "column {column} is not read");
        let read: Vec<(usize, [u8; 1])> =
            (0..code.fragments()).filter_map(|i| Some((i, [seen[i][column]?]))).collect();
        assert!(read.len() >= m, "column {column}: {} fragments", read.len());
        let have: Vec<(usize, &[u8])> = read[..m].iter().map(|(i, byte)| (*i, &byte[..])).collect();
        for (i, value) in data.iter_mut().enumerate() {
            *value = value.or_else(|| Some(code::recover(m, &have, i)[0]));
        }
    }
    let data: Vec<[u8; 1]> = data.into_iter().map(|value| [value.unwrap()]).collect();
    let refs: Vec<&[u8]> = data.iter().map(|value| &value[..]).collect();
    (0..code.parity()).map(|j| code::parity(j, &refs)[0]).collect()
}

/// Carries out the plan on the fragments. Returns the new parity of its columns, of missing fragments, too.
fn carry_out(
    code: Code,
    plan: &Plan,
    new: &[Vec<Option<u8>>],
    fragments: &mut [Vec<u8>],
) -> Vec<Option<Vec<u8>>> {
    let m = code.data();
    let mut seen: Seen = fragments.iter().map(|bytes| vec![None; bytes.len()]).collect();
    for Span { fragment, range } in &plan.reads {
        for block in blocks(range) {
            seen[*fragment][block] = Some(fragments[*fragment][block]);
        }
    }
    let mut parities = vec![None; fragments[0].len()];
    for column in plan.columns.iter().flat_map(blocks) {
        parities[column] = Some(parity(code, plan.how, &seen, new, column));
    }
    for Span { fragment, range } in &plan.writes {
        for block in blocks(range) {
            fragments[*fragment][block] = match fragment.checked_sub(m) {
                None => new[*fragment][block].or(seen[*fragment][block]).expect("a gap is read"),
                Some(j) => parities[block].as_ref().expect("a column of the plan")[j],
            };
        }
    }
    parities
}

/// What [`Plan`] and [`How`] say about the spans.
fn check_spans(code: Code, plan: &Plan, missing: &[usize]) {
    for spans in [&plan.reads, &plan.writes] {
        for span in spans {
            assert!(!missing.contains(&span.fragment), "{span:?} of a missing fragment");
            assert!(
                span.range.start < span.range.end && span.range.end <= code.strip(),
                "{span:?}"
            );
        }
        for pair in spans.windows(2) {
            let after = (pair[0].fragment, pair[0].range.end);
            assert!(after < (pair[1].fragment, pair[1].range.start), "{pair:?}");
        }
    }
    match plan.how {
        How::Delta => assert_eq!(plan.reads, plan.writes),
        How::Encode => assert!(plan.reads.iter().all(|span| span.fragment < code.data())),
        How::Decode => assert!(missing.iter().any(|&fragment| fragment < code.data())),
    }
}

/// The weight of each block or column alone: in its own operations, the cheaper of the ways that are possible for all.
fn naive(code: Code, dirty: &[(usize, u32)], missing: &[usize], price: Price) -> f64 {
    let present = |fragments: Range<usize>| fragments.filter(|i| !missing.contains(i)).count();
    let parity = present(code.data()..code.fragments());
    let all_are_here = dirty.iter().all(|(fragment, _)| !missing.contains(fragment));
    let blocks = if all_are_here && parity == code.parity() {
        2 * dirty.len() * (1 + parity)
    } else {
        let mut columns: Vec<u32> = dirty.iter().map(|&(_, block)| block).collect();
        columns.sort_unstable();
        columns.dedup();
        let of_column = |column: u32| {
            let is_dirty = |data: &usize| dirty.binary_search(&(*data, column)).is_ok();
            let is_lost = missing.iter().any(|data| *data < code.data() && !is_dirty(data));
            let news = (0..code.data()).filter(is_dirty);
            let clean = code.data() - news.clone().count();
            let writes = news.filter(|data| !missing.contains(data)).count() + parity;
            writes + if is_lost { code.data() } else { clean }
        };
        columns.into_iter().map(of_column).sum()
    };
    price.weight(blocks as u64, blocks as u64 * BLOCK)
}

fn codes() -> impl Strategy<Value = Code> {
    let blocks = prop_oneof![8 => 1u64..9, 4 => 1u64..80, 1 => 250u64..=256];
    (2u64..=16, 1u64..=4, blocks).prop_map(|(data, parity, blocks)| {
        Code::new(data, parity.min(data - 1), blocks * BLOCK).unwrap()
    })
}

fn prices() -> impl Strategy<Value = Price> {
    let share = prop_oneof![Just(0.0), Just(0.5), Just(1.0), 0.0..1.0];
    (prop::option::of(1u64..200_000), BLOCK..MIB, share).prop_map(
        |(bytes_per_operation, io_max, operation_share)| Price {
            bytes_per_operation,
            io_max,
            operation_share,
        },
    )
}

proptest! {
    #[test]
    fn plans_leave_the_encoding_of_the_new_data_at_no_more_than_the_naive_cost(
        code in codes(),
        price in prices(),
        density in prop_oneof![0.0..0.05, 0.0..1.0, Just(1.0)],
        missing in 0usize..=4,
        seed in any::<u64>(),
    ) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let blocks = (code.strip() / BLOCK) as usize;
        let mut order: Vec<usize> = (0..code.fragments()).collect();
        order.shuffle(&mut rng);
        let (missing, present) = order.split_at(missing.min(code.parity()));

        let mut data = vec![vec![0; blocks]; code.data()];
        let mut new = vec![vec![None; blocks]; code.data()];
        let mut dirty = Vec::new();
        for fragment in 0..code.data() {
            rng.fill(&mut data[fragment][..]);
            for (block, new) in new[fragment].iter_mut().enumerate() {
                if rng.random_bool(density) {
                    *new = Some(rng.random());
                    dirty.push((fragment, block as u32));
                }
            }
        }
        let mut fragments = encoded(code, &data);
        for &(fragment, block) in &dirty {
            data[fragment][block as usize] = new[fragment][block as usize].unwrap();
        }
        let after = encoded(code, &data);

        let plan = plan(code, &dirty, missing, price).unwrap();
        check_spans(code, &plan, missing);
        let parities = carry_out(code, &plan, &new, &mut fragments);
        for &present in present {
            prop_assert_eq!(&fragments[present], &after[present], "{} by {:?}", present, plan);
        }
        for &(_, column) in &dirty {
            let computed = parities[column as usize].as_ref().expect("it has a dirty block");
            for (parity, &computed) in after[code.data()..].iter().zip(computed) {
                prop_assert_eq!(computed, parity[column as usize], "column {} by {:?}", column, plan);
            }
        }
        let weight = plan.cost(price).weight;
        let naive = naive(code, &dirty, missing, price);
        prop_assert!(weight <= naive * (1.0 + 1e-6), "{} instead of {}", weight, naive);
    }

    #[test]
    fn more_missing_fragments_than_parity_are_too_few(
        code in codes(),
        more in 1usize..4,
        price in prices(),
        seed in any::<u64>(),
    ) {
        let mut order: Vec<usize> = (0..code.fragments()).collect();
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let missing = &order[..(code.parity() + more).min(code.fragments())];
        let few = TooFew { present: code.fragments() - missing.len(), needed: code.data() };
        prop_assert_eq!(plan(code, &[(0, 0)], missing, price), Err(few));
        prop_assert_eq!(plan(code, &[], missing, price), Err(few));
    }
}
