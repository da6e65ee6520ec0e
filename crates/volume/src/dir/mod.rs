//! A directory on a mounted device.
//!
//! ```text
//! <path>/plimsoll.lock       held while a process has the volume open; names that process
//! <path>/plimsoll.probe      there only while the volume is tried out
//! <path>/objects/kv%a.sst    one file for each object, see `file_name`; that of a log may be longer, see `ahead`
//! ```
//!
//! # Which bytes go where
//!
//! A **log** is written through the page cache: its bytes survive the death of the process at once, and reach the
//! device with a sync. **Every other object** is read and written with `O_DIRECT`, because a page cache would hide what
//! the contract counts. Direct I/O moves whole pages, but requests need not be whole pages:
//!
//! - A *read* covers the pages around it. The file ends where the object ends, so a short read is exact.
//! - A *write* is cut at page boundaries. Its whole pages go to the device directly. The parts of a page before and
//!   after them go through the page cache, where the kernel merges them with the rest of their page, and reach the
//!   device with the next sync. The file's length is always the object's, so it needs no repair after a crash.
//!
//! Why not pad and cut: `docs/adr/0004-parts-of-pages-through-the-cache.md`. The price: a sync may write a page without
//! a token.
//!
//! The kernel keeps both ways coherent unless they touch one page at the same time. A lock for each object prevents
//! that (whole pages shared, parts of pages exclusive).
//!
//! Where a file system refuses `O_DIRECT`, everything goes through the page cache, and a warning
//! says so once.
//!
//! # What is durable when
//!
//! A durable write of whole pages is one `pwritev2` with `RWF_DSYNC`: the kernel sends it as one forced write where the device
//! can. Any other is a write and a sync. A sync is `fdatasync` of the file, and `fsync` of the directory if the object's name is new or any object was
//! removed since the directory was last synced. A failed one poisons the object for ever, and the volume for new
//! objects until [`Dir::probe`] succeeds: the kernel reports such a failure once and then forgets which pages it lost.
//! Each creation on a poisoned volume probes first, so the volume serves again as soon as it works: for example a thin
//! volume that ran out of space.
//!
//! # What an error means
//!
//! A bad sector and a device that is gone give the same errors. After one, the volume probes itself: at most once a
//! second. If the probe works, only bytes of this object are lost: [`ErrorKind::Io`]. If it fails as well, the
//! volume is [`ErrorKind::Unavailable`]. Errors of the process, such as too many open files, are
//! [`ErrorKind::Busy`]: they say nothing about stored bytes.

mod ahead;
mod block_device;
mod file;
mod file_name;
mod handle;
mod lock;
mod names;
mod pages;
mod probe;
mod room;
mod sys;
mod transfer;
mod verdict;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use self::ahead::Ahead;
pub use self::block_device::BlockDevice;
use self::file::File;
use self::file_name::{file_name, object_of};
use self::handle::Handle;
use self::lock::Lock;
use self::names::Names;
use self::probe::Abilities;
pub use self::probe::SyncCost;
use self::room::Room;
use self::sys::{Call, is_full, preallocate};
use self::verdict::Verdict;
use crate::health::Health;
use crate::io_pool::{IoPool, THREADS};
use crate::{
    Error, ErrorKind, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending, ReadTime,
    Result, Space, Volume, unsupported, whole,
};

const OBJECTS: &str = "objects";
/// Only the user that runs the program may read and write the files.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The same, of the file of a log that is longer than its object: see [`ahead`].
const AHEAD_MODE: Mode = FILE_MODE.union(Mode::XUSR);
const FILE_FLAGS: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const DIR_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// How a directory is used.
#[derive(Clone)]
pub struct DirOptions {
    /// Make the directory if it is missing. Off by default: a new directory would hide that the device is not mounted.
    pub create: bool,
    /// Use `O_DIRECT` where the file system takes it. On by default; without it the page cache serves reads that a
    /// contract would count.
    pub direct: bool,
    /// The threads for calls from threads that may not block, or for all calls: see [`IoPool::apart`]. By default
    /// [`THREADS`] of its own: a volume that hangs keeps its threads. Their number bounds the calls in flight; with too
    /// few, a device that could serve more sits idle.
    pub io: IoPool,
}

impl Default for DirOptions {
    fn default() -> Self {
        Self { create: false, direct: true, io: IoPool::new(THREADS) }
    }
}

/// A directory as a volume; see the module for its layout. One `Dir` in one process holds it at a time, until the last
/// handle and the last object are dropped.
pub struct Dir(Arc<Shared>);

impl Dir {
    /// Opens the directory at `path`. It blocks for some I/O.
    ///
    /// # Errors
    /// `Unavailable`: there is no such directory, mount the device or create it; `Fenced`: another
    /// process has it open, the message says which; `OutOfSpace`.
    pub fn open(path: impl Into<PathBuf>, options: DirOptions) -> Result<Self> {
        let path = path.into();
        let failed = |doing: &str, errno| sys::error(&path, doing, errno);
        if options.create {
            std::fs::create_dir_all(&path)
                .map_err(|e| Error::from_io(format!("volume {}: create it", path.display()), e))?;
        }
        let root = fs::open(&path, DIR_FLAGS, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => Error::new(
                ErrorKind::Unavailable,
                format!("volume {}: no such directory: mount or create it", path.display()),
            ),
            _ => failed("open the directory", errno),
        })?;
        let lock = Lock::take(&root, &path)?;
        match fs::mkdirat(&root, OBJECTS, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("create the directory of objects", errno)),
        }
        let objects = fs::openat(&root, OBJECTS, DIR_FLAGS, Mode::empty())
            .map_err(|errno| failed("open the directory of objects", errno))?;
        // Names and removals that an earlier process left are durable from here on.
        fs::fsync(&objects).map_err(|errno| failed("sync the directory of objects", errno))?;
        let direct = options.direct && probe::probe_direct(&root, &path)?;
        if !direct {
            match probe::try_out(&root, false) {
                // The objects of a full volume can still be read and removed.
                Ok(()) => {}
                Err(errno) if is_full(errno) => {}
                Err(errno) => return Err(failed("try it out", errno)),
            }
        }
        if options.direct && !direct {
            tracing::warn!(
                volume = %path.display(),
                "the file system refuses O_DIRECT: the page cache serves reads that the contract counts"
            );
        }
        let abilities = probe::abilities(&root);
        let stat = fs::fstat(&objects)
            .map_err(|errno| failed("look at the directory of objects", errno))?;
        Ok(Self(Arc::new(Shared {
            identity: (stat.st_dev, stat.st_ino),
            takes_rings: true.into(),
            io: options.io,
            opened: Mutex::default(),
            released: Condvar::new(),
            probing: Mutex::default(),
            verdict: Verdict::default(),
            names: Names::default(),
            health: Health::default(),
            room: Room::default(),
            _lock: lock,
            path,
            root,
            objects,
            direct,
            abilities,
        })))
    }

    /// Whether objects other than logs bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    /// What a synced append costs: measured with some of a file of their own, and by the block device's counters. Nothing
    /// is known where the appends fail, as on a full volume. It blocks for some I/O.
    #[must_use]
    pub fn sync_cost(&self) -> SyncCost {
        let device = BlockDevice::of(&self.0.path);
        probe::sync_cost(&self.0.root, device.as_ref()).unwrap_or_default()
    }

    /// Writes, syncs and reads back a file. If that works, a volume whose sync had failed takes new
    /// objects again; the object it failed for stays poisoned.
    ///
    /// # Errors
    /// The error of the attempt; the volume stays as it was.
    pub fn probe(&self) -> Pending<'_, ()> {
        self.run(|volume| {
            volume.reach()?;
            volume.probe().map_err(|errno| volume.error("try it out", errno))
        })
    }

    fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(Arc<Shared>) -> Result<T> + Send + 'static,
    ) -> Pending<'_, T> {
        let volume = Arc::clone(&self.0);
        Box::pin(self.0.io.run(move || call(volume)))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Dir {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, len, is_log) = (name.clone(), intent.len, intent.is_log());
        self.run(move |volume| volume.create(name, len, is_log))
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        self.run(move |volume| volume.open(name))
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        self.run(move |volume| volume.remove(&name))
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        self.run(|volume| volume.list())
    }

    fn space(&self) -> Pending<'_, Space> {
        self.run(|volume| volume.space())
    }

    fn expected_read(&self) -> ReadTime {
        ReadTime::default()
    }

    fn users_load(&self) -> f64 {
        0.0
    }

    fn limits(&self) -> Limits {
        Limits { holes: self.0.abilities.holes, ..Limits::PAGES }
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        whole::write(self, name, intent, data, io)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        unsupported::call(format_args!("rename {from} to {to}"))
    }

    fn link(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        unsupported::call(format_args!("link {from} to {to}"))
    }
}

/// State that the handle, its objects and the calls in flight share.
struct Shared {
    path: PathBuf,
    root: OwnedFd,
    objects: OwnedFd,
    /// Device and inode of `objects`: what `path` must still lead to.
    identity: (u64, u64),
    direct: bool,
    abilities: Abilities,
    /// Whether the kernel has rings, and the file system can say that a transfer would wait.
    takes_rings: AtomicBool,
    io: IoPool,
    opened: Mutex<Opened>,
    /// A name was released: see [`Claim`].
    released: Condvar,
    /// One probe at a time: they share a file.
    probing: Mutex<()>,
    /// Whether the volume works.
    verdict: Verdict,
    names: Names,
    health: Health,
    room: Room,
    _lock: Lock,
}

/// Objects with handles, so that all handles of one agree on its length.
#[derive(Default)]
struct Opened {
    files: HashMap<Name, Weak<File>>,
    /// Names that a call creates, opens or removes now.
    claimed: HashSet<Name>,
    /// Prune dropped files when there are this many.
    prune_at: usize,
}

impl Shared {
    fn create(
        self: Arc<Self>,
        name: Name,
        len: Option<u64>,
        is_log: bool,
    ) -> Result<Arc<dyn Object>> {
        self.reach()?;
        if self.health.is_poisoned()
            && let Err(errno) = self.probe()
        {
            let message = format!(
                "volume {}: create {name}: a sync failed earlier, and the volume still fails",
                self.path.display()
            );
            return Err(Error::with_source(ErrorKind::Poisoned, message, errno.into()));
        }
        let _claim = self.claim(&name);
        let failed = |doing, errno| self.object_error(format_args!("{doing} {name}"), errno);
        // An object of the other kind would have another file.
        match fs::statat(&self.objects, file_name(&name, !is_log), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(failed("create", Errno::EXIST)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("create", errno)),
        }
        let fd = self
            .open_file(&name, is_log, OFlags::CREATE | OFlags::EXCL)
            .map_err(|errno| failed("create", errno))?;
        if let Err(errno) = preallocate(&fd, len) {
            // No handle to the file exists yet; it stays behind only if the device fails again.
            let _ = fs::unlinkat(&self.objects, file_name(&name, is_log), AtFlags::empty());
            return Err(failed("preallocate", errno));
        }
        let born = self.names.created();
        Ok(self.enter(File::new(Arc::clone(&self), name.clone(), is_log, fd, 0, born)))
    }

    /// See [`Dir::probe`].
    fn probe(&self) -> rustix::io::Result<()> {
        let _alone = self.probing.lock();
        probe::try_out(&self.root, self.direct)?;
        self.health.probed();
        Ok(())
    }

    fn open(self: Arc<Self>, name: Name) -> Result<Arc<dyn Object>> {
        self.reach()?;
        let _claim = self.claim(&name);
        let found = self.opened.lock().files.get(&name).and_then(Weak::upgrade);
        if let Some(file) = found {
            return Ok(Arc::new(Handle(file)));
        }
        let failed = |errno| self.object_error(format_args!("open {name}"), errno);
        let (fd, is_log) = self.find_file(&name).map_err(failed)?;
        let stat = fs::fstat(&fd).map_err(failed)?;
        let mut len = sys::len(stat.st_size);
        if is_log && is_ahead(&stat) {
            len = len_within(&fd, len).map_err(failed)?;
            let cut = sys::before(Call::SetLen).and_then(|()| fs::ftruncate(&fd, len));
            cut.and_then(|()| fs::fchmod(&fd, FILE_MODE)).map_err(failed)?;
        }
        // This process may have made the object and dropped it unsynced.
        let born = self.names.latest();
        Ok(self.enter(File::new(Arc::clone(&self), name.clone(), is_log, fd, len, born)))
    }

    fn remove(&self, name: &Name) -> Result<()> {
        self.reach()?;
        let _claim = self.claim(name);
        either_kind(name, |is_log| {
            fs::unlinkat(&self.objects, file_name(name, is_log), AtFlags::empty())
        })
        .map_err(|errno| self.object_error(format_args!("remove {name}"), errno))?;
        self.opened.lock().files.remove(name);
        self.health.forget(name);
        self.names.removed();
        Ok(())
    }

    /// Waits until no other call creates, opens or removes `name`, and keeps others from doing so.
    fn claim<'a>(&'a self, name: &'a Name) -> Claim<'a> {
        let mut opened = self.opened.lock();
        while !opened.claimed.insert(name.clone()) {
            self.released.wait(&mut opened);
        }
        Claim { volume: self, name }
    }

    /// Makes a file known to later handles of its object.
    fn enter(&self, file: File) -> Arc<dyn Object> {
        let file = Arc::new(file);
        let mut opened = self.opened.lock();
        if opened.files.len() >= opened.prune_at {
            opened.files.retain(|_, file| file.strong_count() > 0);
            opened.prune_at = 2 * opened.files.len() + 64;
        }
        opened.files.insert(file.name().clone(), Arc::downgrade(&file));
        Arc::new(Handle(file))
    }

    fn list(&self) -> Result<Vec<Listed>> {
        self.reach()?;
        let failed = |errno| self.error("list the objects", errno);
        let mut listed = Vec::new();
        for entry in fs::Dir::read_from(&self.objects).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let Some((name, is_log)) = object_of(entry.file_name()) else {
                tracing::warn!(
                    volume = %self.path.display(),
                    file = ?entry.file_name(),
                    "not an object: ignored"
                );
                continue;
            };
            match fs::statat(&self.objects, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => {
                    let len = match is_log && is_ahead(&stat) {
                        true => self.len_ahead(&name),
                        false => Ok(sys::len(stat.st_size)),
                    };
                    match len {
                        Ok(len) => listed.push(Listed { name, len }),
                        Err(Errno::NOENT) => {}
                        Err(errno) => return Err(failed(errno)),
                    }
                }
                // Not a file, or removed since it was read.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(listed)
    }

    /// The length of a log whose file is longer.
    fn len_ahead(&self, name: &Name) -> rustix::io::Result<u64> {
        let opened = self.opened.lock().files.get(name).and_then(Weak::upgrade);
        if let Some(file) = opened {
            return Ok(file.len());
        }
        let (fd, _) = self.find_file(name)?;
        len_within(&fd, sys::len(fs::fstat(&fd)?.st_size))
    }

    fn space(&self) -> Result<Space> {
        self.reach()?;
        let stat =
            fs::fstatvfs(&self.objects).map_err(|errno| self.error("ask for room", errno))?;
        Ok(self.room.space(&stat, Instant::now(), |len| {
            let _alone = self.probing.lock();
            !probe::set_aside(&self.root, len).is_err_and(is_full)
        }))
    }

    /// Makes sure that the path still leads to this directory. Otherwise the program would go on in a directory that no
    /// path leads to, on a device that is about to be detached.
    fn reach(&self) -> Result<()> {
        let objects = self.path.join(OBJECTS);
        match fs::stat(&objects) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == self.identity => Ok(()),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "volume {}: its directory {OBJECTS} is gone: mount the device again, or put the \
                     directory back, then try again",
                    self.path.display()
                ),
            )),
            Err(errno) => Err(self.error("look at the directory of objects", errno)),
        }
    }

    fn open_file(&self, name: &Name, is_log: bool, how: OFlags) -> rustix::io::Result<OwnedFd> {
        sys::before(Call::Open)?;
        let direct = if self.is_direct(is_log) { OFlags::DIRECT } else { OFlags::empty() };
        fs::openat(&self.objects, file_name(name, is_log), FILE_FLAGS | direct | how, FILE_MODE)
    }

    /// Opens the file of an object; says whether it is a log.
    fn find_file(&self, name: &Name) -> rustix::io::Result<(OwnedFd, bool)> {
        either_kind(name, |is_log| Ok((self.open_file(name, is_log, OFlags::empty())?, is_log)))
    }

    /// Whether the object's file is open with `O_DIRECT`.
    const fn is_direct(&self, is_log: bool) -> bool {
        self.direct && !is_log
    }

    /// The error of a call on the whole volume.
    fn error(&self, doing: impl fmt::Display, errno: Errno) -> Error {
        if is_full(errno)
            && let Ok(stat) = fs::fstatvfs(&self.objects)
        {
            self.room.note(&stat, Instant::now());
        }
        sys::error(&self.path, doing, errno)
    }

    /// The error of a call on one object. Where the device failed at some bytes, a probe tells whether the volume works
    /// otherwise.
    fn object_error(&self, doing: impl fmt::Display, errno: Errno) -> Error {
        if sys::is_of_bytes(errno) && self.verdict.ask(Instant::now, || self.works()) {
            return sys::damaged(&self.path, doing, errno);
        }
        self.error(doing, errno)
    }

    /// Whether the volume reads and writes other bytes.
    fn works(&self) -> bool {
        match self.probe() {
            Ok(()) => true,
            Err(errno) if is_full(errno) => self.direct && probe::try_reading(&self.root).is_ok(),
            Err(_) => false,
        }
    }
}

/// Whether the file of a log may be longer than its object.
const fn is_ahead(stat: &fs::Stat) -> bool {
    Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR)
}

/// The length of the object in such a file, which ends at `end`.
fn len_within(fd: &OwnedFd, end: u64) -> rustix::io::Result<u64> {
    let range = Ahead::to_read(end);
    let mut bytes = IoBufMut::zeroed((range.end - range.start) as usize);
    let read = sys::read_at(fd, &mut bytes, range.start)?;
    Ok(Ahead::len_in(&bytes[..read], range.start).unwrap_or(end))
}

/// The right to create, open or remove one name. The system calls run without a lock, so a slow one holds up this name
/// only.
struct Claim<'a> {
    volume: &'a Shared,
    name: &'a Name,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.volume.opened.lock().claimed.remove(self.name);
        self.volume.released.notify_all();
    }
}

/// Does `work` on the file of an object of unknown kind: first on that of the kind that its name suggests.
fn either_kind<T>(
    name: &Name,
    work: impl Fn(bool) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match work(name.ends_as_log()) {
        Err(Errno::NOENT) => work(!name.ends_as_log()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
