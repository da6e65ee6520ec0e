//! RocksDB's paths and a pool's names.
//!
//! Both are parts between slashes, but no part of a name may begin with a dot. RocksDB's backups begin
//! the names of unfinished files with one, so such a part gets an underscore in front. So does a part
//! that looks escaped already: `.1.tmp` is stored as `_.1.tmp`, and `_.1.tmp` as `__.1.tmp`.

use std::borrow::Cow;

use volume::{Error, ErrorKind, Name, Result};

/// The kind of a file of RocksDB, by its path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileKind {
    /// A sorted table: buffered until complete, then placed.
    Table,
    /// A blob file: streamed, then read at random.
    Blob,
    /// Every other file. An append survives a crash of the process at once: write-ahead log, MANIFEST,
    /// CURRENT, OPTIONS, IDENTITY.
    Log,
}

impl FileKind {
    /// The kind of the file at `path`. That of an unfinished file (`.tmp`) is the kind it will have.
    pub(crate) fn of(path: &str) -> Self {
        match path.strip_suffix(".tmp").unwrap_or(path).rsplit_once('.') {
            Some((_, "sst")) => Self::Table,
            Some((_, "blob")) => Self::Blob,
            _ => Self::Log,
        }
    }
}

/// The directory of all of a database's files.
#[derive(Clone, Debug)]
pub(crate) struct Root(Name);

impl Root {
    pub(crate) fn new(path: &str) -> Result<Self> {
        Name::new(&parts(path).collect::<Vec<_>>().join("/")).map(Self)
    }

    /// The name of the file or directory at `path`. The path `/` is the root itself.
    ///
    /// # Errors
    /// `Invalid`: a character or part that no name may have, or a path that is too long.
    pub(crate) fn name(&self, path: &str) -> Result<Name> {
        let mut name = self.0.as_str().to_owned();
        for part in parts(path) {
            if part == ".." {
                let message = format!("path {path:?}: leads out of its directory");
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            name.push('/');
            name.push_str(&stored(part));
        }
        Name::new(&name)
    }

    /// Whether a name is directly in this directory.
    pub(crate) fn is_dir_of(&self, name: &Name) -> bool {
        name.as_str().rsplit_once('/').is_some_and(|(dir, _)| dir == self.0.as_str())
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// The part of a name for a part of a path.
fn stored(part: &str) -> Cow<'_, str> {
    if has_dot_in_front(part) { format!("_{part}").into() } else { part.into() }
}

/// The part of a path for a part of a name.
pub(crate) fn shown(part: &str) -> &str {
    match part.strip_prefix('_') {
        Some(rest) if has_dot_in_front(rest) => rest,
        _ => part,
    }
}

/// Whether the first character after any underscores is a dot.
fn has_dot_in_front(part: &str) -> bool {
    part.trim_start_matches('_').starts_with('.')
}

/// RocksDB sometimes doubles slashes, or ends a directory with one.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_more_or_less_name_the_same_file() {
        let root = Root::new("/stores/kv/").unwrap();
        for path in ["/CURRENT", "//CURRENT", "CURRENT", "/./CURRENT", "CURRENT/"] {
            assert_eq!(root.name(path).unwrap().as_str(), "stores/kv/CURRENT", "{path}");
        }
        assert_eq!(root.name("/").unwrap().as_str(), "stores/kv");
        assert!(root.name("/../secret").is_err());
        assert!(Root::new("/").is_err(), "a database has a name");
    }

    #[test]
    fn a_dot_in_front_is_kept_behind_an_underscore() {
        let root = Root::new("kv").unwrap();
        for (part, expected) in [
            (".1.tmp", "_.1.tmp"),
            ("_.1.tmp", "__.1.tmp"),
            ("__.", "___."),
            ("_1", "_1"),
            ("a", "a"),
        ] {
            let name = root.name(&format!("/meta/{part}")).unwrap();
            assert_eq!(name.as_str(), format!("kv/meta/{expected}"));
            assert_eq!(shown(expected), part);
        }
    }

    #[test]
    fn only_tables_and_blob_files_are_no_logs() {
        for (path, kind) in [
            ("/000012.sst", FileKind::Table),
            ("/000012.blob", FileKind::Blob),
            ("/000012.log", FileKind::Log),
            ("/MANIFEST-000005", FileKind::Log),
            ("/CURRENT", FileKind::Log),
            ("/OPTIONS-000007.dbtmp", FileKind::Log),
            ("/backups/shared_checksum/.000012_sABC_9.sst.tmp", FileKind::Table),
            ("/backups/private/1.tmp/MANIFEST-000005", FileKind::Log),
            ("/backups/meta/.1.tmp", FileKind::Log),
        ] {
            assert_eq!(FileKind::of(path), kind, "{path}");
        }
    }
}
