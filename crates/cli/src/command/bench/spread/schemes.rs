//! The schemes to compare: data, fixed once, and printed in every report (TANGO).
//!
//! All run on the same shim, gate and options of RocksDB, each on its own volumes. All tuning of a scheme is here; a
//! change after a band was looked at gets a line in [`HISTORY`].

use std::time::Duration;

use policy::contract::spec::Bought;
use policy::contract::{Contract, catalogue};
use policy::migrate::{Policy, Terms};
use policy::placement::{Hash, LeastOverlap, RoundRobin, Single, Stripe};
use policy::units::{Bytes, GIB, KIB};
use pool::spread::Opening;

use super::scale::{VOLUMES, VOLUMES_WRITTEN, contract};

/// The placement of new tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Placed {
    Single,
    RoundRobin,
    Hash,
    /// In chunks of this many KiB.
    Stripe(u64),
    /// Apart from tables that are read together.
    LeastOverlap,
    /// The same, as if all devices were equally fast.
    LeastOverlapOfEquals,
}

/// Operations a second of an io2 volume: as many as a gp3 volume has here.
const IO2: u64 = 200;

/// Bytes of a volume other than gp3, which only its contract asks for.
const SIZE: u64 = 100 * GIB;

/// The seed of tie-breaks.
const SEED: u64 = 1;

impl Placed {
    pub(super) fn opening(self) -> Opening {
        match self {
            Self::Single => Opening::new(Single),
            Self::RoundRobin => Opening::new(RoundRobin::default()),
            Self::Hash => Opening::new(Hash),
            Self::Stripe(kib) => Opening::new(Stripe::new(kib * KIB)),
            Self::LeastOverlap => Opening::new(LeastOverlap::new(SEED)),
            Self::LeastOverlapOfEquals => Opening::new(LeastOverlap::new(SEED).of_equal_devices()),
        }
    }
}

/// The configuration of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) volumes: usize,
    pub(super) placed: Placed,
    /// The policy that chooses tables for a second copy.
    pub(super) migrate: Policy,
    /// Whether one more volume joins after the lead.
    pub(super) grows: bool,
    /// Whether the devices of its volumes differ: two each of io2, gp3 and disks.
    pub(super) mixed: bool,
    /// The description in reports.
    pub(super) about: &'static str,
}

/// One volume of six times the size: gp3 sells the same operations with it, for the same price.
pub(super) const SINGLE: Scheme = Scheme {
    name: "single",
    volumes: 1,
    placed: Placed::Single,
    migrate: Policy::Off,
    grows: false,
    mixed: false,
    about: "one large volume, which is paid for as many operations as each of the others",
};

pub(super) const ROUND_ROBIN: Scheme = Scheme {
    name: "round-robin",
    volumes: VOLUMES,
    placed: Placed::RoundRobin,
    migrate: Policy::Off,
    grows: false,
    mixed: false,
    about: "tables in turn",
};

pub(super) const HASH: Scheme = Scheme {
    name: "hash",
    placed: Placed::Hash,
    about: "tables by the hash of their names",
    ..ROUND_ROBIN
};

pub(super) const STRIPE: Scheme = Scheme {
    name: "stripe-64K",
    placed: Placed::Stripe(64),
    about: "RAID0: every table over all volumes, in chunks of 64 KiB",
    ..ROUND_ROBIN
};

pub(super) const STRIPE_LARGE: Scheme = Scheme {
    name: "stripe-256K",
    placed: Placed::Stripe(256),
    about: "RAID0 in chunks of 256 KiB",
    ..ROUND_ROBIN
};

/// The paper's three volumes of 1000 GB, for the price of one of 3000 GB.
pub(super) const THREE: Scheme = Scheme {
    name: "round-robin of 3",
    volumes: VOLUMES_WRITTEN,
    about: "tables in turn over three volumes",
    ..ROUND_ROBIN
};

/// The defaults of our pool.
pub(super) const OURS: Scheme = Scheme {
    name: "ours",
    placed: Placed::LeastOverlap,
    migrate: Policy::Level,
    about: "tables apart from those of the next level they overlap, then by load; copies of hot tables, as \
            few as level the volumes",
    ..ROUND_ROBIN
};

/// A pool that gets its last volume under load.
pub(super) const GROWN: Scheme = Scheme {
    name: "ours, 5 + 1",
    volumes: VOLUMES - 1,
    grows: true,
    about: "ours on five volumes, and a sixth, empty, when the lead is over",
    ..OURS
};

/// Pools of different devices.
pub(super) const MIXED_ROUND_ROBIN: Scheme = Scheme { mixed: true, ..ROUND_ROBIN };
pub(super) const MIXED_HASH: Scheme = Scheme { mixed: true, ..HASH };
pub(super) const MIXED_EQUALS: Scheme = Scheme {
    name: "ours of equals",
    placed: Placed::LeastOverlapOfEquals,
    migrate: Policy::Off,
    mixed: true,
    about: "ours as if all devices were equally fast: without copies, since no volume is at its line",
    ..OURS
};
pub(super) const MIXED: Scheme = Scheme { mixed: true, ..OURS };

/// Its parts, each alone.
pub(super) const PLACED: Scheme =
    Scheme { name: "placement only", migrate: Policy::Off, about: "ours without copies", ..OURS };
pub(super) const COPIED: Scheme = Scheme {
    name: "copies only",
    placed: Placed::RoundRobin,
    about: "ours with tables in turn",
    ..OURS
};

/// Chooses tables as in the paper.
pub(super) const TANGO: Scheme = Scheme {
    name: "tango",
    migrate: Policy::Tango,
    about: "ours with copies as published: half of the heat of the hottest tables",
    ..OURS
};

/// The migration that the paper compared itself with.
pub(super) const IOPS: Scheme = Scheme {
    name: "iops",
    migrate: Policy::Iops,
    about: "ours, but the hottest table of the volume with most I/Os goes to the one with fewest",
    ..OURS
};

/// The interval of migration decisions, which the paper does not state (TANGO). Shorter than our default of 10 s, so
/// that a run of seconds has enough decisions.
pub(super) const DECIDE_EVERY: Duration = Duration::from_secs(2);

impl Scheme {
    /// The contracts of its volumes, also of one that joins.
    pub(super) fn contracts(&self) -> anyhow::Result<Vec<Contract>> {
        let io2 = || {
            catalogue::find("io2")?
                .contract(Some(Bytes(SIZE)), Bought { iops: Some(IO2), ..Bought::default() })
        };
        let disk = || catalogue::find("hdd-7200")?.contract(Some(Bytes(SIZE)), Bought::default());
        let of = |at: usize| match at / 2 % 3 {
            0 if self.mixed => Ok(io2()?),
            2 if self.mixed => Ok(disk()?),
            _ => contract(),
        };
        (0..self.volumes_max()).map(of).collect()
    }

    /// Its volumes in the end.
    pub(super) fn volumes_max(&self) -> usize {
        self.volumes + usize::from(self.grows)
    }

    pub(super) fn terms(&self) -> Terms {
        Terms { every: DECIDE_EVERY, ..Terms::default() }
    }
}

/// Ours on three volumes.
pub(super) const THREE_OURS: Scheme =
    Scheme { name: "ours of 3", volumes: VOLUMES_WRITTEN, ..OURS };

/// The baselines: schemes that ignore keys.
pub(super) const BASELINES: [Scheme; 4] = [ROUND_ROBIN, HASH, STRIPE, STRIPE_LARGE];

/// Changes of workload, scale or baseline after a band was looked at.
pub(super) const HISTORY: &[&str] = &[
    "a million records and tables of 512 KiB instead of two million and 1 MiB, to load in half the time",
    "B17w: as many threads for the pool as for the single volume",
    "a volume is hot by how many operations wait, not by 2 ms alone: at 200 IOPS all were",
];
