//! Comparing what the manifest says with what the volumes hold, and reading back what was sealed.

use std::collections::BTreeMap;
use std::fmt;

use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use policy::units::MIB;
use volume::{Error, ErrorKind, IoBufMut, Listed, Name, Object, Result, Volume};
use xxhash_rust::xxh3::Xxh3;

use super::body::Replica;
use super::handle::{Handle, is_suspicious};
use super::{Inner, Spread};
use crate::header;
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::recovery::{self, Recovered, Survey, Trust};
use crate::manifest::state::Claimed;
use crate::manifest::{Placed, State};
use crate::seats::{Member, Seats};

/// How many bytes a scrub reads at once.
const SCRUB_BYTES: u64 = MIB;
const IO: Io = Io::new(Origin::Scrub, Step::Data);

/// What a check or a scrub found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Objects looked at.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is not as it should be, by volume and name.
    pub findings: Vec<Finding>,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The volume's label.
    pub volume: String,
    /// The object's name in the pool, or on the volume if it has none in the pool.
    pub name: String,
    /// What is the matter.
    pub problem: Problem,
    /// Another copy of the object is good, so nothing is lost: [`Spread::mend`] makes this one anew.
    pub elsewhere: bool,
}

impl Finding {
    /// Whether bytes are lost that the pool was given to keep.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        self.problem.is_loss() && !self.elsewhere
    }
}

/// What is the matter with an object.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The volume is away, so nobody knows.
    Away,
    /// The manifest says it is there, and it is not, or was on a volume that was lost: bytes are lost.
    Missing,
    /// It is shorter than the manifest says: bytes are lost.
    Short {
        /// The length on the volume, in bytes.
        found: u64,
        /// The length that was committed, in bytes.
        expected: u64,
    },
    /// Its bytes are not those that were written: they are lost.
    Damaged,
    /// It cannot be read.
    Unreadable(
        /// What the volume said.
        String,
    ),
    /// The pool does not need it and will remove it.
    Leftover,
    /// The pool never issued it; it is left alone.
    Foreign,
}

impl Problem {
    /// Whether bytes are lost that the pool was given to keep.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        matches!(self, Self::Missing | Self::Short { .. } | Self::Damaged)
    }
}

/// How far a scrub is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Bytes read back so far.
    pub done: u64,
    /// Bytes there were to read when it began.
    pub of: u64,
}

impl Spread {
    /// What the header of a volume calls it, if it is a pool's.
    ///
    /// # Errors
    /// `Corrupt`: no copy of the header can be read; `Invalid`: a later version wrote it; those of the
    /// volume.
    pub async fn label_on(volume: &dyn Volume) -> Result<Option<String>> {
        Ok(match header::read(volume).await? {
            header::Found::Header(header) => Some(header.label),
            header::Found::Nothing => None,
        })
    }

    /// Compares the manifest of a pool with its volumes, without opening it and without changing a
    /// byte.
    ///
    /// # Errors
    /// As for [`Spread::open`]; volumes may be away. `NotFound` when the volumes are blank.
    pub async fn inspect(members: &[Member]) -> Result<Report> {
        let trust = Trust { away: true, salvage: false };
        match recovery::survey(members, trust).await? {
            Survey::Blank { .. } => {
                Err(Error::new(ErrorKind::NotFound, "no pool here: the volumes are blank"))
            }
            Survey::Pool(found) => Ok(found.report()),
        }
    }

    /// Compares the manifest with what the volumes list. Reads nothing; what is going on at the same
    /// time may show as findings.
    ///
    /// # Errors
    /// None so far: volumes that do not answer are findings.
    pub async fn check(&self) -> Result<Report> {
        let pool = &self.0;
        let mut listings = Vec::new();
        for (seat, volume) in pool.seats.present() {
            match volume.list().await {
                Ok(listing) => listings.push((seat.id, listing)),
                Err(e) => tracing::debug!("volume {} not checked: {e}", seat.label),
            }
        }
        let drafts: Vec<_> = pool.table.lock().drafts.values().copied().collect();
        let is_draft = |id| drafts.contains(&id);
        Ok(pool.journal.look(|state| compare(state, &pool.seats, &listings, &is_draft)))
    }

    /// Reads back every copy of every object that was written whole, and compares it with its checksum. `tell` is
    /// called as it goes on.
    ///
    /// # Errors
    /// None so far: what cannot be read is a finding.
    pub async fn scrub(&self, mut tell: impl FnMut(Progress) + Send) -> Result<Report> {
        let sealed = self.0.sealed();
        let mut progress =
            Progress { done: 0, of: sealed.iter().map(|sealed| sealed.len * sealed.copies).sum() };
        let mut report = Report::default();
        tell(progress);
        for Sealed { id, name, len, checksum, .. } in sealed {
            let mut found = Vec::new();
            // It may have lost its name while it waited for its turn.
            let object = self.0.body_by_id(id).ok().map(|body| self.handle(body));
            let replicas = object.as_ref().map_or_else(Vec::new, |object| object.body().replicas());
            for replica in &replicas {
                let Some(object) = &object else { continue };
                let problem = match read_back(object, replica, IO).await {
                    Ok(found) if found == checksum => None,
                    Ok(_) => Some(Problem::Damaged),
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Gone) => continue,
                    Err(e) if e.kind() == ErrorKind::Unavailable => Some(Problem::Away),
                    Err(e) => Some(Problem::Unreadable(e.to_string())),
                };
                if matches!(problem, Some(Problem::Damaged)) {
                    let why = "it is not what was written";
                    self.0.tell_damage(object.body(), replica, why);
                }
                found.push((replica.labels(), problem));
            }
            report.objects += 1;
            report.bytes += len;
            progress.done += len * replicas.len() as u64;
            let elsewhere = found.iter().any(|(_, problem)| problem.is_none());
            report.findings.extend(found.into_iter().filter_map(|(volume, problem)| {
                Some(Finding { volume, name: name.to_string(), problem: problem?, elsewhere })
            }));
            tell(progress);
        }
        Ok(report)
    }

    /// Drops every copy that a report found to be bad while another is good, so that
    /// [`Spread::repair`] makes it anew. Gives how many.
    ///
    /// # Errors
    /// `Unavailable`, `OutOfSpace`, `Poisoned`: no volume takes the manifest.
    pub async fn mend(&self, report: &Report) -> Result<u64> {
        let mut dropped = 0;
        for finding in report.findings.iter().filter(|finding| finding.elsewhere) {
            let bad =
                !matches!(finding.problem, Problem::Away | Problem::Leftover | Problem::Foreign);
            let named = Name::new(&finding.name).ok();
            let id = named.and_then(|name| self.0.journal.look(|state| state.id(&name)));
            // Of a striped copy the label of each volume.
            let label = finding.volume.split(", ").next().unwrap_or_default();
            let (true, Some(id), Some(volume)) = (bad, id, self.volume_id(label)) else { continue };
            dropped += u64::from(self.drop_bad(id, volume).await?);
        }
        Ok(dropped)
    }

    /// Reads every copy of an open object and drops those that are not what was written, or cannot be read,
    /// if another can: for when what was read made no sense. Gives how many were dropped; the next read
    /// goes to one that is good. Of an object without a checksum only what cannot be read is bad. A single
    /// copy stays: its [damage](Spread::damage) is told.
    ///
    /// # Errors
    /// `Unavailable`, `OutOfSpace`, `Poisoned`: no volume takes the manifest.
    pub async fn distrust(&self, object: &Handle, io: Io) -> Result<u64> {
        let body = object.body();
        let replicas = body.replicas();
        // There is nothing to drop; it is read through once, so that its damage is known.
        if let [only] = &replicas[..]
            && !self.0.begin_reading_through(body.id, only.number)
        {
            return Ok(0);
        }
        let sealed = self.0.journal.look(|state| state.object(body.id)?.committed?.checksum);
        let (mut good, mut bad) = (0, Vec::new());
        for replica in &replicas {
            match read_back(object, replica, io).await {
                Ok(found) if sealed.is_none_or(|checksum| found == checksum) => good += 1,
                Ok(_) => {
                    let why = "it is not what was written".to_owned();
                    self.0.tell_damage(body, replica, &why);
                    bad.push((replica.volume(0), why));
                }
                Err(e) if is_suspicious(&e) => {
                    self.0.tell_damage(body, replica, &e.to_string());
                    bad.push((replica.volume(0), e.to_string()));
                }
                Err(e) => {
                    self.0.give_up_reading_through(body.id, replica.number);
                    tracing::debug!("a copy was not verified: {e}");
                }
            }
        }
        let mut dropped = 0;
        for (volume, why) in bad.into_iter().filter(|_| good > 0) {
            let label = self.0.seats.label(volume);
            tracing::warn!("{}: the copy on volume {label} is bad and goes: {why}", body.name);
            if self.drop_bad(body.id, volume).await? {
                self.0.tell_repaired();
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// The same for an object that nobody has open; nothing is done if it is gone.
    pub(crate) async fn distrust_object(&self, id: ObjectId, io: Io) -> Result<u64> {
        match self.0.body_by_id(id) {
            Ok(body) => self.distrust(&self.handle(body), io).await,
            Err(_) => Ok(0),
        }
    }

    /// Drops a copy that is bad; false if somebody else did, or it is the last.
    async fn drop_bad(&self, id: ObjectId, volume: VolumeId) -> Result<bool> {
        let dropped = self.drop_copy(id, volume).await;
        self.0.promise.due();
        match dropped {
            Ok(()) => Ok(true),
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::Gone | ErrorKind::NotFound | ErrorKind::Invalid
                ) =>
            {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

/// The checksum of what is there of one copy.
async fn read_back(object: &Handle, replica: &Replica, io: Io) -> Result<u64> {
    let mut hash = Xxh3::new();
    let (mut at, len) = (0, object.len());
    while at < len {
        let step = SCRUB_BYTES.min(len - at);
        let into = IoBufMut::zeroed(step as usize);
        hash.update(&object.read_from(replica, at, into, io).await?);
        at += step;
    }
    Ok(hash.digest())
}

impl Recovered {
    /// How the manifest and the volumes compare before anything is done about it.
    pub(super) fn report(&self) -> Report {
        compare(&self.state, &self.seats, &self.listings, &|_| false)
    }
}

struct Sealed {
    id: ObjectId,
    name: Name,
    len: u64,
    checksum: u64,
    copies: u64,
}

impl Inner {
    /// Every object with a checksum, by one of its names.
    fn sealed(&self) -> Vec<Sealed> {
        self.journal.look(|state| {
            let names = first_names(state).into_iter();
            let sealed = names.filter_map(|(id, name)| {
                let object = state.object(id)?;
                let (committed, copies) = (object.committed?, object.copies.count() as u64);
                let (len, checksum) = (committed.len, committed.checksum?);
                Some(Sealed { id, name: name.clone(), len, checksum, copies })
            });
            sealed.collect()
        })
    }
}

/// One name of each object.
pub(super) fn first_names(state: &State) -> BTreeMap<ObjectId, &Name> {
    let mut names = BTreeMap::new();
    for (name, id) in state.names("") {
        names.entry(id).or_insert(name);
    }
    names
}

fn compare(
    state: &State,
    seats: &Seats,
    listings: &[(VolumeId, Vec<Listed>)],
    is_draft: &dyn Fn(ObjectId) -> bool,
) -> Report {
    let mut report = Report::default();
    let lens: BTreeMap<(VolumeId, &Name), u64> = listings
        .iter()
        .flat_map(|(id, listing)| listing.iter().map(|listed| ((*id, &listed.name), listed.len)))
        .collect();
    let finding = |volume, name: &Name, problem, elsewhere| {
        let (volume, name) = (seats.label(volume), name.to_string());
        Finding { volume, name, problem, elsewhere }
    };
    for (id, name) in first_names(state) {
        let Some(object) = state.object(id) else { continue };
        let len = object.committed.map_or(0, |committed| committed.len);
        report.objects += 1;
        report.bytes += len;
        let mut found = Vec::new();
        let mut good = 0;
        for Placed { number, layout } in object.copies.iter() {
            let leaf = Leaf::Object { id, kind: object.kind, copy: *number }.name();
            let before = found.len();
            for (part, &volume) in layout.volumes().iter().enumerate() {
                let expected = match object.kind {
                    Kind::Log => 0,
                    Kind::Table | Kind::Data => layout.chunks().part_len(len, part),
                };
                if listings.iter().all(|(id, _)| *id != volume) {
                    // A volume that left took only with it what was lost.
                    let left = seats.get(volume).is_none();
                    found.push((volume, if left { Problem::Missing } else { Problem::Away }));
                    continue;
                }
                match lens.get(&(volume, &leaf)) {
                    None if object.kind == Kind::Log && object.committed.is_none() => {}
                    None => found.push((volume, Problem::Missing)),
                    Some(&len) if len < expected => {
                        found.push((volume, Problem::Short { found: len, expected }));
                    }
                    Some(_) => {}
                }
            }
            good += usize::from(found.len() == before);
        }
        let found =
            found.into_iter().map(|(volume, problem)| finding(volume, name, problem, good > 0));
        report.findings.extend(found);
    }
    for (volume, name) in lens.keys() {
        match Leaf::parse(name) {
            Some(Leaf::Header | Leaf::Manifest { .. }) => {}
            Some(Leaf::Object { id, kind, copy }) => match state.claims(id, kind, copy, *volume) {
                Claimed::Wanted => {}
                _ if is_draft(id) => {}
                Claimed::Issued => {
                    report.findings.push(finding(*volume, name, Problem::Leftover, false));
                }
                Claimed::Foreign => {
                    report.findings.push(finding(*volume, name, Problem::Foreign, false));
                }
            },
            None => report.findings.push(finding(*volume, name, Problem::Foreign, false)),
        }
    }
    report
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on volume {}: {}", self.name, self.volume, self.problem)?;
        if self.elsewhere { f.write_str("; another copy is good") } else { Ok(()) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => f.write_str("the volume is away"),
            Self::Missing => f.write_str("missing: restore it, or remove the object"),
            Self::Short { found, expected } => {
                write!(f, "{found} of {expected} bytes are there: restore it")
            }
            Self::Damaged => f.write_str("its bytes are not what was written: restore it"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::Leftover => f.write_str("not needed any more, will be removed"),
            Self::Foreign => f.write_str("not the pool's, left alone"),
        }
    }
}
