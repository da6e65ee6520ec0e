//! Pools that keep long objects as fragments of an erasure code, with some seeds. What was written in pieces has
//! copies, until it is complete and cut.
//!
//! An object is there while as many different fragments as the code has data fragments are good. So up to as many
//! fragments of it rot, and up to as many volumes are lost at one moment, as the code has parity fragments.

use std::collections::BTreeSet;

use policy::placement::{Code, Layout, VolumeId};
use policy::units::KIB;
use pool::spread::ObjectStat;
use pool::{Placed, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{IoBufMut, Volume};

use super::{COPY, Machine};
use crate::Sim;
use crate::rows::leaf;

/// One pool of this many has a code, of those whose members are volumes.
const CODES_ONE_IN: u32 = 4;

/// A code, and the number of members of the pool that has it; `None` with most seeds. It has a stream of its own, so
/// other seeds draw what they always did.
pub(super) fn draw(sim: &Sim) -> Option<(Code, u32)> {
    let mut random = sim.random("code");
    if random.random_range(0..CODES_ONE_IN) > 0 {
        return None;
    }
    let (data, parity) = [(2, 1), (3, 2), (4, 2)][random.random_range(0..3)];
    let code = Code::new(data, parity, 4 * KIB).expect("its numbers are within bounds");
    // Without a spare volume a fragment is made again only when its own one is back.
    let spare = random.random_range(0..=2);
    Some((code, code.fragments() as u32 + spare))
}

/// Whether enough fragments, or one copy, of those that `count` hold an object.
pub(super) fn suffice(object: &ObjectStat, counts: impl Fn(&Placed) -> bool) -> bool {
    let good: Vec<_> = object.copies.iter().filter(|placed| counts(placed)).collect();
    match object.copies.first().and_then(|placed| placed.layout.fragment()) {
        None => !good.is_empty(),
        Some(any) => {
            let fragments = good.iter().filter_map(|placed| placed.layout.fragment());
            fragments.map(|own| own.index).collect::<BTreeSet<_>>().len() >= any.code.data()
        }
    }
}

/// Whether an object is kept as fragments.
pub(super) fn has_fragments(copies: &[Placed]) -> bool {
    copies.iter().any(|placed| matches!(placed.layout, Layout::Fragment(_)))
}

/// The fragments of an object with these bytes.
fn fragments(code: Code, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); code.data()];
    for (strip, bytes) in bytes.chunks(code.strip() as usize).enumerate() {
        all[strip % code.data()].extend_from_slice(bytes);
    }
    for index in code.data()..code.fragments() {
        let mut parity = vec![0; all[0].len()];
        for (column, data) in all[..code.data()].iter().enumerate() {
            let factor = policy::code::coefficient(code.data(), index, column);
            let products: [u8; 256] =
                std::array::from_fn(|byte| policy::code::product(factor, byte as u8));
            for (sum, &byte) in parity.iter_mut().zip(data) {
                *sum ^= products[usize::from(byte)];
            }
        }
        all.push(parity);
    }
    all
}

impl Machine {
    /// Checks that each object in fragments has all of them, on a volume each, with their bytes. No volume fails, and
    /// nothing is written. Returns how many of the objects that `counts` are in fragments, and the number of these objects.
    pub(super) async fn must_be_complete(
        &self,
        pool: &Spread,
        counts: impl Fn(&ObjectStat) -> bool,
    ) -> (usize, usize) {
        let objects = pool.objects();
        let mut of_fragments = 0;
        let strip = pool.code().map_or(u64::MAX, Code::strip);
        let is_due = |object: &&ObjectStat| object.sealed && object.len > strip;
        for ObjectStat { name, copies, .. } in objects.iter().filter(is_due) {
            assert!(has_fragments(copies), "{name}: it is complete, and has {copies:?}");
        }
        for object in objects.iter().filter(|object| has_fragments(&object.copies)) {
            let (name, copies) = (&object.name, &object.copies);
            of_fragments += usize::from(counts(object));
            let opened = pool.open(name).await.expect("nothing fails");
            let bytes = opened.read_at(0, IoBufMut::zeroed(object.len as usize), COPY).await;
            let bytes = bytes.expect("nothing fails");
            let (mut indexes, mut volumes) = (BTreeSet::new(), BTreeSet::new());
            let mut expected = Vec::new();
            for placed in copies {
                let fragment = placed.layout.fragment();
                let own = fragment.unwrap_or_else(|| panic!("{name}: a copy in {copies:?}"));
                if expected.is_empty() {
                    expected = fragments(own.code, &bytes);
                }
                let is_new = volumes.insert(own.volume);
                assert!(is_new, "{name}: two fragments on {}: {copies:?}", own.volume);
                indexes.insert(usize::from(own.index));
                let found = self.bytes_of(object, placed, own.volume).await;
                let is_good = found == expected[usize::from(own.index)];
                assert!(is_good, "{name}: other bytes in fragment {}: {copies:?}", own.index);
            }
            let all = (0..expected.len()).collect();
            assert_eq!(indexes, all, "{name}: fragments are missing: {copies:?}");
        }
        (of_fragments, objects.iter().filter(|object| counts(object)).count())
    }

    /// The bytes of a fragment on its device.
    async fn bytes_of(&self, object: &ObjectStat, placed: &Placed, volume: VolumeId) -> Vec<u8> {
        let (device, leaf) = self.place(volume, &leaf(object, placed)).expect("it is a volume");
        let leaf = self.rows.crashes[device].open(&leaf).await.expect("it is there");
        let len = leaf.len() as usize;
        leaf.read_at(0, IoBufMut::zeroed(len), COPY).await.expect("nothing fails").to_vec()
    }

    /// Empties a volume, and mostly lets it take objects again. Does nothing while a fragment rotted in this life: the
    /// pool may have verified it just before.
    pub(super) async fn drain(&self, sim: &Sim, pool: &Spread, random: &mut Xoshiro256PlusPlus) {
        let volume = VolumeId(random.random_range(0..self.tree.members() as usize) as u16);
        let is_used_again = random.random_bool(0.8);
        if self.rot.is_any_fresh() {
            return;
        }
        let _held = self.rot.hold(None);
        let drained = pool.drain(volume, COPY, |_| ()).await.map(|left| left.objects);
        sim.note("copier", format_args!("  {volume} is emptied, left: {drained:?}"));
        if is_used_again {
            let used = pool.set_draining(volume, false).await;
            sim.note("copier", format_args!("  {volume} is used again: {used:?}"));
        }
    }
}
