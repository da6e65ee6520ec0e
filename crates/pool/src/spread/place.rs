//! Creates objects on the volumes that placement chooses, or on others if those fail.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use policy::placement::{Candidate, Layout, VolumeId};
use policy::purpose::Origin;
use volume::{Error, ErrorKind, Intent, Io, IoBuf, Name, Object, Result, Space};

use super::inode::{Inode, NewCopy};
use super::placing::Flight;
use super::{Inner, Spread, Table};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Committed, Copies, Placed, Record};
use crate::members::Occupied;

/// An object that has leaf objects but no name yet.
struct Made {
    id: ObjectId,
    kind: Kind,
    copies: Vec<NewCopy>,
    /// Held until it has a name.
    occupied: Vec<Occupied>,
}

impl Made {
    fn copies(&self) -> Copies {
        let copies = Copies::of(self.copies.iter().map(|copy| copy.placed.clone()));
        copies.expect("an object is made with a copy")
    }
}

/// An object to be placed.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) id: ObjectId,
    pub(super) kind: Kind,
    pub(super) intent: &'a Intent,
    /// The origin of its write, if known.
    pub(super) origin: Option<Origin>,
}

/// A copy that was placed and is being written.
struct Going<'a> {
    placed: Placed,
    flight: Flight<'a>,
    occupied: Vec<Occupied>,
}

impl<'a> Going<'a> {
    fn new(number: u64, (flight, occupied): (Flight<'a>, Vec<Occupied>)) -> Self {
        Self { placed: Placed { number, layout: flight.layout().clone() }, flight, occupied }
    }

    /// Marks the copy as complete.
    fn land(self, leaves: Vec<Arc<dyn Object>>) -> (NewCopy, Vec<Occupied>) {
        self.flight.land();
        (NewCopy { placed: self.placed, leaves }, self.occupied)
    }
}

/// An error, and its volume.
pub(super) type At = (VolumeId, Error);

impl Spread {
    /// Creates an object of `data`: places it, writes it, syncs it, and records its name, length and
    /// checksum. Atomic, and durable on return. The object never changes again.
    ///
    /// If a volume is full, away or poisoned, placement chooses another.
    ///
    /// # Errors
    /// `AlreadyExists`; `OutOfSpace`, `Unavailable`, `Poisoned`: no volume takes it, or none takes the
    /// manifest.
    pub async fn write_whole(
        &self,
        name: &Name,
        intent: &Intent,
        data: IoBuf,
        io: Io,
    ) -> Result<()> {
        let pool = &self.0;
        let kind = match Kind::of(intent, name) {
            // It never grows, whatever its name.
            Kind::Log => Kind::Data,
            kind => kind,
        };
        let intent = Intent { len: Some(data.len() as u64), ..intent.clone() };
        pool.must_be_free(&pool.table.lock(), name)?;
        pool.journal.ready().await?;
        let made = pool.make(name, kind, &intent, Some((&data, io))).await?;
        let checksum = Some(xxhash_rust::xxh3::xxh3_64(&data));
        let committed = Some(Committed { len: data.len() as u64, checksum });
        let named = pool.record_create(&mut pool.table.lock(), name, &made, committed);
        let lsn = pool.keep_or_drop(&made, named).await?;
        pool.journal.durable(lsn).await
    }
}

impl Inner {
    /// Creates an empty object. A log is recorded at once; any other object is uncommitted until its first
    /// sync.
    pub(super) async fn create(&self, name: &Name, intent: &Intent) -> Result<Arc<Inode>> {
        let kind = Kind::of(intent, name);
        self.must_be_free(&self.table.lock(), name)?;
        self.journal.ready().await?;
        let made = self.make(name, kind, intent, None).await?;
        let named = self.name_empty(name, &made);
        let (lsn, inode) = self.keep_or_drop(&made, named).await?;
        self.journal.written(lsn).await?;
        Ok(inode)
    }

    fn name_empty(&self, name: &Name, made: &Made) -> Result<(Lsn, Arc<Inode>)> {
        let inode = Inode::new(name, made.id, made.kind, &made.copies, &self.members);
        let mut table = self.table.lock();
        let lsn = if made.kind == Kind::Log {
            self.record_create(&mut table, name, made, None)?
        } else {
            self.must_be_free(&table, name)?;
            table.uncommitted.insert(name.clone(), made.id);
            0
        };
        inode.wait_for(lsn);
        let inode = Arc::new(inode);
        table.inodes.insert(made.id, Arc::clone(&inode));
        Ok((lsn, inode))
    }

    /// Records an object with leaf objects in the manifest.
    fn record_create(
        &self,
        table: &mut Table,
        name: &Name,
        made: &Made,
        committed: Option<Committed>,
    ) -> Result<Lsn> {
        self.must_be_free(table, name)?;
        let (id, kind, copies, name) = (made.id, made.kind, made.copies(), name.clone());
        let create = Record::Create { id, kind, copies, committed, name };
        Ok(self.journal.record(vec![create])?.0)
    }

    fn must_be_free(&self, table: &Table, name: &Name) -> Result<()> {
        let stored = || self.journal.look(|state| state.id(name).is_some());
        if table.uncommitted.contains_key(name) || stored() {
            let what = format!("{name}: an object of this name exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, what));
        }
        Ok(())
    }

    /// Removes the leaf objects of an object that got no name.
    async fn keep_or_drop<T>(&self, made: &Made, named: Result<T>) -> Result<T> {
        if named.is_err() {
            self.forget_table(made.id);
            for NewCopy { placed, .. } in &made.copies {
                self.remove_copy(made.id, made.kind, placed).await;
            }
        }
        named
    }

    /// Removes the leaf objects of a copy.
    pub(super) async fn remove_copy(&self, id: ObjectId, kind: Kind, placed: &Placed) {
        for &volume in placed.layout.volumes() {
            self.remove_leaf(volume, Leaf::Object { id, kind, copy: placed.number }).await;
        }
    }

    /// The space of each present volume that takes new objects.
    pub(super) async fn spaces(&self) -> Vec<(VolumeId, Result<Space>)> {
        let present = self.members.present();
        let present = present.iter().filter(|(slot, _)| !slot.is_closed());
        join_all(present.map(async |(slot, volume)| (slot.id, volume.space().await))).await
    }

    /// Creates the leaf objects of a new object, with `data` written and synced if there is any, on the first
    /// volumes that take it; all copies of the replication target at once.
    async fn make(
        &self,
        name: &Name,
        kind: Kind,
        intent: &Intent,
        data: Option<(&IoBuf, Io)>,
    ) -> Result<Made> {
        let mut failed: Vec<At> = Vec::new();
        loop {
            let id = self.journal.issue_id().await?;
            let wanted = Wanted { id, kind, intent, origin: data.map(|(_, io)| io.origin) };
            let first = match self.choose(wanted, &failed, None).await {
                Ok(chosen) => Going::new(0, chosen),
                Err(away) => {
                    failed.extend(away);
                    return Err(self.nowhere(name, intent, failed));
                }
            };
            let others = self.choose_others(wanted, &failed, &first).await;
            let make = async |going: Going<'_>| {
                let made = self.make_leaves(id, kind, &going.placed, intent, data).await;
                made.map(|leaves| going.land(leaves))
            };
            let (first, others) = join(make(first), join_all(others.into_iter().map(make))).await;
            let mut copies = Vec::new();
            for made in others {
                match made {
                    Ok(copy) => copies.push(copy),
                    Err((_, e)) if e.kind() == ErrorKind::AlreadyExists => {}
                    Err((volume, e)) => {
                        let label = self.members.label(volume);
                        tracing::warn!("a copy of {name} cannot be created on volume {label}: {e}");
                        failed.push((volume, e));
                    }
                }
            }
            let why = match first {
                Ok(first) => {
                    copies.insert(0, first);
                    let (copies, occupied) = copies.into_iter().unzip();
                    let occupied: Vec<Vec<_>> = occupied;
                    let occupied = occupied.into_iter().flatten().collect();
                    let mut made = Made { id, kind, copies, occupied };
                    if made.copies.len() > 1 {
                        self.placing.lock().set_places(id, &made.copies());
                    }
                    self.make_more(&mut made, name, wanted, data, failed).await;
                    return Ok(made);
                }
                Err(why) => why,
            };
            // The places of the others depend on the first: choose all of them again.
            for (NewCopy { placed, .. }, _) in copies {
                self.remove_copy(id, kind, &placed).await;
            }
            match why {
                // A foreign object on the volume has this id: take another.
                (_, e) if e.kind() == ErrorKind::AlreadyExists => {}
                (volume, e) if is_about_the_volume(&e) => {
                    let label = self.members.label(volume);
                    tracing::warn!(
                        "{name} cannot be created on volume {label}, and goes to another: {e}"
                    );
                    failed.push((volume, e));
                }
                (volume, e) => {
                    let label = self.members.label(volume);
                    return Err(e.within(format_args!("{name} on volume {label}")));
                }
            }
        }
    }

    /// Places for the other copies of an object, up to the replication target if possible.
    async fn choose_others<'a>(
        &'a self,
        wanted: Wanted<'_>,
        failed: &[At],
        first: &Going<'_>,
    ) -> Vec<Going<'a>> {
        let mut taken = first.placed.layout.volumes().to_vec();
        let mut others = Vec::new();
        while others.len() + 1 < self.replication.target {
            let Ok(chosen) = self.choose(wanted, failed, Some(&taken)).await else { break };
            let Ok(ObjectId(number)) = self.journal.issue_id().await else { break };
            let going = Going::new(number, chosen);
            taken.extend(going.placed.layout.volumes());
            others.push(going);
        }
        others
    }

    /// Makes failed copies on other volumes, and initial replicas of a table that will be hot where volumes have
    /// room to spare: its bytes are in memory, so that needs no read.
    async fn make_more(
        &self,
        made: &mut Made,
        name: &Name,
        wanted: Wanted<'_>,
        data: Option<(&IoBuf, Io)>,
        mut failed: Vec<At>,
    ) {
        let count = match (data, wanted.kind) {
            (Some(_), Kind::Table) => self.placing.lock().initial_copies(wanted.id),
            _ => 1,
        };
        let count = self.replication.target.max(count);
        while made.copies.len() < count {
            let required = made.copies.len() < self.replication.target;
            let taken: Vec<_> = made.copies().volumes().collect();
            let chosen = self.choose(wanted, &failed, Some(&taken)).await;
            let number = self.journal.issue_id().await;
            let (Ok((flight, occupied)), Ok(ObjectId(number))) = (chosen, number) else {
                let (copies, wanted) = (made.copies.len(), count);
                tracing::debug!("{name} is made with {copies} of {wanted} copies");
                if required {
                    self.replication.due();
                }
                return;
            };
            let placed = Placed { number, layout: flight.layout().clone() };
            if !required
                && !self.has_room_to_spare(&placed.layout, wanted.intent.len.unwrap_or(0)).await
            {
                return;
            }
            match self.make_leaves(wanted.id, wanted.kind, &placed, wanted.intent, data).await {
                Ok(leaves) => {
                    flight.land();
                    made.copies.push(NewCopy { placed, leaves });
                    made.occupied.extend(occupied);
                    let mut placing = self.placing.lock();
                    placing.set_places(wanted.id, &made.copies());
                    if !required {
                        placing.count_replicated();
                    }
                }
                Err((volume, e)) => {
                    let label = self.members.label(volume);
                    tracing::warn!("a copy of {name} cannot be created on volume {label}: {e}");
                    failed.push((volume, e));
                }
            }
        }
    }

    /// Whether volumes have room for a copy above their reserve, below which copies are dropped.
    pub(super) async fn has_room_to_spare(&self, layout: &Layout, len: u64) -> bool {
        let held = self.held();
        for (part, &volume) in layout.volumes().iter().enumerate() {
            let Ok(device) = self.members.volume(volume) else { return false };
            let Ok(Space { free, total }) = device.space().await else { return false };
            let held = held.get(&volume).map_or(0, |held| held.bytes);
            let left = free.saturating_sub(layout.chunks().part_len(len, part));
            if left < policy::migrate::reserve(total, held) {
                return false;
            }
        }
        true
    }

    /// Asks placement, with the current state of the volumes. A further copy of an object goes only to
    /// volumes that are not `taken` by the others. Logs go to the volumes for metadata if these have room.
    /// The error lists the volumes that did not answer.
    pub(super) async fn choose(
        &self,
        wanted: Wanted<'_>,
        failed: &[At],
        taken: Option<&[VolumeId]>,
    ) -> std::result::Result<(Flight<'_>, Vec<Occupied>), Vec<At>> {
        loop {
            let flight = self.choose_once(wanted, failed, taken).await?;
            let volumes = flight.layout().volumes().iter();
            let occupied = volumes.map(|&volume| self.members.slot(volume).occupy());
            // A volume that has begun to leave is not among the next candidates.
            if let Some(occupied) = occupied.collect() {
                return Ok((flight, occupied));
            }
        }
    }

    async fn choose_once(
        &self,
        wanted: Wanted<'_>,
        failed: &[At],
        taken: Option<&[VolumeId]>,
    ) -> std::result::Result<Flight<'_>, Vec<At>> {
        let draining = self.journal.look(|state| state.draining().clone());
        let (mut all, mut away) = (Vec::new(), Vec::new());
        for (volume, space) in self.spaces().await {
            let is_out = failed.iter().any(|(other, _)| *other == volume)
                || taken.is_some_and(|taken| taken.contains(&volume))
                || draining.contains(&volume);
            all.push(match space {
                Ok(Space { total, free }) if !is_out => Candidate::new(volume, free, total),
                Err(e) if !is_out => {
                    away.push((volume, e));
                    Candidate::away(volume)
                }
                _ => Candidate::away(volume),
            });
        }
        let Wanted { id, kind, intent, origin } = wanted;
        let intent = match kind {
            Kind::Log => &Intent { len: intent.len, ..Intent::LOG },
            Kind::Table | Kind::Data => intent,
        };
        let for_meta = all.iter().filter(|c| self.meta.contains(&c.volume));
        let for_meta: Vec<_> = for_meta.copied().collect();
        let mut placing = self.placing.lock();
        let mut choose = |candidates| match taken {
            None => placing.choose(id, intent, origin, candidates),
            Some(_) => placing.choose_copy(id, intent, origin, candidates),
        };
        let chosen = match kind {
            Kind::Log => choose(for_meta),
            Kind::Table | Kind::Data => None,
        };
        let chosen = chosen.or_else(|| choose(all.clone()));
        // Last, use the reserve of each volume too: stores refuse users' writes long before, so only work
        // that frees space gets here.
        let to_the_last = all.into_iter().map(|c| Candidate { total: 0, ..c });
        let chosen = chosen.or_else(|| choose(to_the_last.collect()));
        chosen.map(|chosen| Flight::of(self, id, chosen)).ok_or(away)
    }

    /// Creates the leaf objects of one copy, all or none.
    pub(super) async fn make_leaves(
        &self,
        id: ObjectId,
        kind: Kind,
        placed: &Placed,
        intent: &Intent,
        data: Option<(&IoBuf, Io)>,
    ) -> std::result::Result<Vec<Arc<dyn Object>>, At> {
        let leaf = Leaf::Object { id, kind, copy: placed.number };
        let layout = &placed.layout;
        let chunks = layout.chunks();
        let made = (0..).zip(layout.volumes()).map(async |(part, &volume)| {
            let len = intent.len.map(|len| chunks.part_len(len, part));
            let intent = Intent { kind: intent.kind.clone(), len };
            let made = match self.members.volume(volume) {
                Ok(volume) => volume.create(&leaf.name(), &intent).await,
                Err(e) => Err(e),
            };
            made.map(|object| (volume, object)).map_err(|e| (volume, e))
        });
        let (mut leaves, mut failed) = (Vec::new(), None);
        for made in join_all(made).await {
            match made {
                Ok(made) => leaves.push(made),
                Err(at) => failed = Some(at),
            }
        }
        if failed.is_none()
            && let Some((data, io)) = data
        {
            failed = fill(layout, &leaves, data, io).await.err();
        }
        let Some(at) = failed else {
            return Ok(leaves.into_iter().map(|(_, object)| object).collect());
        };
        for (volume, _) in leaves {
            self.remove_leaf(volume, leaf).await;
        }
        Err(at)
    }

    /// The error when no volume takes an object.
    fn nowhere(&self, name: &Name, intent: &Intent, failed: Vec<At>) -> Error {
        let causes: Vec<_> = failed
            .iter()
            .map(|(volume, e)| format!("volume {}: {e}", self.members.label(*volume)))
            .collect();
        // Volumes that answered and were not tried have no room for it.
        let tried_all = failed.len() == self.members.present().len();
        let kind = match failed.last() {
            Some((_, e)) if tried_all && failed.iter().all(|(_, f)| f.kind() == e.kind()) => {
                e.kind()
            }
            _ => ErrorKind::OutOfSpace,
        };
        let len = intent.len.map_or("any".into(), |len| policy::units::Bytes(len).to_string());
        Error::new(
            kind,
            match causes.is_empty() {
                true => format!("{name}: no volume of the pool has room for {len} bytes more"),
                false => format!(
                    "{name}: no volume of the pool takes {len} bytes more ({})",
                    causes.join("; ")
                ),
            },
        )
    }
}

/// Writes `data` to new leaf objects and syncs them.
async fn fill(
    layout: &Layout,
    leaves: &[(VolumeId, Arc<dyn Object>)],
    data: &IoBuf,
    io: Io,
) -> std::result::Result<(), At> {
    let pieces = layout.chunks().pieces(0, data.len() as u64);
    let writes = pieces.map(async |piece| {
        let at = piece.at as usize;
        let data = data.slice(at..at + piece.len as usize);
        let (volume, leaf) = &leaves[piece.part];
        leaf.write_at(piece.inner, data, io).await.map_err(|e| (*volume, e))
    });
    for written in join_all(writes).await {
        written?;
    }
    let syncs = leaves.iter().map(async |(volume, leaf)| {
        let synced = leaf.sync(io).await;
        synced.map_err(|e| (*volume, e))
    });
    for synced in join_all(syncs).await {
        synced?;
    }
    Ok(())
}

/// Whether another volume may succeed after this error.
fn is_about_the_volume(e: &Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::OutOfSpace | ErrorKind::Unavailable | ErrorKind::Poisoned | ErrorKind::Io
    )
}
