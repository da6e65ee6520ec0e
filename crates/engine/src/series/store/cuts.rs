//! Deletes: their fields and their interval.

use std::collections::HashMap;
use std::sync::Arc;

use super::catalogue::field_of;
use super::wal::take_u32;
use crate::series::batch::{put_varint, take_varint, unzigzag, zigzag};
use crate::series::block::Table;
use crate::series::{SeriesId, Span};

/// The most bytes of a delete in one record of the log.
const CUTS_MAX: usize = 16 << 20;

/// The points to delete.
pub(super) struct Cuts {
    pub(super) span: Span,
    /// Fields of each source, ascending.
    pub(super) fields: HashMap<u32, Vec<u16>>,
}

/// A delete that is not carried out in blocks yet.
pub(super) struct Owed {
    pub(super) cuts: Arc<Cuts>,
    /// It applies to blocks of earlier rounds.
    pub(super) before: u64,
    /// The segment of the log that has its record.
    pub(super) segment: u32,
}

impl Cuts {
    /// Whether points of a field are to be deleted.
    pub(super) fn has(&self, source: u32, field: u16) -> bool {
        self.fields.get(&source).is_some_and(|fields| fields.binary_search(&field).is_ok())
    }

    /// Removes the points from a source's table; says whether there were any.
    pub(super) fn apply(&self, source: u32, table: &mut Table) -> bool {
        self.fields.get(&source).is_some_and(|fields| {
            table.cut(|field| fields.binary_search(&field).is_ok(), self.span)
        })
    }

    /// Encodes the delete as records of a length that the log takes.
    pub(super) fn encode(&self) -> Vec<Vec<u8>> {
        let mut head = Vec::new();
        put_varint(&mut head, zigzag(self.span.from));
        put_varint(&mut head, zigzag(self.span.to));
        let (mut records, mut bytes) = (Vec::new(), head.clone());
        for (&source, fields) in &self.fields {
            if bytes.len() > CUTS_MAX {
                records.push(std::mem::replace(&mut bytes, head.clone()));
            }
            put_varint(&mut bytes, u64::from(source));
            put_varint(&mut bytes, fields.len() as u64);
            fields.iter().for_each(|&field| put_varint(&mut bytes, u64::from(field)));
        }
        records.push(bytes);
        records
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let span = Span { from: unzigzag(take_varint(from)?), to: unzigzag(take_varint(from)?) };
        let mut fields = HashMap::new();
        while !from.is_empty() {
            let source = take_u32(from)?;
            let mut of = Vec::new();
            for _ in 0..take_varint(from)? {
                of.push(field_of(SeriesId(take_varint(from)?)));
            }
            of.sort_unstable();
            fields.insert(source, of);
        }
        Some(Self { span, fields })
    }
}
