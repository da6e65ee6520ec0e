//! Tables as a stream of Arrow IPC, for clients that compute with the result.
//!
//! A stream has one schema, so it is the answer to one statement. It contains all its tables one after the other:
//! `name` and a text column for each tag, then their columns, each with nullable values of one kind. Times are
//! nanoseconds since 1970, in UTC. Batches have [`ROWS_AT_ONCE`] rows at most and are made one at a time.
//!
//! Format: Apache Arrow columnar format 1.5, "IPC streaming format".

use std::sync::Arc;
use std::vec;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use axum::body::Bytes;
use engine::series::Scalar;

use super::answer::ROWS_AT_ONCE;
use super::table::{Cell, Table};

/// The kind of a column's values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Holds {
    Time,
    Float,
    Integer,
    Unsigned,
    Boolean,
    Text,
}

impl Holds {
    fn of(cell: &Cell) -> Option<Self> {
        Some(match cell {
            Cell::Null => return None,
            Cell::Time(_) => Self::Time,
            Cell::Value(Scalar::Float(_)) => Self::Float,
            Cell::Value(Scalar::Integer(_)) => Self::Integer,
            Cell::Value(Scalar::Unsigned(_)) => Self::Unsigned,
            Cell::Value(Scalar::Boolean(_)) => Self::Boolean,
            Cell::Value(Scalar::Text(_)) => Self::Text,
        })
    }

    /// The kind that covers both: numbers of different kinds become floats.
    fn and(self, other: Self) -> Option<Self> {
        let is_number = |holds| matches!(holds, Self::Float | Self::Integer | Self::Unsigned);
        match (self, other) {
            (one, other) if one == other => Some(one),
            (one, other) if is_number(one) && is_number(other) => Some(Self::Float),
            _ => None,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
            Self::Float => DataType::Float64,
            Self::Integer => DataType::Int64,
            Self::Unsigned => DataType::UInt64,
            Self::Boolean => DataType::Boolean,
            Self::Text => DataType::Utf8,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Unsigned => "unsigned",
            Self::Boolean => "boolean",
            Self::Text => "string",
        }
    }
}

const UTC: &str = "UTC";

/// The columns after the name: tags, then these.
#[derive(Debug)]
struct Shape {
    tags: Vec<String>,
    /// Their names in the tables, and their kinds; `None` if all values are null.
    columns: Vec<(String, Option<Holds>)>,
}

impl Shape {
    fn of(tables: &[Table]) -> Result<Self, String> {
        let mut shape = Self { tags: Vec::new(), columns: Vec::new() };
        for table in tables {
            for (key, _) in &table.tags {
                if !shape.tags.contains(key) {
                    shape.tags.push(key.clone());
                }
            }
            let places = shape.places(table);
            for (at, place) in places.into_iter().enumerate() {
                let place = place.unwrap_or_else(|| {
                    shape.columns.push((table.columns[at].clone(), None));
                    shape.columns.len() - 1
                });
                for cell in table.cells.iter().skip(at).step_by(table.columns.len()) {
                    let Some(holds) = Holds::of(cell) else { continue };
                    let (name, before) = &mut shape.columns[place];
                    let both = before.map_or(Some(holds), |before| before.and(holds));
                    *before = Some(both.ok_or_else(|| {
                        let before = before.map_or("", Holds::word);
                        format!(
                            "column {name:?} is {before} in one series and {} in another: ask for one measurement",
                            holds.word()
                        )
                    })?);
                }
            }
        }
        Ok(shape)
    }

    /// The index of each of a table's columns; no index occurs twice.
    fn places(&self, table: &Table) -> Vec<Option<usize>> {
        let mut taken = Vec::new();
        let place = |name: &String| {
            let mut places = self.columns.iter().enumerate();
            let (place, _) =
                places.find(|(place, (own, _))| own == name && !taken.contains(place))?;
            taken.push(place);
            Some(place)
        };
        table.columns.iter().map(place).collect()
    }

    /// Duplicate names get a suffix as in InfluxDB: `v`, `v_1`.
    fn schema(&self) -> SchemaRef {
        let mut names: Vec<String> = Vec::new();
        let mut field = |name: &str, holds: Holds, nullable| {
            let mut own = name.to_owned();
            for more in 1.. {
                if !names.contains(&own) {
                    break;
                }
                own = format!("{name}_{more}");
            }
            names.push(own.clone());
            Field::new(own, holds.data_type(), nullable)
        };
        let mut fields = vec![field("name", Holds::Text, false)];
        fields.extend(self.tags.iter().map(|tag| field(tag, Holds::Text, true)));
        let columns = self.columns.iter();
        fields
            .extend(columns.map(|(name, holds)| field(name, holds.unwrap_or(Holds::Float), true)));
        Arc::new(Schema::new(fields))
    }

    fn batch(&self, schema: &SchemaRef, table: &Table, from: usize) -> RecordBatch {
        let rows = table.rows().len().saturating_sub(from).min(ROWS_AT_ONCE);
        let label = |text: Option<&str>| -> ArrayRef {
            Arc::new(std::iter::repeat_n(text, rows).collect::<StringArray>())
        };
        let mut arrays = vec![label(Some(&table.name))];
        for tag in &self.tags {
            let value = table.tags.iter().find(|(key, _)| key == tag);
            arrays.push(label(value.map(|(_, value)| value.as_str())));
        }
        let places = self.places(table);
        for (place, (_, holds)) in self.columns.iter().enumerate() {
            let at = places.iter().position(|own| *own == Some(place));
            let cells = || {
                let rows = table.rows().skip(from).take(rows);
                rows.map(move |row| at.map_or(&Cell::Null, |at| &row[at]))
            };
            arrays.push(array(holds.unwrap_or(Holds::Float), cells()));
        }
        RecordBatch::try_new(Arc::clone(schema), arrays).expect("arrays of the schema's own kinds")
    }
}

/// Cells that all have this kind, or are null.
fn array<'c>(holds: Holds, cells: impl Iterator<Item = &'c Cell>) -> ArrayRef {
    if holds == Holds::Time {
        let times = cells.map(|cell| match cell {
            Cell::Time(time) => Some(*time),
            Cell::Null | Cell::Value(_) => None,
        });
        return Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone(UTC));
    }
    let values = cells.map(|cell| match cell {
        Cell::Value(value) => Some(value),
        Cell::Null | Cell::Time(_) => None,
    });
    match holds {
        // Times are handled above.
        Holds::Float | Holds::Time => {
            Arc::new(values.map(|value| value?.as_value().as_f64()).collect::<Float64Array>())
        }
        Holds::Integer => Arc::new(
            values
                .map(|value| match value? {
                    Scalar::Integer(value) => Some(*value),
                    _ => None,
                })
                .collect::<Int64Array>(),
        ),
        Holds::Unsigned => Arc::new(
            values
                .map(|value| match value? {
                    Scalar::Unsigned(value) => Some(*value),
                    _ => None,
                })
                .collect::<UInt64Array>(),
        ),
        Holds::Boolean => Arc::new(
            values
                .map(|value| match value? {
                    Scalar::Boolean(value) => Some(*value),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        Holds::Text => Arc::new(
            values
                .map(|value| match value? {
                    Scalar::Text(value) => Some(&**value),
                    _ => None,
                })
                .collect::<StringArray>(),
        ),
    }
}

/// The pieces of a stream, made lazily.
pub(super) struct Pieces {
    shape: Shape,
    schema: SchemaRef,
    /// `None` after the end of the stream.
    encoder: Option<StreamEncoder>,
    tables: vec::IntoIter<Table>,
    /// The current table, and its next row.
    table: Option<(Table, usize)>,
}

impl Pieces {
    /// A stream of these tables.
    ///
    /// # Errors
    /// A column has values of different kinds; the error names them.
    pub(super) fn new(tables: Vec<Table>) -> Result<Self, String> {
        let shape = Shape::of(&tables)?;
        let schema = shape.schema();
        let encoder = StreamEncoder::try_new(&schema).map_err(|error| error.to_string())?;
        Ok(Self { shape, schema, encoder: Some(encoder), tables: tables.into_iter(), table: None })
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let encoder = self.encoder.as_mut()?;
        loop {
            if let Some((table, from)) = &mut self.table
                && *from < table.rows().len()
            {
                let batch = self.shape.batch(&self.schema, table, *from);
                *from += ROWS_AT_ONCE;
                let buffers = encoder.encode(&batch).expect("memory takes a batch of the schema");
                return Some(joined(&buffers));
            }
            match self.tables.next() {
                Some(table) => self.table = Some((table, 0)),
                None => break,
            }
        }
        let encoder = self.encoder.take()?;
        Some(joined(&encoder.finish().expect("memory takes the end of a stream")))
    }
}

fn joined(buffers: &[impl AsRef<[u8]>]) -> Bytes {
    let mut bytes = Vec::with_capacity(buffers.iter().map(|buffer| buffer.as_ref().len()).sum());
    buffers.iter().for_each(|buffer| bytes.extend_from_slice(buffer.as_ref()));
    bytes.into()
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, TimestampNanosecondType};
    use arrow_ipc::reader::StreamReader;

    use super::*;

    fn table(name: &str, tag: Option<&str>, column: &str, rows: Vec<Cell>) -> Table {
        Table {
            name: name.into(),
            tags: tag.map(|value| ("host".to_owned(), value.to_owned())).into_iter().collect(),
            columns: vec!["time".into(), column.into()],
            cells: rows
                .into_iter()
                .enumerate()
                .flat_map(|(n, cell)| [Cell::Time(n as i64), cell])
                .collect(),
        }
    }

    fn read(tables: Vec<Table>) -> Vec<RecordBatch> {
        let bytes: Vec<u8> = Pieces::new(tables).expect("one schema").flatten().collect();
        let reader = StreamReader::try_new(&bytes[..], None).expect("a stream");
        reader.map(|batch| batch.expect("a batch")).collect()
    }

    fn float(value: f64) -> Cell {
        Cell::Value(Scalar::Float(value))
    }

    #[test]
    fn tables_stand_below_each_other_under_one_schema() {
        let integers = vec![Cell::Value(Scalar::Integer(7)), Cell::Null];
        let batches = read(vec![
            table("m", Some("a"), "v", vec![float(0.5)]),
            table("m", None, "v", integers),
            table("m", Some("b"), "name", vec![Cell::text("ü")]),
        ]);
        assert_eq!(batches.len(), 3);
        let schema = batches[0].schema();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["name", "host", "time", "v", "name_1"]);
        let v = batches[1].column(3).as_primitive::<Float64Type>();
        assert_eq!(v.iter().collect::<Vec<_>>(), [Some(7.0), None]);
        assert_eq!(batches[1].column(1).null_count(), 2);
        let times = batches[1].column(2).as_primitive::<TimestampNanosecondType>();
        assert_eq!(times.values().to_vec(), [0, 1]);
        let name = batches[2].column(4).as_string::<i32>();
        assert_eq!(name.value(0), "ü");
    }

    #[test]
    fn zero_keeps_its_sign() {
        let batches = read(vec![table("m", None, "v", vec![float(-0.0), float(0.0)])]);
        let values = batches[0].column(2).as_primitive::<Float64Type>();
        let signs: Vec<bool> =
            values.values().iter().map(|value| value.is_sign_negative()).collect();
        assert_eq!(signs, [true, false]);
    }

    #[test]
    fn batches_are_bounded_and_nothing_is_a_stream_too() {
        let batches = read(vec![table("m", None, "v", vec![float(1.0); ROWS_AT_ONCE * 2 + 1])]);
        let rows: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [ROWS_AT_ONCE, ROWS_AT_ONCE, 1]);
        assert!(read(Vec::new()).is_empty());
    }

    #[test]
    fn a_column_of_two_kinds_is_refused_by_its_name() {
        let tables = vec![
            table("m", None, "v", vec![float(1.0)]),
            table("n", None, "v", vec![Cell::text("x")]),
        ];
        let error = Pieces::new(tables).err().expect("two kinds");
        assert!(error.contains("\"v\" is float in one series and string"), "{error}");
    }
}
