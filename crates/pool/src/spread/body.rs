//! One object of a pool: its leaves on the volumes, and how long it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::future::join_all;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::placement::{Chunks, Layout, Piece, VolumeId};
use volume::task::block_on;
use volume::{Error, ErrorKind, Io, IoBuf, IoBufMut, Name, Object, Pending, Result, blocking};

use super::{Inner, Spread};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Committed, Record, Stored};

/// What all handles of one object share. It is in the pool's table while the object has a name.
pub(super) struct Body {
    pub(super) id: ObjectId,
    pub(super) kind: Kind,
    pub(super) layout: Layout,
    /// A name it had, for messages.
    name: Name,
    chunks: Chunks,
    parts: Box<[Part]>,
    /// Its length; see [`Body::knows_len`].
    len: AtomicU64,
    /// Its length in the manifest when the pool was opened.
    len_recovered: u64,
    /// Written whole, with a checksum: never changes again.
    sealed: bool,
    /// A sync of it is not done before this edit is durable.
    lsn: AtomicU64,
    /// A log whose first sync is in the manifest.
    settled: AtomicBool,
    /// Held while the length in the manifest changes, so that lengths get there in order.
    resizing: AsyncMutex<()>,
    handles: AtomicUsize,
}

/// The bytes of an object on one volume.
struct Part {
    volume: VolumeId,
    /// Open while the object is, from its first use on.
    leaf: Mutex<Option<Arc<dyn Object>>>,
    opening: AsyncMutex<()>,
    /// The leaf's length was compared with the manifest's since the pool was opened.
    fitted: AtomicBool,
}

impl Body {
    /// An object that is just being made, with leaves for its parts.
    pub(super) fn new(
        name: &Name,
        id: ObjectId,
        kind: Kind,
        layout: Layout,
        leaves: Vec<Arc<dyn Object>>,
    ) -> Self {
        let body = Self::with_len(name, id, kind, layout, 0);
        for (part, leaf) in body.parts.iter().zip(leaves) {
            *part.leaf.lock() = Some(leaf);
            part.fitted.store(true, Ordering::Relaxed);
        }
        body
    }

    /// An object of the manifest. What its sync has to wait for is not known: every edit up to
    /// `recorded`.
    pub(super) fn stored(name: &Name, id: ObjectId, stored: &Stored, recorded: Lsn) -> Self {
        let len = stored.committed.map_or(0, |committed| committed.len);
        let mut body = Self::with_len(name, id, stored.kind, stored.layout.clone(), len);
        body.sealed = stored.committed.is_some_and(|committed| committed.checksum.is_some());
        body.settled = AtomicBool::new(stored.committed.is_some());
        body.lsn = AtomicU64::new(recorded);
        body
    }

    fn with_len(name: &Name, id: ObjectId, kind: Kind, layout: Layout, len: u64) -> Self {
        let part = |&volume: &VolumeId| Part {
            volume,
            leaf: Mutex::new(None),
            opening: AsyncMutex::new(()),
            fitted: AtomicBool::new(false),
        };
        Self {
            id,
            kind,
            name: name.clone(),
            chunks: layout.chunks(),
            parts: layout.volumes().iter().map(part).collect(),
            layout,
            len: AtomicU64::new(len),
            len_recovered: len,
            sealed: false,
            lsn: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            resizing: AsyncMutex::new(()),
            handles: AtomicUsize::new(0),
        }
    }

    /// The length of the object.
    pub(super) fn len(&self) -> u64 {
        let own = || self.len.load(Ordering::Acquire);
        self.log_len().unwrap_or_else(own)
    }

    /// The length of a log that is open: its leaf's, whatever became of writes that failed.
    fn log_len(&self) -> Option<u64> {
        let leaf = (self.kind == Kind::Log).then(|| self.parts[0].leaf.lock())?;
        leaf.as_ref().map(|leaf| leaf.len())
    }

    /// Whether [`Body::len`] is exact without asking a volume.
    pub(super) fn knows_len(&self) -> bool {
        self.kind != Kind::Log || self.parts[0].fitted.load(Ordering::Acquire)
    }

    pub(super) fn is_open(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }

    /// A sync of the object waits for this edit.
    pub(super) fn wait_for(&self, lsn: Lsn) {
        self.lsn.fetch_max(lsn, Ordering::AcqRel);
    }

    /// The piece that is all of a range; `None` if the range is empty or has several.
    fn only_piece(&self, offset: u64, len: usize) -> Option<Piece> {
        let first = self.chunks.pieces(offset, len as u64).next()?;
        (first.len == len as u64).then_some(first)
    }

    fn part_len(&self, part: usize, len: u64) -> u64 {
        self.chunks.part_len(len, part)
    }
}

/// An open object of a pool.
pub struct Handle {
    pool: Spread,
    body: Arc<Body>,
}

impl Spread {
    pub(super) fn handle(&self, body: Arc<Body>) -> Handle {
        body.handles.fetch_add(1, Ordering::AcqRel);
        Handle { pool: self.clone(), body }
    }

    /// As `open` of the volume, with a handle that knows its object's id.
    ///
    /// # Errors
    /// `NotFound`; for a log also `Unavailable`: only its leaf knows its length.
    pub async fn open_handle(&self, name: &Name) -> Result<Handle> {
        let handle = self.handle(self.0.body(name)?);
        if !handle.body.knows_len() {
            self.0.leaf(&handle.body, 0).await?;
        }
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.body.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some(len) = self.body.log_len() {
                self.body.len.store(len, Ordering::Release);
            }
            // A handle made in between opens the leaves again.
            self.body.parts.iter().for_each(|part| drop(part.leaf.lock().take()));
        }
    }
}

impl Handle {
    /// The number of the object: what caches and heat are kept by, for no other ever has it.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.body.id
    }

    /// The volume that has the byte at `offset`, or would.
    #[must_use]
    pub fn volume_at(&self, offset: u64) -> VolumeId {
        let part = self.body.chunks.pieces(offset, 1).next().map_or(0, |piece| piece.part);
        self.body.parts[part].volume
    }

    fn must_not_be_sealed(&self) -> Result<()> {
        if self.body.sealed {
            let what = format!("{}: was written whole and never changes", self.body.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(())
    }

    /// As [`Inner::leaf`], for a thread that may block.
    fn blocking_leaf(&self, part: usize) -> Result<Arc<dyn Object>> {
        let open = self.body.parts[part].leaf.lock().clone();
        open.map_or_else(|| block_on(self.pool.0.leaf(&self.body, part)), Ok)
    }

    async fn read(&self, offset: u64, mut into: IoBufMut, io: Io) -> Result<IoBufMut> {
        let rest = self.body.len().saturating_sub(offset);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(into.len());
        into.resize(len);
        let mut pieces = self.body.chunks.pieces(offset, len as u64).peekable();
        match pieces.peek() {
            None => return Ok(into),
            // By far the most reads: no second buffer.
            Some(&piece) if piece.len == len as u64 => {
                return self.read_piece(piece, into, io).await;
            }
            Some(_) => {}
        }
        let reads = pieces.map(async |piece| {
            let read = self.read_piece(piece, IoBufMut::zeroed(piece.len as usize), io).await;
            (piece.at as usize, read)
        });
        for (at, read) in join_all(reads).await {
            let read = read?;
            into[at..at + read.len()].copy_from_slice(&read);
        }
        Ok(into)
    }

    /// A piece is read from its volume.
    fn warm(&self, piece: Piece, io: Io) {
        let volume = self.body.parts[piece.part].volume;
        let offset = self.body.chunks.offset(piece.part, piece.inner);
        self.pool.0.heats.count(volume, self.body.id, offset, piece.len, io);
    }

    /// Reads a piece into a buffer of its length.
    async fn read_piece(&self, piece: Piece, into: IoBufMut, io: Io) -> Result<IoBufMut> {
        let leaf = self.pool.0.leaf(&self.body, piece.part).await?;
        self.warm(piece, io);
        let read = leaf.read_at(piece.inner, into, io).await;
        let mut read = read.map_err(|e| self.pool.0.name_part(&self.body, piece.part, e))?;
        // A part is shorter than it could be where the object has a gap.
        let got = read.len();
        read.resize(piece.len as usize);
        read[got..].fill(0);
        Ok(read)
    }

    async fn write(&self, offset: u64, data: IoBuf, io: Io) -> Result<()> {
        self.must_not_be_sealed()?;
        let Some(end) = offset.checked_add(data.len() as u64) else {
            let what = format!("{}: a write ends behind 2^64 bytes", self.body.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        if data.is_empty() {
            return Ok(());
        }
        let writes = self.body.chunks.pieces(offset, data.len() as u64).map(|piece| {
            let at = piece.at as usize;
            self.write_piece(piece, data.slice(at..at + piece.len as usize), io)
        });
        all(join_all(writes).await)?;
        self.body.len.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    async fn write_piece(&self, piece: Piece, data: IoBuf, io: Io) -> Result<()> {
        let leaf = self.pool.0.leaf(&self.body, piece.part).await?;
        let written = leaf.write_at(piece.inner, data, io).await;
        written.map_err(|e| self.pool.0.name_part(&self.body, piece.part, e))
    }

    async fn resize(&self, len: u64) -> Result<()> {
        self.must_not_be_sealed()?;
        let _in_order = self.body.resizing.lock().await;
        if self.body.kind != Kind::Log && len < self.body.len() {
            // The manifest first: a leaf shorter than it says would look like a loss after a crash.
            if let Some(lsn) = self.pool.0.shorten(&self.body, len)? {
                self.pool.0.journal.durable(lsn).await?;
            }
        }
        let parts = 0..self.body.parts.len();
        let cuts = parts.map(|part| self.resize_part(part, self.body.part_len(part, len)));
        all(join_all(cuts).await)?;
        self.body.len.store(len, Ordering::Release);
        Ok(())
    }

    async fn resize_part(&self, part: usize, len: u64) -> Result<()> {
        let leaf = self.pool.0.leaf(&self.body, part).await?;
        leaf.set_len(len).await.map_err(|e| self.pool.0.name_part(&self.body, part, e))
    }

    async fn sync_all(&self, io: Io) -> Result<()> {
        if self.body.kind == Kind::Log {
            self.sync_part(0, 0, io).await?;
            self.pool.0.settle(&self.body)?;
        } else {
            let _in_order = self.body.resizing.lock().await;
            let len = self.body.len();
            let parts = 0..self.body.parts.len();
            let syncs = parts.map(|part| self.sync_part(part, self.body.part_len(part, len), io));
            all(join_all(syncs).await)?;
            self.pool.0.commit(&self.body, len)?;
        }
        self.pool.0.journal.durable(self.body.lsn.load(Ordering::Acquire)).await
    }

    /// Syncs a part, at least `len` bytes long.
    async fn sync_part(&self, part: usize, len: u64, io: Io) -> Result<()> {
        let leaf = self.pool.0.leaf(&self.body, part).await?;
        let synced = async {
            // It is shorter where the object has a gap. All parts together shall have its length.
            if leaf.len() < len {
                leaf.set_len(len).await?;
            }
            leaf.sync(io).await
        };
        synced.await.map_err(|e| self.pool.0.name_part(&self.body, part, e))
    }
}

/// The first error, if there is one.
fn all(done: Vec<Result<()>>) -> Result<()> {
    done.into_iter().collect()
}

#[deny(clippy::missing_trait_methods)]
impl Object for Handle {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(self.read(offset, into, io))
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.write(offset, data, io))
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        let rest = usize::try_from(self.body.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = rest.min(into.len());
        match self.body.only_piece(offset, len) {
            None => blocking::read_at(self, offset, into, io),
            Some(piece) => {
                let leaf = self.blocking_leaf(piece.part)?;
                let into = &mut into[..len];
                self.warm(piece, io);
                let read = leaf.blocking_read_at(piece.inner, into, io);
                let read = read.map_err(|e| self.pool.0.name_part(&self.body, piece.part, e))?;
                // A part is shorter than it could be where the object has a gap.
                into[read..].fill(0);
                Ok(len)
            }
        }
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        let (Some(piece), Some(end)) =
            (self.body.only_piece(offset, data.len()), offset.checked_add(data.len() as u64))
        else {
            return blocking::write_at(self, offset, data, io);
        };
        self.must_not_be_sealed()?;
        let leaf = self.blocking_leaf(piece.part)?;
        let written = leaf.blocking_write_at(piece.inner, data, io);
        written.map_err(|e| self.pool.0.name_part(&self.body, piece.part, e))?;
        self.body.len.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.body.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(self.resize(len))
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.sync_all(io))
    }
}

impl Inner {
    /// The leaf of a part, opened if it is not.
    pub(super) async fn leaf(&self, body: &Body, part: usize) -> Result<Arc<dyn Object>> {
        let Part { volume, leaf, opening, fitted } = &body.parts[part];
        if let Some(leaf) = &*leaf.lock() {
            return Ok(Arc::clone(leaf));
        }
        let _one_opens = opening.lock().await;
        if let Some(leaf) = &*leaf.lock() {
            return Ok(Arc::clone(leaf));
        }
        let name = Leaf::Object { id: body.id, kind: body.kind }.name();
        let opened = async {
            let opened = self.seats.volume(*volume)?.open(&name).await?;
            if !fitted.load(Ordering::Acquire) {
                fit(body, part, &*opened).await?;
                fitted.store(true, Ordering::Release);
            }
            Ok(opened)
        };
        let opened: Arc<dyn Object> = opened.await.map_err(|e: Error| {
            let e = if e.kind() == ErrorKind::NotFound { self.lost(body, &name) } else { e };
            self.name_part(body, part, e)
        })?;
        if body.is_open() {
            *leaf.lock() = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    /// Why a leaf is not there.
    fn lost(&self, body: &Body, name: &Name) -> Error {
        let lives = self.journal.look(|state| state.object(body.id).is_some());
        if lives {
            let what = format!("{name} is missing: restore it, or remove the object");
            Error::new(ErrorKind::Corrupt, what)
        } else {
            Error::new(ErrorKind::Gone, "the object was removed")
        }
    }

    /// An error of one part, with the names of the object and the volume.
    fn name_part(&self, body: &Body, part: usize, e: Error) -> Error {
        let label = self.seats.label(body.parts[part].volume);
        e.within(format_args!("{} (object {}) on volume {label}", body.name, body.id))
    }

    /// Records that all of a body's bytes up to `len` are durable, if that is news.
    fn commit(&self, body: &Body, len: u64) -> Result<()> {
        let mut table = self.table.lock();
        let committed = Committed { len, checksum: None };
        if let Some(name) = table.draft_of(body.id) {
            let (id, kind, layout) = (body.id, body.kind, body.layout.clone());
            let create =
                Record::Create { id, kind, layout, committed: Some(committed), name: name.clone() };
            body.wait_for(self.journal.record(vec![create])?.0);
            table.drafts.remove(&name);
            self.placing.lock().complete(body.id, len);
            return Ok(());
        }
        if self.committed_len(body).is_some_and(|known| known != len) {
            let commit = Record::Commit { id: body.id, committed };
            body.wait_for(self.journal.record(vec![commit])?.0);
        }
        Ok(())
    }

    /// Records that a body will be `len` bytes long, if the manifest says it is longer.
    fn shorten(&self, body: &Body, len: u64) -> Result<Option<Lsn>> {
        let _table = self.table.lock();
        if self.committed_len(body).is_none_or(|known| known <= len) {
            return Ok(None);
        }
        let committed = Committed { len, checksum: None };
        let (lsn, _) = self.journal.record(vec![Record::Commit { id: body.id, committed }])?;
        Ok(Some(lsn))
    }

    /// What the manifest says about a body's length, if it says anything.
    fn committed_len(&self, body: &Body) -> Option<u64> {
        self.journal.look(|state| Some(state.object(body.id)?.committed?.len))
    }

    /// Records the first sync of a log.
    fn settle(&self, log: &Body) -> Result<()> {
        if log.settled.load(Ordering::Acquire) {
            return Ok(());
        }
        let _table = self.table.lock();
        // A log without a name needs no record.
        if self.journal.look(|state| state.object(log.id).is_some()) {
            let committed = Committed { len: log.len(), checksum: None };
            let (lsn, _) = self.journal.record(vec![Record::Commit { id: log.id, committed }])?;
            log.wait_for(lsn);
        }
        log.settled.store(true, Ordering::Release);
        Ok(())
    }
}

/// Makes a leaf that was found when the pool was opened as long as the manifest says. Longer means
/// that its end was never synced.
async fn fit(body: &Body, part: usize, leaf: &dyn Object) -> Result<()> {
    if body.kind == Kind::Log {
        body.len.store(leaf.len(), Ordering::Release);
        return Ok(());
    }
    let expected = body.part_len(part, body.len_recovered);
    if leaf.len() < expected {
        let what = format!("{} bytes of {expected} are there: restore it", leaf.len());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    if leaf.len() > expected {
        leaf.set_len(expected).await?;
    }
    Ok(())
}
