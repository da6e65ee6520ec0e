//! What the current thread does for RocksDB: the compaction it is at, and the table it builds.
//!
//! RocksDB tells both to listeners and collectors only, on the thread that then does the I/O, so
//! here is where they wait for it.

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
    /// Where the data ends, or a little before: index and footer follow. Zero while unknown.
    pub(crate) data_len: u64,
}

thread_local! {
    static JOB: Cell<Option<Job>> = const { Cell::new(None) };
    static TABLE: RefCell<Option<TableFacts>> = const { RefCell::new(None) };
}

/// The thread begins a compaction.
///
/// It is never said to have ended: RocksDB's word for that comes before the outputs are verified and
/// not at all at a shutdown. The next compaction of the thread takes its place, and nothing else
/// looks at it.
pub(crate) fn begin_job(job: Job) {
    JOB.set(Some(job));
}

/// The compaction the thread is at, or was at last.
pub(crate) fn job() -> Option<Job> {
    JOB.get()
}

/// The thread begins to build a table.
pub(crate) fn begin_table(family: u32, level: i32) {
    let level = u8::try_from(level).ok();
    TABLE.set(Some(TableFacts { family, level, range: None, fences: None, data_len: 0 }));
}

/// All keys of the thread's table are known.
pub(crate) fn finish_table(range: KeyRange, fences: Option<Fences>, data_len: u64) {
    TABLE.with_borrow_mut(|table| {
        if let Some(table) = table {
            table.range = Some(range);
            table.fences = fences;
            table.data_len = data_len;
        }
    });
}

/// What is known of the thread's table so far, for files that belong to it.
pub(crate) fn table() -> Option<TableFacts> {
    TABLE.with_borrow(Clone::clone)
}

/// Moves out what is known of the thread's table, so that no other is taken for it: files that are
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
        assert_eq!(take_table(), None, "keys without a table are nobody's");
    }

    #[test]
    fn an_unknown_level_is_none() {
        begin_table(0, -1);
        assert_eq!(take_table().and_then(|facts| facts.level), None);
    }
}
