//! Bytes of the log store's objects; `docs/format/log.md` has them field by field.
//!
//! Everything here is a function of bytes. The bytes read may be torn, corrupt, of another object or forged: the answer
//! is a value or a reason, never a panic.

use std::ops::Range;

use policy::merge::{Death, Written};
use volume::buf::PAGE;

use super::FileId;

/// The longest key, in bytes.
pub const KEY_MAX: usize = 255;
/// The longest value, in bytes.
pub const VALUE_MAX: usize = 64 << 20;

/// The length of a file's header.
pub(super) const HEADER_LEN: usize = 64;
/// The length of a record's head.
pub(super) const HEAD_LEN: usize = 40;
/// Records begin at multiples of this.
pub(super) const ALIGN: usize = 8;
/// The length of each of the two slots of the store's own object.
pub(super) const SLOT_LEN: usize = PAGE;
/// The length of a hint's header.
pub(super) const HINT_HEADER_LEN: usize = 48;

const FILE_MAGIC: &[u8; 8] = b"PlimSegm";
const HINT_MAGIC: &[u8; 8] = b"PlimHint";
const STORE_MAGIC: &[u8; 8] = b"PlimLogS";
const RECORD_MAGIC: &[u8; 4] = b"PlRc";
const VERSION: u32 = 1;

/// A fuzzer seldom guesses a checksum: without this it would not reach the code behind them.
const TRUSTING: bool = cfg!(feature = "fuzz");

const ENTRY_LEN: usize = 18;
const CONTINUES: u8 = 1;
const CONTINUED: u8 = 2;
const WHOLE: u8 = 1;

/// Which store an object belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct StoreId(pub [u8; 16]);

/// Mixed into every checksum of a file, so that bytes of another file never pass for its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Seal(u64);

impl Seal {
    pub(super) fn of(store: StoreId, file: FileId) -> Self {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&store.0);
        bytes[16..].copy_from_slice(&file.0.to_le_bytes());
        Self(xxhash_rust::xxh3::xxh3_64(&bytes))
    }

    /// The checksum of `parts`, behind the seal.
    fn crc(self, parts: &[&[u8]]) -> u32 {
        let start = crc32c::crc32c(&self.0.to_le_bytes());
        parts.iter().fold(start, |crc, part| crc32c::crc32c_append(crc, part))
    }
}

/// Why bytes are not valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bad {
    /// It ends too early.
    Short,
    /// It does not begin as it should.
    Magic,
    /// It is of a later version of the program.
    Version,
    /// Zeros where something was.
    Empty,
    /// It belongs to another store or file.
    Foreign,
    /// A header's checksum does not fit.
    Header,
    /// The checksum of a record's head and key does not fit.
    Head,
    /// The checksum of a value does not fit.
    Value,
    /// The checksum of a hint does not fit.
    Hint,
    /// No volume gives its bytes.
    Unreadable,
}

impl Bad {
    /// In words, for messages.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Short => "it ends too early",
            Self::Magic => "it does not begin with the expected bytes",
            Self::Version => "it is of a later version of the program",
            Self::Empty => "there are zeros where something was",
            Self::Foreign => "it belongs to another store or file",
            Self::Header => "the checksum of its header does not match",
            Self::Head => "the checksum of a record's head and key does not match",
            Self::Value => "the checksum of a value does not match",
            Self::Hint => "the checksum of the hint does not match",
            Self::Unreadable => "it cannot be read",
        }
    }
}

/// The keys that a file may hold, by hash.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Layout {
    /// The number of partitions ...
    pub(super) partitions: u16,
    /// ... and the one of this file.
    pub(super) partition: u16,
}

impl Layout {
    /// A file that may hold any key: assumed of one whose header is damaged.
    pub(super) const ANY: Self = Self { partitions: 1, partition: 0 };

    /// Whether a file of this layout may hold a key of this hash.
    pub(super) fn holds(self, hash: u64) -> bool {
        partition(hash, self.partitions) == self.partition
    }
}

/// The hash that assigns keys to partitions.
pub(super) fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Which of `partitions` a key of this hash belongs to.
pub(super) fn partition(hash: u64, partitions: u16) -> u16 {
    // A multiplication uses the high bits: it is fairer than a remainder, and cheaper.
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u16
}

/// The header of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) store: StoreId,
    pub(super) file: FileId,
    pub(super) layout: Layout,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(FILE_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store.0);
        bytes[32..40].copy_from_slice(&self.file.0.to_le_bytes());
        bytes[40..42].copy_from_slice(&self.layout.partition.to_le_bytes());
        bytes[42..44].copy_from_slice(&self.layout.partitions.to_le_bytes());
        let crc = crc_around(&bytes, 12);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Bad> {
        let bytes = bytes.get(..HEADER_LEN).ok_or(Bad::Short)?;
        check_begin(bytes, FILE_MAGIC)?;
        let layout = Layout { partition: u16_at(bytes, 40), partitions: u16_at(bytes, 42) };
        if layout.partition >= layout.partitions {
            return Err(Bad::Header);
        }
        let store = StoreId(bytes[16..32].try_into().expect("16 bytes"));
        Ok(Self { store, file: FileId(u64_at(bytes, 32)), layout })
    }
}

/// What a record does to its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Put,
    Tombstone,
}

/// A record without its key and value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    pub(super) sequence: u64,
    /// The sequence at which it is certain to be dead; 0 if its writer gave none.
    pub(super) dies: u64,
    /// The number of bytes of the file known to be durable when the record was made.
    pub(super) durable: u32,
    pub(super) kind: Kind,
    /// The record before it in the file belongs to the same batch.
    pub(super) continued: bool,
    /// The next one does, too.
    pub(super) continues: bool,
}

/// Where the parts of a record are, relative to its start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Parsed {
    pub(super) head: Head,
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    value_crc: u32,
    /// To the start of the next record, whose alignment is included.
    pub(super) len: usize,
}

/// How long a record is, padding included.
pub(super) const fn record_len(key: usize, value: usize) -> usize {
    (HEAD_LEN + key + value).next_multiple_of(ALIGN)
}

/// Appends a record: `put` gets `record_len` bytes in all.
pub(super) fn encode_record(
    seal: Seal,
    head: &Head,
    key: &[u8],
    value: &[u8],
    mut put: impl FnMut(&[u8]),
) {
    assert!((1..=KEY_MAX).contains(&key.len()) && value.len() <= VALUE_MAX);
    let mut bytes = [0; HEAD_LEN];
    bytes[..4].copy_from_slice(RECORD_MAGIC);
    bytes[8..16].copy_from_slice(&head.sequence.to_le_bytes());
    bytes[16..24].copy_from_slice(&head.dies.to_le_bytes());
    bytes[24..28].copy_from_slice(&head.durable.to_le_bytes());
    bytes[28..32].copy_from_slice(&(value.len() as u32).to_le_bytes());
    bytes[32..36].copy_from_slice(&crc32c::crc32c(value).to_le_bytes());
    bytes[36] = match head.kind {
        Kind::Put => 1,
        Kind::Tombstone => 2,
    };
    bytes[37] = if head.continues { CONTINUES } else { 0 };
    bytes[37] |= if head.continued { CONTINUED } else { 0 };
    bytes[38] = key.len() as u8;
    let crc = seal.crc(&[&bytes[8..], key]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    put(&bytes);
    put(key);
    put(value);
    let end = HEAD_LEN + key.len() + value.len();
    put(&[0; ALIGN][..end.next_multiple_of(ALIGN) - end]);
}

/// What is found where a record may begin.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Found {
    /// A record whose head and key are right; its value is not looked at yet.
    Record(Parsed),
    /// Zeros: nothing was put here.
    Nothing,
    /// More bytes are needed: this many from the start.
    More(usize),
    /// Not a valid record.
    Bad(Bad),
}

/// Looks for a record at the start of `bytes`, which may be a part of what is stored.
pub(super) fn find_record(seal: Seal, bytes: &[u8]) -> Found {
    if bytes.len() < HEAD_LEN {
        return Found::More(HEAD_LEN);
    }
    if bytes[..4] == [0; 4] {
        return if bytes[..HEAD_LEN].iter().all(|&b| b == 0) {
            Found::Nothing
        } else {
            Found::Bad(Bad::Head)
        };
    }
    if bytes[..4] != *RECORD_MAGIC {
        return Found::Bad(Bad::Magic);
    }
    let key = HEAD_LEN..HEAD_LEN + usize::from(bytes[38]);
    let value_len = u32_at(bytes, 28) as usize;
    if key.is_empty() || value_len > VALUE_MAX {
        return Found::Bad(Bad::Head);
    }
    if bytes.len() < key.end {
        return Found::More(key.end);
    }
    if seal.crc(&[&bytes[8..HEAD_LEN], &bytes[key.clone()]]) != u32_at(bytes, 4) && !TRUSTING {
        return Found::Bad(Bad::Head);
    }
    let kind = match bytes[36] {
        1 => Kind::Put,
        2 => Kind::Tombstone,
        _ => return Found::Bad(Bad::Version),
    };
    let head = Head {
        sequence: u64_at(bytes, 8),
        dies: u64_at(bytes, 16),
        durable: u32_at(bytes, 24),
        kind,
        continued: bytes[37] & CONTINUED != 0,
        continues: bytes[37] & CONTINUES != 0,
    };
    let len = record_len(key.len(), value_len);
    let value = key.end..key.end + value_len;
    Found::Record(Parsed { head, key, value, value_crc: u32_at(bytes, 32), len })
}

/// The first multiple of [`ALIGN`] from `from` on where a record may begin.
pub(super) fn next_magic(bytes: &[u8], from: usize) -> Option<usize> {
    (from.next_multiple_of(ALIGN)..bytes.len().saturating_sub(3))
        .step_by(ALIGN)
        .find(|&at| bytes[at..at + 4] == *RECORD_MAGIC)
}

impl Parsed {
    /// Checks the value, given all of the record.
    pub(super) fn check_value(&self, record: &[u8]) -> Result<(), Bad> {
        let value = record.get(self.value.clone()).ok_or(Bad::Short)?;
        if crc32c::crc32c(value) == self.value_crc || TRUSTING { Ok(()) } else { Err(Bad::Value) }
    }
}

/// A hint without its entries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct HintHeader {
    /// The number of bytes of the file that it covers.
    pub(super) covers: u32,
    /// The file is complete: bytes behind these do not count.
    pub(super) whole: bool,
    pub(super) layout: Layout,
    pub(super) records: u32,
    /// When all of its records are dead.
    pub(super) death: Death,
}

/// The entry of a record in a hint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry<'a> {
    pub(super) sequence: u64,
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
}

/// Appends an entry of a hint.
pub(super) fn encode_entry(entry: &Entry<'_>, to: &mut Vec<u8>) {
    to.extend_from_slice(&entry.sequence.to_le_bytes());
    to.extend_from_slice(&entry.offset.to_le_bytes());
    to.extend_from_slice(&entry.len.to_le_bytes());
    to.push(match entry.kind {
        Kind::Put => 1,
        Kind::Tombstone => 2,
    });
    to.push(entry.key.len() as u8);
    to.extend_from_slice(entry.key);
}

/// The entries of a hint, one after the other.
pub(super) struct Entries<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    /// Ends at bytes that are no entry; [`decode_hint`] makes sure that there are none.
    fn next(&mut self) -> Option<Entry<'a>> {
        let (fixed, rest) = self.0.split_at_checked(ENTRY_LEN)?;
        let kind = match fixed[16] {
            1 => Kind::Put,
            2 => Kind::Tombstone,
            _ => return None,
        };
        let (key, rest) = rest.split_at_checked(usize::from(fixed[17]))?;
        if key.is_empty() {
            return None;
        }
        self.0 = rest;
        let (offset, len) = (u32_at(fixed, 8), u32_at(fixed, 12));
        Some(Entry { sequence: u64_at(fixed, 0), offset, len, kind, key })
    }
}

/// A whole hint.
pub(super) fn encode_hint(seal: Seal, header: &HintHeader, entries: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HINT_HEADER_LEN];
    bytes[..8].copy_from_slice(HINT_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..20].copy_from_slice(&header.covers.to_le_bytes());
    bytes[20..24].copy_from_slice(&header.records.to_le_bytes());
    bytes[24..32].copy_from_slice(&(entries.len() as u64).to_le_bytes());
    bytes[32..34].copy_from_slice(&header.layout.partition.to_le_bytes());
    bytes[34..36].copy_from_slice(&header.layout.partitions.to_le_bytes());
    bytes[36] = if header.whole { WHOLE } else { 0 };
    let (certainty, death) = match header.death {
        Death::Unknown => (0, 0),
        Death::At(when) => (1, when.0),
        Death::After(bytes) => (2, bytes),
    };
    bytes[37] = certainty;
    bytes[40..48].copy_from_slice(&death.to_le_bytes());
    bytes.extend_from_slice(entries);
    let crc = seal.crc(&[&bytes[8..12], &bytes[16..]]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads a hint of the file that `seal` belongs to. Ignores zeros behind its end.
pub(super) fn decode_hint(seal: Seal, bytes: &[u8]) -> Result<(HintHeader, Entries<'_>), Bad> {
    if bytes.len() < HINT_HEADER_LEN {
        return Err(Bad::Short);
    }
    if bytes[..8] != *HINT_MAGIC {
        return Err(Bad::Magic);
    }
    let entries_len = usize::try_from(u64_at(bytes, 24)).map_err(|_| Bad::Short)?;
    let end = HINT_HEADER_LEN.checked_add(entries_len).ok_or(Bad::Short)?;
    let body = bytes.get(HINT_HEADER_LEN..end).ok_or(Bad::Short)?;
    if seal.crc(&[&bytes[8..12], &bytes[16..end]]) != u32_at(bytes, 12) && !TRUSTING {
        return Err(Bad::Hint);
    }
    if u32_at(bytes, 8) != VERSION {
        return Err(Bad::Version);
    }
    let header = HintHeader {
        covers: u32_at(bytes, 16),
        records: u32_at(bytes, 20),
        whole: bytes[36] & WHOLE != 0,
        layout: Layout { partition: u16_at(bytes, 32), partitions: u16_at(bytes, 34) },
        death: match bytes[37] {
            1 => Death::At(Written(u64_at(bytes, 40))),
            2 => Death::After(u64_at(bytes, 40)),
            _ => Death::Unknown,
        },
    };
    // A merge relies on this order, and on entries that do not overlap.
    let mut read = HEADER_LEN as u64;
    let inside = |entry: &Entry<'_>| {
        let (start, len) = (u64::from(entry.offset), u64::from(entry.len));
        let follows = start >= read && len >= (HEAD_LEN + entry.key.len()) as u64;
        read = start + len;
        follows && read <= u64::from(header.covers)
    };
    let mut entries = Entries(body);
    let count = entries.by_ref().take_while(inside).count();
    if count != header.records as usize || !entries.0.is_empty() {
        return Err(Bad::Hint);
    }
    if header.layout.partition >= header.layout.partitions {
        return Err(Bad::Hint);
    }
    Ok((header, Entries(body)))
}

/// The lease of the store, in its own object on each volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Slot {
    pub(super) store: StoreId,
    /// Of the two slots, the one with the larger generation counts.
    pub(super) generation: u64,
    /// No record has this sequence or a later one.
    pub(super) sequence_end: u64,
    /// No file has this id or a later one.
    pub(super) file_end: u64,
    /// How many volumes the store is on; 0 while it is created.
    pub(super) volumes: u16,
}

impl Slot {
    pub(super) fn encode(&self) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        bytes[..8].copy_from_slice(STORE_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store.0);
        bytes[32..40].copy_from_slice(&self.generation.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.sequence_end.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.file_end.to_le_bytes());
        bytes[56..58].copy_from_slice(&self.volumes.to_le_bytes());
        let crc = crc_around(&bytes, 12);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Bad> {
        let bytes = bytes.get(..SLOT_LEN).ok_or(Bad::Short)?;
        check_begin(bytes, STORE_MAGIC)?;
        Ok(Self {
            store: StoreId(bytes[16..32].try_into().expect("16 bytes")),
            generation: u64_at(bytes, 32),
            sequence_end: u64_at(bytes, 40),
            file_end: u64_at(bytes, 48),
            volumes: u16_at(bytes, 56),
        })
    }
}

/// Checks magic, checksum and version of a complete structure.
fn check_begin(bytes: &[u8], magic: &[u8; 8]) -> Result<(), Bad> {
    if bytes[..8] != *magic {
        return Err(Bad::Magic);
    }
    if crc_around(bytes, 12) != u32_at(bytes, 12) && !TRUSTING {
        return Err(Bad::Header);
    }
    if u32_at(bytes, 8) == VERSION { Ok(()) } else { Err(Bad::Version) }
}

/// The checksum of all but the four bytes at `at`, which hold it.
fn crc_around(bytes: &[u8], at: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &bytes[at + 4..])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests;
