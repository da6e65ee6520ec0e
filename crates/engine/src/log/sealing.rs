//! Sealing full files: each is synced and sealed on its volume, given a hint, and handed to the policy to merge. And
//! syncing or sealing everything.
//!
//! A volume that is a pool keeps the checksum of a sealed object. So it tells later which copy is damaged, and reads none of
//! it after a crash. A file that was [abandoned](Inner::abandon) while a write was under way is only synced: that
//! write may still arrive.
//!
//! The hint is written after the file's own sync. See [`hints`](super::hints).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use policy::purpose::Io;
use volume::{Error, ErrorKind, Name, Object, Result};

use super::file::{File, Role};
use super::format::{HintHeader, Layout};
use super::hints::HINT;
use super::merge::LOOK;
use super::state::Phase;
use super::writeback::Claim;
use super::writer::{Open, Output, Writer};
use super::{FileId, Inner};

/// At most this many files for each device wait to be sealed; beyond it, callers that write seal too. Each holds its hint in
/// memory.
const WAITING_MAX: usize = 16;
/// Files sealed at the same time, for each device: each waits for it three times, and other tasks write there too.
const SEALED_AT_ONCE: usize = 4;

/// Dead files removed at the same time.
const REMOVED_AT_ONCE: usize = 64;

/// A file to be sealed.
pub(super) struct Sealing {
    pub(super) file: Arc<File>,
    layout: Layout,
    entries: Vec<u8>,
    records: u32,
    covers: u64,
    /// No write to it is under way any more.
    is_final: bool,
    is_durable: AtomicBool,
}

impl Sealing {
    /// Of a whole file that an opening found, read and synced.
    pub(super) fn found(
        file: Arc<File>,
        layout: Layout,
        entries: Vec<u8>,
        records: u32,
        covers: u64,
    ) -> Self {
        let is_durable = AtomicBool::new(true);
        Self { file, layout, entries, records, covers, is_final: true, is_durable }
    }
}

impl Inner {
    /// Queues the full open file for sealing, and waits if the queue is long.
    pub(super) async fn seal_open(&self, writer: &Writer, output: &mut Output) -> Result<()> {
        if let Some(open) = output.open.take() {
            self.queue_sealing(writer.stream.member, writer.stream.layout, open, true);
        }
        self.seal_many(writer.stream.member).await
    }

    /// Closes the open file before it is full. If a call on it was interrupted, its effect is unknown.
    pub(super) fn abandon(&self, writer: &Writer, output: &mut Output) {
        let is_final = !std::mem::take(&mut output.writing);
        if let Some(mut open) = output.open.take() {
            open.cut();
            self.queue_sealing(writer.stream.member, writer.stream.layout, open, is_final);
        }
    }

    /// Queues a file for sealing; a file without records is removed instead. `is_final` says that no write to it is
    /// under way.
    pub(super) fn queue_sealing(&self, member: usize, layout: Layout, open: Open, is_final: bool) {
        if open.records == 0 {
            self.state().retire(open.file.id);
            self.let_in(member);
        } else {
            self.state().members[member].dirty.full(open.file.id);
            self.disks[member].parts.lock().forget(open.file.id);
            let sealing = Sealing {
                covers: open.covers(),
                is_final,
                is_durable: (open.synced >= open.covers()).into(),
                file: open.file,
                layout,
                entries: open.entries,
                records: open.records,
            };
            self.disks[member].sealing.lock().push_back(Arc::new(sealing));
        }
        self.notify.notify_all();
    }

    /// Waits while too many files wait to be sealed, and seals some unless another task does.
    pub(super) async fn seal_many(&self, member: usize) -> Result<()> {
        let disk = &self.disks[member];
        loop {
            let seen = self.notify.count();
            let most = WAITING_MAX * self.devices_of_each();
            if disk.sealing.lock().len() <= most {
                return Ok(());
            }
            match disk.sealer.try_lock() {
                Some(_alone) => drop(self.seal_until(member, most).await?),
                None => self.wait(seen, LOOK).await,
            }
        }
    }

    /// Seals all waiting files, and writes the hints of open ones that are due; says whether there were any.
    pub(super) async fn seal_waiting(&self, member: usize) -> Result<bool> {
        let _alone = self.disks[member].sealer.lock().await;
        let sealed = self.seal_until(member, 0).await?;
        Ok(self.hint_parts(member).await? || sealed)
    }

    /// Seals until no more than `left` wait; says whether it sealed any. The caller holds `sealer`.
    async fn seal_until(&self, member: usize, left: usize) -> Result<bool> {
        let mut begun = Vec::new();
        let mut under_way = FuturesUnordered::new();
        let mut outcome = Ok(());
        let at_once = SEALED_AT_ONCE * self.devices_of_each();
        loop {
            while under_way.len() < at_once && outcome.is_ok() {
                let next = {
                    let sealing = self.disks[member].sealing.lock();
                    let is_new = |next: &&Arc<Sealing>| !begun.contains(&next.file.id);
                    let waits = sealing.len() > left + under_way.len();
                    sealing.iter().find(is_new).filter(|_| waits).cloned()
                };
                let Some(next) = next else { break };
                begun.push(next.file.id);
                under_way.push(async {
                    self.seal_one(member, next).await?;
                    self.keep_lease().await
                });
            }
            match under_way.next().await {
                Some(sealed) => outcome = outcome.and(sealed),
                None => return outcome.map(|()| !begun.is_empty()),
            }
        }
    }

    async fn seal_one(&self, member: usize, next: Arc<Sealing>) -> Result<()> {
        let id = next.file.id;
        match self.finish_sealing(member, &next).await {
            Ok(()) => {
                let death = self.state().file_mut(id).death.unwrap_or_default();
                let hint = HintHeader {
                    covers: next.covers as u32,
                    whole: true,
                    layout: next.layout,
                    records: next.records,
                    death,
                };
                if self.find_room_for_hint(member, next.entries.len()).await? {
                    self.write_hint(member, &next.file, &hint, &next.entries).await;
                }
                let mut state = self.state();
                state.seal(id);
            }
            Err(error) if error.kind() == ErrorKind::Poisoned => {
                tracing::warn!(file = %next.file.what, %error,
                    "a sync failed: the file's records are copied elsewhere");
                let mut state = self.state();
                state.file_mut(id).phase = Phase::Doubtful;
                state.members[member].doubtful.push(id);
                state.members[member].dirty.forget(id);
            }
            Err(error) => return Err(error),
        }
        self.disks[member].sealing.lock().retain(|sealing| sealing.file.id != id);
        self.let_in(member);
        self.notify.notify_all();
        Ok(())
    }

    async fn sync_sealing(&self, member: usize, sealing: &Sealing) -> Result<()> {
        if !sealing.is_durable.load(Ordering::SeqCst) {
            let claim = self.claim(member, sealing.file.id, false);
            self.sync_object(member, &*sealing.file.object, HINT).await?;
            claim.end();
            self.became_durable(member, sealing);
        }
        Ok(())
    }

    /// A sync made all of a full file durable. It may have overtaken an earlier one of the same bytes: if that fails, no task
    /// syncs them again.
    fn became_durable(&self, member: usize, sealing: &Sealing) {
        sealing.is_durable.store(true, Ordering::SeqCst);
        self.state().members[member].dirty.forget(sealing.file.id);
        self.let_in(member);
    }

    /// Makes a full file durable, and seals it if it is final. A file that cannot be sealed is as good for the store.
    async fn finish_sealing(&self, member: usize, sealing: &Sealing) -> Result<()> {
        let is_durable = sealing.is_durable.load(Ordering::SeqCst);
        if sealing.is_final {
            let claim = (!is_durable).then(|| self.claim(member, sealing.file.id, false));
            match self.seal_object(member, &*sealing.file.object, HINT).await {
                Ok(()) => {
                    claim.into_iter().for_each(Claim::end);
                    self.became_durable(member, sealing);
                    return Ok(());
                }
                Err(error) if is_durable || error.kind() == ErrorKind::Corrupt => {
                    let file = &sealing.file.what;
                    tracing::warn!(%file, %error, "the file is not sealed on its volume");
                }
                Err(error) => return Err(error),
            }
        }
        self.sync_sealing(member, sealing).await
    }

    /// Seals an object, which makes removals before it durable too.
    pub(super) async fn seal_object(
        &self,
        member: usize,
        object: &dyn Object,
        io: Io,
    ) -> Result<()> {
        let removals = self.state().members[member].removals;
        object.seal(io).await?;
        self.count_sync(member, removals);
        Ok(())
    }

    /// Syncs the files that wait to be sealed, of a partition or of all. Their hints can wait.
    async fn sync_waiting(&self, member: usize, layout: Option<Layout>) -> Result<()> {
        let is_of = |next: &&Arc<Sealing>| layout.is_none_or(|layout| next.layout == layout);
        let waiting: Vec<_> =
            self.disks[member].sealing.lock().iter().filter(is_of).cloned().collect();
        let synced = join_all(waiting.iter().map(|next| self.sync_sealing(member, next))).await;
        let outcome: Result<()> = synced.into_iter().collect();
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Poisoned) {
            // Its records are in doubt from now on, not only once the volume is probed.
            self.seal_waiting(member).await?;
        }
        outcome
    }

    /// Syncs an object, which makes removals before it durable too.
    pub(super) async fn sync_object(
        &self,
        member: usize,
        object: &dyn Object,
        io: Io,
    ) -> Result<()> {
        let removals = self.state().members[member].removals;
        object.sync(io).await?;
        self.count_sync(member, removals);
        Ok(())
    }

    /// A sync that began after this many removals succeeded.
    fn count_sync(&self, member: usize, removals: u64) {
        let mut state = self.state();
        let place = &mut state.members[member];
        place.counts.syncs += 1;
        let before = place.pending_removals.len();
        place.pending_removals.retain(|pending| pending.removal > removals);
        if place.pending_removals.len() < before {
            state.release_deletions();
        }
    }

    /// Makes every answered change durable.
    pub(super) async fn sync_all(&self) -> Result<()> {
        self.sync_partition(None).await?;
        self.must_be_safe()
    }

    /// # Errors
    /// `Poisoned`: a sync failed, and records it was for that count are not copied elsewhere yet.
    fn must_be_safe(&self) -> Result<()> {
        let state = self.state();
        let doubtful = state.files.iter().find(|(_, facts)| facts.is_unsafe()).map(|(&id, _)| id);
        drop(state);
        doubtful.map_or(Ok(()), |id| Err(self.unsafe_error(id)))
    }

    /// Syncs a partition, or all.
    pub(super) async fn sync_partition(&self, layout: Option<Layout>) -> Result<()> {
        let writers: Vec<_> = self.state().writers.values().cloned().collect();
        // Merges make their copies durable before these count.
        let is_of = |writer: &&Arc<Writer>| {
            let of = writer.stream.layout;
            !writer.stream.copies && layout.is_none_or(|layout| layout == of)
        };
        let synced = writers.iter().filter(is_of).map(|writer| self.write_back(writer, false));
        let synced = join_all(synced).await;
        let members = 0..self.disks.len();
        let waiting = join_all(members.map(|member| self.sync_waiting(member, layout))).await;
        synced.into_iter().chain(waiting).collect()
    }

    /// The error for a file whose sync failed and whose records are not copied elsewhere yet.
    pub(super) fn unsafe_error(&self, file: FileId) -> Error {
        let state = self.state();
        let what = state.files.get(&file).map_or("a file", |facts| &facts.handle.what);
        let message = format!(
            "{what}: a sync failed: probe the volume, so that its records are copied elsewhere"
        );
        Error::new(ErrorKind::Poisoned, message)
    }

    /// Seals all files, open ones included, and ends the lease.
    pub(super) async fn seal_everything(&self) -> Result<()> {
        let mut mergers = Vec::new();
        for (member, disk) in self.disks.iter().enumerate() {
            mergers.push(disk.merger.lock().await);
            self.merges_ended(member).await;
        }
        let writers: Vec<_> = self.state().writers.values().cloned().collect();
        let mut outcome = Ok(());
        for writer in writers {
            if !writer.stream.copies {
                outcome = outcome.and(self.write_back(&writer, false).await);
            }
            let mut output = writer.output.lock().await;
            self.abandon(&writer, &mut output);
        }
        for member in 0..self.disks.len() {
            outcome = outcome.and(self.seal_waiting(member).await.map(|_| ()));
        }
        outcome?;
        self.must_be_safe()?;
        self.end_lease().await
    }

    /// Removes dead files that no reader holds, many together, so that they share the syncs of a pool's manifest; says whether
    /// there were any.
    pub(super) async fn remove_dead(&self, member: usize) -> Result<bool> {
        let mut any = false;
        loop {
            let free: Vec<_> = {
                let state = self.state();
                let dying = state.members[member].dying.iter();
                let free = dying.filter(|dying| Arc::strong_count(&dying.handle) == 1);
                let of = |File { id, name, .. }: &File| (*id, name.clone());
                free.map(|dying| of(&dying.handle)).take(REMOVED_AT_ONCE).collect()
            };
            if free.is_empty() {
                return Ok(any);
            }
            let removed = free.iter().map(|(id, name)| self.remove_file(member, *id, name));
            join_all(removed).await.into_iter().collect::<Result<()>>()?;
            any = true;
        }
    }

    async fn remove_file(&self, member: usize, id: FileId, name: &Name) -> Result<()> {
        let volume = &self.disks[member].volume;
        let hint = self.names.of(Role::Hint(id));
        // A crash may leave one of them: a hint without a file is ignored, and a dead file is found dead again.
        let (file, hint) = join(volume.remove(name), volume.remove(&hint)).await;
        for removed in [file, hint] {
            removed.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
        }
        let mut state = self.state();
        let place = &mut state.members[member];
        place.removals += 1;
        let removal = place.removals;
        if let Some(at) = place.dying.iter().position(|dying| dying.handle.id == id) {
            let dying = place.dying.swap_remove(at);
            place.own = place.own.saturating_sub(dying.len);
            place.pending_removals.push(super::state::PendingRemoval {
                layout: dying.layout,
                sequence_min: dying.sequence_min,
                removal,
            });
        }
        Ok(())
    }
}
