//! Reading a file without a hint, or behind what its hint covers, from front to back.
//!
//! After a crash the end of a file is arbitrary: its pages were kept, lost or torn, in any order. So a scan reads to
//! the end of the object: behind invalid bytes it looks for the next record, and every whole record counts. Of two
//! records of a key, the one with the larger sequence is newer.
//!
//! Invalid bytes are a *torn tail*, which was never durable, or *damage*, which is reported. Every record says how much
//! of its file was durable when it was made: invalid bytes before the largest of these positions were good once.
//!
//! Before invalid bytes are final, the other copies of the file are asked for whole records in their place: one copy of a
//! pool may be damaged where another is not.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use policy::merge::{Death, Written};
use policy::purpose::Io;
use volume::buf::PAGE;
use volume::{Check, ErrorKind, IoBufMut, Object, Result};

use super::format::{
    self, Bad, Entry, Found, HEADER_LEN, Head, Header, HintHeader, Kind, Parsed, Seal, encode_entry,
};
use super::index::Place;

/// Bytes read at a time.
const WINDOW: usize = 4 << 20;

/// Bytes that another copy gave for invalid ones.
struct Patch {
    at: u64,
    bytes: IoBufMut,
}

/// The findings of a scan.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// The entries of its hint, in the order of the file.
    pub(super) entries: Vec<u8>,
    pub(super) records: u32,
    /// The end of the last record.
    pub(super) end: u32,
    /// Bytes that were good once and are damaged now.
    pub(super) damage: Vec<(u64, Bad)>,
    /// Where a crash cut the file.
    pub(super) torn: Option<u64>,
    /// How many bytes of the file are known to have been durable.
    pub(super) durable: u64,
    /// Larger than every sequence seen, those of dropped records included.
    pub(super) sequence_end: u64,
    /// When all of its records are dead; `None` if it has none.
    pub(super) death: Option<Death>,
}

/// A part of a file, in memory.
struct Window<'a> {
    object: &'a dyn Object,
    io: Io,
    patches: &'a [Patch],
    len: u64,
    start: u64,
    bytes: IoBufMut,
}

impl Window<'_> {
    /// At least `len` bytes from `at` on, or up to the end.
    async fn at_least(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let end = (at + len as u64).min(self.len);
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            self.start = at - at % PAGE as u64;
            let wanted = WINDOW.max((end - self.start) as usize);
            let wanted = wanted.min((self.len - self.start) as usize);
            self.bytes = self.object.read_at(self.start, IoBufMut::zeroed(wanted), self.io).await?;
            self.patches.iter().for_each(|patch| patch.apply(self.start, &mut self.bytes));
        }
        let from = ((at - self.start) as usize).min(self.bytes.len());
        Ok(&self.bytes[from..])
    }
}

/// The state of a scan.
struct Reading {
    scanned: Scanned,
    durable: u64,
    /// Ranges without a valid record.
    suspects: Vec<Suspect>,
    /// Records of a batch that is not complete yet.
    open: Batch,
    /// Incomplete batches.
    parts: Vec<Batch>,
}

/// A range without a valid record.
struct Suspect {
    range: Range<u64>,
    bad: Bad,
}

#[derive(Default)]
struct Batch {
    entries: Vec<u8>,
    records: u32,
    /// Where the next record of the batch must begin, and its sequence.
    next: (u64, u64),
}

/// Reads the records of a file from `from` on, and checks their values. `durable` bytes of it are known to have been
/// durable; its records may raise that. Where they are invalid, it asks other copies of the file.
///
/// # Errors
/// Those of the volume.
pub(super) async fn scan(
    object: &dyn Object,
    seal: Seal,
    from: u64,
    durable: u64,
    io: Io,
) -> Result<Scanned> {
    let mut patches = Vec::new();
    let mut asked = BTreeSet::new();
    loop {
        let reading = read(object, seal, from, durable, io, &patches).await?;
        let found = patches.len();
        for Suspect { range, .. } in &reading.suspects {
            if asked.insert(range.start) {
                patches.extend(ask_again(object, seal, range.clone(), io).await?);
            }
        }
        if patches.len() == found {
            return Ok(reading.end());
        }
    }
}

/// Whole records in place of invalid bytes, from another copy of the file; `None` if none has any.
///
/// # Errors
/// `Busy`: try again later.
async fn ask_again(
    object: &dyn Object,
    seal: Seal,
    range: Range<u64>,
    io: Io,
) -> Result<Option<Patch>> {
    let at = range.start;
    let into = IoBufMut::zeroed((range.end - at) as usize);
    let check: Check = Arc::new(move |bytes| are_records(seal, at, bytes));
    match object.read_again(at, into, io, check).await {
        Ok(bytes) => Ok(Some(Patch { at, bytes })),
        Err(error) if error.kind() == ErrorKind::Busy => Err(error),
        // A copy that is away may have the records. Until it is back, they count as damaged.
        Err(_) => Ok(None),
    }
}

/// Whether `bytes`, which begin at `start` of a file, are whole records with their padding, and nothing else.
fn are_records(seal: Seal, start: u64, bytes: &[u8]) -> bool {
    let (mut at, mut records) = (0, 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let page_rest = PAGE - ((start + at as u64) % PAGE as u64) as usize;
        let is_padding = rest.iter().take(page_rest).all(|&byte| byte == 0);
        match format::find_record(seal, rest) {
            _ if is_padding => at += page_rest,
            Found::Record(parsed) if parsed.check_value(rest).is_ok() => {
                records += 1;
                at += parsed.len;
            }
            _ => return false,
        }
    }
    records > 0
}

/// One pass of [`scan`], with `patches` in place of the file's own bytes.
async fn read(
    object: &dyn Object,
    seal: Seal,
    from: u64,
    durable: u64,
    io: Io,
    patches: &[Patch],
) -> Result<Reading> {
    let len = object.len().min(u64::from(u32::MAX));
    let mut window = Window { object, io, patches, len, start: 0, bytes: IoBufMut::zeroed(0) };
    let mut reading = Reading::new(durable);
    let mut at = from;
    let mut lost = false;
    while at < len {
        let bytes = window.at_least(at, format::HEAD_LEN).await?;
        let page_rest = PAGE - (at % PAGE as u64) as usize;
        if page_rest < format::HEAD_LEN && bytes.iter().take(page_rest).all(|&byte| byte == 0) {
            // Padding that is shorter than a head.
            at += page_rest as u64;
            continue;
        }
        let found = match format::find_record(seal, bytes) {
            Found::More(more) => format::find_record(seal, window.at_least(at, more).await?),
            found => found,
        };
        match found {
            Found::Nothing => {
                let page_end = (at + 1).next_multiple_of(PAGE as u64);
                // Zeros up to the next page are padding; a page of zeros was never written, or lost.
                if at.is_multiple_of(PAGE as u64) {
                    reading.suspect(&mut lost, at..page_end.min(len), Bad::Empty);
                }
                at = page_end;
            }
            Found::Record(parsed) => {
                lost = false;
                let record = window.at_least(at, parsed.len).await?;
                match parsed.check_value(record) {
                    Ok(()) => reading.record(at, &parsed, &record[parsed.key.clone()]),
                    Err(bad) => {
                        let key = parsed.key.clone();
                        let range = at..(at + parsed.len as u64).min(len);
                        reading.suspects.push(Suspect { range, bad });
                        reading.bad_value(at, &parsed, &record[key]);
                    }
                }
                at += parsed.len as u64;
            }
            Found::More(_) | Found::Bad(_) => {
                let bad = if let Found::Bad(bad) = found { bad } else { Bad::Short };
                let bytes = window.at_least(at, format::HEAD_LEN).await?;
                let next = match format::next_magic(bytes, format::ALIGN) {
                    Some(next) => at + next as u64,
                    None => at + (bytes.len() as u64 / 8 * 8).max(8),
                };
                reading.suspect(&mut lost, at..next.min(len), bad);
                at = next;
            }
        }
    }
    Ok(reading)
}

impl Patch {
    /// Writes its bytes over those of a window that begins at `start`.
    fn apply(&self, start: u64, window: &mut [u8]) {
        let from = self.at.max(start);
        let end = (self.at + self.bytes.len() as u64).min(start + window.len() as u64);
        if from < end {
            let bytes = &self.bytes[(from - self.at) as usize..(end - self.at) as usize];
            window[(from - start) as usize..(end - start) as usize].copy_from_slice(bytes);
        }
    }
}

impl Reading {
    fn new(durable: u64) -> Self {
        Self {
            scanned: Scanned::default(),
            durable,
            suspects: Vec::new(),
            open: Batch::default(),
            parts: Vec::new(),
        }
    }

    /// Records an invalid range. Adjacent ones are one, and count as the first of them.
    fn suspect(&mut self, lost: &mut bool, range: Range<u64>, bad: Bad) {
        let follows = std::mem::replace(lost, true);
        match self.suspects.last_mut().filter(|_| follows) {
            Some(first) => first.range.end = range.end,
            None => self.suspects.push(Suspect { range, bad }),
        }
    }

    fn saw(&mut self, parsed: &Parsed) {
        let end = parsed.head.sequence.saturating_add(parsed.len as u64);
        self.scanned.sequence_end = self.scanned.sequence_end.max(end);
        self.durable = self.durable.max(u64::from(parsed.head.durable));
    }

    fn record(&mut self, at: u64, parsed: &Parsed, key: &[u8]) {
        self.saw(parsed);
        let Head { sequence, continued, continues, dies, kind, .. } = parsed.head;
        if kind == Kind::Put {
            let death = if dies == 0 { Death::Unknown } else { Death::At(Written(dies)) };
            let joined = self.scanned.death.map_or(death, |all| all.join(death));
            self.scanned.death = Some(joined);
        }
        let joins = continued && self.open.records > 0 && self.open.next == (at, sequence);
        if !joins {
            self.part();
        }
        let entry = Entry { sequence, offset: at as u32, len: parsed.len as u32, kind, key };
        encode_entry(&entry, &mut self.open.entries);
        self.open.records += 1;
        self.open.next = (at + parsed.len as u64, sequence + parsed.len as u64);
        if continued && !joins {
            self.part();
        } else if !continues {
            let batch = std::mem::take(&mut self.open);
            self.scanned.take(batch);
        }
    }

    /// A record with a damaged value. If it was durable once it counts: reads of it fail, and do not give an older
    /// value.
    fn bad_value(&mut self, at: u64, parsed: &Parsed, key: &[u8]) {
        self.saw(parsed);
        self.part();
        let Head { sequence, kind, .. } = parsed.head;
        let entry = Entry { sequence, offset: at as u32, len: parsed.len as u32, kind, key };
        encode_entry(&entry, &mut self.open.entries);
        self.open.records = 1;
        self.open.next = (at + parsed.len as u64, u64::MAX);
        self.part();
    }

    /// The open batch is incomplete.
    fn part(&mut self) {
        if self.open.records > 0 {
            self.parts.push(std::mem::take(&mut self.open));
        }
    }

    fn end(mut self) -> Scanned {
        self.part();
        let Self { mut scanned, durable, suspects, parts, .. } = self;
        for batch in parts {
            // All durable batches were complete: the rest of this one is damaged.
            if batch.next.0 <= durable {
                scanned.take(batch);
            }
        }
        scanned.durable = durable;
        let after = u64::from(scanned.end);
        for Suspect { range: Range { start: at, .. }, bad } in suspects {
            if at < durable {
                scanned.damage.push((at, bad));
            } else if at < after || bad != Bad::Empty {
                scanned.torn = scanned.torn.or(Some(at));
            }
        }
        scanned
    }
}

impl Scanned {
    /// Adds the records before those of the scan: those of a hint of the part of the file up to where the scan began.
    pub(super) fn follow(&mut self, hint: &HintHeader, mut entries: Vec<u8>) {
        entries.append(&mut self.entries);
        self.entries = entries;
        self.records += hint.records;
        self.end = self.end.max(hint.covers);
        self.death = Some(self.death.map_or(hint.death, |death| hint.death.join(death)));
    }

    fn take(&mut self, batch: Batch) {
        self.entries.extend_from_slice(&batch.entries);
        self.records += batch.records;
        self.end = self.end.max(batch.next.0 as u32);
    }
}

/// Reads a file's header.
///
/// # Errors
/// Those of the volume; the inner one says why the header is invalid in every copy.
pub(super) async fn header(
    object: &dyn Object,
    io: Io,
) -> Result<std::result::Result<Header, Bad>> {
    read_valid(object, 0, HEADER_LEN, io, Header::decode).await
}

/// Reads the hint of a file: its header and its entries.
///
/// # Errors
/// Those of the volume; the inner one says why the hint is invalid in every copy.
pub(super) async fn hint(
    object: &dyn Object,
    seal: Seal,
    io: Io,
) -> Result<std::result::Result<(HintHeader, Vec<u8>), Bad>> {
    read_valid(object, 0, object.len() as usize, io, move |bytes| {
        let (header, entries) = format::decode_hint(seal, bytes)?;
        Ok((header, entries.0.to_vec()))
    })
    .await
}

/// Reads and decodes a range, from another copy if the first one is invalid.
///
/// # Errors
/// Those of the volume; the inner one says why the first copy is invalid, if no other is better.
pub(super) async fn read_valid<T>(
    object: &dyn Object,
    at: u64,
    len: usize,
    io: Io,
    decode: impl Fn(&[u8]) -> std::result::Result<T, Bad> + Copy + Send + Sync + 'static,
) -> Result<std::result::Result<T, Bad>> {
    let first = object.read_at(at, IoBufMut::zeroed(len), io).await?;
    let bad = match decode(&first) {
        // Bytes of a later version have a valid checksum.
        Err(bad) if bad != Bad::Version && !first.is_empty() => bad,
        decoded => return Ok(decoded),
    };
    let check: Check = Arc::new(move |bytes| decode(bytes).is_ok());
    match object.read_again(at, IoBufMut::zeroed(len), io, check).await {
        Ok(bytes) => Ok(decode(&bytes)),
        Err(error) if error.kind() == ErrorKind::Busy => Err(error),
        // A copy that is away may be valid. Until it is back, the first one counts.
        Err(_) => Ok(Err(bad)),
    }
}

/// A record that was read and checked.
pub(super) struct Whole {
    pub(super) head: Head,
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
}

/// Checks that `bytes` are the record of a place.
///
/// # Errors
/// What is wrong with it.
pub(super) fn record_at(seal: Seal, place: Place, bytes: &[u8]) -> std::result::Result<Whole, Bad> {
    let whole = whole(seal, bytes)?;
    if whole.head.sequence == place.sequence { Ok(whole) } else { Err(Bad::Foreign) }
}

/// Checks that `bytes` are a record.
///
/// # Errors
/// What is wrong with it.
fn whole(seal: Seal, bytes: &[u8]) -> std::result::Result<Whole, Bad> {
    match format::find_record(seal, bytes) {
        Found::Record(parsed) => {
            parsed.check_value(bytes)?;
            Ok(Whole { head: parsed.head, key: parsed.key, value: parsed.value })
        }
        Found::Nothing => Err(Bad::Empty),
        Found::More(_) => Err(Bad::Short),
        Found::Bad(bad) => Err(bad),
    }
}
