//! One file of the store: its names, and the one handle that all its readers share.

use std::sync::Arc;

use policy::purpose::Io;
use volume::{Check, Error, ErrorKind, IoBuf, IoBufMut, Name, Object, Result};

use super::FileId;
use super::format::{Bad, Seal, StoreId};
use super::index::Place;
use super::scan::{self, Whole};

/// An open file. Readers hold it while they read; it may be removed once only the store holds it.
pub(super) struct File {
    pub(super) id: FileId,
    pub(super) seal: Seal,
    pub(super) name: Name,
    /// Volume and name, for messages.
    pub(super) what: String,
    pub(super) object: Arc<dyn Object>,
}

impl File {
    pub(super) fn new(
        store: StoreId,
        id: FileId,
        label: &str,
        name: Name,
        object: Arc<dyn Object>,
    ) -> Arc<Self> {
        let what = format!("volume {label}: {name}");
        Arc::new(Self { id, seal: Seal::of(store, id), name, what, object })
    }

    /// Reads and checks the record at a place of this file.
    ///
    /// # Errors
    /// `Corrupt`: no copy of the file has it; those of the volume.
    pub(super) async fn record(&self, place: Place, io: Io) -> Result<(IoBuf, Whole)> {
        let into = IoBufMut::zeroed(place.len as usize);
        let read = self.object.read_at(u64::from(place.offset), into, io).await;
        let bytes = read.map_err(|error| self.unreadable(place.offset, error))?.freeze();
        match scan::record_at(self.seal, place, &bytes) {
            Ok(whole) => Ok((bytes, whole)),
            Err(bad) => self.record_again(place, bad, io).await,
        }
    }

    /// The same after a read gave `bad` bytes: from another copy, if there is one.
    ///
    /// # Errors
    /// As for [`File::record`].
    #[cold]
    pub(super) async fn record_again(
        &self,
        place: Place,
        bad: Bad,
        io: Io,
    ) -> Result<(IoBuf, Whole)> {
        let (seal, offset) = (self.seal, u64::from(place.offset));
        let check: Check = Arc::new(move |bytes| scan::record_at(seal, place, bytes).is_ok());
        let into = IoBufMut::zeroed(place.len as usize);
        let read = self.object.read_again(offset, into, io, check).await;
        let bytes = read.map_err(|error| match error.kind() {
            kind if kind.is_damage() => self.corrupt(offset, bad),
            _ => error,
        })?;
        let bytes = bytes.freeze();
        let whole =
            scan::record_at(seal, place, &bytes).map_err(|bad| self.corrupt(offset, bad))?;
        Ok((bytes, whole))
    }

    /// The error of a read: `Corrupt` if the device cannot read the record, which is then lost as if its checksum failed.
    fn unreadable(&self, offset: u32, error: Error) -> Error {
        if error.kind() != ErrorKind::Io {
            return error;
        }
        let message = format!("{}: record at byte {offset}: {error}", self.what);
        Error::new(ErrorKind::Corrupt, message)
    }

    pub(super) fn corrupt(&self, offset: u64, bad: Bad) -> Error {
        let message = format!(
            "{}: record at byte {offset}: {}: the record is lost unless there is a copy elsewhere",
            self.what,
            bad.what()
        );
        Error::new(ErrorKind::Corrupt, message)
    }
}

/// The names of a store's objects.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

/// The meaning of an object's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Store,
    /// Each write goes to the device.
    File(FileId),
    /// Written through the page cache.
    Cached(FileId),
    Hint(FileId),
}

/// Digits of an id in a name.
const DIGITS: usize = 10;

impl Names {
    /// Of the store called `name`.
    ///
    /// # Errors
    /// `Invalid`: it is not fit for the name of an object.
    pub(super) fn new(name: &str) -> Result<Self> {
        let names = Self { prefix: format!("{name}/") };
        Name::new(&format!("{name}/{}", "0".repeat(DIGITS + 5)))?;
        Ok(names)
    }

    /// The prefix of all of them.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn of(&self, role: Role) -> Name {
        let prefix = &self.prefix;
        let name = match role {
            Role::Store => format!("{prefix}store"),
            Role::File(id) => format!("{prefix}{:010x}.seg", id.0),
            Role::Cached(id) => format!("{prefix}{:010x}.log", id.0),
            Role::Hint(id) => format!("{prefix}{:010x}.hint", id.0),
        };
        Name::new(&name).expect("the prefix was checked")
    }

    /// The role of `name` in this store; `None` if it is not the store's.
    pub(super) fn role(&self, name: &Name) -> Option<Role> {
        let rest = name.as_str().strip_prefix(&self.prefix)?;
        if rest == "store" {
            return Some(Role::Store);
        }
        let (digits, end) = rest.split_once('.')?;
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() != DIGITS || !digits.bytes().all(hex) {
            return None;
        }
        let id = FileId(u64::from_str_radix(digits, 16).ok()?);
        match end {
            "seg" => Some(Role::File(id)),
            "log" => Some(Role::Cached(id)),
            "hint" => Some(Role::Hint(id)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_again() {
        let names = Names::new("a/series").unwrap();
        let id = FileId(0xa0_1234_5678);
        for role in [Role::Store, Role::File(FileId(0)), Role::Cached(id), Role::Hint(id)] {
            assert_eq!(names.role(&names.of(role)), Some(role));
        }
        for other in ["a/series", "b/store", "a/series/0.seg", "a/series/00000000AB.seg"] {
            assert_eq!(names.role(&Name::new(other).unwrap()), None, "{other}");
        }
        assert!(Names::new("../x").is_err());
    }
}
