//! The catalogue as records of the log store.
//!
//! Measurements have a record each; sources share one, [`PAGE`] of them by id, compressed. A record that would exceed
//! the log store's limit is divided. A checkpoint writes the changes since the last one before it removes segments of
//! the log.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::catalogue::{Catalogue, DatabaseFacts, Restored};
use super::sources::PAGE;
use super::wal::{put_text, take_bytes, take_text, take_u32};
use crate::series::Kind;
use crate::series::batch::{put_varint, take_varint, unzigzag, zigzag};

/// The first byte of every record of the catalogue: a later version may have another format.
const VERSION: u8 = 1;
/// The version of later parts of a measurement's record: each gives the number of its first field.
const VERSION_OF_PART: u8 = 2;
/// The longest page accepted when read, in bytes.
const PAGE_BYTES_MAX: usize = PAGE as usize * (1 << 17);

/// The root record: databases, and the segment before which the log is not needed.
#[derive(Debug, Default)]
pub(super) struct Meta {
    pub(super) floor: u32,
    pub(super) next_database: u32,
    /// Ids are never reused: the log may still have records of a dropped object.
    pub(super) next_measurement: u32,
    pub(super) next_source: u32,
    pub(super) databases: BTreeMap<String, DatabaseFacts>,
}

impl Meta {
    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION];
        put_varint(&mut bytes, u64::from(self.floor));
        for next in [self.next_database, self.next_measurement, self.next_source] {
            put_varint(&mut bytes, u64::from(next));
        }
        for (name, facts) in &self.databases {
            put_text(&mut bytes, name.as_bytes());
            put_varint(&mut bytes, u64::from(facts.id));
            put_varint(&mut bytes, facts.keep.map_or(0, |keep| keep.as_nanos() as u64 + 1));
            put_varint(&mut bytes, zigzag(facts.newest));
        }
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = versioned(bytes)?;
        let from = &mut from;
        let (floor, next_database) = (take_u32(from)?, take_u32(from)?);
        let (next_measurement, next_source) = (take_u32(from)?, take_u32(from)?);
        let mut databases = BTreeMap::new();
        while !from.is_empty() {
            let name = take_text(from)?.to_string();
            let id = take_u32(from)?;
            let keep = take_varint(from)?.checked_sub(1).map(Duration::from_nanos);
            let newest = unzigzag(take_varint(from)?);
            databases.insert(name, DatabaseFacts { id, keep, newest });
        }
        Some(Self { floor, next_database, next_measurement, next_source, databases })
    }
}

fn versioned(bytes: &[u8]) -> Option<&[u8]> {
    bytes.split_first().filter(|(version, _)| **version == VERSION).map(|(_, rest)| rest)
}

/// A measurement and its fields, in records of about `max` bytes; none if it does not exist.
pub(super) fn encode_measurement(catalogue: &Catalogue, id: u32, max: usize) -> Vec<Bytes> {
    let Some(of) = catalogue.measurements.get(&id) else { return Vec::new() };
    let head = |first: usize| {
        let mut bytes = vec![if first == 0 { VERSION } else { VERSION_OF_PART }];
        put_varint(&mut bytes, u64::from(of.database));
        put_text(&mut bytes, of.name.as_bytes());
        if first > 0 {
            put_varint(&mut bytes, first as u64);
        }
        bytes
    };
    let mut records = Vec::new();
    let mut bytes = head(0);
    for (at, (name, kind)) in of.fields.iter().enumerate() {
        if bytes.len() + name.len() > max {
            records.push(std::mem::replace(&mut bytes, head(at)).into());
        }
        bytes.push(*kind as u8);
        put_text(&mut bytes, name.as_bytes());
    }
    records.push(bytes.into());
    records
}

pub(super) fn load_measurement(catalogue: &mut Catalogue, id: u32, bytes: &[u8]) -> Option<()> {
    let (&version, mut from) = bytes.split_first()?;
    let from = &mut from;
    let database = take_u32(from)?;
    let is_newest = catalogue.define_measurement(id, database, take_text(from)?);
    let mut field = match version {
        VERSION => 0,
        VERSION_OF_PART => u16::try_from(take_varint(from)?).ok()?,
        _ => return None,
    };
    if !is_newest {
        return Some(());
    }
    while !from.is_empty() {
        let (&kind, rest) = from.split_first()?;
        *from = rest;
        let (kind, name) = (Kind::from_byte(kind)?, take_text(from)?);
        if !name.is_empty() {
            catalogue.define_field(id, field, name, kind).then_some(())?;
        }
        field = field.checked_add(1)?;
    }
    Some(())
}

/// The existing sources of a page, in records of about `max` bytes.
pub(super) fn encode_page(catalogue: &Catalogue, page: u32, max: usize) -> Vec<Bytes> {
    let (mut plain, mut records) = (Vec::new(), Vec::new());
    let first = page * PAGE;
    for source in first..first.saturating_add(PAGE) {
        let Some((measurement, _)) = catalogue.source_key(source) else { continue };
        if !catalogue.measurements.contains_key(&measurement) {
            continue;
        }
        let before = plain.len();
        put_varint(&mut plain, u64::from(source - first));
        put_varint(&mut plain, u64::from(measurement));
        let fields = catalogue.fields_of(source);
        put_varint(&mut plain, fields.len() as u64);
        fields.iter().for_each(|&field| put_varint(&mut plain, u64::from(field)));
        let mut strings = Vec::new();
        catalogue.put_tags(source, &mut strings);
        put_text(&mut plain, &strings);
        if plain.len() > max && before > 0 {
            records.push(compressed(&plain[..before]));
            plain.drain(..before);
        }
    }
    if !plain.is_empty() {
        records.push(compressed(&plain));
    }
    records
}

fn compressed(plain: &[u8]) -> Bytes {
    let mut bytes = vec![VERSION];
    put_varint(&mut bytes, plain.len() as u64);
    bytes.extend_from_slice(&lz4_flex::block::compress(plain));
    bytes.into()
}

pub(super) fn load_page(catalogue: &mut Catalogue, page: u32, bytes: &[u8]) -> Option<()> {
    let mut from = versioned(bytes)?;
    let len = usize::try_from(take_varint(&mut from)?).ok().filter(|&len| len <= PAGE_BYTES_MAX)?;
    let plain = lz4_flex::block::decompress(from, len).ok()?;
    let from = &mut &plain[..];
    while !from.is_empty() {
        let source =
            page.checked_mul(PAGE)?.checked_add(take_u32(from).filter(|&at| at < PAGE)?)?;
        let measurement = take_u32(from)?;
        let count = take_varint(from)?;
        let mut fields = Vec::new();
        for _ in 0..count {
            fields.push(u16::try_from(take_varint(from)?).ok()?);
        }
        let tags = take_bytes(from)?;
        // Its measurement was dropped.
        if !catalogue.measurements.contains_key(&measurement) {
            continue;
        }
        match catalogue.restore_source(source, measurement, tags) {
            Restored::Known => {}
            Restored::Replaced => continue,
            Restored::Nonsense => return None,
        }
        // A source may be in two records, of which one was written later.
        fields.extend_from_slice(catalogue.fields_of(source));
        catalogue.load_fields(source, fields);
    }
    Some(())
}
