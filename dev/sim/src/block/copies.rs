//! Whether the copies of extents are alike.

use pool::{Kind, Spread};
use volume::task::block_on;
use volume::{IoBufMut, Volume};

use super::COPY;
use crate::rows::{Rows, leaf};

/// Demands that every object in place has the same bytes in all copies. Nothing is in doubt, no volume fails, and nothing
/// rotted.
pub(super) fn must_be_alike(pool: &Spread, rows: &Rows) {
    let mut objects = pool.objects();
    objects.retain(|object| object.kind == Kind::InPlace);
    for object in objects {
        let copies = object.copies.iter().map(|placed| {
            let leaf = leaf(&object, placed);
            let crash =
                placed.layout.volumes().first().map(|volume| &rows.crashes[usize::from(volume.0)]);
            let found = block_on(crash.expect("a copy has a volume").open(&leaf));
            let found = found.expect("its leaf object is there");
            let into = IoBufMut::zeroed(object.len as usize);
            let mut bytes =
                block_on(found.read_at(0, into, COPY)).expect("the power is on").to_vec();
            bytes.resize(object.len as usize, 0);
            bytes
        });
        let copies: Vec<_> = copies.collect();
        let Some(copy) = copies.iter().find(|copy| **copy != copies[0]) else { continue };
        let at = copy.iter().zip(&copies[0]).position(|(one, other)| one != other);
        panic!("{}: its copies differ at {at:?}", object.name);
    }
}
