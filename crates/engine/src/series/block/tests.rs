use proptest::prelude::*;

use super::*;
use crate::series::{Kind, Span, Value, Values};

const KEY: &[u8] = b"key";

fn through(table: &Table) -> Table {
    let bytes = encode(KEY, &[(7, table.clone())]);
    let block = Block::open(KEY, &bytes).unwrap();
    block.tables().unwrap().remove(0).1
}

fn table(times: impl IntoIterator<Item = i64>, values: Values) -> Table {
    let times: Vec<i64> = times.into_iter().collect();
    Table { times, columns: vec![Column { field: 3, rows: None, values }] }
}

fn same_bits(a: &Table, b: &Table) -> bool {
    let bits = |table: &Table| match &table.columns[0].values {
        Values::Float(values) => values.iter().map(|value| value.to_bits()).collect(),
        _ => Vec::new(),
    };
    a.times == b.times && bits(a) == bits(b)
}

/// Rows in any order, some at the same time, each with some of four fields.
fn any_rows() -> impl Strategy<Value = Vec<(i64, [Option<u8>; 4])>> {
    let row = (0i64..60, prop::array::uniform4(prop::option::of(any::<u8>())));
    prop::collection::vec(row, 1..120)
}

fn value(field: u16, n: u8) -> Scalar {
    match field {
        0 => Scalar::Float(f64::from(n) / 8.0),
        1 => Scalar::Integer(i64::from(n) - 100),
        2 => Scalar::Boolean(n > 100),
        _ => Scalar::Text(format!("text {n}").into()),
    }
}

use crate::series::Scalar;

fn built(rows: &[(i64, [Option<u8>; 4])]) -> Table {
    let mut builder = Builder::default();
    for (time, fields) in rows {
        builder.row(*time);
        for (field, n) in fields.iter().enumerate() {
            if let Some(n) = n {
                builder.value(field as u16, value(field as u16, *n).as_value());
            }
        }
    }
    builder.resolved()
}

type Model = std::collections::BTreeMap<(u16, i64), Scalar>;

fn modelled(rows: &[(i64, [Option<u8>; 4])]) -> Model {
    let mut model = Model::new();
    for (time, fields) in rows {
        for (field, n) in fields.iter().enumerate() {
            if let Some(n) = n {
                model.insert((field as u16, *time), value(field as u16, *n));
            }
        }
    }
    model
}

fn contents(table: &Table) -> Model {
    let fields: Vec<u16> = table.columns.iter().map(|column| column.field).collect();
    let of = |field| {
        let points = table.clone().points(&[field]).remove(0).unwrap();
        let of = points.iter().map(|(time, value)| ((field, time), value.to_scalar()));
        of.collect::<Vec<_>>()
    };
    fields.into_iter().flat_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn doubles_of_any_bits_come_back(bits in prop::collection::vec(any::<u64>(), 1..300)) {
        let values = bits.iter().map(|&bits| f64::from_bits(bits)).collect();
        let table = table(0..bits.len() as i64, Values::Float(values));
        prop_assert!(same_bits(&through(&table), &table));
    }

    #[test]
    fn decimals_come_back(n in prop::collection::vec(-100_000i32..100_000, 1..300), power in 0..12) {
        let values = n.iter().map(|&n| f64::from(n) / 10f64.powi(power)).collect();
        let table = table(0..n.len() as i64, Values::Float(values));
        prop_assert!(same_bits(&through(&table), &table));
    }

    #[test]
    fn integers_and_times_come_back(
        mut times in prop::collection::btree_set(any::<i64>(), 1..200),
        small in any::<bool>(),
    ) {
        times.remove(&i64::MAX);
        let values: Vec<i64> =
            times.iter().map(|&time| if small { time % 100 } else { time ^ 0x5555 }).collect();
        let unsigned = values.iter().map(|&value| value as u64).collect();
        for values in [Values::Integer(values), Values::Unsigned(unsigned)] {
            let table = table(times.iter().copied(), values);
            prop_assert_eq!(through(&table), table);
        }
    }

    #[test]
    fn rows_are_sorted_and_the_last_of_each_time_counts(rows in any_rows(), cut in 0usize..120) {
        let cut = cut.min(rows.len());
        let whole = built(&rows);
        prop_assert_eq!(contents(&through(&whole)), modelled(&rows));
        // The same rows in two parts.
        let (mut early, late) = (built(&rows[..cut]), built(&rows[cut..]));
        early.append(late);
        early.resolve();
        prop_assert_eq!(contents(&early), modelled(&rows));
        let rows_left = early.times.len();
        let mut places = vec![cut / 3 % rows_left, cut / 2 % rows_left, cut % rows_left];
        places.sort_unstable();
        places.dedup();
        places.retain(|&place| place > 0);
        let mut parts = Model::new();
        for part in early.divide(&places) {
            let most = bytes_max(&part);
            prop_assert!(encode(KEY, &[(7, part.clone())]).len() <= BYTES_MAX + most);
            for half in part.halve_columns().iter().filter(|half| !half.times.is_empty()) {
                prop_assert!(bytes_max(half) <= most);
                parts.extend(contents(&through(half)));
            }
        }
        prop_assert_eq!(parts, modelled(&rows));
    }

    #[test]
    fn what_is_cut_is_gone_and_the_rest_stays(rows in any_rows(), from in 0i64..60, len in 0i64..60) {
        let span = Span { from, to: from + len };
        let mut table = built(&rows);
        let most = bytes_max(&table);
        let mut model = modelled(&rows);
        let before = model.len();
        model.retain(|(field, time), _| *field == 1 || !span.contains(*time));
        prop_assert_eq!(table.cut(|field| field != 1, span), model.len() < before);
        prop_assert!(bytes_max(&table) <= most);
        prop_assert_eq!(contents(&through(&table)), model);
    }

    #[test]
    fn bytes_of_any_kind_are_refused_without_a_panic(
        rows in any_rows(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        seal in any::<bool>(),
    ) {
        let table = built(&rows);
        let mut bytes = encode(KEY, &[(1, table)]);
        for (at, byte) in &damage {
            let at = 8 + at.index(bytes.len() - 8);
            bytes[at] ^= byte;
        }
        if seal {
            // As if the checksum fitted.
            let sum = checksum(KEY, &bytes);
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        if let Ok(block) = Block::open(KEY, &bytes) {
            let _either = block.tables();
            let _either = block.points(1, &[2, 3]);
        }
    }
}

#[test]
fn a_block_belongs_to_its_key_and_says_what_is_wrong() {
    let bytes = encode(KEY, &[(7, table(0..3, Values::Boolean(vec![true, false, true])))]);
    assert_eq!(Block::open(b"other", &bytes).err(), Some(Bad::Checksum));
    assert_eq!(Block::open(KEY, &bytes[..5]).err(), Some(Bad::Magic));
    let block = Block::open(KEY, &bytes).unwrap();
    let points = block.points(7, &[3]).unwrap().remove(0).unwrap();
    assert_eq!(points.iter().nth(1), Some((1, Value::Boolean(false))));
    assert_eq!(
        (block.points(7, &[4]).unwrap(), block.points(8, &[3]).unwrap()),
        (vec![None], vec![None])
    );
    assert_eq!(block.tables().unwrap().len(), 1);
    assert_eq!(points.values.kind(), Kind::Boolean);
}

/// A column of decimals was stored as integers, which have no negative zero: -0.0 lost its sign.
#[test]
fn a_zero_keeps_its_sign() {
    for values in [vec![-0.0], vec![0.0, -0.0, 1.5], vec![-0.0; 100], vec![-0.0, 0.0]] {
        let table = table(0..values.len() as i64, Values::Float(values));
        assert!(same_bits(&through(&table), &table), "{table:?}");
    }
}

/// Once a row took a bit in each column: 65,000 rows of one field each, all different, took half a gigabyte.
#[test]
fn a_sparse_table_takes_bytes_by_its_points() {
    const ROWS: u16 = 20_000;
    let mut builder = Builder::default();
    for n in 0..ROWS {
        builder.row(i64::from(n) * 1000);
        builder.value(n / 2 * 2 + (1 - n % 2), Value::Float(f64::from(n) / 7.0));
    }
    let table = builder.resolved();
    let bytes = encode(KEY, &[(7, table.clone())]);
    assert!(bytes.len() < usize::from(ROWS) * 40, "{} bytes", bytes.len());
    assert_eq!(bytes[8], VERSION, "an older program is told that it cannot read it");
    assert_eq!(through(&table), table);
    assert!(bytes.len() <= BYTES_MAX + bytes_max(&table));
    let points: usize = table.columns.iter().map(|column| column.values.len()).sum();
    assert_eq!(points, usize::from(ROWS));
}

/// The size of a point, for readings like those of benches: 2000 rows of ten fields, every ten seconds.
#[test]
fn readings_take_few_bytes() {
    use rand::{RngExt, SeedableRng};
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
    const ROWS: usize = 2000;
    let mut normal = move || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    let mut walk = |start: f64| {
        let mut at = start;
        let step = |_| {
            at = (at + normal()).clamp(0.0, 100.0);
            at
        };
        (0..ROWS).map(step).collect::<Vec<f64>>()
    };
    let mut bytes_per_point = |values: &dyn Fn(Vec<f64>) -> Values| {
        let columns = (0..10u16).map(|field| {
            let values = values(walk(f64::from(field) * 10.0));
            Column { field, rows: None, values }
        });
        let columns = columns.collect();
        let times = (0..ROWS as i64).map(|n| 1_451_606_400_000_000_000 + n * 10_000_000_000);
        let table = Table { times: times.collect(), columns };
        encode(KEY, &[(1, table)]).len() as f64 / (ROWS * 10) as f64
    };
    let integers = bytes_per_point(&|walk| {
        Values::Integer(walk.into_iter().map(|value| value as i64).collect())
    });
    let decimals = bytes_per_point(&|walk| {
        Values::Float(walk.into_iter().map(|value| (value * 100.0).round() / 100.0).collect())
    });
    let doubles = bytes_per_point(&Values::Float);
    println!("bytes a point: integers {integers:.2}, decimals {decimals:.2}, doubles {doubles:.2}");
    assert!(integers <= 1.5 && decimals <= 3.0 && doubles < 8.0);
}
