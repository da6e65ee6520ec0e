//! Comparing what the manifest says with what the volumes hold, and reading back what was sealed.

use std::collections::BTreeMap;
use std::fmt;

use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use policy::units::MIB;
use volume::{Error, ErrorKind, IoBufMut, Listed, Name, Object, Result};
use xxhash_rust::xxh3::Xxh3;

use super::{Inner, Spread};
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
}

/// What is the matter with an object.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The volume is away, so nobody knows.
    Away,
    /// The manifest says it is there, and it is not: bytes are lost.
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

    /// Reads back every object that was written whole, and compares it with its checksum. `tell` is
    /// called as it goes on.
    ///
    /// # Errors
    /// None so far: what cannot be read is a finding.
    pub async fn scrub(&self, mut tell: impl FnMut(Progress) + Send) -> Result<Report> {
        let sealed = self.0.sealed();
        let mut progress = Progress { done: 0, of: sealed.iter().map(|sealed| sealed.len).sum() };
        let mut report = Report::default();
        tell(progress);
        for Sealed { id, name, len, checksum } in sealed {
            let problem = match self.read_back(id, &name).await {
                Ok((_, found)) if found == checksum => None,
                Ok(_) => Some(Problem::Damaged),
                // It lost its name while it waited for its turn.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Gone) => None,
                Err(e) if e.kind() == ErrorKind::Unavailable => Some(Problem::Away),
                Err(e) => Some(Problem::Unreadable(e.to_string())),
            };
            report.objects += 1;
            report.bytes += len;
            progress.done += len;
            if let Some(problem) = problem {
                let volume = self.0.labels_of(&name);
                report.findings.push(Finding { volume, name: name.to_string(), problem });
            }
            tell(progress);
        }
        Ok(report)
    }

    /// The length and the checksum of what is there.
    ///
    /// # Errors
    /// `Gone` when the name stands for another object by now; else as for reads.
    async fn read_back(&self, id: ObjectId, name: &Name) -> Result<(u64, u64)> {
        let object = self.open_handle(name).await?;
        if object.id() != id {
            return Err(Error::new(ErrorKind::Gone, format!("{name}: another object by now")));
        }
        let mut hash = Xxh3::new();
        let (mut at, len) = (0, object.len());
        while at < len {
            let step = SCRUB_BYTES.min(len - at);
            let bytes = object.read_at(at, IoBufMut::zeroed(step as usize), IO).await?;
            hash.update(&bytes);
            at += step;
        }
        Ok((len, hash.digest()))
    }
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
}

impl Inner {
    /// Every object with a checksum, by one of its names.
    fn sealed(&self) -> Vec<Sealed> {
        self.journal.look(|state| {
            let names = first_names(state).into_iter();
            let sealed = names.filter_map(|(id, name)| {
                let committed = state.object(id)?.committed?;
                let (len, checksum) = (committed.len, committed.checksum?);
                Some(Sealed { id, name: name.clone(), len, checksum })
            });
            sealed.collect()
        })
    }

    fn labels_of(&self, name: &Name) -> String {
        self.journal.look(|state| {
            let object = state.id(name).and_then(|id| state.object(id));
            let volumes = object.into_iter().flat_map(|object| object.copies.volumes());
            let labels: Vec<_> = volumes.map(|id| self.seats.label(id)).collect();
            labels.join(", ")
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
    let mut find = |volume, name: &Name, problem| {
        let (volume, name) = (seats.label(volume), name.to_string());
        report.findings.push(Finding { volume, name, problem });
    };
    for (id, name) in first_names(state) {
        let Some(object) = state.object(id) else { continue };
        let len = object.committed.map_or(0, |committed| committed.len);
        report.objects += 1;
        report.bytes += len;
        for Placed { number, layout } in object.copies.iter() {
            let leaf = Leaf::Object { id, kind: object.kind, copy: *number }.name();
            for (part, &volume) in layout.volumes().iter().enumerate() {
                let expected = match object.kind {
                    Kind::Log => 0,
                    Kind::Table | Kind::Data => layout.chunks().part_len(len, part),
                };
                if listings.iter().all(|(id, _)| *id != volume) {
                    find(volume, name, Problem::Away);
                    continue;
                }
                match lens.get(&(volume, &leaf)) {
                    None if object.kind == Kind::Log && object.committed.is_none() => {}
                    None => find(volume, name, Problem::Missing),
                    Some(&found) if found < expected => {
                        find(volume, name, Problem::Short { found, expected });
                    }
                    Some(_) => {}
                }
            }
        }
    }
    for (volume, name) in lens.keys() {
        match Leaf::parse(name) {
            Some(Leaf::Header | Leaf::Manifest { .. }) => {}
            Some(Leaf::Object { id, kind, copy }) => match state.claims(id, kind, copy, *volume) {
                Claimed::Wanted => {}
                _ if is_draft(id) => {}
                Claimed::Issued => find(*volume, name, Problem::Leftover),
                Claimed::Foreign => find(*volume, name, Problem::Foreign),
            },
            None => find(*volume, name, Problem::Foreign),
        }
    }
    report
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on volume {}: {}", self.name, self.volume, self.problem)
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
