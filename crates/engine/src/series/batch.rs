//! Incoming rows, encoded once: the same bytes go to the write-ahead log and to the buffers.
//!
//! A row is a source (measurement and tags), a time, and values of some fields. Three arenas separate parts by how they
//! are looked up: *keys* of sources, *shapes* (the fields and their kinds; mostly one for all rows of a client), and
//! values. Keys and shapes are stored once and numbered, so that the reader of a batch looks each of them up once.

use xxhash_rust::xxh3::xxh3_64;

use super::lookup::Lookup;
use super::value::{Kind, Value};

/// Why a row is refused when it is built.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// It has no field.
    #[error("no field")]
    NoField,
    /// A name is empty.
    #[error("a name is empty")]
    EmptyName,
    /// Measurement and tags together, or a name, are too long.
    #[error("measurement, tags or a field's name are longer than 65535 bytes together")]
    TooLong,
    /// A text is longer than 64 KiB.
    #[error("a string is longer than 65536 bytes")]
    TextTooLong,
    /// A tag is given twice.
    #[error("a tag is given twice")]
    TagTwice,
    /// More than 65535 fields.
    #[error("more than 65535 fields")]
    TooManyFields,
    /// The last nanosecond that there is, which only ends intervals.
    #[error("time out of range")]
    Time,
}

/// The longest text of a field, in bytes; the same as InfluxDB's.
pub const TEXT_MAX: usize = 64 << 10;

/// The longest source, in bytes: measurement and tags, with two bytes for the length of each string.
pub const KEY_MAX: usize = u16::MAX as usize;

/// A row's shape is looked for among this many of the latest ones.
const SHAPES_LOOKED_AT: u32 = 8;

/// Rows of one database that are written together. Built row by row:
///
/// ```
/// # use engine::series::{Batch, Value};
/// let mut batch = Batch::new("telegraf");
/// batch.begin("cpu");
/// batch.tag("host", "a");
/// batch.field("usage", Value::Float(0.5));
/// batch.end(1_600_000_000_000_000_000)?;
/// assert_eq!(batch.len(), 1);
/// # Ok::<(), engine::series::Refused>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    database: String,
    keys: Vec<u8>,
    /// The end of each key.
    key_ends: Vec<u32>,
    shapes: Vec<u8>,
    shape_ends: Vec<u32>,
    values: Vec<u8>,
    rows: Vec<Row>,
    written: Written,
    open: Open,
}

/// The places of a row's parts.
#[derive(Clone, Copy, Debug)]
struct Row {
    key: u32,
    shape: u32,
    values: (u32, u32),
    time: i64,
}

/// The text of each source as the client wrote it, once.
#[derive(Clone, Debug, Default)]
struct Written {
    text: Vec<u8>,
    /// The end of each text, and its key.
    all: Vec<(u32, u32)>,
    lookup: Lookup,
}

impl Written {
    fn text(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let start = if at == 0 { 0 } else { self.all[at - 1].0 };
        &self.text[start as usize..self.all[at].0 as usize]
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        let found = self.lookup.get(xxh3_64(text), |number| self.text(number) == text)?;
        Some(self.all[found as usize].1)
    }

    /// Keeps the text appended since the last one.
    fn add(&mut self, key: u32) {
        let Ok(end) = u32::try_from(self.text.len()) else { return };
        let number = self.all.len() as u32;
        self.all.push((end, key));
        self.lookup.insert(number, xxh3_64(self.text(number)));
    }
}

/// The row under construction.
#[derive(Clone, Debug, Default)]
struct Open {
    key: usize,
    shape: usize,
    values: usize,
    fields: usize,
    /// Its key, if an earlier row had the same source text.
    again: Option<u32>,
    /// The start of the source text that is not kept yet.
    written: usize,
    /// The place of each tag in the keys: start, end of its key, end.
    tags: Vec<(usize, usize, usize)>,
    refused: Option<Refused>,
}

impl Batch {
    /// A batch without rows.
    #[must_use]
    pub fn new(database: impl Into<String>) -> Self {
        Self {
            database: database.into(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            shapes: Vec::new(),
            shape_ends: Vec::new(),
            values: Vec::new(),
            rows: Vec::new(),
            written: Written::default(),
            open: Open::default(),
        }
    }

    /// Begins a row of the source that an earlier row was [written as](Batch::written_as): the caller adds only its
    /// fields. False if no row had this text.
    ///
    /// A client writes a few sources many times in a batch. Recognizing the text costs much less than parsing and
    /// looking up the name.
    #[must_use]
    pub fn again(&mut self, written: &[u8]) -> bool {
        self.give_up();
        self.open.again = self.written.find(written);
        self.open.again.is_some()
    }

    /// Gives the source text of this row, measurement and tags, so that [`Batch::again`] recognizes it.
    pub fn written_as(&mut self, written: &[u8]) {
        self.written.text.truncate(self.open.written);
        self.written.text.extend_from_slice(written);
    }

    /// Begins a row; drops one that was not ended.
    pub fn begin(&mut self, measurement: &str) {
        self.give_up();
        self.open.refused = measurement.is_empty().then_some(Refused::EmptyName);
        put_str(&mut self.keys, measurement, &mut self.open.refused);
    }

    /// Adds a tag, in any order. An empty value means that the source does not have the tag.
    pub fn tag(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        if key.is_empty() {
            self.open.refused = Some(Refused::EmptyName);
        }
        let start = self.keys.len();
        put_str(&mut self.keys, key, &mut self.open.refused);
        let middle = self.keys.len();
        put_str(&mut self.keys, value, &mut self.open.refused);
        self.open.tags.push((start, middle, self.keys.len()));
    }

    /// Adds a field. If it is given twice, the last value counts.
    pub fn field(&mut self, name: &str, value: Value<'_>) {
        if name.is_empty() {
            self.open.refused = Some(Refused::EmptyName);
        }
        put_str(&mut self.shapes, name, &mut self.open.refused);
        self.shapes.push(value.kind() as u8);
        self.open.fields += 1;
        if let Value::Text(text) = value
            && text.len() > TEXT_MAX
        {
            self.open.refused = Some(Refused::TextTooLong);
            return;
        }
        put_value(&mut self.values, value);
    }

    /// Ends the row: `time` in nanoseconds since 1970.
    ///
    /// # Errors
    /// Why the row is refused; the other rows stay in the batch.
    pub fn end(&mut self, time: i64) -> Result<(), Refused> {
        let ended = self.end_or_refuse(time);
        self.give_up();
        ended
    }

    fn end_or_refuse(&mut self, time: i64) -> Result<(), Refused> {
        if let Some(refused) = self.open.refused {
            return Err(refused);
        }
        match self.open.fields {
            0 => return Err(Refused::NoField),
            1..=0xffff => (),
            _ => return Err(Refused::TooManyFields),
        }
        if time == i64::MAX {
            return Err(Refused::Time);
        }
        let at = |place: usize| u32::try_from(place).map_err(|_| Refused::TooLong);
        let values = (at(self.open.values)?, at(self.values.len())?);
        let shapes_end = at(self.shapes.len())?;
        let key = match self.open.again {
            Some(key) => key,
            None => self.end_key()?,
        };
        // Rows of one client have one shape, or alternate between a few.
        let shape = &self.shapes[self.open.shape..];
        let count = self.shape_ends.len() as u32;
        let mut latest = (count.saturating_sub(SHAPES_LOOKED_AT)..count).rev();
        let shape = match latest.find(|&known| self.shape(known) == shape) {
            Some(last) => {
                self.shapes.truncate(self.open.shape);
                last
            }
            None => {
                self.shape_ends.push(shapes_end);
                self.shape_ends.len() as u32 - 1
            }
        };
        self.rows.push(Row { key, shape, values, time });
        self.open.key = self.keys.len();
        self.open.shape = self.shapes.len();
        self.open.values = self.values.len();
        self.open.written = self.written.text.len();
        Ok(())
    }

    /// The number of the current row's key.
    fn end_key(&mut self) -> Result<u32, Refused> {
        self.sort_tags()?;
        if self.keys.len() - self.open.key > KEY_MAX {
            return Err(Refused::TooLong);
        }
        // Rows often come source by source.
        let last = self.rows.last().map(|row| row.key);
        let key = match last.filter(|&last| self.key(last) == &self.keys[self.open.key..]) {
            Some(last) => {
                self.keys.truncate(self.open.key);
                last
            }
            None => {
                let end = u32::try_from(self.keys.len()).map_err(|_| Refused::TooLong)?;
                self.key_ends.push(end);
                self.key_ends.len() as u32 - 1
            }
        };
        if self.open.written < self.written.text.len() {
            self.written.add(key);
        }
        Ok(key)
    }

    fn key(&self, number: u32) -> &[u8] {
        part(&self.keys, &self.key_ends, number)
    }

    fn shape(&self, number: u32) -> &[u8] {
        part(&self.shapes, &self.shape_ends, number)
    }

    fn sort_tags(&mut self) -> Result<(), Refused> {
        let keys = &self.keys;
        let name = |&(start, middle, _): &(usize, usize, usize)| &keys[start + 2..middle];
        if self.open.tags.is_sorted_by(|a, b| name(a) < name(b)) {
            return Ok(());
        }
        // The start of the first tag that was added.
        let first = self.open.tags.first().map_or(self.keys.len(), |tag| tag.0);
        let mut tags = std::mem::take(&mut self.open.tags);
        tags.sort_by(|a, b| name(a).cmp(name(b)));
        if tags.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
            return Err(Refused::TagTwice);
        }
        let len = self.keys.len();
        // Append the sorted tags behind the unsorted ones, then move them there.
        for &(start, _, end) in &tags {
            self.keys.extend_from_within(start..end);
        }
        self.keys.copy_within(len.., first);
        self.keys.truncate(len);
        self.open.tags = tags;
        Ok(())
    }

    /// Drops the row that was begun and not ended.
    pub fn give_up(&mut self) {
        self.keys.truncate(self.open.key);
        self.shapes.truncate(self.open.shape);
        self.values.truncate(self.open.values);
        self.written.text.truncate(self.open.written);
        self.open.fields = 0;
        self.open.tags.clear();
        self.open.refused = None;
        self.open.again = None;
    }

    /// The database of the rows.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its approximate size in memory, for limits on batches.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let written = self.written.text.len() + self.written.all.len() * 16;
        let rows = self.rows.len() * size_of::<Row>();
        self.keys.len() + self.shapes.len() + self.values.len() + written + rows
    }

    /// The most that its record in a log takes, in bytes, or its size in memory, if that is more.
    pub(crate) fn record_bytes_max(&self) -> usize {
        // A row takes source, shape and time. A logged shape or source takes its numbers, and three for each field.
        const ROW: usize = 18;
        const HEAD: usize = 30;
        let (mut bytes, mut last) = (0, None);
        for row in &self.rows {
            bytes += ROW + (row.values.1 - row.values.0) as usize;
            if last.replace((row.key, row.shape)) != Some((row.key, row.shape)) {
                bytes += 2 * HEAD + 2 * self.key(row.key).len() + 4 * self.shape(row.shape).len();
            }
        }
        bytes.max(self.bytes())
    }

    /// The rows, in the order they were added.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowRef<'_>> {
        self.rows.iter().map(|row| RowRef {
            key: self.key(row.key),
            key_number: row.key,
            shape: self.shape(row.shape),
            shape_number: row.shape,
            values: &self.values[row.values.0 as usize..row.values.1 as usize],
            time: row.time,
        })
    }

    /// Upper bounds for the numbers of keys and of shapes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.key_ends.len(), self.shape_ends.len())
    }
}

/// One piece of an arena, given the ends of all pieces.
fn part<'a>(arena: &'a [u8], ends: &[u32], number: u32) -> &'a [u8] {
    let at = number as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &arena[start as usize..ends[at] as usize]
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// Measurement, then tags by key: each with its length before it.
    pub(crate) key: &'a [u8],
    /// Mostly equal for equal keys.
    pub(crate) key_number: u32,
    /// Name and kind of each field.
    pub(crate) shape: &'a [u8],
    /// Mostly equal for equal shapes.
    pub(crate) shape_number: u32,
    /// The values of the fields.
    pub(crate) values: &'a [u8],
    /// Nanoseconds since 1970.
    pub time: i64,
}

impl<'a> RowRef<'a> {
    /// Its measurement.
    #[must_use]
    pub fn measurement(&self) -> &'a str {
        Strings(self.key).next().expect("a row has a measurement")
    }

    /// Its tags, in the order of their keys.
    pub fn tags(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut strings = Strings(self.key);
        strings.next();
        std::iter::from_fn(move || Some((strings.next()?, strings.next()?)))
    }

    /// Its fields, in the order they were added.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let mut values = self.values;
        shape_fields(self.shape).map(move |(name, kind)| {
            (name, take_value(&mut values, kind).expect("a row has a value for each field"))
        })
    }
}

/// The names and kinds of a shape.
pub(crate) fn shape_fields(shape: &[u8]) -> impl Iterator<Item = (&str, Kind)> {
    let mut strings = Strings(shape);
    std::iter::from_fn(move || {
        let name = strings.next()?;
        let (&kind, rest) = strings.0.split_first()?;
        strings.0 = rest;
        Some((name, Kind::from_byte(kind)?))
    })
}

/// Strings, each with its length before it.
pub(crate) struct Strings<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (len, rest) = self.0.split_first_chunk::<2>()?;
        let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

fn put_str(into: &mut Vec<u8>, text: &str, refused: &mut Option<Refused>) {
    match u16::try_from(text.len()) {
        Ok(len) => {
            into.extend_from_slice(&len.to_le_bytes());
            into.extend_from_slice(text.as_bytes());
        }
        Err(_) => *refused = Some(Refused::TooLong),
    }
}

/// Encodes a value; the shape gives its kind.
pub(crate) fn put_value(into: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Float(value) => into.extend_from_slice(&value.to_bits().to_le_bytes()),
        Value::Integer(value) => put_varint(into, zigzag(value)),
        Value::Unsigned(value) => put_varint(into, value),
        Value::Boolean(value) => into.push(u8::from(value)),
        Value::Text(text) => {
            put_varint(into, text.len() as u64);
            into.extend_from_slice(text.as_bytes());
        }
    }
}

/// Decodes a value of [`put_value`]; `None` for other bytes.
pub(crate) fn take_value<'a>(from: &mut &'a [u8], kind: Kind) -> Option<Value<'a>> {
    Some(match kind {
        Kind::Float => {
            let (bits, rest) = from.split_first_chunk::<8>()?;
            *from = rest;
            Value::Float(f64::from_bits(u64::from_le_bytes(*bits)))
        }
        Kind::Integer => Value::Integer(unzigzag(take_varint(from)?)),
        Kind::Unsigned => Value::Unsigned(take_varint(from)?),
        Kind::Boolean => {
            let (&byte, rest) = from.split_first()?;
            *from = rest;
            Value::Boolean(byte != 0)
        }
        Kind::Text => {
            let len = usize::try_from(take_varint(from)?).ok()?;
            let (text, rest) = from.split_at_checked(len)?;
            *from = rest;
            Value::Text(std::str::from_utf8(text).ok()?)
        }
    })
}

/// Maps small numbers of either sign to small numbers.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Reverses [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Encodes seven bits a byte, the lowest first.
pub(crate) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Reverses [`put_varint`].
pub(crate) fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_out_as_it_went_in_with_sorted_tags() {
        let mut batch = Batch::new("db");
        batch.begin("cpu");
        batch.tag("host", "b");
        batch.tag("empty", "");
        batch.tag("dc", "x");
        let fields = [
            ("i", Value::Integer(i64::MIN)),
            ("u", Value::Unsigned(u64::MAX)),
            ("f", Value::Float(-0.0)),
            ("b", Value::Boolean(true)),
            ("t", Value::Text("é")),
        ];
        for (name, value) in fields {
            batch.field(name, value);
        }
        batch.end(-7).unwrap();
        let row = batch.rows().next().unwrap();
        assert_eq!((row.measurement(), row.time), ("cpu", -7));
        assert_eq!(row.tags().collect::<Vec<_>>(), [("dc", "x"), ("host", "b")]);
        assert_eq!(row.fields().collect::<Vec<_>>(), fields);
    }

    #[test]
    fn a_refused_row_leaves_nothing_behind() {
        let mut batch = Batch::new("db");
        type Build = dyn Fn(&mut Batch);
        let refusals: [(&Build, Refused); 5] = [
            (&|_| (), Refused::NoField),
            (&|batch| batch.field("", Value::Boolean(true)), Refused::EmptyName),
            (&|batch| batch.tag(&"x".repeat(70_000), "y"), Refused::TooLong),
            (&|batch| batch.field("t", Value::Text(&"x".repeat(70_000))), Refused::TextTooLong),
            (
                &|batch| {
                    batch.tag("a", "1");
                    batch.tag("a", "2");
                    batch.field("f", Value::Integer(1));
                },
                Refused::TagTwice,
            ),
        ];
        for (build, refused) in refusals {
            batch.begin("m");
            build(&mut batch);
            assert_eq!(batch.end(0), Err(refused));
        }
        batch.begin("m");
        batch.field("f", Value::Integer(1));
        batch.end(5).unwrap();
        assert_eq!((batch.len(), batch.keys.len(), batch.shapes.len()), (1, 3, 4));
    }

    #[test]
    fn equal_keys_and_shapes_in_a_row_are_kept_once() {
        let mut batch = Batch::new("db");
        for time in 0..3 {
            batch.begin("m");
            batch.tag("a", "b");
            batch.field("f", Value::Integer(time));
            batch.end(time).unwrap();
        }
        assert_eq!((batch.keys.len(), batch.shapes.len()), (9, 4));
        assert!(
            batch.rows().all(|row| row.fields().next() == Some(("f", Value::Integer(row.time))))
        );
    }

    #[test]
    fn a_source_is_known_again_as_it_was_written_unless_its_row_was_refused() {
        let mut batch = Batch::new("db");
        for (written, host, is_good) in [("m,h=a", "a", true), ("m,h=b", "b", false)] {
            assert!(!batch.again(written.as_bytes()));
            batch.begin("m");
            batch.tag("h", host);
            batch.written_as(written.as_bytes());
            if is_good {
                batch.field("f", Value::Integer(1));
            }
            assert_eq!(batch.end(1).is_ok(), is_good);
        }
        assert!(!batch.again(b"m,h=b") && batch.again(b"m,h=a"));
        batch.field("g", Value::Integer(2));
        batch.end(2).unwrap();
        assert!(batch.again(b"m,h=a"));
        batch.give_up();
        let rows: Vec<_> = batch.rows().collect();
        assert_eq!((rows.len(), batch.counts()), (2, (1, 2)));
        assert_eq!(rows[1].tags().collect::<Vec<_>>(), [("h", "a")]);
        assert_eq!(rows[1].fields().collect::<Vec<_>>(), [("g", Value::Integer(2))]);
    }

    #[test]
    fn varints_of_any_bytes_end_or_are_refused() {
        for value in [0, 1, 127, 128, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(take_varint(&mut &bytes[..]), Some(value));
        }
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
        assert_eq!(take_varint(&mut &[0x80][..]), None);
    }
}
