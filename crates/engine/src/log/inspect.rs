//! Looking at a store without opening it: nothing is written, leased or removed. A pool under it repairs damaged copies
//! that are found this way.
//!
//! Hints tell the records of a sound store that was closed. Files without one, as a crash leaves them, and with `scrub`
//! all files, are read from front to back. Flaws are named by file, offset and key: the record's head gives the key, or
//! the hint does. A record is *lost* if no whole record of the key is as new.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Listed, Result};

use super::file::{File, Names, Role};
use super::format::{self, Bad, Entries, HEADER_LEN, Kind, StoreId};
use super::recovery::own_object;
use super::{Member, scan};

const INSPECT: Io = Io::new(Origin::Scrub, Step::Data);

/// What an inspection found in a store that is not open.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inspected {
    /// The id of the store.
    pub store: Option<StoreId>,
    /// How many volumes it is on, by the newest lease.
    pub volumes: u16,
    /// Files that hold records, and the bytes of these files and their hints.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// Records in them, dead ones too.
    pub records: u64,
    /// Keys that have a value.
    pub keys: u64,
    /// Files that were read from front to back, and their bytes.
    pub read: u64,
    /// See `read`.
    pub read_bytes: u64,
    /// Files that a crash cut short: no durable record is missing from them.
    pub torn: Vec<String>,
    /// Flaws, file by file in the order of their ids.
    pub flaws: Vec<Flaw>,
}

/// Bytes that differ from those written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flaw {
    /// Volume and name of the object.
    pub what: String,
    /// Where, in bytes from its beginning.
    pub offset: u64,
    /// The key of the record there; `None` if it is no record, or its key is unknown.
    pub key: Option<Bytes>,
    /// What is wrong.
    pub bad: Bad,
    /// Whether the key's newest record is damaged, or may be: reads of it fail.
    pub is_lost: bool,
}

/// A file's entries and its damage.
struct Seen {
    what: String,
    entries: Vec<u8>,
    /// Whether the entries come from its hint.
    hinted: bool,
    damage: Vec<(u64, Bad)>,
}

/// The names of the log stores that have their own object on these volumes.
///
/// # Errors
/// `Invalid`: one is of a later version of the program; what volumes fail with.
pub async fn stores_on(members: &[Member]) -> Result<BTreeSet<String>> {
    let mut stores = BTreeSet::new();
    for member in members {
        for listed in member.volume.list().await? {
            let Some(name) = listed.name.as_str().strip_suffix("/store") else { continue };
            // No store has a name too long for its files.
            let Ok(names) = Names::new(name) else { continue };
            if own_object(member, &names).await?.slot.is_some() {
                stores.insert(name.to_owned());
            }
        }
    }
    Ok(stores)
}

/// Inspects the store called `name` on `members`; with `scrub` it reads and checks every record.
///
/// # Errors
/// `NotFound`: there is no such store; `Invalid`: these are not all of its volumes, or it is of a later version of the
/// program; what volumes fail with.
pub async fn inspect(members: &[Member], name: &str, scrub: bool) -> Result<Inspected> {
    let names = Names::new(name)?;
    let mut found = Inspected::default();
    let mut newest = None;
    let mut there = 0;
    for member in members {
        let slot = own_object(member, &names).await?.slot;
        there += u16::from(slot.is_some());
        newest = newest.into_iter().chain(slot).max_by_key(|slot: &format::Slot| slot.generation);
    }
    let slot = newest.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("no log store called {name} on these volumes"))
    })?;
    if there < slot.volumes {
        let message =
            format!("the log store is on {} volumes, and {there} of them were given", slot.volumes);
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    (found.store, found.volumes) = (Some(slot.store), slot.volumes);
    let mut files = Vec::new();
    for member in members {
        survey(member, &names, slot.store, scrub, &mut found, &mut files).await?;
    }
    found.judge(&files);
    Ok(found)
}

/// The files of one volume.
async fn survey(
    member: &Member,
    names: &Names,
    store: StoreId,
    scrub: bool,
    found: &mut Inspected,
    files: &mut Vec<Seen>,
) -> Result<()> {
    let (mut data, mut hints) = (BTreeMap::new(), BTreeMap::new());
    for listed in member.volume.list().await? {
        match names.role(&listed.name) {
            Some(Role::File(id) | Role::Cached(id)) => {
                data.insert(id, listed);
            }
            Some(Role::Hint(id)) => {
                hints.insert(id, listed);
            }
            _ => {}
        }
    }
    for (id, Listed { name, len }) in data {
        let object = member.volume.open(&name).await?;
        let file = File::new(store, id, &member.label, name, object);
        let mut seen = Seen {
            what: file.what.clone(),
            entries: Vec::new(),
            hinted: false,
            damage: Vec::new(),
        };
        let mut covers = 0;
        if let Some(Listed { name, len }) = hints.remove(&id) {
            let hint = member.volume.open(&name).await?;
            found.bytes += len;
            match scan::hint(&*hint, file.seal, INSPECT).await? {
                Ok((header, entries)) => {
                    covers = u64::from(header.covers);
                    // The rest of the file has to be read anyway.
                    if header.whole {
                        (seen.entries, seen.hinted) = (entries, true);
                        found.records += u64::from(header.records);
                    }
                }
                // A bad hint loses nothing: the file has the same entries.
                Err(bad) => {
                    let what = format!("volume {}: {name}", member.label);
                    let flaw = Flaw { what, offset: 0, key: None, bad, is_lost: false };
                    found.flaws.push(flaw);
                }
            }
        }
        if len < covers {
            seen.damage.push((len, Bad::Short));
        }
        if scrub || !seen.hinted {
            let header = scan::header(&*file.object, INSPECT).await?;
            let is_own = |header: &format::Header| header.store == store && header.file == id;
            let from = HEADER_LEN as u64;
            let scanned = scan::scan(&*file.object, file.seal, from, covers, INSPECT).await?;
            found.read += 1;
            found.read_bytes += len;
            let bad = match header {
                Ok(header) if is_own(&header) => None,
                Ok(_) => Some(Bad::Foreign),
                Err(bad) => Some(bad),
            };
            // The first page of a file that was never durable may be cut by a crash.
            seen.damage.extend(bad.filter(|_| scanned.durable > 0).map(|bad| (0, bad)));
            seen.damage.extend(scanned.damage);
            if !seen.hinted {
                found.records += u64::from(scanned.records);
                seen.entries = scanned.entries;
                if scanned.torn.is_some() {
                    found.torn.push(file.what.clone());
                }
            }
        }
        found.files += u64::from(!seen.entries.is_empty());
        found.bytes += len;
        files.push(seen);
    }
    Ok(())
}

/// The newest entry of a key: its sequence and kind, and how many whole records have it.
struct Newest {
    sequence: u64,
    kind: Kind,
    whole: u32,
}

impl Inspected {
    /// Counts keys, and finds the key of each flaw and whether it is lost.
    fn judge(&mut self, files: &[Seen]) {
        let mut newest: HashMap<&[u8], Newest> = HashMap::new();
        for seen in files {
            let bad = |offset: u32, len: u32| {
                let range = u64::from(offset)..u64::from(offset) + u64::from(len);
                let cut = |&(at, bad): &(u64, Bad)| bad == Bad::Short && at < range.end;
                seen.damage.iter().any(|damage| range.contains(&damage.0) || cut(damage))
            };
            for entry in Entries(&seen.entries) {
                let whole = u32::from(!bad(entry.offset, entry.len));
                let (sequence, kind) = (entry.sequence, entry.kind);
                let known = newest.entry(entry.key).or_insert(Newest { sequence, kind, whole: 0 });
                if known.sequence < sequence {
                    *known = Newest { sequence, kind, whole };
                } else if known.sequence == sequence {
                    known.whole += whole;
                }
            }
        }
        self.keys = newest.values().filter(|newest| newest.kind == Kind::Put).count() as u64;
        for seen in files {
            for &(offset, bad) in &seen.damage {
                let covered = |entry: &format::Entry<'_>| {
                    let start = u64::from(entry.offset);
                    let is_behind = bad == Bad::Short && start >= offset;
                    (start..start + u64::from(entry.len)).contains(&offset) || is_behind
                };
                let mut any = false;
                for entry in Entries(&seen.entries).filter(covered) {
                    any = true;
                    let newest = &newest[entry.key];
                    let is_newest = newest.sequence == entry.sequence;
                    self.flaws.push(Flaw {
                        what: seen.what.clone(),
                        offset: offset.max(u64::from(entry.offset)),
                        key: Some(Bytes::copy_from_slice(entry.key)),
                        bad,
                        is_lost: is_newest && newest.whole == 0,
                    });
                }
                // Bad zeros outside the hint's records are padding.
                let is_padding = seen.hinted && bad == Bad::Empty;
                if !any && !is_padding {
                    // Without a hint the lost record is unknown.
                    let is_lost = !seen.hinted && offset > 0;
                    let what = seen.what.clone();
                    self.flaws.push(Flaw { what, offset, key: None, bad, is_lost });
                }
            }
        }
    }
}
