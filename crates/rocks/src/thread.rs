//! The compaction and the table that the current thread works on.
//!
//! RocksDB reports them only to listeners and collectors, on the thread that then does the I/O. Thread
//! locals carry them from there to the I/O.

use std::cell::{Cell, RefCell};

use policy::inherit::Fences;
use policy::intent::KeyRange;

use crate::origin::Job;

/// A table under construction, as its builder described it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TableFacts {
    /// The column family's number in its database.
    pub(crate) family: u32,
    /// The level it is built for.
    pub(crate) level: Option<u8>,
    /// The keys it covers, once all are known.
    pub(crate) range: Option<KeyRange>,
    /// The keys its blocks begin with, once all are known.
    pub(crate) fences: Option<Fences>,
    /// The end of the data blocks, or a little before it: index and footer follow. Zero while unknown.
    pub(crate) data_len: u64,
}

thread_local! {
    static JOB: Cell<Option<Job>> = const { Cell::new(None) };
    static TABLE: RefCell<Option<TableFacts>> = const { RefCell::new(None) };
}

/// Records that the thread begins a compaction.
///
/// No call ends it: RocksDB reports the end before it verifies the outputs, and not at all at a
/// shutdown. The thread's next compaction replaces it, and only compactions use it.
pub(crate) fn begin_job(job: Job) {
    JOB.set(Some(job));
}

/// The compaction that the thread works on, or the last one.
pub(crate) fn job() -> Option<Job> {
    JOB.get()
}

/// Records that the thread begins to build a table.
pub(crate) fn begin_table(family: u32, level: i32) {
    let level = u8::try_from(level).ok();
    TABLE.set(Some(TableFacts { family, level, range: None, fences: None, data_len: 0 }));
}

/// Completes the description of the thread's table with its keys.
pub(crate) fn finish_table(range: KeyRange, fences: Option<Fences>, data_len: u64) {
    TABLE.with_borrow_mut(|table| {
        if let Some(table) = table {
            table.range = Some(range);
            table.fences = fences;
            table.data_len = data_len;
        }
    });
}

/// The description of the thread's table so far, for files that belong to it.
pub(crate) fn table() -> Option<TableFacts> {
    TABLE.with_borrow(Clone::clone)
}

/// Takes the description of the thread's table, so that it never describes another one: files that are
/// copied, imported or made for ingestion have no builder that describes them.
pub(crate) fn take_table() -> Option<TableFacts> {
    TABLE.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_for_one_table_only() {
        let range = KeyRange { first: (*b"a").into(), last: (*b"z").into() };
        begin_table(3, 1);
        let fences = Fences::new(&range, [(*b"k").into()]);
        finish_table(range.clone(), fences.clone(), 17);
        let facts = TableFacts {
            family: 3,
            level: Some(1),
            range: Some(range.clone()),
            fences,
            data_len: 17,
        };
        assert_eq!(take_table(), Some(facts));
        assert_eq!(take_table(), None);
        finish_table(range, None, 17);
        assert_eq!(take_table(), None, "keys without a table are dropped");
    }

    #[test]
    fn an_unknown_level_is_none() {
        begin_table(0, -1);
        assert_eq!(take_table().and_then(|facts| facts.level), None);
    }
}
