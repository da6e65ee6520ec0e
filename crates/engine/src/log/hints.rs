//! Hints: each lists the records of a file, so that opening the store need not read it.
//!
//! ```text
//!   file:  |  durable, covered by a hint  |  durable  |  written  |
//!   start:    only the hint is read          read        read, as far as it is whole
//! ```
//! A full file gets one for all of it. An open file gets one for its durable part, once a quarter of a file became durable
//! since the last: the next takes its place. So a start after a crash reads a part of each open file, where it read all. If
//! a hint is missing or damaged, opening reads the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::purpose::{Io, Origin, Step};
use policy::time::Instant;
use volume::buf::PAGE;
use volume::{ErrorKind, Intent, Result};

use super::file::{File, Role};
use super::format::{self, Entries, HintHeader, Layout};
use super::stream::Stream;
use super::writer::Open;
use super::{FileId, Inner};

/// Hints must keep pace with full files, but no caller waits for a single one.
pub(super) const HINT: Io = Io::new(Origin::Merge { space_pressure_percent: 30 }, Step::Data);

/// An open file gets a hint whenever this part of a file became durable: a quarter.
const PARTS: u64 = 4;

/// As long as this is times shorter than what became durable. Hints of small records are almost as long as the records.
const WORTH: u64 = 16;

/// After one, as many times as long as it took: on a disk at its line each costs a turn.
const REST: u32 = 50;

/// The hints of open files that are to be written on a volume.
#[derive(Default)]
pub(super) struct Parts {
    waiting: BTreeMap<FileId, Part>,
    /// When the next may be written.
    next: Instant,
}

impl Parts {
    /// The file is full, or given up.
    pub(super) fn forget(&mut self, id: FileId) {
        self.waiting.remove(&id);
    }

    fn take(&mut self, now: Instant) -> Option<(FileId, Part)> {
        if now < self.next { None } else { self.waiting.pop_first() }
    }
}

/// A hint to be written of the durable part of an open file.
struct Part {
    file: Arc<File>,
    layout: Layout,
    entries: Vec<u8>,
    records: u32,
    covers: u32,
}

impl Part {
    /// `None` if it is not worth a hint, or was given before.
    fn of(open: &mut Open, layout: Layout, file_bytes: u64) -> Option<Self> {
        let grown = open.synced.saturating_sub(open.hinted);
        if grown < file_bytes / PARTS || grown < open.entries.len() as u64 * WORTH {
            return None;
        }
        open.hinted = open.synced;
        let (mut rest, mut records, mut durable, mut covers) = (Entries(&open.entries), 0, 0, 0);
        while let Some(entry) = rest.next() {
            let end = entry.offset + entry.len;
            if u64::from(end) > open.synced {
                break;
            }
            records += 1;
            durable = open.entries.len() - rest.0.len();
            // Padding behind it may not be in the file.
            covers = end;
        }
        Some(Self {
            file: Arc::clone(&open.file),
            layout,
            entries: open.entries[..durable].to_vec(),
            records,
            covers,
        })
    }
}

impl Inner {
    /// To be called after each sync of an open file, once what was synced counts: a file whose records count is not removed
    /// before it is sealed. Queues a hint of what is durable, where that is worth it.
    pub(super) fn synced_open(&self, stream: &Stream, open: &mut Open) {
        if let Some(part) = Part::of(open, stream.layout, self.options.file_bytes) {
            self.disks[stream.member].parts.lock().waiting.insert(open.file.id, part);
            self.notify.notify_all();
        }
    }

    /// Writes the hints of open files that are due; says whether there were any. The caller holds `sealer`, so that none of
    /// them is sealed meanwhile.
    pub(super) async fn hint_parts(&self, member: usize) -> Result<bool> {
        let mut any = false;
        let parts = &self.disks[member].parts;
        loop {
            let began = self.clock.now();
            let Some((id, part)) = parts.lock().take(began) else { return Ok(any) };
            any = true;
            let death = self.state().files.get(&id).map(|facts| facts.death.unwrap_or_default());
            let Some(death) = death else { continue };
            let Part { file, layout, entries, records, covers } = part;
            let header = HintHeader { covers, whole: false, layout, records, death };
            if self.find_room_for_hint(member, entries.len()).await? {
                self.write_hint(member, &file, &header, &entries).await;
            }
            let now = self.clock.now();
            parts.lock().next = now + now.since(began) * REST;
        }
    }

    /// Hints leave free the files that merges write: hints of small records are large, and those of all waiting files
    /// could use up the reserve of merges. Opening reads a file without a hint.
    pub(super) async fn find_room_for_hint(&self, member: usize, bytes: usize) -> Result<bool> {
        self.look_at_space(member).await?;
        let state = self.state();
        let free = state.members[member].fill(state.sequence).free();
        let merged = self.options.file_bytes * self.devices_of_each() as u64;
        Ok(free >= merged + bytes as u64)
    }

    /// Writes a hint in place of the one that the file has, if any. Without it, the next start reads the file.
    pub(super) async fn write_hint(
        &self,
        member: usize,
        file: &File,
        header: &HintHeader,
        entries: &[u8],
    ) {
        let len = self.try_hint(member, file, header, entries).await.unwrap_or_else(|error| {
            tracing::warn!(file = %file.what, %error,
                "the file's hint could not be written: the next start reads the file");
            0
        });
        let mut state = self.state();
        let before = std::mem::replace(&mut state.file_mut(file.id).hint_len, len);
        let own = &mut state.members[member].own;
        *own = own.saturating_sub(before) + len;
    }

    async fn try_hint(
        &self,
        member: usize,
        file: &File,
        header: &HintHeader,
        entries: &[u8],
    ) -> Result<u64> {
        let volume = &self.disks[member].volume;
        let name = self.names.of(Role::Hint(file.id));
        let bytes = format::encode_hint(file.seal, header, entries);
        let mut created = volume.create(&name, &Intent::DATA).await;
        if created.as_ref().is_err_and(|e| e.kind() == ErrorKind::AlreadyExists) {
            // One of a shorter part of the file, of an interrupted attempt, or a damaged one.
            volume.remove(&name).await?;
            created = volume.create(&name, &Intent::DATA).await;
        }
        let object = created?;
        let mut pages = volume::IoBufMut::from(&bytes[..]);
        pages.extend_from_slice(&[0; PAGE][..bytes.len().next_multiple_of(PAGE) - bytes.len()]);
        let len = pages.len() as u64;
        let written = match object.write_at(0, pages.freeze(), HINT).await {
            Ok(()) => self.seal_object(member, &*object, HINT).await,
            failed => failed,
        };
        if written.is_err() {
            // Half a hint takes room for nothing; if it stays, its checksum gives it away.
            drop(object);
            let _ = volume.remove(&name).await;
        }
        written.map(|()| len)
    }
}
