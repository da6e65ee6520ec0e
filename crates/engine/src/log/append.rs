//! The write path of users' changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use policy::merge::{Death, Put};
use volume::task::yield_now;
use volume::{Error, ErrorKind, Intent, Result};

use super::file::{File, Role};
use super::format::{self, Header, Kind, Layout};
use super::index::Place;
use super::merge::PAUSE;
use super::state::{Facts, MemberState};
use super::stream::Stream;
use super::writer::{Change, Done, Open, Output, Pending, Writer};
use super::{Durability, Edit, For, Inner, KEY_MAX, WRITE};
use crate::log::FileId;

/// How often merges make room for an upkeep write, one file of each volume at a time.
const UPKEEP_TRIES: u32 = 64;

impl Inner {
    /// Makes the changes, and returns once reads see them, with the store's durability.
    pub(super) async fn submit(&self, edits: Vec<Edit>, of: For) -> Result<()> {
        let mut parts: Vec<(Layout, usize, Vec<Edit>)> = Vec::new();
        for edit in edits {
            let key = self.check(&edit)?;
            let partitions = self.options.partitions;
            let partition = format::partition(format::key_hash(key), partitions);
            let layout = Layout { partitions, partition };
            match parts.iter_mut().find(|(of, ..)| *of == layout) {
                Some((.., edits)) => edits.push(edit),
                None => parts.push((layout, 0, vec![edit])),
            }
        }
        // The bytes for each volume. All callers are admitted in the order of volumes, so no two deadlock.
        let mut wanted = BTreeMap::<_, u64>::new();
        for (layout, member, edits) in &mut parts {
            let bytes = edits.iter().map(len).sum::<u64>();
            *member = self.choose_member(layout.partition, bytes, of);
            self.admit(*member, edits, of).await?;
            *wanted.entry(*member).or_default() += bytes;
        }
        let mut let_in = Vec::new();
        if self.options.durability != Durability::Always {
            for (member, bytes) in wanted {
                let_in.push(self.hold_back(member, bytes).await?);
            }
        }
        let mut begun = Vec::new();
        for (layout, member, edits) in parts {
            begun.push(self.enqueue(member, layout, edits).await?);
        }
        match &begun[..] {
            [(writer, done)] => self.ended(writer, done).await,
            begun => {
                let ended = begun.iter().map(|(writer, done)| self.ended(writer, done));
                join_all(ended).await.into_iter().collect()
            }
        }
    }

    /// As [`Inner::submit`]; where the reserve has no room either, merges make some.
    pub(super) async fn submit_upkeep(&self, edits: Vec<Edit>) -> Result<()> {
        let mut tries = 0;
        loop {
            let refused = match self.submit(edits.clone(), For::Upkeep).await {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => error,
                done => return done,
            };
            tries += 1;
            let mut freed = false;
            for member in 0..self.disks.len() {
                freed |= self.make_room(member).await.unwrap_or_else(|error| {
                    tracing::debug!(volume = %self.disks[member].label, %error, "making room failed");
                    false
                });
            }
            // A device may have no room whatever merges free: stop then.
            if !freed || tries == UPKEEP_TRIES {
                return Err(refused);
            }
        }
    }

    /// The volume that takes a put: its partition's home, or, while that is full or fails, the one with most room.
    fn choose_member(&self, partition: u16, bytes: u64, of: For) -> usize {
        let home = self.member_of(partition);
        if self.disks.len() == 1 {
            return home;
        }
        let now = self.clock.now();
        let state = self.state();
        let takes = |member: &MemberState| {
            let is_there =
                member.away.is_none() && member.passed_over.is_none_or(|until| until <= now);
            is_there && member.takes(bytes, state.sequence)
        };
        let takes_upkeep = |member: &MemberState| {
            let fill = member.fill(state.sequence);
            member.away.is_none() && of == For::Upkeep && member.limits.admit_upkeep(bytes, &fill)
        };
        let most_of = |takes: &dyn Fn(&MemberState) -> bool| {
            let taking = state.members.iter().enumerate().filter(|(_, member)| takes(member));
            taking.max_by_key(|(_, member)| member.fill(state.sequence).free()).map(|(at, _)| at)
        };
        if takes(&state.members[home]) {
            return home;
        }
        most_of(&takes).or_else(|| most_of(&takes_upkeep)).unwrap_or(home)
    }

    /// Admits users' bytes that are kept outside the store, or are written later.
    pub(super) fn admit_beside(&self, bytes: u64) -> Result<Duration> {
        let mut state = self.state();
        let sequence = state.sequence;
        let mut least = None;
        for place in &mut state.members {
            let delay = match place.limits.admit(bytes, &place.fill(sequence)) {
                _ if place.away.is_some() => continue,
                Put::Now => Duration::ZERO,
                Put::After(delay) => delay,
                Put::Refused { .. } => {
                    place.counts.refused += 1;
                    place.refused = place.refused.max(bytes);
                    continue;
                }
            };
            place.refused = 0;
            least = Some(least.map_or(delay, |least: Duration| least.min(delay)));
        }
        least.ok_or_else(|| {
            self.notify.notify_all();
            let labels: Vec<_> = self.disks.iter().map(|disk| &*disk.label).collect();
            let lack_files = state.members.iter().any(|place| place.space.lacks_files);
            Error::new(ErrorKind::OutOfSpace, Self::full(&labels.join(", "), lack_files))
        })
    }

    pub(super) fn takes(&self, member: usize, bytes: u64) -> bool {
        let state = self.state();
        state.members[member].takes(bytes, state.sequence)
    }

    fn check<'a>(&self, edit: &'a Edit) -> Result<&'a Bytes> {
        let (Edit::Put { key, .. } | Edit::Delete { key }) = edit;
        let invalid = |what| Err(Error::new(ErrorKind::Invalid, what));
        if key.is_empty() || key.len() > KEY_MAX {
            return invalid(format!("a key of {} bytes: must have 1 to {KEY_MAX}", key.len()));
        }
        let max = self.value_max();
        match edit {
            Edit::Put { value, .. } if value.len() as u64 > max => {
                invalid(format!("a value of {} bytes: must have at most {max}", value.len()))
            }
            _ => Ok(key),
        }
    }

    /// The longest value.
    pub(super) fn value_max(&self) -> u64 {
        (self.file_bytes_set / 4).min(format::VALUE_MAX as u64)
    }

    /// The largest batch for one partition.
    pub(super) fn batch_max(&self) -> u64 {
        self.file_bytes_set / 2
    }

    /// Waits for as long as puts are delayed, holding no lock.
    async fn admit(&self, member: usize, edits: &[Edit], of: For) -> Result<()> {
        let len: u64 = edits.iter().map(len).sum();
        let max = self.batch_max();
        if len > max {
            let message = format!("a batch of {len} bytes for one partition: at most {max} fit");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if !edits.iter().any(|edit| matches!(edit, Edit::Put { .. })) {
            return Ok(());
        }
        let delay = {
            let mut state = self.state();
            if state.index.memory() as u64 >= self.options.index_bytes_max
                && edits.iter().any(|edit| is_new(&state.index, edit))
            {
                let message = format!(
                    "the index of {} keys has reached its limit of {} bytes: delete keys, or raise {}",
                    state.index.len(),
                    self.options.index_bytes_max,
                    self.options.index_setting
                );
                return Err(Error::new(ErrorKind::OutOfSpace, message));
            }
            let sequence = state.sequence;
            let place = &mut state.members[member];
            let fill = place.fill(sequence);
            if of == For::Upkeep {
                if place.limits.admit_upkeep(len, &fill) {
                    return Ok(());
                }
                place.counts.refused += 1;
                place.refused = place.refused.max(len);
                let full = Self::full(&self.disks[member].label, place.space.lacks_files);
                return Err(Error::new(ErrorKind::OutOfSpace, full));
            }
            match place.limits.admit(len, &fill) {
                Put::Now => {
                    place.refused = 0;
                    return Ok(());
                }
                Put::After(delay) => {
                    place.refused = 0;
                    place.counts.delayed += 1;
                    place.counts.delay += delay;
                    delay
                }
                Put::Refused { retry_after } => {
                    place.counts.refused += 1;
                    place.refused = place.refused.max(len);
                    let full = Self::full(&self.disks[member].label, place.space.lacks_files);
                    let message = format!("{full}, or try again in {} ms", retry_after.as_millis());
                    return Err(Error::new(ErrorKind::OutOfSpace, message));
                }
            }
        };
        self.clock.sleep(delay).await;
        Ok(())
    }

    /// Gives the changes their sequences, and queues them at a writer.
    async fn enqueue(
        &self,
        member: usize,
        layout: Layout,
        edits: Vec<Edit>,
    ) -> Result<(Arc<Writer>, Arc<Done>)> {
        if self.is_closing() {
            return Err(Error::new(ErrorKind::Unavailable, "the log store is closed"));
        }
        let total: u64 = edits.iter().map(len).sum();
        loop {
            if let Some(begun) = self.begin(member, layout, &edits, total) {
                return Ok(begun);
            }
            self.renew_lease().await?;
        }
    }

    /// The same without waiting; `None` if a lease has to be renewed first.
    fn begin(
        &self,
        member: usize,
        layout: Layout,
        edits: &[Edit],
        total: u64,
    ) -> Option<(Arc<Writer>, Arc<Done>)> {
        let mut state = self.state();
        let mut sequence = state.begin(total, layout)?;
        let mut group = None;
        let mut changes = Vec::with_capacity(edits.len());
        for edit in edits {
            let len = len(edit);
            let (key, value, death) = match edit {
                Edit::Put { key, value, lives } => {
                    let dies = lives.map(|lives| sequence.saturating_add(lives).max(1));
                    let placed = state.place_put(member, key, len, dies, sequence);
                    group.get_or_insert(placed.group);
                    state.members[member].counts.put_bytes += len;
                    (key, Some(value.clone()), placed.death)
                }
                Edit::Delete { key } => (key, None, Death::Unknown),
            };
            changes.push(Change { key: key[..].into(), value, sequence, death });
            sequence += len;
        }
        state.members[member].own += total;
        let group = group.unwrap_or_default();
        let writer = state.writer(Stream { member, layout, group, copies: false });
        let done = Arc::new(Done::default());
        writer.push(Pending { changes, len: total, done: Arc::clone(&done) });
        Some((writer, done))
    }

    /// Waits until the changes of `done` have ended, and meanwhile writes groups of the queue, those of other callers
    /// too.
    async fn ended(&self, writer: &Writer, done: &Done) -> Result<()> {
        loop {
            if let Some(outcome) = done.outcome() {
                return outcome;
            }
            // A caller whose changes another one writes does not wait for the file.
            match select(done.wait(), writer.output.lock()).await {
                Either::Left((outcome, _)) => return outcome,
                Either::Right((mut output, _)) if done.outcome().is_none() => {
                    if self.options.durability == Durability::Always {
                        // Lets callers that were just answered queue their next put, so that it joins this group.
                        yield_now().await;
                    }
                    self.write_group(writer, &mut output).await;
                }
                Either::Right(_) => {}
            }
        }
    }

    /// Writes the next group of the queue, and answers the callers in it.
    pub(super) async fn write_group(&self, writer: &Writer, output: &mut Output) {
        if output.writing {
            // The future that wrote was dropped; this group goes to another file.
            self.abandon(writer, output);
        }
        if output.group.is_empty() {
            let new = self.options.file_bytes - format::HEADER_LEN as u64;
            let left = |open: &Open| self.options.file_bytes.saturating_sub(open.end());
            let left = output.open.as_ref().map_or(0, left);
            output.group = writer.take_group(left, new);
        }
        if output.group.is_empty() {
            return;
        }
        let outcome = self.try_group(writer, output).await;
        output.writing = false;
        if outcome.is_err() {
            self.is_unsure.store(true, Ordering::SeqCst);
            let until = self.clock.now() + PAUSE;
            self.state().members[writer.stream.member].passed_over = Some(until);
        }
        let group = std::mem::take(&mut output.group);
        let len: u64 = group.iter().map(|pending| pending.len).sum();
        let mut state = self.state();
        let place = &mut state.members[writer.stream.member];
        place.own = place.own.saturating_sub(len);
        place.counts.groups += 1;
        state.end(group.iter().map(Pending::sequence));
        drop(state);
        for pending in group {
            pending.done.set(&outcome);
        }
    }

    async fn try_group(&self, writer: &Writer, output: &mut Output) -> Result<()> {
        let len: u64 = output.group.iter().map(|pending| pending.len).sum();
        if output.open.as_ref().is_some_and(|open| !open.fits(len, self.options.file_bytes)) {
            self.seal_open(writer, output).await?;
        }
        match self.write_to_open(writer, output).await {
            // In a pool, the file's own volume may be full alone.
            Err(error)
                if error.kind() == ErrorKind::OutOfSpace
                    && output.open.as_ref().is_some_and(|open| open.records > 0) =>
            {
                self.seal_open(writer, output).await?;
                self.write_to_open(writer, output).await
            }
            written => written,
        }
    }

    /// Writes the group to the open file, or to a new one if none is open.
    async fn write_to_open(&self, writer: &Writer, output: &mut Output) -> Result<()> {
        if output.open.is_none() {
            output.open = Some(self.create(writer.stream).await?);
        }
        let open = output.open.as_mut().expect("it was just made");
        let mut places = Vec::new();
        {
            let mut state = self.state();
            let facts = state.file_mut(open.file.id);
            let first = output.group.iter().map(Pending::sequence).min();
            facts.sequence_min = facts.sequence_min.min(first.unwrap_or(u64::MAX));
        }
        for pending in &output.group {
            let last = pending.changes.len() - 1;
            for (n, change) in pending.changes.iter().enumerate() {
                let head = format::Head {
                    sequence: change.sequence,
                    dies: change.dies(),
                    durable: 0,
                    kind: change.kind(),
                    continued: n > 0,
                    continues: n < last,
                };
                let value = change.value.as_deref().unwrap_or_default();
                places.push(open.append(head, &change.key, value));
            }
        }
        output.writing = true;
        let mut written = open.write(WRITE).await;
        if let Err(error) = &written {
            if error.kind() == ErrorKind::OutOfSpace {
                // The call has ended, so the next group may write over what it left behind the end.
                open.undo();
                output.writing = false;
            } else {
                self.abandon(writer, output);
            }
            return written;
        }
        if self.options.durability == Durability::Always {
            written = self.sync_object(writer.stream.member, &*open.file.object, WRITE).await;
            if written.is_err() {
                self.abandon(writer, output);
                return written;
            }
            open.synced();
        }
        self.count(writer.stream, open, &output.group, &places);
        open.counts();
        self.synced_open(&writer.stream, open);
        Ok(())
    }

    /// Adds the group to the index and to the file's counts.
    fn count(&self, stream: Stream, open: &Open, group: &[Pending], places: &[u32]) {
        let member = stream.member;
        let mut state = self.state();
        let file = open.file.id;
        let grown = self.grow(&mut state, member, open);
        if open.file.object.is_log() {
            let first = group.iter().map(Pending::sequence).min().unwrap_or(u64::MAX);
            if state.members[member].dirty.wrote(file, stream, grown, first) {
                self.notify.notify_all();
            }
        }
        let changes = group.iter().flat_map(|pending| &pending.changes);
        for (change, &offset) in changes.zip(places) {
            let len = change.len() as u32;
            let sequence = change.sequence;
            state.file_mut(file).hold(sequence, len, change.kind(), change.death);
            match change.kind() {
                Kind::Put => {
                    state.count_put(&change.key, Place { file, offset, len, sequence });
                }
                Kind::Tombstone => state.count_deletion(member, &change.key, sequence),
            }
        }
        if std::mem::take(&mut state.any_died) {
            self.notify.notify_all();
        }
    }

    /// Updates the space that a file takes; gives its growth.
    pub(super) fn grow(&self, state: &mut super::LogState, member: usize, open: &Open) -> u64 {
        let facts = state.file_mut(open.file.id);
        let grown = open.padded().saturating_sub(facts.len);
        facts.len += grown;
        state.members[member].own += grown;
        grown
    }

    /// Creates a file to write to.
    pub(super) async fn create(&self, stream: Stream) -> Result<Open> {
        let id = loop {
            if let Some(id) = self.state().next_id() {
                break id;
            }
            self.renew_lease().await?;
        };
        let disk = &self.disks[stream.member];
        // With durability `Always` each put waits for the device anyway; copies are synced before they count.
        let is_cached = !stream.copies && self.options.durability != Durability::Always;
        let (role, intent) = match is_cached {
            true => (Role::Cached(id), Intent::LOG),
            false => (Role::File(id), Intent::DATA),
        };
        let name = self.names.of(role);
        let most = Some(self.options.file_bytes);
        let intent = Intent { most, stream: Some(stream.of(self.id)), ..intent };
        let object = disk.volume.create(&name, &intent).await.map_err(|e| {
            e.within(format_args!("volume {}: a new file of the log store", disk.label))
        })?;
        let file = File::new(self.id, id, &disk.label, name, object);
        let header = Header { store: self.id, file: id, layout: stream.layout };
        let mut state = self.state();
        let facts = Facts::new(stream.member, stream.layout, Arc::clone(&file));
        state.files.insert(id, facts);
        Ok(Open::new(file, &header))
    }
}

impl super::LogState {
    /// The writer of a stream.
    pub(super) fn writer(&mut self, stream: Stream) -> Arc<Writer> {
        let writer = self.writers.entry(stream);
        Arc::clone(writer.or_insert_with(|| Arc::new(Writer::new(stream))))
    }

    fn next_id(&mut self) -> Option<FileId> {
        let id = self.next_file;
        (id < self.file_end).then(|| {
            self.next_file += 1;
            FileId(id)
        })
    }
}

/// The length of a change's record.
fn len(edit: &Edit) -> u64 {
    let (key, value) = match edit {
        Edit::Put { key, value, .. } => (key.len(), value.len()),
        Edit::Delete { key } => (key.len(), 0),
    };
    format::record_len(key, value) as u64
}

fn is_new(index: &super::index::Index, edit: &Edit) -> bool {
    matches!(edit, Edit::Put { key, .. } if index.get(key).is_none())
}
