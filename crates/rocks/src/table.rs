//! Tables and blob files under construction.
//!
//! A table is kept in memory until it is complete, then placed as one object. So placement knows its
//! keys before a byte is written, the volume gets one large write, and its hot blocks stay in the
//! cache. A table that outgrows its memory, and every blob file of more than a window, is streamed in
//! windows; placement then knows only its family and level. Closing the file adds its checksum, and
//! a table's level and keys.

use std::sync::Arc;

use policy::intent::{Intent, Kind, PageReads};
use policy::purpose::{Io, Step};
use policy::units::MIB;
use pool::cache;
use pool::spread::Checksum;
use volume::buf::PAGE;
use volume::task::block_on;
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Name, Object, Result, Volume};

use crate::extent::WINDOW;
use crate::memory::{Allowance, Share, Tail};
use crate::origin::{self, Activity};
use crate::path::FileKind;
use crate::tables::Tables;
use crate::thread::{self, BlockReads, TableFacts};

/// The largest end of a fresh table that is kept for its opening. The rest of a longer one is read back.
const TAIL_MAX: u64 = 4 * MIB;

/// The steps in which a table's buffer takes its share of the memory.
const BUFFER_STEP: u64 = MIB;

/// A table or blob file that one thread writes sequentially.
pub(crate) struct TableWriter {
    tables: Arc<Tables>,
    name: Name,
    kind: FileKind,
    len: u64,
    state: State,
}

enum State {
    Buffered(Buffer),
    Streamed(Box<Stream>),
    /// Complete, or abandoned after an error.
    Done,
}

impl TableWriter {
    pub(crate) fn new(tables: Arc<Tables>, name: Name, kind: FileKind) -> Self {
        let limit = match kind {
            FileKind::Blob => WINDOW,
            _ => tables.buffer_max(),
        };
        let state = State::Buffered(Buffer::new(tables.memory(), limit));
        Self { tables, name, kind, len: 0, state }
    }

    /// The bytes appended so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends `data`. It survives no crash before a sync.
    pub(crate) fn append(&mut self, data: &[u8], activity: Activity) -> Result<()> {
        let done = self.try_append(data, io(activity));
        self.len += data.len() as u64;
        self.give_up_after(done)
    }

    /// Makes everything appended to a blob file readable. A table is readable once it is synced;
    /// RocksDB does not read it before.
    pub(crate) fn flush(&mut self, activity: Activity) -> Result<()> {
        if self.kind == FileKind::Table {
            return Ok(());
        }
        let io = io(activity);
        let done = self.stream(io).and_then(|stream| stream.write(io));
        self.give_up_after(done)
    }

    /// Makes the file and its name durable.
    pub(crate) fn sync(&mut self, activity: Activity) -> Result<()> {
        let done = match std::mem::replace(&mut self.state, State::Done) {
            State::Buffered(buffer) => self.place(buffer, io(activity)),
            State::Streamed(mut stream) => {
                let done = stream.sync(io(activity));
                self.state = State::Streamed(stream);
                done
            }
            State::Done => Ok(()),
        };
        self.give_up_after(done)
    }

    /// Completes the file, and syncs it. RocksDB may close a copied file without a sync, but copies look
    /// like other files here.
    pub(crate) fn close(&mut self, activity: Activity) -> Result<()> {
        let done = self.sync(activity);
        let state = std::mem::replace(&mut self.state, State::Done);
        done?;
        match state {
            State::Streamed(stream) => self.seal(&stream, io(activity)),
            State::Buffered(_) | State::Done => Ok(()),
        }
    }

    /// Seals a streamed file: adds its description, after which it never changes.
    fn seal(&self, stream: &Stream, io: Io) -> Result<()> {
        let (pool, checksum) = (self.tables.pool(), &stream.checksum);
        if self.kind == FileKind::Blob {
            return block_on(pool.seal(&self.name, checksum));
        }
        let intent = Intent { len: Some(self.len), ..self.tables.intent(self.facts()) };
        block_on(pool.seal_table(&self.name, checksum, &intent, io.origin))
    }

    fn try_append(&mut self, data: &[u8], io: Io) -> Result<()> {
        if let State::Buffered(buffer) = &mut self.state
            && buffer.append(data)
        {
            return Ok(());
        }
        self.stream(io)?.append(data, io)
    }

    /// The file as a stream. A buffered file becomes one now.
    fn stream(&mut self, io: Io) -> Result<&mut Stream> {
        if let State::Buffered(_) = self.state
            && let State::Buffered(buffer) = std::mem::replace(&mut self.state, State::Done)
        {
            // Clones the facts: `seal` takes them when the file is closed.
            let facts = thread::table();
            let intent = self.tables.intent(facts.map(|facts| TableFacts { range: None, ..facts }));
            let object = block_on(self.tables.pool().create(&self.name, &intent))?;
            let stream = Stream::begin(object, &buffer.bytes, io)?;
            self.state = State::Streamed(Box::new(stream));
        }
        match &mut self.state {
            State::Streamed(stream) => Ok(stream),
            _ => {
                Err(Error::new(ErrorKind::Invalid, format!("{}: the table is complete", self.name)))
            }
        }
    }

    fn place(&self, buffer: Buffer, io: Io) -> Result<()> {
        let mut facts = self.facts();
        let data_len = facts.as_ref().map_or(0, |facts| facts.data_len);
        let fences = facts.as_mut().and_then(|facts| facts.fences.take());
        let level = facts.as_ref().and_then(|facts| facts.level);
        let Buffer { bytes, memory, .. } = buffer;
        let reads = facts.as_ref().and_then(|facts| page_reads(&facts.reads, &bytes));
        let intent = Intent { len: Some(self.len), reads, ..self.tables.intent(facts) };
        let bytes = bytes.freeze();
        block_on(self.tables.pool().write_whole(&self.name, &intent, bytes.clone(), io))?;
        if self.kind == FileKind::Table {
            if let (Some(fences), Some(level), Kind::Table { family, .. }) =
                (fences, level, intent.kind)
            {
                let table = cache::Table { family, level, fences };
                self.tables.keep_warm(&self.name, table, &bytes, io.origin);
            }
            let start = data_len.max(self.len.saturating_sub(TAIL_MAX)).min(self.len);
            self.tables.tails().keep(Tail::new(self.name.clone(), start, &bytes[start as usize..]));
        }
        if let Some(bytes) = bytes.reclaim() {
            memory.keep(bytes);
        }
        Ok(())
    }

    /// The builder's description of the table. A blob file beside it has no range of keys.
    fn facts(&self) -> Option<TableFacts> {
        match self.kind {
            FileKind::Blob => thread::table().map(|facts| TableFacts { range: None, ..facts }),
            _ => thread::take_table(),
        }
    }

    /// Abandons the file after an error, since its contents are unknown: RocksDB writes another one.
    fn give_up_after(&mut self, done: Result<()>) -> Result<()> {
        if done.is_err() {
            self.state = State::Done;
        }
        done
    }
}

/// The reads of blocks by page of the table's `bytes`; `None` if there were none.
fn page_reads(blocks: &[BlockReads], bytes: &[u8]) -> Option<Arc<[PageReads]>> {
    let mut pages: Vec<PageReads> = Vec::new();
    for &BlockReads { start, end, reads } in blocks {
        let page_end = start.next_multiple_of(PageReads::PAGE);
        let before = bytes.get(start as usize..page_end.min(bytes.len() as u64) as usize);
        // RocksDB may leave the rest of a page empty. No block begins with eight zeros: its first record has a key.
        let is_padding = before.is_some_and(|before| before.iter().take(8).all(|&byte| byte == 0));
        let start = if is_padding { page_end } else { start };
        let reads = reads.min(u8::MAX.into()) as u8;
        for page in start / PageReads::PAGE..=end.saturating_sub(1).max(start) / PageReads::PAGE {
            let page = page as u32;
            match pages.last_mut().filter(|last| last.page == page) {
                Some(last) => last.reads = last.reads.saturating_add(reads),
                None => pages.push(PageReads { page, reads }),
            }
        }
    }
    (!pages.is_empty()).then(|| pages.into())
}

fn io(activity: Activity) -> Io {
    Io::new(origin::of_write(activity, thread::job()), Step::Data)
}

/// A file in memory.
struct Buffer {
    /// Has room for `limit` bytes from the start, so that it never reallocates. The system provides
    /// the pages of a new buffer as it fills.
    bytes: IoBufMut,
    /// The filled part in whole steps, as a share of the memory of all tables.
    memory: Share,
    limit: u64,
}

impl Buffer {
    fn new(memory: &Arc<Allowance>, limit: u64) -> Self {
        let capacity = usize::try_from(limit).expect("a table in memory fits an address");
        let (bytes, memory) = memory.buffer(capacity.next_multiple_of(PAGE));
        Self { bytes, memory, limit }
    }

    /// Appends `data`; false, and nothing appended, if the memory does not suffice.
    fn append(&mut self, data: &[u8]) -> bool {
        let needed = (self.bytes.len() + data.len()) as u64;
        if needed > self.limit {
            return false;
        }
        let held = self.memory.bytes();
        if needed > held {
            let step = (needed - held).next_multiple_of(BUFFER_STEP).min(self.limit - held);
            if !self.memory.grow(step) {
                return false;
            }
        }
        self.bytes.extend_from_slice(data);
        true
    }
}

/// A file that is written to its volume window by window.
struct Stream {
    object: Arc<dyn Object>,
    /// Where the last window begins: a multiple of [`WINDOW`].
    start: u64,
    /// The filled part of the last window.
    window: IoBufMut,
    /// How much of the window is on the volume.
    written: usize,
    synced: bool,
    /// Of everything appended.
    checksum: Checksum,
}

impl Stream {
    fn begin(object: Arc<dyn Object>, bytes: &[u8], io: Io) -> Result<Self> {
        let window = IoBufMut::with_capacity(WINDOW as usize);
        let checksum = Checksum::default();
        let mut stream = Self { object, start: 0, window, written: 0, synced: false, checksum };
        stream.append(bytes, io)?;
        Ok(stream)
    }

    fn append(&mut self, mut data: &[u8], io: Io) -> Result<()> {
        self.checksum.update(data);
        while !data.is_empty() {
            let room = WINDOW as usize - self.window.len();
            let (now, later) = data.split_at(room.min(data.len()));
            self.window.extend_from_slice(now);
            self.synced = false;
            data = later;
            if self.window.len() == WINDOW as usize {
                let full = IoBufMut::with_capacity(WINDOW as usize);
                let full = std::mem::replace(&mut self.window, full).freeze();
                block_on(self.object.write_at(self.start, full, io))?;
                self.start += WINDOW;
                self.written = 0;
            }
        }
        Ok(())
    }

    /// Writes the last window so far. It begins at the window's start, so the write is aligned to pages.
    fn write(&mut self, io: Io) -> Result<()> {
        if self.written < self.window.len() {
            block_on(self.object.write_at(self.start, IoBuf::from(&self.window[..]), io))?;
            self.written = self.window.len();
        }
        Ok(())
    }

    fn sync(&mut self, io: Io) -> Result<()> {
        if self.synced {
            return Ok(());
        }
        self.write(io)?;
        block_on(self.object.sync(io))?;
        self.synced = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(blocks: &[(u64, u64, u64)], bytes: &[u8]) -> Vec<(u32, u8)> {
        let blocks: Vec<_> =
            blocks.iter().map(|&(start, end, reads)| BlockReads { start, end, reads }).collect();
        let pages = page_reads(&blocks, bytes);
        pages.iter().flat_map(|pages| pages.iter()).map(|page| (page.page, page.reads)).collect()
    }

    #[test]
    fn reads_of_blocks_are_those_of_their_pages() {
        let mut bytes = vec![1; 6 * PAGE];
        assert_eq!(pages(&[], &bytes), []);
        assert_eq!(pages(&[(0, 100, 1), (100, 4096, 2)], &bytes), [(0, 3)]);
        assert_eq!(
            pages(&[(4000, 4200, 5), (4200, 12_000, 300)], &bytes),
            [(0, 5), (1, 255), (2, 255)]
        );
        // RocksDB does not tell where the last block ends.
        assert_eq!(pages(&[(8200, 0, 2)], &bytes), [(2, 2)]);
        // The padding before a block is not read with it.
        bytes[4000..4096].fill(0);
        assert_eq!(pages(&[(4000, 8192, 5)], &bytes), [(1, 5)]);
        assert_eq!(pages(&[(4000, 0, 5)], &bytes), [(1, 5)]);
        // Behind the end, which no builder tells.
        assert_eq!(pages(&[(9 * PAGE as u64, 0, 1)], &bytes), [(9, 1)]);
    }
}
