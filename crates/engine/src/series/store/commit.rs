//! Writing the log: those who wait write for each other.
//!
//! Whoever gets hold of the writer writes, and syncs, what has queued for all. A future may be dropped in
//! the middle of that; what was under way stays with the writer, and the next one writes the same bytes to
//! the same place again.

use std::collections::VecDeque;
use std::sync::Arc;

use policy::purpose::{Io, Origin, Step};
use volume::{ErrorKind, Intent, IoBuf, Name, Object};

use super::state::Chunk;
use super::{Inner, failed};
use crate::series::Result;

const LOG: Io = Io::new(Origin::UserWrite, Step::Log);

#[derive(Default)]
pub(super) struct Writer {
    open: Option<(u32, Arc<dyn Object>)>,
    under_way: VecDeque<Chunk>,
    /// Older segments that were written to since their last sync.
    unsynced: Vec<Arc<dyn Object>>,
    written: u64,
    synced: u64,
}

impl Inner {
    /// Waits until what was queued up to `ticket` is written, or durable.
    pub(super) async fn commit(&self, ticket: u64, durable: bool) -> Result<()> {
        let mut writer = self.writer.lock().await;
        if writer.written < ticket
            && let Err(error) = self.write_queued(&mut writer).await
        {
            self.fail(&mut writer, &error);
        }
        if durable
            && writer.synced < ticket
            && let Err(error) = self.sync_written(&mut writer).await
        {
            writer.written = writer.synced;
            self.fail(&mut writer, &error);
        }
        drop(writer);
        self.state().queue.failure(ticket).map_or(Ok(()), Err)
    }

    async fn write_queued(&self, writer: &mut Writer) -> Result<()> {
        writer.under_way.append(&mut self.state().queue.chunks);
        while let Some(chunk) = writer.under_way.front() {
            let (segment, offset) = (chunk.segment, chunk.offset);
            let object = match &writer.open {
                Some((open, object)) if *open == segment => Arc::clone(object),
                _ => {
                    let object = self.segment(segment).await?;
                    let before = writer.open.replace((segment, Arc::clone(&object)));
                    writer.unsynced.extend(before.map(|(_, object)| object));
                    object
                }
            };
            let chunk = writer.under_way.front().expect("it is still there");
            let written = object.write_at(offset, IoBuf::from(&chunk.bytes[..]), LOG).await;
            written.map_err(|error| failed(&error))?;
            let chunk = writer.under_way.pop_front().expect("it is still there");
            writer.written = chunk.ticket;
        }
        Ok(())
    }

    async fn sync_written(&self, writer: &mut Writer) -> Result<()> {
        let reached = writer.written;
        while let Some(object) = writer.unsynced.last() {
            object.sync(LOG).await.map_err(|error| failed(&error))?;
            writer.unsynced.pop();
        }
        if let Some((_, object)) = &writer.open {
            object.sync(LOG).await.map_err(|error| failed(&error))?;
        }
        writer.synced = reached;
        Ok(())
    }

    fn fail(&self, writer: &mut Writer, error: &crate::series::Error) {
        tracing::warn!(store = %self.options.name, %error, "the log of points failed: going on in another segment");
        let mut state = self.state();
        state.queue.fail(writer.written, error);
        let ticket = state.queue.ticket;
        drop(state);
        writer.under_way.clear();
        (writer.open, writer.written, writer.synced) = (None, ticket, ticket);
        writer.unsynced.clear();
    }

    /// A segment's object, made if it is not there.
    async fn segment(&self, segment: u32) -> Result<Arc<dyn Object>> {
        let (_, volume) = &self.members[segment as usize % self.members.len()];
        let name = self.segment_name(segment);
        match volume.create(&name, &Intent::LOG).await {
            // Somebody who waited for it gave up.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                volume.open(&name).await.map_err(|error| failed(&error))
            }
            made => made.map_err(|error| failed(&error)),
        }
    }

    /// What a segment is called.
    pub(super) fn segment_name(&self, segment: u32) -> Name {
        let name = format!("{}-wal/{segment:08x}.log", self.options.name);
        Name::new(&name).expect("the store's name was checked")
    }
}
