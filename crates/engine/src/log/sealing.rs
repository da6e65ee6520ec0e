//! Files that are full: synced, given a hint, and from then on the policy's to merge. And what has to be
//! durable besides: leases, and everything at once.
//!
//! A hint says what a whole, durable file holds, so that nobody has to read it when the store is
//! opened. It is written behind the file's own sync; if it is missing or damaged, the file is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use policy::purpose::{Io, Origin, Step};
use volume::buf::PAGE;
use volume::{Error, ErrorKind, Intent, IoBuf, Name, Object, Result};

use super::file::{File, Role};
use super::format::{self, HintHeader, Layout, Slot};
use super::state::Phase;
use super::writer::{Open, Output, Writer};
use super::{FileId, Inner, WRITE};

/// Hints must keep pace with the files, and nobody waits for one of them.
const HINT: Io = Io::new(Origin::Merge { hunger_percent: 30 }, Step::Data);
/// So many files may wait to be sealed; then those who write seal. Each holds its hint in memory.
const WAITING_MAX: usize = 4;
/// A lease is for this many files' bytes, and for as many files.
const LEASE_FILES: u64 = 64;
/// Ids of files fit the five bytes they have in names and in the index.
const FILES: u64 = 1 << 40;

/// A file that waits to be sealed.
pub(super) struct Sealing {
    pub(super) file: Arc<File>,
    layout: Layout,
    entries: Vec<u8>,
    records: u32,
    covers: u64,
    is_durable: AtomicBool,
}

impl Inner {
    /// The open file is full.
    pub(super) async fn seal_open(&self, writer: &Writer, output: &mut Output) -> Result<()> {
        if let Some(open) = output.open.take() {
            self.claim_stream(writer.stream);
            self.queue_sealing(writer.stream.seat, writer.stream.layout, open);
        }
        if self.disks[writer.stream.seat].sealing.lock().len() > WAITING_MAX {
            self.seal_waiting(writer.stream.seat).await?;
        }
        Ok(())
    }

    /// Nothing is written to the open file any more, because nobody knows what a call did to it.
    pub(super) fn abandon(&self, writer: &Writer, output: &mut Output) {
        if let Some(mut open) = output.open.take() {
            open.cut();
            self.claim_stream(writer.stream);
            self.queue_sealing(writer.stream.seat, writer.stream.layout, open);
        }
    }

    /// The file is sealed by whoever comes next; if nothing counts in it, it is removed.
    pub(super) fn queue_sealing(&self, seat: usize, layout: Layout, open: Open) {
        if open.records == 0 {
            self.state().retire(open.file.id);
        } else {
            let sealing = Sealing {
                covers: open.covers(),
                is_durable: (open.synced >= open.covers()).into(),
                file: open.file,
                layout,
                entries: open.entries,
                records: open.records,
            };
            self.disks[seat].sealing.lock().push_back(Arc::new(sealing));
        }
        self.bell.ring();
    }

    /// Seals what waits; says whether there was anything.
    pub(super) async fn seal_waiting(&self, seat: usize) -> Result<bool> {
        let disk = &self.disks[seat];
        let _one_at_a_time = disk.sealer.lock().await;
        let mut any = false;
        loop {
            let Some(next) = disk.sealing.lock().front().cloned() else { return Ok(any) };
            match self.sync_sealing(seat, &next).await {
                Ok(()) => {
                    let death = self.state().file_mut(next.file.id).death.unwrap_or_default();
                    let hint = HintHeader {
                        covers: next.covers as u32,
                        whole: true,
                        layout: next.layout,
                        records: next.records,
                        death,
                    };
                    let hint_len = self.write_hint(seat, &next.file, &hint, &next.entries).await;
                    let mut state = self.state();
                    let id = next.file.id;
                    let len = hint_len.unwrap_or_else(|error| {
                        tracing::warn!(file = %next.file.what, %error, "no hint: it will be read");
                        0
                    });
                    state.file_mut(id).hint_len = len;
                    state.seats[seat].own += len;
                    state.seal(id);
                    disk.sealing.lock().pop_front();
                }
                Err(error) if error.kind() == ErrorKind::Poisoned => {
                    tracing::warn!(file = %next.file.what, %error, "its records are copied elsewhere");
                    let mut state = self.state();
                    state.file_mut(next.file.id).phase = Phase::Doubtful;
                    state.seats[seat].doubtful.push(next.file.id);
                    disk.sealing.lock().pop_front();
                }
                Err(error) => return Err(error),
            }
            any = true;
            self.bell.ring();
            self.keep_lease().await?;
        }
    }

    async fn sync_sealing(&self, seat: usize, sealing: &Sealing) -> Result<()> {
        if !sealing.is_durable.load(Ordering::SeqCst) {
            self.sync_object(seat, &*sealing.file.object, HINT).await?;
            sealing.is_durable.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Makes durable what waits to be sealed. Hints can wait.
    async fn sync_waiting(&self, seat: usize) -> Result<()> {
        let waiting: Vec<_> = self.disks[seat].sealing.lock().iter().cloned().collect();
        let synced = join_all(waiting.iter().map(|next| self.sync_sealing(seat, next))).await;
        let outcome: Result<()> = synced.into_iter().collect();
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Poisoned) {
            // Its records are in doubt from now on, and not only after the volume was probed.
            self.seal_waiting(seat).await?;
        }
        outcome
    }

    /// Writes and syncs a hint; gives its length.
    pub(super) async fn write_hint(
        &self,
        seat: usize,
        file: &File,
        header: &HintHeader,
        entries: &[u8],
    ) -> Result<u64> {
        let volume = &self.disks[seat].volume;
        let name = self.names.of(Role::Hint(file.id));
        let bytes = format::encode_hint(file.seal, header, entries);
        let mut created = volume.create(&name, &Intent::DATA).await;
        if created.as_ref().is_err_and(|e| e.kind() == ErrorKind::AlreadyExists) {
            // Of an attempt that was given up, or damaged.
            volume.remove(&name).await?;
            created = volume.create(&name, &Intent::DATA).await;
        }
        let object = created?;
        let mut pages = volume::IoBufMut::from(&bytes[..]);
        pages.extend_from_slice(&[0; PAGE][..bytes.len().next_multiple_of(PAGE) - bytes.len()]);
        let len = pages.len() as u64;
        let written = match object.write_at(0, pages.freeze(), HINT).await {
            Ok(()) => self.sync_object(seat, &*object, HINT).await,
            failed => failed,
        };
        if written.is_err() {
            // Half a hint takes room and says nothing; if it stays, it is known by its checksum.
            drop(object);
            let _ = volume.remove(&name).await;
        }
        written.map(|()| len)
    }

    /// Syncs an object, which makes removals before it durable too.
    pub(super) async fn sync_object(&self, seat: usize, object: &dyn Object, io: Io) -> Result<()> {
        let removals = self.state().seats[seat].removals;
        object.sync(io).await?;
        let mut state = self.state();
        let place = &mut state.seats[seat];
        place.counts.syncs += 1;
        let ghosts = place.ghosts.len();
        place.ghosts.retain(|ghost| ghost.removal > removals);
        if place.ghosts.len() < ghosts {
            state.release_deletions();
        }
        Ok(())
    }

    /// Makes everything durable that was answered.
    pub(super) async fn sync_all(&self) -> Result<()> {
        let (writers, begun) = {
            let state = self.state();
            (state.writers.values().cloned().collect::<Vec<_>>(), state.sequence)
        };
        // What merges copy is durable before it counts.
        let writers = writers.iter().filter(|writer| !writer.stream.copies);
        let synced = join_all(writers.map(|writer| self.sync_writer(writer))).await;
        let waiting = join_all((0..self.disks.len()).map(|seat| self.sync_waiting(seat))).await;
        synced.into_iter().chain(waiting).collect::<Result<()>>()?;
        let mut state = self.state();
        let doubtful = state.files.values().find(|f| f.phase == Phase::Doubtful && f.live > 0);
        if let Some(facts) = doubtful {
            let what = &facts.handle.what;
            let message =
                format!("{what}: a sync failed: probe the volume, so that it is copied elsewhere");
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        state.durable = state.durable.max(begun);
        Ok(())
    }

    async fn sync_writer(&self, writer: &Writer) -> Result<()> {
        self.write_back(writer, self.claim_stream(writer.stream)).await
    }

    /// Seals all files, open ones too, and ends the leases where they are.
    pub(super) async fn seal_everything(&self) -> Result<()> {
        let mut mergers = Vec::new();
        for disk in &self.disks {
            mergers.push(disk.merger.lock().await);
        }
        let writers: Vec<_> = self.state().writers.values().cloned().collect();
        let mut outcome = Ok(());
        for writer in writers {
            if !writer.stream.copies {
                outcome = outcome.and(self.sync_writer(&writer).await);
            }
            let mut output = writer.output.lock().await;
            self.abandon(&writer, &mut output);
        }
        for seat in 0..self.disks.len() {
            outcome = outcome.and(self.seal_waiting(seat).await.map(|_| ()));
        }
        outcome?;
        let (sequence, file) = {
            let state = self.state();
            (state.sequence, state.next_file)
        };
        self.write_lease(|_| Some((sequence, file))).await
    }

    /// Renews the lease if half of it is used.
    async fn keep_lease(&self) -> Result<()> {
        let is_low = {
            let state = self.state();
            state.sequence_end - state.sequence < self.lease_bytes() / 2
                || state.file_end - state.next_file < LEASE_FILES / 2
        };
        if is_low { self.renew_lease().await } else { Ok(()) }
    }

    /// Durably takes more sequences and ids of files.
    pub(super) async fn renew_lease(&self) -> Result<()> {
        self.write_lease(|state| {
            let sequence = state.sequence.checked_add(self.lease_bytes())?;
            Some((sequence, state.next_file.checked_add(LEASE_FILES).filter(|&end| end < FILES)?))
        })
        .await
    }

    fn lease_bytes(&self) -> u64 {
        LEASE_FILES * self.options.file_bytes
    }

    async fn write_lease(&self, ends: impl Fn(&super::State) -> Option<(u64, u64)>) -> Result<()> {
        let mut lease = self.lease.lock().await;
        let (sequence_end, file_end) = ends(&self.state()).ok_or_else(|| {
            let message = "the log store has used up its sequences or files: copy it to a new one";
            Error::new(ErrorKind::Invalid, message)
        })?;
        lease.generation += 1;
        let slot = Slot {
            store: self.id,
            generation: lease.generation,
            sequence_end,
            file_end,
            volumes: self.disks.len() as u16,
        };
        for seat in 0..self.disks.len() {
            self.write_slot(seat, &slot).await?;
        }
        let mut state = self.state();
        state.sequence_end = sequence_end;
        state.file_end = file_end;
        Ok(())
    }

    /// Makes the own objects of volumes that are new. The number of volumes stays what it was: a crash
    /// may come before all of them have one.
    pub(super) async fn begin_lease(&self, known: Option<Slot>, new: &[bool]) -> Result<()> {
        let mut lease = self.lease.lock().await;
        lease.generation += 1;
        let (sequence_end, file_end) = {
            let state = self.state();
            (state.sequence, state.next_file)
        };
        let slot = Slot {
            store: self.id,
            generation: lease.generation,
            sequence_end,
            file_end,
            volumes: known.map_or(0, |slot| slot.volumes),
        };
        for seat in (0..self.disks.len()).filter(|&seat| new[seat]) {
            self.write_slot(seat, &slot).await?;
        }
        Ok(())
    }

    async fn write_slot(&self, seat: usize, slot: &Slot) -> Result<()> {
        let disk = &self.disks[seat];
        let failed =
            |e: Error| e.within(format_args!("volume {}: the log store's lease", disk.label));
        let at = slot.generation % 2 * PAGE as u64;
        let page = IoBuf::from(&slot.encode()[..]);
        disk.own.write_at(at, page, WRITE).await.map_err(failed)?;
        self.sync_object(seat, &*disk.own, WRITE).await.map_err(failed)
    }

    /// Removes files that nothing leads to and nobody reads; says whether there were any.
    pub(super) async fn bury(&self, seat: usize) -> Result<bool> {
        let disk = &self.disks[seat];
        let mut any = false;
        loop {
            let next = {
                let mut state = self.state();
                let dying = &mut state.seats[seat].dying;
                let free = dying.iter().position(|dying| Arc::strong_count(&dying.handle) == 1);
                let Some(at) = free else { return Ok(any) };
                let File { id, ref name, .. } = *dying[at].handle;
                (id, name.clone())
            };
            let (next, name) = next;
            self.remove_objects(disk, next, &name).await?;
            let mut state = self.state();
            let place = &mut state.seats[seat];
            place.removals += 1;
            let removal = place.removals;
            if let Some(at) = place.dying.iter().position(|dying| dying.handle.id == next) {
                let dying = place.dying.swap_remove(at);
                place.own = place.own.saturating_sub(dying.len);
                place.ghosts.push(super::state::Ghost {
                    layout: dying.layout,
                    sequence_min: dying.sequence_min,
                    removal,
                });
            }
            any = true;
        }
    }

    /// The file goes before its hint: a hint alone means nothing.
    async fn remove_objects(&self, disk: &super::Disk, id: FileId, name: &Name) -> Result<()> {
        for name in [name, &self.names.of(Role::Hint(id))] {
            match disk.volume.remove(name).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
