//! Leases: which sequences and ids of files the store may give, durably, before it gives them.
//!
//! So whatever comes back after a crash, a file that was removed above all, is older than what is written later.
//! A lease is on every volume when the store was opened. Later one volume is enough, since a store opens on
//! all of its volumes or not at all, and the newest lease of any counts: a volume that is full or away does not end it.
//!
//! A lease does not keep a second program out. Two programs that open one store are kept apart by the volumes, each of which is
//! locked by the one that has it open ([`volume::dir`]).

use futures_util::future::join_all;
use futures_util::lock::MutexGuard;
use volume::buf::PAGE;
use volume::{Error, ErrorKind, IoBuf, Result};

use super::file::Role;
use super::format::Slot;
use super::state::State;
use super::{Inner, Lease, WRITE};

/// A lease is for this many files' bytes on each volume, and for as many files.
const LEASE_FILES: u64 = 64;
/// Ids of files fit the five bytes they have in names and in the index.
const FILES: u64 = 1 << 40;

/// On how many volumes a lease has to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum On {
    All,
    Any,
}

impl Inner {
    /// Renews the lease if half of it is used.
    pub(super) async fn keep_lease(&self) -> Result<()> {
        let is_low = {
            let state = self.state();
            state.sequence_end - state.sequence < self.lease_bytes() / 2
                || state.file_end - state.next_file < self.lease_files() / 2
        };
        if is_low { self.renew_lease().await } else { Ok(()) }
    }

    /// Durably takes more sequences and ids of files, once for all who ask for it at the same time.
    pub(super) async fn renew_lease(&self) -> Result<()> {
        let ends = |state: &State| (state.sequence_end, state.file_end);
        let known = ends(&self.state());
        let lease = self.lease.lock().await;
        if ends(&self.state()) != known {
            return Ok(());
        }
        self.write_lease(lease, On::Any, |state| self.more(state)).await
    }

    /// Takes the first lease, on every volume: that makes removals before it durable.
    pub(super) async fn open_lease(&self) -> Result<()> {
        self.write_lease(self.lease.lock().await, On::All, |state| self.more(state)).await
    }

    /// Ends the lease where the store is.
    pub(super) async fn end_lease(&self) -> Result<()> {
        let lease = self.lease.lock().await;
        self.write_lease(lease, On::Any, |state| Some((state.sequence, state.next_file))).await
    }

    fn more(&self, state: &State) -> Option<(u64, u64)> {
        let sequence = state.sequence.checked_add(self.lease_bytes())?;
        let file = state.next_file.checked_add(self.lease_files());
        Some((sequence, file.filter(|&end| end < FILES)?))
    }

    fn lease_files(&self) -> u64 {
        LEASE_FILES * self.disks.len() as u64
    }

    fn lease_bytes(&self) -> u64 {
        self.lease_files() * self.options.file_bytes
    }

    async fn write_lease(
        &self,
        mut lease: MutexGuard<'_, Lease>,
        on: On,
        ends: impl Fn(&State) -> Option<(u64, u64)>,
    ) -> Result<()> {
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
        let seats = 0..self.disks.len();
        let written = join_all(seats.map(|seat| self.write_slot(seat, &slot, &lease))).await;
        let mut failure = None;
        let mut count = 0;
        for (seat, written) in written.into_iter().enumerate() {
            let was_behind = std::mem::replace(&mut lease.behind[seat], written.is_err());
            match written {
                Ok(()) => {
                    lease.pages[seat] = PAGE as u64 - lease.pages[seat];
                    count += 1;
                }
                Err(error) => {
                    if !was_behind {
                        tracing::warn!(%error, "the other volumes have it");
                    }
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if on == On::All || count == 0 => return Err(error),
            _ => {}
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
            self.write_slot(seat, &slot, &lease).await?;
            lease.pages[seat] = PAGE as u64 - lease.pages[seat];
        }
        Ok(())
    }

    /// Writes to the page that may go: the other one stays whole whatever becomes of this one.
    async fn write_slot(&self, seat: usize, slot: &Slot, lease: &Lease) -> Result<()> {
        let disk = &self.disks[seat];
        let failed =
            |e: Error| e.within(format_args!("volume {}: the log store's lease", disk.label));
        if lease.behind[seat] {
            // What failed before says so for ever.
            let object = disk.volume.open(&self.names.of(Role::Store)).await.map_err(failed)?;
            *disk.own.lock() = object;
        }
        let own = std::sync::Arc::clone(&disk.own.lock());
        let page = IoBuf::from(&slot.encode()[..]);
        own.write_at(lease.pages[seat], page, WRITE).await.map_err(failed)?;
        self.sync_object(seat, &*own, WRITE).await.map_err(failed)
    }
}
