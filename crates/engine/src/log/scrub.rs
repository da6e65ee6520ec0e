//! Reading all stored bytes, to find damage in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::purpose::{Io, Origin, Step};
use volume::{ErrorKind, Result};

use super::format::HEADER_LEN;
use super::recovery::Damage;
use super::state::Phase;
use super::{Bad, FileId, Store, scan};

const SCRUB: Io = Io::new(Origin::Scrub, Step::Data);

/// The findings of a scrub.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scrubbed {
    /// Files that were read, and their bytes.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// Live records that are damaged: reads of them fail, and no merge can copy them.
    pub lost: Vec<Damage>,
    /// Damage outside live records: in the header, or in a dead record.
    pub harmless: Vec<Damage>,
    /// Files whose read failed, and why.
    pub unread: Vec<String>,
}

impl Store {
    /// Reads every sealed file from front to back, in spare capacity, and checks every checksum. A file merged
    /// meanwhile is read in full or not at all; open files are left out.
    ///
    /// # Errors
    /// `Busy`: there was no spare capacity for long. The findings so far are counted in the store's health; those of this call
    /// are lost. Try again later.
    pub async fn scrub(&self) -> Result<Scrubbed> {
        let mut scrubbed = Scrubbed::default();
        for (id, _) in self.sealed() {
            scrubbed.add(self.scrub_file(id).await?);
        }
        Ok(scrubbed)
    }

    /// The numbers of the sealed files, ascending, and their bytes.
    pub(crate) fn sealed(&self) -> Vec<(FileId, u64)> {
        let state = self.0.state();
        let sealed = state.files.iter().filter(|(_, facts)| facts.phase != Phase::Open);
        sealed.map(|(&id, facts)| (id, facts.handle.object.len())).collect()
    }

    /// Reads a sealed file. Nothing is read if a merge has removed it.
    ///
    /// # Errors
    /// As for [`Store::scrub`].
    pub(crate) async fn scrub_file(&self, id: FileId) -> Result<Scrubbed> {
        let mut scrubbed = Scrubbed::default();
        let Some((file, layout)) = ({
            let state = self.0.state();
            state.files.get(&id).map(|facts| (Arc::clone(&facts.handle), facts.layout))
        }) else {
            return Ok(scrubbed);
        };
        let mut bad_at: BTreeMap<u64, Bad> = BTreeMap::new();
        let header = scan::header(&*file.object, SCRUB).await;
        // All of a sealed file was durable, except for padding that a crash left behind its end.
        let len = file.object.len();
        let scanned = scan::scan(&*file.object, file.seal, HEADER_LEN as u64, len, SCRUB).await;
        match (header, scanned) {
            (Ok(header), Ok(scanned)) => {
                if header.is_ok_and(|header| header.layout != layout) {
                    bad_at.insert(0, Bad::Header);
                }
                bad_at.extend(header.err().map(|bad| (0, bad)));
                bad_at.extend(scanned.damage.iter().copied());
            }
            (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::Busy => {
                return Err(error.within("a scrub of the log store"));
            }
            (Err(error), _) | (_, Err(error)) => {
                scrubbed.unread.push(error.to_string());
                return Ok(scrubbed);
            }
        }
        scrubbed.files += 1;
        scrubbed.bytes += len;
        // Its live records, by place: a damaged head does not give its key.
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        if !bad_at.is_empty() {
            self.0.state().index.walk(std::ops::Bound::Unbounded, |_, place| {
                if place.file == id {
                    live.insert(u64::from(place.offset), u64::from(place.len));
                }
                true
            });
        }
        for (offset, bad) in bad_at {
            let damage = Damage { what: file.what.clone(), offset, bad };
            let before = live.range(..=offset).next_back();
            if let Some((&start, _)) = before.filter(|(start, len)| offset < *start + *len) {
                self.0.note_damage(&file, start as u32, &file.corrupt(offset, bad));
                scrubbed.lost.push(damage);
            } else if bad != Bad::Empty {
                scrubbed.harmless.push(damage);
            }
        }
        Ok(scrubbed)
    }
}

impl Scrubbed {
    fn add(&mut self, more: Self) {
        self.files += more.files;
        self.bytes += more.bytes;
        self.lost.extend(more.lost);
        self.harmless.extend(more.harmless);
        self.unread.extend(more.unread);
    }
}
