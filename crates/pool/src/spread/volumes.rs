//! Volumes join a pool, are drained, and leave it, while it is open.
//!
//! The first frame of the manifest lists the volumes of the pool, so a volume joins or leaves when the
//! manifest moves to a new home:
//!
//! | step of joining | cut before it is durable |
//! |---|---|
//! | 1. a header with epoch 0 on the new volume | the volume is blank, or nearly: it can be added again |
//! | 2. a new generation of the manifest that names it | the same |
//! | 3. the header with that generation's epoch | the volume is the pool's |
//!
//! To leave, a volume is first drained: new objects avoid it, its objects are copied elsewhere, and then
//! its own copies are dropped, one by one, as in [`copies`](super::copies). Then:
//!
//! | step of leaving | cut before it is durable |
//! |---|---|
//! | 1. a new generation of the manifest that does not name it | the volume is the pool's, and empty |
//! | 2. its header is removed | the pool refuses the volume by name when it is passed in |
//!
//! A lost volume leaves in the same two steps, without a drain: the pool first drops its copies from the
//! manifest. Objects without another copy keep their names and lengths, on a volume that no longer
//! exists: reads of them report that.
//!
//! No two volumes ever have the same number, so that one that left and comes back is recognised.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policy::placement::VolumeId;
use volume::{Error, ErrorKind, Io, Listed, Name, Result, Volume};

use super::Spread;
use super::copies::{How, Wanting};
use crate::header::{self, Found, Header};
use crate::leaf::{Leaf, ObjectId};
use crate::manifest::{Placed, Record, Stored};
use crate::members::{Member, MemberSlot};

/// A volume of a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VolumeStat {
    /// Its number in the pool.
    pub id: VolumeId,
    /// Its label.
    pub label: String,
    /// Its state.
    pub state: VolumeState,
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VolumeState {
    /// It is used.
    Active,
    /// It is being drained.
    Draining,
    /// It was absent when the pool was opened.
    Away,
}

/// The contents of a volume, from the manifest.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// Objects with a copy there.
    pub objects: u64,
    /// Their bytes; of striped objects only those on this volume.
    pub bytes: u64,
}

/// The objects left on a volume after a drain.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Left {
    /// Objects that could not leave, by name, and why. If the volume is away with their only copy, they
    /// are lost.
    pub objects: Vec<(Name, String)>,
}

/// The progress of a drain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drained {
    /// Objects that left the volume so far.
    pub objects: u64,
    /// Objects it still holds.
    pub left: u64,
}

impl Spread {
    /// The pool's volumes, in the order of their numbers.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeStat> {
        let draining = self.0.journal.draining();
        let all = self.0.members.all();
        let stats = all.iter().map(|slot| VolumeStat {
            id: slot.id,
            label: slot.label.clone(),
            state: match &slot.volume {
                None => VolumeState::Away,
                Some(_) if draining.contains(&slot.id) => VolumeState::Draining,
                Some(_) => VolumeState::Active,
            },
        });
        stats.collect()
    }

    /// The number of the volume with this label.
    #[must_use]
    pub fn volume_id(&self, label: &str) -> Option<VolumeId> {
        self.0.members.by_label(label)
    }

    /// The space of a volume.
    ///
    /// # Errors
    /// `Unavailable`: it is away.
    pub async fn space_of(&self, volume: VolumeId) -> Result<volume::Space> {
        self.0.members.volume(volume)?.space().await
    }

    /// Whether a volume is there and gives back the pool's header: a device may still tell its space and fail every read. A read
    /// that this process has no means for now says nothing against the volume.
    pub async fn answers(&self, volume: VolumeId) -> bool {
        let Ok(volume) = self.0.members.volume(volume) else { return false };
        let is_read =
            |read: Result<Found>| read.map_or_else(|e| e.kind() == ErrorKind::Busy, |_| true);
        volume.space().await.is_ok() && is_read(header::read(&*volume).await)
    }

    /// The contents of each volume, from the manifest. Visits every object.
    #[must_use]
    pub fn held(&self) -> BTreeMap<VolumeId, Held> {
        let mut held: BTreeMap<VolumeId, Held> = BTreeMap::new();
        self.0.journal.look(|state| {
            for (_, object) in state.objects() {
                for layout in object.copies.iter().map(|placed| &placed.layout) {
                    for (part, &volume) in layout.volumes().iter().enumerate() {
                        let held = held.entry(volume).or_default();
                        held.objects += 1;
                        held.bytes += layout.part_len(object.len(), part);
                    }
                }
            }
        });
        held
    }

    /// Adds a blank volume to the pool. Durable on return: from then on objects are placed on it.
    ///
    /// # Errors
    /// `Invalid`: the volume is not blank, or belongs to a pool; `AlreadyExists`: there is a volume of
    /// that name; those of the volumes: it did not join, try again.
    pub async fn add_volume(&self, member: Member) -> Result<VolumeId> {
        let pool = &self.0;
        let Member { label, volume } = member;
        let _one_at_a_time = pool.members.changing.lock().await;
        header::check_label(&label)?;
        if self.volume_id(&label).is_some() {
            let what = format!("volume {label}: the pool has one of that name");
            return Err(Error::new(ErrorKind::AlreadyExists, what));
        }
        let id = self.next_volume_id()?;
        let blank = self.must_be_blank(&*volume).await;
        blank.map_err(|e| e.within(format_args!("volume {label}")))?;
        pool.journal.ready().await?;
        pool.journal.record(vec![Record::VolumeIds { from: id.0 + 1 }])?;
        let (pool_id, name) = (pool.journal.pool(), label.clone());
        let header = Header { pool: pool_id, volume: id, label: name, epoch: 0, seal: 0 };
        header::write(&*volume, &header).await?;
        let slot = Arc::new(MemberSlot::new(id, label, Some(volume)));
        slot.set_closed(true);
        let joining = Arc::clone(&slot);
        pool.journal
            .change_members(|members| members.add(joining), |members| members.remove(id))
            .await?;
        slot.set_closed(false);
        pool.replication.due();
        Ok(id)
    }

    /// Drains a volume: new objects avoid it from now on, and its objects are copied elsewhere, in the
    /// class of `io`, and dropped there. Calls `tell` before each object, and at the end. Returns the
    /// objects that could not leave: uncommitted ones, those that no other volume takes, and, if the
    /// volume is away, those without another copy. A second call continues; dropping the future stops it.
    ///
    /// If the volume is away, objects are copied from their other copies.
    ///
    /// # Errors
    /// `NotFound`: there is no such volume. `Invalid`: no other volume could take what is on it. Those of
    /// the volumes, when none takes the manifest.
    pub async fn drain(
        &self,
        volume: VolumeId,
        io: Io,
        mut tell: impl FnMut(Drained) + Send,
    ) -> Result<Left> {
        let pool = &self.0;
        self.set_draining(volume, true).await?;
        pool.journal.leave(volume).await?;
        let mut left = Left::default();
        let mut drained = Drained { objects: 0, left: 0 };
        let mut after = None;
        loop {
            let (next, count) = self.next_on(volume, after);
            drained.left = count;
            tell(drained);
            let Some((id, name)) = next else { break };
            after = Some(id);
            match self.move_off(id, volume, io).await {
                Ok(()) => drained.objects += 1,
                Err(e) if matches!(e.kind(), ErrorKind::Gone | ErrorKind::NotFound) => {}
                Err(e) => left.objects.push((name, e.to_string())),
            }
        }
        let uncommitted = pool.catalog.uncommitted_on(volume).into_iter();
        left.objects.extend(uncommitted.map(|(name, _)| (name, "not synced yet".into())));
        Ok(left)
    }

    /// Begins or ends the draining of a volume, without moving objects.
    ///
    /// # Errors
    /// As for [`Spread::drain`].
    pub async fn set_draining(&self, volume: VolumeId, drains: bool) -> Result<()> {
        let pool = &self.0;
        let _one_at_a_time = pool.members.changing.lock().await;
        self.must_be_member(volume)?;
        let draining = pool.journal.draining();
        if draining.contains(&volume) == drains {
            return Ok(());
        }
        let takes = |slot: &MemberSlot| slot.id != volume && !draining.contains(&slot.id);
        if drains && !pool.members.present().iter().any(|(slot, _)| takes(slot)) {
            let label = pool.members.label(volume);
            let what = format!(
                "volume {label} cannot be emptied: there is no other volume to take its objects"
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        pool.journal.ready().await?;
        let (lsn, _) = pool.journal.record(vec![Record::Drain { volume, drains }])?;
        pool.replication.due();
        pool.catalog.give_up_outdated_on(volume);
        pool.journal.durable(lsn).await?;
        self.bury().await;
        if !drains && let Err(e) = pool.journal.avoid(&BTreeSet::new()).await {
            tracing::debug!("the manifest does not come back to volume {volume} yet: {e}");
        }
        Ok(())
    }

    /// Removes an empty volume from the pool. Durable on return: the pool never asks for it again. If the
    /// volume is present, it is blank afterwards.
    ///
    /// # Errors
    /// `Invalid`: it is not empty, the message names objects; or it is not draining. `NotFound`: there is
    /// no such volume. Those of the volumes, when none takes the manifest: it did not leave.
    pub async fn remove_volume(&self, volume: VolumeId) -> Result<()> {
        let pool = &self.0;
        let _one_at_a_time = pool.members.changing.lock().await;
        let slot = self.must_be_member(volume)?;
        if !pool.journal.draining().contains(&volume) {
            let what = format!("volume {} is in use: empty it first", slot.label);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        // From here on no task can begin to create an object there.
        let is_unused = slot.set_closed(true);
        // Of copies that missed a change since the volume began to be emptied.
        pool.catalog.give_up_outdated_on(volume);
        let flushed = self.flush().await;
        let empty = flushed.and_then(|()| self.must_be_empty(&slot, is_unused));
        self.remove_member(&slot, empty).await?;
        if let Some(device) = &slot.volume {
            self.make_blank(&**device).await;
        }
        Ok(())
    }

    /// The objects, by name, that would be lost with a volume: every copy of them has a part on it, or too few fragments
    /// are on others.
    #[must_use]
    pub fn only_on(&self, volume: VolumeId) -> Vec<Name> {
        self.0.journal.look(|state| {
            let stays = |object: &Stored| object.copies.suffice(|placed| !placed.is_on(volume));
            let only = state.objects().filter(|(_, object)| !stays(object));
            only.filter_map(|(_, object)| object.name().cloned()).collect()
        })
    }

    /// Removes a volume that is lost for good, with its contents: one that is away, or does not answer.
    /// Durable on return: if it comes back, it is not the pool's. Objects with other copies keep those, and
    /// get new ones as by [`Spread::repair`]. Objects without another copy keep names and lengths, and reads
    /// of them fail with `Corrupt`: returns their names. Without `give_up` there must be none.
    ///
    /// # Errors
    /// `Invalid`: it is present, drain it; or objects would be lost, the message names all of them.
    /// `NotFound`: there is no such volume. Those of the volumes, when none takes the manifest: call it
    /// again.
    pub async fn remove_lost(&self, volume: VolumeId, give_up: bool) -> Result<Vec<Name>> {
        let pool = &self.0;
        let slot = self.must_be_member(volume)?;
        let label = &slot.label;
        if self.answers(volume).await {
            let what = format!("volume {label} is here: empty it first");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let must_be_few = |only: &[Name]| {
            if only.is_empty() || give_up {
                return Ok(());
            }
            let names: Vec<_> = only.iter().map(|name| format!("\n  {name}")).collect();
            let what = format!(
                "volume {label} is away, and these {} objects lie nowhere else:{}",
                only.len(),
                names.concat()
            );
            Err(Error::new(ErrorKind::Invalid, what))
        };
        must_be_few(&self.only_on(volume))?;
        // No new object goes there, if it comes back meanwhile.
        self.set_draining(volume, true).await?;
        for inode in pool.catalog.inodes_on(volume) {
            pool.catalog.let_go(&inode, volume);
            pool.replication.due();
        }
        self.flush().await?;
        let _one_at_a_time = pool.members.changing.lock().await;
        let only = self.only_on(volume);
        must_be_few(&only)?;
        slot.set_closed(true);
        self.remove_member(&slot, Ok(())).await?;
        pool.replication.due();
        Ok(only)
    }

    /// Moves one object off a volume.
    async fn move_off(&self, id: ObjectId, volume: VolumeId, io: Io) -> Result<()> {
        let pool = &self.0;
        let inode = pool.catalog.inode_by_id(id)?;
        let copies = inode.copies();
        let draining = pool.journal.draining();
        let is_here = |placed: &Placed| {
            !placed.is_on(volume) && inode.replica(placed.number).is_some_and(|r| r.is_here())
        };
        let stays = |placed: &Placed| {
            is_here(placed) && placed.layout.volumes().iter().all(|v| !draining.contains(v))
        };
        let leaves = copies.iter().find(|placed| placed.is_on(volume)).and_then(Placed::index);
        let lacking = match leaves {
            None => (copies.held(stays) < pool.replication.target).then_some(Wanting::Copy),
            Some(index) => {
                let is_same = |placed: &Placed| placed.index() == Some(index) && stays(placed);
                (copies.held(is_same) == 0).then_some(Wanting::Fragment(index))
            }
        };
        if let Some(what) = lacking {
            let made = self.copy_anywhere(&inode, what, &How::from(io)).await;
            // What holds the object elsewhere is enough to leave; `repair` makes more.
            if let Err(e) = made
                && !copies.suffice(is_here)
            {
                return Err(e);
            }
        }
        self.drop_copy(id, volume).await
    }

    /// Removes a closed volume from the pool, if it `may` leave.
    async fn remove_member(&self, slot: &Arc<MemberSlot>, may: Result<()>) -> Result<()> {
        let ready = match may {
            Ok(()) => self.0.journal.ready().await,
            refused => refused,
        };
        if ready.is_err() {
            slot.set_closed(false);
            return ready;
        }
        let volume = slot.id;
        let next = self.next_volume_id()?;
        self.0.journal.record(vec![Record::VolumeIds { from: next.0 }])?;
        let back = Arc::clone(slot);
        let left = self.0.journal.change_members(
            |members| members.remove(volume),
            |members| {
                back.set_closed(false);
                members.add(back);
            },
        );
        left.await?;
        self.0.journal.record(vec![Record::Drain { volume, drains: false }])?;
        self.0.leaves.forget(volume);
        self.0.placing.forget_volume(volume);
        Ok(())
    }

    fn must_be_member(&self, volume: VolumeId) -> Result<Arc<MemberSlot>> {
        self.0.members.get(volume).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("the pool has no volume {volume}"))
        })
    }

    /// A number that no volume of the pool ever had.
    fn next_volume_id(&self) -> Result<VolumeId> {
        let given = self.0.journal.look(|state| state.volume_ids());
        let here = self.0.members.all().last().map_or(0, |slot| slot.id.0 + 1);
        match given.max(here) {
            u16::MAX => Err(Error::new(
                ErrorKind::Invalid,
                "the pool has used up its numbers of volumes: copy it to a new pool",
            )),
            next => Ok(VolumeId(next)),
        }
    }

    /// Checks that a volume holds no data, and removes leftover copies of a manifest.
    async fn must_be_blank(&self, device: &dyn Volume) -> Result<()> {
        match header::read(device).await? {
            Found::Nothing => {}
            // It began to join this pool, or left it.
            Found::Header(header)
                if header.pool == self.0.journal.pool()
                    && self.0.members.get(header.volume).is_none() => {}
            Found::Header(header) => {
                let what =
                    format!("it belongs to pool {}, as volume {}", header.pool, header.volume);
                return Err(Error::new(ErrorKind::Invalid, what));
            }
        }
        let listing = device.list().await?;
        let is_ours =
            |name: &Name| matches!(Leaf::parse(name), Some(Leaf::Header | Leaf::Manifest { .. }));
        if let Some(object) = listing.iter().find(|listed| !is_ours(&listed.name)) {
            let what = format!("it is not empty, {} for one: a new volume must be", object.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        remove_manifests(device, &listing).await
    }

    /// Removes the header and copies of the manifest from a volume that left.
    async fn make_blank(&self, device: &dyn Volume) {
        let marks = async {
            remove_manifests(device, &device.list().await?).await?;
            device.remove(&Leaf::Header.name()).await
        };
        if let Err(e) = marks.await {
            tracing::warn!("a volume that left the pool still has the pool's header: {e}");
        }
    }

    /// The first object on a volume after `after`, and the number of objects on it.
    fn next_on(
        &self,
        volume: VolumeId,
        after: Option<ObjectId>,
    ) -> (Option<(ObjectId, Name)>, u64) {
        self.0.journal.look(|state| {
            let next = state.objects_on(volume, after).next();
            let named = next.and_then(|id| Some((id, state.object(id)?.name()?.clone())));
            (named, state.count_on(volume))
        })
    }

    fn must_be_empty(&self, slot: &MemberSlot, is_unused: bool) -> Result<()> {
        let label = &slot.label;
        let uncommitted = self.0.catalog.uncommitted_on(slot.id).into_iter();
        let mut names: Vec<_> = uncommitted.map(|(name, _)| name).collect();
        self.0.journal.look(|state| {
            if !state.is_empty_of(slot.id) {
                let here = state.objects_on(slot.id, None).filter_map(|id| state.object(id));
                names.extend(here.filter_map(|object| object.name().cloned()));
            }
        });
        if names.is_empty() && is_unused {
            return Ok(());
        }
        let some: Vec<_> = names.iter().take(3).map(Name::as_str).collect();
        let what = match (names.len(), &slot.volume) {
            (0, _) => format!("volume {label}: an object is still being created on it; try again"),
            (n, Some(_)) => {
                format!("volume {label} holds {n} objects ({}): empty it first", some.join(", "))
            }
            (n, None) => format!(
                "volume {label} is away and holds the only copy of {n} objects ({}): bring it back, or \
                 remove these objects, which are lost",
                some.join(", ")
            ),
        };
        Err(Error::new(ErrorKind::Invalid, what))
    }
}

async fn remove_manifests(device: &dyn Volume, listing: &[Listed]) -> Result<()> {
    for Listed { name, .. } in listing {
        if matches!(Leaf::parse(name), Some(Leaf::Manifest { .. })) {
            device.remove(name).await?;
        }
    }
    Ok(())
}
