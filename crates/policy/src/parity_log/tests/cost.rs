//! What a write costs, in I/Os: the table of the module's documentation, exactly.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::data::{self, Data};
use super::super::journal::Options;
use super::super::parity::{self, Parity};
use super::super::record::{Group, Header, Piece, Request};
use super::super::scheme::{Cost, Scheme, cost};
use super::super::view::Entry;

const OPTIONS: Options = Options { capacity: 1 << 20, header: 64, align: 4096, extents_max: 256 };

/// One data strip and `k` parity servers, whose messages arrive at once.
struct Group1 {
    data: Data,
    parities: Vec<Parity>,
    cost: Cost,
    next: u64,
}

impl Group1 {
    fn new(k: usize) -> Self {
        let groups: BTreeMap<Group, (usize, Header)> = [(1, (4, Header::default()))].into();
        let parities = (0..k).map(|_| Parity::open(OPTIONS, &groups, [])).collect();
        let mut group = Self { data: Data::new(1, 0), parities, cost: Cost::default(), next: 0 };
        for j in 0..k {
            group.parity(j, parity::Event::Install { group: 1, view: 1, is_member: true });
        }
        let entry = Entry::Restarted;
        group.data(data::Event::Install { view: 1, parities: (0..k).collect(), entry });
        group
    }

    fn data(&mut self, event: data::Event) {
        for effect in self.data.step(event) {
            match effect {
                data::Effect::Send { parity, subject, ask } => {
                    self.parity(parity, parity::Event::Message { subject, ask });
                }
                data::Effect::ReadStrip { version, ranges } => {
                    self.cost.reads += ranges.len() as u64;
                    let zeros = |range: &Range<u64>| {
                        Piece::new(range.start, &vec![0; (range.end - range.start) as usize])
                    };
                    let pieces = ranges.iter().map(zeros).collect();
                    self.data(data::Event::StripRead { version, pieces });
                }
                data::Effect::WriteStrip { version, .. } => {
                    self.cost.writes += 1;
                    self.data(data::Event::StripWritten { version });
                }
                data::Effect::Answer { outcome, .. } => {
                    assert_eq!(outcome, data::Outcome::Written);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn parity(&mut self, j: usize, event: parity::Event) {
        let mut last = 0;
        for effect in self.parities[j].step(event) {
            match effect {
                parity::Effect::Send { subject, answer, .. } => {
                    self.data(data::Event::Message { parity: j, subject, answer });
                }
                parity::Effect::Append(record) => last = record.lsn,
                parity::Effect::Sync => {
                    // Records of one sync are one append.
                    self.cost.appends += 1;
                    self.parity(j, parity::Event::Synced(last));
                }
                parity::Effect::Merge(_) => self.parity(j, parity::Event::Merged(1)),
                parity::Effect::Trim(_) => {}
            }
        }
    }

    fn write(&mut self, start: u64) -> Cost {
        self.cost = Cost::default();
        let request = Request { client: 1, number: self.next };
        self.next += 1;
        let piece = Piece::new(start, &[7; 4096]);
        self.data(data::Event::Write { view: 1, request, oldest: 0, piece });
        self.cost
    }
}

#[test]
fn a_hit_reads_nothing_and_appends_once_at_each_parity_server() {
    for k in 1..=3 {
        let mut group = Group1::new(k);
        // The data server knows that the range has no base: value and base go together.
        assert_eq!(group.write(0), cost(Scheme::SpeculativeKnownMiss, k as u64));
        assert_eq!(group.write(0), cost(Scheme::SpeculativeHit, k as u64));
        // A merge leaves its values as bases.
        for j in 0..k {
            group.parity(j, parity::Event::Merge(1));
        }
        assert_eq!(group.write(0), cost(Scheme::SpeculativeHit, k as u64));
    }
}

#[test]
fn a_miss_that_is_not_known_reads_once_and_appends_twice() {
    for k in 1..=3 {
        let mut group = Group1::new(k);
        // A view in which the data server goes on knows nothing of bases.
        for j in 0..k {
            group.parity(j, parity::Event::Install { group: 1, view: 2, is_member: true });
        }
        let entry = Entry::Continued;
        group.data(data::Event::Install { view: 2, parities: (0..k).collect(), entry });
        group.cost = Cost::default();
        let request = Request { client: 1, number: 0 };
        let piece = Piece::new(0, &[7; 4096]);
        group.data(data::Event::Write { view: 2, request, oldest: 0, piece });
        assert_eq!(group.cost, cost(Scheme::SpeculativeMiss, k as u64));
    }
}

#[test]
fn has_the_costs_of_the_other_schemes() {
    let of = |scheme| {
        let Cost { reads, writes, appends } = cost(scheme, 2);
        (reads, writes, appends)
    };
    assert_eq!(of(Scheme::Incremental), (3, 3, 0));
    assert_eq!(of(Scheme::ParityLogging), (1, 1, 2));
    assert_eq!(of(Scheme::SpeculativeMiss), (1, 1, 4));
    assert_eq!(of(Scheme::SpeculativeKnownMiss), (1, 1, 2));
    assert_eq!(of(Scheme::SpeculativeHit), (0, 1, 2));
}
