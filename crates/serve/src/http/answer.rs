//! Tables to bytes: JSON as InfluxDB 1.x has it, or CSV. Made piece by piece, so that an answer is never in memory
//! twice.

use std::fmt::Write;

use engine::series::Scalar;

use super::line::Precision;
use super::table::{Cell, Table};
use super::time::Rfc3339;

/// Rows in one piece, unless a client requests chunks.
pub(super) const ROWS_AT_ONCE: usize = 10_000;

/// The format of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    /// `{"results":[{"statement_id":0,"series":[…]}]}`
    Json {
        /// The unit of times; `None` for text.
        epoch: Option<Precision>,
        /// The rows of a chunk: each chunk is its own document, on its own line.
        chunked: Option<usize>,
    },
    /// `name,tags,time,…`
    Csv {
        /// The unit of times; `None` for nanoseconds.
        epoch: Option<Precision>,
    },
    /// One stream of Arrow IPC: [`super::arrow`].
    Arrow,
}

impl Format {
    /// Its media type.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Json { .. } => "application/json",
            Self::Csv { .. } => "text/csv; charset=utf-8",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// The result of a statement.
pub(super) type Outcome = Result<Vec<Table>, String>;

/// The text before all statements.
pub(super) fn begin(format: Format) -> &'static str {
    match format {
        Format::Json { chunked: None, .. } => "{\"results\":[",
        _ => "",
    }
}

/// The text after all statements.
pub(super) fn end(format: Format) -> &'static str {
    match format {
        Format::Json { chunked: None, .. } => "]}\n",
        _ => "",
    }
}

/// The pieces of a statement's answer, made lazily.
pub(super) fn pieces(
    format: Format,
    statement: usize,
    outcome: Outcome,
) -> Box<dyn Iterator<Item = String> + Send> {
    match (format, outcome) {
        // An Arrow stream has another shape, and reports errors before it starts.
        (Format::Arrow, _) => Box::new(std::iter::empty()),
        (Format::Csv { .. }, Err(error)) => {
            Box::new(std::iter::once(format!("error\n{}\n", quoted(&error))))
        }
        (Format::Csv { epoch }, Ok(tables)) => {
            let mut last: Option<Vec<String>> = None;
            Box::new(tables.into_iter().flat_map(move |table| {
                let is_new = last.as_ref() != Some(&table.columns);
                last = Some(table.columns.clone());
                csv(table, is_new, epoch)
            }))
        }
        (Format::Json { chunked, .. }, Err(error)) => {
            let (open, close) = document(chunked, statement);
            let error = serde_json::Value::from(error);
            Box::new(std::iter::once(format!(
                "{open}{{\"statement_id\":{statement},\"error\":{error}}}{close}"
            )))
        }
        (Format::Json { epoch, chunked: None }, Ok(tables)) => {
            let (open, close) = document(None, statement);
            let none = tables.is_empty();
            let series = if none { "" } else { ",\"series\":[" };
            let head = format!("{open}{{\"statement_id\":{statement}{series}");
            let tail = format!("{}}}{close}", if none { "" } else { "]" });
            let tables = tables.into_iter().enumerate();
            let body = tables.flat_map(move |(n, table)| whole(table, n > 0, epoch));
            Box::new(std::iter::once(head).chain(body).chain(std::iter::once(tail)))
        }
        (Format::Json { epoch, chunked: Some(rows) }, Ok(tables)) => {
            if tables.is_empty() {
                let only = format!("{{\"results\":[{{\"statement_id\":{statement}}}]}}\n");
                return Box::new(std::iter::once(only));
            }
            let last = tables.len() - 1;
            let tables = tables.into_iter().enumerate();
            Box::new(
                tables.flat_map(move |(n, table)| {
                    chunks(table, statement, rows.max(1), n < last, epoch)
                }),
            )
        }
    }
}

/// The text around one statement.
fn document(chunked: Option<usize>, statement: usize) -> (&'static str, &'static str) {
    match chunked {
        Some(_) => ("{\"results\":[", "]}\n"),
        None if statement > 0 => (",", ""),
        None => ("", ""),
    }
}

/// A table as an element of a list.
fn whole(
    table: Table,
    follows: bool,
    epoch: Option<Precision>,
) -> impl Iterator<Item = String> + Send {
    let head = format!("{}{}", if follows { "," } else { "" }, json_head(&table));
    let count = table.rows().len().div_ceil(ROWS_AT_ONCE);
    let body = (0..count).map(move |n| {
        let mut text = String::new();
        json_rows(&mut text, &table, n * ROWS_AT_ONCE, ROWS_AT_ONCE, n > 0, epoch);
        text
    });
    std::iter::once(head).chain(body).chain(std::iter::once("]}".to_owned()))
}

/// A table as documents of `rows` rows each.
fn chunks(
    table: Table,
    statement: usize,
    rows: usize,
    more: bool,
    epoch: Option<Precision>,
) -> impl Iterator<Item = String> + Send {
    let count = table.rows().len().div_ceil(rows);
    (0..count).map(move |n| {
        let mut text = format!("{{\"results\":[{{\"statement_id\":{statement},\"series\":[");
        text.push_str(&json_head(&table));
        json_rows(&mut text, &table, n * rows, rows, false, epoch);
        let partial = n + 1 < count;
        text.push_str(if partial { "],\"partial\":true}]" } else { "]}]" });
        text.push_str(if partial || more { ",\"partial\":true}]}\n" } else { "}]}\n" });
        text
    })
}

fn json_head(table: &Table) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let mut head = "{".to_owned();
    if !table.name.is_empty() {
        head.push_str(&format!("\"name\":{},", text(&table.name)));
    }
    if !table.tags.is_empty() {
        let tags = table.tags.iter().map(|(key, value)| format!("{}:{}", text(key), text(value)));
        head.push_str(&format!("\"tags\":{{{}}},", tags.collect::<Vec<_>>().join(",")));
    }
    let columns: Vec<_> = table.columns.iter().map(|column| text(column)).collect();
    head.push_str(&format!("\"columns\":[{}],\"values\":[", columns.join(",")));
    head
}

fn json_rows(
    text: &mut String,
    table: &Table,
    from: usize,
    count: usize,
    follows: bool,
    epoch: Option<Precision>,
) {
    for (n, row) in table.rows().skip(from).take(count).enumerate() {
        if n > 0 || follows {
            text.push(',');
        }
        for (n, cell) in row.iter().enumerate() {
            text.push(if n == 0 { '[' } else { ',' });
            json_cell(text, cell, epoch);
        }
        text.push(']');
    }
}

fn json_cell(text: &mut String, cell: &Cell, epoch: Option<Precision>) {
    let written = match cell {
        Cell::Null => write!(text, "null"),
        Cell::Time(nanos) => match epoch {
            Some(unit) => write!(text, "{}", nanos.div_euclid(unit.nanos())),
            None => write!(text, "\"{}\"", Rfc3339(*nanos)),
        },
        Cell::Value(Scalar::Float(value)) if !value.is_finite() => write!(text, "null"),
        Cell::Value(Scalar::Float(value)) => write!(text, "{}", serde_json::Value::from(*value)),
        Cell::Value(Scalar::Integer(value)) => write!(text, "{value}"),
        Cell::Value(Scalar::Unsigned(value)) => write!(text, "{value}"),
        Cell::Value(Scalar::Boolean(value)) => write!(text, "{value}"),
        Cell::Value(Scalar::Text(value)) => write!(text, "{}", serde_json::Value::from(&**value)),
    };
    written.expect("a string takes any text");
}

fn csv(
    table: Table,
    is_new: bool,
    epoch: Option<Precision>,
) -> impl Iterator<Item = String> + Send {
    let mut head = String::new();
    if is_new {
        let columns: Vec<_> = table.columns.iter().map(|column| quoted(column)).collect();
        head = format!("name,tags,{}\n", columns.join(","));
    }
    let tags: Vec<_> = table.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let start = format!("{},{}", quoted(&table.name), quoted(&tags.join(",")));
    let count = table.rows().len().div_ceil(ROWS_AT_ONCE);
    let body = (0..count).map(move |n| {
        let mut text = String::new();
        for row in table.rows().skip(n * ROWS_AT_ONCE).take(ROWS_AT_ONCE) {
            text.push_str(&start);
            for cell in row {
                text.push(',');
                csv_cell(&mut text, cell, epoch);
            }
            text.push('\n');
        }
        text
    });
    std::iter::once(head).chain(body)
}

fn csv_cell(text: &mut String, cell: &Cell, epoch: Option<Precision>) {
    match cell {
        Cell::Null => {}
        Cell::Value(Scalar::Text(value)) => text.push_str(&quoted(value)),
        // As in InfluxDB, times in CSV are numbers.
        time @ Cell::Time(_) => json_cell(text, time, Some(epoch.unwrap_or_default())),
        value => json_cell(text, value, None),
    }
}

/// A field by RFC 4180.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: i64) -> Table {
        let row = |n| {
            let value = (n != 1).then_some(Scalar::Float(n as f64 + 0.5));
            [Cell::Time(n * 1_500_000_000), value.into(), Cell::text("a \"q\", b")]
        };
        Table {
            name: "m".into(),
            tags: vec![("host".into(), "ü".into())],
            columns: ["time", "v", "note"].map(str::to_owned).into(),
            cells: (0..rows).flat_map(row).collect(),
        }
    }

    fn written(format: Format, outcomes: Vec<Outcome>) -> String {
        let outcomes = outcomes.into_iter().enumerate();
        let all = outcomes.flat_map(|(n, outcome)| pieces(format, n, outcome));
        format!("{}{}{}", begin(format), all.collect::<String>(), end(format))
    }

    #[test]
    fn json_is_influxdbs() {
        let format = Format::Json { epoch: None, chunked: None };
        let outcomes = vec![Ok(vec![table(2)]), Err("no \"x\"".into()), Ok(Vec::new())];
        let text = written(format, outcomes);
        assert_eq!(
            text,
            concat!(
                r#"{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"host":"ü"},"#,
                r#""columns":["time","v","note"],"values":[["1970-01-01T00:00:00Z",0.5,"a \"q\", b"],"#,
                r#"["1970-01-01T00:00:01.5Z",null,"a \"q\", b"]]}]},"#,
                r#"{"statement_id":1,"error":"no \"x\""},{"statement_id":2}]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn chunks_are_documents_that_say_whether_more_follow() {
        let format = Format::Json { epoch: Some(Precision::Milliseconds), chunked: Some(2) };
        let text = written(format, vec![Ok(vec![table(3), table(1)])]);
        let documents: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
        let told = documents.iter().map(|document| {
            let result = &document["results"][0];
            let series = &result["series"][0];
            let is = |value: &serde_json::Value| value.as_bool().unwrap_or(false);
            let rows = series["values"].as_array().map_or(0, Vec::len);
            (rows, is(&series["partial"]), is(&result["partial"]))
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told, [(2, true, true), (1, false, true), (1, false, false)]);
        assert_eq!(documents[1]["results"][0]["series"][0]["values"][0][0], 3000);
    }

    #[test]
    fn csv_names_its_columns_once() {
        let text = written(Format::Csv { epoch: None }, vec![Ok(vec![table(2), table(1)])]);
        assert_eq!(
            text,
            "name,tags,time,v,note\n\
             m,host=ü,0,0.5,\"a \"\"q\"\", b\"\n\
             m,host=ü,1500000000,,\"a \"\"q\"\", b\"\n\
             m,host=ü,0,0.5,\"a \"\"q\"\", b\"\n"
        );
    }

    #[test]
    fn long_tables_come_in_pieces_that_fit_together() {
        let rows = ROWS_AT_ONCE as i64 * 2 + 1;
        let text =
            written(Format::Json { epoch: None, chunked: None }, vec![Ok(vec![table(rows)])]);
        let document: serde_json::Value = serde_json::from_str(&text).expect("a document");
        let values = &document["results"][0]["series"][0]["values"];
        assert_eq!(values.as_array().map(Vec::len), Some(ROWS_AT_ONCE * 2 + 1));
    }
}
