//! The contents of an answer: rows of cells under named columns.

use engine::series::Scalar;

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// A missing value.
    Null,
    /// Nanoseconds since 1970.
    Time(i64),
    /// A value.
    Value(Scalar),
}

impl Cell {
    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self::Value(Scalar::Text(text.as_ref().into()))
    }
}

impl From<Option<Scalar>> for Cell {
    fn from(value: Option<Scalar>) -> Self {
        value.map_or(Self::Null, Self::Value)
    }
}

/// The rows of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    /// The measurement; empty for none.
    pub(super) name: String,
    /// The tags that all rows share.
    pub(super) tags: Vec<(String, String)>,
    /// Names of the columns, at least one.
    pub(super) columns: Vec<String>,
    /// Cells row by row.
    pub(super) cells: Vec<Cell>,
}

impl Table {
    /// A table without rows.
    pub(super) fn new(name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { name: name.to_owned(), columns, ..Self::default() }
    }

    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = &[Cell]> {
        self.cells.chunks(self.columns.len())
    }
}
