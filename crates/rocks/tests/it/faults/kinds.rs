//! Finds out which file of RocksDB an object on a volume is. Its name there is a number, so the first
//! bytes decide.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use volume::{Intent, Io, IoBuf, IoBufMut, Listed, Name, Object, Pending, Space, Volume};

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum File {
    Table,
    Wal,
    Manifest,
    Current,
    Options,
    Identity,
    PoolManifest,
    PoolHeader,
    /// No file: a listing, or the free space.
    Volume,
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Wal => "write-ahead log",
            Self::Manifest => "MANIFEST",
            Self::Current => "CURRENT",
            Self::Options => "OPTIONS",
            Self::Identity => "IDENTITY",
            Self::PoolManifest => "pool's manifest",
            Self::PoolHeader => "volume header",
            Self::Volume => "volume",
        })
    }
}

impl File {
    /// By the first bytes of one of RocksDB's logs. A write-ahead log begins with one of the tests' keys.
    fn of_log(bytes: &[u8]) -> Self {
        match bytes {
            _ if bytes.starts_with(b"MANIFEST-") => Self::Current,
            _ if bytes.starts_with(b"# This is a RocksDB option file") => Self::Options,
            _ if bytes.len() < 40 && bytes.iter().filter(|&&b| b == b'-').count() == 4 => {
                Self::Identity
            }
            _ if bytes.windows(4).any(|text| text == b"key0") => Self::Wal,
            _ => Self::Manifest,
        }
    }
}

/// The kind of each object, by its name on the volume.
#[derive(Clone, Default)]
pub(super) struct Kinds(Arc<Mutex<BTreeMap<Name, File>>>);

impl Kinds {
    /// The kind of an object; `None` if it was never written.
    pub(super) fn of(&self, name: Option<&Name>) -> Option<File> {
        let Some(name) = name else { return Some(File::Volume) };
        match name.as_str() {
            "pool.header" => Some(File::PoolHeader),
            text if text.starts_with("manifest-") => Some(File::PoolManifest),
            text if text.ends_with(".tab") => Some(File::Table),
            _ => self.0.lock().get(name).copied(),
        }
    }
}

/// A volume that finds out the kind of each object from its first bytes.
pub(super) struct Spy<V> {
    pub(super) inner: V,
    pub(super) kinds: Kinds,
}

impl<V: Volume> Volume for Spy<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let inner = self.inner.create(&name, &intent).await?;
            Ok(Arc::new(Watched { inner, name, kinds: self.kinds.clone() }) as Arc<dyn Object>)
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        self.inner.open(name)
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        self.inner.remove(name)
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        self.inner.list()
    }

    fn space(&self) -> Pending<'_, Space> {
        self.inner.space()
    }
}

struct Watched {
    inner: Arc<dyn Object>,
    name: Name,
    kinds: Kinds,
}

impl Object for Watched {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        self.inner.read_at(offset, into, io)
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if offset == 0 {
            let mut kinds = self.kinds.0.lock();
            kinds.entry(self.name.clone()).or_insert_with(|| File::of_log(&data));
        }
        self.inner.write_at(offset, data, io)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_log(&self) -> bool {
        self.inner.is_log()
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        self.inner.set_len(len)
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        self.inner.sync(io)
    }
}
