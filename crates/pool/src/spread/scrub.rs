//! A scrub reads back every copy of every sealed object and of every log, and compares it with its checksum. Objects in
//! place are verified by their stores: see [`Spread::verify_with`].
//!
//! A pass goes through the objects in the order of their numbers, which is that of their creation. So two numbers say
//! where it is, and it can go on after a restart. Objects created meanwhile belong to the next pass.

use policy::purpose::{Io, Origin, Step};
use volume::{Name, Result};

use super::Spread;
use super::check::{Finding, Found, NOT_WRITTEN, Problem, Report, problem, read_through, suffice};
use super::handle::Handle;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::{Checked, Stored};

/// Reads of a scrub.
pub(super) const IO: Io = Io::new(Origin::Scrub, Step::Data);

/// Objects looked at under one lock of the manifest, which takes some 0.1 ms.
const LOOK_AT_ONCE: usize = 1024;

/// The progress of a scrub.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Bytes read back so far.
    pub done: u64,
    /// Bytes to read when it began.
    pub of: u64,
}

/// A pass over the objects of a pool, and how far it has come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScrubPass {
    /// The lowest number of an object that was not read yet.
    pub next: u64,
    /// The lowest number that does not belong to the pass: such objects were created after it began.
    pub end: u64,
    /// Objects read so far.
    pub objects: u64,
    /// Bytes read so far: those of each copy count.
    pub done: u64,
    /// Bytes to read when the pass began.
    pub of: u64,
}

/// An object that a scrub is about to read.
#[derive(Clone, Debug)]
pub struct ToScrub {
    id: ObjectId,
    name: Name,
    is_in_place: bool,
    len: u64,
    /// Those of all its copies together.
    stored: u64,
}

impl ScrubPass {
    /// Takes note that an object was read.
    pub const fn passed(&mut self, object: &ToScrub) {
        self.next = object.id.0 + 1;
        self.objects += 1;
        self.done += object.bytes();
    }

    /// Takes note that an object was left out.
    pub const fn left_out(&mut self, object: &ToScrub) {
        self.next = object.id.0 + 1;
        self.of = self.of.saturating_sub(object.bytes());
    }
}

impl ToScrub {
    fn of(id: ObjectId, object: &Stored) -> Option<Self> {
        let is_in_place = object.kind == Kind::InPlace && sealed(object).is_none();
        let is_scrubbed = is_in_place || sealed(object).is_some() || object.kind == Kind::Log;
        let (len, name) = (object.committed?.len, object.name()?.clone());
        let stored = object.copies.stored_len(len);
        is_scrubbed.then_some(Self { id, name, is_in_place, len, stored })
    }

    /// Its number in the pool.
    pub(super) const fn id(&self) -> ObjectId {
        self.id
    }

    /// Whether its store has to verify it.
    pub(super) const fn is_in_place(&self) -> bool {
        self.is_in_place
    }

    /// The bytes of all its copies together.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.stored
    }

    /// One of its names in the pool.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }
}

impl Spread {
    /// A pass over all objects that are in the pool now. Reads nothing.
    #[must_use]
    pub fn begin_scrub(&self) -> ScrubPass {
        let mut pass = ScrubPass::default();
        while let Some(last) = self.0.journal.look(|state| {
            let mut last = None;
            let after = pass.end.checked_sub(1).map(ObjectId);
            for (id, object) in state.objects_after(after).take(LOOK_AT_ONCE) {
                last = Some(id);
                pass.of += ToScrub::of(id, object).map_or(0, |object| object.bytes());
            }
            last
        }) {
            pass.end = last.0 + 1;
        }
        pass
    }

    /// The next object of a pass; `None` at its end.
    #[must_use]
    pub fn next_to_scrub(&self, pass: &ScrubPass) -> Option<ToScrub> {
        let mut after = pass.next.checked_sub(1).map(ObjectId);
        loop {
            let (found, last) = self.0.journal.look(|state| {
                let mut last = None;
                let objects = state.objects_after(after).take(LOOK_AT_ONCE);
                let mut objects = objects.take_while(|(id, _)| id.0 < pass.end);
                let found = objects.find_map(|(id, object)| {
                    last = Some(id);
                    ToScrub::of(id, object)
                });
                (found, last)
            });
            if found.is_some() || last.is_none() {
                return found;
            }
            after = last;
        }
    }

    /// Reads back every copy of an object, and compares it with its checksum; the store of an object in place does so, and
    /// repairs the copies. Compares the bytes of a log behind its
    /// checksum between its copies; where they are equal, records a checksum of all of them. An object that was removed
    /// has no problem.
    pub async fn scrub_object(&self, object: &ToScrub) -> Vec<Finding> {
        if object.is_in_place {
            return self.scrub_in_place(object).await;
        }
        let Ok(inode) = self.0.catalog.inode_by_id(object.id) else { return Vec::new() };
        let sealed = self.0.journal.look(|state| state.object(object.id).and_then(sealed));
        let handle = self.handle(inode);
        let found = match sealed {
            Some(checked) => self.scrub_sealed(&handle, checked).await,
            None => self.scrub_log(&handle).await,
        };
        let good = found.iter().filter(|found| found.problem.is_none());
        let elsewhere = suffice(good.map(|found| &found.replica));
        let finding = |Found { replica, problem }: Found| {
            Some(Finding {
                volume: replica.labels(),
                name: object.name.to_string(),
                problem: problem?,
                elsewhere,
                copy: Some((object.id, replica.number)),
            })
        };
        found.into_iter().filter_map(finding).collect()
    }

    /// Scrubs every object, as [`Spread::scrub_object`] does. Calls `tell` with its progress.
    ///
    /// # Errors
    /// None so far: an unreadable copy is a finding.
    pub async fn scrub(&self, mut tell: impl FnMut(Progress) + Send) -> Result<Report> {
        let mut pass = self.begin_scrub();
        let mut report = Report::default();
        tell(Progress { done: 0, of: pass.of });
        while let Some(object) = self.next_to_scrub(&pass) {
            if !self.can_scrub(&object) {
                report.left_out += 1;
                pass.left_out(&object);
                continue;
            }
            report.findings.extend(self.scrub_object(&object).await);
            report.objects += 1;
            report.bytes += object.len;
            pass.passed(&object);
            tell(Progress { done: pass.done, of: pass.of });
        }
        Ok(report)
    }

    /// Compares the bytes of each copy that the checksum covers with it.
    pub(super) async fn scrub_sealed(&self, object: &Handle, checked: Checked) -> Vec<Found> {
        let mut findings = Vec::new();
        for replica in object.inode().replicas() {
            let checked = replica.checked(Some(checked), checked.len).unwrap_or(checked);
            let problem = match read_through(object, &replica, [checked.len; 2], IO).await {
                Ok([_, all]) if all == checked.checksum => {
                    self.0.damages.set_verified(object.inode().id, replica.number, checked);
                    None
                }
                Ok(_) => {
                    self.0.damages.tell(object.inode(), &replica, NOT_WRITTEN);
                    Some(Problem::Damaged)
                }
                Err(e) => {
                    self.0.damages.tell_if_damaged(object.inode(), replica.number, &e);
                    match problem(&e) {
                        None => continue,
                        problem => problem,
                    }
                }
            };
            findings.push(Found { replica, problem });
        }
        findings
    }

    /// Drops every bad copy of a report that has a good one beside it, so that [`Spread::repair`] makes
    /// a new one. Copies and objects that took their places since stay. Returns the number dropped.
    ///
    /// # Errors
    /// `Unavailable`, `OutOfSpace`, `Poisoned`: no volume takes the manifest.
    pub async fn mend(&self, report: &Report) -> Result<u64> {
        let mut dropped = 0;
        for finding in &report.findings {
            dropped += u64::from(self.drop_found(finding).await?);
        }
        Ok(dropped)
    }

    /// The same for the findings of one object. If it fails, the mover reads the object again, and drops its bad copies.
    ///
    /// # Errors
    /// As [`Spread::mend`].
    pub async fn mend_object(&self, object: &ToScrub, findings: &[Finding]) -> Result<u64> {
        let mut dropped = 0;
        for finding in findings {
            let found = self.drop_found(finding).await;
            let found = found.inspect_err(|_| self.0.replication.suspect(object.id));
            dropped += u64::from(found?);
        }
        Ok(dropped)
    }

    /// Drops the copy of a finding, if it is bad and another is good.
    async fn drop_found(&self, finding: &Finding) -> Result<bool> {
        match finding.copy {
            Some((id, number)) if finding.problem.is_loss() && finding.elsewhere => {
                self.drop_bad(id, number).await
            }
            _ => Ok(false),
        }
    }
}

/// The checksum of an object that never changes.
fn sealed(object: &Stored) -> Option<Checked> {
    object.checked().filter(|_| object.is_sealed())
}
