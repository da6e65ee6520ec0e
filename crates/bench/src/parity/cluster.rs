//! Six servers in virtual time: disks, journals, a network, and the bytes of strips.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use policy::code;
use policy::contract::spec::Bought;
use policy::contract::{Contract, catalogue};
use policy::disk::Disk;
use policy::parity_log::record::Group;
use policy::time::{Instant, NANOS_PER_SEC};
use policy::units::GIB;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::device::{
    APPEND, FLASH_BYTES_PER_SEC, FLASH_READ, HOLD_MAX, Job, Journal, Medium, Place, Spindle,
};
use super::layout::{BLOCK, Block, DATA, Layout, PARITY, SERVERS, STRIP};
use super::logs::Logs;
use super::machines::Machines;
use super::timeline::{Action, Timeline};

/// From a client to a server and back, or from a server to another and back.
pub(super) const ROUND_TRIP: Duration = Duration::from_micros(150);

/// Bytes of a journal on disk.
const JOURNAL: u64 = 4 * GIB;

/// Different contents of a block.
const FILLS: usize = 251;

/// I/Os, until clients are answered and of merges apart.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    /// Reads of disks, and by clients of journals.
    pub(super) reads: u64,
    /// Writes in place.
    pub(super) writes: u64,
    /// Syncs of journals.
    pub(super) appends: u64,
    /// All I/Os of merges, journals included.
    pub(super) of_merges: u64,
    /// Writes for which a parity server needed a value before.
    pub(super) misses: u64,
}

/// Whom an I/O is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum For {
    Client,
    Merge,
}

/// A change of a parity strip in a log.
pub(super) struct Change {
    /// Where the log has it.
    pub(super) from: u64,
    /// The offset in the strip.
    pub(super) start: u64,
    pub(super) bytes: Rc<[u8]>,
}

/// The servers.
pub(super) struct Cluster {
    pub(super) timeline: Timeline<Self>,
    pub(super) layout: Layout,
    /// What electronics and bus add to a request.
    bus: Duration,
    /// Disks of strips, then those of journals.
    pub(super) spindles: Vec<Spindle<Self>>,
    contract: Contract,
    /// By server.
    pub(super) journals: Vec<Journal<Self>>,
    pub(super) strips: BTreeMap<(Group, usize), Vec<u8>>,
    /// What was written last.
    pub(super) newest: BTreeMap<Block, Arc<[u8]>>,
    fills: Vec<Arc<[u8]>>,
    /// By parity strip and data strip: the products with the factor.
    tables: Vec<Vec<[u8; 256]>>,
    /// Blocks that are being written, and who waits for each.
    locks: BTreeMap<Block, VecDeque<Action<Self>>>,
    /// Writes so far.
    pub(super) written: u64,
    pub(super) counts: Counts,
    /// PARIX's servers.
    pub(super) machines: Machines<Self>,
    /// Changes of parity that were logged, by group and parity strip.
    pub(super) changes: BTreeMap<(Group, usize), Vec<Change>>,
    /// By server: the last range that was read ahead.
    pub(super) ahead: Vec<(u64, u64)>,
    /// The logs of new data.
    pub(super) logs: Logs<Self>,
}

/// The disk.
pub(super) fn hdd() -> anyhow::Result<Contract> {
    Ok(catalogue::find("hdd-7200")?.contract(None, Bought::default())?)
}

impl Cluster {
    /// Servers with blank disks.
    ///
    /// # Errors
    /// The catalogue lacks the disk.
    pub(super) fn new(medium: Medium, seed: u64) -> anyhow::Result<Self> {
        let contract = hdd()?;
        let mechanics = contract.disk.clone().context("the contract of a disk has mechanics")?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let layout = Layout::new(mechanics.capacity, JOURNAL, &mut random);
        let disks = if medium == Medium::OwnDisk { 2 * SERVERS } else { SERVERS };
        let spindle = |_| Spindle::new(Disk::new(&mechanics, Instant::ZERO));
        let journal = |server: usize| {
            Journal::new(match medium {
                Medium::Flash => Place::Flash { free_at: Instant::ZERO },
                Medium::OwnDisk => Place::Disk {
                    spindle: SERVERS + server,
                    from: random_start(seed, server),
                    len: JOURNAL,
                },
                Medium::SharedDisk => Place::Disk {
                    spindle: server,
                    from: layout.journal(),
                    len: layout.journal_bytes(),
                },
            })
        };
        let table = |j: usize, i: usize| {
            let factor = code::coefficient(DATA, DATA + j, i);
            std::array::from_fn(|byte| code::product(factor, byte as u8))
        };
        let fill = |_| {
            let mut bytes = vec![0; BLOCK as usize];
            random.fill_bytes(&mut bytes);
            bytes.into()
        };
        Ok(Self {
            timeline: Timeline::new(),
            bus: contract.latency.write.p50,
            spindles: (0..disks).map(spindle).collect(),
            journals: (0..SERVERS).map(journal).collect(),
            layout: layout.clone(),
            contract,
            strips: BTreeMap::new(),
            newest: BTreeMap::new(),
            fills: (0..FILLS).map(fill).collect(),
            tables: (0..PARITY).map(|j| (0..DATA).map(|i| table(j, i)).collect()).collect(),
            locks: BTreeMap::new(),
            written: 0,
            counts: Counts::default(),
            machines: Machines::default(),
            changes: BTreeMap::new(),
            ahead: vec![(0, 0); SERVERS],
            logs: Logs::new(&mechanics)?,
        })
    }

    pub(super) fn now(&self) -> Instant {
        self.timeline.now()
    }

    pub(super) fn after(&mut self, wait: Duration, action: impl FnOnce(&mut Self) + 'static) {
        self.timeline.after(wait, Box::new(action));
    }

    /// Sends something to another server, or from a client: half a round trip.
    pub(super) fn send(&mut self, action: impl FnOnce(&mut Self) + 'static) {
        self.after(ROUND_TRIP / 2, action);
    }

    /// Lets time pass until nothing is under way.
    pub(super) fn drain(&mut self) {
        while let Some(action) = self.timeline.next() {
            action(self);
        }
    }

    // --- Disks ---

    /// Reads a range. `is_held`: a write of it follows.
    pub(super) fn read(
        &mut self,
        whom: For,
        disk: usize,
        [address, len]: [u64; 2],
        is_held: bool,
        done: Action<Self>,
    ) {
        match whom {
            For::Client => self.counts.reads += 1,
            For::Merge => self.counts.of_merges += 1,
        }
        self.submit(disk, Job { address, len, is_held, done });
    }

    /// Writes a range durably.
    pub(super) fn write(
        &mut self,
        whom: For,
        disk: usize,
        [address, len]: [u64; 2],
        done: Action<Self>,
    ) {
        match whom {
            For::Client => self.counts.writes += 1,
            For::Merge => self.counts.of_merges += 1,
        }
        self.submit(disk, Job { address, len, is_held: false, done });
    }

    fn submit(&mut self, disk: usize, job: Job<Self>) {
        self.spindles[disk].queue.push_back(job);
        self.serve(disk);
    }

    fn serve(&mut self, at: usize) {
        let now = self.now();
        let spindle = &mut self.spindles[at];
        let Some(job) = spindle.take_next() else { return };
        spindle.is_busy = true;
        let end = spindle.disk.serve(now, job.address, job.len);
        spindle.holds += 1;
        if job.is_held {
            spindle.held = Some(job.address);
            let hold = spindle.holds;
            let release = move |cluster: &mut Self| {
                let spindle = &mut cluster.spindles[at];
                if spindle.holds == hold {
                    spindle.held = None;
                    cluster.serve(at);
                }
            };
            self.timeline.at(end + HOLD_MAX, Box::new(release));
        }
        let free = move |cluster: &mut Self| {
            cluster.spindles[at].is_busy = false;
            cluster.serve(at);
        };
        self.timeline.at(end, Box::new(free));
        self.timeline.at(end + self.bus, job.done);
    }

    /// The time for which disks of strips were busy, and those of journals.
    pub(super) fn busy(&self) -> [Duration; 2] {
        let (strips, journals) = self.spindles.split_at(SERVERS);
        let sum = |spindles: &[Spindle<Self>]| {
            spindles.iter().map(|spindle| spindle.disk.busy().total()).sum()
        };
        [sum(strips), sum(journals)]
    }

    /// A blank disk takes the place of a server's.
    pub(super) fn replace_disk(&mut self, server: usize) {
        let mechanics = self.contract.disk.as_ref().expect("checked when it was made");
        self.spindles[server] = Spindle::new(Disk::new(mechanics, self.now()));
    }

    // --- Journals ---

    /// Makes bytes of a journal durable.
    pub(super) fn sync_journal(
        &mut self,
        whom: For,
        server: usize,
        [from, len]: [u64; 2],
        done: Action<Self>,
    ) {
        match whom {
            For::Client => self.counts.appends += 1,
            For::Merge => self.counts.of_merges += 1,
        }
        self.use_journal(server, [from, len], APPEND, done);
    }

    /// Reads a record of a journal.
    pub(super) fn read_journal(
        &mut self,
        whom: For,
        server: usize,
        range: [u64; 2],
        done: Action<Self>,
    ) {
        match whom {
            For::Client => self.counts.reads += 1,
            For::Merge => self.counts.of_merges += 1,
        }
        self.use_journal(server, range, FLASH_READ, done);
    }

    fn use_journal(
        &mut self,
        server: usize,
        [from, len]: [u64; 2],
        base: Duration,
        done: Action<Self>,
    ) {
        let now = self.now();
        match &mut self.journals[server].place {
            Place::Flash { free_at } => {
                let bytes = Duration::from_nanos(len * NANOS_PER_SEC / FLASH_BYTES_PER_SEC);
                *free_at = now.max(*free_at) + base + bytes;
                let when = *free_at;
                self.timeline.at(when, done);
            }
            Place::Disk { spindle, from: first, len: all } => {
                let (disk, address) = (*spindle, *first + from % *all);
                self.submit(disk, Job { address, len, is_held: false, done });
            }
        }
    }

    /// Whether a server's journal and strips are on one disk. Its arm cannot wait over a strip for an append.
    pub(super) fn shares_disk(&self, server: usize) -> bool {
        matches!(self.journals[server].place, Place::Disk { spindle, .. } if spindle == server)
    }

    /// Appends bytes durably; those that wait share a sync.
    pub(super) fn append(&mut self, server: usize, bytes: u64, done: Action<Self>) {
        let journal = &mut self.journals[server];
        journal.add(bytes);
        journal.waiting.push(done);
        self.commit(server);
    }

    fn commit(&mut self, server: usize) {
        let journal = &mut self.journals[server];
        if journal.is_syncing || journal.waiting.is_empty() {
            return;
        }
        journal.is_syncing = true;
        let bytes = std::mem::take(&mut journal.pending);
        let from = journal.end - bytes;
        let waiting = std::mem::take(&mut journal.waiting);
        let done = move |cluster: &mut Self| {
            cluster.journals[server].is_syncing = false;
            for done in waiting {
                done(cluster);
            }
            cluster.commit(server);
        };
        self.sync_journal(For::Client, server, [from, bytes], Box::new(done));
    }

    // --- Bytes ---

    /// The content of the write with this number.
    pub(super) fn fill(&self, number: u64) -> Arc<[u8]> {
        Arc::clone(&self.fills[(number % FILLS as u64) as usize])
    }

    /// The bytes of a range of a strip.
    pub(super) fn bytes(&self, group: Group, slot: usize, start: u64, len: u64) -> Vec<u8> {
        match self.strips.get(&(group, slot)) {
            Some(strip) => strip[start as usize..(start + len) as usize].to_vec(),
            None => vec![0; len as usize],
        }
    }

    pub(super) fn put(&mut self, group: Group, slot: usize, start: u64, bytes: &[u8]) {
        let start = start as usize;
        self.strip_mut(group, slot)[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn strip_mut(&mut self, group: Group, slot: usize) -> &mut Vec<u8> {
        self.strips.entry((group, slot)).or_insert_with(|| vec![0; STRIP as usize])
    }

    /// Adds a change of a data strip to a parity strip.
    pub(super) fn add_change(
        &mut self,
        (group, slot): (Group, usize),
        strip: usize,
        start: u64,
        change: &[u8],
    ) {
        let change = self.product(slot, strip, change);
        self.add(group, slot, start, &change);
    }

    /// What a change of a data strip changes in a parity strip.
    pub(super) fn product(&self, slot: usize, strip: usize, change: &[u8]) -> Vec<u8> {
        let table = &self.tables[slot - DATA][strip];
        change.iter().map(|&byte| table[usize::from(byte)]).collect()
    }

    pub(super) fn add(&mut self, group: Group, slot: usize, start: u64, change: &[u8]) {
        let sums = &mut self.strip_mut(group, slot)[start as usize..];
        for (sum, byte) in sums.iter_mut().zip(change) {
            *sum ^= byte;
        }
    }

    /// Checks that strips have what was written last and, with `has_parity`, that parity fits.
    ///
    /// # Errors
    /// The first that does not.
    pub(super) fn check(&self, has_parity: bool) -> anyhow::Result<()> {
        for (block, bytes) in &self.newest {
            let found = self.bytes(block.group, block.strip, block.start, BLOCK);
            ensure!(found[..] == bytes[..], "{block:?} is not what was written last");
        }
        let mut groups: Vec<Group> = self.strips.keys().map(|(group, _)| *group).collect();
        groups.dedup();
        for group in groups.into_iter().filter(|_| has_parity) {
            // A strip that was never written is blank, and adds nothing.
            let written = |i| Some((i, self.strips.get(&(group, i))?));
            let strips: Vec<_> = (0..DATA).filter_map(written).collect();
            for slot in DATA..DATA + PARITY {
                let mut parity = vec![0; STRIP as usize];
                for &(i, strip) in &strips {
                    let products = self.product(slot, i, strip);
                    parity.iter_mut().zip(products).for_each(|(sum, byte)| *sum ^= byte);
                }
                let fits = self.bytes(group, slot, 0, STRIP) == parity;
                ensure!(fits, "parity strip {slot} of group {group} does not fit its data");
            }
        }
        Ok(())
    }

    // --- Locks ---

    /// Calls `then` when no other write of the block is under way.
    pub(super) fn lock(&mut self, block: Block, then: impl FnOnce(&mut Self) + 'static) {
        match self.locks.get_mut(&block) {
            Some(waiting) => waiting.push_back(Box::new(then)),
            None => {
                self.locks.insert(block, VecDeque::new());
                then(self);
            }
        }
    }

    pub(super) fn unlock(&mut self, block: Block) {
        let next = self.locks.get_mut(&block).and_then(VecDeque::pop_front);
        match next {
            Some(next) => next(self),
            None => drop(self.locks.remove(&block)),
        }
    }
}

/// Where a journal begins on a disk of its own, so that disks that turn in step are not under the heads at once.
fn random_start(seed: u64, server: usize) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ ((server as u64 + 1) << 32));
    random.random_range(0..1_u64 << 20) * 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_that_fits_is_that_of_the_oracle() {
        let mut cluster = Cluster::new(Medium::Flash, 1).expect("it is in the catalogue");
        let strips: Vec<Vec<u8>> = (0..DATA as u64)
            .map(|i| (0..4).flat_map(|n| cluster.fill(4 * i + n).to_vec()).collect())
            .collect();
        let strips: Vec<&[u8]> = strips.iter().map(|strip| &strip[..]).collect();
        for (i, strip) in strips.iter().enumerate() {
            cluster.put(7, i, 0, strip);
        }
        assert!(cluster.check(true).is_err(), "parity is blank");
        for j in 0..PARITY {
            cluster.put(7, DATA + j, 0, &code::parity(j, &strips));
        }
        cluster.check(true).expect("it is the parity of the code");
        cluster.newest.insert(Block::of(7 * 16), cluster.fill(1));
        assert!(cluster.check(true).is_err(), "that was not written");
    }
}
