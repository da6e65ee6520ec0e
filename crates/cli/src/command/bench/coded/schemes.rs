//! The schemes to compare: data, fixed once, and printed in every report.
//!
//! All have the same volumes, placement, options of RocksDB and durability of writes, and the pool's default migration.

use anyhow::Context;
use policy::placement::{Code, LeastOverlap};
use pool::spread::Opening;

/// What a pool keeps of each object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kept {
    /// As many copies.
    Copies(usize),
    /// As many fragments of data and of parity of each complete object longer than a strip.
    Fragments { data: u64, parity: u64 },
}

/// The configuration of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) kept: Kept,
    /// The description in reports.
    pub(super) about: &'static str,
}

pub(super) const TWO_COPIES: Scheme = Scheme {
    name: "copies = 2",
    kept: Kept::Copies(2),
    about: "two copies of each object; survives the loss of one volume",
};

pub(super) const THREE_COPIES: Scheme = Scheme {
    name: "copies = 3",
    kept: Kept::Copies(3),
    about: "three copies of each object; survives the loss of two volumes",
};

pub(super) const CODED: Scheme = Scheme {
    name: "coded 4+2",
    kept: Kept::Fragments { data: 4, parity: 2 },
    about: "four fragments of data and two of parity of each table, three copies of all else; survives the loss of two volumes",
};

/// All of them.
pub(super) const ALL: [Scheme; 3] = [TWO_COPIES, THREE_COPIES, CODED];

/// The seed of tie-breaks of the placement.
const SEED: u64 = 1;

impl Scheme {
    pub(super) fn opening(&self) -> anyhow::Result<Opening> {
        let opening = Opening::new(LeastOverlap::new(SEED));
        Ok(match self.kept {
            Kept::Copies(copies) => opening.copies(copies),
            Kept::Fragments { data, parity } => {
                let code = Code::new(data, parity, Code::STRIP);
                opening.code(code.with_context(|| format!("the code of {}", self.name))?)
            }
        })
    }
}

/// A scheme, with all volumes or without some.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Arm {
    pub(super) scheme: Scheme,
    /// The number of volumes that are away.
    pub(super) away: usize,
}

impl Arm {
    /// The name in reports.
    pub(super) fn name(&self) -> String {
        match self.away {
            0 => self.scheme.name.to_owned(),
            away => format!("{}, {away} away", self.scheme.name),
        }
    }
}
