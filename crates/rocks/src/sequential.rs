//! Logs, read sequentially.

use std::mem::MaybeUninit;
use std::sync::Arc;

use volume::task::block_on;
use volume::{IoBuf, IoBufMut, Object, Result};

use crate::extent::{WINDOW, whole_pages};
use crate::origin;

/// An open log and the position of its reader.
///
/// RocksDB asks for 32 KiB at a time. The reader takes a whole window from the volume, which costs the
/// same.
pub(crate) struct Sequential {
    object: Arc<dyn Object>,
    at: u64,
    /// Bytes that were read ahead.
    window: IoBuf,
    window_start: u64,
}

impl Sequential {
    pub(crate) fn new(object: Arc<dyn Object>) -> Self {
        Self { object, at: 0, window: IoBufMut::zeroed(0).freeze(), window_start: 0 }
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
        let pages = whole_pages(&(self.at..self.at + 1));
        let end = (pages.start + WINDOW).min(self.object.len());
        let window = IoBufMut::zeroed((end - pages.start) as usize);
        let read = block_on(self.object.read_at(pages.start, window, origin::LOG_READ))?;
        self.window = read.freeze();
        self.window_start = pages.start;
        Ok(())
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
            let mut log = Sequential::new(Arc::clone(&object));
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
