//! Rows as the Time Series Benchmark Suite makes them (github.com/timescale/tsbs), as line protocol in memory: making
//! them costs more than storing them.

use std::fmt::Write;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Rows of a request.
pub const BATCH_ROWS: usize = 5000;

/// The time of the first row: the start of 2016, as in TSBS. Nanoseconds since 1970.
pub const START: i64 = 1_451_606_400_000_000_000;

/// The time between two rows of a source, in nanoseconds.
pub const STEP: i64 = 10_000_000_000;

/// The kind of values in a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Readings {
    /// Whole numbers from 0 to 100 in a random walk, as in TSBS.
    Integers,
    /// The same walk to two decimals.
    Decimals,
    /// The same walk, as doubles in full precision.
    Doubles,
}

/// Requests to send, and their contents.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bodies of [`BATCH_ROWS`] lines, the last one of fewer.
    pub batches: Vec<Vec<u8>>,
    /// Lines of all of them.
    pub rows: u64,
    /// Fields of all of them: one value for each series and time.
    pub points: u64,
    /// The measurements.
    pub measurements: &'static [&'static str],
    /// Behind the last time in the load, in nanoseconds since 1970.
    pub end: i64,
}

const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

const REGIONS: [&str; 9] = [
    "us-east-1",
    "us-west-1",
    "us-west-2",
    "eu-west-1",
    "eu-central-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-northeast-1",
    "sa-east-1",
];

/// A random walk between 0 and 100.
struct Walk(f64);

impl Walk {
    fn step(&mut self, random: &mut Xoshiro256PlusPlus) -> f64 {
        // The sum of twelve uniform draws is nearly normal.
        let normal: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        self.0 = (self.0 + normal).clamp(0.0, 100.0);
        self.0
    }
}

/// The tags of a host in line protocol.
fn host_tags(host: u64, random: &mut Xoshiro256PlusPlus, into: &mut String) {
    let region = REGIONS[random.random_range(0..REGIONS.len())];
    let (zone, rack) = (random.random_range(b'a'..=b'c') as char, random.random_range(0..100));
    let os = ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"][random.random_range(0..3)];
    let arch = ["x64", "x86"][random.random_range(0..2)];
    let team = ["SF", "NYC", "LON", "CHI"][random.random_range(0..4)];
    let (service, version) = (random.random_range(0..20), random.random_range(0..2));
    let environment = ["production", "staging", "test"][random.random_range(0..3)];
    write!(
        into,
        "cpu,hostname=host_{host},region={region},datacenter={region}{zone},rack={rack},os={os},arch={arch},\
         team={team},service={service},service_version={version},service_environment={environment}"
    )
    .expect("text grows");
}

/// TSBS's `cpu-only`: ten tags, ten fields; every host in turn, `steps` times.
#[must_use]
pub fn devops(hosts: u64, steps: u64, readings: Readings, seed: u64) -> Load {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut heads = Vec::new();
    for host in 0..hosts {
        let mut head = String::new();
        host_tags(host, &mut random, &mut head);
        let walks: Vec<Walk> =
            FIELDS.iter().map(|_| Walk(random.random::<f64>() * 100.0)).collect();
        heads.push((head, walks));
    }
    let mut lines = Lines::default();
    for step in 0..steps {
        let time = START + step as i64 * STEP;
        for (head, walks) in &mut heads {
            let line = lines.next();
            line.push_str(head);
            for (at, (field, walk)) in FIELDS.iter().zip(walks).enumerate() {
                let (before, value) = (if at == 0 { ' ' } else { ',' }, walk.step(&mut random));
                match readings {
                    Readings::Integers => write!(line, "{before}{field}={}i", value as i64),
                    Readings::Decimals => write!(line, "{before}{field}={value:.2}"),
                    Readings::Doubles => write!(line, "{before}{field}={value}"),
                }
                .expect("text grows");
            }
            writeln!(line, " {time}").expect("text grows");
        }
    }
    lines.load(&["cpu"], START + steps as i64 * STEP, FIELDS.len() as u64)
}

/// One row of each of `hosts` hosts, from the `first` one on: introduces their series.
#[must_use]
pub fn hosts(first: u64, hosts: u64, step: u64, fields: usize) -> Load {
    let mut lines = Lines::default();
    let time = START + step as i64 * STEP;
    for host in first..first + hosts {
        // The same tags in every step.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(host);
        let line = lines.next();
        host_tags(host, &mut random, line);
        for (at, field) in FIELDS.iter().take(fields).enumerate() {
            let before = if at == 0 { ' ' } else { ',' };
            write!(line, "{before}{field}={}i", random.random_range(0..100)).expect("text grows");
        }
        writeln!(line, " {time}").expect("text grows");
    }
    lines.load(&["cpu"], time + STEP, fields as u64)
}

/// The share of late rows of lorries, and the most rows by which they are late.
const LATE: f64 = 0.1;
const LATE_ROWS: u64 = 20_000;

/// TSBS's `iot`: lorries with two measurements each, of seven and three fields; a tenth of the rows comes up to
/// 20,000 rows late.
#[must_use]
pub fn lorries(lorries: u64, steps: u64, seed: u64) -> Load {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut fleet = Vec::new();
    for lorry in 0..lorries {
        let driver =
            ["Derek", "Rodney", "Albert", "Andy", "Seth", "Trish"][random.random_range(0..6)];
        let of = ["East", "West", "North", "South"][random.random_range(0..4)];
        let (model, load, fuel, usual) =
            [("F-150", 2000, 200, 15), ("G-2000", 5000, 300, 19), ("H-2", 1500, 150, 12)]
                [random.random_range(0..3)];
        let version = ["v1.0", "v1.5", "v2.0", "v2.3"][random.random_range(0..4)];
        let tags = format!(
            "name=truck_{lorry},fleet={of},driver={driver},model={model},device_version={version},\
             load_capacity={load},fuel_capacity={fuel},nominal_fuel_consumption={usual}"
        );
        let walks: [Walk; 9] = std::array::from_fn(|_| Walk(random.random::<f64>() * 100.0));
        fleet.push((tags, walks));
    }
    let mut lines = Lines::default();
    for step in 0..steps {
        let time = START + step as i64 * STEP;
        for (tags, walks) in &mut fleet {
            let mut next = |walk: usize| walks[walk].step(&mut random);
            let (north, east, height) =
                (next(0) * 1.8 - 90.0, next(1) * 3.6 - 180.0, next(2) * 5.0);
            let (speed, heading, grade) = (next(3), next(4) * 3.6, next(5));
            let (burnt, left, load) = (next(6) / 2.0, next(7) / 100.0, next(8) * 50.0);
            writeln!(
                lines.next(),
                "readings,{tags} latitude={north:.5},longitude={east:.5},elevation={height:.0},velocity={speed:.0},\
                 heading={heading:.0},grade={grade:.0},fuel_consumption={burnt:.1} {time}"
            )
            .expect("text grows");
            writeln!(
                lines.next(),
                "diagnostics,{tags} fuel_state={left:.1},current_load={load:.0},status={}i {time}",
                u8::from(speed < 1.0)
            )
            .expect("text grows");
        }
    }
    lines.delay(&mut random);
    let mut load = lines.load(&["readings", "diagnostics"], START + steps as i64 * STEP, 5);
    load.points = load.rows / 2 * 10;
    load
}

/// Lines one after the other, and the start of each.
#[derive(Default)]
struct Lines {
    text: String,
    starts: Vec<usize>,
    /// The sending order, if it differs from the order of lines.
    order: Option<Vec<usize>>,
}

impl Lines {
    fn next(&mut self) -> &mut String {
        self.starts.push(self.text.len());
        &mut self.text
    }

    fn delay(&mut self, random: &mut Xoshiro256PlusPlus) {
        let mut order: Vec<(u64, usize)> = (0..self.starts.len())
            .map(|line| {
                let is_late = random.random::<f64>() < LATE;
                let by = if is_late { random.random_range(1..=LATE_ROWS) } else { 0 };
                (line as u64 + by, line)
            })
            .collect();
        order.sort_unstable();
        self.order = Some(order.into_iter().map(|(_, line)| line).collect());
    }

    fn load(self, measurements: &'static [&'static str], end: i64, fields: u64) -> Load {
        let Self { text, mut starts, order } = self;
        let rows = starts.len();
        starts.push(text.len());
        let line = |line: usize| &text.as_bytes()[starts[line]..starts[line + 1]];
        let order = order.unwrap_or_else(|| (0..rows).collect());
        let batches = order
            .chunks(BATCH_ROWS)
            .map(|batch| batch.iter().flat_map(|&at| line(at)).copied().collect())
            .collect();
        Load { batches, rows: rows as u64, points: rows as u64 * fields, measurements, end }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn lines(load: &Load) -> Vec<&str> {
        let text = |batch| std::str::from_utf8(batch).expect("lines are text");
        load.batches.iter().flat_map(|batch| text(batch).lines()).collect()
    }

    #[test]
    fn a_host_has_the_same_ten_tags_and_ten_fields_in_every_row() {
        let load = devops(7, 1500, Readings::Integers, 1);
        let lines = lines(&load);
        assert_eq!((load.rows, load.points, load.batches.len()), (10_500, 105_000, 3));
        let heads: BTreeSet<&str> =
            lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!((lines.len(), heads.len()), (10_500, 7));
        for line in &lines {
            let [head, fields, _] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert_eq!((head.split(',').count(), fields.split(',').count()), (11, 10));
        }
        let again = devops(7, 1500, Readings::Integers, 1);
        assert_eq!(load.batches, again.batches);
        assert_ne!(load.batches, devops(7, 1500, Readings::Integers, 2).batches);
    }

    #[test]
    fn known_hosts_are_the_same_in_every_step() {
        let head = |load: &Load| -> Vec<String> {
            lines(load).iter().map(|line| line.split(' ').next().expect("a head").into()).collect()
        };
        let (one, other) = (hosts(5, 10, 0, 10), hosts(5, 10, 3, 1));
        assert_eq!(head(&one), head(&other));
        assert_eq!((one.points, other.points, other.end - one.end), (100, 10, 3 * STEP));
    }

    #[test]
    fn a_tenth_of_the_lorries_rows_comes_late_and_none_is_lost() {
        let load = lorries(20, 2000, 1);
        let lines = lines(&load);
        let time = |line: &&&str| -> i64 {
            line.rsplit(' ').next().and_then(|time| time.parse().ok()).expect("a time")
        };
        let mut latest = 0;
        let late = lines.iter().filter(|line| {
            latest = latest.max(time(line));
            time(line) < latest
        });
        let late = late.count() as f64 / lines.len() as f64;
        assert!((0.08..0.12).contains(&late), "{late}");
        let distinct: BTreeSet<(&str, i64)> = lines
            .iter()
            .map(|line| (line.split(' ').next().expect("a head"), time(&line)))
            .collect();
        assert_eq!((distinct.len() as u64, load.points), (load.rows, load.rows * 5));
    }
}
