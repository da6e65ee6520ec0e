//! Where the blocks of the device lie: groups of four data strips and two parity strips, on six servers in turn.

use policy::parity_log::record::Group;
use policy::units::KIB;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Data strips of a group.
pub(super) const DATA: usize = 4;
/// Parity strips of a group.
pub(super) const PARITY: usize = 2;
/// Servers, each with a disk.
pub(super) const SERVERS: usize = 6;
/// Copies of the scheme without a code.
pub(super) const COPIES: usize = 3;
/// Bytes of a strip.
pub(super) const STRIP: u64 = 16 * KIB;
/// Bytes of a write.
pub(super) const BLOCK: u64 = 4 * KIB;
/// Blocks of a group.
pub(super) const GROUP_BLOCKS: u64 = DATA as u64 * STRIP / BLOCK;

/// A block of the device.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Block {
    /// Its group.
    pub(super) group: Group,
    /// Its data strip.
    pub(super) strip: usize,
    /// The offset in the strip.
    pub(super) start: u64,
}

impl Block {
    /// The block of this number: strip after strip, group after group.
    pub(super) fn of(number: u64) -> Self {
        let (group, rest) = (number / GROUP_BLOCKS, number % GROUP_BLOCKS);
        let blocks = STRIP / BLOCK;
        Self {
            group: u32::try_from(group).expect("a disk has fewer groups"),
            strip: usize::try_from(rest / blocks).expect("few strips"),
            start: rest % blocks * BLOCK,
        }
    }

    /// Its number.
    pub(super) fn number(self) -> u64 {
        let blocks = STRIP / BLOCK;
        u64::from(self.group) * GROUP_BLOCKS + self.strip as u64 * blocks + self.start / BLOCK
    }
}

/// The server of a strip: data strips first, parity strips from [`DATA`] on.
pub(super) fn server_of(group: Group, slot: usize) -> usize {
    (group as usize + slot) % SERVERS
}

/// The strip that a server has of a group.
pub(super) fn slot_of(group: Group, server: usize) -> usize {
    (server + SERVERS - group as usize % SERVERS) % SERVERS
}

/// Addresses on disks.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Bytes of a disk.
    capacity: u64,
    /// Bytes in the middle of a disk that are its journal's.
    journal: u64,
    /// By server: where the first group lies. Disks turn in step in the simulation, so equal addresses on two disks would
    /// always be under the heads at once.
    first: [u64; SERVERS],
}

impl Layout {
    pub(super) fn new(capacity: u64, journal: u64, random: &mut Xoshiro256PlusPlus) -> Self {
        let room = capacity - journal;
        let first = std::array::from_fn(|_| random.random_range(0..room / BLOCK) * BLOCK);
        Self { capacity, journal, first }
    }

    /// Groups that fit.
    pub(super) fn groups(&self) -> u64 {
        (self.capacity - self.journal) / STRIP
    }

    /// Where a disk has a byte of a strip.
    pub(super) fn strip(&self, group: Group, slot: usize, start: u64) -> u64 {
        let server = server_of(group, slot);
        self.address(self.first[server] + u64::from(group) * STRIP + start)
    }

    /// Where the disk of a copy has a byte of a data strip.
    pub(super) fn copy(&self, block: Block, server: usize) -> u64 {
        // A server has three of six copies of strips, on average.
        let strip = u64::from(block.group) * DATA as u64 + block.strip as u64;
        self.address(self.first[server] + strip / 2 * STRIP + block.start)
    }

    /// Where a single disk has a block.
    pub(super) fn plain(&self, block: Block) -> u64 {
        self.address(block.number() * BLOCK)
    }

    /// The journal's first byte on a disk that has strips, too.
    pub(super) fn journal(&self) -> u64 {
        (self.capacity - self.journal) / 2 / BLOCK * BLOCK
    }

    /// The bytes of the journal.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.journal
    }

    fn address(&self, byte: u64) -> u64 {
        let byte = byte % (self.capacity - self.journal);
        if byte < self.journal() { byte } else { byte + self.journal }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn blocks_have_numbers_and_strips_of_a_group_lie_on_all_servers() {
        for number in [0, 1, 15, 16, 12_345_678] {
            assert_eq!(Block::of(number).number(), number);
        }
        for group in 0..12 {
            let mut servers: Vec<_> = (0..DATA + PARITY).map(|it| server_of(group, it)).collect();
            assert!((0..SERVERS).all(|server| server_of(group, slot_of(group, server)) == server));
            servers.sort_unstable();
            assert_eq!(servers, (0..SERVERS).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_strip_lies_in_the_journal() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let layout = Layout::new(1 << 30, 1 << 26, &mut random);
        let journal = layout.journal()..layout.journal() + layout.journal_bytes();
        for group in 0..u32::try_from(layout.groups()).unwrap() {
            let at = layout.strip(group, 1, 0);
            assert!(!journal.contains(&at) && at < 1 << 30, "{group} lies at {at}");
        }
    }
}
