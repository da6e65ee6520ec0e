//! Leases: the sequences and file ids that the store may issue, made durable before it issues them.
//!
//! So any file that reappears after a crash, even a removed one, is older than later writes. Opening the store writes
//! the lease to every volume. Later one volume is enough, since a store opens only with all of its volumes, and the
//! newest lease on any of them counts: a full or missing volume does not block renewal.
//!
//! A lease does not keep a second program out: each volume is locked by the program that has it open ([`volume::dir`]).

use futures_util::future::join_all;
use futures_util::lock::MutexGuard;
use volume::buf::PAGE;
use volume::{Error, ErrorKind, IoBuf, Result};

use super::file::Role;
use super::format::Slot;
use super::state::LogState;
use super::{Inner, Lease, WRITE};

/// A lease covers the bytes of this many files on each volume, and as many file ids.
const LEASE_FILES: u64 = 64;
/// File ids fit the five bytes that names and the index have for them.
const FILES: u64 = 1 << 40;

/// The volumes that must have a lease.
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

    /// Durably leases more sequences and file ids, once for all concurrent callers.
    pub(super) async fn renew_lease(&self) -> Result<()> {
        let ends = |state: &LogState| (state.sequence_end, state.file_end);
        let known = ends(&self.state());
        let lease = self.lease.lock().await;
        if ends(&self.state()) != known {
            return Ok(());
        }
        self.write_lease(lease, On::Any, |state| self.more(state)).await
    }

    /// Writes the first lease to every volume, which makes earlier removals durable.
    pub(super) async fn open_lease(&self) -> Result<()> {
        self.write_lease(self.lease.lock().await, On::All, |state| self.more(state)).await
    }

    /// Ends the lease at the current sequence and file id.
    pub(super) async fn end_lease(&self) -> Result<()> {
        let lease = self.lease.lock().await;
        self.write_lease(lease, On::Any, |state| Some((state.sequence, state.next_file))).await
    }

    fn more(&self, state: &LogState) -> Option<(u64, u64)> {
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
        ends: impl Fn(&LogState) -> Option<(u64, u64)>,
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
        let members = 0..self.disks.len();
        let written = join_all(members.map(|member| self.write_slot(member, &slot, &lease))).await;
        let mut failure = None;
        let mut count = 0;
        for (member, written) in written.into_iter().enumerate() {
            let was_behind = std::mem::replace(&mut lease.behind[member], written.is_err());
            match written {
                Ok(()) => {
                    lease.pages[member] = PAGE as u64 - lease.pages[member];
                    count += 1;
                }
                Err(error) => {
                    if !was_behind {
                        tracing::warn!(%error, "the lease could not be written to one volume; the others have it");
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

    /// Creates the store's own object on new volumes. The stored number of volumes stays: a crash may come before all
    /// of them have one.
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
        for member in (0..self.disks.len()).filter(|&member| new[member]) {
            self.write_slot(member, &slot, &lease).await?;
            lease.pages[member] = PAGE as u64 - lease.pages[member];
        }
        Ok(())
    }

    /// Writes the older of the two pages: the other one stays whole if this write fails.
    async fn write_slot(&self, member: usize, slot: &Slot, lease: &Lease) -> Result<()> {
        let disk = &self.disks[member];
        let failed =
            |e: Error| e.within(format_args!("volume {}: the log store's lease", disk.label));
        if lease.behind[member] {
            // A handle whose sync failed keeps failing: open another one.
            let object = disk.volume.open(&self.names.of(Role::Store)).await.map_err(failed)?;
            *disk.own.lock() = object;
        }
        let own = std::sync::Arc::clone(&disk.own.lock());
        let page = IoBuf::from(&slot.encode()[..]);
        own.write_at(lease.pages[member], page, WRITE).await.map_err(failed)?;
        self.sync_object(member, &*own, WRITE).await.map_err(failed)
    }
}
