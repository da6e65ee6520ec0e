//! The model of block devices: bytes in memory, nothing survives.

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use volume::extent;

use super::{
    BlockDevice, BlockDevices, Durable, Error, Extent, Geometry, Holder, IoBuf, IoBufMut, Lease,
    Pending, Result, Zeros, within,
};

/// The size of a block, in bytes.
const BLOCK: u64 = 4096;

/// Devices in memory.
#[derive(Default)]
pub struct Memory(BTreeMap<String, Named>);

/// A device and its lease.
struct Named {
    device: Arc<dyn BlockDevice>,
    lease: Mutex<Lease>,
}

/// A device in memory: the blocks that have room.
struct Device {
    size: u64,
    blocks: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Memory {
    /// Adds an empty device.
    #[must_use]
    pub fn with(self, name: &str, size: u64) -> Self {
        self.with_device(name, Arc::new(Device { size, blocks: Mutex::default() }))
    }

    /// Adds a device of any kind.
    #[must_use]
    pub fn with_device(mut self, name: &str, device: Arc<dyn BlockDevice>) -> Self {
        self.0.insert(name.to_owned(), Named { device, lease: Mutex::default() });
        self
    }

    fn named(&self, name: &str) -> Result<&Named> {
        self.0.get(name).ok_or_else(|| Error::NotFound(format!("there is no device {name}")))
    }
}

impl BlockDevices for Memory {
    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Pending<'_, Arc<dyn BlockDevice>> {
        done(self.named(name).map(|named| Arc::clone(&named.device)))
    }

    fn lease(&self, name: &str) -> Lease {
        self.0.get(name).map_or_else(Lease::default, |named| named.lease.lock().clone())
    }

    fn take(&self, name: &str, holder: &Holder, force: bool) -> Pending<'_, u64> {
        done(self.named(name).and_then(|named| {
            let mut lease = named.lease.lock();
            *lease = lease.taken(name, holder, force)?;
            Ok(lease.token)
        }))
    }

    fn release(&self, name: &str, token: Option<u64>) -> Pending<'_, ()> {
        done(self.named(name).map(|named| {
            let mut lease = named.lease.lock();
            if let Some(released) = lease.released(token) {
                *lease = released;
            }
        }))
    }
}

impl Device {
    /// The parts of a range in each of its blocks: the block's number, and the part inside it.
    fn parts(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
        let Range { start, end } = *range;
        (start / BLOCK..end.div_ceil(BLOCK)).map(move |block| {
            let from = start.max(block * BLOCK) - block * BLOCK;
            let to = end.min((block + 1) * BLOCK) - block * BLOCK;
            (block, from as usize..to as usize)
        })
    }

    fn clear(&self, range: &Range<u64>, room: Zeros) {
        let mut blocks = self.blocks.lock();
        if room == Zeros::Keep {
            for (block, part) in Self::parts(range) {
                blocks.entry(block).or_insert_with(empty)[part].fill(0);
            }
            return;
        }
        let held = blocks.range(range.start / BLOCK..range.end.div_ceil(BLOCK));
        for block in held.map(|(&block, _)| block).collect::<Vec<_>>() {
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            if range.start <= bytes.start && bytes.end <= range.end {
                blocks.remove(&block);
            } else if let Some(kept) = blocks.get_mut(&block) {
                let part = range.start.max(bytes.start)..range.end.min(bytes.end);
                kept[(part.start - bytes.start) as usize..(part.end - bytes.start) as usize]
                    .fill(0);
            }
        }
    }
}

impl BlockDevice for Device {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, block: BLOCK as u32, writes_are_durable: false }
    }

    fn read(&self, offset: u64, mut into: IoBufMut) -> Pending<'_, IoBufMut> {
        let range = offset..offset.saturating_add(into.len() as u64);
        done(within(&range, self.size).map(|()| {
            let blocks = self.blocks.lock();
            let mut at = 0;
            for (block, part) in Self::parts(&range) {
                let into = &mut into[at..at + part.len()];
                at += part.len();
                match blocks.get(&block) {
                    Some(block) => into.copy_from_slice(&block[part]),
                    None => into.fill(0),
                }
            }
            drop(blocks);
            into
        }))
    }

    fn write(&self, offset: u64, data: IoBuf, _: Durable) -> Pending<'_, ()> {
        let range = offset..offset.saturating_add(data.len() as u64);
        done(within(&range, self.size).map(|()| {
            let mut blocks = self.blocks.lock();
            let mut data = &data[..];
            for (block, part) in Self::parts(&range) {
                let (first, rest) = data.split_at(part.len());
                blocks.entry(block).or_insert_with(empty)[part].copy_from_slice(first);
                data = rest;
            }
        }))
    }

    fn zero(&self, range: Range<u64>, room: Zeros, _: bool, _: Durable) -> Pending<'_, ()> {
        done(within(&range, self.size).map(|()| self.clear(&range, room)))
    }

    fn discard(&self, range: Range<u64>, _: Durable) -> Pending<'_, ()> {
        done(within(&range, self.size).map(|()| {
            let whole = range.start.next_multiple_of(BLOCK)..range.end / BLOCK * BLOCK;
            if !whole.is_empty() {
                self.clear(&whole, Zeros::Free);
            }
        }))
    }

    fn flush(&self) -> Pending<'_, ()> {
        done(Ok(()))
    }

    fn extents(&self, range: Range<u64>, most: usize) -> Pending<'_, Vec<Extent>> {
        done(within(&range, self.size).map(|()| {
            let blocks = self.blocks.lock();
            let mut extents = Vec::new();
            let mut end = range.start;
            for (&block, _) in blocks.range(range.start / BLOCK..range.end.div_ceil(BLOCK)) {
                let from = range.start.max(block * BLOCK);
                let to = range.end.min((block + 1) * BLOCK);
                extent::push(&mut extents, end..from, true);
                extent::push(&mut extents, from..to, false);
                end = to;
            }
            extent::push(&mut extents, end..range.end, true);
            extents.truncate(most);
            extents
        }))
    }

    fn prefetch(&self, range: Range<u64>) -> Pending<'_, ()> {
        done(within(&range, self.size))
    }
}

fn empty() -> Box<[u8]> {
    vec![0; BLOCK as usize].into()
}

fn done<'a, T: Send + 'a>(result: Result<T>) -> Pending<'a, T> {
    Box::pin(ready(result))
}
