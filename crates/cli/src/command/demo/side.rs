//! The two stores that are compared, each on a simulated volume of its own.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use engine::keyspace::{Expiry, Keyspace, Touch, Touches};
use plimsoll::kv::{CachePolicy, Options, Store};
use plimsoll::volumes::{Device, Volume};
use policy::contract::spec::Bought;
use policy::contract::{Contract, catalogue};
use policy::placement::Single;
use policy::sched::Policy;
use pool::spread::Opening;
use rust_rocksdb::WaitForCompactOptions;
use volume::Clock;

use super::sizing;
use crate::command::scratch::Scratch;

/// The contract of both volumes: `iops` operations a second of io2, which sells any number from 100 on and
/// limits bytes only where operations reach their limit first.
pub(super) fn contract(iops: u64) -> anyhow::Result<Contract> {
    let bought = Bought { iops: Some(iops), mib_per_s: None };
    let contract = catalogue::find("io2")?.contract(None, bought);
    contract.with_context(|| format!("io2 with {iops} IOPS"))
}

/// One store as the load sees it: keys and values, and the volume's counters.
pub(super) struct Side<'s> {
    pub(super) name: &'static str,
    store: &'s Store,
    keyspace: Keyspace,
    device: Arc<Device>,
}

impl<'s> Side<'s> {
    /// A store on one volume.
    pub(super) fn new(name: &'static str, store: &'s Store) -> anyhow::Result<Self> {
        let clock = store.pool().clock().clone();
        let wall = move || u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX);
        let keyspace = Keyspace::open(Arc::clone(store.db()) as _, Box::new(wall), 0);
        let keyspace = keyspace.with_context(|| format!("the keys of {name}"))?;
        let device = store.devices().here().into_iter().next().context("the store's volume")?;
        Ok(Self { name, store, keyspace, device })
    }

    /// Stores values under keys, all of them at once.
    pub(super) fn put(&self, values: Vec<(Bytes, Bytes)>) -> anyhow::Result<()> {
        let mut touches = Touches::default();
        values.iter().for_each(|(key, _)| touches.add(key.clone(), Touch::Replace));
        let mut transaction = self.keyspace.begin(&touches)?;
        for (key, value) in values {
            transaction.put_string(&key, value, Expiry::Never)?;
        }
        transaction.commit().with_context(|| format!("{}: a write", self.name))
    }

    /// The value under a key.
    pub(super) fn get(&self, key: Bytes) -> anyhow::Result<Option<Bytes>> {
        let mut touches = Touches::default();
        touches.add(key.clone(), Touch::Peek);
        let read = self.keyspace.begin(&touches).and_then(|mut reads| reads.string(&key));
        read.with_context(|| format!("{}: a read", self.name))
    }

    /// Compacts everything: both stores start from the same shape, whatever was written before.
    pub(super) fn compact(&self) {
        self.store.compact_range::<&[u8], &[u8]>(None, None);
    }

    /// Waits until compactions have caught up with what was written.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        self.store.wait_for_compact(&wait).with_context(|| format!("{}: compactions", self.name))
    }

    /// Operations its volume was asked for so far, as the contract counts them.
    pub(super) fn ios(&self) -> u64 {
        self.device.gate().meter().spent().ops
    }

    /// Operations that the simulated provider made wait so far, because they were over the contract.
    pub(super) fn overdrafts(&self) -> u64 {
        self.device.seen_by_provider().map_or(0, |seen| seen.throttled)
    }
}

/// Plain RocksDB: its own block cache, and no gate but a counter, so that only the provider throttles it.
/// Its volume is removed in the end.
pub(super) struct Plain {
    pub(super) store: Store,
    _scratch: Scratch,
}

impl Plain {
    /// Opens one under `dir` with the options of `ours`: the same bytes of cache and memtables, the same
    /// background jobs, the same durability.
    pub(super) fn open(dir: &Path, ours: &Options, clock: &Clock) -> anyhow::Result<Self> {
        let scratch = Scratch::new(dir, "plain")?;
        let contract = contract(sizing::OPEN_IOPS)?;
        let volume = Volume::directory("plain", scratch.path().join("volume"), contract);
        let options =
            Options { cache_policy: CachePolicy::RocksDb, prefetch: false, ..ours.clone() };
        let store = Store::builder()
            .volume(volume.simulated().scheduler(Policy::None))
            .opening(Opening::new(Single))
            .options(options)
            .clock(clock.clone())
            .open()
            .context("plain RocksDB")?;
        Ok(Self { store, _scratch: scratch })
    }

    /// Goes by `contract` from now on.
    pub(super) fn enforce(&self, contract: &Contract) {
        self.store.devices().here().iter().for_each(|device| device.set_contract(contract));
    }

    /// Closes the store and removes its volume.
    pub(super) fn close(self) -> anyhow::Result<()> {
        // Its compactions end sooner on a faster volume.
        self.enforce(&contract(sizing::OPEN_IOPS)?);
        self.store.close().context("closing plain RocksDB")
    }
}
