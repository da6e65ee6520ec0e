//! Which blocks clients write and read, and how often at once.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use policy::time::Instant;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cluster::{Cluster, ROUND_TRIP};
use super::layout::{BLOCK, Block, DATA, GROUP_BLOCKS, Layout, server_of};
use super::scheme::Scheme;

/// What clients do with a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operation {
    Write,
    Read,
}

/// Different blocks at random places.
pub(super) fn distinct(count: u64, layout: &Layout, random: &mut Xoshiro256PlusPlus) -> Vec<Block> {
    // A plain disk has a quarter of the blocks; addresses beyond begin again there.
    let all = layout.groups() * GROUP_BLOCKS;
    let mut seen = BTreeSet::new();
    let mut blocks = Vec::new();
    while (blocks.len() as u64) < count {
        let block = Block::of(random.random_range(0..all));
        if seen.insert(block) {
            blocks.push(block);
        }
    }
    blocks
}

/// Blocks in sequence from a random group on.
pub(super) fn sequence(count: u64, layout: &Layout, random: &mut Xoshiro256PlusPlus) -> Vec<Block> {
    let all = layout.groups() - count / GROUP_BLOCKS - 1;
    let first = random.random_range(0..all) * GROUP_BLOCKS;
    (first..first + count).map(Block::of).collect()
}

/// A number of choices among blocks, each as likely.
pub(super) fn choices(count: u64, blocks: &[Block], random: &mut Xoshiro256PlusPlus) -> Vec<Block> {
    (0..count).map(|_| blocks[random.random_range(0..blocks.len())]).collect()
}

/// What clients saw.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Of each operation, ascending.
    pub(super) latencies: Vec<Duration>,
    /// From the first begin to the last answer.
    pub(super) took: Duration,
}

struct Clients {
    left: VecDeque<Block>,
    /// Operations that are not answered.
    open: usize,
    latencies: Vec<Duration>,
    ended: Instant,
}

impl Cluster {
    /// Does an operation on each of the blocks, `depth` at a time, until the last is answered. More may be under way then.
    pub(super) fn drive(
        &mut self,
        scheme: Scheme,
        operation: Operation,
        blocks: &[Block],
        depth: usize,
    ) -> Seen {
        let begun = self.now();
        let clients = Clients {
            left: blocks.iter().copied().collect(),
            open: blocks.len(),
            latencies: Vec::with_capacity(blocks.len()),
            ended: begun,
        };
        let clients = Rc::new(RefCell::new(clients));
        for _ in 0..depth {
            self.issue(scheme, operation, &clients);
        }
        while clients.borrow().open > 0 {
            let action = self.timeline.next().expect("each operation is answered");
            action(self);
        }
        let clients = &mut *clients.borrow_mut();
        clients.latencies.sort_unstable();
        let latencies = std::mem::take(&mut clients.latencies);
        Seen { latencies, took: clients.ended.since(begun) }
    }

    fn issue(&mut self, scheme: Scheme, operation: Operation, clients: &Rc<RefCell<Clients>>) {
        let Some(block) = clients.borrow_mut().left.pop_front() else { return };
        let begun = self.now();
        let clients = Rc::clone(clients);
        let answered = move |cluster: &mut Self| {
            cluster.after(ROUND_TRIP / 2, move |cluster| {
                {
                    let mut clients = clients.borrow_mut();
                    let now = cluster.now();
                    clients.latencies.push(now.since(begun));
                    clients.open -= 1;
                    clients.ended = now;
                }
                cluster.issue(scheme, operation, &clients);
            });
        };
        self.send(move |cluster| match operation {
            Operation::Write => cluster.write_block(scheme, block, Box::new(answered)),
            Operation::Read => cluster.read_block(scheme, block, Box::new(answered)),
        });
    }

    fn write_block(&mut self, scheme: Scheme, block: Block, done: super::timeline::Action<Self>) {
        self.written += 1;
        let bytes = self.fill(self.written);
        self.newest.insert(block, bytes.clone());
        match scheme {
            Scheme::Plain => self.write_plain(block, bytes, done),
            Scheme::Copies => self.write_copies(block, bytes, done),
            Scheme::Incremental => self.write_incremental(block, bytes, done),
            Scheme::ParityLog { reads_ahead } => {
                self.write_parity_log(block, bytes, reads_ahead, done);
            }
            Scheme::Speculative { .. } => self.write_speculatively(block, bytes, done),
            Scheme::Logged => self.write_logged(block, bytes, done),
        }
    }

    fn read_block(&mut self, scheme: Scheme, block: Block, done: super::timeline::Action<Self>) {
        debug_assert!(block.strip < DATA);
        let server = server_of(block.group, block.strip);
        let (disk, address) = match scheme {
            Scheme::Plain => (0, self.layout.plain(block)),
            Scheme::Copies => (server, self.layout.copy(block, server)),
            Scheme::Incremental | Scheme::ParityLog { .. } => {
                (server, self.layout.strip(block.group, block.strip, block.start))
            }
            Scheme::Speculative { .. } => return self.read_strip(block, BLOCK, done),
            Scheme::Logged => return self.read_logged(block, done),
        };
        self.read(super::cluster::For::Client, disk, [address, BLOCK], false, done);
    }
}
