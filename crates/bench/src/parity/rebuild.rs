//! B34: how long the data strips of a lost disk take to compute, by how much the journals hold.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use anyhow::ensure;
use policy::code;
use policy::parity_log::data::{self, Data};
use policy::parity_log::index::Delta;
use policy::parity_log::rebuild::{self, Source};
use policy::parity_log::record::Group;
use policy::parity_log::view::Entry;
use policy::time::Instant;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cluster::{Cluster, For};
use super::device::Medium;
use super::layout::{Block, DATA, GROUP_BLOCKS, STRIP, server_of, slot_of};
use super::load::{self, Operation};
use super::machines::options;
use super::scheme::Scheme;
use super::speculative::{parities_of, token};
use super::timeline::{Action, Join};

/// A read that goes on with an action.
type Read<S> = Box<dyn FnOnce(&mut S, Action<S>)>;

/// The server whose disk is lost.
const LOST: usize = 0;

/// Groups that are rebuilt at once.
const AT_ONCE: usize = 8;

/// Writes under way while journals fill up.
const FILL_DEPTH: usize = 64;

/// What a rebuild took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rebuilt {
    /// From the loss to the last strip's write.
    pub(super) took: Duration,
    /// Strips.
    pub(super) strips: usize,
    /// Bytes of the emptiest journal before it.
    pub(super) journal_bytes: u64,
}

struct Rebuild {
    left: VecDeque<Group>,
    open: usize,
    ended: Instant,
}

/// Writes half of the blocks of `groups` groups until each journal holds at least `journal_bytes` bytes, loses a disk, and rebuilds
/// its data strips.
///
/// # Errors
/// The strips are not what they were.
pub(super) fn measure(journal_bytes: u64, groups: u64, seed: u64) -> anyhow::Result<Rebuilt> {
    let mut cluster = Cluster::new(Medium::Flash, seed)?;
    // Nothing is merged yet: merges begin at one half.
    cluster.machines.options = options(journal_bytes * 4 + (64 << 20));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let some = load::distinct(groups, &cluster.layout, &mut random);
    let groups: BTreeSet<Group> = some.iter().map(|block| block.group).collect();
    let set: Vec<Block> = groups
        .iter()
        .flat_map(|&group| (0..GROUP_BLOCKS).map(move |it| u64::from(group) * GROUP_BLOCKS + it))
        .filter(|number| number.is_multiple_of(2))
        .map(Block::of)
        .collect();
    cluster.start(&groups);
    cluster.drive(Scheme::HIT, Operation::Write, &set, FILL_DEPTH);
    while cluster.journal_bytes()[1] < journal_bytes {
        let some = load::choices(256, &set, &mut random);
        cluster.drive(Scheme::HIT, Operation::Write, &some, FILL_DEPTH);
    }
    cluster.drain();
    let journal_bytes = cluster.journal_bytes()[1];

    let lost: VecDeque<Group> =
        groups.iter().copied().filter(|&group| slot_of(group, LOST) < DATA).collect();
    let strips = lost.len();
    cluster.replace_disk(LOST);
    for &group in &lost {
        let strip = slot_of(group, LOST);
        cluster.strips.remove(&(group, strip));
        cluster.machines.data.insert((group, strip), Data::new(group, strip));
    }
    let begun = cluster.now();
    let entry = |group, strip| match server_of(group, strip) {
        LOST => Entry::Lost,
        _ => Entry::Continued,
    };
    cluster.install(entry);
    cluster.drain();
    let rebuild = Rebuild { left: lost, open: strips, ended: begun };
    let rebuild = Rc::new(RefCell::new(rebuild));
    for _ in 0..AT_ONCE {
        cluster.rebuild_next(&rebuild);
    }
    cluster.drain();
    ensure!(rebuild.borrow().open == 0, "a strip was not rebuilt");
    let took = rebuild.borrow().ended.since(begun);
    // The strips serve again.
    for (&(group, strip), machine) in &mut cluster.machines.data {
        if server_of(group, strip) == LOST {
            *machine = Data::new(group, strip);
        }
    }
    cluster.install(|group, strip| match server_of(group, strip) {
        LOST => Entry::Restarted,
        _ => Entry::Continued,
    });
    cluster.drain();
    cluster.merge_all();
    cluster.check(true)?;
    Ok(Rebuilt { took, strips, journal_bytes })
}

impl Cluster {
    fn rebuild_next(&mut self, rebuild: &Rc<RefCell<Rebuild>>) {
        let Some(group) = rebuild.borrow_mut().left.pop_front() else { return };
        let lost = slot_of(group, LOST);
        let left: VecDeque<usize> = (0..DATA).filter(|&strip| strip != lost).collect();
        let rebuild = Rc::clone(rebuild);
        let rebuilt = move |cluster: &mut Self| {
            {
                let mut rebuild = rebuild.borrow_mut();
                rebuild.open -= 1;
                rebuild.ended = cluster.now();
            }
            cluster.rebuild_next(&rebuild);
        };
        self.lock_strips(group, left, Box::new(rebuilt));
    }

    /// Locks the strips one after the other, and computes the lost one.
    fn lock_strips(&mut self, group: Group, mut left: VecDeque<usize>, done: Action<Self>) {
        let Some(strip) = left.pop_front() else {
            self.compute(group, done);
            return;
        };
        let locked = move |cluster: &mut Self| cluster.lock_strips(group, left, done);
        self.machines.locking.insert((token(group), group, strip), Box::new(locked));
        let view = self.machines.view;
        self.send(move |cluster| {
            let lock = data::Event::Lock { view, token: token(group), range: 0..STRIP };
            cluster.step_data(group, strip, lock);
        });
    }

    fn compute(&mut self, group: Group, done: Action<Self>) {
        let lost = slot_of(group, LOST);
        let mut indexes = BTreeMap::new();
        for server in parities_of(group) {
            let machine = &self.machines.parities[server];
            let index = |strip| machine.index(group, strip).expect("it has the group");
            // The plan names parity strips by their number in the code.
            indexes.insert(slot_of(group, server) - DATA, (0..DATA).map(index).collect());
        }
        let strips: Vec<usize> = (0..DATA).filter(|&strip| strip != lost).collect();
        let plan = rebuild::plan(lost, &(0..STRIP), DATA, &strips, &indexes);
        let parts = plan.expect("one strip is lost");
        let mut bytes = Vec::new();
        let mut reads: Vec<Read<Self>> = Vec::new();
        for part in parts {
            let range = part.range;
            let (start, len) = (range.start, range.end - range.start);
            match part.source {
                Source::Journal { parity, place } => {
                    let server = server_of(group, DATA + parity);
                    bytes.extend(self.value(server, place, &range));
                    reads.push(Box::new(move |cluster, done| {
                        cluster.fetch(server, place, &range, done);
                    }));
                }
                Source::Decode { strips, parities } => {
                    let mut have: Vec<(usize, Vec<u8>)> = Vec::new();
                    let slots = strips.into_iter().map(|strip| (strip, Vec::new()));
                    let parities = parities.into_iter().map(|(j, deltas)| (DATA + j, deltas));
                    for (slot, deltas) in slots.chain(parities) {
                        have.push((slot, self.with_changes((group, slot), start, len, &deltas)));
                        let server = server_of(group, slot);
                        let address = self.layout.strip(group, slot, start);
                        reads.push(Box::new(move |cluster, done| {
                            cluster.read(For::Merge, server, [address, len], false, done);
                        }));
                        for delta in deltas {
                            for place in [delta.old, delta.new] {
                                let range = delta.range.clone();
                                reads.push(Box::new(move |cluster, done| {
                                    cluster.fetch(server, place, &range, done);
                                }));
                            }
                        }
                    }
                    let have: Vec<(usize, &[u8])> =
                        have.iter().map(|(slot, bytes)| (*slot, &bytes[..])).collect();
                    bytes.extend(code::recover(DATA, &have, lost));
                }
            }
        }
        let address = self.layout.strip(group, lost, 0);
        let written = move |cluster: &mut Self| {
            cluster.put(group, lost, 0, &bytes);
            for strip in (0..DATA).filter(|&strip| strip != lost) {
                cluster.step_data(group, strip, data::Event::Unlock { token: token(group) });
            }
            done(cluster);
        };
        let read = move |cluster: &mut Self| {
            cluster.send(move |cluster| {
                cluster.write(For::Merge, LOST, [address, STRIP], Box::new(written));
            });
        };
        let all = Join::new(reads.len(), Box::new(read));
        for read in reads {
            let part = all.part();
            self.send(move |cluster| read(cluster, part));
        }
    }

    /// A range of a strip, with what a journal adds to it.
    fn with_changes(
        &self,
        (group, slot): (Group, usize),
        start: u64,
        len: u64,
        deltas: &[Delta],
    ) -> Vec<u8> {
        let mut bytes = self.bytes(group, slot, start, len);
        for delta in deltas {
            let server = server_of(group, slot);
            let old = self.value(server, delta.old, &delta.range);
            let new = self.value(server, delta.new, &delta.range);
            let change: Vec<u8> = old.iter().zip(new).map(|(old, new)| old ^ new).collect();
            let at = (delta.range.start - start) as usize;
            let sums = bytes[at..].iter_mut();
            sums.zip(self.product(slot, delta.strip, &change)).for_each(|(sum, it)| *sum ^= it);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use policy::units::KIB;

    use super::*;

    #[test]
    fn lost_strips_are_computed_from_journals_and_fragments() {
        let got = measure(256 * KIB, 24, 2).expect("the strips are what they were");
        assert!(got.strips > 8 && got.journal_bytes >= 256 * KIB, "{got:?}");
        assert!(got.took > Duration::from_millis(10), "{got:?}");
    }
}
