//! The header of a volume: its pool, and the oldest manifest that may be used.
//!
//! Two slots of a page each hold the same header. They are written one after the other, each synced
//! before the next, so that one of them is always whole, and a damaged byte in one does no harm. If
//! they differ, the one with the higher epoch counts: the machine crashed before the other was
//! replaced. Byte for byte in `docs/format/volume-header.md`.

use std::fmt;

use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Intent, IoBuf, IoBufMut, Result, Volume};

use crate::leaf::Leaf;

/// Bytes of one slot.
pub(crate) const SLOT: usize = 4096;
const MAGIC: [u8; 8] = *b"Plimsoll";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = SLOT - 4;
const LABEL_AT: usize = 64;
/// The longest label of a volume, in bytes.
const LABEL_MAX: usize = 200;
const IO: Io = Io::new(Origin::Open, Step::Manifest);

/// The number of a pool: random, chosen when the pool is created.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PoolId(pub u128);

/// The header of a volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub(crate) pool: PoolId,
    pub(crate) volume: VolumeId,
    /// The label of the volume when the header was written.
    pub(crate) label: String,
    /// The current generation of the manifest: no older one may be used. Zero while the pool is being
    /// formatted.
    pub(crate) epoch: u64,
    /// The seal of that manifest: [`crate::journal::frame::seal`].
    pub(crate) seal: u64,
}

/// The contents of a slot.
#[derive(Debug, Eq, PartialEq)]
enum Slot {
    /// The slot was never completely written.
    Empty,
    Valid(Header),
    Damaged,
    /// Written by a later version of this program.
    Newer(u32),
}

impl Header {
    fn encode(&self) -> IoBuf {
        let mut slot = IoBufMut::zeroed(SLOT);
        let label = self.label.as_str();
        assert!(label.len() <= LABEL_MAX, "labels are checked when a pool is opened");
        slot[0..8].copy_from_slice(&MAGIC);
        slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
        slot[16..32].copy_from_slice(&self.pool.0.to_le_bytes());
        slot[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        slot[40..48].copy_from_slice(&self.seal.to_le_bytes());
        slot[48..50].copy_from_slice(&self.volume.0.to_le_bytes());
        slot[50..52].copy_from_slice(&(label.len() as u16).to_le_bytes());
        slot[LABEL_AT..LABEL_AT + label.len()].copy_from_slice(label.as_bytes());
        let checksum = crc32c::crc32c(&slot[..CHECKSUM_AT]);
        slot[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        slot.freeze()
    }
}

impl Slot {
    fn decode(slot: &[u8]) -> Self {
        let Ok(slot) = <&[u8; SLOT]>::try_from(slot) else { return Self::Empty };
        if slot.iter().all(|&b| b == 0) {
            return Self::Empty;
        }
        let checksum = u32::from_le_bytes(field(slot, CHECKSUM_AT));
        if slot[..8] != MAGIC || checksum != crc32c::crc32c(&slot[..CHECKSUM_AT]) {
            return Self::Damaged;
        }
        let version = u32::from_le_bytes(field(slot, 8));
        if version != VERSION {
            return Self::Newer(version);
        }
        let label_len = usize::from(u16::from_le_bytes(field(slot, 50)));
        let label = slot.get(LABEL_AT..LABEL_AT + label_len).map(std::str::from_utf8);
        let Some(Ok(label)) = label else { return Self::Damaged };
        Self::Valid(Header {
            pool: PoolId(u128::from_le_bytes(field(slot, 16))),
            volume: VolumeId(u16::from_le_bytes(field(slot, 48))),
            label: label.to_owned(),
            epoch: u64::from_le_bytes(field(slot, 32)),
            seal: u64::from_le_bytes(field(slot, 40)),
        })
    }
}

/// The `N` bytes at `at`, which lie inside the slot.
fn field<const N: usize>(slot: &[u8; SLOT], at: usize) -> [u8; N] {
    slot[at..at + N].try_into().expect("the range is N bytes long")
}

/// The result of reading a volume's header.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Found {
    /// There is none, or none was ever completely written.
    Nothing,
    /// The header.
    Header(Header),
}

/// Reads the header of `volume`.
///
/// # Errors
/// `Unavailable` when the volume is away; `Corrupt` when no slot can be read.
pub(crate) async fn read(volume: &dyn Volume) -> Result<Found> {
    let object = match volume.open(&Leaf::Header.name()).await {
        Ok(object) => object,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(e) => return Err(e),
    };
    let bytes = object.read_at(0, IoBufMut::zeroed(2 * SLOT), IO).await?;
    let (first, second) = bytes.split_at(bytes.len().min(SLOT));
    choose(Slot::decode(first), Slot::decode(second))
}

fn choose(first: Slot, second: Slot) -> Result<Found> {
    use Slot::{Damaged, Empty, Newer, Valid};
    match (first, second) {
        (Valid(a), Valid(b)) => Ok(Found::Header(if a.epoch >= b.epoch { a } else { b })),
        (Newer(version), _) | (_, Newer(version)) => Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "its header has format {version}, this program knows {VERSION}: use a newer one"
            ),
        )),
        (Valid(header), Empty | Damaged) | (Empty | Damaged, Valid(header)) => {
            Ok(Found::Header(header))
        }
        // A torn first slot before any second one: the volume was being formatted.
        (Empty | Damaged, Empty) => Ok(Found::Nothing),
        (Damaged | Empty, Damaged) => Err(Error::new(
            ErrorKind::Corrupt,
            "both slots of its header are damaged: restore `pool.header` from a backup, or remove \
             the volume from the open pool as lost; if the pool does not open without it, leave it \
             out and run `plimsoll check --repair`",
        )),
    }
}

/// Replaces the header of `volume`; creates the object if there is none. Durable on return.
///
/// # Errors
/// Those of the volume, by its label; the header is then the old one or the new one.
pub(crate) async fn write(volume: &dyn Volume, header: &Header) -> Result<()> {
    let written = replace(volume, header).await;
    written.map_err(|e| e.within(format_args!("volume {}", header.label)))
}

async fn replace(volume: &dyn Volume, header: &Header) -> Result<()> {
    let name = Leaf::Header.name();
    let object = match volume.open(&name).await {
        Err(e) if e.kind() == ErrorKind::NotFound => volume.create(&name, &Intent::DATA).await?,
        opened => opened?,
    };
    // The current slot is written last: while the other is being written, it is the only valid one.
    let bytes = object.read_at(0, IoBufMut::zeroed(2 * SLOT), IO).await?;
    let (first, second) = bytes.split_at(bytes.len().min(SLOT));
    let first_counts = match (Slot::decode(first), Slot::decode(second)) {
        (Slot::Valid(a), Slot::Valid(b)) => a.epoch >= b.epoch,
        (first, _) => matches!(first, Slot::Valid(_)),
    };
    // An earlier replacement may have failed between its write and its sync. The slot that counts must be durable before
    // the other is written over.
    object.sync(IO).await?;
    let slot = header.encode();
    for number in if first_counts { [1, 0] } else { [0, 1] } {
        object.write_at(number * SLOT as u64, slot.clone(), IO).await?;
        object.sync(IO).await?;
    }
    Ok(())
}

/// Checks the label of a volume.
///
/// # Errors
/// `Invalid`: it is empty or too long.
pub(crate) fn check_label(label: &str) -> Result<()> {
    if label.is_empty() || label.len() > LABEL_MAX {
        let what = format!("volume label {label:?}: must be 1 to {LABEL_MAX} bytes long");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(())
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use volume::layer::crash::{Crash, Power};
    use volume::mem::Mem;
    use volume::task::block_on;

    use super::*;

    fn header(epoch: u64) -> Header {
        Header {
            pool: PoolId(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
            volume: VolumeId(5),
            label: "s5".into(),
            epoch,
            seal: epoch.wrapping_mul(77),
        }
    }

    #[test]
    fn a_header_is_read_back() {
        let mem = Mem::new("m");
        assert_eq!(block_on(read(&mem)).unwrap(), Found::Nothing);
        for epoch in [0, 1, 7] {
            block_on(write(&mem, &header(epoch))).unwrap();
            assert_eq!(block_on(read(&mem)).unwrap(), Found::Header(header(epoch)));
        }
    }

    #[test]
    fn no_single_byte_that_rots_matters() {
        for offset in 0..2 * SLOT as u64 {
            let mem = Mem::new("m");
            block_on(write(&mem, &header(3))).unwrap();
            mem.damage(&Leaf::Header.name(), offset, |byte| *byte ^= 1 << (offset % 8));
            assert_eq!(block_on(read(&mem)).unwrap(), Found::Header(header(3)), "{offset}");
        }
    }

    #[test]
    fn damage_in_both_slots_is_an_error_not_a_blank_volume() {
        let mem = Mem::new("m");
        block_on(write(&mem, &header(3))).unwrap();
        for offset in [0, SLOT as u64 + 100] {
            mem.damage(&Leaf::Header.name(), offset, |byte| *byte ^= 4);
        }
        assert_eq!(block_on(read(&mem)).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    /// Replaces the header on a machine that loses power after `cut` steps.
    fn replace(mem: Mem, epoch: u64, cut: u64, seed: u64) -> Mem {
        let power = Power::new();
        let crash = Crash::new(mem, &power);
        power.cut_after(cut);
        assert_eq!(block_on(write(&crash, &header(epoch))).is_ok(), cut == 5);
        crash.survivor(seed)
    }

    #[test]
    fn a_cut_at_any_step_leaves_the_old_or_the_new_and_so_does_the_next() {
        let found = |mem: &Mem| match block_on(read(mem)).unwrap() {
            Found::Header(found) => found.epoch,
            Found::Nothing => panic!("the header is gone"),
        };
        for (first, second) in (0..=5).flat_map(|first| (0..=5).map(move |second| (first, second)))
        {
            for seed in 0..60 {
                let context = format!("cuts {first} and {second}, seed {seed}");
                let mem = Mem::new("m");
                block_on(write(&mem, &header(3))).unwrap();
                let mem = replace(mem, 4, first, seed);
                let after_first = found(&mem);
                assert!(after_first == 4 || after_first == 3 && first < 5, "{context}");
                let mem = replace(mem, 5, second, seed + 1000);
                let after_second = found(&mem);
                let kept = after_second == after_first && second < 5;
                assert!(after_second == 5 || kept, "{context}: {after_second}");
            }
        }
    }

    /// One slot has the new header, but only in memory. The other was then taken for the
    /// older one and written over next, and a power cut could damage both.
    #[test]
    fn a_replacement_after_one_whose_sync_failed_leaves_a_whole_slot() {
        for cut in 0..5 {
            for seed in 0..60 {
                let mem = Mem::new("m");
                block_on(write(&mem, &header(3))).unwrap();
                let power = Power::new();
                let crash = Crash::new(mem, &power);
                // The write of an earlier attempt, without its sync.
                block_on(async {
                    let object = crash.open(&Leaf::Header.name()).await.unwrap();
                    object.write_at(SLOT as u64, header(4).encode(), IO).await.unwrap();
                });
                power.cut_after(cut);
                block_on(write(&crash, &header(5))).unwrap_err();
                let found = block_on(read(&crash.survivor(seed)));
                assert!(matches!(found, Ok(Found::Header(_))), "cut {cut}, seed {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn a_newer_format_is_not_taken_for_damage() {
        let mut slot = header(1).encode().to_vec();
        slot[8] = 2;
        let checksum = crc32c::crc32c(&slot[..CHECKSUM_AT]);
        slot[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        let error = choose(Slot::decode(&slot), Slot::Empty).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("format 2"), "{error}");
    }

    proptest! {
        #[test]
        fn any_header_is_decoded_back(
            pool: u128, volume: u16, label in "[a-zäß]{0,100}", epoch: u64, seal: u64,
        ) {
            let header =
                Header { pool: PoolId(pool), volume: VolumeId(volume), label, epoch, seal };
            prop_assert_eq!(Slot::decode(&header.encode()), Slot::Valid(header));
        }

        #[test]
        fn garbage_is_never_valid(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(!matches!(Slot::decode(&bytes), Slot::Valid(_)));
        }
    }
}
