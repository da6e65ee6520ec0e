//! Creates objects on the volumes that placement chooses, or on others if those fail.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use volume::{Error, ErrorKind, Intent, Io, IoBuf, Name, Result};

use super::Spread;
use super::choose::{Place, is_about_the_volume};
use super::encode::{Encoding, Source};
use super::inode::Inode;
use super::leaves::{At, NewCopy};
use super::placing::Wanted;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::{Committed, Copies, Placed, Record};

/// An object that has leaf objects but no name yet.
struct Made {
    id: ObjectId,
    kind: Kind,
    copies: Vec<NewCopy>,
}

impl Made {
    fn copies(&self) -> Copies {
        let copies = Copies::of(self.copies.iter().map(|copy| copy.placed.clone()));
        copies.expect("an object is made with a copy")
    }
}

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
        let (pool, io) = (&self.0, self.tagged(io));
        // Even a log never grows then.
        let intent = if intent.is_log() { &Intent::DATA } else { intent };
        let intent = Intent { len: Some(data.len() as u64), ..intent.clone() };
        let kind = Kind::of(&intent);
        pool.catalog.must_be_free(name)?;
        pool.journal.ready().await?;
        let made = match self.make_whole(name, kind, &intent, &data, io).await {
            Err(e) if self.frees_for(&e).await => {
                self.make_whole(name, kind, &intent, &data, io).await
            }
            made => made,
        };
        let (made, checksum) = made?;
        let committed = Some(Committed { len: data.len() as u64, checksum: Some(checksum) });
        let (id, copies) = (made.id, made.copies());
        let create = Record::Create { id, kind, copies, committed, name: name.clone() };
        let named = pool.catalog.create_whole(name, create);
        let lsn = self.keep_or_drop(&made, named).await?;
        pool.journal.durable(lsn).await
    }

    /// Creates an empty object. A log is recorded at once; any other object is uncommitted until its first
    /// sync.
    pub(super) async fn create_empty(&self, name: &Name, intent: &Intent) -> Result<Arc<Inode>> {
        let (pool, kind) = (&self.0, Kind::of(intent));
        pool.catalog.must_be_free(name)?;
        pool.journal.ready().await?;
        let made = match self.make(name, kind, intent, None).await {
            Err(e) if self.frees_for(&e).await => self.make(name, kind, intent, None).await,
            made => made,
        };
        let made = made?;
        let inode = Inode::new(name, made.id, kind, &made.copies, &pool.members);
        let named = pool.catalog.create_empty(inode);
        let (lsn, inode) = self.keep_or_drop(&made, named).await?;
        pool.journal.written(lsn).await?;
        Ok(inode)
    }

    /// Makes the copies or fragments of an object of `data`, whose checksum it gives.
    async fn make_whole(
        &self,
        name: &Name,
        kind: Kind,
        intent: &Intent,
        data: &IoBuf,
        io: Io,
    ) -> Result<(Made, u64)> {
        let Some(code) = self.0.coding.code_for(data.len() as u64) else {
            let made = self.make(name, kind, intent, Some((data, io))).await?;
            return Ok((made, xxhash_rust::xxh3::xxh3_64(data)));
        };
        let source = Source::Bytes(data);
        let encoded = self.encode(Encoding { name, code, kind, intent, source, io }).await?;
        if encoded.is_short {
            self.0.replication.due();
        }
        Ok((Made { id: encoded.id, kind, copies: encoded.fragments }, encoded.checksum))
    }

    /// Whether what failed is worth another try: it lacked room, and removed objects had some still.
    async fn frees_for(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::OutOfSpace && self.free_removed().await
    }

    /// Removes the leaf objects of an object that got no name.
    async fn keep_or_drop<T>(&self, made: &Made, named: Result<T>) -> Result<T> {
        if named.is_err() {
            self.0.placing.forget_table(made.id);
            for NewCopy { placed, .. } in &made.copies {
                self.0.leaves.remove_copy(made.id, made.kind, placed).await;
            }
        }
        named
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
        let pool = &self.0;
        let mut failed: Vec<At> = Vec::new();
        loop {
            let id = pool.journal.issue_id().await?;
            let wanted = Wanted { id, kind, intent, origin: data.map(|(_, io)| io.origin) };
            let first = match self.choose(wanted, &failed, None).await {
                Ok(place) => place,
                Err(away) => {
                    failed.extend(away);
                    return Err(self.nowhere(name, intent, failed));
                }
            };
            let others = self.choose_others(wanted, &failed, &first).await.into_iter();
            let make = |(number, place)| self.make_copy(wanted, number, place, data);
            let (first, others) = join(make((0, first)), join_all(others.map(make))).await;
            let mut copies = Vec::new();
            for made in others {
                match made {
                    Ok(copy) => copies.push(copy),
                    Err((_, e)) if e.kind() == ErrorKind::AlreadyExists => {}
                    Err(at) => failed.push(self.warn_of_failed(name, at)),
                }
            }
            let (volume, e) = match first {
                Ok(first) => {
                    copies.insert(0, first);
                    let mut made = Made { id, kind, copies };
                    if made.copies.len() > 1 {
                        pool.placing.set_places(id, &made.copies());
                    }
                    self.make_more(&mut made, name, wanted, data, failed).await;
                    return Ok(made);
                }
                Err(at) => at,
            };
            // The places of the others depend on the first: choose all of them again.
            for NewCopy { placed, .. } in copies {
                pool.leaves.remove_copy(id, kind, &placed).await;
            }
            let label = pool.members.label(volume);
            if is_about_the_volume(&e) {
                tracing::warn!(
                    "{name} cannot be created on volume {label}, and goes to another: {e}"
                );
                failed.push((volume, e));
            } else if e.kind() != ErrorKind::AlreadyExists {
                return Err(e.within(format_args!("{name} on volume {label}")));
            }
            // A foreign object on the volume has this id: take another.
        }
    }

    /// Places for the other copies of an object, up to the replication target if possible, with their numbers.
    async fn choose_others<'a>(
        &'a self,
        wanted: Wanted<'_>,
        failed: &[At],
        first: &Place<'_>,
    ) -> Vec<(u64, Place<'a>)> {
        let mut taken = first.flight.layout().volumes().to_vec();
        let mut others = Vec::new();
        while others.len() + 1 < self.0.replication.target {
            let Ok(place) = self.choose(wanted, failed, Some(&taken)).await else { break };
            let Ok(ObjectId(number)) = self.0.journal.issue_id().await else { break };
            taken.extend(place.flight.layout().volumes());
            others.push((number, place));
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
        let pool = &self.0;
        let count = match (data, wanted.kind) {
            (Some(_), Kind::Table) => pool.placing.initial_copies(wanted.id),
            _ => 1,
        };
        let count = pool.replication.target.max(count);
        while made.copies.len() < count {
            let required = made.copies.len() < pool.replication.target;
            let taken: Vec<_> = made.copies().volumes().collect();
            let place = self.choose(wanted, &failed, Some(&taken)).await;
            let number = pool.journal.issue_id().await;
            let (Ok(place), Ok(ObjectId(number))) = (place, number) else {
                let (copies, wanted) = (made.copies.len(), count);
                tracing::debug!("{name} is made with {copies} of {wanted} copies");
                if required {
                    pool.replication.due();
                }
                return;
            };
            let (layout, len) = (place.flight.layout(), wanted.intent.len.unwrap_or(0));
            if !required && !self.has_room_to_spare(layout, len).await {
                return;
            }
            match self.make_copy(wanted, number, place, data).await {
                Ok(copy) => {
                    made.copies.push(copy);
                    pool.placing.set_places(wanted.id, &made.copies());
                    if !required {
                        pool.placing.count_replicated();
                    }
                }
                Err(at) => failed.push(self.warn_of_failed(name, at)),
            }
        }
    }

    async fn make_copy(
        &self,
        wanted: Wanted<'_>,
        number: u64,
        Place { flight, occupied }: Place<'_>,
        data: Option<(&IoBuf, Io)>,
    ) -> std::result::Result<NewCopy, At> {
        let Wanted { id, kind, intent, .. } = wanted;
        let placed = Placed { number, layout: flight.layout().clone() };
        let made = self.0.leaves.make(id, kind, placed, occupied, intent, data).await?;
        flight.land();
        Ok(made)
    }

    pub(super) fn warn_of_failed(&self, name: &Name, (volume, e): At) -> At {
        let label = self.0.members.label(volume);
        tracing::warn!("a copy of {name} cannot be created on volume {label}: {e}");
        (volume, e)
    }

    /// The error when no volume takes an object.
    fn nowhere(&self, name: &Name, intent: &Intent, failed: Vec<At>) -> Error {
        let causes = self.0.members.causes(&failed);
        // Volumes that answered and were not tried have no room for it.
        let tried_all = failed.len() == self.0.members.present().len();
        let kind = match failed.last() {
            Some((_, e)) if tried_all && failed.iter().all(|(_, f)| f.kind() == e.kind()) => {
                e.kind()
            }
            _ => ErrorKind::OutOfSpace,
        };
        let len = intent.len.map_or("any".into(), |len| policy::units::Bytes(len).to_string());
        let what = match causes.is_empty() {
            true => format!("{name}: no volume of the pool has room for {len} bytes more"),
            false => format!("{name}: no volume of the pool takes {len} bytes more ({causes})"),
        };
        Error::new(kind, what)
    }
}
