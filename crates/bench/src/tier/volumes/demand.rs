//! The baseline: demand promotion of whole objects, by the rules of Ceph's cache tiering in its mode *writeback*, for reads.
//!
//! A read of an object that is not cached first promotes all of it: the slow volume reads the whole object, the fast one
//! writes it, and then the read is served from there. Reads of the object wait meanwhile. The object that was not used for
//! the longest time makes room. (Ceph documentation, "Cache Tiering"; the HOSD paper compares with release 0.94.2.)

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use policy::cache::{Eviction, Kind, Slot};
use policy::purpose::{Io, Origin, Step};
use volume::ranges::Ranges;
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Object, Pending, Result, ready};

use super::target::Target;

const READ: Io = Io::new(Origin::UserRead, Step::Data);
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);

/// Pinned victims that are passed over.
const PASSED_MAX: usize = 16;

/// Whole objects of a slow volume on a fast one. Reads only.
pub struct Demand {
    slow: Arc<dyn Object>,
    fast: Arc<dyn Object>,
    object_bytes: u64,
    held: Mutex<Held>,
    /// Objects that are being promoted.
    promoting: Ranges,
    read_bytes: AtomicU64,
    hit_bytes: AtomicU64,
    promoted_bytes: AtomicU64,
}

struct Held {
    slots: HashMap<u64, Slot>,
    /// The object in each slot, and its readers.
    places: Vec<(Option<u64>, u32)>,
    free: Vec<Slot>,
    policy: Box<dyn Eviction>,
}

impl Held {
    /// A slot to write to; `None` if readers use those that were looked at.
    fn take(&mut self, object_bytes: u64) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        for _ in 0..PASSED_MAX {
            let slot = self.policy.evict()?;
            let (object, readers) = self.places[slot as usize];
            let object = object?;
            if readers == 0 {
                self.slots.remove(&object);
                return Some(slot);
            }
            self.policy.insert(slot, object, object_bytes as u32);
        }
        None
    }
}

impl Demand {
    /// The cache of `slow` on `fast`, which has room for `slots` objects of `object_bytes` each. `slow` is cut into these.
    #[must_use]
    pub fn new(
        slow: Arc<dyn Object>,
        fast: Arc<dyn Object>,
        object_bytes: u64,
        slots: u32,
    ) -> Self {
        let held = Held {
            slots: HashMap::new(),
            places: vec![(None, 0); slots as usize],
            free: (0..slots).rev().collect(),
            policy: Kind::Lru.policy(),
        };
        Self {
            slow,
            fast,
            object_bytes,
            held: Mutex::new(held),
            promoting: Ranges::default(),
            read_bytes: AtomicU64::new(0),
            hit_bytes: AtomicU64::new(0),
            promoted_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes that were read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were read without a promotion.
    #[must_use]
    pub fn hit_bytes(&self) -> u64 {
        self.hit_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were promoted.
    #[must_use]
    pub fn promoted_bytes(&self) -> u64 {
        self.promoted_bytes.load(Ordering::Relaxed)
    }

    async fn cached(
        &self,
        at: u64,
        into: IoBufMut,
    ) -> Result<std::result::Result<IoBufMut, IoBufMut>> {
        let slot = {
            let mut held = self.held.lock();
            let Some(&slot) = held.slots.get(&(at / self.object_bytes)) else {
                return Ok(Err(into));
            };
            held.policy.hit(slot);
            held.places[slot as usize].1 += 1;
            slot
        };
        let place = u64::from(slot) * self.object_bytes + at % self.object_bytes;
        let read = self.fast.read_at(place, into, READ).await;
        self.held.lock().places[slot as usize].1 -= 1;
        read.map(Ok)
    }

    async fn read_promoting(&self, at: u64, into: IoBufMut) -> Result<IoBufMut> {
        let len = into.len();
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        let into = match self.cached(at, into).await? {
            Ok(read) => {
                self.hit_bytes.fetch_add(len as u64, Ordering::Relaxed);
                return Ok(read);
            }
            Err(into) => into,
        };
        let object = at / self.object_bytes;
        let _claim = self.promoting.claim(object..object + 1).await;
        // Another read may have promoted it meanwhile.
        let mut into = match self.cached(at, into).await? {
            Ok(read) => return Ok(read),
            Err(into) => into,
        };
        let whole = IoBufMut::zeroed(self.object_bytes as usize);
        let whole = self.slow.read_at(object * self.object_bytes, whole, READ).await?.freeze();
        let within = (at % self.object_bytes) as usize;
        into.copy_from_slice(&whole[within..within + len]);
        let slot = self.held.lock().take(self.object_bytes);
        let Some(slot) = slot else { return Ok(into) };
        self.fast.write_at(u64::from(slot) * self.object_bytes, whole, WRITE).await?;
        self.promoted_bytes.fetch_add(self.object_bytes, Ordering::Relaxed);
        let mut held = self.held.lock();
        held.places[slot as usize] = (Some(object), 0);
        held.slots.insert(object, slot);
        held.policy.insert(slot, object, self.object_bytes as u32);
        Ok(into)
    }
}

impl Target for Demand {
    /// A read within one object.
    fn read(&self, at: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        Box::pin(self.read_promoting(at, into))
    }

    fn write(&self, _: u64, _: IoBuf) -> Pending<'_, ()> {
        ready(Err(Error::new(ErrorKind::Unsupported, "the baseline has reads only")))
    }
}

#[cfg(test)]
mod tests {
    use volume::mem::Mem;
    use volume::task::block_on;
    use volume::{Intent, Name, Volume};

    use super::*;

    #[test]
    fn every_miss_promotes_its_object_and_the_oldest_one_leaves() {
        block_on(async {
            let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
            let name = Name::new("data").expect("a name");
            let slow = slow.create(&name, &Intent::DATA).await.expect("room");
            let fast = fast.create(&name, &Intent::DATA).await.expect("room");
            let bytes: Vec<u8> = (0..4 * 100).map(|at| (at / 10) as u8).collect();
            slow.write_at(0, IoBuf::from(&bytes[..]), WRITE).await.expect("room");
            let demand = Demand::new(slow, fast, 100, 2);
            let read = async |at: u64| {
                let read = demand.read(at, IoBufMut::zeroed(10)).await.expect("memory");
                assert_eq!(read.to_vec(), bytes[at as usize..at as usize + 10]);
                (demand.promoted_bytes(), demand.hit_bytes())
            };
            assert_eq!(read(110).await, (100, 0));
            assert_eq!(read(190).await, (100, 10));
            assert_eq!(read(0).await, (200, 10));
            assert_eq!(read(120).await, (200, 20));
            assert_eq!(read(300).await, (300, 20));
            assert_eq!(read(130).await, (300, 30));
            assert_eq!(read(10).await, (400, 30), "it was not used for the longest time");
        });
    }
}
