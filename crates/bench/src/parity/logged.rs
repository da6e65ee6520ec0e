//! New data in a log first, and in place later, a row at a time: as a pool does with objects that are written in place.
//!
//! ```text
//!   write ─▶ log of blocks, k + 1 copies, a sync for all that wait ─▶ answered
//!   later ─▶ the log is read ─▶ what a row's new parity takes ─▶ new parity to the log of rows ─▶ data and parity in place
//! ```
//! A row is a group here. [`policy::recycle::plan`] says what it reads and writes. A log has a file at a time, with each copy
//! in the journal of another server; the next file goes to the next servers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use policy::parity_log::record::Group;
use policy::recycle::{self, How, Plan, Span};
use policy::units::MIB;

use super::cluster::{Cluster, For};
use super::layout::{BLOCK, Block, DATA, PARITY, server_of};
use super::logs::{COPIES, Logged, Newer, Place, Which};
use super::machines::LARGE;
use super::timeline::{Action, Join};

/// Bytes of a log that are read at once, as a pool reads them.
const LOADED: u64 = MIB;

/// Rows that change at the same time, as in a pool.
const AT_ONCE: usize = 8;

/// A row that goes in place, and its blocks that are newer.
struct Row {
    group: Group,
    newer: Vec<(Block, Arc<[u8]>)>,
}

impl Cluster {
    /// Writes a block to the log.
    pub(super) fn write_logged(&mut self, block: Block, bytes: Arc<[u8]>, done: Action<Self>) {
        let logged = move |cluster: &mut Self, place| {
            // Records of a batch become durable in their order, so the last write of a block stays.
            cluster.logs.newer.insert(block, Newer { bytes, place });
            done(cluster);
        };
        self.log(Which::Blocks, LARGE.record_bytes(BLOCK), Box::new(logged));
    }

    /// Reads a block from the log if that has it, else in place.
    pub(super) fn read_logged(&mut self, block: Block, done: Action<Self>) {
        if let Some(newer) = self.logs.newer.get(&block) {
            let Place { server, at } = newer.place;
            self.read_journal(For::Client, server, [at, BLOCK], done);
            return;
        }
        let address = self.layout.strip(block.group, block.strip, block.start);
        let server = server_of(block.group, block.strip);
        self.read(For::Client, server, [address, BLOCK], false, done);
    }

    /// Appends a record; those that wait share a sync of each copy.
    fn log(&mut self, which: Which, bytes: u64, done: Logged<Self>) {
        self.logs.log(which).waiting.push((bytes, done));
        self.sync_log(which);
    }

    fn sync_log(&mut self, which: Which) {
        let log = self.logs.log(which);
        if log.is_syncing || log.waiting.is_empty() {
            return;
        }
        log.is_syncing = true;
        let waiting = std::mem::take(&mut log.waiting);
        let servers = log.servers();
        let len = waiting.iter().map(|(bytes, _)| bytes).sum();
        log.appended += len;
        let mut from = [0; COPIES];
        for (from, server) in from.iter_mut().zip(servers) {
            *from = self.journals[server].end;
            self.journals[server].end += len;
        }
        let mut place = Place { server: servers[0], at: from[0] };
        self.logs.log(which).extents.push((place, len));
        let synced = move |cluster: &mut Self| {
            cluster.logs.log(which).is_syncing = false;
            for (bytes, done) in waiting {
                done(cluster, place);
                place.at += bytes;
            }
            cluster.sync_log(which);
        };
        let whom = match which {
            Which::Blocks => For::Client,
            Which::Rows => For::Merge,
        };
        let all = Join::new(COPIES, Box::new(synced));
        for (server, from) in servers.into_iter().zip(from) {
            let part = all.part();
            self.send(move |cluster| {
                let back = |cluster: &mut Self| cluster.send(part);
                cluster.sync_journal(whom, server, [from, len], Box::new(back));
            });
        }
    }

    /// Begins to bring all that the log has newer in place: reads the log once, then changes rows in their order.
    pub(super) fn empty_log(&mut self) {
        let mut rows: VecDeque<Row> = VecDeque::new();
        for (block, Newer { bytes, .. }) in std::mem::take(&mut self.logs.newer) {
            match rows.back_mut().filter(|row| row.group == block.group) {
                Some(row) => row.newer.push((block, bytes)),
                None => rows.push_back(Row { group: block.group, newer: vec![(block, bytes)] }),
            }
        }
        let extents = std::mem::take(&mut self.logs.blocks.extents);
        self.load(pieces(&extents), rows);
    }

    /// Reads the log, a piece after the other.
    fn load(&mut self, mut pieces: VecDeque<(Place, u64)>, rows: VecDeque<Row>) {
        if let Some((Place { server, at }, len)) = pieces.pop_front() {
            let next = move |cluster: &mut Self| cluster.load(pieces, rows);
            self.read_journal(For::Merge, server, [at, len], Box::new(next));
            return;
        }
        let rows = Rc::new(RefCell::new(rows));
        for _ in 0..AT_ONCE {
            self.change_next_row(&rows);
        }
    }

    fn change_next_row(&mut self, rows: &Rc<RefCell<VecDeque<Row>>>) {
        let Some(row) = rows.borrow_mut().pop_front() else { return };
        let group = row.group;
        let number = |block: &Block| (block.strip, (block.start / BLOCK) as u32);
        let dirty: Vec<_> = row.newer.iter().map(|(block, _)| number(block)).collect();
        let plan = recycle::plan(self.logs.code, &dirty, &[], self.logs.price);
        let plan = plan.expect("no server is away");
        let reads = plan.reads.clone();
        let rows = Rc::clone(rows);
        let read = move |cluster: &mut Self| {
            let writes = cluster.new_bytes(&row, &plan);
            let of_parity = writes.iter().filter(|(span, _)| span.fragment >= DATA);
            let parity = of_parity.map(|(_, bytes)| bytes.len() as u64).sum();
            let decided = move |cluster: &mut Self, _| {
                let ended = move |cluster: &mut Self| cluster.change_next_row(&rows);
                let all = Join::new(writes.len(), Box::new(ended));
                for (span, bytes) in writes {
                    cluster.write_span(group, span, bytes, all.part());
                }
            };
            cluster.log(Which::Rows, LARGE.record_bytes(parity), Box::new(decided));
        };
        if reads.is_empty() {
            read(self);
            return;
        }
        let all = Join::new(reads.len(), Box::new(read));
        for Span { fragment, range } in reads {
            let part = all.part();
            let address = self.layout.strip(group, fragment, range.start);
            let len = range.end - range.start;
            self.send(move |cluster| {
                let back = |cluster: &mut Self| cluster.send(part);
                let server = server_of(group, fragment);
                // The row's other servers and the log of rows take longer than an arm would wait.
                cluster.read(For::Merge, server, [address, len], false, Box::new(back));
            });
        }
    }

    fn write_span(&mut self, group: Group, span: Span, bytes: Vec<u8>, done: Action<Self>) {
        let Span { fragment, range } = span;
        let address = self.layout.strip(group, fragment, range.start);
        self.send(move |cluster| {
            let len = range.end - range.start;
            let written = move |cluster: &mut Self| {
                cluster.put(group, fragment, range.start, &bytes);
                cluster.send(done);
            };
            cluster.write(
                For::Merge,
                server_of(group, fragment),
                [address, len],
                Box::new(written),
            );
        });
    }

    /// What a plan writes, computed from what it reads and what the log has newer.
    fn new_bytes(&self, row: &Row, plan: &Plan) -> Vec<(Span, Vec<u8>)> {
        let blocks = |span: &Span| {
            let fragment = span.fragment;
            span.range.clone().step_by(BLOCK as usize).map(move |start| (fragment, start))
        };
        let mut have: BTreeMap<(usize, u64), Vec<u8>> = BTreeMap::new();
        for (fragment, start) in plan.reads.iter().flat_map(blocks) {
            have.insert((fragment, start), self.bytes(row.group, fragment, start, BLOCK));
        }
        let mut new = have.clone();
        for (block, bytes) in &row.newer {
            new.insert((block.strip, block.start), bytes.to_vec());
        }
        let starts = plan.columns.iter().flat_map(|column| column.clone().step_by(BLOCK as usize));
        for start in starts {
            for slot in DATA..DATA + PARITY {
                let mut sum = match plan.how {
                    How::Delta => have[&(slot, start)].clone(),
                    How::Encode | How::Decode => vec![0; BLOCK as usize],
                };
                let mut add = |strip, bytes: &[u8]| {
                    let product = self.product(slot, strip, bytes);
                    sum.iter_mut().zip(product).for_each(|(sum, byte)| *sum ^= byte);
                };
                for strip in 0..DATA {
                    match plan.how {
                        How::Encode | How::Decode => add(strip, &new[&(strip, start)]),
                        How::Delta => {
                            let (old, new) = (have.get(&(strip, start)), new.get(&(strip, start)));
                            if let (Some(old), Some(new)) = (old, new) {
                                let change: Vec<u8> =
                                    old.iter().zip(new).map(|(old, new)| old ^ new).collect();
                                add(strip, &change);
                            }
                        }
                    }
                }
                new.insert((slot, start), sum);
            }
        }
        let bytes = |span: &Span| blocks(span).flat_map(|at| new[&at].clone()).collect();
        plan.writes.iter().map(|span| (span.clone(), bytes(span))).collect()
    }
}

/// What is read at once of these extents of a log, in their order.
fn pieces(extents: &[(Place, u64)]) -> VecDeque<(Place, u64)> {
    let mut pieces: VecDeque<(Place, u64)> = VecDeque::new();
    for &(place, len) in extents {
        match pieces.back_mut() {
            Some((last, read))
                if last.server == place.server
                    && last.at + *read == place.at
                    && *read + len <= LOADED =>
            {
                *read += len;
            }
            _ => pieces.push_back((place, len)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::parity::device::{FLASH_READ, Medium};
    use crate::parity::load::{self, Operation};
    use crate::parity::scheme::Scheme;

    fn cluster() -> Cluster {
        Cluster::new(Medium::Flash, 4).expect("it is in the catalogue")
    }

    #[test]
    fn a_row_goes_in_place_once_however_often_its_blocks_were_written() {
        let mut cluster = cluster();
        // All blocks of group 1, and one block of group 3, each three times.
        let set: Vec<Block> = (16..32).chain([50]).map(Block::of).collect();
        for _ in 0..3 {
            cluster.drive(Scheme::Logged, Operation::Write, &set, 16);
        }
        cluster.drain();
        assert_eq!((cluster.counts.reads, cluster.counts.writes), (0, 0));
        assert!(cluster.check(true).is_err(), "nothing is in place yet");
        let before = cluster.counts.of_merges;
        cluster.empty_log();
        cluster.drain();
        cluster.check(true).expect("all is in place, and parity fits");
        // A whole row reads nothing and writes six strips; one block reads and writes its own and two of parity. Each row has
        // three appends, which the rows may share; the log is read once.
        let of_rows = cluster.counts.of_merges - before;
        assert!((16..=19).contains(&of_rows), "{of_rows}");
    }

    #[test]
    fn what_the_log_has_newer_is_read_from_it() {
        let mut cluster = cluster();
        let blocks = [Block::of(7), Block::of(8)];
        cluster.drive(Scheme::Logged, Operation::Write, &blocks[..1], 1);
        let mut read = |block| cluster.drive(Scheme::Logged, Operation::Read, &[block], 1).took;
        let (from_log, in_place) = (read(blocks[0]), read(blocks[1]));
        assert!(from_log > FLASH_READ && from_log < 4 * FLASH_READ, "{from_log:?}");
        assert!(in_place > 10 * FLASH_READ, "{in_place:?}");
    }

    #[test]
    fn parity_is_right_whatever_a_row_reads() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        for dirty in 1..16 {
            let mut cluster = cluster();
            let all: Vec<Block> = (160..176).map(Block::of).collect();
            for blocks in [all.clone(), load::choices(dirty, &all, &mut random)] {
                cluster.drive(Scheme::Logged, Operation::Write, &blocks, 4);
                cluster.empty_log();
                cluster.drain();
                cluster.check(true).expect("parity fits");
            }
        }
    }

    #[test]
    fn pieces_that_follow_each_other_are_read_together() {
        let at = |server, at| Place { server, at };
        let extents = [(at(0, 0), LOADED / 2), (at(0, LOADED / 2), 512), (at(1, LOADED), 512)];
        let lens: Vec<u64> = pieces(&extents).iter().map(|(_, len)| *len).collect();
        assert_eq!(lens, [LOADED / 2 + 512, 512]);
    }
}
