//! The calls of RocksDB's `FileSystem`, over the names of a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use policy::intent::Intent;
use policy::placement::Keys;
use pool::ObjectId;
use pool::cache::Cache;
use pool::spread::{NameLease, Spread, Stat};
use volume::heartbeat::TaskHealth;
use volume::task::block_on;
use volume::{Clock, Error, ErrorKind, Name, Object, Result, Volume};

use crate::Settings;
use crate::form::{self, Form};
use crate::info_log::InfoLog;
use crate::logs::Logs;
use crate::path::{FileKind, Root, shown};
use crate::readable::Readable;
use crate::sequential::Sequential;
use crate::table::TableWriter;
use crate::tables::Tables;
use crate::thread;
use crate::writable::{OpenFor, Writable};

/// The part of a pool that one database sees.
pub(crate) struct FileSystem {
    pool: Spread,
    clock: Clock,
    root: Root,
    settings: Settings,
    /// Directories that were created, or that had a file removed or renamed away. A pool stores no
    /// directories, so an empty one exists only in this process.
    dirs: Mutex<BTreeSet<Name>>,
    locked: Mutex<BTreeMap<Name, NameLease>>,
    tables: Arc<Tables>,
    logs: Logs,
    info_log: InfoLog,
}

impl FileSystem {
    pub(crate) fn new(
        pool: Spread,
        clock: Clock,
        root: Root,
        settings: Settings,
        cache: Option<Cache>,
    ) -> Arc<Self> {
        let tables = Tables::new(pool.clone(), root.as_str(), settings, cache);
        let logs = Logs::start(settings.wal_sync_interval, &clock);
        Arc::new(Self {
            pool,
            clock,
            settings,
            dirs: Mutex::default(),
            locked: Mutex::default(),
            tables: Arc::new(tables),
            logs,
            info_log: InfoLog::start(root.as_str(), settings.info_log_lines),
            root,
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A table of the database that was just opened.
    pub(crate) fn describe_table(
        &self,
        path: &str,
        family: u32,
        level: Option<u8>,
        keys: Option<Keys<'_>>,
    ) {
        if let Ok(name) = self.root.name(path) {
            self.pool.describe_table(&name, &self.tables.family(family), level, keys);
        }
    }

    /// Records that a table is now at this level, and is no longer leaving.
    pub(crate) fn set_table_level(&self, path: &str, level: u8) {
        if let Ok(name) = self.root.name(path) {
            self.pool.set_table_level(&name, level);
            self.pool.set_table_leaving(&name, false);
        }
    }

    /// Records whether a compaction is about to replace a table.
    pub(crate) fn set_table_leaving(&self, path: &str, leaving: bool) {
        if let Ok(name) = self.root.name(path) {
            self.pool.set_table_leaving(&name, leaving);
        }
    }

    pub(crate) fn open_sequential(&self, path: &str) -> Result<Sequential> {
        let name = self.root.name(path)?;
        let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
        let form = Form::of(file, || {
            let files = self.children(dir).ok().flatten().unwrap_or_default();
            files.into_iter().filter(|file| form::is_manifest(file)).collect()
        });
        Ok(Sequential::new(self.open(&name)?, form))
    }

    pub(crate) fn open_readable(&self, path: &str) -> Result<Readable> {
        let name = self.root.name(path)?;
        let object = Arc::new(block_on(self.pool.open_handle(&name))?);
        let cached = self.tables.cache().map(|cache| cache.open(&object));
        let copies = Arc::clone(&object);
        let readable =
            Readable::new(object, self.clock.clone(), self.tables.tails().find(&name), cached);
        Ok(readable.with_copies(&self.pool, copies))
    }

    pub(crate) fn open_writable(&self, path: &str, how: OpenFor) -> Result<Writable> {
        let name = self.root.name(path)?;
        let kind = FileKind::of(path);
        match (kind, how) {
            (FileKind::Log, OpenFor::Create) => {
                self.make_way(&name)?;
                let object = block_on(self.pool.create(&name, &Intent::LOG))?;
                Ok(Writable::Log(self.logs.open(name, object, 0)))
            }
            (FileKind::Log, OpenFor::Append) => {
                let object = if self.pool.contains(&name) {
                    self.open(&name)?
                } else {
                    block_on(self.pool.create(&name, &Intent::LOG))?
                };
                let end = object.len();
                Ok(Writable::Log(self.logs.open(name, object, end)))
            }
            (FileKind::Log, OpenFor::Overwrite) => {
                let object = self.open(&name)?;
                Ok(Writable::Log(self.logs.open(name, object, 0)))
            }
            (FileKind::Table | FileKind::Blob, OpenFor::Create) => {
                self.make_way(&name)?;
                if kind == FileKind::Table {
                    // Drops a description that an earlier table left behind.
                    let _ = thread::take_table();
                }
                Ok(Writable::Table(Mutex::new(TableWriter::new(
                    Arc::clone(&self.tables),
                    name,
                    kind,
                ))))
            }
            (FileKind::Table | FileKind::Blob, OpenFor::Append | OpenFor::Overwrite) => {
                Err(invalid(format!("{name}: a table is written once")))
            }
        }
    }

    /// Whether there is a file or directory.
    pub(crate) fn exists(&self, path: &str) -> Result<bool> {
        let name = self.root.name(path)?;
        Ok(self.pool.contains(&name) || self.is_dir_name(&name)?)
    }

    /// The files and directories right under a directory, or `None` if there is no such directory.
    pub(crate) fn children(&self, path: &str) -> Result<Option<BTreeSet<String>>> {
        let dir = self.root.name(path)?;
        let files = self.below(&dir)?;
        let prefix = format!("{dir}/");
        let made = self.dirs.lock();
        if files.is_empty() && !made.iter().any(|made| is_or_is_below(made, &dir)) {
            return Ok(None);
        }
        let rest = files.iter().chain(made.iter()).filter_map(|n| n.as_str().strip_prefix(&prefix));
        let part = |rest: &str| shown(rest.split('/').next().unwrap_or(rest)).to_owned();
        Ok(Some(rest.map(part).collect()))
    }

    pub(crate) fn remove(&self, path: &str) -> Result<()> {
        let name = self.root.name(path)?;
        // A table in a subdirectory belongs to a checkpoint, not to this database.
        if FileKind::of(path) == FileKind::Table && self.root.is_dir_of(&name) {
            self.pool.disown_table(&name);
        }
        self.remove_name(&name)
    }

    pub(crate) fn truncate(&self, path: &str, len: u64) -> Result<()> {
        let object = self.open(&self.root.name(path)?)?;
        block_on(object.set_len(len))
    }

    pub(crate) fn create_dir(&self, path: &str, may_exist: bool) -> Result<()> {
        let name = self.root.name(path)?;
        if self.pool.contains(&name) || (!may_exist && self.is_dir_name(&name)?) {
            let message = format!("{name}: there is such a file or directory");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        self.dirs.lock().insert(name);
        Ok(())
    }

    pub(crate) fn remove_dir(&self, path: &str) -> Result<()> {
        let name = self.root.name(path)?;
        match self.children(path)? {
            None => Err(not_found(&name)),
            Some(children) if !children.is_empty() => {
                Err(invalid(format!("{name}: the directory is not empty")))
            }
            Some(_) => {
                self.dirs.lock().remove(&name);
                Ok(())
            }
        }
    }

    pub(crate) fn is_dir(&self, path: &str) -> Result<bool> {
        self.is_dir_name(&self.root.name(path)?)
    }

    /// The length of a file. That of a directory is 0: RocksDB asks for the length of every name it lists.
    pub(crate) fn len(&self, path: &str) -> Result<u64> {
        match self.stat(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.is_dir(path)? => Ok(0),
            stat => Ok(stat?.len),
        }
    }

    /// Renames a file or directory atomically; a file replaces an existing one.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.root.name(from)?, self.root.name(to)?);
        if self.pool.contains(&from) {
            self.tables.tails().forget(&from);
            self.tables.tails().forget(&to);
            self.keep_directory(&from);
            let displaced = self.last_name_of(&to);
            block_on(self.pool.rename(&from, &to))?;
            self.forget(displaced);
            return Ok(());
        }
        if !self.is_dir_name(&from)? {
            return Err(not_found(&from));
        }
        if !self.below(&from)?.is_empty() {
            block_on(self.pool.rename_prefix(&from, &to))?;
        }
        let mut dirs = self.dirs.lock();
        let moved: Vec<_> = dirs.extract_if(.., |dir| is_or_is_below(dir, &from)).collect();
        for dir in moved {
            let rest = &dir.as_str()[from.as_str().len()..];
            dirs.insert(Name::new(&format!("{to}{rest}"))?);
        }
        Ok(())
    }

    /// Adds a name to a file.
    pub(crate) fn link(&self, from: &str, to: &str) -> Result<()> {
        block_on(self.pool.link(&self.root.name(from)?, &self.root.name(to)?))
    }

    /// The number of names that a file has.
    pub(crate) fn links(&self, path: &str) -> Result<u64> {
        Ok(self.stat(path)?.links.into())
    }

    /// Whether two names are of one file.
    pub(crate) fn same(&self, one: &str, other: &str) -> Result<bool> {
        Ok(self.stat(one)?.id == self.stat(other)?.id)
    }

    /// Bytes that can still be written to the pool.
    pub(crate) fn free_space(&self) -> Result<u64> {
        Ok(block_on(self.pool.space())?.free)
    }

    /// Makes a closed file and its name durable. Tables are durable since they were closed.
    pub(crate) fn sync_file(&self, path: &str) -> Result<()> {
        let name = self.root.name(path)?;
        if FileKind::of(path) == FileKind::Log {
            block_on(self.open(&name)?.sync(crate::origin::LOG))?;
        }
        self.flush_names()
    }

    /// How the timer that syncs logs does.
    pub(crate) fn log_syncs(&self) -> TaskHealth {
        self.logs.health()
    }

    /// Makes every log durable.
    pub(crate) fn sync_logs(&self) {
        self.logs.sync_all();
    }

    /// Makes every acknowledged change of a name durable.
    pub(crate) fn flush_names(&self) -> Result<()> {
        block_on(self.pool.flush())
    }

    /// Locks a name against other databases of this process.
    pub(crate) fn lock(&self, path: &str) -> Result<()> {
        let name = self.root.name(path)?;
        let lease = self.pool.lease_name(&name)?;
        self.locked.lock().insert(name, lease);
        Ok(())
    }

    pub(crate) fn unlock(&self, path: &str) -> Result<()> {
        self.locked.lock().remove(&self.root.name(path)?);
        Ok(())
    }

    pub(crate) fn info_log(&self) -> &InfoLog {
        &self.info_log
    }

    fn open(&self, name: &Name) -> Result<Arc<dyn Object>> {
        block_on(self.pool.open(name))
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        block_on(self.pool.stat(&self.root.name(path)?))
    }

    /// Every name under a directory.
    fn below(&self, dir: &Name) -> Result<Vec<Name>> {
        let listed = block_on(self.pool.list_prefix(&format!("{dir}/")))?;
        Ok(listed.into_iter().map(|listed| listed.name).collect())
    }

    /// Removes an old file with the name of a new one. RocksDB reuses file numbers after a crash.
    fn make_way(&self, name: &Name) -> Result<()> {
        if self.pool.contains(name) { self.remove_name(name) } else { Ok(()) }
    }

    /// Removes a name without waiting until the removal is durable. RocksDB removes tables by the dozen; when it
    /// opens, it removes again those that a crash brought back.
    fn remove_name(&self, name: &Name) -> Result<()> {
        self.tables.tails().forget(name);
        self.keep_directory(name);
        let object = self.last_name_of(name);
        self.logs.forget(name);
        block_on(self.pool.remove_soon(name))?;
        self.forget(object);
        Ok(())
    }

    /// The cached object that loses its last name with this one.
    fn last_name_of(&self, name: &Name) -> Option<ObjectId> {
        self.tables.cache()?;
        let stat = block_on(self.pool.stat(name)).ok()?;
        (stat.kind != pool::Kind::Log && stat.links == 1).then_some(stat.id)
    }

    fn forget(&self, object: Option<ObjectId>) {
        if let (Some(cache), Some(object)) = (self.tables.cache(), object) {
            cache.forget(object);
        }
    }

    /// Keeps the directory of a removed file, even if it becomes empty: RocksDB removes the files of a
    /// directory, then the directory itself, and fails if that is already gone.
    fn keep_directory(&self, name: &Name) {
        let dir = name.as_str().rsplit_once('/').and_then(|(dir, _)| Name::new(dir).ok());
        self.dirs.lock().extend(dir);
    }

    /// Whether a directory was created, or has something in it.
    fn is_dir_name(&self, dir: &Name) -> Result<bool> {
        let made = self.dirs.lock().iter().any(|made| is_or_is_below(made, dir));
        Ok(made || !self.below(dir)?.is_empty())
    }
}

fn is_or_is_below(name: &Name, dir: &Name) -> bool {
    let rest = name.as_str().strip_prefix(dir.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn not_found(name: &Name) -> Error {
    Error::new(ErrorKind::NotFound, format!("{name}: no such file or directory"))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
