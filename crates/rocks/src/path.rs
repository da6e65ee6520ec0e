//! RocksDB's paths and a pool's names.

use volume::{Name, Result};

/// What a file of RocksDB is, by its path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileKind {
    /// A sorted table: buffered whole, then placed.
    Table,
    /// A blob file: streamed, then read at random.
    Blob,
    /// Everything that is appended to and must survive the death of the process at once: write-ahead
    /// log, MANIFEST, CURRENT, OPTIONS, IDENTITY.
    Log,
}

impl FileKind {
    pub(crate) fn of(path: &str) -> Self {
        match path.rsplit_once('.') {
            Some((_, "sst")) => Self::Table,
            Some((_, "blob")) => Self::Blob,
            _ => Self::Log,
        }
    }
}

/// The name all of a database's files are under.
#[derive(Clone, Debug)]
pub(crate) struct Root(Name);

impl Root {
    pub(crate) fn new(path: &str) -> Result<Self> {
        Name::new(&parts(path).collect::<Vec<_>>().join("/")).map(Self)
    }

    /// The name of the file or directory at `path`; that of the root itself is `/`.
    ///
    /// # Errors
    /// `Invalid`: a character or part no name may have, or too long.
    pub(crate) fn name(&self, path: &str) -> Result<Name> {
        let mut name = self.0.as_str().to_owned();
        for part in parts(path) {
            name.push('/');
            name.push_str(part);
        }
        Name::new(&name)
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// RocksDB doubles slashes and ends directories with one where it likes.
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
    fn only_tables_and_blob_files_are_no_logs() {
        for (path, kind) in [
            ("/000012.sst", FileKind::Table),
            ("/000012.blob", FileKind::Blob),
            ("/000012.log", FileKind::Log),
            ("/MANIFEST-000005", FileKind::Log),
            ("/CURRENT", FileKind::Log),
            ("/OPTIONS-000007.dbtmp", FileKind::Log),
        ] {
            assert_eq!(FileKind::of(path), kind, "{path}");
        }
    }
}
