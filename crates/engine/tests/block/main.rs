//! The memory that a store of block devices needs for what was written: in a process of its own, whose allocator counts.

use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cap::Cap;
use engine::block::store::{Options, Store};
use engine::block::{BlockDevices, Durable};
use parking_lot::Mutex;
use policy::placement::RoundRobin;
use policy::purpose::Io;
use policy::units::MIB;
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use volume::mem::Mem;
use volume::{
    Clock, Error, ErrorKind, Intent, IoBuf, IoBufMut, Listed, Name, Object, Pending, Result, Space,
    Volume,
};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// Of an extent, and of a region, in bytes.
const EXTENT: u64 = 64 * MIB;
const REGION: u64 = 4 * MIB;
/// Of a region's checksums, behind the bytes of the extent.
const SLOT: u64 = 8192;
/// 32 GiB.
const EXTENTS: u64 = 512;
/// The checksums of an extent.
const SLOTS_BYTES: usize = (EXTENT / REGION * SLOT) as usize;
/// The most that a MiB of a device may take once it was written, with the pool's part, its manifest included.
const BYTES_PER_MIB_MAX: u64 = 64;

/// A volume in memory that keeps no bytes of users. The checksums of extents lie in memory that was allocated before.
struct Thin {
    inner: Mem,
    objects: Mutex<BTreeMap<Name, Arc<Hollow>>>,
    slots: Arc<Mutex<Vec<u8>>>,
}

/// An object without the bytes of users, which read as zeros.
struct Hollow {
    len: AtomicU64,
    /// Where its checksums begin among those of all objects.
    base: usize,
    slots: Arc<Mutex<Vec<u8>>>,
}

impl Thin {
    fn find(&self, name: &Name) -> Result<Arc<Hollow>> {
        let missing = || Error::new(ErrorKind::NotFound, name.to_string());
        self.objects.lock().get(name).cloned().ok_or_else(missing)
    }
}

fn is_data(name: &Name) -> bool {
    name.as_str().starts_with('o')
}

impl Volume for Thin {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        if !is_data(name) {
            return self.inner.create(name, intent);
        }
        let mut objects = self.objects.lock();
        let base = objects.len() * SLOTS_BYTES;
        let slots = Arc::clone(&self.slots);
        let object = Arc::new(Hollow { len: AtomicU64::new(0), base, slots });
        objects.insert(name.clone(), Arc::clone(&object));
        drop(objects);
        Box::pin(async move { Ok(object as Arc<dyn Object>) })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        if !is_data(name) {
            return self.inner.open(name);
        }
        let found = self.find(name);
        Box::pin(async move { Ok(found? as Arc<dyn Object>) })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        if !is_data(name) {
            return self.inner.remove(name);
        }
        let found = self.find(name).map(|_| drop(self.objects.lock().remove(name)));
        Box::pin(async move { found })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        let of = |(name, object): (&Name, &Arc<Hollow>)| Listed {
            name: name.clone(),
            len: object.len(),
        };
        let data: Vec<_> = self.objects.lock().iter().map(of).collect();
        Box::pin(async move { Ok([self.inner.list().await?, data].concat()) })
    }

    fn space(&self) -> Pending<'_, Space> {
        self.inner.space()
    }
}

impl Object for Hollow {
    fn read_at(&self, offset: u64, into: IoBufMut, _: Io) -> Pending<'_, IoBufMut> {
        let len = self.len().saturating_sub(offset).min(into.len() as u64);
        let mut read = IoBufMut::zeroed(len as usize);
        if let Some(at) = offset.checked_sub(EXTENT) {
            let at = self.base + at as usize;
            read.copy_from_slice(&self.slots.lock()[at..at + len as usize]);
        }
        Box::pin(async move { Ok(read) })
    }

    fn write_at(&self, offset: u64, data: IoBuf, _: Io) -> Pending<'_, ()> {
        if let Some(at) = offset.checked_sub(EXTENT) {
            let at = self.base + at as usize;
            self.slots.lock()[at..at + data.len()].copy_from_slice(&data);
        }
        self.len.fetch_max(offset + data.len() as u64, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn is_log(&self) -> bool {
        false
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        self.len.store(len, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn sync(&self, _: Io) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn a_written_mib_takes_few_bytes_of_memory() {
    let clock = Clock::simulated();
    clock.run(async {
        // The pool has other objects beside the extents.
        let slots = Arc::new(Mutex::new(vec![0; (EXTENTS as usize + 16) * SLOTS_BYTES]));
        let thin = Thin { inner: Mem::new("v"), objects: Mutex::default(), slots };
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(7));
        let pool = Spread::open(vec![Member::new("v", Arc::new(thin))], opening).await.unwrap();
        // Checksums have their own limit, and regions with marks theirs: both are small here.
        let options = Options {
            extent_bytes: EXTENT,
            checksum_bytes: MIB,
            clean_after: Duration::ZERO,
            dirty_regions_max: 64,
            ..Options::default()
        };
        let store = Store::open(Arc::new(pool), options, clock.clone()).await.unwrap();
        store.create("disk", EXTENTS * EXTENT).await.unwrap();
        let device = BlockDevices::open(&store, "disk").await.unwrap();
        let write = async |extents: std::ops::Range<u64>| {
            for extent in extents {
                for region in 0..EXTENT / REGION {
                    let at = extent * EXTENT + region * REGION;
                    let data = IoBuf::from(&[1; 4096][..]);
                    device.write(at, data, Durable::Later).await.unwrap();
                }
                device.flush().await.unwrap();
                store.tend().await.unwrap();
            }
        };
        // What is needed once: buffers, and extents that stay open.
        let first = EXTENTS / 2;
        write(0..first).await;
        let before = ALLOCATED.allocated();
        write(first..EXTENTS).await;
        let grown = ALLOCATED.allocated().saturating_sub(before) as u64;
        assert_eq!(store.list()[0].room, EXTENTS * EXTENT);
        let mib = (EXTENTS - first) * EXTENT / MIB;
        assert_eq!(store.figures().damaged, 0);
        println!("{grown} bytes for {mib} MiB, {:.1} each", grown as f64 / mib as f64);
        assert!(grown > 0 && grown <= BYTES_PER_MIB_MAX * mib, "{grown} bytes for {mib} MiB");
    });
}
