//! Logs, read sequentially. Where a piece is not as it was written, another copy of it is asked: see [`Form`].

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use volume::task::block_on;
use volume::{IoBuf, IoBufMut, Object, Result};

use crate::extent::{WINDOW, whole_pages};
use crate::form::Form;
use crate::origin;

/// An open log and the position of its reader.
///
/// RocksDB asks for 32 KiB at a time. The reader takes a whole window from the volume, which costs the
/// same.
pub(crate) struct Sequential {
    object: Arc<dyn Object>,
    form: Option<Form>,
    at: u64,
    /// Bytes that were read ahead.
    window: IoBuf,
    window_start: u64,
}

impl Sequential {
    pub(crate) fn new(object: Arc<dyn Object>, form: Option<Form>) -> Self {
        Self { object, form, at: 0, window: IoBufMut::zeroed(0).freeze(), window_start: 0 }
    }

    /// Continues where the last read ended. Fewer bytes than asked for mean the end of the log; the log may
    /// grow before the next call.
    pub(crate) fn read(&mut self, into: &mut [MaybeUninit<u8>]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            if self.ahead().is_empty() {
                self.refill()?;
            }
            let ahead = self.ahead();
            let count = ahead.len().min(into.len() - done);
            if count == 0 {
                break;
            }
            into[done..done + count].write_copy_of_slice(&ahead[..count]);
            done += count;
            self.at += count as u64;
        }
        Ok(done)
    }

    /// Skips `count` bytes, at most to the end.
    pub(crate) fn skip(&mut self, count: u64) {
        self.at = self.at.saturating_add(count).min(self.object.len().max(self.at));
    }

    /// The bytes read ahead from `at` on.
    fn ahead(&self) -> &[u8] {
        let passed = self.at.checked_sub(self.window_start).and_then(|n| usize::try_from(n).ok());
        passed.and_then(|passed| self.window.get(passed..)).unwrap_or_default()
    }

    fn refill(&mut self) -> Result<()> {
        if self.at >= self.object.len() {
            return Ok(());
        }
        let piece = self.form.as_ref().map_or(1, |form| form.piece);
        let start = whole_pages(&(self.at / piece * piece..self.at + 1)).start;
        let end = (start + WINDOW).min(self.object.len());
        let window = IoBufMut::zeroed((end - start) as usize);
        let mut read = block_on(self.object.read_at(start, window, origin::LOG_READ))?;
        if let Some(form) = &self.form {
            for at in (0..read.len()).step_by(form.piece as usize) {
                let piece = at..read.len().min(at + form.piece as usize);
                if !(form.check)(&read[piece.clone()]) {
                    self.read_again(start, &mut read, piece, form);
                }
            }
        }
        self.window = read.freeze();
        self.window_start = start;
        Ok(())
    }

    /// Takes a piece from a copy that is whole. Without one the bytes stay: a crash may have cut them off, which RocksDB
    /// finds.
    #[cold]
    fn read_again(&self, start: u64, read: &mut IoBufMut, piece: Range<usize>, form: &Form) {
        let (at, into) = (start + piece.start as u64, IoBufMut::zeroed(piece.len()));
        let check = Arc::clone(&form.check);
        match block_on(self.object.read_again(at, into, origin::LOG_READ, check)) {
            Ok(found) => read[piece].copy_from_slice(&found),
            Err(e) => tracing::debug!("no copy is whole at byte {at}: {e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use volume::mem::Mem;
    use volume::{Intent, Name, Volume};

    use super::*;

    fn append(object: &dyn Object, bytes: &[u8]) {
        block_on(object.write_at(object.len(), IoBuf::from(bytes), origin::LOG)).unwrap();
    }

    fn read(log: &mut Sequential, len: usize) -> Vec<u8> {
        let mut into = vec![0xee; len];
        let got = log.read(crate::ffi::buffer_over(&mut into)).unwrap();
        into.truncate(got);
        into
    }

    #[derive(Clone, Debug)]
    enum Op {
        Read(usize),
        Skip(u64),
        Append(usize),
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn a_log_is_read_on_from_where_the_last_read_ended_even_while_it_grows(
            ops in prop::collection::vec(
                prop_oneof![
                    (0usize..300_000).prop_map(Op::Read),
                    (0u64..100_000).prop_map(Op::Skip),
                    (0usize..300_000).prop_map(Op::Append),
                ],
                1..30,
            ),
        ) {
            let mem = Mem::new("v");
            let name = Name::new("a.log").unwrap();
            let object = block_on(mem.create(&name, &Intent::LOG)).unwrap();
            let mut log = Sequential::new(Arc::clone(&object), None);
            let (mut bytes, mut at) = (Vec::new(), 0);
            for op in ops {
                match op {
                    Op::Append(len) => {
                        let more: Vec<u8> =
                            (bytes.len()..bytes.len() + len).map(|i| (i / 251 + i) as u8).collect();
                        append(&*object, &more);
                        bytes.extend(more);
                    }
                    Op::Skip(count) => {
                        log.skip(count);
                        at = (at + count as usize).min(bytes.len());
                    }
                    Op::Read(len) => {
                        let end = (at + len).min(bytes.len());
                        prop_assert!(read(&mut log, len) == bytes[at..end]);
                        at = end;
                    }
                }
            }
        }
    }
}
