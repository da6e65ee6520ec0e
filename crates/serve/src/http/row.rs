//! Converts lines to rows of a batch.

use engine::series::{Batch, Value};

use super::line::{self, Line, Problem};

/// Adds a line to a batch; a line without a time gets `now`. After an error the caller must [give up](Batch::give_up)
/// the partial row.
///
/// # Errors
/// The mistake, and its byte.
pub(crate) fn put(batch: &mut Batch, line: &Line<'_>, now: i64) -> Result<(), (usize, Problem)> {
    let head = line.head();
    if !batch.again(head.as_bytes()) {
        let (measurement, tags) = line::split(head)?;
        batch.begin(&measurement);
        for tag in tags {
            let (key, value) = tag?;
            batch.tag(&key, &value);
        }
        batch.written_as(head.as_bytes());
    }
    for field in line.fields() {
        let value = match &field.value {
            line::Value::Float(value) => Value::Float(*value),
            line::Value::Integer(value) => Value::Integer(*value),
            line::Value::Unsigned(value) => Value::Unsigned(*value),
            line::Value::Boolean(value) => Value::Boolean(*value),
            line::Value::String(value) => Value::Text(value),
        };
        batch.field(&field.name, value);
    }
    let ended = batch.end(line.timestamp().unwrap_or(now));
    ended.map_err(|refused| (0, Problem::Unfit(refused.to_string())))
}
