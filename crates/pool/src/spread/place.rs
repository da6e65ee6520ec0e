//! Making objects: on the volumes placement chooses, or on others if those will not.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Candidate, Layout, VolumeId};
use policy::purpose::Origin;
use volume::{Error, ErrorKind, Intent, Io, IoBuf, Name, Object, Result, Space};

use super::body::Body;
use super::placing::Flight;
use super::{Inner, Spread, Table};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Committed, Record};

/// An object that has leaves but no name yet.
struct Made {
    id: ObjectId,
    layout: Layout,
    leaves: Vec<Arc<dyn Object>>,
}

/// An error, and the volume it came from.
type At = (VolumeId, Error);

impl Spread {
    /// Makes an object of all of `data` at once: places it, writes it, syncs it, and records its name,
    /// length and checksum. Durable on return, and there in no part before. It never changes again.
    ///
    /// A volume that is full, away or poisoned is passed over for the next that placement chooses.
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
        let kind = Kind::of(intent, name);
        let intent = Intent { len: Some(data.len() as u64), ..intent.clone() };
        pool.must_be_free(&pool.table.lock(), name)?;
        pool.journal.ready().await?;
        let made = pool.make(name, kind, &intent, Some((&data, io))).await?;
        let checksum = Some(xxhash_rust::xxh3::xxh3_64(&data));
        let committed = Some(Committed { len: data.len() as u64, checksum });
        let named = pool.record_create(&mut pool.table.lock(), name, kind, &made, committed);
        let lsn = pool.keep_or_drop(kind, &made, named).await?;
        pool.journal.durable(lsn).await
    }
}

impl Inner {
    /// Makes an empty object: a log has its name from now on, anything else is a draft.
    pub(super) async fn create(&self, name: &Name, intent: &Intent) -> Result<Arc<Body>> {
        let kind = Kind::of(intent, name);
        self.must_be_free(&self.table.lock(), name)?;
        self.journal.ready().await?;
        let made = self.make(name, kind, intent, None).await?;
        let named = self.name_empty(name, kind, &made);
        let (lsn, body) = self.keep_or_drop(kind, &made, named).await?;
        self.journal.written(lsn).await?;
        Ok(body)
    }

    fn name_empty(&self, name: &Name, kind: Kind, made: &Made) -> Result<(Lsn, Arc<Body>)> {
        let body = Body::new(name, made.id, kind, made.layout.clone(), made.leaves.clone());
        let mut table = self.table.lock();
        let lsn = if kind == Kind::Log {
            self.record_create(&mut table, name, kind, made, None)?
        } else {
            self.must_be_free(&table, name)?;
            table.drafts.insert(name.clone(), made.id);
            0
        };
        body.wait_for(lsn);
        let body = Arc::new(body);
        table.bodies.insert(made.id, Arc::clone(&body));
        Ok((lsn, body))
    }

    /// Gives an object with leaves a name in the manifest.
    fn record_create(
        &self,
        table: &mut Table,
        name: &Name,
        kind: Kind,
        made: &Made,
        committed: Option<Committed>,
    ) -> Result<Lsn> {
        self.must_be_free(table, name)?;
        let (id, layout, name) = (made.id, made.layout.clone(), name.clone());
        let create = Record::Create { id, kind, layout, committed, name };
        Ok(self.journal.record(vec![create])?.0)
    }

    fn must_be_free(&self, table: &Table, name: &Name) -> Result<()> {
        let stored = || self.journal.look(|state| state.id(name).is_some());
        if table.drafts.contains_key(name) || stored() {
            let what = format!("{name}: there is one");
            return Err(Error::new(ErrorKind::AlreadyExists, what));
        }
        Ok(())
    }

    /// Removes the leaves of an object that got no name after all.
    async fn keep_or_drop<T>(&self, kind: Kind, made: &Made, named: Result<T>) -> Result<T> {
        if named.is_err() {
            self.forget_table(made.id);
            for &volume in made.layout.volumes() {
                self.remove_leaf(volume, Leaf::Object { id: made.id, kind }).await;
            }
        }
        named
    }

    /// All the room on the volumes that answer.
    pub(super) async fn space(&self) -> Result<Space> {
        let mut sum = Space { total: 0, free: 0 };
        let mut failed = None;
        let mut answered = false;
        for (_, space) in self.spaces().await {
            match space {
                Ok(space) => {
                    sum.total += space.total;
                    sum.free += space.free;
                    answered = true;
                }
                Err(e) => failed = Some(e),
            }
        }
        match failed {
            Some(e) if !answered => Err(e),
            _ => Ok(sum),
        }
    }

    async fn spaces(&self) -> Vec<(VolumeId, Result<Space>)> {
        join_all(self.seats.present().map(async |(seat, volume)| (seat.id, volume.space().await)))
            .await
    }

    /// Makes leaves for a new object, with all of `data` in them and synced if there is any, on the
    /// first volumes that take it.
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
            let origin = data.map(|(_, io)| io.origin);
            let flight = match self.choose(id, kind, intent, origin, &failed).await {
                Ok(flight) => flight,
                Err(away) => {
                    failed.extend(away);
                    return Err(self.nowhere(name, intent, failed));
                }
            };
            match self.make_leaves(id, kind, flight.layout(), intent, data).await {
                Ok(leaves) => return Ok(Made { id, layout: flight.land(), leaves }),
                // Somebody put an object there that has our next id: it is not ours, take another.
                Err((_, e)) if e.kind() == ErrorKind::AlreadyExists => {}
                Err((volume, e)) if is_about_the_volume(&e) => {
                    let label = self.seats.label(volume);
                    tracing::warn!("{name} goes elsewhere than to volume {label}: {e}");
                    failed.push((volume, e));
                }
                Err((volume, e)) => {
                    let label = self.seats.label(volume);
                    return Err(e.within(format_args!("{name} on volume {label}")));
                }
            }
        }
    }

    /// Asks placement, with the volumes as they are now. Logs go to the volumes for metadata if these
    /// have room. If it finds none: the volumes that did not answer.
    async fn choose(
        &self,
        id: ObjectId,
        kind: Kind,
        intent: &Intent,
        origin: Option<Origin>,
        failed: &[At],
    ) -> std::result::Result<Flight<'_>, Vec<At>> {
        let (mut all, mut away) = (Vec::new(), Vec::new());
        for (volume, space) in self.spaces().await {
            let is_out = failed.iter().any(|(other, _)| *other == volume);
            all.push(match space {
                Ok(Space { total, free }) if !is_out => Candidate::new(volume, free, total),
                Err(e) if !is_out => {
                    away.push((volume, e));
                    Candidate::away(volume)
                }
                _ => Candidate::away(volume),
            });
        }
        let intent = match kind {
            Kind::Log => &Intent { len: intent.len, ..Intent::LOG },
            Kind::Table | Kind::Data => intent,
        };
        let for_meta = all.iter().filter(|c| self.meta.contains(&c.volume));
        let mut placing = self.placing.lock();
        let chosen = match kind {
            Kind::Log => placing.choose(id, intent, origin, for_meta.copied()),
            Kind::Table | Kind::Data => None,
        };
        let chosen = chosen.or_else(|| placing.choose(id, intent, origin, all.iter().copied()));
        chosen.map(|chosen| Flight::of(self, id, chosen)).ok_or(away)
    }

    /// Makes the leaves of one object, all or none.
    async fn make_leaves(
        &self,
        id: ObjectId,
        kind: Kind,
        layout: &Layout,
        intent: &Intent,
        data: Option<(&IoBuf, Io)>,
    ) -> std::result::Result<Vec<Arc<dyn Object>>, At> {
        let leaf = Leaf::Object { id, kind };
        let chunks = layout.chunks();
        let made = (0..).zip(layout.volumes()).map(async |(part, &volume)| {
            let len = intent.len.map(|len| chunks.part_len(len, part));
            let intent = Intent { kind: intent.kind.clone(), len };
            let made = match self.seats.volume(volume) {
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

    /// Why no volume takes an object.
    fn nowhere(&self, name: &Name, intent: &Intent, failed: Vec<At>) -> Error {
        let causes: Vec<_> = failed
            .iter()
            .map(|(volume, e)| format!("volume {}: {e}", self.seats.label(*volume)))
            .collect();
        // Those that answered and were not tried have no room for it.
        let tried_all = failed.len() == self.seats.present().count();
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

/// Writes all of `data` to new leaves and syncs them.
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

/// Whether another volume may do what this one did not.
fn is_about_the_volume(e: &Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::OutOfSpace | ErrorKind::Unavailable | ErrorKind::Poisoned | ErrorKind::Io
    )
}
