//! Merging: copies the live records of a file to another one, and removes the file. The policy picks the file.
//!
//! ```text
//!   pick ─▶ entries of its hint ─▶ those the index leads to ─▶ read ─▶ write ─▶ sync
//!        ─▶ index: the copies, where it still leads to the originals ─▶ unlink after the last reader
//! ```
//! A crash at any point loses nothing. Until the copies are durable the index leads to the originals. Until the
//! originals are gone a start finds both, with equal sequences, and takes either. Puts of the same keys go on
//! meanwhile; a copy of a record that a put superseded is dead at once.
//!
//! A file whose records are all dead is removed without reading it. The records that superseded them have to be durable
//! first, or a crash would lose both.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, join4, select};
use policy::merge::{Death, Fill, Group, Pick, Placed, Reading, Written, reading};
use policy::purpose::{Io, Origin, Step};
use volume::buf::PAGE;
use volume::heartbeat::Heartbeat;
use volume::layer::reserve::Reserve;
use volume::{Error, ErrorKind, IoBufMut, Result};

use super::dirty::AT_ONCE;
use super::file::{File, Role};
use super::format::{self, Entries, Entry, Head, Kind, Layout};
use super::index::Place;
use super::scan;
use super::state::Phase;
use super::stream::Stream;
use super::writer::{Open, Writer};
use super::{Durability, FileId, Inner};

/// How often the volume's free space is read, and work is looked for without a notification.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// The pause after a failure.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The limit on the time of one merge, seal or sync: a merge copies a file at the pace of its volume's idle class.
pub(super) const ROUND_MAX: Duration = Duration::from_secs(3600);
/// The space that the copies of a merge take besides their records: the header of a file, and the padding of its last
/// page.
const FILE_ENDS: u64 = 2 * PAGE as u64;
/// From this space pressure on, in percent, syncs no longer wait for others.
const SYNC_AT_ONCE: u8 = 50;
/// Where puts are refused, open files are merged when more than 1/2 of them is dead; where nothing else is left to
/// merge, when more than 1/16 is.
const DEAD_USUAL: u64 = 2;
/// See `DEAD_USUAL`.
const DEAD_MIN: u64 = 16;
/// The most files that a task passes over because another one merges a file of their layout.
const PASSED_MAX: usize = 16;
/// Bytes read at a time. A disk that does another I/O in between takes some 6 ms to come back: a fifth of the time that
/// it reads this much in.
const READ_MAX: u64 = 4 << 20;
/// Bytes of copies written at a time.
const WRITE_MAX: usize = 4 << 20;

/// A live record of the merged file.
struct Live {
    offset: u32,
    len: u32,
    kind: Kind,
    sequence: u64,
    key: Box<[u8]>,
}

impl Live {
    const fn place(&self, file: FileId) -> Place {
        Place { file, offset: self.offset, len: self.len, sequence: self.sequence }
    }
}

/// A copied record, which counts once all copies are durable.
struct Copied {
    key: Box<[u8]>,
    kind: Kind,
    from: u32,
    to: Place,
    death: Death,
}

/// Returns a file to the policy as a candidate on drop, unless its merge ended well.
struct Picked<'a> {
    inner: &'a Inner,
    member: usize,
    file: FileId,
    is_over: bool,
}

impl Drop for Picked<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.inner.state().members[self.member].merges.failed(self.file);
        }
    }
}

/// The claim of a layout: until this is dropped, no other task merges a file of it.
struct Merging<'a> {
    inner: &'a Inner,
    member: usize,
    layout: Layout,
}

impl Drop for Merging<'_> {
    fn drop(&mut self) {
        self.inner.disks[self.member].merging.lock().remove(&self.layout);
        self.inner.notify.notify_all();
    }
}

/// The files that copies go to.
struct Outputs {
    writers: Vec<Arc<Writer>>,
    /// Full files, which are sealed once their records count.
    full: Vec<(Layout, Open)>,
}

impl Outputs {
    /// Ends the open files, of which one cannot be written any more. Records that were not written are not copied. Says whether
    /// a file had any that were.
    async fn end(&mut self, layout: Layout, copied: &mut Vec<Copied>) -> bool {
        let mut any = false;
        for writer in &self.writers {
            let Some(mut open) = writer.output.lock().await.open.take() else { continue };
            let (id, end) = (open.file.id, open.cut_unwritten());
            copied.retain(|copied| copied.to.file != id || u64::from(copied.to.offset) < end);
            any |= open.records > 0;
            self.full.push((layout, open));
        }
        any
    }
}

impl Inner {
    pub(super) async fn tend(&self, member: usize) {
        let disk = &self.disks[member];
        let merges = (0..self.devices_of_each())
            .map(|_| self.again_and_again(member, &disk.merges, || self.merge_once(member)));
        let merges = join_all(merges);
        // A hint may wait long for the device: dead files are removed meanwhile.
        let seals = self.again_and_again(member, &disk.seals, || self.seal_waiting(member));
        let syncs = async {
            let Durability::Interval(interval) = self.options.durability else { return };
            // One task syncs all volumes.
            if member > 0 {
                return;
            }
            self.syncs.started();
            while !self.is_closing() {
                self.pass(interval).await;
                let synced = self.sync_all().await;
                self.syncs.record(&synced);
                if let Err(error) = synced {
                    tracing::warn!(%error, "a sync of the log store failed");
                }
            }
            self.syncs.ended();
        };
        let pieces = AT_ONCE * self.devices_of_each();
        let writes = join_all((0..pieces).map(|_| self.write_back_always(member)));
        join4(merges, seals, syncs, writes).await;
    }

    /// Repeats some work, after each notification and at least every [`LOOK`], until the store is closed.
    async fn again_and_again<W: Future<Output = Result<bool>>>(
        &self,
        member: usize,
        heartbeat: &Heartbeat,
        work: impl Fn() -> W,
    ) {
        heartbeat.started();
        while !self.is_closing() {
            let seen = self.notify.count();
            let done = work().await;
            heartbeat.record(&done);
            match done {
                Ok(true) => {}
                Ok(false) => self.wait(seen, LOOK).await,
                Err(error) => {
                    let volume = &self.disks[member].label;
                    tracing::warn!(%volume, %error, "background work of the log store failed, and is tried again");
                    // The failed attempt may have notified this task itself.
                    self.pass(PAUSE).await;
                }
            }
        }
        heartbeat.ended();
    }

    /// Waits for a notification, but no longer than `time`.
    pub(super) async fn wait(&self, seen: u64, time: Duration) {
        select(self.notify.after(seen), self.clock.sleep(time)).await;
    }

    /// Waits for all of this time, or until the store is closed.
    pub(super) async fn pass(&self, time: Duration) {
        let mut over = self.clock.sleep(time);
        while !self.is_closing() {
            let seen = self.notify.count();
            if let Either::Right(_) = select(self.notify.after(seen), &mut over).await {
                return;
            }
        }
    }

    pub(super) async fn tend_once(&self, member: usize) -> Result<bool> {
        let sealed = self.seal_waiting(member).await?;
        Ok(self.merge_once(member).await? || sealed)
    }

    /// Removes dead files, and merges one file if the policy picks one; says whether it did either.
    async fn merge_once(&self, member: usize) -> Result<bool> {
        let mut any = false;
        let one_at_a_time = self.disks[member].merger.lock().await;
        any |= self.remove_dead(member).await?;
        self.look_at_space(member).await?;
        any |= self.keep_reserve(member).await?;
        let doubtful = {
            let state = self.state();
            let id = state.members[member].doubtful.first().copied();
            id.map(|id| (id, state.files[&id].layout))
        };
        if let Some((file, layout)) = doubtful {
            if let Some(_merging) = self.begin_merging(member, layout) {
                self.rescue(member, file).await?;
                any = true;
            }
            return Ok(any);
        }
        let Some((pick, merging)) = self.pick(member) else {
            return Ok(self.seal_dead(member, DEAD_USUAL) || any);
        };
        drop(one_at_a_time);
        if let Err(error) = self.merge(member, pick).await {
            self.state().members[member].counts.failed += 1;
            return Err(error);
        }
        drop(merging);
        let _one_at_a_time = self.disks[member].merger.lock().await;
        self.remove_dead(member).await?;
        Ok(true)
    }

    /// The file to merge next. Others of its layout are not merged meanwhile.
    fn pick(&self, member: usize) -> Option<(Pick, Merging<'_>)> {
        let mut busy = Vec::new();
        let next = || {
            let mut state = self.state();
            let sequence = state.sequence;
            let place = &mut state.members[member];
            let fill = place.fill(sequence);
            let without =
                |bytes: u64| Fill { used: (fill.used + bytes).min(fill.capacity), ..fill };
            // Count the room of a refused put as used, or the policy may see no shortage. If it picks no file then, the
            // copies of a merge may use that room.
            let pick = place.merges.next(&without(place.refused.max(FILE_ENDS)));
            let pick = pick.or_else(|| place.merges.next(&without(FILE_ENDS)))?;
            Some((pick, state.files[&pick.file].layout))
        };
        let mut found = None;
        while busy.len() < PASSED_MAX
            && let Some((pick, layout)) = next()
        {
            found = self.begin_merging(member, layout).map(|merging| (pick, merging));
            if found.is_some() {
                break;
            }
            busy.push(pick.file);
        }
        let mut state = self.state();
        busy.into_iter().for_each(|file| state.members[member].merges.failed(file));
        found
    }

    /// `None` while a file of this layout is being merged.
    fn begin_merging(&self, member: usize, layout: Layout) -> Option<Merging<'_>> {
        let is_free = self.disks[member].merging.lock().insert(layout);
        // Dropping one ends the merge: none is made in vain.
        is_free.then(|| Merging { inner: self, member, layout })
    }

    /// Waits until no file is being merged. The caller holds `merger`, so no merge begins.
    pub(super) async fn merges_ended(&self, member: usize) {
        loop {
            let seen = self.notify.count();
            if self.disks[member].merging.lock().is_empty() {
                return;
            }
            self.wait(seen, LOOK).await;
        }
    }

    pub(super) async fn look_at_space(&self, member: usize) -> Result<()> {
        let disk = &self.disks[member];
        let own = self.state().members[member].own;
        let held = || disk.reserve.as_ref().map_or(0, Reserve::held);
        let before = held();
        let space = disk.volume.space().await;
        let mut state = self.state();
        let place = &mut state.members[member];
        place.away = space.as_ref().err().map(ToString::to_string);
        let mut space = space?;
        // The reserve may have changed meanwhile: count the smaller size as free.
        space.free += before.min(held());
        // Bytes counted while the volume was asked may be in the answer or not: assume that they are not.
        (place.space, place.own_then) = (space, own);
        Ok(())
    }

    /// Restores the reserve, as far as there is room; says whether it grew.
    async fn keep_reserve(&self, member: usize) -> Result<bool> {
        let disk = &self.disks[member];
        let Some(reserve) = &disk.reserve else { return Ok(false) };
        let kept = self.state().members[member].limits.kept();
        match reserve.approach(kept).await {
            Ok(true) => {
                self.look_at_space(member).await?;
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                tracing::debug!(volume = %disk.label, %error, "reserving room failed");
                Ok(false)
            }
        }
    }

    /// Seals waiting files, removes dead ones and merges one, or waits for a merge; says whether it did any of these. For
    /// work that needs room to go on.
    pub(super) async fn make_room(&self, member: usize) -> Result<bool> {
        if self.state().members[member].away.is_some() {
            return Ok(false);
        }
        let seen = self.notify.count();
        if self.tend_once(member).await? || self.seal_dead(member, DEAD_MIN) {
            return Ok(true);
        }
        // Another task merges what this one could.
        let is_under_way = !self.disks[member].merging.lock().is_empty();
        if is_under_way {
            self.wait(seen, LOOK).await;
        }
        Ok(is_under_way)
    }

    /// Where puts are refused, closes open files of which more than 1/`share` is dead, so that they can be merged; says
    /// whether there were any.
    fn seal_dead(&self, member: usize, share: u64) -> bool {
        let writers: Vec<_> = {
            let state = self.state();
            if !state.members[member].is_refusing(state.sequence) {
                return false;
            }
            let of_member = |w: &&Arc<Writer>| w.stream.member == member;
            state.writers.values().filter(of_member).cloned().collect()
        };
        let mut any = false;
        for writer in writers {
            let Some(mut output) = writer.output.try_lock() else { continue };
            let is_idle = writer.is_idle() && output.group.is_empty() && !output.writing;
            let Some(open) = output.open.as_ref().filter(|_| is_idle) else { continue };
            let is_dead = {
                let state = self.state();
                let facts = &state.files[&open.file.id];
                let needed = facts.live + facts.deletions;
                facts.records.saturating_sub(needed) > facts.records / share
            };
            if is_dead {
                self.abandon(&writer, &mut output);
                any = true;
            }
        }
        any
    }

    async fn merge(&self, member: usize, pick: Pick) -> Result<()> {
        let mut picked = Picked { inner: self, member, file: pick.file, is_over: false };
        let io = Io::new(
            Origin::Merge { space_pressure_percent: pick.space_pressure_percent },
            Step::Data,
        );
        let (is_dead, file) = {
            let state = self.state();
            let facts = &state.files[&pick.file];
            let is_dead = facts.live == 0 && (facts.deletions == 0 || facts.deletions_dead);
            (is_dead, Arc::clone(&facts.handle))
        };
        let whole = is_dead || self.copy(member, &file, io).await?;
        drop(file);
        self.release(pick.file, whole, self.patience(pick.space_pressure_percent)).await?;
        picked.is_over = true;
        let mut state = self.state();
        let counts = &mut state.members[member].counts;
        *(if is_dead { &mut counts.died_whole } else { &mut counts.merged }) += 1;
        Ok(())
    }

    /// How long a file to be removed waits for other syncs to make the records durable that superseded its own. With
    /// low space pressure puts go first, if the store has several devices: an extra sync on one would hold up the others.
    fn patience(&self, space_pressure_percent: u8) -> Duration {
        let waits = space_pressure_percent < SYNC_AT_ONCE && self.options.devices > 1;
        if waits { LOOK } else { Duration::ZERO }
    }

    /// Copies the records that a failed sync left in doubt.
    async fn rescue(&self, member: usize, id: FileId) -> Result<()> {
        let io = Io::new(Origin::Merge { space_pressure_percent: 100 }, Step::Data);
        let file = Arc::clone(&self.state().files[&id].handle);
        let whole = self.copy(member, &file, io).await?;
        drop(file);
        if whole {
            // The copies have those that are needed.
            self.state().file_mut(id).deletions = 0;
        }
        let released = self.release(id, whole, Duration::ZERO).await;
        let mut state = self.state();
        let doubtful = &mut state.members[member].doubtful;
        doubtful.retain(|&doubtful| doubtful != id);
        if released.is_err() {
            // Others first: this one may depend on them.
            doubtful.push(id);
        }
        released
    }

    /// Removes a file whose live records were copied, once the records that superseded the others are durable. A
    /// damaged file stays, with the records left in it.
    pub(super) async fn release(&self, id: FileId, whole: bool, patience: Duration) -> Result<()> {
        loop {
            let (superseding, layout) = {
                let state = self.state();
                let facts = &state.files[&id];
                (facts.superseding_max, facts.layout)
            };
            // Records of its own partition superseded its records, unless it was written with another number of
            // partitions.
            let layout = Some(layout).filter(|of| of.partitions == self.options.partitions);
            if self.options.durability != Durability::Always {
                self.make_durable(superseding, layout, id, patience).await?;
            }
            let mut state = self.state();
            if state.files[&id].superseding_max != superseding {
                continue;
            }
            let facts = state.file_mut(id);
            if whole && facts.live == 0 {
                state.retire(id);
            } else {
                facts.phase = Phase::Damaged;
                let member = facts.member;
                state.members[member].merges.removed(id);
            }
            return Ok(());
        }
    }

    /// Copies the live records of a file; the index leads to the copies on return. False if some are damaged, and stay.
    /// So do all of them if the device cannot read which records the file has.
    pub(super) async fn copy(&self, member: usize, file: &Arc<File>, io: Io) -> Result<bool> {
        let mut live = match self.live(member, file, io).await {
            Err(error) if error.kind().is_damage() => {
                self.note_damage(file, 0, &error);
                return Ok(false);
            }
            live => live?,
        };
        let layout = self.state().files[&file.id].layout;
        let mut outputs = Outputs { writers: Vec::new(), full: Vec::new() };
        let mut copied = Vec::new();
        let outcome = loop {
            let before = copied.len();
            let outcome =
                self.copy_live(member, file, layout, &live, io, &mut outputs, &mut copied).await;
            let outcome = match outcome {
                Ok(whole) => self.finish(member, &outputs, io).await.map(|()| whole),
                Err(error) => Err(error),
            };
            if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace) {
                // In a pool, the volume of an output may be full alone: the rest goes to others.
                if outputs.end(layout, &mut copied).await || copied.len() > before {
                    let done: BTreeSet<_> = copied.iter().map(|copied| copied.from).collect();
                    live.retain(|live| !done.contains(&live.offset));
                    continue;
                }
            }
            break outcome;
        };
        if outcome.is_ok() {
            self.switch(file.id, &copied);
        }
        // The next merge goes on with open copies; those of a failed merge are abandoned.
        let full = std::mem::take(&mut outputs.full);
        for (layout, mut open) in full {
            if outcome.is_ok() {
                open.counts()
            } else {
                open.cut()
            }
            self.queue_sealing(member, layout, open, true);
        }
        for writer in &outputs.writers {
            let mut output = writer.output.lock().await;
            if outcome.is_err() {
                self.abandon(writer, &mut output);
            } else if let Some(open) = &mut output.open {
                open.counts();
                self.synced_open(&writer.stream, open);
            }
            output.writing = false;
        }
        if outcome.is_ok() {
            self.seal_closed_groups(member, &outputs);
        }
        outcome
    }

    /// Abandons open files of groups that get no more records.
    fn seal_closed_groups(&self, member: usize, outputs: &Outputs) {
        let closed: Vec<_> = {
            let state = self.state();
            let groups = &state.members[member].groups;
            let of_member = |w: &&Arc<Writer>| w.stream.member == member;
            let writers = state.writers.values().filter(of_member);
            let closed = writers.filter(|w| !groups.is_open(w.stream.group));
            let used = |w: &Arc<Writer>| outputs.writers.iter().any(|used| Arc::ptr_eq(used, w));
            closed.filter(|&w| !used(w)).cloned().collect()
        };
        for writer in closed {
            let Some(mut output) = writer.output.try_lock() else { continue };
            let idle = writer.is_idle() && output.group.is_empty() && !output.writing;
            if idle && output.open.is_some() {
                self.abandon(&writer, &mut output);
            }
        }
    }

    /// The live records of a file, in its order.
    async fn live(&self, member: usize, file: &File, io: Io) -> Result<Vec<Live>> {
        let entries = self.entries(member, file, io).await?;
        let mut state = self.state();
        let older: Vec<_> = state.older(file.id).collect();
        let first_under_way = state.first_under_way();
        let needed = |entry: &Entry<'_>| {
            let hash = format::key_hash(entry.key);
            let may_hold =
                |&(layout, min): &(Layout, u64)| min < entry.sequence && layout.holds(hash);
            first_under_way < entry.sequence || older.iter().any(may_hold)
        };
        // Where a put stands in for a deletion that is needed, the file stays until that put is durable.
        let stands_in = |entry: Entry<'_>| {
            let counts = entry.kind == Kind::Tombstone && needed(&entry);
            state.index.get(entry.key).filter(|place| counts && !place.is_deleted())
        };
        let superseding = Entries(&entries).filter_map(stands_in).map(|place| place.sequence).max();
        let lives = |entry: &Entry<'_>| match entry.kind {
            Kind::Put => {
                let place = state.index.get(entry.key);
                place.is_some_and(|place| (place.file, place.offset) == (file.id, entry.offset))
            }
            Kind::Tombstone => state.is_deletion_newest(entry.key) && needed(entry),
        };
        let live = Entries(&entries).filter(lives).map(|entry| Live {
            offset: entry.offset,
            len: entry.len,
            kind: entry.kind,
            sequence: entry.sequence,
            key: entry.key.into(),
        });
        let mut live: Vec<_> = live.collect();
        live.sort_by_key(|live| live.offset);
        state.note_superseding(file.id, superseding.unwrap_or(0));
        Ok(live)
    }

    /// The entries of a file: from its hint, or else from the file.
    async fn entries(&self, member: usize, file: &File, io: Io) -> Result<Vec<u8>> {
        let name = self.names.of(Role::Hint(file.id));
        let opened = self.disks[member].volume.open(&name).await;
        match opened {
            Ok(object) => match scan::hint(&*object, file.seal, io).await {
                Ok(Ok((header, entries))) if header.whole => return Ok(entries),
                Ok(Ok(_)) => {}
                Ok(Err(bad)) => {
                    tracing::warn!(hint = %name, "{}: the file is read instead", bad.what());
                }
                Err(error) if error.kind().is_damage() => {
                    tracing::warn!(hint = %name, %error, "the file is read instead");
                }
                Err(error) => return Err(error),
            },
            Err(error) if error.kind() == ErrorKind::NotFound || error.kind().is_damage() => {}
            Err(error) => return Err(error),
        }
        Ok(scan::scan(&*file.object, file.seal, format::HEADER_LEN as u64, 0, io).await?.entries)
    }

    /// Copies the records of `live`; false if some are damaged.
    #[expect(clippy::too_many_arguments, reason = "the parts of one merge, each used once")]
    async fn copy_live(
        &self,
        member: usize,
        file: &File,
        layout: Layout,
        live: &[Live],
        io: Io,
        outputs: &mut Outputs,
        copied: &mut Vec<Copied>,
    ) -> Result<bool> {
        let extents = live.iter().map(|live| {
            let start = u64::from(live.offset);
            start..start + u64::from(live.len)
        });
        let ranges = match reading(&self.options.device, file.object.len(), extents) {
            Reading::Whole => {
                let end = |last: &Live| u64::from(last.offset) + u64::from(last.len);
                let range = |first: &Live| u64::from(first.offset)..live.last().map_or(0, end);
                live.first().map(range).into_iter().collect()
            }
            Reading::Ranges(ranges) => ranges,
        };
        let mut rest = live;
        let mut whole = true;
        for range in ranges {
            let inside = rest.partition_point(|live| u64::from(live.offset) < range.end);
            let (mut records, after) = rest.split_at(inside);
            rest = after;
            while let Some(piece) = piece(records) {
                if self.is_closing() {
                    let message = "the log store is closing";
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                let inside = records.partition_point(|live| u64::from(live.offset) < piece.end);
                let (now, later) = records.split_at(inside);
                records = later;
                let bytes = read_piece(file, &piece, io).await?;
                self.state().members[member].counts.read_bytes += bytes.len() as u64;
                for live in now {
                    let at = (u64::from(live.offset) - piece.start) as usize;
                    let record = bytes.get(at..at + live.len as usize).unwrap_or_default();
                    let place = live.place(file.id);
                    let again;
                    let (record, found) = match scan::record_at(file.seal, place, record) {
                        Ok(found) => (record, found),
                        Err(bad) => match file.record_again(place, bad, io).await {
                            Ok((bytes, found)) => {
                                again = bytes;
                                (&again[..], found)
                            }
                            Err(error) if error.kind() == ErrorKind::Corrupt => {
                                self.note_damage(file, live.offset, &error);
                                whole = false;
                                continue;
                            }
                            // Another copy that is away may have it.
                            Err(error) => return Err(error),
                        },
                    };
                    let value = &record[found.value];
                    let stream = Stream { member, layout, group: Group::default(), copies: true };
                    let copy = self.copy_record(stream, live, found.head, value, io, outputs);
                    copied.push(copy.await?);
                }
            }
        }
        Ok(whole)
    }

    async fn copy_record(
        &self,
        stream: Stream,
        live: &Live,
        head: Head,
        value: &[u8],
        io: Io,
        outputs: &mut Outputs,
    ) -> Result<Copied> {
        let len = u64::from(live.len);
        let (placed, writer) = {
            let mut state = self.state();
            let now = Written(state.sequence);
            let dies = Some(Written(head.dies)).filter(|dies| dies.0 != 0);
            let since = Written(head.sequence);
            let hash = format::key_hash(&live.key);
            let groups = &mut state.members[stream.member].groups;
            let placed = match live.kind {
                Kind::Put => groups.copy(hash, dies, since, len, now),
                Kind::Tombstone => Placed { group: Group::default(), death: Death::Unknown },
            };
            let writer = state.writer(Stream { group: placed.group, ..stream });
            state.members[stream.member].counts.copied_bytes += len;
            (placed, writer)
        };
        let mut output = writer.output.lock().await;
        let is_new = !outputs.writers.iter().any(|known| Arc::ptr_eq(known, &writer));
        if is_new {
            if output.writing {
                // An earlier merge stopped midway.
                self.abandon(&writer, &mut output);
            }
            outputs.writers.push(Arc::clone(&writer));
        }
        let fits = |open: &Open| {
            let strange = is_new && !self.die_together(open, placed.death);
            open.fits(len, self.options.file_bytes) && !strange
        };
        // Stays set until the end: an interrupted merge leaves the file half written.
        output.writing = true;
        if let Some(open) = output.open.as_mut().filter(|open| !fits(open)) {
            self.write_copies(stream.member, open, io).await?;
            outputs.full.extend(output.open.take().map(|open| (stream.layout, open)));
        }
        if output.open.is_none() {
            output.open = Some(self.create(writer.stream).await?);
        }
        let open = output.open.as_mut().expect("it was just made");
        {
            let mut state = self.state();
            let facts = state.file_mut(open.file.id);
            facts.sequence_min = facts.sequence_min.min(head.sequence);
        }
        let copy = Head { continued: false, continues: false, ..head };
        let offset = open.append(copy, &live.key, value);
        let file = open.file.id;
        if open.buffered() >= WRITE_MAX {
            self.write_copies(stream.member, open, io).await?;
        }
        let to = Place { file, offset, len: live.len, sequence: head.sequence };
        Ok(Copied {
            key: live.key.clone(),
            kind: live.kind,
            from: live.offset,
            to,
            death: placed.death,
        })
    }

    /// Whether a record that dies at `death` fits the open file's time of death: else the dead part of the file waits
    /// for the rest, which is copied once more. Only certain deaths are compared, and only when a merge begins, so that
    /// no file is smaller than the live part of one.
    fn die_together(&self, open: &Open, death: Death) -> bool {
        let state = self.state();
        let facts = &state.files[&open.file.id];
        let (Some(Death::At(then)), Death::At(dies)) = (facts.death, death) else { return true };
        // At this rate of puts, each partition fills a file.
        let together = self.options.file_bytes * u64::from(self.partitions_of(facts.member));
        then.since(dies).max(dies.since(then)) <= together
    }

    async fn write_copies(&self, member: usize, open: &mut Open, io: Io) -> Result<()> {
        open.write(io).await?;
        self.grow(&mut self.state(), member, open);
        Ok(())
    }

    /// Makes all copies durable.
    async fn finish(&self, member: usize, outputs: &Outputs, io: Io) -> Result<()> {
        for (_, open) in &outputs.full {
            self.sync_object(member, &*open.file.object, io).await?;
        }
        for writer in &outputs.writers {
            let mut output = writer.output.lock().await;
            let Some(open) = &mut output.open else { continue };
            self.write_copies(member, open, io).await?;
            self.sync_object(member, &*open.file.object, io).await?;
            open.synced();
        }
        Ok(())
    }

    /// Makes the copies count, except where a newer record does.
    fn switch(&self, from: FileId, copied: &[Copied]) {
        let mut state = self.state();
        for copied in copied {
            let to = copied.to;
            state.file_mut(to.file).hold(to.sequence, to.len, copied.kind, copied.death);
            if copied.kind == Kind::Put {
                state.count_copy(&copied.key, (from, copied.from), to);
            }
        }
    }
}

/// Reads a piece of a file. If the device cannot read all of it, gives zeros, which are no record: the caller then reads
/// each record alone, from any copy.
async fn read_piece(file: &File, piece: &Range<u64>, io: Io) -> Result<IoBufMut> {
    let zeros = || IoBufMut::zeroed((piece.end - piece.start) as usize);
    match file.object.read_at(piece.start, zeros(), io).await {
        Err(error) if error.kind().is_damage() => {
            tracing::warn!(%error, "its records are read one by one");
            Ok(zeros())
        }
        read => read,
    }
}

/// The next piece to read of a range: from its first record on, whole records of about [`READ_MAX`] bytes.
fn piece(records: &[Live]) -> Option<Range<u64>> {
    let first = records.first()?;
    let start = u64::from(first.offset);
    let end = |live: &Live| u64::from(live.offset) + u64::from(live.len);
    let inside = records.partition_point(|live| end(live) <= start + READ_MAX);
    let last = records[..inside].last().unwrap_or(first);
    Some(start..end(last))
}
