//! What the log holds, and its bytes: batches of records, each with the blocks that belong to them.
//!
//! ```text
//!  0       8          16         24        32         36       40      44      48
//!  | magic | sequence | previous | durable | head len | blocks | check | zeros | records, head len bytes |
//!  | zeros up to a multiple of 4 KiB | blocks of 4 KiB |
//! ```
//! `check` is the CRC-32C of the file's number, of the first 40 bytes and of the records. Each block has its CRC-32C in its
//! record. All numbers are little-endian. [`Order`] says what the first three are.

use policy::recycle::BLOCK;
use volume::{IoBuf, IoBufMut};

use super::index::Live;
use super::value::{Place, Value};
use crate::leaf::ObjectId;
use crate::spread::Missed;

/// The last byte is the version.
const MAGIC: [u8; 8] = *b"plimupd1";
const FIXED: usize = 48;
const CHECK_AT: usize = 40;
/// The most bytes of records of a batch.
const HEAD_MAX: usize = 4 << 20;
/// The most blocks of a batch.
const BLOCKS_MAX: u32 = 1 << 16;

/// One change of an object, or of what the log knows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Record {
    /// New bytes of blocks that follow each other. The batch has the blocks.
    Blocks {
        /// The object.
        object: ObjectId,
        /// The first block.
        block: u64,
        /// The checksum of each block.
        checksums: Vec<u32>,
    },
    /// Blocks that follow each other become zeros.
    Zeros {
        /// The object.
        object: ObjectId,
        /// The first block.
        block: u64,
        /// How many they are.
        count: u64,
    },
    /// A row of an object changes in place, from the moment this record is durable. The batch has the blocks of parity.
    Row {
        /// The number of the change.
        change: u64,
        /// The object.
        object: ObjectId,
        /// The row.
        row: u64,
        /// New blocks of data, by their numbers in the object.
        data: Vec<(u64, Value)>,
        /// New blocks of parity, also of fragments that are missing.
        parity: Vec<Parity>,
        /// Which copies of parity fragments do not get it: an earlier version left out those that were missing.
        missed: Missed,
    },
}

/// A new block of parity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Parity {
    /// The fragment.
    pub(super) fragment: u8,
    /// The block of the fragment.
    pub(super) block: u64,
    /// Its checksum.
    pub(super) checksum: u32,
}

/// Records on their way into the log, with their blocks.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    blocks: Vec<IoBuf>,
    count: usize,
    /// Values that the log has already, each with its bytes. They are its only records.
    pub(super) moves: Vec<(Live, Option<IoBuf>)>,
}

/// The place of a batch among all: batches count as far as each names the one before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Order {
    /// Higher than that of any batch before, whether that counts or not.
    pub(super) sequence: u64,
    /// The last batch that counts before this one.
    pub(super) previous: u64,
    /// Batches up to this one were durable when this one was made.
    pub(super) durable: u64,
}

/// The records of a batch that was read.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Head {
    pub(super) order: Order,
    pub(super) records: Vec<Record>,
    /// Where its blocks begin, in bytes from its beginning.
    pub(super) blocks_at: u64,
    /// How many blocks it has.
    pub(super) blocks: u64,
}

/// The first bytes of a batch, which say how long its records are.
pub(super) const PROBE: usize = BLOCK as usize;

impl Batch {
    /// Adds a record with its blocks, whole ones.
    pub(super) fn push(&mut self, record: Record, blocks: impl IntoIterator<Item = IoBuf>) {
        self.records.push(record);
        for bytes in blocks {
            self.count += bytes.len() / BLOCK as usize;
            self.blocks.push(bytes);
        }
    }

    /// Values that the log has already, each with its bytes, and none for zeros. They become records when it is known which of them
    /// are still the newest.
    pub(super) fn of_moves(moves: Vec<(Live, Option<IoBuf>)>) -> Self {
        Self { moves, ..Self::default() }
    }

    /// Leaves out values that are not the newest any more, and makes records of the others.
    pub(super) fn keep_moves(&mut self, is_newest: impl Fn(Live) -> bool) {
        let mut moves = std::mem::take(&mut self.moves);
        // An earlier attempt was given up.
        *self = Self::default();
        moves.retain(|&(live, _)| is_newest(live));
        for (live, bytes) in &moves {
            let Live { object, block, entry } = *live;
            match (entry.value, self.records.last_mut()) {
                (
                    Value::Stored(place),
                    Some(Record::Blocks { object: of, block: first, checksums }),
                ) if *of == object && block == *first + checksums.len() as u64 => {
                    checksums.push(place.checksum);
                }
                (Value::Zeros, Some(Record::Zeros { object: of, block: first, count }))
                    if *of == object && block == *first + *count =>
                {
                    *count += 1;
                }
                (Value::Stored(place), _) => {
                    let checksums = vec![place.checksum];
                    self.records.push(Record::Blocks { object, block, checksums });
                }
                (Value::Zeros, _) => self.records.push(Record::Zeros { object, block, count: 1 }),
            }
            self.count += usize::from(bytes.is_some());
            self.blocks.extend(bytes.clone());
        }
        self.moves = moves;
    }

    /// Whether more records may join it.
    pub(super) fn takes_more(&self, most: usize) -> bool {
        self.moves.is_empty() && self.len() < most
    }

    /// The bytes of the blocks so far.
    const fn len(&self) -> usize {
        self.count * BLOCK as usize
    }

    /// Its bytes in a file, and where its blocks begin in them.
    pub(super) fn encode(&self, file: u64, order: Order) -> (IoBuf, u64) {
        let mut head = Vec::with_capacity(64 * self.records.len());
        self.records.iter().for_each(|record| record.encode(&mut head));
        let mut fixed = Vec::with_capacity(FIXED);
        fixed.extend_from_slice(&MAGIC);
        for value in [order.sequence, order.previous, order.durable] {
            fixed.extend_from_slice(&value.to_le_bytes());
        }
        fixed.extend_from_slice(&(head.len() as u32).to_le_bytes());
        fixed.extend_from_slice(&(self.count as u32).to_le_bytes());
        let check = check(file, &fixed, &head);
        fixed.extend_from_slice(&check.to_le_bytes());
        fixed.resize(FIXED, 0);
        let blocks_at = (FIXED + head.len()).next_multiple_of(BLOCK as usize);
        let mut all = IoBufMut::with_capacity(blocks_at + self.len());
        all.extend_from_slice(&fixed);
        all.extend_from_slice(&head);
        all.resize(blocks_at);
        self.blocks.iter().for_each(|bytes| all.extend_from_slice(bytes));
        (all.freeze(), blocks_at as u64)
    }
}

/// Whether a later version wrote the batch that begins with `probe`.
pub(super) fn is_later(probe: &[u8]) -> bool {
    let (name, version) = MAGIC.split_at(7);
    probe
        .get(..8)
        .is_some_and(|begin| begin.starts_with(name) && begin[7] > version[0] && begin[7] <= b'9')
}

/// How many bytes of `file` the records of the batch that begins with `probe` end at; `None` if no batch begins so.
pub(super) fn head_len(probe: &[u8]) -> Option<usize> {
    let begins = probe.get(..MAGIC.len())? == MAGIC;
    let len = Fields(probe.get(32..)?).u32()? as usize;
    (begins && len <= HEAD_MAX).then_some(FIXED + len)
}

impl Head {
    /// The records of a batch; `None` if these are not its bytes.
    pub(super) fn decode(bytes: &[u8], file: u64) -> Option<Self> {
        let end = head_len(bytes)?;
        let (fixed, records) = (bytes.get(..CHECK_AT)?, bytes.get(FIXED..end)?);
        let mut fields = Fields(&fixed[MAGIC.len()..]);
        let order =
            Order { sequence: fields.u64()?, previous: fields.u64()?, durable: fields.u64()? };
        fields.u32()?;
        let (blocks, expected) = (fields.u32()?, Fields(&bytes[CHECK_AT..]).u32()?);
        if blocks > BLOCKS_MAX || check(file, fixed, records) != expected {
            return None;
        }
        let mut fields = Fields(records);
        let mut all = Vec::new();
        while !fields.0.is_empty() {
            all.push(Record::decode(&mut fields)?);
        }
        let has: u64 = all.iter().map(Record::blocks).sum();
        let blocks_at = (end as u64).next_multiple_of(BLOCK);
        (has == u64::from(blocks)).then_some(Self { order, records: all, blocks_at, blocks: has })
    }

    /// The bytes of the whole batch.
    pub(super) const fn len(&self) -> u64 {
        self.blocks_at + self.blocks * BLOCK
    }
}

impl Record {
    /// How many blocks the batch has for it.
    pub(super) fn blocks(&self) -> u64 {
        match self {
            Self::Blocks { checksums, .. } => checksums.len() as u64,
            Self::Row { parity, .. } => parity.len() as u64,
            Self::Zeros { .. } => 0,
        }
    }

    /// The checksums of these blocks.
    pub(super) fn checksums(&self) -> Vec<u32> {
        match self {
            Self::Blocks { checksums, .. } => checksums.clone(),
            Self::Row { parity, .. } => parity.iter().map(|parity| parity.checksum).collect(),
            Self::Zeros { .. } => Vec::new(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let u64s = |out: &mut Vec<u8>, all: &[u64]| {
            all.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        };
        let u32 = |out: &mut Vec<u8>, value: u32| out.extend_from_slice(&value.to_le_bytes());
        match self {
            Self::Blocks { object, block, checksums } => {
                out.push(1);
                u64s(out, &[object.0, *block]);
                u32(out, checksums.len() as u32);
                checksums.iter().for_each(|&checksum| u32(out, checksum));
            }
            Self::Zeros { object, block, count } => {
                out.push(2);
                u64s(out, &[object.0, *block, *count]);
            }
            Self::Row { change, object, row, data, parity, missed } => {
                out.push(if missed.is_some() { 4 } else { 3 });
                u64s(out, &[*change, object.0, *row]);
                u32(out, data.len() as u32);
                for (block, value) in data {
                    u64s(out, &[*block]);
                    match value {
                        Value::Zeros => out.push(0),
                        Value::Stored(Place { file, at, checksum }) => {
                            out.push(1);
                            u64s(out, &[*file, *at]);
                            u32(out, *checksum);
                        }
                    }
                }
                u32(out, parity.len() as u32);
                for Parity { fragment, block, checksum } in parity {
                    out.push(*fragment);
                    u64s(out, &[*block]);
                    u32(out, *checksum);
                }
                if let Some(missed) = missed {
                    u32(out, missed.len() as u32);
                    u64s(out, missed);
                }
            }
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(match fields.u8()? {
            1 => {
                let (object, block) = (ObjectId(fields.u64()?), fields.u64()?);
                let count = fields.count(4)?;
                let checksums = (0..count).map(|_| fields.u32()).collect::<Option<_>>()?;
                Self::Blocks { object, block, checksums }
            }
            2 => {
                let (object, block) = (ObjectId(fields.u64()?), fields.u64()?);
                Self::Zeros { object, block, count: fields.u64()? }
            }
            kind @ (3 | 4) => {
                let change = fields.u64()?;
                let (object, row) = (ObjectId(fields.u64()?), fields.u64()?);
                let count = fields.count(9)?;
                let data = (0..count).map(|_| Some((fields.u64()?, fields.value()?)));
                let data = data.collect::<Option<_>>()?;
                let count = fields.count(13)?;
                let parity = (0..count).map(|_| {
                    let (fragment, block) = (fields.u8()?, fields.u64()?);
                    Some(Parity { fragment, block, checksum: fields.u32()? })
                });
                let parity = parity.collect::<Option<_>>()?;
                let mut missed = None;
                if kind == 4 {
                    let count = fields.count(8)?;
                    missed = Some((0..count).map(|_| fields.u64()).collect::<Option<_>>()?);
                }
                Self::Row { change, object, row, data, parity, missed }
            }
            _ => return None,
        })
    }
}

/// The CRC-32C of a file's number and of the head of a batch.
fn check(file: u64, fixed: &[u8], records: &[u8]) -> u32 {
    let check = crc32c::crc32c(&file.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(check, fixed), records)
}

/// Bytes that are decoded from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of items of at least `size` bytes each, which are there.
    fn count(&mut self, size: usize) -> Option<usize> {
        let count = self.u32()? as usize;
        (count.checked_mul(size)? <= self.0.len()).then_some(count)
    }

    fn value(&mut self) -> Option<Value> {
        Some(match self.u8()? {
            0 => Value::Zeros,
            1 => Value::Stored(Place { file: self.u64()?, at: self.u64()?, checksum: self.u32()? }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let stored = any::<(u64, u64, u32)>()
            .prop_map(|(file, at, checksum)| Value::Stored(Place { file, at, checksum }));
        prop_oneof![Just(Value::Zeros), stored]
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let object = any::<u64>().prop_map(ObjectId);
        let parity = any::<(u8, u64, u32)>().prop_map(|(fragment, block, checksum)| Parity {
            fragment,
            block,
            checksum,
        });
        prop_oneof![
            (object.clone(), any::<u64>(), prop::collection::vec(any::<u32>(), 0..5))
                .prop_map(|(object, block, checksums)| Record::Blocks { object, block, checksums }),
            (object.clone(), any::<u64>(), any::<u64>())
                .prop_map(|(object, block, count)| Record::Zeros { object, block, count }),
            (
                any::<u64>(),
                object,
                any::<u64>(),
                prop::collection::vec((any::<u64>(), any_value()), 0..5),
                prop::collection::vec(parity, 0..5),
                prop::option::of(prop::collection::vec(any::<u64>(), 0..3))
            )
                .prop_map(|(change, object, row, data, parity, missed)| Record::Row {
                    change,
                    object,
                    row,
                    data,
                    parity,
                    missed
                }),
        ]
    }

    fn batch(records: &[Record]) -> Batch {
        let mut batch = Batch::default();
        for record in records {
            let blocks = (0..record.blocks()).map(|_| IoBufMut::zeroed(BLOCK as usize).freeze());
            batch.push(record.clone(), blocks.collect::<Vec<_>>());
        }
        batch
    }

    const ORDER: Order = Order { sequence: 9, previous: 7, durable: 3 };

    proptest! {
        #[test]
        fn batches_are_read_back(
            records in prop::collection::vec(any_record(), 1..6),
            file: u64,
            (sequence, previous, durable) in any::<(u64, u64, u64)>(),
        ) {
            let order = Order { sequence, previous, durable };
            let (bytes, blocks_at) = batch(&records).encode(file, order);
            let head = Head::decode(&bytes, file).unwrap();
            prop_assert_eq!((&head.records, head.order), (&records, order));
            prop_assert_eq!((head.blocks_at, head.len()), (blocks_at, bytes.len() as u64));
            prop_assert_eq!(Head::decode(&bytes, file ^ 1), None, "it is another file's");
        }

        #[test]
        fn bytes_that_changed_are_refused(
            records in prop::collection::vec(any_record(), 1..4),
            at: prop::sample::Index,
            bit in 0..8u8,
        ) {
            let mut bytes = batch(&records).encode(1, ORDER).0.to_vec();
            let at = at.index(head_len(&bytes).unwrap());
            // The bytes between the check and the records say nothing.
            prop_assume!(!(CHECK_AT + 4..FIXED).contains(&at));
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(Head::decode(&bytes, 1), None);
        }

        #[test]
        fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let all = [&MAGIC[..], &bytes].concat();
            prop_assert_eq!(Head::decode(&all, 0), None);
        }
    }
}
