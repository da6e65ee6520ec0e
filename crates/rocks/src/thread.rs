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
    /// The blocks with records that were read of late, once all are known.
    pub(crate) reads: Vec<BlockReads>,
}

/// How often the records of a block of a table were read of late. Its twin is in `shim/ffi.h`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(crate) struct BlockReads {
    /// Where it begins, or the padding before it.
    pub(crate) start: u64,
    /// Where it ends; 0 if that is not known.
    pub(crate) end: u64,
    pub(crate) reads: u64,
}

thread_local! {
    static JOB: Cell<Option<Job>> = const { Cell::new(None) };
    static TABLE: RefCell<Option<TableFacts>> = const { RefCell::new(None) };
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// The reads of tables for users that this thread has made and that no memory answered. The difference around a call says whether
/// it had to read.
#[must_use]
pub fn table_reads() -> u64 {
    READS.get()
}

/// Adds to the reads of tables that the current thread has made for users.
pub(crate) fn count_table_reads(reads: usize) {
    READS.set(READS.get().wrapping_add(reads as u64));
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
    TABLE.set(Some(TableFacts {
        family,
        level,
        range: None,
        fences: None,
        data_len: 0,
        reads: Vec::new(),
    }));
}

/// Completes the description of the thread's table with its keys.
pub(crate) fn finish_table(
    range: KeyRange,
    fences: Option<Fences>,
    data_len: u64,
    reads: &[BlockReads],
) {
    TABLE.with_borrow_mut(|table| {
        if let Some(table) = table {
            table.range = Some(range);
            table.fences = fences;
            table.data_len = data_len;
            table.reads = reads.to_vec();
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
        let reads = vec![BlockReads { start: 1, end: 2, reads: 3 }];
        finish_table(range.clone(), fences.clone(), 17, &reads);
        let facts = TableFacts {
            family: 3,
            level: Some(1),
            range: Some(range.clone()),
            fences,
            data_len: 17,
            reads,
        };
        assert_eq!(take_table(), Some(facts));
        assert_eq!(take_table(), None);
        finish_table(range, None, 17, &[]);
        assert_eq!(take_table(), None, "keys without a table are dropped");
    }

    #[test]
    fn an_unknown_level_is_none() {
        begin_table(0, -1);
        assert_eq!(take_table().and_then(|facts| facts.level), None);
    }
}
