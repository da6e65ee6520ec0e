//! What a pool promises, so many copies of every object on as many volumes: what is short of it, how that is
//! mended, and who is told that there is something to mend.
//!
//! Objects are made with all their copies, and come to have fewer: a volume was full or away when
//! they were made, fails or is lost, a write to one copy failed, a copy was found to be bad. A
//! [`Mover`](crate::mover::Mover) mends that by itself; [`Spread::repair`] does it all at once.

use std::collections::BTreeSet;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use policy::placement::VolumeId;
use volume::{ErrorKind, Io, Name, Result};

use super::moving::is_plain;
use super::{Inner, Spread};
use crate::leaf::ObjectId;
use crate::manifest::Stored;

/// What a pool promises, and what was found to be amiss with that since anybody looked.
pub(super) struct Promise {
    /// How many copies there shall be of everything.
    pub(super) copies: usize,
    amiss: Mutex<Amiss>,
}

#[derive(Default)]
struct Amiss {
    /// Something happened that nobody was told of yet.
    due: bool,
    /// Objects with a copy that did not answer as it should.
    suspects: BTreeSet<ObjectId>,
    /// Tables that should have begun with more copies than they have.
    births: BTreeSet<ObjectId>,
    waker: Option<Waker>,
}

impl Promise {
    pub(super) fn new(copies: usize) -> Self {
        // What happened before anybody could look is for the first look.
        let amiss = Mutex::new(Amiss { due: copies > 1, ..Amiss::default() });
        Self { copies, amiss }
    }

    /// Something changed: a copy went, or a volume came or goes.
    pub(super) fn due(&self) {
        self.tell(|amiss| amiss.due = true);
    }

    /// A copy of an object did not answer as it should, and another did.
    pub(super) fn suspect(&self, id: ObjectId) {
        self.tell(|amiss| amiss.due |= amiss.suspects.insert(id));
    }

    /// A table should have begun with more copies.
    pub(super) fn owe(&self, id: ObjectId) {
        self.tell(|amiss| amiss.due |= amiss.births.insert(id));
    }

    fn tell(&self, what: impl FnOnce(&mut Amiss)) {
        let waker = {
            let mut amiss = self.amiss.lock();
            what(&mut amiss);
            amiss.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// How a pool stands with the copies it promises.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Redundancy {
    /// Copies that every object shall have.
    pub promised: usize,
    /// Objects that have fewer on volumes that are here and stay.
    pub short: u64,
    /// Their bytes.
    pub short_bytes: u64,
    /// Objects with no copy that can be read: on volumes that are away, or lost.
    pub unreadable: u64,
    /// Objects of which all copies failed at once, so that they may differ behind what was acknowledged: they
    /// are made the same before the next write, or when the pool is opened.
    pub doubtful: u64,
}

/// What a repair did, and what it could not do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Repaired {
    /// Copies that were made.
    pub made: u64,
    /// Objects that still have fewer copies than they should, by name, and why.
    pub short: Vec<(Name, String)>,
}

impl Spread {
    /// How many copies of everything the pool promises, and what is short of that while these volumes do not
    /// answer. Looks at every object.
    #[must_use]
    pub fn redundancy(&self, gone: &BTreeSet<VolumeId>) -> Redundancy {
        let pool = &self.0;
        let doubtful = pool.in_doubt().len() as u64;
        let mut found =
            Redundancy { promised: pool.promise.copies, doubtful, ..Redundancy::default() };
        let here = pool.here_without(gone);
        pool.journal.look(|state| {
            let draining = state.draining();
            for (_, object) in state.objects() {
                let (mut good, mut read) = (0, false);
                for placed in object.copies.iter() {
                    let volumes = placed.layout.volumes();
                    let is_here = volumes.iter().all(|volume| here.contains(volume));
                    read |= is_here;
                    good += usize::from(is_here && !volumes.iter().any(|v| draining.contains(v)));
                }
                found.unreadable += u64::from(!read);
                if good < found.promised && found.promised > 1 {
                    found.short += 1;
                    found.short_bytes += object.committed.map_or(0, |committed| committed.len);
                }
            }
        });
        found
    }

    /// Says so if there are fewer volumes than copies are promised.
    pub(super) fn warn_of_few_volumes(&self) {
        let copies = self.0.promise.copies;
        let draining = self.0.journal.look(|state| state.draining().clone());
        let here = self.0.here_without(&draining).len();
        if here < copies {
            tracing::warn!(
                "the pool keeps {copies} copies of everything on as many volumes, and only {here} take \
                 any: what is written has fewer until there are more"
            );
        }
    }

    /// Makes the copies that objects lack: of those that were made while volumes were away or full, or
    /// lost a copy since. Volumes that are away or being emptied do not count. In the class of
    /// `io`, one object after the other; `tell` is called with how many copies were made so far.
    /// Dropping the future stops it.
    ///
    /// # Errors
    /// None so far: what cannot be done is said by name.
    pub async fn repair(&self, io: Io, tell: impl FnMut(u64) + Send) -> Result<Repaired> {
        Ok(self.repair_those(|_| true, &BTreeSet::new(), io, tell).await)
    }

    /// The same for what a mover does not plan: what can still be written to, and what is striped. There is
    /// not much of it. The volumes `gone` do not count either. Copies beyond what is promised go: they were
    /// made while a volume did not answer that is back.
    pub(crate) async fn repair_others(&self, gone: &BTreeSet<VolumeId>, io: Io) -> Repaired {
        let repaired = self.repair_those(|object| !is_plain(object), gone, io, |_| ()).await;
        for (id, volume) in self.0.surplus(gone) {
            if let Err(e) = self.drop_copy(id, volume).await {
                tracing::debug!("a copy too many stays for now: {e}");
            }
        }
        repaired
    }

    async fn repair_those(
        &self,
        which: impl Fn(&Stored) -> bool + Send + Sync,
        gone: &BTreeSet<VolumeId>,
        io: Io,
        mut tell: impl FnMut(u64) + Send,
    ) -> Repaired {
        let pool = &self.0;
        let mut repaired = Repaired::default();
        let mut after = None;
        while let Some((id, lacks)) = pool.next_short(after, &which, gone) {
            after = Some(id);
            let Ok(body) = pool.body_by_id(id) else { continue };
            for _ in 0..lacks {
                match self.copy_anywhere(&body, io).await {
                    Ok(()) => repaired.made += 1,
                    Err(e) if e.kind() == ErrorKind::Gone => break,
                    Err(e) => {
                        repaired.short.push((body.name.clone(), e.to_string()));
                        break;
                    }
                }
                tell(repaired.made);
            }
        }
        repaired
    }

    /// Objects with a copy that did not answer as it should, since this was asked.
    pub(crate) fn take_suspects(&self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.0.promise.amiss.lock().suspects)
    }

    /// Nobody had time for these yet.
    pub(crate) fn suspect_again(&self, suspects: BTreeSet<ObjectId>) {
        self.0.promise.amiss.lock().suspects.extend(suspects);
    }

    /// Tables that should have begun with more copies, since this was asked.
    pub(crate) fn take_births(&self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.0.promise.amiss.lock().births)
    }

    /// Ready as soon as something changed about what is promised since it was ready the last time.
    pub(crate) fn poll_amiss(&self, cx: &Context<'_>) -> Poll<()> {
        let mut amiss = self.0.promise.amiss.lock();
        if std::mem::take(&mut amiss.due) {
            return Poll::Ready(());
        }
        amiss.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Inner {
    /// The volumes that are here, but for those that do not answer.
    fn here_without(&self, gone: &BTreeSet<VolumeId>) -> BTreeSet<VolumeId> {
        let all = self.seats.all();
        let here = all.iter().filter(|seat| seat.volume.is_some() && !gone.contains(&seat.id));
        here.map(|seat| seat.id).collect()
    }

    /// A copy of each object that has more on volumes that count than it should, but for those a mover drops.
    fn surplus(&self, gone: &BTreeSet<VolumeId>) -> Vec<(ObjectId, VolumeId)> {
        let here = self.here_without(gone);
        self.journal.look(|state| {
            let counts =
                |volume: &VolumeId| here.contains(volume) && !state.draining().contains(volume);
            let others = state.objects().filter(|(_, object)| !is_plain(object));
            let surplus = others.filter_map(|(id, object)| {
                let copies = object.copies.iter();
                let good = copies.filter(|placed| placed.layout.volumes().iter().all(counts));
                let last = good.skip(self.promise.copies).last()?;
                Some((id, *last.layout.volumes().first()?))
            });
            surplus.collect()
        })
    }

    /// The first object after `after` that has fewer copies on volumes that count than it should, and
    /// how many it lacks.
    fn next_short(
        &self,
        after: Option<ObjectId>,
        which: &impl Fn(&Stored) -> bool,
        gone: &BTreeSet<VolumeId>,
    ) -> Option<(ObjectId, usize)> {
        let here = self.here_without(gone);
        self.journal.look(|state| {
            let counts =
                |volume: &VolumeId| here.contains(volume) && !state.draining().contains(volume);
            let later = |id: ObjectId| after.is_none_or(|after| id > after);
            let mut objects = state.objects().filter(|(id, object)| later(*id) && which(object));
            objects.find_map(|(id, object)| {
                let copies = object.copies.iter();
                let good = copies.filter(|placed| placed.layout.volumes().iter().all(counts));
                let lacks = self.promise.copies.saturating_sub(good.count());
                (lacks > 0).then_some((id, lacks))
            })
        })
    }
}
