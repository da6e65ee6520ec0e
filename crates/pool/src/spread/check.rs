//! Checks compare the manifest with the volumes, without reads. [`distrust`](Spread::distrust) reads the copies of one
//! object back; a [scrub](super::scrub) those of all.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use policy::placement::{Code, VolumeId};
use policy::purpose::Io;
use policy::units::MIB;
use volume::{Error, ErrorKind, IoBufMut, Listed, Name, Object, Result, Volume};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::handle::{Handle, is_suspicious};
use super::inode::Replica;
use crate::header;
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::recovery::{self, Recovered, Survey, Trust};
use crate::manifest::state::Verdict;
use crate::manifest::{Placed, State, Stored, held};
use crate::members::{Member, Members};

/// Bytes that are read at once.
const PIECE: u64 = MIB;

/// The result of a check or a scrub.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Objects checked.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects in place that a scrub left out: the store that can verify them is not open.
    pub left_out: u64,
    /// The problems found.
    pub findings: Vec<Finding>,
}

/// A problem with an object on a volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The volume's label.
    pub volume: String,
    /// The object's name in the pool, or on the volume if it is not in the pool.
    pub name: String,
    /// The problem.
    pub problem: Problem,
    /// Another copy of the object is good, or enough of its other fragments, so nothing is lost: [`Spread::mend`] drops
    /// this one.
    pub elsewhere: bool,
    /// The copy, by the numbers of its object and of itself; `None` if it is not in the pool. The name and the volume may
    /// have other bytes by now.
    pub copy: Option<(ObjectId, u64)>,
}

impl Finding {
    /// Whether stored bytes are lost.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        self.problem.is_loss() && !self.elsewhere
    }
}

/// A problem with an object.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The volume is away, so the state is unknown.
    Away,
    /// The manifest lists it, but it does not exist, or was on a lost volume: bytes are lost.
    Missing,
    /// It is shorter than in the manifest: bytes are lost.
    Short {
        /// The length on the volume, in bytes.
        found: u64,
        /// The length that was committed, in bytes.
        expected: u64,
    },
    /// Its bytes are not those that were written: they are lost.
    Damaged,
    /// Bytes of it were not those that were written. Those of the other copies were written over them.
    Repaired,
    /// No copy has these bytes as they were written: they are lost.
    Lost(
        /// What, in the words of the store that verified it.
        String,
    ),
    /// A copy of a log whose last bytes differ from those of another copy. No checksum covers these bytes: the store
    /// that reads the log decides which copy is right.
    Unlike,
    /// The device cannot read its bytes, though the volume works otherwise: they are lost.
    Unreadable(
        /// The error of the volume.
        String,
    ),
    /// It was not read, and may be whole: this process could not, or the volume refused.
    Unread(
        /// The error of the volume.
        String,
    ),
    /// An orphan, which the pool will remove.
    Orphan,
    /// The pool never issued it, and does not touch it.
    Foreign,
}

impl Problem {
    /// Whether stored bytes are lost, if no other copy is good.
    #[must_use]
    pub const fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Missing
                | Self::Short { .. }
                | Self::Damaged
                | Self::Lost(_)
                | Self::Unreadable(_)
        )
    }
}

impl Spread {
    /// The label in the header of a volume, if it is a pool's.
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
        let trust = Trust { failing: true, away: true, salvage: false };
        match recovery::survey(members, trust).await? {
            Survey::Blank { .. } => {
                Err(Error::new(ErrorKind::NotFound, "no pool here: the volumes are blank"))
            }
            Survey::Pool(found) => Ok(found.report()),
        }
    }

    /// Compares the manifest with the listings of the volumes, without reads. Concurrent operations may
    /// appear as findings.
    ///
    /// # Errors
    /// None so far: volumes that do not answer are findings.
    pub async fn check(&self) -> Result<Report> {
        let pool = &self.0;
        let mut listings = Vec::new();
        for (slot, volume) in pool.members.present() {
            match volume.list().await {
                Ok(listing) => listings.push((slot.id, listing)),
                Err(e) => tracing::debug!("volume {} not checked: {e}", slot.label),
            }
        }
        let uncommitted = pool.catalog.uncommitted().into_iter();
        let uncommitted: Vec<_> = uncommitted.map(|(_, inode)| inode.id).collect();
        let is_uncommitted = |id| uncommitted.contains(&id);
        Ok(pool.journal.look(|state| compare(state, &pool.members, &listings, &is_uncommitted)))
    }

    /// Reads every copy of an open object, after a reader found damage. Drops damaged and unreadable copies
    /// if another is good, so that the next read goes to a good one. While no volume takes the manifest, such a copy stays; the
    /// next reads avoid its volume, and a [`Mover`](crate::mover::Mover) drops it later. Returns the number of both. Without a
    /// checksum only an unreadable copy is bad. A single copy stays, and its [damage](Spread::damage) is
    /// reported.
    pub async fn distrust(&self, object: &Handle, io: Io) -> u64 {
        let inode = object.inode();
        let replicas = inode.replicas();
        // A single copy cannot be dropped. It is verified once, to report its damage.
        if let [only] = &replicas[..]
            && !self.0.damages.begin_reading_through(inode.id, only.number)
        {
            return 0;
        }
        let checked = self.0.catalog.checked(inode);
        let Compared { good, bad, .. } = self.compare_copies(object, &replicas, io).await;
        // The bytes of a log that were written over meanwhile have no checksum any more.
        if self.0.catalog.checked(inode) != checked {
            return 0;
        }
        let mut passed_over = 0;
        for (replica, why) in bad {
            self.0.damages.tell(inode, &replica, &why);
            if suffice(good.iter()) {
                let labels = replica.labels();
                tracing::warn!("{}: its bad copy on volume {labels} is dropped: {why}", inode.name);
                let is_dropped =
                    self.drop_bad(inode.id, replica.number).await.unwrap_or_else(|e| {
                        tracing::warn!("{}: it stays for now, and reads avoid it: {e}", inode.name);
                        replica.avoid();
                        self.0.replication.suspect_again([inode.id].into());
                        true
                    });
                passed_over += u64::from(is_dropped);
            }
        }
        passed_over
    }

    /// Reads these copies of an object, and compares them with their checksums. Without one, only a copy that cannot be
    /// read is bad; one that another call may read is neither.
    pub(super) async fn compare_copies(
        &self,
        object: &Handle,
        replicas: &[Arc<Replica>],
        io: Io,
    ) -> Compared {
        let inode = object.inode();
        let (all, len) = (self.0.catalog.checked(inode), object.len());
        let mut compared = Compared::default();
        for replica in replicas {
            let checked = replica.checked(all, len);
            let len = replica.layout.len(len);
            let lens = [checked.map_or(len, |checked| checked.len), len];
            match read_through(object, replica, lens, io).await {
                Ok([first, _]) if checked.is_none_or(|known| first == known.checksum) => {
                    compared.good.push(Arc::clone(replica));
                    if let Some(checked) = checked {
                        self.0.damages.set_verified(inode.id, replica.number, checked);
                    }
                }
                Ok(_) => compared.bad.push((Arc::clone(replica), NOT_WRITTEN.to_owned())),
                Err(e) if is_suspicious(&e) => {
                    compared.bad.push((Arc::clone(replica), e.to_string()));
                }
                Err(e) => {
                    self.0.damages.give_up_reading_through(inode.id, replica.number);
                    tracing::debug!("a copy was not verified: {e}");
                    compared.unread = Some(e);
                }
            }
        }
        compared
    }

    /// The same for an object by its number; does nothing if it was removed.
    pub(crate) async fn distrust_object(&self, id: ObjectId, io: Io) {
        if let Ok(inode) = self.0.catalog.inode_by_id(id) {
            self.distrust(&self.handle(inode), io).await;
        }
    }
}

/// Copies that were compared with their checksums.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) good: Vec<Arc<Replica>>,
    /// Those with other bytes, or none, and why.
    pub(super) bad: Vec<(Arc<Replica>, String)>,
    /// Why one is neither: its volume is away, for example.
    pub(super) unread: Option<Error>,
}

/// A copy that was read, and its problem.
pub(super) struct Found {
    pub(super) replica: Arc<Replica>,
    pub(super) problem: Option<Problem>,
}

/// Whether these copies, or fragments, of one object hold it.
pub(super) fn suffice<'a>(replicas: impl Iterator<Item = &'a Arc<Replica>> + Clone) -> bool {
    let code = replicas.clone().find_map(|replica| replica.fragment()).map(|own| own.code);
    held(replicas.map(|replica| replica.fragment().map(|own| own.index)))
        >= code.map_or(1, Code::data)
}

/// Why a copy is damaged.
pub(super) const NOT_WRITTEN: &str = "it is not what was written";

/// The problem of a copy that could not be read; `None` if it was removed.
pub(super) fn problem(e: &Error) -> Option<Problem> {
    match e.kind() {
        ErrorKind::NotFound | ErrorKind::Gone => None,
        kind if kind.is_away() => Some(Problem::Away),
        kind if kind.is_damage() => Some(Problem::Unreadable(e.to_string())),
        _ => Some(Problem::Unread(e.to_string())),
    }
}

impl Recovered {
    /// The comparison of the manifest with the volumes, before any repair.
    pub(super) fn report(&self) -> Report {
        compare(&self.state, &self.members, &self.listings, &|_| false)
    }
}

/// How many bytes every copy of an object has. A log that lost its end may still be right: it was not synced.
fn sure_len(object: &Stored) -> u64 {
    match object.kind {
        Kind::Log => object.checked().map_or(0, |checked| checked.len),
        Kind::Table | Kind::Data | Kind::InPlace => object.len(),
    }
}

fn compare(
    state: &State,
    members: &Members,
    listings: &[(VolumeId, Vec<Listed>)],
    is_uncommitted: &dyn Fn(ObjectId) -> bool,
) -> Report {
    let mut report = Report::default();
    let lens: BTreeMap<(VolumeId, &Name), u64> = listings
        .iter()
        .flat_map(|(id, listing)| listing.iter().map(|listed| ((*id, &listed.name), listed.len)))
        .collect();
    let finding = |volume, name: &Name, problem, elsewhere, copy| {
        let (volume, name) = (members.label(volume), name.to_string());
        Finding { volume, name, problem, elsewhere, copy }
    };
    for (id, object) in state.objects() {
        let Some(name) = object.name() else { continue };
        report.objects += 1;
        report.bytes += object.len();
        let mut found = Vec::new();
        for Placed { number, layout } in object.copies.iter() {
            let leaf = Leaf::Object { id, kind: object.kind, copy: *number }.name();
            for (part, &volume) in layout.volumes().iter().enumerate() {
                let expected = layout.part_len(sure_len(object), part);
                if listings.iter().all(|(id, _)| *id != volume) {
                    // Only a lost volume leaves the pool with copies on it.
                    let left = members.get(volume).is_none();
                    let problem = if left { Problem::Missing } else { Problem::Away };
                    found.push((volume, problem, *number));
                    continue;
                }
                match lens.get(&(volume, &leaf)) {
                    None if object.kind == Kind::Log && object.committed.is_none() => {}
                    None => found.push((volume, Problem::Missing, *number)),
                    Some(&len) if len < expected => {
                        found.push((volume, Problem::Short { found: len, expected }, *number));
                    }
                    Some(_) => {}
                }
            }
        }
        let is_bad = |placed: &Placed| found.iter().any(|(_, _, bad)| *bad == placed.number);
        let elsewhere = object.copies.suffice(|placed| !is_bad(placed));
        report.findings.extend(found.into_iter().map(|(volume, problem, number)| {
            finding(volume, name, problem, elsewhere, Some((id, number)))
        }));
    }
    for (volume, name) in lens.keys() {
        let problem = match Leaf::parse(name) {
            Some(Leaf::Header | Leaf::Manifest { .. }) => continue,
            Some(Leaf::Object { id, kind, copy }) => match state.verdict(id, kind, copy, *volume) {
                Verdict::Wanted => continue,
                _ if is_uncommitted(id) => continue,
                Verdict::Issued => Problem::Orphan,
                Verdict::Foreign => Problem::Foreign,
            },
            None => Problem::Foreign,
        };
        report.findings.push(finding(*volume, name, problem, false, None));
    }
    report
}

/// The xxh3-64 of the first bytes of a copy, up to each of two lengths.
///
/// # Errors
/// Those of its volumes.
pub(super) async fn read_through(
    object: &Handle,
    replica: &Replica,
    lens: [u64; 2],
    io: Io,
) -> Result<[u64; 2]> {
    let mut hash = Xxh3::new();
    let mut at = 0;
    let mut hashes = [0; 2];
    for (end, digest) in lens.into_iter().zip(&mut hashes) {
        while at < end {
            let into = IoBufMut::zeroed(PIECE.min(end - at) as usize);
            let read = object.read_from(replica, at, into, io).await?;
            hash.update(&read);
            at += read.len() as u64;
        }
        *digest = hash.digest();
    }
    Ok(hashes)
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
            Self::Repaired => {
                f.write_str("its bytes were not what was written, and were repaired from others")
            }
            Self::Lost(what) => f.write_str(what),
            Self::Unlike => f.write_str("its last bytes differ from another copy's"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::Unread(why) => write!(f, "was not read: {why}"),
            Self::Orphan => f.write_str("not needed any more, will be removed"),
            Self::Foreign => f.write_str("not the pool's, left alone"),
        }
    }
}
