//! Rows on their way in, encoded once: the same bytes go to the write-ahead log and to the buffers.
//!
//! A row is a source (measurement and tags), a time, and values of some fields. Three arenas keep
//! apart what is looked up differently: *keys* of sources, *shapes* (which fields of which kinds; all
//! rows of a client have the same), and values.

use super::value::{Kind, Value};

/// What a row is refused for when it is built.
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
    /// The same tag twice.
    #[error("a tag is given twice")]
    TagTwice,
    /// More than 65535 fields.
    #[error("more than 65535 fields")]
    TooManyFields,
    /// The last nanosecond of all, which ends intervals.
    #[error("time out of range")]
    Time,
}

/// The longest text of a field, in bytes, as InfluxDB's.
pub const TEXT_MAX: usize = 64 << 10;

/// The longest source: measurement, tags, and two bytes for each of them.
pub const KEY_MAX: usize = u16::MAX as usize;

/// Rows that are written together, of one database. Built row by row:
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
    shapes: Vec<u8>,
    values: Vec<u8>,
    rows: Vec<Row>,
    open: Open,
}

/// Where a row's parts are.
#[derive(Clone, Copy, Debug)]
struct Row {
    key: (u32, u32),
    shape: (u32, u32),
    values: (u32, u32),
    time: i64,
}

/// The row under construction.
#[derive(Clone, Debug, Default)]
struct Open {
    key: usize,
    shape: usize,
    values: usize,
    fields: usize,
    /// Where each tag is in the keys: start, end of its key, end.
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
            shapes: Vec::new(),
            values: Vec::new(),
            rows: Vec::new(),
            open: Open::default(),
        }
    }

    /// Begins a row; one that was not ended is given up.
    pub fn begin(&mut self, measurement: &str) {
        self.give_up();
        self.open.refused = measurement.is_empty().then_some(Refused::EmptyName);
        put_str(&mut self.keys, measurement, &mut self.open.refused);
    }

    /// Adds a tag, in any order. An empty value says that the source does not have the tag.
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

    /// Adds a field. Of one that is given twice the last value counts.
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
    /// Says why the row is not part of the batch; the others are.
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
        self.sort_tags()?;
        if self.keys.len() - self.open.key > KEY_MAX {
            return Err(Refused::TooLong);
        }
        let at = |place: usize| u32::try_from(place).map_err(|_| Refused::TooLong);
        let mut row = Row {
            key: (at(self.open.key)?, at(self.keys.len())?),
            shape: (at(self.open.shape)?, at(self.shapes.len())?),
            values: (at(self.open.values)?, at(self.values.len())?),
            time,
        };
        // Rows of one client have one shape, and often come source by source.
        if let Some(last) = self.rows.last() {
            if self.shapes[range(last.shape)] == self.shapes[range(row.shape)] {
                self.shapes.truncate(self.open.shape);
                row.shape = last.shape;
            }
            if self.keys[range(last.key)] == self.keys[range(row.key)] {
                self.keys.truncate(self.open.key);
                row.key = last.key;
            }
        }
        self.rows.push(row);
        self.open.key = self.keys.len();
        self.open.shape = self.shapes.len();
        self.open.values = self.values.len();
        Ok(())
    }

    fn sort_tags(&mut self) -> Result<(), Refused> {
        let keys = &self.keys;
        let name = |&(start, middle, _): &(usize, usize, usize)| &keys[start + 2..middle];
        if self.open.tags.is_sorted_by(|a, b| name(a) < name(b)) {
            return Ok(());
        }
        // Where the first one that was added begins.
        let first = self.open.tags.first().map_or(self.keys.len(), |tag| tag.0);
        let mut tags = std::mem::take(&mut self.open.tags);
        tags.sort_by(|a, b| name(a).cmp(name(b)));
        if tags.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
            return Err(Refused::TagTwice);
        }
        let sorted: Vec<u8> =
            tags.iter().flat_map(|&(start, _, end)| &keys[start..end]).copied().collect();
        self.keys.truncate(first);
        self.keys.extend_from_slice(&sorted);
        Ok(())
    }

    /// Forgets the row that was begun and not ended.
    pub fn give_up(&mut self) {
        self.keys.truncate(self.open.key);
        self.shapes.truncate(self.open.shape);
        self.values.truncate(self.open.values);
        self.open.fields = 0;
        self.open.tags.clear();
        self.open.refused = None;
    }

    /// Whose rows these are.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// How many rows it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What it takes in memory, about: for limits on batches.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.shapes.len() + self.values.len() + self.rows.len() * size_of::<Row>()
    }

    /// The rows, in the order they were added.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowRef<'_>> {
        self.rows.iter().map(|row| RowRef {
            key: &self.keys[range(row.key)],
            shape: &self.shapes[range(row.shape)],
            values: &self.values[range(row.values)],
            time: row.time,
        })
    }
}

fn range((from, to): (u32, u32)) -> std::ops::Range<usize> {
    from as usize..to as usize
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    /// Measurement, then tags by key: each with its length before it.
    pub(crate) key: &'a [u8],
    /// Name and kind of each field.
    pub(crate) shape: &'a [u8],
    /// Their values.
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

    /// Its fields, as they were added.
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

/// Strings with their lengths before them.
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

/// Encodes a value; its kind is told by the shape.
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

/// Decodes what [`put_value`] wrote; none where that is not what is there.
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

/// Small numbers of either sign as small numbers.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undoes [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Seven bits a byte, the lowest first.
pub(crate) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Undoes [`put_varint`].
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
