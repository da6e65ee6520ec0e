//! The record of each operation.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::hotspot::Hotspot;
use super::latest::Latest;
use super::scrambled::Scrambled;
use crate::drive::Choose;

/// The popularity of records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Distribution {
    /// By Zipf's law with a skew of 0.99, scattered over all records.
    Zipfian,
    /// By Zipf's law, the newest record first.
    Latest,
    /// All equally.
    Uniform,
    /// A fifth of the records gets four fifths of the choices.
    Hotspot,
}

impl Distribution {
    /// Every distribution.
    pub const ALL: [Self; 4] = [Self::Zipfian, Self::Latest, Self::Uniform, Self::Hotspot];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
            Self::Uniform => "uniform",
            Self::Hotspot => "hotspot",
        }
    }
}

/// A choice among records.
#[derive(Clone, Debug)]
pub(crate) struct Chooser(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Zipfian(Scrambled),
    Latest(Latest),
    Uniform(u64),
    Hotspot(Hotspot),
}

impl Chooser {
    /// Chooses among `records`, at least one. `inserts` more are expected: zipfian choices include them, so that the
    /// popular records stay the same while others are inserted. Uniform and hot-spot choices cover only the initial
    /// records.
    pub(crate) fn new(distribution: Distribution, records: u64, inserts: u64) -> Self {
        Self(match distribution {
            Distribution::Zipfian => Kind::Zipfian(Scrambled::new(records + inserts)),
            Distribution::Latest => Kind::Latest(Latest::new(records)),
            Distribution::Uniform => Kind::Uniform(records),
            Distribution::Hotspot => Kind::Hotspot(Hotspot::new(records)),
        })
    }
}

impl Choose for Chooser {
    fn record(&mut self, records: u64, random: &mut Xoshiro256PlusPlus) -> u64 {
        loop {
            let record = match &mut self.0 {
                Kind::Zipfian(scrambled) => scrambled.record(random),
                Kind::Latest(latest) => latest.record(records, random),
                Kind::Uniform(records) => random.random_range(0..*records),
                Kind::Hotspot(hotspot) => hotspot.record(random),
            };
            if record < records {
                return record;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn only_records_that_are_there_are_chosen_and_the_same_seed_chooses_the_same() {
        for distribution in Distribution::ALL {
            let choices = || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
                let mut chooser = Chooser::new(distribution, 100, 50);
                let choices = (100..140).flat_map(|records| [records; 50]).map(|records| {
                    let record = chooser.record(records, &mut random);
                    assert!(record < records, "{distribution:?} chose {record} of {records}");
                    record
                });
                choices.collect::<Vec<_>>()
            };
            assert_eq!(choices(), choices());
        }
    }

    #[test]
    fn uniform_choices_are_even() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut chooser = Chooser::new(Distribution::Uniform, 100, 0);
        let mut counts = [0_u64; 100];
        (0..1_000_000).for_each(|_| counts[chooser.record(100, &mut random) as usize] += 1);
        let chi_square: f64 = counts.iter().map(|&n| (n as f64 - 1e4).powi(2) / 1e4).sum();
        // 99 degrees of freedom: exceeds 160 once in some ten thousand runs.
        assert!(chi_square < 160.0, "{chi_square}");
    }

    #[test]
    fn the_popular_records_stay_when_others_are_inserted() {
        let hottest = |records| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
            let mut chooser = Chooser::new(Distribution::Zipfian, 1000, 100);
            let mut counts = vec![0_u64; 1100];
            (0..20_000).for_each(|_| counts[chooser.record(records, &mut random) as usize] += 1);
            (0..1000).max_by_key(|&record| counts[record]).expect("there are records")
        };
        assert_eq!(hottest(1000), hottest(1090));
    }
}
