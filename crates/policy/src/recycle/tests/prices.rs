//! What plans cost in windows of a log, beside the three ways by hand of which they are mixtures.

use crate::contract::Contract;
use std::fmt::Write;

use expect_test::expect;
use rand::seq::index;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::contract::spec::Bought;
use crate::contract::{Counted, Limit, catalogue};
use crate::units::Bytes;

/// Blocks of the data of a row.
const ROW: usize = 256;
/// Blocks of a device of 4 GiB.
const DEVICE: usize = 1 << 20;

/// Operations, and bytes in operations.
#[derive(Clone, Copy, Default)]
struct Units(f64, f64);

impl Units {
    fn of(operations: u64, bytes: u64) -> Self {
        Self(operations as f64, bytes as f64 / GP3.bytes_per_operation.unwrap() as f64)
    }

    fn add(&mut self, more: Self, times: f64) {
        self.0 += more.0 * times;
        self.1 += more.1 * times;
    }

    /// What a volume needs if it has as much of both: it waits for the one that is short.
    fn bind(self) -> f64 {
        self.0.max(self.1)
    }
}

fn units(plan: &Plan) -> Units {
    let cost = plan.cost(GP3);
    Units::of(cost.operations, cost.bytes)
}

fn pairs(blocks: impl IntoIterator<Item = usize>) -> Vec<(usize, u32)> {
    let mut pairs: Vec<_> = blocks.into_iter().map(|i| (i / 64, (i % 64) as u32)).collect();
    pairs.sort_unstable();
    pairs
}

/// Of the drafts of a row, the one that `plan` would choose.
fn lightest(row: &Row, drafts: impl IntoIterator<Item = Draft>) -> Units {
    let draft = drafts.into_iter().min_by_key(|draft| draft.weight(&row.weights)).unwrap();
    units(&draft.into_plan())
}

/// The table of [`plan`].
#[test]
fn ways_cost_what_the_table_says() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut table = String::new();
    for d in [1, 2, 5, 13, 40, 256] {
        let rows = 200;
        let mut sums = [Units::default(); 4];
        for _ in 0..rows {
            let dirty = pairs(index::sample(&mut rng, ROW, d));
            let row = Row::new(code(), &dirty, &[], GP3.weights()).unwrap();
            // Volumes fail regardless of what is dirty.
            let degraded = Row::new(code(), &dirty, &[0], GP3.weights()).unwrap();
            let costs = [
                lightest(&row, row.delta()),
                lightest(&row, row.encodings()),
                lightest(&degraded, degraded.encodings()),
                units(&plan(code(), &dirty, &[], GP3).unwrap()),
            ];
            for (sum, cost) in sums.iter_mut().zip(costs) {
                sum.add(cost, 1.0 / (rows * d) as f64);
            }
        }
        let cells = sums.map(|Units(operations, bytes)| format!("{operations:.2} / {bytes:.2}"));
        writeln!(table, "| {d} | {} |", cells.join(" | ")).unwrap();
    }
    expect![[r#"
        | 1 | 6.00 / 0.56 | 6.00 / 0.56 | 6.49 / 0.61 | 6.00 / 0.56 |
        | 2 | 5.37 / 0.84 | 5.51 / 0.77 | 5.71 / 0.94 | 5.37 / 0.84 |
        | 5 | 3.78 / 1.42 | 3.88 / 1.50 | 3.74 / 1.70 | 3.78 / 1.40 |
        | 13 | 1.83 / 1.73 | 1.50 / 2.07 | 1.38 / 2.01 | 1.67 / 1.86 |
        | 40 | 0.52 / 1.26 | 0.36 / 1.20 | 0.31 / 1.12 | 0.36 / 1.20 |
        | 256 | 0.05 / 0.28 | 0.02 / 0.14 | 0.02 / 0.12 | 0.02 / 0.14 |
    "#]]
    .assert_eq(&table);
}

/// Rows of a window of 5 % of the device.
struct Window {
    rows: Vec<Vec<(usize, u32)>>,
    writes: f64,
}

impl Window {
    /// Writes go to block i with the probability `chances[i]`.
    fn new(chances: &[f64], rows: usize) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let window = DEVICE as f64 * 0.05;
        let row = |_| {
            pairs((0..ROW).filter(|_| {
                let chance = chances[rng.random_range(0..chances.len())];
                rng.random_bool(1.0 - (-chance * window).exp())
            }))
        };
        let rows: Vec<_> = (0..rows).map(row).collect();
        let writes = window / (DEVICE / ROW) as f64 * rows.len() as f64;
        Self { rows, writes }
    }

    fn uniform() -> Self {
        Self::new(&[1.0 / DEVICE as f64], 400)
    }

    /// Zipf 0.99, scrambled.
    fn zipf() -> Self {
        let chances: Vec<f64> = (1..=DEVICE).map(|rank| (rank as f64).powf(-0.99)).collect();
        let sum: f64 = chances.iter().sum();
        Self::new(&chances.iter().map(|chance| chance / sum).collect::<Vec<_>>(), 400)
    }

    fn dirty(&self) -> f64 {
        self.rows.iter().map(Vec::len).sum::<usize>() as f64
    }

    /// Units of a write: the appends of its group of 16, and what `cost` says of each row.
    fn units(&self, mut cost: impl FnMut(&[(usize, u32)]) -> Units) -> Units {
        let mut sum = Units::of(3, 3 * 16 * BLOCK);
        sum = Units(sum.0 / 16.0, sum.1 / 16.0);
        for row in self.rows.iter().filter(|row| !row.is_empty()) {
            sum.add(cost(row), 1.0 / self.writes);
        }
        sum
    }

    /// The least that binds when each row takes the way of least `share * operations + (1 - share) * bytes`, and the
    /// windows of two shares are mixed: no choice by row does better than the best mixture.
    fn mixed(&self, ways: impl Fn(u64) -> Vec<Units>) -> f64 {
        let totals: Vec<Units> = (0..=100)
            .map(|percent| {
                let share = f64::from(percent) / 100.0;
                let weight = |units: &Units| share * units.0 + (1.0 - share) * units.1;
                self.units(|row| {
                    let ways = ways(row.len() as u64).into_iter();
                    ways.min_by(|a, b| weight(a).total_cmp(&weight(b))).unwrap()
                })
            })
            .collect();
        let mixed = |pair: &[Units]| {
            let parts = (0..=100).map(|percent| f64::from(percent) / 100.0);
            let mixtures = parts.map(|part| {
                let mut sum = Units::default();
                sum.add(pair[0], part);
                sum.add(pair[1], 1.0 - part);
                sum.bind()
            });
            mixtures.fold(f64::INFINITY, f64::min)
        };
        totals.windows(2).map(mixed).fold(f64::INFINITY, f64::min)
    }

    fn planned(&self, price: Price) -> Units {
        self.units(|row| units(&plan(code(), row, &[], price).unwrap()))
    }
}

/// Each block with its parity alone.
fn by_block(d: u64) -> Units {
    Units::of(6 * d, 6 * d * BLOCK)
}

/// The whole row is read and written.
fn by_row(_: u64) -> Units {
    Units::of(10, 10 * 256 * KIB)
}

/// Each data block alone, and whole strips of parity.
fn by_parity_strip(d: u64) -> Units {
    Units::of(2 * d + 4, 2 * d * BLOCK + 4 * 256 * KIB)
}

/// The table of [`Price::OPERATION_SHARE`].
#[test]
fn a_window_costs_less_than_by_ways_without_spans() {
    let mut table = String::new();
    for (name, window) in [("uniform", Window::uniform()), ("zipf 0.99", Window::zipf())] {
        let per_row = window.dirty() / window.rows.len() as f64;
        let distinct = window.dirty() / window.writes;
        writeln!(table, "{name}: {per_row:.1} of a row, {distinct:.2} of a write").unwrap();
        let two = window.mixed(|d| vec![by_block(d), by_row(d)]);
        let three = window.mixed(|d| vec![by_block(d), by_row(d), by_parity_strip(d)]);
        writeln!(table, "  by hand: {two:.2} of two ways, {three:.2} of three").unwrap();
        let larger = window.units(|row| {
            let shares = (0..=20).map(|part| f64::from(part) / 20.0);
            let plans = shares.map(|operation_share| {
                let price = Price { operation_share, ..GP3 };
                units(&plan(code(), row, &[], price).unwrap())
            });
            plans.min_by(|a, b| a.bind().total_cmp(&b.bind())).unwrap()
        });
        let mut line = |label: &str, units: Units| {
            let Units(operations, bytes) = units;
            writeln!(table, "  {label}: {operations:.2} / {bytes:.2}").unwrap();
        };
        for operation_share in [0.3, 0.5, 0.7, 1.0] {
            let price = Price { operation_share, ..GP3 };
            line(&format!("share {operation_share:.1}"), window.planned(price));
        }
        line("the larger of both by row", larger);
        let mut price = GP3;
        for _ in 0..6 {
            let Units(operations, bytes) = window.planned(price);
            let scale = 1000.0;
            let bytes = bytes * GP3.bytes_per_operation.unwrap() as f64;
            price = price.rebalanced((operations * scale) as u64, (bytes * scale) as u64);
        }
        let rebalanced = window.planned(price);
        line(&format!("rebalanced to {:.2}", price.operation_share), rebalanced);
        let half = window.planned(GP3).bind();
        assert!(rebalanced.bind() <= half && half < three && three < two, "{half} {three} {two}");
        assert!(rebalanced.bind() < larger.bind());
    }
    expect![[r#"
        uniform: 12.9 of a row, 1.01 of a write
          by hand: 2.89 of two ways, 2.42 of three
          share 0.3: 3.16 / 1.23
          share 0.5: 1.80 / 2.17
          share 0.7: 1.09 / 3.18
          share 1.0: 0.96 / 3.57
          the larger of both by row: 1.96 / 2.05
          rebalanced to 0.46: 1.97 / 2.00
        zipf 0.99: 5.8 of a row, 0.45 of a write
          by hand: 1.90 of two ways, 1.64 of three
          share 0.3: 2.13 / 0.64
          share 0.5: 1.62 / 1.00
          share 0.7: 1.11 / 1.79
          share 1.0: 0.90 / 2.49
          the larger of both by row: 1.40 / 1.29
          rebalanced to 0.61: 1.33 / 1.35
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_share_goes_to_what_is_short_and_stays_within_bounds() {
    let share = |price: Price| price.operation_share;
    assert!(share(GP3.rebalanced(1000, 0)) > 0.7);
    assert!(share(GP3.rebalanced(0, 1000)) < 0.3);
    assert_eq!(share(GP3.rebalanced(0, 0)), 0.5);
    assert_eq!(share(GP3.rebalanced(1000, 1000 * GP3.bytes_per_operation.unwrap())), 0.5);
    let (mut high, mut low) = (GP3, GP3);
    for _ in 0..10 {
        (high, low) = (high.rebalanced(7, 0), low.rebalanced(0, 7));
    }
    assert_eq!((share(high), share(low)), (1.0, 0.0));
    assert_eq!(ALL_OPERATIONS.rebalanced(7, 0), ALL_OPERATIONS);
}

#[test]
fn a_contract_says_how_many_bytes_weigh_as_much_as_an_operation() {
    let of = |name: &str| {
        let contract =
            catalogue::find(name).unwrap().contract(Some(Bytes(500 * GIB)), Bought::default());
        Price::of(&contract.unwrap())
    };
    assert_eq!(of("gp3"), Some(GP3));
    let only_operations = Limit { counts: Counted::Ops, rate_per_sec: 100, depth: 10 };
    let contract =
        Contract { limits: vec![only_operations], op_bytes_max: 64 * KIB, ..Contract::unlimited() };
    assert_eq!(Price::of(&contract), Some(Price::new(None, 64 * KIB)));
    assert_eq!(Price::of(&Contract::unlimited()), None);
}
