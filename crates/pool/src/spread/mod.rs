//! Whole objects spread over volumes by placement.
//!
//! ```text
//!   kv/000012.sst ─▶ manifest ─▶ object 17, 8 MiB, on s3 ─▶ s3: o0000000000000011.tab
//! ```
//! Names are in the manifest, bytes in leaf objects on the volumes, whose names are numbers that are
//! never reused. What survives after a call has returned:
//!
//! | call | survives the process | survives the machine |
//! |---|---|---|
//! | `create` of a log | yes | after the first `sync` |
//! | `create` of anything else | no: it is uncommitted until synced | after the first `sync` |
//! | `write_at` to a log | yes | after `sync` |
//! | `write_at` to anything else | no | after `sync` |
//! | [`Spread::write_whole`], `remove`, `rename`, `link`, `rename_prefix` | yes | yes |
//! | [`Spread::remove_soon`] | yes | after [`Spread::flush`], or any later durable call |
//!
//! Open objects stay readable after their last name is removed, as in every [`Volume`]; the last handle
//! frees their bytes.
//!
//! While a volume is away, the pool still serves names, sizes and objects on other volumes. A call that
//! needs the volume fails with `Unavailable`; the message names object and volume. A volume that comes
//! back is used again, unless it was missing when the pool was opened.

mod again;
mod align;
mod catalog;
mod change;
mod check;
mod choose;
mod copies;
mod create;
mod damage;
mod encode;
mod follow;
mod fragments;
mod handle;
mod hashing;
mod heat;
mod in_place;
mod inode;
mod leaves;
mod logs;
mod name_lease;
mod names;
mod outdated;
mod patches;
mod placing;
mod rebalancing;
mod rebuild;
mod recode;
mod replication;
mod resync;
mod room;
mod rows;
mod rows_again;
mod running;
mod scrub;
mod seal;
mod stage;
mod tenants;
mod unsynced;
mod verifying;
mod volumes;
mod write_lock;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use policy::placement::{Code, Placement, VolumeId, members_for};
use policy::purpose::Tenant;
use volume::{
    Error, ErrorKind, Intent, Io, IoBuf, Limits, Listed, Name, Object, Pending, ReadTime, Result,
    Space, Volume,
};

use self::catalog::Catalog;
pub use self::catalog::Change;
pub use self::check::{Finding, Problem, Report};
pub(crate) use self::copies::How;
pub use self::copies::{Copied, ObjectStat};
pub use self::damage::Damage;
use self::damage::Damages;
use self::fragments::Coding;
pub use self::handle::Handle;
use self::leaves::Leaves;
pub use self::name_lease::NameLease;
use self::name_lease::NameLeases;
pub use self::names::Stat;
pub(crate) use self::patches::{Missed, Patch};
use self::placing::Placing;
use self::replication::Replication;
pub use self::replication::{Redundancy, Repaired};
pub use self::room::Room;
pub use self::scrub::{Progress, ScrubPass, ToScrub};
pub use self::seal::Checksum;
pub(crate) use self::stage::{Dirty, InPlace};
pub use self::tenants::Kept;
use self::tenants::Tenants;
use self::verifying::Verifiers;
pub use self::verifying::Verifying;
pub use self::volumes::{Drained, Held, Left, VolumeStat, VolumeState};
pub(crate) use self::write_lock::WriteLock;
use crate::header::{self, Header, PoolId};
use crate::manifest::State;
use crate::manifest::headers::Headers;
use crate::manifest::journal::Journal;
pub use crate::manifest::recovery::LeftOut;
use crate::manifest::recovery::{self, Recovered, Survey, Trust};
use crate::members::{Member, MemberSlot, Members};

/// A pool of volumes that spreads whole objects over them. Clones are handles to the same pool, and of the same store on
/// it: see [`Spread::enter`].
#[derive(Clone)]
pub struct Spread(Arc<Parts>, Tenant);

/// Options for opening a pool.
pub struct Opening {
    placement: Box<dyn Placement>,
    meta: Vec<String>,
    copies: usize,
    code: Option<Code>,
    create: Option<PoolId>,
    trust: Trust,
}

/// An object on a volume that the pool never issued. The pool never changes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Foreign {
    /// The label of the volume.
    pub volume: String,
    /// The object's name there.
    pub name: Name,
    /// Its length in bytes.
    pub len: u64,
}

/// The parts of a pool: each owns a state, with its locks. An operation on several parts is a method of [`Spread`].
struct Parts {
    /// The volumes of the pool.
    members: Arc<Members>,
    /// The volumes that were passed in and could not be used.
    left_out: Vec<LeftOut>,
    /// The manifest: edits in memory, then on volumes.
    journal: Arc<Journal>,
    /// Names and objects, in the manifest and in memory.
    catalog: Catalog,
    /// The erasure code, for objects that never change again.
    coding: Coding,
    /// Leaf objects on the volumes.
    leaves: Leaves,
    /// The choice of volumes, from tables, heat and load.
    placing: Arc<Placing>,
    /// The replication target, and its shortfalls.
    replication: Replication,
    /// Damaged copies found so far.
    damages: Damages,
    /// Names with an owner in this process.
    leases: NameLeases,
    /// The stores on the pool.
    tenants: Tenants,
    /// Those that verify their objects in place.
    verifiers: Verifiers,
}

impl Opening {
    /// Opens an existing pool with all of its volumes.
    #[must_use]
    pub fn new(placement: impl Placement + 'static) -> Self {
        Self {
            placement: Box::new(placement),
            meta: Vec::new(),
            copies: 1,
            code: None,
            create: None,
            trust: Trust::default(),
        }
    }

    /// Places new objects by `placement`.
    #[must_use]
    pub fn placement(mut self, placement: impl Placement + 'static) -> Self {
        self.placement = Box::new(placement);
        self
    }

    /// Places logs and the manifest on the volumes with these labels, while they have room. By default
    /// logs are placed like other objects, and the manifest is on the first volumes.
    #[must_use]
    pub fn meta(mut self, labels: impl IntoIterator<Item = String>) -> Self {
        self.meta = labels.into_iter().collect();
        self
    }

    /// The replication target: keeps `copies` copies of every object, also of logs, on different volumes;
    /// for volumes that are not durable. Default: 1. If fewer are possible, an object is created with
    /// fewer; a [`Mover`](crate::mover::Mover) or [`Spread::repair`] adds the rest later.
    #[must_use]
    pub fn copies(mut self, copies: usize) -> Self {
        self.copies = copies.max(1);
        self
    }

    /// The copies that it keeps of an object that it does not cut.
    #[must_use]
    pub const fn copies_wanted(&self) -> usize {
        self.copies
    }

    /// Cuts objects into fragments by an erasure code, each on another volume, if they never change again and are longer
    /// than a strip. All other objects, logs among them, get one copy more than the code has parity fragments: so the
    /// pool survives the loss of as many volumes as it has parity fragments. It overrides [`Opening::copies`].
    ///
    /// If fewer volumes take a fragment, an object is created with fewer, but with as many as hold it; a
    /// [`Mover`](crate::mover::Mover) or [`Spread::repair`] adds the rest later. A pool may be opened with another code,
    /// or with none: objects keep theirs.
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.copies = code.parity() + 1;
        self.code = Some(code);
        self
    }

    /// Creates a pool with this id, which should be random, if every volume is blank.
    #[must_use]
    pub fn create_if_missing(mut self, id: PoolId) -> Self {
        self.create = Some(id);
        self
    }

    /// Opens the pool even if volumes are away: not passed in, or [failing](Self::allow_failing). By default
    /// that is an error.
    #[must_use]
    pub fn allow_away(mut self) -> Self {
        self.trust.away = true;
        self.allow_failing()
    }

    /// Opens the pool without those of the passed volumes that give no answer, or whose header cannot be read or is
    /// damaged: [`Spread::left_out`] names them, and they are not touched. By default that is an error. No pool is
    /// created while a volume fails: it may hold one.
    #[must_use]
    pub fn allow_failing(mut self) -> Self {
        self.trust.failing = true;
        self
    }

    /// Uses the newest readable manifest, even if a newer one must have existed: the last resort when
    /// volumes are lost. The pool keeps objects that this manifest does not list; [`Spread::foreign`]
    /// lists them.
    #[must_use]
    pub fn salvage(mut self) -> Self {
        self.trust.salvage = true;
        self
    }
}

impl Spread {
    /// Opens the pool of `members`, and recovers it after a crash: objects that were never synced are
    /// gone, removed objects stay removed, and foreign objects stay untouched.
    ///
    /// # Errors
    /// `Invalid`: a volume does not belong here; `Unavailable`: volumes are away; `Corrupt`: a header
    /// or the manifest is damaged. The message names the volume and the remedy.
    pub async fn open(members: Vec<Member>, opening: Opening) -> Result<Self> {
        let Opening { placement, meta, copies, code, create, trust } = opening;
        let recovered = match recovery::survey(&members, trust).await? {
            Survey::Pool(recovered) => *recovered,
            Survey::Blank { generation } => match create {
                Some(id) => format(id, members, generation).await?,
                None => {
                    let labels: Vec<_> = members.iter().map(|m| m.label.as_str()).collect();
                    return Err(Error::new(
                        ErrorKind::NotFound,
                        format!("no pool here: the volumes {} are blank", labels.join(", ")),
                    ));
                }
            },
        };
        let report = recovered.report();
        for loss in report.findings.iter().filter(|found| found.is_loss()) {
            tracing::error!("{loss}");
        }
        let Recovered { pool, members, state, generation, alone, home, .. } = recovered;
        let Recovered { orphans, foreign, unequal, left_out, .. } = recovered;
        let members = Arc::new(members);
        let meta = by_label(&members, &meta)?;
        let (there, first) = (Arc::clone(&members), meta.clone());
        let kept = members_for(copies - 1);
        let headers = Headers::new(pool, Arc::clone(&there), first, kept, alone, home);
        let journal = Journal::start(pool, there, headers, state, generation).await?;
        let journal = Arc::new(journal);
        let placing = Arc::new(journal.look(|state| Placing::new(placement, meta, state)));
        let parts = Parts {
            catalog: Catalog::new(members.clone(), journal.clone(), placing.clone()),
            coding: Coding::new(code),
            leaves: Leaves::new(members.clone(), orphans, foreign),
            placing,
            replication: Replication::new(copies),
            damages: Damages::default(),
            leases: NameLeases::default(),
            tenants: Tenants::default(),
            verifiers: Verifiers::default(),
            members,
            left_out,
            journal,
        };
        let volumes = parts.members.present().into_iter().map(|(slot, _)| slot.id);
        join_all(volumes.map(|volume| parts.leaves.remove_orphans(volume))).await;
        let pool = Self(Arc::new(parts), Tenant::POOL);
        pool.warn_of_few_volumes();
        pool.suspect_unequal(unequal);
        pool.drop_broken(&report).await;
        // Persist what recovery found before serving, or a second crash could undo what readers saw.
        pool.flush().await?;
        Ok(pool)
    }

    /// Creates a pool on blank volumes. Durable on return.
    ///
    /// # Errors
    /// `AlreadyExists`: they are a pool already; else as for [`Spread::open`].
    pub async fn format(members: &[Member], id: PoolId) -> Result<()> {
        match recovery::survey(members, Trust::default()).await? {
            Survey::Pool(found) => Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("the volumes are pool {} already", found.pool),
            )),
            Survey::Blank { generation } => {
                let Recovered { pool, members, state, generation, .. } =
                    format(id, members.to_vec(), generation).await?;
                let members = Arc::new(members);
                let (there, kept) = (Arc::clone(&members), members_for(0));
                let headers = Headers::new(pool, there, Vec::new(), kept, None, None);
                Journal::start(pool, members, headers, state, generation).await?;
                Ok(())
            }
        }
    }

    /// The pool's number.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.0.journal.pool()
    }

    /// The volumes that were passed in, and that the pool was opened without: see [`Opening::allow_failing`].
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.0.left_out
    }

    /// The foreign objects that were on the volumes when the pool was opened.
    #[must_use]
    pub fn foreign(&self) -> &[Foreign] {
        &self.0.leaves.foreign
    }

    /// Makes all changes of names durable, as a sync of all directories does in a file system. Uncommitted
    /// objects stay uncommitted.
    ///
    /// # Errors
    /// `Unavailable`, `OutOfSpace`, `Poisoned`: no volume takes the manifest; try again when one was
    /// repaired.
    pub async fn flush(&self) -> Result<()> {
        self.0.journal.ready().await?;
        self.0.journal.durable(self.0.journal.recorded()).await?;
        self.bury().await;
        Ok(())
    }

    /// Frees the bytes of removed copies whose edit is durable.
    async fn bury(&self) {
        self.0.catalog.bury(&self.0.leaves).await;
    }

    /// As [`Spread::flush`], and marks a clean close, which distinguishes damage at the manifest's end from
    /// a crash: the next opening of the pool compares no copies. So what was written and not synced is synced before, but
    /// for tables, and copies that may differ after a crash or failures are aligned. If that cannot be done now, the
    /// mark is left out. What is written later needs another close.
    ///
    /// # Errors
    /// As for [`Spread::flush`].
    pub async fn close(&self) -> Result<()> {
        let alike = self.settle_all().await;
        let synced = self.sync_written().await;
        self.flush().await?;
        if !alike || !synced {
            return Ok(());
        }
        self.0.journal.close().await
    }
}

/// Writes the headers of a new pool, with epoch 0, which marks it as unfinished.
async fn format(id: PoolId, members: Vec<Member>, generation: u64) -> Result<Recovered> {
    let slots = (0..).zip(members);
    let slots = slots.map(|(number, member)| {
        MemberSlot::new(VolumeId(number), member.label, Some(member.volume))
    });
    let members = Members::new(slots.collect());
    let present = members.present();
    let written = present.iter().map(async |(slot, volume)| {
        let (volume_id, label) = (slot.id, slot.label.clone());
        header::write(&**volume, &Header { pool: id, volume: volume_id, label, epoch: 0, seal: 0 })
            .await
    });
    for written in join_all(written).await {
        written?;
    }
    Ok(Recovered {
        pool: id,
        members,
        left_out: Vec::new(),
        state: State::new(),
        generation,
        alone: None,
        home: None,
        orphans: Vec::new(),
        foreign: Vec::new(),
        listings: Vec::new(),
        unequal: Vec::new(),
    })
}

fn by_label(members: &Members, labels: &[String]) -> Result<Vec<VolumeId>> {
    let id = |label: &String| {
        members.by_label(label).ok_or_else(|| {
            let all = members.all();
            let known: Vec<_> = all.iter().map(|slot| slot.label.as_str()).collect();
            let what = format!("meta volume {label}: the pool's are {}", known.join(", "));
            Error::new(ErrorKind::Invalid, what)
        })
    };
    labels.iter().map(id).collect()
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Spread {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let inode = self.create_empty(&name, &intent).await?;
            Ok(Arc::new(self.handle(inode)) as Arc<dyn Object>)
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let handle = self.open_handle(&name).await?;
            Ok(Arc::new(handle) as Arc<dyn Object>)
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let change = Change::Remove { name: name.clone() };
        Box::pin(async move { self.change(&[change]).await })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move { self.list_prefix("").await })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(Self::space(self))
    }

    /// The mean over the volumes.
    fn expected_read(&self) -> ReadTime {
        let present = self.0.members.present();
        let count = u32::try_from(present.len()).unwrap_or(u32::MAX).max(1);
        let times: Vec<_> = present.iter().map(|(_, volume)| volume.expected_read()).collect();
        ReadTime {
            wait: times.iter().map(|time| time.wait).sum::<Duration>() / count,
            answer: times.iter().map(|time| time.answer).sum::<Duration>() / count,
        }
    }

    fn users_load(&self) -> f64 {
        let present = self.0.members.present();
        present.iter().map(|(_, volume)| volume.users_load()).fold(0.0, f64::max)
    }

    /// Those that suit every volume that is present.
    fn limits(&self) -> Limits {
        let present = self.0.members.present();
        let limits = present.iter().map(|(_, volume)| volume.limits());
        limits.reduce(Limits::and).unwrap_or(Limits::PAGES)
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move { Self::write_whole(self, &name, &intent, data, io).await })
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(async move { Self::rename(self, &from, &to).await })
    }

    fn link(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(async move { Self::link(self, &from, &to).await })
    }
}
