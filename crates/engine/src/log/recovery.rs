//! Opening: builds the state in memory from the objects on the volumes.
//!
//! ```text
//!   own objects ─▶ the store's id, its leases      whole files with a good hint ─▶ the hint is read
//!   listing ─▶ files and hints                     other files ─▶ read behind their hint, synced; sealed later
//!                                                  newest record of each key ─▶ index
//!   new lease, durable on every volume ─▶ open
//! ```
//! The new lease is synced on each volume. That makes all earlier removals durable, and puts every later sequence above
//! those of any file that may reappear.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::lock::Mutex as AsyncMutex;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use policy::merge::{Death, Groups, Merges, Settings};
use policy::purpose::{Io, Origin, Step};
use policy::units::Bytes as Size;
use volume::buf::PAGE;
use volume::heartbeat::Heartbeat;
use volume::layer::reserve::Reserve;
use volume::{Clock, Error, ErrorKind, Intent, IoBufMut, Listed, Object, Result, Space, Volume};

use super::dirty::Dirty;
use super::file::{File, Names, Role};
use super::format::{self, Bad, Entries, HEADER_LEN, HintHeader, Kind, Layout, Slot, StoreId};
use super::index::Place;
use super::late::Late;
use super::merge::ROUND_MAX;
use super::sealing::Sealing;
use super::state::{Facts, LogState, MemberState, Unread};
use super::{Disk, FileId, Inner, Lease, Member, Options, Store, partitions_of, scan};

const OPEN: Io = Io::new(Origin::Open, Step::Data);
/// Files of a volume that are read side by side. Each may take some MiB of memory.
const READ_AT_ONCE: usize = 8;

/// The findings of an opening.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Files that hold records.
    pub files: u64,
    /// Bytes of hints that were read.
    pub hint_bytes: u64,
    /// Files that had no good hint and were read, and their bytes.
    pub scanned: u64,
    /// See `scanned`.
    pub scanned_bytes: u64,
    /// Files that a crash cut short, by volume and name: no durable record is missing from them.
    pub torn: Vec<String>,
    /// Bytes that were good once and are damaged now, or cannot be read.
    pub damage: Vec<Damage>,
}

/// Stored bytes that differ from those written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damage {
    /// Volume and name of the object.
    pub what: String,
    /// Where, in bytes from its beginning.
    pub offset: u64,
    /// What is wrong.
    pub bad: Bad,
}

/// A file found on a volume.
struct FoundFile {
    member: usize,
    handle: Arc<File>,
    layout: Layout,
    entries: Vec<u8>,
    death: Death,
    len: u64,
    hint_len: u64,
    sequence_end: u64,
    /// The records and the bytes of its hint, if it has none of all of it and is to be sealed.
    unsealed: Option<(u32, u64)>,
}

/// A hint of the part of a file that was durable at the time.
struct PartHint {
    header: HintHeader,
    entries: Vec<u8>,
    /// Its own length.
    len: u64,
}

impl Store {
    /// Opens the store on these volumes; creates it if `create` gives an id and there is none. The order of the volumes
    /// assigns partitions to them; files written with another order or number of partitions are used where they are.
    ///
    /// # Errors
    /// `NotFound`: there is no store of this name, and none was to be created; `Invalid`: the volumes are not of one
    /// store, some are missing, or the store cannot work on them with these options; `Unavailable`; `Corrupt`: the
    /// store's own object is damaged on all volumes.
    pub async fn open(
        members: Vec<Member>,
        mut options: Options,
        clock: Clock,
        create: Option<StoreId>,
    ) -> Result<(Self, Report)> {
        options.check()?;
        let names = Names::new(&options.name)?;
        if members.is_empty() || members.len() > usize::from(u16::MAX) {
            return Err(Error::new(ErrorKind::Invalid, "log store: give 1 to 65535 volumes"));
        }
        let mut reserves = Vec::new();
        let mut kept_members = Vec::new();
        for Member { label, volume } in members {
            let mut reserve = match options.set_aside {
                0 => None,
                _ => Some(Reserve::open(Arc::clone(&volume), names.prefix()).await?),
            };
            if !options.allocates
                && let Some(pieces) = reserve.take()
            {
                // Pieces from when the store did. A volume that does not answer keeps them until the next opening.
                while pieces.approach(0).await.unwrap_or(false) {}
            }
            let through = reserve.clone().map(|reserve| Arc::new(reserve) as Arc<dyn Volume>);
            kept_members.push(Member { label, volume: through.unwrap_or(volume) });
            reserves.push(reserve);
        }
        let members = kept_members;
        let mut slots = Vec::new();
        for member in &members {
            slots.push(own_object(member, &names).await?);
        }
        let known = slots.iter().flat_map(|own| own.slot).max_by_key(|slot| slot.generation);
        let id = match (known, create) {
            (Some(slot), _) => slot.store,
            (None, Some(id)) => id,
            (None, None) => {
                let message = format!("no log store called {} on these volumes", options.name);
                return Err(Error::new(ErrorKind::NotFound, message));
            }
        };
        check_members(&members, &slots, id, known)?;
        // A store that does not fit leaves nothing behind.
        let file_bytes_set = options.file_bytes;
        let (mut spaces, devices) = (Vec::new(), options.devices_of_each(members.len()) as u64);
        for (at, member) in members.iter().enumerate() {
            let space = member.volume.space().await?;
            let capacity = options.quota.min(space.total);
            let partitions = partitions_of(options.partitions, at, members.len()).into();
            options.file_bytes = options.file_bytes_for(capacity, partitions, devices);
            spaces.push((space, partitions));
        }
        if options.file_bytes < file_bytes_set {
            let (set, used) = (Size(file_bytes_set), Size(options.file_bytes));
            tracing::info!(store = %options.name, "files are sealed at {used}, not {set}, because the volumes are small");
        }
        for (member, (space, partitions)) in members.iter().zip(&spaces) {
            let capacity = options.quota.min(space.total);
            let room = options.check_room(&member.label, capacity, *partitions, devices);
            if let Err(error) = room {
                // An existing store is opened, whatever the room.
                if known.is_none() {
                    return Err(error);
                }
                tracing::warn!(%error, "the log store may take no more writes when it is full");
            }
        }
        // A new volume gets its own object before the others count it.
        let new: Vec<_> = slots.iter().map(|own| own.slot.is_none()).collect();
        let lease = Lease {
            generation: known.map_or(0, |slot| slot.generation),
            pages: slots.iter().map(|own| own.page).collect(),
            behind: vec![false; slots.len()],
        };
        let mut disks = Vec::new();
        for ((member, reserve), own) in members.into_iter().zip(reserves).zip(slots) {
            let own = match own.object {
                Some(own) => own,
                None => member.volume.create(&names.of(Role::Store), &Intent::DATA).await?,
            };
            let of = |task| {
                let task = format!("{task} of the log store on volume {}", member.label);
                Heartbeat::new(task, ROUND_MAX, &clock)
            };
            let (merges, seals) = (of("merging"), of("sealing"));
            disks.push(Disk {
                merges,
                seals,
                label: member.label,
                volume: member.volume,
                reserve,
                sealing: Mutex::default(),
                parts: Mutex::default(),
                sealer: AsyncMutex::default(),
                merger: AsyncMutex::default(),
                merging: Mutex::default(),
                own: Mutex::new(own),
            });
        }
        let states = disks.iter().zip(spaces);
        let states = states
            .map(|(disk, (space, partitions))| {
                let devices = options.devices_of_each(disks.len());
                member_state(&options, disk, space, partitions, devices)
            })
            .collect();
        let syncs = Heartbeat::new("syncing the log store", ROUND_MAX, &clock);
        let inner = Inner {
            id,
            syncs,
            names,
            options,
            file_bytes_set,
            clock,
            state: Mutex::new(LogState::new(states)),
            disks,
            notify: super::Notify::default(),
            closing: false.into(),
            is_unsure: false.into(),
            lease: AsyncMutex::new(lease),
        };
        let report = inner.recover(known, &new).await?;
        Ok((Self(Arc::new(inner)), report))
    }
}

/// The store's own object on a volume.
#[derive(Default)]
pub(super) struct Own {
    /// `None` if there is none.
    pub(super) object: Option<Arc<dyn Object>>,
    /// Its newest valid slot.
    pub(super) slot: Option<Slot>,
    /// The page to write next: the one without the newest slot.
    page: u64,
}

/// Reads the store's own object on a volume.
pub(super) async fn own_object(member: &Member, names: &Names) -> Result<Own> {
    let object = match member.volume.open(&names.of(Role::Store)).await {
        Ok(object) => object,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Own::default()),
        Err(error) => return Err(error),
    };
    let bytes = object.read_at(0, IoBufMut::zeroed(2 * PAGE), OPEN).await?;
    let mut slots = [0, PAGE].map(|at| bytes.get(at..).ok_or(Bad::Short).and_then(Slot::decode));
    for (slot, at) in slots.iter_mut().zip([0, PAGE as u64]) {
        if slot.is_err() {
            *slot = scan::read_valid(&*object, at, PAGE, OPEN, Slot::decode).await?;
        }
    }
    if let Some(Err(Bad::Version)) = slots.iter().find(|slot| **slot == Err(Bad::Version)) {
        let message =
            format!("volume {}: {}: {}", member.label, names.of(Role::Store), Bad::Version.what());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let newest = slots.into_iter().zip([PAGE as u64, 0]);
    let newest = newest.filter_map(|(slot, other)| Some((slot.ok()?, other)));
    let newest = newest.max_by_key(|(slot, _)| slot.generation);
    let (slot, page) = newest.map_or((None, 0), |(slot, other)| (Some(slot), other));
    Ok(Own { object: Some(object), slot, page })
}

fn check_members(
    members: &[Member],
    slots: &[Own],
    id: StoreId,
    known: Option<Slot>,
) -> Result<()> {
    for (member, own) in members.iter().zip(slots) {
        if own.slot.is_some_and(|slot| slot.store != id) {
            let message = format!("volume {}: holds another log store of this name", member.label);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if own.object.is_some() && own.slot.is_none() && known.is_none() {
            // A crash may have cut short its creation.
            tracing::warn!(volume = %member.label, "the log store's own object is damaged");
        }
    }
    let there = slots.iter().filter(|own| own.slot.is_some()).count();
    if let Some(known) = known
        && there < usize::from(known.volumes)
    {
        let message = format!(
            "the log store is on {} volumes, and {there} of them were given: give all",
            known.volumes
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

fn member_state(
    options: &Options,
    disk: &Disk,
    space: Space,
    partitions: u64,
    devices: usize,
) -> MemberState {
    let capacity = options.quota.min(space.total);
    let limits = options.limits(capacity, partitions, devices as u64);
    let held = disk.reserve.as_ref().map_or(0, Reserve::held);
    let mut settings = Settings::new(options.rule, options.file_bytes);
    settings.target = options.target;
    settings.triggers = options.triggers;
    settings.reserve = limits.kept();
    settings.wait = options.delay_from.max(options.target);
    let groups = options.groups_used();
    MemberState {
        merges: Merges::new(settings),
        groups: Groups::new(groups, partitions.max(1) as u32, options.file_bytes, capacity),
        limits,
        quota: options.quota,
        own: 0,
        space: Space { free: space.free + held, ..space },
        own_then: 0,
        dying: Vec::new(),
        pending_removals: Vec::new(),
        removals: 0,
        counts: Default::default(),
        refused: 0,
        dirty: Dirty::of(capacity, devices, partitions * u64::from(groups)),
        doubtful: Vec::new(),
        away: None,
        passed_over: None,
    }
}

impl Inner {
    async fn recover(&self, known: Option<Slot>, new: &[bool]) -> Result<Report> {
        let mut report = Report::default();
        let surveys =
            join_all((0..self.disks.len()).map(|member| self.survey(member, known))).await;
        let mut sequence = known.map_or(1, |slot| slot.sequence_end);
        let mut next_file = known.map_or(1, |slot| slot.file_end);
        let mut unsealed = BTreeMap::new();
        for found in surveys {
            let (files, part, file_end) = found?;
            report.add(part);
            next_file = next_file.max(file_end);
            for file in files {
                sequence = sequence.max(file.sequence_end);
                let member = file.member;
                unsealed.extend(self.take_up(file).map(|file| (file.file.id, (member, file))));
            }
        }
        {
            let mut state = self.state();
            report.files = state.files.len() as u64;
            state.sequence = state.sequence.max(sequence);
            state.next_file = next_file;
            // Tombstones were kept only to override older records of files read later.
            state.index.retain(|_, place| !place.is_deleted());
            let mut live: BTreeMap<FileId, u64> = BTreeMap::new();
            state.index.walk(std::ops::Bound::Unbounded, |_, place| {
                *live.entry(place.file).or_default() += u64::from(place.len);
                true
            });
            for (id, live) in live {
                state.file_mut(id).live = live;
            }
        }
        // No file that is missing now can reappear after this.
        self.begin_lease(known, new).await?;
        self.open_lease().await?;
        {
            let mut state = self.state();
            let ids: Vec<_> = state.files.keys().copied().collect();
            for id in ids.into_iter().filter(|id| !unsealed.contains_key(id)) {
                state.seal(id);
            }
            state.release_deletions();
        }
        for (member, file) in unsealed.into_values() {
            self.disks[member].sealing.lock().push_back(Arc::new(file));
        }
        // Users need not wait for that, unless there are many.
        for member in 0..self.disks.len() {
            self.seal_many(member).await?;
        }
        Ok(report)
    }

    /// The files of one volume, and the first id that no object there has.
    async fn survey(
        &self,
        member: usize,
        known: Option<Slot>,
    ) -> Result<(Vec<FoundFile>, Report, u64)> {
        let disk = &self.disks[member];
        let mut report = Report::default();
        let (mut files, mut hints) = (BTreeMap::new(), BTreeMap::new());
        let mut own = 0;
        for listed in disk.volume.list().await? {
            match self.names.role(&listed.name) {
                Some(Role::File(id) | Role::Cached(id)) => {
                    files.insert(id, listed);
                }
                Some(Role::Hint(id)) => {
                    hints.insert(id, listed.len);
                }
                Some(Role::Store) => own += 2 * PAGE as u64,
                None => {}
            }
        }
        let last = files.keys().chain(hints.keys()).max();
        let file_end = last.map_or(0, |id| id.0 + 1);
        for id in hints.keys().filter(|id| !files.contains_key(id)) {
            disk.volume.remove(&self.names.of(Role::Hint(*id))).await?;
        }
        hints.retain(|id, _| files.contains_key(id));
        // Hints must leave this room free while they are written.
        let len = files.values().map(|file| file.len).chain(hints.values().copied()).sum::<u64>();
        self.state().members[member].own = own + len;
        let reads = files.into_iter().map(async |(id, listed)| {
            let hint = hints.get(&id).copied();
            let leased = known.is_some_and(|slot| id.0 < slot.file_end);
            let mut part = Report::default();
            let read = self.read_file(member, id, listed, hint, leased, &mut part).await?;
            Ok::<_, Error>((read, part))
        });
        let mut reads = stream::iter(reads).buffered(READ_AT_ONCE);
        let mut found = Vec::new();
        while let Some(read) = reads.next().await {
            let (read, part) = read?;
            report.add(part);
            if let Some(file) = read {
                own += file.len + file.hint_len;
                found.push(file);
            }
        }
        drop(reads);
        let unread = self.state().unread_bytes(member);
        own += unread;
        self.state().members[member].own = own;
        self.look_at_space(member).await?;
        Ok((found, report, file_end))
    }

    /// Reads one file; `None` if it has no records, or they are lost.
    ///
    /// A file that cannot be opened is known by its hint: reads of its records fail until it can. Without a hint, a file
    /// that is lost or damaged as a whole is left out.
    ///
    /// # Errors
    /// `Unavailable`: nothing tells which records are in the file. Without them older ones would count.
    async fn read_file(
        &self,
        member: usize,
        id: FileId,
        Listed { name, len }: Listed,
        hint_len: Option<u64>,
        leased: bool,
        report: &mut Report,
    ) -> Result<Option<FoundFile>> {
        let disk = &self.disks[member];
        let object = disk.volume.open(&name).await.unwrap_or_else(|error| {
            tracing::error!(volume = %disk.label, file = %name, %error, "a file cannot be opened");
            let is_log = matches!(self.names.role(&name), Some(Role::Cached(_)));
            Arc::new(Late::new(&disk.volume, &name, len, is_log))
        });
        let handle = File::new(self.id, id, &disk.label, name, object);
        if let Some(hint_len) = hint_len {
            let hint_name = self.names.of(Role::Hint(id));
            let read = match disk.volume.open(&hint_name).await {
                Ok(hint) => {
                    report.hint_bytes += hint.len();
                    scan::hint(&*hint, handle.seal, OPEN).await
                }
                Err(error) => Err(error),
            };
            let read = read.unwrap_or_else(|error| {
                tracing::warn!(volume = %disk.label, hint = %hint_name, %error, "a hint cannot be read");
                Err(Bad::Unreadable)
            });
            match read {
                Ok((header, entries)) if !header.whole => {
                    let hint = PartHint { header, entries, len: hint_len };
                    return self.scan_file(member, handle, len, leased, Some(hint), report).await;
                }
                Ok((header, entries)) => {
                    if len < u64::from(header.covers) {
                        // Records behind its end are lost: reads of them fail.
                        report.damage.push(Damage {
                            what: handle.what.clone(),
                            offset: len,
                            bad: Bad::Short,
                        });
                    }
                    return Ok(Some(FoundFile {
                        member,
                        handle,
                        layout: header.layout,
                        entries,
                        death: header.death,
                        len,
                        hint_len,
                        sequence_end: 0,
                        unsealed: None,
                    }));
                }
                // A crash can cut short a hint, which cannot be told from damage; neither loses records.
                Err(bad) => {
                    tracing::warn!(volume = %disk.label, hint = %hint_name, "{}: the file is read instead", bad.what());
                }
            }
        }
        self.scan_file(member, handle, len, leased, None, report).await
    }

    /// Leaves out a file without a hint that cannot be read, unless its volume may come back.
    fn leave_out(
        &self,
        member: usize,
        file: &File,
        error: Error,
        report: &mut Report,
    ) -> Result<Option<FoundFile>> {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) {
            return Err(error);
        }
        tracing::error!(file = %file.what, %error, "a file without a hint cannot be read");
        report.damage.push(Damage { what: file.what.clone(), offset: 0, bad: Bad::Unreadable });
        self.state().unread.push(Unread { member, len: file.object.len() });
        Ok(None)
    }

    /// Reads a file without a good hint, or what is behind the part that `hint` covers.
    async fn scan_file(
        &self,
        member: usize,
        handle: Arc<File>,
        len: u64,
        leased: bool,
        hint: Option<PartHint>,
        report: &mut Report,
    ) -> Result<Option<FoundFile>> {
        let header = match scan::header(&*handle.object, OPEN).await {
            Ok(header) => header,
            Err(error) => return self.leave_out(member, &handle, error, report),
        };
        let is_own = |h: &format::Header| h.store == self.id && h.file == handle.id;
        if header.is_ok_and(|header| !is_own(&header)) || header == Err(Bad::Version) {
            let bad = header.err().unwrap_or(Bad::Foreign);
            report.damage.push(Damage { what: handle.what.clone(), offset: 0, bad });
            return Ok(None);
        }
        let covers = hint.as_ref().map_or(0, |hint| u64::from(hint.header.covers));
        let from = covers.max(HEADER_LEN as u64);
        let scanned = scan::scan(&*handle.object, handle.seal, from, covers, OPEN).await;
        let mut scanned = match scanned {
            Ok(scanned) => scanned,
            Err(error) => return self.leave_out(member, &handle, error, report),
        };
        report.scanned += 1;
        report.scanned_bytes += len.saturating_sub(covers);
        let hint_len = hint.as_ref().map_or(0, |hint| hint.len);
        if let Some(PartHint { header, entries, .. }) = hint {
            scanned.follow(&header, entries);
            if len < covers {
                scanned.damage.push((len, Bad::Short));
            }
        }
        let damaged = |(offset, bad)| Damage { what: handle.what.clone(), offset, bad };
        if scanned.records == 0 && scanned.damage.is_empty() {
            if leased {
                // A crash came before its first record was durable.
                self.disks[member].volume.remove(&handle.name).await?;
            }
            return Ok(None);
        }
        // A crash may have cut the first page.
        let lost_header = header.err().filter(|_| scanned.durable > 0);
        if let Some(bad) = lost_header {
            report.damage.push(damaged((0, bad)));
        }
        if scanned.torn.is_some() || (header.is_err() && lost_header.is_none()) {
            report.torn.push(handle.what.clone());
        }
        report.damage.extend(scanned.damage.iter().copied().map(damaged));
        let layout = header.map_or(Layout::ANY, |header| header.layout);
        let is_whole = lost_header.is_none() && scanned.damage.is_empty();
        // The last process may have ended before it synced the file.
        self.sync_object(member, &*handle.object, OPEN).await?;
        Ok(Some(FoundFile {
            member,
            handle,
            layout,
            entries: scanned.entries,
            death: scanned.death.unwrap_or_default(),
            len,
            hint_len,
            sequence_end: scanned.sequence_end,
            // A hint would hide the damage from the next reader, and a seal from scrubs.
            unsealed: is_whole
                .then(|| (scanned.records, u64::from(scanned.end).max(HEADER_LEN as u64))),
        }))
    }

    /// Adds the file's entries to the index, where they are the newest of their keys; gives the file if it is to be sealed.
    fn take_up(&self, file: FoundFile) -> Option<Sealing> {
        let mut state = self.state();
        let id = file.handle.id;
        let mut facts = Facts::new(file.member, file.layout, Arc::clone(&file.handle));
        (facts.len, facts.hint_len) = (file.len, file.hint_len);
        let mut end = 0;
        for entry in Entries(&file.entries) {
            facts.hold(entry.sequence, entry.len, entry.kind, file.death);
            end = end.max(entry.sequence.saturating_add(u64::from(entry.len)));
            let known = state.index.get(entry.key);
            if known.is_some_and(|known| known.sequence >= entry.sequence) {
                continue;
            }
            let place = match entry.kind {
                Kind::Put => {
                    let (offset, len) = (entry.offset, entry.len);
                    Place { file: id, offset, len, sequence: entry.sequence }
                }
                Kind::Tombstone => Place::deleted(entry.sequence),
            };
            state.index.insert(entry.key, place);
        }
        state.sequence = state.sequence.max(end);
        state.files.insert(id, facts);
        let (records, covers) = file.unsealed?;
        Some(Sealing::found(file.handle, file.layout, file.entries, records, covers))
    }
}

impl Report {
    fn add(&mut self, part: Self) {
        self.hint_bytes += part.hint_bytes;
        self.scanned += part.scanned;
        self.scanned_bytes += part.scanned_bytes;
        self.torn.extend(part.torn);
        self.damage.extend(part.damage);
    }
}
