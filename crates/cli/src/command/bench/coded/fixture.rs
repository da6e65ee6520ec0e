//! A store to measure: a database loaded on a pool in memory, and forks of it on simulated volumes, with some of them away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bench::coded::{Counted, Loaded, Room};
use bench::drive::Tally;
use bench::spread::Bench;
use plimsoll::kv::{CachePolicy, Options, Store};
use plimsoll::volumes::{Device, Volume};
use policy::contract::{Contract, Cost};
use policy::purpose::{Class, Origin, Step};
use policy::time::Instant;
use pool::Kind;
use pool::spread::{Spread, VolumeState};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Io};

use super::super::fixture::{compact, family, options, wide};
use super::super::watched::{CopyIo, Watched};
use super::scale::{SHAPE, Scale, VOLUMES};
use super::schemes::{Arm, Scheme};

/// Loading threads.
const LOADERS: usize = 4;

/// The time to open a store, for estimates of the duration.
pub(super) const OPENING: Duration = Duration::from_secs(2);

/// Between two looks at the redundancy of a pool that makes a volume good: the error of the time it took.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Copies and fragments that are made while nothing else runs.
const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// A loaded database, closed.
pub(super) struct Image {
    scheme: Scheme,
    mems: Vec<Mem>,
    scale: Scale,
    /// What the load cost and left.
    pub(super) loaded: Loaded,
}

impl Image {
    /// Loads records, and waits for the compactions, and until every object has its copies or fragments.
    pub(super) fn load(
        scheme: Scheme,
        scale: &Scale,
        seed: u64,
        clock: &Clock,
        stop: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let mems: Vec<_> = (1..=VOLUMES).map(|number| Mem::new(&label(number))).collect();
        let arm = Arm { scheme, away: 0 };
        let fixture = Fixture::open(&mems, arm, scale, clock)?;
        let before = fixture.counted();
        let bench = Bench::new(&**fixture.store.db(), clock, SHAPE, 0, stop);
        bench.load(scale.records, LOADERS, seed)?;
        drop(bench);
        compact(&fixture.store)?;
        let pool = fixture.store.pool();
        block_on(pool.recode(COPY));
        block_on(pool.repair(COPY, |_| ()))?;
        let short = pool.redundancy(&BTreeSet::new()).short;
        ensure!(
            short == 0,
            "{}: {short} objects lack copies or fragments after the load",
            scheme.name
        );
        // A count can fall when a token is returned, so the difference saturates.
        let grew = |(after, before): (u64, u64)| after.saturating_sub(before);
        let counted = fixture.counted().into_iter().zip(before).map(grew).collect();
        let (records, data_bytes) = (scale.records, scale.data());
        fixture.close()?;
        // The store removes the inputs of the last compactions when it is opened at the latest.
        let fixture = Fixture::open(&mems, arm, scale, clock)?;
        let room = room(fixture.store.pool());
        fixture.close()?;
        let loaded = Loaded { records, data_bytes, counted, room };
        Ok(Self { scheme, mems, scale: *scale, loaded })
    }

    /// Whether it was loaded with `scheme`.
    pub(super) fn is_of(&self, scheme: Scheme) -> bool {
        self.scheme == scheme
    }

    /// Opens a fork of it on simulated volumes, without their contract yet; the last `away` ones are missing.
    pub(super) fn open(&self, away: usize, clock: &Clock) -> anyhow::Result<Fixture> {
        let here = &self.mems[..self.mems.len() - away];
        let forks: Vec<_> = here.iter().map(|mem| mem.fork(mem.label())).collect();
        Fixture::open(&forks, Arm { scheme: self.scheme, away }, &self.scale, clock)
    }
}

fn label(number: usize) -> String {
    format!("v{number}")
}

/// What lies on the volumes of a pool.
fn room(pool: &Spread) -> Room {
    let held_bytes = pool.held().values().map(|held| held.bytes).sum();
    let mut room = Room { held_bytes, ..Room::default() };
    for object in pool.objects() {
        let layouts = object.copies.iter().map(|placed| &placed.layout);
        let parts = layouts.flat_map(|layout| {
            (0..layout.volumes().len()).map(|part| layout.part_len(object.len, part))
        });
        let held: u64 = parts.sum();
        match object.kind {
            Kind::Table => {
                room.tables_held_bytes += held;
                room.tables_bytes += object.len;
            }
            Kind::Log => room.logs_held_bytes += held,
            Kind::Data | Kind::InPlace => {}
        }
    }
    room
}

/// A store of one scheme.
pub(super) struct Fixture {
    pub(super) store: Store,
    contract: Contract,
    copies: CopyIo,
    /// A blank volume, under the contract.
    joins: Volume,
    /// Set when the run ends: for threads of the run.
    pub(super) ended: AtomicBool,
}

impl Fixture {
    fn open(mems: &[Mem], arm: Arm, scale: &Scale, clock: &Clock) -> anyhow::Result<Self> {
        let (contract, wide, copies) = (scale.contract()?, wide()?, CopyIo::default());
        let joins = simulated(&Mem::new(&label(VOLUMES + 1)), &contract, &copies);
        let opening = arm.scheme.opening()?;
        let opening = if arm.away > 0 { opening.allow_away() } else { opening };
        let options = Options {
            // Only metadata in memory: every read of a value reaches a volume.
            cache_data: false,
            cache_policy: CachePolicy::RocksDb,
            prefetch: false,
            ..options(scale.sizes)
        };
        let store = Store::builder()
            .volumes(mems.iter().map(|mem| simulated(mem, &wide, &copies)))
            .opening(opening)
            .options(options)
            .family(family(|_| {}))
            .clock(clock.clone())
            .open();
        let store = store.with_context(|| format!("a store of the scheme {}", arm.name()))?;
        Ok(Self { store, contract, copies, joins, ended: AtomicBool::new(false) })
    }

    /// Applies the contract from now on.
    pub(super) fn enforce(&self) {
        self.set_contract(&self.contract);
    }

    fn set_contract(&self, contract: &Contract) {
        self.store.devices().here().iter().for_each(|device| device.set_contract(contract));
    }

    /// Paid operations a second of all volumes.
    pub(super) fn paid_iops(&self) -> u64 {
        self.contract.paid_iops().unwrap_or(0) * self.store.devices().here().len() as u64
    }

    /// The counters of all volumes together during a run.
    pub(super) fn counts(&self) -> Vec<Tally<'_>> {
        Counted::ALL.map(|counted| Tally::new(move || self.count(counted))).into()
    }

    fn counted(&self) -> Vec<u64> {
        Counted::ALL.map(|counted| self.count(counted)).into()
    }

    fn count(&self, counted: Counted) -> u64 {
        let devices = || self.store.devices().here().into_iter();
        let spent = |of: fn(&Cost) -> u64| devices().map(|device| spent(&device, of)).sum();
        let provider = || devices().map(|device| device.seen_by_provider().unwrap_or_default());
        match counted {
            Counted::Reads => spent(|cost| cost.read_ops),
            Counted::Writes => spent(|cost| cost.write_ops),
            Counted::UserReads => devices()
                .map(|device| {
                    device.gate().meter().classes[Class::Foreground.index()].spent.read_ops
                })
                .sum(),
            Counted::WrittenBytes => spent(|cost| cost.write_bytes),
            Counted::CopyReadBytes => self.copies.read_bytes(),
            Counted::CopyWrittenBytes => self.copies.written_bytes(),
            Counted::Decoded => self.store.pool().decoded(),
            Counted::Requests => provider().map(|seen| seen.requests).sum(),
            Counted::Overdrafts => provider().map(|seen| seen.throttled).sum(),
        }
    }

    /// Removes the volumes that are away as lost, and adds a blank one. Returns the bytes that the pool had on them.
    pub(super) fn replace_lost(&self) -> anyhow::Result<u64> {
        let pool = self.store.pool();
        let held = pool.held();
        let mut lost = 0;
        for volume in pool.volumes() {
            if volume.state == VolumeState::Away {
                lost += held.get(&volume.id).map_or(0, |held| held.bytes);
                pool.remove_lost_volume(&volume.label, false).context("removing a lost volume")?;
            }
        }
        pool.add_volume(&self.joins).context("adding a volume")?;
        Ok(lost)
    }

    /// Waits until every object has its copies or fragments; returns the time since `begun`, or `None` if the run ended or
    /// `stop` was set before.
    pub(super) fn made_good(&self, begun: Instant, stop: &AtomicBool) -> Option<Duration> {
        let (pool, clock) = (self.store.pool(), self.store.clock());
        loop {
            let now = clock.now();
            if pool.redundancy(&BTreeSet::new()).short == 0 {
                return Some(now.since(begun));
            }
            if [stop, &self.ended].iter().any(|stop| stop.load(Ordering::Relaxed)) {
                return None;
            }
            block_on(clock.sleep_until(now + LOOK_EVERY));
        }
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        // Running compactions end sooner under a fast contract.
        self.set_contract(&wide()?);
        self.store.close().context("closing a store that was measured")
    }
}

/// A part of what the gate of a volume charged, in all classes.
fn spent(device: &Arc<Device>, of: fn(&Cost) -> u64) -> u64 {
    device.gate().meter().classes.iter().map(|figures| of(&figures.spent)).sum()
}

/// A simulated volume on `mem`, whose copies are counted in `copies`.
fn simulated(mem: &Mem, contract: &Contract, copies: &CopyIo) -> Volume {
    let watched = Watched { inner: Arc::new(mem.clone()), copies: copies.clone() };
    Volume::other(mem.label(), watched, contract.clone()).simulated()
}
