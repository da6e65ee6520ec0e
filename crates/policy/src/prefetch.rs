//! Chooses blocks to read ahead of requests (Calcspar, ATC 2023).
//!
//! A volume charges one operation for 256 KiB as for 4 KiB, so spare tokens can buy whole hot neighbourhoods. Their
//! memory is taken from blocks that were requested one by one. Both uses are compared by what they save: reads a second
//! for each byte.

use crate::heat::Block;

/// A block below this heat, in reads a second, is not worth an operation.
pub const WARM: f32 = 1.01;

/// When users take more than this share of a volume, it has nothing to spare.
pub const HEAVY: f64 = 0.95;

/// Below this share it has again.
pub const LIGHT: f64 = 0.85;

/// Whether a volume has operations to spare.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// It has: blocks are prefetched.
    #[default]
    Light,
    /// It has none: only requested blocks are read.
    Heavy,
}

/// Classes seconds as heavy or light, by the mean of the last two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switch {
    mode: Mode,
    last: f64,
}

impl Switch {
    /// The mode of the next second, after one in which users took, or waited for, `used` of what is paid.
    pub fn on_second(&mut self, used: f64) -> Mode {
        let mean = (self.last + used) / 2.0;
        self.last = used;
        self.mode = match self.mode {
            Mode::Light if mean > HEAVY => Mode::Heavy,
            Mode::Heavy if mean < LIGHT => Mode::Light,
            same => same,
        };
        self.mode
    }

    /// The mode of this second.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}

/// The blocks to choose from, and the memory for them.
#[derive(Clone, Debug, Default)]
pub struct PrefetchState {
    /// Reads a second that the room of one block would save if it held single reads.
    pub displaced: f32,
    /// Free room in blocks, for which nothing has to go.
    pub free: usize,
    /// The whole memory in blocks.
    pub most: usize,
    /// Prefetched blocks and their heat.
    pub held: Vec<(Block, f32)>,
    /// Other blocks and their heat.
    pub candidates: Vec<(Block, f32)>,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Drop the block: single reads in its room are worth more.
    Drop(Block),
    /// Read the block, after dropping another one to make room.
    Fetch {
        /// The block to read.
        block: Block,
        /// The block to drop for it, if it needs the room of one.
        instead_of: Option<Block>,
    },
}

/// By how many standard deviations a block has to be worth more than the single reads it displaces. A held block that
/// is worth less goes at once.
const SIGMAS_ROOM: f32 = 2.0;

/// By how many a block has to be hotter than the one it replaces. The hottest of many and the coldest of many are
/// further apart than they will be next.
const SIGMAS_SWAP: f32 = 2.5;

/// The fraction of the room that moves between blocks and single reads at once is 1 / `MOVES_PART`. The value of more
/// has to be measured again afterwards.
const MOVES_PART: usize = 8;

/// Whether one is hotter than another by more than chance. Independent reads at a rate r give a heat of variance r/3:
/// half of each second's count, a quarter of the one before it, and so on.
fn is_hotter(one: f32, other: f32, sigmas: f32) -> bool {
    one - other > sigmas * ((one + other) / 3.0).sqrt()
}

/// The actions to take now, in this order; at most `fetches_max` blocks are read.
#[must_use]
pub fn plan(state: PrefetchState, fetches_max: usize) -> Vec<Action> {
    let PrefetchState { displaced, mut free, most, mut held, mut candidates } = state;
    let mut actions = Vec::new();
    held.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let worth_less = held.partition_point(|&(_, heat)| heat < displaced);
    let worth_less = worth_less.min(held.len().div_ceil(MOVES_PART));
    // Blocks beyond the memory go too, whatever they are worth: the memory may have shrunk.
    let go = worth_less.max(held.len().saturating_sub(most));
    actions.extend(held.drain(..go).map(|(block, _)| Action::Drop(block)));
    let mut coldest = held.iter().copied().peekable();
    let mut victim = |heat| {
        let victim = coldest.next_if(|&(_, coldest)| is_hotter(heat, coldest, SIGMAS_SWAP));
        victim.map(|(block, _)| block)
    };
    let mut moves = most.div_ceil(MOVES_PART);
    let mut count = held.len();
    candidates.retain(|&(_, heat)| heat > WARM);
    candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for (block, heat) in candidates.into_iter().take(fetches_max) {
        let instead_of = if count < most {
            if free > 0 {
                free -= 1;
                count += 1;
                None
            } else if moves > 0 && is_hotter(heat, displaced, SIGMAS_ROOM) {
                moves -= 1;
                count += 1;
                None
            } else {
                let Some(victim) = victim(heat) else { break };
                Some(victim)
            }
        } else {
            let Some(victim) = victim(heat) else { break };
            Some(victim)
        };
        actions.push(Action::Fetch { block, instead_of });
    }
    actions
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn block(index: u32) -> Block {
        Block { object: 1, index }
    }

    fn blocks(heats: &[(u32, f32)]) -> Vec<(Block, f32)> {
        heats.iter().map(|&(index, heat)| (block(index), heat)).collect()
    }

    const fn fetch(index: u32) -> Action {
        Action::Fetch { block: block(index), instead_of: None }
    }

    #[test]
    fn the_hottest_come_first_and_lukewarm_ones_never() {
        let candidates = blocks(&[(1, 1.5), (2, 9.0), (3, 1.01), (4, 1.02)]);
        let state = PrefetchState { most: 9, free: 9, candidates, ..PrefetchState::default() };
        assert_eq!(plan(state.clone(), 9), [fetch(2), fetch(1), fetch(4)]);
        assert_eq!(plan(state, 1), [fetch(2)]);
    }

    #[test]
    fn a_block_is_worth_what_the_reads_it_displaces_are() {
        let state = PrefetchState {
            displaced: 9.0,
            most: 16,
            held: blocks(&[(1, 4.0), (2, 7.5)]),
            candidates: blocks(&[(3, 20.0), (4, 10.0)]),
            ..PrefetchState::default()
        };
        assert_eq!(plan(state.clone(), 9), [Action::Drop(block(1)), fetch(3)], "10 may be chance");
        // With free room nothing is displaced.
        let state = PrefetchState { free: 2, ..state };
        assert_eq!(plan(state, 9), [Action::Drop(block(1)), fetch(3), fetch(4)]);
    }

    #[test]
    fn room_changes_hands_by_and_by() {
        let twenty = |heat: f32| (0..20).map(|n| (block(n), heat)).collect::<Vec<_>>();
        let state = PrefetchState {
            displaced: 1.0,
            most: 20,
            candidates: twenty(9.0),
            ..PrefetchState::default()
        };
        assert_eq!(plan(state, 99).len(), 3);
        let state = PrefetchState {
            displaced: 90.0,
            most: 20,
            held: twenty(9.0),
            ..PrefetchState::default()
        };
        assert_eq!(plan(state, 99).len(), 3);
    }

    #[test]
    fn when_all_memory_is_blocks_a_hotter_one_takes_the_place_of_the_coldest() {
        let state = PrefetchState {
            most: 2,
            held: blocks(&[(1, 2.0), (2, 15.0)]),
            candidates: blocks(&[(3, 16.0), (4, 15.5), (5, 4.0)]),
            ..PrefetchState::default()
        };
        let instead = Action::Fetch { block: block(3), instead_of: Some(block(1)) };
        assert_eq!(plan(state, 9), [instead], "one that is hardly hotter is no better");
    }

    #[test]
    fn less_memory_drops_the_coldest() {
        let state = PrefetchState {
            most: 1,
            held: blocks(&[(1, 9.0), (2, 5.0)]),
            ..PrefetchState::default()
        };
        assert_eq!(plan(state, 9), [Action::Drop(block(2))]);
    }

    #[test]
    fn a_volume_is_heavy_after_two_full_seconds_and_light_after_two_easier_ones() {
        let mut switch = Switch::default();
        let modes = [0.99, 0.99, 0.9, 0.9, 0.86, 0.5, 1.5].map(|used| switch.on_second(used));
        let (light, heavy) = (Mode::Light, Mode::Heavy);
        assert_eq!(modes, [light, heavy, heavy, heavy, heavy, light, heavy]);
    }

    proptest! {
        #[test]
        fn a_plan_never_holds_too_much_and_does_nothing_twice(
            displaced in 0.0f32..8.0,
            free in 0usize..4,
            most in 0usize..12,
            held in prop::collection::vec(0.0f32..10.0, 0..12),
            candidates in prop::collection::vec(0.0f32..10.0, 0..12),
            fetches_max in 0usize..12,
        ) {
            let numbered = |from: u32, heats: &[f32]| -> Vec<_> {
                (from..).zip(heats).map(|(index, &heat)| (block(index), heat)).collect()
            };
            let (held, candidates) = (numbered(0, &held), numbered(100, &candidates));
            let state = PrefetchState {
                displaced,
                free,
                most,
                held: held.clone(),
                candidates: candidates.clone(),
            };
            let mut now: Vec<_> = held.iter().map(|&(block, _)| block).collect();
            let mut fetched = 0;
            for action in plan(state, fetches_max) {
                let gone = match action {
                    Action::Drop(gone) => Some(gone),
                    Action::Fetch { instead_of, .. } => instead_of,
                };
                if let Some(gone) = gone {
                    let at = now.iter().position(|&block| block == gone);
                    now.swap_remove(at.expect("only what is held goes, and once"));
                }
                if let Action::Fetch { block, .. } = action {
                    prop_assert!(!now.contains(&block));
                    let heat = candidates.iter().find(|(other, _)| *other == block);
                    prop_assert!(heat.expect("a candidate").1 > WARM);
                    now.push(block);
                    fetched += 1;
                }
            }
            prop_assert!(now.len() <= most && fetched <= fetches_max);
        }
    }
}
