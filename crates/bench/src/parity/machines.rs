//! The state machines of PARIX's servers, and what their journals hold.

use std::collections::BTreeMap;

use policy::parity_log::data::Data;
use policy::parity_log::journal::Options;
use policy::parity_log::parity::Parity;
use policy::parity_log::record::{Group, Lsn, Record, Request};
use policy::units::GIB;

use super::timeline::Action;

/// Journals in which nothing is forgotten during a run.
pub(super) const LARGE: Options = options(64 * GIB);

/// A journal with this capacity in bytes.
pub(super) const fn options(capacity: u64) -> Options {
    Options { capacity, header: 64, align: 512, extents_max: 4096 }
}

/// A record of a journal, and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) record: Record,
    pub(super) at: u64,
}

/// PARIX's servers.
pub(super) struct Machines<W> {
    pub(super) options: Options,
    /// The view of all groups.
    pub(super) view: u64,
    /// By group and data strip.
    pub(super) data: BTreeMap<(Group, usize), Data>,
    /// By server.
    pub(super) parities: Vec<Parity>,
    /// By server: the journal.
    pub(super) records: Vec<BTreeMap<Lsn, Kept>>,
    /// Clients that wait for an answer.
    pub(super) waiting: BTreeMap<Request, Action<W>>,
    /// Ranges that a rebuild locked, and what it does then.
    pub(super) locking: BTreeMap<(u64, Group, usize), Action<W>>,
    pub(super) next: u64,
    /// Whether data strips are written back later.
    pub(super) writes_back: bool,
}

impl<W> Default for Machines<W> {
    fn default() -> Self {
        Self {
            options: LARGE,
            view: 0,
            data: BTreeMap::new(),
            parities: Vec::new(),
            records: Vec::new(),
            waiting: BTreeMap::new(),
            locking: BTreeMap::new(),
            next: 1,
            writes_back: false,
        }
    }
}
