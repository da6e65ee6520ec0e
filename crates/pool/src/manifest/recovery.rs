//! Recovers the state of a pool from its volumes, without changing a byte.
//!
//! 1. Read the header and the list of objects of every volume. A volume that is blank, of another pool
//!    or of no pool is refused by name.
//! 2. The highest epoch of all headers is the current generation of the manifest. It must be present,
//!    on more than half of the volumes that hold its copies, or on all, as it says itself: otherwise the rest might have continued
//!    without these. Of two copies the first is enough after a clean close.
//! 3. Replay the copies together, and compare the objects on the volumes with the manifest.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Listed, Result, Volume};

use crate::header::{self, Found, Header, PoolId};
use crate::journal::quorum::Quorum;
use crate::journal::{frame, read_copies};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::state::Verdict;
use crate::manifest::{Begin, Placed, Record, State, Stored};
use crate::members::{Member, MemberSlot, Members};

/// A manifest as its copies have it.
type Replayed = frame::Replayed<State>;

const IO: Io = Io::new(Origin::Open, Step::Manifest);

/// The gap between the known ids of a salvaged manifest and those that it issues: more than any lost part
/// of it can have used.
const SALVAGE_GAP: u64 = 1 << 32;

/// Which defects of a set of volumes to accept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trust {
    /// Volumes that were passed in may give no answer, or an unreadable or damaged header.
    pub(crate) failing: bool,
    /// Volumes may be missing from those that were passed in.
    pub(crate) away: bool,
    /// Accept the newest readable manifest, even if a newer one must exist.
    pub(crate) salvage: bool,
}

impl Trust {
    /// Whether a volume with this error may be left out. A volume with a damaged header is then as one that is away: the
    /// others must have enough of the manifest. A salvage needs no such proof, so it takes what its caller decided.
    fn leaves_out(self, e: &Error) -> bool {
        let may = e.kind().is_away()
            || e.kind() == ErrorKind::Io
            || e.kind() == ErrorKind::Corrupt && !self.salvage;
        self.failing && may
    }
}

/// A volume that was passed in, and that the pool was opened without.
#[derive(Debug)]
pub struct LeftOut {
    /// The label that it was passed in with.
    pub label: String,
    /// Why it could not be used.
    pub why: Error,
}

/// The result of a survey of volumes.
pub(crate) enum Survey {
    /// Blank or half formatted volumes: no pool, no data.
    Blank {
        /// The highest number of a manifest from an interrupted formatting.
        generation: u64,
    },
    /// A pool.
    Pool(Box<Recovered>),
}

/// A pool as found on its volumes.
pub(crate) struct Recovered {
    pub(crate) pool: PoolId,
    pub(crate) members: Members,
    /// The volumes that were passed in and are of no use now.
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) state: State,
    /// The highest number of a manifest seen anywhere.
    pub(crate) generation: u64,
    /// The volume that may open the pool without others; see [`enough_alone`].
    pub(crate) alone: Option<VolumeId>,
    /// The volumes that hold the manifest; none after a salvage, which needs no quorum.
    pub(crate) home: Option<Quorum>,
    /// Orphans: leaf objects that the manifest issued and does not list.
    pub(crate) orphans: Vec<(VolumeId, Leaf)>,
    /// Leaf objects that are not this pool's.
    pub(crate) foreign: Vec<(VolumeId, Listed)>,
    /// The objects of each present volume.
    pub(crate) listings: Vec<(VolumeId, Vec<Listed>)>,
    /// Objects with several copies that may differ.
    pub(crate) unequal: Vec<Unequal>,
}

/// An object that may have been written when the machine crashed: each copy has all synced bytes, but
/// unsynced bytes may be in only some of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Unequal {
    pub(crate) id: ObjectId,
    /// The first byte in which they may differ: those before it were durable in all copies, and did not change.
    pub(crate) from: u64,
    /// The numbers of its present copies, those with the most unsynced bytes first.
    pub(crate) copies: Vec<u64>,
    /// The numbers of its absent copies: they cannot be aligned, and are dropped once a present one was read
    /// to its end.
    pub(crate) away: Vec<u64>,
}

/// A volume with its header and objects.
struct Visited<H> {
    label: String,
    volume: Arc<dyn Volume>,
    header: H,
    listing: Vec<Listed>,
}

/// A volume of the pool.
type Belonging = Visited<Header>;

/// Surveys `members`.
///
/// # Errors
/// `Invalid`: a volume that does not belong, by name. `Unavailable`: required volumes are away.
/// `Corrupt`: a header or the manifest cannot be read. Each message names the remedy.
pub(crate) async fn survey(members: &[Member], trust: Trust) -> Result<Survey> {
    let (visited, mut left_out) = visit(members, trust).await?;
    if visited.is_empty() {
        let what = "no volume of the pool is here: bring them back";
        return Err(match left_out.pop() {
            Some(LeftOut { label, why }) => within(&label, why),
            None => Error::new(ErrorKind::Unavailable, what),
        });
    }
    // A volume that could not be read may hold data, so the others are not made a pool without it.
    if left_out.is_empty() && visited.iter().all(Visited::is_blank) {
        let generations = visited.iter().flat_map(|volume| generations(&volume.listing));
        return Ok(Survey::Blank { generation: generations.max().unwrap_or(0) });
    }
    let volumes = belonging(visited)?;
    let (manifest, generation) = read_manifest(&volumes, trust).await?;
    let state = manifest
        .rebuild(State::new())
        .map_err(|e| corrupt(format!("manifest generation {}, {e}", manifest.begin.generation)))?;
    let volumes = without_joining(&manifest.begin, volumes);
    let here: Vec<_> = volumes.iter().map(|volume| volume.header.volume).collect();
    check_missing(&manifest.begin, &here, left_out.len(), trust)?;
    check_volumes(&manifest.begin, &state, &here, &volumes, trust)?;
    let recovered = compare(manifest.begin, state, generation, volumes, trust);
    Ok(Survey::Pool(Box::new(Recovered { left_out, ..recovered })))
}

/// The copy of a manifest that may open the pool alone, if any: the only one, or the first of two after a
/// clean close.
///
/// The second cannot have continued meanwhile: it may not open the pool alone, and a process with both raises
/// the epoch of the first before any other change, which makes its copy stale.
pub(crate) fn enough_alone(copies: &[VolumeId], closed: bool) -> Option<VolumeId> {
    match copies {
        [only] => Some(*only),
        [first, _] if closed => Some(*first),
        _ => None,
    }
}

/// The volumes as found, and those that are of no use now.
async fn visit(members: &[Member], trust: Trust) -> Result<(Vec<Visited<Found>>, Vec<LeftOut>)> {
    members.iter().try_for_each(|member| header::check_label(&member.label))?;
    let (mut visited, mut left_out) = (Vec::new(), Vec::new());
    let found = join_all(members.iter().map(visit_one)).await;
    for (Member { label, .. }, found) in members.iter().zip(found) {
        match found {
            Ok(found) => visited.push(found),
            Err(why) if trust.leaves_out(&why) => {
                tracing::warn!("the pool opens without volume {label}: {why}");
                left_out.push(LeftOut { label: label.clone(), why });
            }
            Err(e) => return Err(within(label, e)),
        }
    }
    Ok((visited, left_out))
}

async fn visit_one(member: &Member) -> Result<Visited<Found>> {
    let Member { label, volume } = member;
    let header = header::read(&**volume).await?;
    let listing = volume.list().await?;
    Ok(Visited { label: label.clone(), volume: Arc::clone(volume), header, listing })
}

fn within(label: &str, e: Error) -> Error {
    e.within(format_args!("volume {label}"))
}

impl Visited<Found> {
    /// Whether the volume holds no data: it is new, or its formatting was interrupted.
    fn is_blank(&self) -> bool {
        let formatting = match &self.header {
            Found::Nothing => false,
            Found::Header(header) if header.epoch == 0 => true,
            Found::Header(_) => return false,
        };
        self.listing.iter().all(|listed| match Leaf::parse(&listed.name) {
            Some(Leaf::Header) => true,
            Some(Leaf::Manifest { .. }) => formatting,
            Some(Leaf::Object { .. }) | None => false,
        })
    }
}

/// Checks that all volumes are of one pool, without duplicates.
fn belonging(visited: Vec<Visited<Found>>) -> Result<Vec<Belonging>> {
    let mut volumes: Vec<Belonging> = Vec::new();
    let mut others = Vec::new();
    for Visited { label, volume, header, listing } in visited {
        match header {
            Found::Header(header) => volumes.push(Belonging { label, volume, header, listing }),
            Found::Nothing => others.push((label, listing)),
        }
    }
    // Report a volume with unknown objects before a blank one.
    others.sort_by_key(|(_, listing): &(String, Vec<Listed>)| listing.is_empty());
    if let Some((label, listing)) = others.first() {
        return Err(stranger(label, listing, volumes.first()));
    }
    for (i, volume) in volumes.iter().enumerate() {
        let first = &volumes[0];
        if volume.header.pool != first.header.pool {
            return Err(invalid(format!(
                "volume {} belongs to pool {}, volume {} to pool {}: remove one of them from the \
                 pool's settings",
                volume.label, volume.header.pool, first.label, first.header.pool
            )));
        }
        let same = |other: &&Belonging| other.header.volume == volume.header.volume;
        if let Some(twin) = volumes[..i].iter().find(same) {
            return Err(invalid(format!(
                "volumes {} and {} both say they are volume {} of the pool: one is a copy of the \
                 other, remove it from the pool's settings",
                twin.label, volume.label, volume.header.volume
            )));
        }
    }
    Ok(volumes)
}

/// The error for a volume without a header.
fn stranger(label: &str, listing: &[Listed], of_pool: Option<&Belonging>) -> Error {
    let object = listing.iter().find(|listed| Leaf::parse(&listed.name) != Some(Leaf::Header));
    invalid(match (object, of_pool) {
        (Some(object), _) => format!(
            "volume {label} has no header but holds objects ({} for one): it is not a pool's, or \
             its header was lost; nothing on it was touched. Give the pool an empty volume, or \
             leave this one out and run `plimsoll check --repair`",
            object.name
        ),
        (None, Some(volume)) => format!(
            "volume {label} is blank, while volume {} belongs to pool {}: is the device mounted? \
             If it is a new one, take it out of the pool's settings, and add it while the pool is \
             open",
            volume.label, volume.header.pool
        ),
        (None, None) => format!(
            "volume {label} is blank while others are not, or are away: a pool is made of blank \
             volumes only, all of them here"
        ),
    })
}

/// Finds the current manifest and replays it; also returns the highest generation seen.
async fn read_manifest(volumes: &[Belonging], trust: Trust) -> Result<(Replayed, u64)> {
    let epoch = volumes.iter().map(|volume| volume.header.epoch).max().unwrap_or(0);
    let mut seals = volumes.iter().filter(|v| v.header.epoch == epoch).map(|v| v.header.seal);
    let seal = seals.next().unwrap_or(0);
    let generations: BTreeSet<u64> =
        volumes.iter().flat_map(|volume| generations(&volume.listing)).collect();
    let newest = generations.last().copied().unwrap_or(0).max(epoch);
    if trust.salvage {
        for &generation in generations.iter().rev() {
            match replay_generation(volumes, generation, None).await {
                Ok(replay) => return Ok((replay, newest)),
                Err(e) => tracing::warn!("manifest generation {generation} cannot be used: {e}"),
            }
        }
        return Err(corrupt("no manifest can be read: restore one from a backup".into()));
    }
    if seals.any(|other| other != seal) {
        return Err(corrupt(format!(
            "two manifests say they are generation {epoch}: the pool was opened twice, with \
             different volumes away. Decide which ones to keep, leave the others out and run \
             `plimsoll check --repair`"
        )));
    }
    if generations.contains(&epoch) {
        let replay = replay_generation(volumes, epoch, Some(seal)).await?;
        return Ok((replay, newest));
    }
    let found = match generations.last() {
        Some(found) => format!("the newest one here is {found}"),
        None => "none is here".into(),
    };
    Err(Error::new(
        ErrorKind::Unavailable,
        format!(
            "stale manifest: the headers ask for generation {epoch}, {found}. Bring back the \
             volumes that are away; if they are lost for good, `plimsoll check --repair` goes on \
             with what there is"
        ),
    ))
}

async fn replay_generation(
    volumes: &[Belonging],
    generation: u64,
    seal: Option<u64>,
) -> Result<Replayed> {
    let name = Leaf::Manifest { generation }.name();
    let holders = volumes.iter().filter(|v| v.listing.iter().any(|listed| listed.name == name));
    let holders = holders.map(|holder| (&*holder.label, &*holder.volume));
    let copies = read_copies::<State>(holders, &name, IO).await;
    if copies.is_empty() {
        let what =
            format!("no volume that is here gives a copy of manifest generation {generation}");
        return Err(Error::new(ErrorKind::Unavailable, what));
    }
    let bytes: Vec<&[u8]> = copies.iter().map(|copy| &copy[..]).collect();
    let replay = frame::replay::<State>(&bytes, seal).map_err(|e| {
        corrupt(format!(
            "manifest generation {generation} is damaged in all {} copies that are here: {e}. Bring \
             back volumes that are away, restore {name} from a backup, or run `plimsoll check \
             --repair`",
            copies.len()
        ))
    })?;
    let begin = &replay.begin;
    let pool = volumes.first().map(|volume| volume.header.pool);
    if begin.generation != generation || Some(begin.pool) != pool {
        return Err(corrupt(format!(
            "{name} says it is generation {} of pool {}",
            begin.generation, begin.pool
        )));
    }
    Ok(replay)
}

/// Leaves out volumes whose joining was cut before the manifest recorded it: they are empty.
fn without_joining(begin: &Begin, volumes: Vec<Belonging>) -> Vec<Belonging> {
    let known =
        |volume: &Belonging| begin.volumes.iter().any(|(id, _)| *id == volume.header.volume);
    let (volumes, joining): (Vec<_>, Vec<_>) =
        volumes.into_iter().partition(|volume| known(volume) || volume.header.epoch > 0);
    for volume in joining {
        let label = &volume.label;
        tracing::warn!("adding volume {label} to the pool was interrupted: add it again");
    }
    volumes
}

/// Checks that no more volumes of the manifest are absent than `failed`, which were passed in.
fn check_missing(begin: &Begin, here: &[VolumeId], failed: usize, trust: Trust) -> Result<()> {
    let missing: Vec<_> = begin.volumes.iter().filter(|(id, _)| !here.contains(id)).collect();
    if missing.len() <= failed || trust.away || trust.salvage {
        return Ok(());
    }
    let labels: Vec<_> = missing.iter().map(|(_, label)| label.as_str()).collect();
    let labels = labels.join(", ");
    Err(Error::new(
        ErrorKind::Unavailable,
        format!(
            "missing volumes: {labels}. Bring them back, or allow the pool to open without them"
        ),
    ))
}

/// Checks the present volumes against those of the manifest.
fn check_volumes(
    begin: &Begin,
    state: &State,
    here: &[VolumeId],
    volumes: &[Belonging],
    trust: Trust,
) -> Result<()> {
    for Belonging { label, header, .. } in volumes {
        if !begin.volumes.iter().any(|(id, _)| *id == header.volume) {
            return Err(invalid(format!(
                "volume {label} says it is volume {} of this pool, but the manifest knows no such \
                 volume: it was removed; take it out of the pool's settings",
                header.volume
            )));
        }
    }
    let Quorum { volumes: copies, needs } = &begin.home;
    let copies_here = copies.iter().filter(|&id| here.contains(id)).count();
    let is_enough =
        enough_alone(copies, state.is_closed()).is_some_and(|alone| here.contains(&alone));
    if is_enough && copies_here < copies.len() {
        tracing::warn!(
            "one of the two volumes that keep the manifest is away: the pool opens with the other, as it \
             was closed in order"
        );
    }
    if copies_here < *needs && !is_enough && !trust.salvage {
        let labels = copies.iter().map(|id| {
            let label = begin.volumes.iter().find(|(other, _)| other == id);
            label.map_or("?", |(_, label)| label.as_str())
        });
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "only {copies_here} of {} volumes that keep the manifest are here ({}), so a newer \
                 one may be on the others. Bring them back; if they are lost for good, `plimsoll \
                 check --repair` goes on with what there is",
                copies.len(),
                labels.collect::<Vec<_>>().join(", ")
            ),
        ));
    }
    for (id, object) in state.objects() {
        // The only copy of an object may be on a volume that was lost and removed.
        let left = |volume: &VolumeId| volume.0 < state.volume_ids();
        let unknown =
            |volume: &VolumeId| !begin.volumes.iter().any(|(id, _)| id == volume) && !left(volume);
        if let Some(volume) = object.copies.volumes().find(unknown) {
            return Err(corrupt(format!(
                "the manifest says that object {id} lies on volume {volume}, which it does not know"
            )));
        }
    }
    Ok(())
}

/// Compares the objects on the volumes with the manifest, and prepares the state for use.
fn compare(
    begin: Begin,
    mut state: State,
    generation: u64,
    volumes: Vec<Belonging>,
    trust: Trust,
) -> Recovered {
    let (mut orphans, mut foreign) = (Vec::new(), Vec::new());
    let unequal = if state.is_closed() { Vec::new() } else { find_unequal(&state, &volumes) };
    for Belonging { header, listing, .. } in &volumes {
        let volume = header.volume;
        for listed in listing {
            let leaf = Leaf::parse(&listed.name);
            let orphan = match leaf {
                Some(Leaf::Header) => continue,
                Some(Leaf::Manifest { .. }) if trust.salvage => continue,
                Some(Leaf::Manifest { .. }) => leaf,
                Some(Leaf::Object { id, kind, copy }) => {
                    match state.verdict(id, kind, copy, volume) {
                        Verdict::Wanted => continue,
                        // A salvaged manifest may be old, so it must not delete unknown objects.
                        Verdict::Issued if !trust.salvage => leaf,
                        Verdict::Issued | Verdict::Foreign => None,
                    }
                }
                None => None,
            };
            match orphan {
                Some(leaf) => orphans.push((volume, leaf)),
                None => foreign.push((volume, listed.clone())),
            }
        }
    }
    let alone = enough_alone(&begin.home.volumes, state.is_closed()).filter(|_| !trust.salvage);
    skip_foreign_ids(&mut state, &foreign, trust);
    forget_unsynced_logs(&mut state, &volumes);
    let slot = |(id, label): &(VolumeId, String)| {
        let here = volumes.iter().find(|volume| volume.header.volume == *id);
        let label = here.map_or(label, |volume| &volume.label).clone();
        MemberSlot::new(*id, label, here.map(|volume| Arc::clone(&volume.volume)))
    };
    let members = Members::new(begin.volumes.iter().map(slot).collect());
    let listings = volumes.into_iter().map(|volume| (volume.header.volume, volume.listing));
    let (pool, listings) = (begin.pool, listings.collect());
    let home = (!trust.salvage).then_some(begin.home);
    let left_out = Vec::new();
    Recovered {
        pool,
        members,
        left_out,
        state,
        generation,
        alone,
        home,
        orphans,
        foreign,
        listings,
        unequal,
    }
}

/// Skips the ids of foreign objects: with an issued id, they would look like orphans.
fn skip_foreign_ids(state: &mut State, foreign: &[(VolumeId, Listed)], trust: Trust) {
    let ids = foreign.iter().flat_map(|(_, listed)| match Leaf::parse(&listed.name) {
        Some(Leaf::Object { id, copy, .. }) => [id.0, copy],
        _ => [0, 0],
    });
    let issued = state.issued();
    // Ids too high to be ever reached need not be skipped.
    let reachable = ids.filter(|&id| id < State::ID_MAX / 2);
    let highest = reachable.filter(|&id| trust.salvage || id >= issued.end).max();
    let gap = if trust.salvage { SALVAGE_GAP } else { 1 };
    let from = match highest {
        Some(id) => id.max(issued.end).saturating_add(gap),
        None if trust.salvage => issued.end.saturating_add(gap),
        None => return,
    };
    let lease = Record::Lease { from, upto: from };
    state.apply(&[lease]).expect("a lease after the one before it fits");
}

/// Finds the objects whose copies may differ. They must be aligned before they are used, so that unsynced bytes
/// once read from one copy are read from every copy. The bytes of a log with a checksum were durable in all copies: if they
/// differ, one is damaged, and aligning it could spread the damage.
fn find_unequal(state: &State, volumes: &[Belonging]) -> Vec<Unequal> {
    let mut unequal = Vec::new();
    for (id, object) in state.objects() {
        if object.is_settled() || object.copies.count() == 1 {
            continue;
        }
        let checked = object.checked().filter(|_| object.kind == Kind::Log);
        let from = checked.map_or(0, |checked| checked.len);
        let (mut here, mut away) = (Vec::new(), Vec::new());
        for placed in object.copies.iter() {
            match found_len(volumes, id, object, placed) {
                Some(len) => here.push((std::cmp::Reverse(len), placed.number)),
                None => away.push(placed.number),
            }
        }
        // Without a byte behind the checksum in any copy there is nothing to align.
        let ends_there = |(len, _): &(std::cmp::Reverse<u64>, u64)| len.0 <= from;
        if checked.is_some() && away.is_empty() && here.iter().all(ends_there) {
            continue;
        }
        // The longest copy has the most unsynced bytes. A stable sort keeps the order otherwise.
        here.sort_by_key(|&(len, _)| len);
        let copies = here.into_iter().map(|(_, number)| number).collect();
        unequal.push(Unequal { id, from, copies, away });
    }
    unequal
}

/// The length of a copy; `None` if a part of it is absent.
fn found_len(volumes: &[Belonging], id: ObjectId, object: &Stored, placed: &Placed) -> Option<u64> {
    let name = Leaf::Object { id, kind: object.kind, copy: placed.number }.name();
    let lens = placed.layout.volumes().iter().map(|volume| {
        let holder = volumes.iter().find(|holder| holder.header.volume == *volume)?;
        let listed = holder.listing.iter().find(|listed| listed.name == name)?;
        Some(listed.len)
    });
    lens.sum()
}

/// Removes the names of logs that were never synced and are missing on every present volume with a copy: a
/// missing one shows that the machine crashed, so the absent volumes lost theirs too.
fn forget_unsynced_logs(state: &mut State, volumes: &[Belonging]) {
    let lost: BTreeSet<ObjectId> = state
        .objects()
        .filter(|(id, object)| {
            let unsynced = object.kind == Kind::Log && object.committed.is_none();
            let leaf = |placed: &Placed| {
                Leaf::Object { id: *id, kind: object.kind, copy: placed.number }.name()
            };
            // For each of its parts on a present volume: whether it exists.
            let seen = object.copies.iter().flat_map(|placed| {
                let name = leaf(placed);
                let on = |volume: &&Belonging| placed.is_on(volume.header.volume);
                volumes
                    .iter()
                    .filter(on)
                    .map(move |volume| volume.listing.iter().any(|listed| listed.name == name))
            });
            let seen: Vec<_> = seen.collect();
            unsynced && !seen.is_empty() && seen.iter().all(|there| !there)
        })
        .map(|(id, _)| id)
        .collect();
    let names = state.names("").filter(|(_, id)| lost.contains(id));
    let unlinks: Vec<_> = names.map(|(name, _)| Record::Unlink { name: name.clone() }).collect();
    for unlink in unlinks {
        state.apply(&[unlink]).expect("a name just listed can be unlinked");
    }
}

/// The generations of the manifest in a listing, complete or not.
fn generations(listing: &[Listed]) -> impl Iterator<Item = u64> {
    listing.iter().filter_map(|listed| match Leaf::parse(&listed.name) {
        Some(Leaf::Manifest { generation }) => Some(generation),
        _ => None,
    })
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn corrupt(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}
