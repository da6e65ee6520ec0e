//! A volume that keeps the parts of an extent that the search writes to, so that an extent takes 224 KiB, not 64 MiB.
//!
//! ```text
//!   object as the store sees it:  │■■······■■│■■······■■│  ···  │■■······■■│ pages of checksums │
//!   as the volume below has it:   │■■■■│■■■■│■■■■│ pages of checksums │
//! ```
//! The blocks in between are a hole. They read as zeros, and only zeros are written to them. It goes below a pool of copies,
//! and above one of fragments, which have other offsets.

use std::ops::Range;
use std::sync::Arc;

use policy::units::MIB;
use volume::{
    Check, Expected, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending,
    ReadTime, Result, Space, Verified, Verify, Volume, Zeros, extent, ready,
};

/// The store's sizes, in bytes: `docs/format` has them.
pub(super) const BLOCK: u64 = 4096;
pub(super) const REGION: u64 = 4 * MIB;
pub(super) const EXTENT: u64 = 64 * MIB;
/// The slot of a region's checksums.
pub(super) const SLOT: u64 = 2 * BLOCK;
/// An extent's object.
const OBJECT: u64 = EXTENT + EXTENT / REGION * SLOT;

/// The blocks that are kept before and behind the border of two regions, in bytes.
pub(super) const MARGIN: u64 = 4 * BLOCK;

/// The ranges of an object that are kept, in order.
const KEPT: [Range<u64>; 7] = [
    0..MARGIN,
    REGION - MARGIN..REGION,
    REGION..REGION + MARGIN,
    2 * REGION - MARGIN..2 * REGION,
    EXTENT - REGION..EXTENT - REGION + MARGIN,
    EXTENT - MARGIN..EXTENT,
    EXTENT..OBJECT,
];

/// Where an offset of an object is in what is kept of it. Offsets that are not kept are where the next kept one is.
pub(super) fn kept(offset: u64) -> u64 {
    KEPT.iter().map(|range| offset.clamp(range.start, range.end) - range.start).sum()
}

/// The least offset of an object of which this many bytes are kept.
fn whole(kept: u64) -> u64 {
    let mut left = kept;
    for range in &KEPT {
        let len = range.end - range.start;
        if left <= len {
            return range.start + left;
        }
        left -= len;
    }
    OBJECT + left
}

/// The parts of a range that are kept.
fn parts(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { start, end } = *range;
    KEPT.iter()
        .map(move |kept| start.max(kept.start)..end.min(kept.end))
        .filter(|part| part.start < part.end)
}

/// A store above such a volume, as the pool below it asks.
pub(super) struct Above<S>(pub(super) S);

impl<S: Verify> Verify for Above<S> {
    fn verify<'a>(&'a self, object: &'a Name) -> Pending<'a, Verified> {
        self.0.verify(object)
    }

    fn expected<'a>(
        &'a self,
        object: &'a Name,
        blocks: Range<u64>,
        fetch: Option<Io>,
    ) -> Pending<'a, Vec<Expected>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for kept in blocks {
                let block = whole((kept + 1) * BLOCK) / BLOCK - 1;
                all.append(&mut self.0.expected(object, block..block + 1, fetch).await?);
            }
            Ok(all)
        })
    }
}

/// A volume that keeps little of each extent.
pub(super) struct Narrow<V> {
    inner: V,
    /// Blocks of zeros are called holes.
    shows_holes: bool,
    /// Whether an object of this name is an extent.
    is_extent: fn(&str) -> bool,
}

/// Whether a leaf object is a copy of an extent.
fn is_copy(leaf: &str) -> bool {
    leaf.ends_with(".inp")
}

/// Whether an object of a pool is an extent, not a device's marks.
fn is_extent(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or_default();
    last.len() == 8 && last.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl<V: Volume> Narrow<V> {
    /// Of the copies of extents, below a pool.
    pub(super) const fn new(inner: V, shows_holes: bool) -> Self {
        Self { inner, shows_holes, is_extent: is_copy }
    }

    /// Of extents, above a pool.
    pub(super) const fn above(inner: V, shows_holes: bool) -> Self {
        Self { inner, shows_holes, is_extent }
    }

    fn object(&self, name: &Name, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        if !(self.is_extent)(name.as_str()) {
            return inner;
        }
        Arc::new(NarrowObject { inner, shows_holes: self.shows_holes })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<V: Volume> Volume for Narrow<V> {
    volume::forward! {
        self => self.inner;
        fn remove(name: &Name) -> Pending<'_, ()>;
        fn space() -> Pending<'_, Space>;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn write_whole(name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()>;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }

    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let intent = Intent { len: intent.len.map(kept), ..intent };
            Ok(self.object(&name, self.inner.create(&name, &intent).await?))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move { Ok(self.object(&name, self.inner.open(&name).await?)) })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async {
            let mut listed = self.inner.list().await?;
            for object in &mut listed {
                if (self.is_extent)(object.name.as_str()) {
                    object.len = whole(object.len);
                }
            }
            Ok(listed)
        })
    }
}

/// The bytes of a range of an object, from those that are kept of it.
fn widen(range: &Range<u64>, kept_bytes: &[u8], into: &mut [u8]) {
    into.fill(0);
    for part in parts(range) {
        let from = (kept(part.start) - kept(range.start)) as usize;
        let len = ((part.end - part.start) as usize).min(kept_bytes.len().saturating_sub(from));
        let at = (part.start - range.start) as usize;
        into[at..at + len].copy_from_slice(&kept_bytes[from..from + len]);
    }
}

struct NarrowObject {
    inner: Arc<dyn Object>,
    shows_holes: bool,
}

impl NarrowObject {
    /// The bytes of `data` at `offset` that are kept, which are one range below.
    fn narrowed(offset: u64, data: &IoBuf) -> IoBuf {
        let range = offset..offset + data.len() as u64;
        let mut into = Vec::new();
        for part in parts(&range) {
            into.extend_from_slice(
                &data[(part.start - offset) as usize..(part.end - offset) as usize],
            );
        }
        IoBuf::from(&into[..])
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for NarrowObject {
    fn read_at(&self, offset: u64, mut into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        let range = offset..offset.saturating_add(into.len() as u64).min(self.len().max(offset));
        Box::pin(async move {
            let narrow = kept(range.start)..kept(range.end);
            let buf = IoBufMut::zeroed((narrow.end - narrow.start) as usize);
            let read = self.inner.read_at(narrow.start, buf, io).await?;
            into.resize((range.end - range.start) as usize);
            widen(&range, &read, &mut into);
            Ok(into)
        })
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.inner.write_at(kept(offset), Self::narrowed(offset, &data), io)
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.inner.write_durable(kept(offset), Self::narrowed(offset, &data), io)
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        let (from, to) = (kept(offset), kept(offset.saturating_add(len)));
        self.inner.zero(from, to - from, room, io)
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        let range = extent::within(offset, len, self.len());
        Box::pin(async move {
            let mut found = Vec::new();
            let mut end = range.start;
            for part in parts(&range) {
                extent::push(&mut found, end..part.start, true);
                end = part.end;
                let mut at = part.start;
                while at < part.end {
                    let next = part.end.min((at / BLOCK + 1) * BLOCK);
                    let buf = IoBufMut::zeroed((next - at) as usize);
                    let io = Io::new(policy::purpose::Origin::Bulk, policy::purpose::Step::Data);
                    let read = self.inner.read_at(kept(at), buf, io).await?;
                    let is_hole = self.shows_holes && read.iter().all(|&byte| byte == 0);
                    extent::push(&mut found, at..next, is_hole);
                    at = next;
                }
            }
            extent::push(&mut found, end..range.end, true);
            Ok(found)
        })
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        volume::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        volume::blocking::write_at(self, offset, data, io)
    }

    fn len(&self) -> u64 {
        whole(self.inner.len())
    }

    fn is_log(&self) -> bool {
        self.inner.is_log()
    }

    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        self.inner.set_len(kept(len))
    }

    fn read_again(
        &self,
        offset: u64,
        mut into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        let range = offset..offset.saturating_add(into.len() as u64).min(self.len().max(offset));
        Box::pin(async move {
            let narrow = kept(range.start)..kept(range.end);
            let buf = IoBufMut::zeroed((narrow.end - narrow.start) as usize);
            let wide = range.clone();
            let check = Arc::new(move |bytes: &[u8]| {
                let mut whole = vec![0; (wide.end - wide.start) as usize];
                widen(&wide, bytes, &mut whole);
                check(&whole)
            });
            let read = self.inner.read_again(narrow.start, buf, io, check).await?;
            into.resize((range.end - range.start) as usize);
            widen(&range, &read, &mut into);
            Ok(into)
        })
    }

    fn align(&self, _offset: u64, _len: u64, _io: Io) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        self.inner.expected_read(offset, len)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.inner.seal(io)
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        volume::ahead::sync(self, more, io)
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        self.inner.sync(io)
    }
}

#[cfg(test)]
mod tests {
    use policy::purpose::{Origin, Step};
    use volume::mem::Mem;
    use volume::task::block_on;

    use super::*;

    #[test]
    fn what_is_kept_is_where_it_was_written() {
        let io = Io::new(Origin::UserWrite, Step::Data);
        let narrow = Narrow::new(Mem::new("a"), true);
        let name = Name::new("o1.inp").unwrap();
        let object = block_on(narrow.create(&name, &Intent::IN_PLACE)).unwrap();
        block_on(object.write_at(
            EXTENT,
            IoBufMut::zeroed((OBJECT - EXTENT) as usize).freeze(),
            io,
        ))
        .unwrap();
        assert_eq!(object.len(), OBJECT);
        let data = IoBuf::from(&[7; 3 * BLOCK as usize][..]);
        for offset in [0, REGION - BLOCK, EXTENT - 3 * BLOCK, EXTENT + BLOCK] {
            block_on(object.write_at(offset, data.clone(), io)).unwrap();
            let read = block_on(object.read_at(offset, IoBufMut::zeroed(data.len()), io)).unwrap();
            assert_eq!(read[..], data[..], "{offset}");
        }
        let read =
            block_on(object.read_at(REGION - 2 * BLOCK, IoBufMut::zeroed(8192), io)).unwrap();
        assert!(read[..4096].iter().all(|&b| b == 0) && read[4096..].iter().all(|&b| b == 7));
        let holes = block_on(object.extents(0, EXTENT)).unwrap();
        let holes: Vec<_> = holes.iter().map(|e| (e.range.start / BLOCK, e.is_hole)).collect();
        assert_eq!(holes[..3], [(0, false), (3, true), (1023, false)]);
        assert_eq!(block_on(narrow.list()).unwrap()[0].len, OBJECT);
    }
}
