//! A volume in memory, for tests, the simulator and crash images.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::{
    Check, Error, ErrorKind, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object,
    Pending, ReadTime, Result, Space, Volume, Zeros, extent, ready, unsupported, whole,
};

/// Every object of a volume by name, as plain bytes.
pub type Image = BTreeMap<Name, Vec<u8>>;

/// The default capacity, in bytes: 1 TiB.
const CAPACITY: u64 = 1 << 40;

/// A volume in memory. Clones share one volume, which lives as long as any of them or of its objects.
///
/// A sync does nothing: [`crate::layer::crash::Crash`] models what a machine loses.
#[derive(Clone)]
pub struct Mem {
    label: Arc<str>,
    objects: Arc<Mutex<BTreeMap<Name, Arc<Bytes>>>>,
    room: Arc<Room>,
}

impl Mem {
    /// An empty volume of 1 TiB; `label` names it in errors.
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self::with_capacity(label, CAPACITY)
    }

    /// An empty volume with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(label: &str, capacity: u64) -> Self {
        let (used, lacks_files) = (AtomicU64::new(0), AtomicBool::new(false));
        let room = Room { capacity, used, lacks_files };
        Self { label: label.into(), objects: Arc::default(), room: Arc::new(room) }
    }

    /// A volume of 1 TiB that holds `image`. Objects with names that end in `.log` are logs.
    #[must_use]
    pub fn from_image(label: &str, image: Image) -> Self {
        let born = |name: &Name| Born { set_aside: 0, is_log: name.ends_as_log() };
        let born = image.keys().map(|name| (name.clone(), born(name))).collect();
        Self::recovered(label, CAPACITY, image, &born)
    }

    /// A volume with room for `capacity` bytes that holds `image`, and what was said at the creation of its objects. The
    /// image may exceed the capacity: then the volume is full.
    pub(crate) fn recovered(
        label: &str,
        capacity: u64,
        image: Image,
        born: &BTreeMap<Name, Born>,
    ) -> Self {
        let mem = Self::with_capacity(label, capacity);
        for (name, bytes) in image {
            let born = born.get(&name).copied().unwrap_or_default();
            let taken = born.set_aside.max(len(&bytes));
            let force = |room: &Room| {
                room.force(taken);
                true
            };
            let object = mem.enter(&name, born, force).expect("the names of an image differ");
            *object.bytes.write() = Arc::new(bytes);
        }
        mem
    }

    /// Its capacity in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.room.capacity
    }

    /// What was said at the creation of the objects that have a name, and holds still.
    pub(crate) fn born(&self) -> BTreeMap<Name, Born> {
        let objects = self.objects.lock();
        let of = |object: &Bytes| Born {
            set_aside: object.set_aside.load(Ordering::Relaxed),
            is_log: object.is_log,
        };
        objects.iter().map(|(name, object)| (name.clone(), of(object))).collect()
    }

    /// A copy of every object that has a name.
    #[must_use]
    pub fn image(&self) -> Image {
        let objects = self.objects.lock();
        objects.iter().map(|(name, object)| (name.clone(), object.bytes.read().to_vec())).collect()
    }

    /// A volume of 1 TiB with the same objects. Both share the bytes of an object until one of them writes to it, so a
    /// fork of a large volume is fast and takes little memory.
    #[must_use]
    pub fn fork(&self, label: &str) -> Self {
        let fork = Self::new(label);
        for (name, object) in self.objects.lock().iter() {
            let bytes = Arc::clone(&object.bytes.read());
            let born = Born { set_aside: 0, is_log: object.is_log };
            let made = fork.enter(name, born, |room| room.take(len(&bytes)));
            *made
                .expect("the names of a volume differ, and it is smaller than 1 TiB")
                .bytes
                .write() = bytes;
        }
        fork
    }

    /// Changes the byte at `offset` of an object without a write.
    ///
    /// # Panics
    /// When there is no such object or byte: the test that damages it is wrong.
    pub fn damage(&self, name: &Name, offset: u64, change: impl FnOnce(&mut u8)) {
        let object = self.open_now(name).expect("an object to damage");
        change(&mut Arc::make_mut(&mut object.bytes.write())[index(offset)]);
    }

    /// Reports its space as a file system that lacks files (inodes). It takes further objects all the same, as a file
    /// system does that has a few left.
    pub fn set_lacks_files(&self, lacks_files: bool) {
        self.room.lacks_files.store(lacks_files, Ordering::Relaxed);
    }

    /// The volume's label in errors.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Makes an object, and sets its room aside.
    pub(crate) fn create_now(&self, name: &Name, born: Born) -> Result<Arc<Bytes>> {
        self.enter(name, born, |room| room.take(born.set_aside))
    }

    /// Makes an object, unless one of that name exists or `take` finds no room for it.
    fn enter(
        &self,
        name: &Name,
        born: Born,
        take: impl FnOnce(&Room) -> bool,
    ) -> Result<Arc<Bytes>> {
        let mut objects = self.objects.lock();
        if objects.contains_key(name) {
            return Err(self.error(
                ErrorKind::AlreadyExists,
                name,
                "an object of this name exists already",
            ));
        }
        if !take(&self.room) {
            let what = "volume full: no room to set aside";
            return Err(self.error(ErrorKind::OutOfSpace, name, what));
        }
        let object = Arc::new(Bytes {
            what: format!("{}: {name}", self.label),
            room: Arc::clone(&self.room),
            set_aside: born.set_aside.into(),
            is_log: born.is_log,
            bytes: RwLock::default(),
        });
        objects.insert(name.clone(), Arc::clone(&object));
        Ok(object)
    }

    pub(crate) fn open_now(&self, name: &Name) -> Result<Arc<Bytes>> {
        self.objects.lock().get(name).cloned().ok_or_else(|| self.not_found(name))
    }

    pub(crate) fn remove_now(&self, name: &Name) -> Result<()> {
        match self.objects.lock().remove(name) {
            Some(_) => Ok(()),
            None => Err(self.not_found(name)),
        }
    }

    pub(crate) fn list_now(&self) -> Vec<Listed> {
        let objects = self.objects.lock();
        let listed =
            |(name, object): (&Name, &Arc<Bytes>)| Listed { name: name.clone(), len: object.len() };
        objects.iter().map(listed).collect()
    }

    pub(crate) fn space_now(&self) -> Space {
        let total = self.room.capacity;
        let lacks_files = self.room.lacks_files.load(Ordering::Relaxed);
        let free = total.saturating_sub(self.room.used.load(Ordering::Relaxed));
        Space { total, free: if lacks_files { 0 } else { free }, lacks_files }
    }

    fn not_found(&self, name: &Name) -> Error {
        self.error(ErrorKind::NotFound, name, "no such object")
    }

    fn error(&self, kind: ErrorKind, name: &Name, what: &str) -> Error {
        Error::new(kind, format!("{}: {name}: {what}", self.label))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Mem {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let created = self.create_now(name, Born::of(intent));
        ready(created.map(|object| object as Arc<dyn Object>))
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        ready(self.open_now(name).map(|object| object as Arc<dyn Object>))
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        ready(self.remove_now(name))
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        ready(Ok(self.list_now()))
    }

    fn space(&self) -> Pending<'_, Space> {
        ready(Ok(self.space_now()))
    }

    fn expected_read(&self) -> ReadTime {
        ReadTime::default()
    }

    fn users_load(&self) -> f64 {
        0.0
    }

    fn limits(&self) -> Limits {
        Limits::PAGES
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

/// What was said of an object at its creation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Born {
    /// Bytes of room set aside for it.
    pub(crate) set_aside: u64,
    pub(crate) is_log: bool,
}

impl Born {
    pub(crate) fn of(intent: &Intent) -> Self {
        Self { set_aside: intent.len.unwrap_or(0), is_log: intent.is_log() }
    }
}

/// The bytes all objects of a volume share.
struct Room {
    capacity: u64,
    used: AtomicU64,
    lacks_files: AtomicBool,
}

impl Room {
    /// Takes `bytes` more, or nothing if they do not fit.
    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.capacity);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes `bytes` more, whether they fit or not.
    fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One object. Like a file it takes room while it has a name or is open: for its length or for the room set aside,
/// whichever is more.
pub(crate) struct Bytes {
    /// Volume and name, for errors.
    what: String,
    room: Arc<Room>,
    /// A change of the length resets it to 0, as in a file system.
    set_aside: AtomicU64,
    is_log: bool,
    /// Shared with forks until one of them writes.
    bytes: RwLock<Arc<Vec<u8>>>,
}

impl Bytes {
    pub(crate) fn read_at(&self, offset: u64, mut into: IoBufMut) -> IoBufMut {
        let bytes = self.bytes.read();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = into.len().min(bytes.len() - start);
        into.resize(count);
        into.copy_from_slice(&bytes[start..start + count]);
        into
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut bytes = self.bytes.write();
        let end = offset.checked_add(data.len() as u64).ok_or_else(|| {
            let message = format!("{}: a write ends beyond 2^64 bytes", self.what);
            Error::new(ErrorKind::Invalid, message)
        })?;
        if !data.is_empty() {
            let grown = end.max(len(&bytes));
            let set_aside = self.set_aside.load(Ordering::Relaxed);
            self.resize(&mut bytes, grown, set_aside)?;
            Arc::make_mut(&mut bytes)[index(offset)..index(end)].copy_from_slice(data);
        }
        Ok(())
    }

    /// Makes bytes of a range zeros, as far as the object has them; returns that part of the range.
    pub(crate) fn zero(&self, offset: u64, len: u64) -> Range<u64> {
        let mut bytes = self.bytes.write();
        let range = extent::within(offset, len, bytes.len() as u64);
        if !range.is_empty() {
            Arc::make_mut(&mut bytes)[index(range.start)..index(range.end)].fill(0);
        }
        range
    }

    pub(crate) fn len(&self) -> u64 {
        len(&self.bytes.read())
    }

    pub(crate) const fn is_log(&self) -> bool {
        self.is_log
    }

    pub(crate) fn set_len(&self, len: u64) -> Result<()> {
        self.resize(&mut self.bytes.write(), len, 0)
    }

    /// Changes the length; keeps room for `set_aside` bytes.
    fn resize(&self, bytes: &mut Arc<Vec<u8>>, len: u64, set_aside: u64) -> Result<()> {
        let old = bytes.len() as u64;
        let taken = old.max(self.set_aside.load(Ordering::Relaxed));
        let wanted = len.max(set_aside);
        if wanted > taken && !self.room.take(wanted - taken) {
            let message = format!(
                "{}: volume full: {len} bytes wanted where there are {old}, {} in all",
                self.what, self.room.capacity
            );
            return Err(Error::new(ErrorKind::OutOfSpace, message));
        }
        if len != old {
            Arc::make_mut(bytes).resize(index(len), 0);
        }
        self.set_aside.store(set_aside, Ordering::Relaxed);
        self.room.give_back(taken.saturating_sub(wanted));
        Ok(())
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.room.give_back(len(self.bytes.get_mut()).max(*self.set_aside.get_mut()));
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for Bytes {
    fn read_at(&self, offset: u64, into: IoBufMut, _io: Io) -> Pending<'_, IoBufMut> {
        ready(Ok(self.read_at(offset, into)))
    }

    fn write_at(&self, offset: u64, data: IoBuf, _io: Io) -> Pending<'_, ()> {
        ready(self.write_at(offset, &data))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, _io: Io) -> Pending<'_, ()> {
        ready(self.write_at(offset, &data))
    }

    fn zero(&self, offset: u64, len: u64, _room: Zeros, _io: Io) -> Pending<'_, ()> {
        self.zero(offset, len);
        ready(Ok(()))
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        extent::all_data(self, offset, len)
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        crate::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        crate::blocking::write_at(self, offset, data, io)
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn is_log(&self) -> bool {
        self.is_log
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        ready(self.set_len(len))
    }

    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        crate::again::read(self, offset, into, io, check)
    }

    fn align(&self, _offset: u64, _len: u64, _io: Io) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn expected_read(&self, _offset: u64, _len: u64) -> ReadTime {
        ReadTime::default()
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        crate::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync(io)
    }

    fn sync(&self, _io: Io) -> Pending<'_, ()> {
        ready(Ok(()))
    }
}

fn len(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// A position in memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("offsets within memory fit an address")
}

#[cfg(test)]
mod tests {
    use policy::purpose::{Origin, Step};

    use super::*;
    use crate::conformance::{self, Blocking};
    use crate::task::block_on;

    const IO: Io = Io::new(Origin::UserWrite, Step::Data);

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn data(len: usize) -> IoBuf {
        IoBufMut::zeroed(len).freeze()
    }

    #[test]
    fn conforms() {
        conformance::run(|| {
            let mem = Mem::new("mem");
            Box::new(Blocking::reopening(move || Arc::new(mem.clone())))
        });
    }

    #[test]
    fn a_full_volume_says_so_and_has_room_again_after_a_remove() {
        let mem = Mem::with_capacity("small", 100);
        let a = block_on(mem.create(&name("a"), &Intent::DATA)).unwrap();
        let b = block_on(mem.create(&name("b"), &Intent::DATA)).unwrap();
        block_on(a.write_at(0, data(60), IO)).unwrap();
        let full = block_on(b.write_at(0, data(41), IO)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::OutOfSpace);
        assert_eq!(
            block_on(mem.space()).unwrap(),
            Space { total: 100, free: 40, lacks_files: false }
        );
        assert_eq!(b.len(), 0);
        block_on(mem.remove(&name("a"))).unwrap();
        assert_eq!(block_on(mem.space()).unwrap().free, 40, "an open object keeps its room");
        drop(a);
        block_on(b.write_at(0, data(100), IO)).unwrap();
    }

    #[test]
    fn room_that_was_set_aside_is_there_when_the_rest_is_taken() {
        let mem = Mem::with_capacity("small", 100);
        let reserved = Intent { len: Some(40), ..Intent::DATA };
        let a = block_on(mem.create(&name("a"), &reserved)).unwrap();
        assert_eq!((block_on(mem.space()).unwrap().free, a.len()), (60, 0));
        let full = block_on(mem.create(&name("b"), &Intent { len: Some(61), ..reserved.clone() }));
        assert_eq!(full.err().unwrap().kind(), ErrorKind::OutOfSpace);
        let b = block_on(mem.create(&name("b"), &Intent::DATA)).unwrap();
        block_on(b.write_at(0, data(60), IO)).unwrap();
        block_on(a.write_at(0, data(30), IO)).unwrap();
        assert_eq!(block_on(mem.space()).unwrap().free, 0);
        assert!(block_on(a.write_at(0, data(41), IO)).is_err());
        block_on(a.set_len(30)).unwrap();
        assert_eq!(block_on(mem.space()).unwrap().free, 10, "the unused rest is given back");
        block_on(mem.remove(&name("a"))).unwrap();
        drop(a);
        assert_eq!(block_on(mem.space()).unwrap().free, 40);
    }

    /// Once the answer was "no room", which makes a caller try again with more room.
    #[test]
    fn a_taken_name_is_reported_where_there_is_no_room_either() {
        let mem = Mem::with_capacity("small", 100);
        let reserved = Intent { len: Some(60), ..Intent::DATA };
        block_on(mem.create(&name("a"), &reserved)).unwrap();
        let again = block_on(mem.create(&name("a"), &reserved)).err().unwrap();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        assert_eq!(mem.space_now().free, 40);
    }

    #[test]
    fn a_fork_shares_bytes_until_either_writes() {
        let mem = Mem::new("first");
        let a = block_on(mem.create(&name("a"), &Intent::DATA)).unwrap();
        block_on(a.write_at(0, data(100), IO)).unwrap();
        let fork = mem.fork("second");
        let same = |one: &Mem, other: &Mem| {
            let of = |mem: &Mem| mem.open_now(&name("a")).unwrap().bytes.read().as_ptr();
            of(one) == of(other)
        };
        assert!(same(&mem, &fork));
        block_on(a.write_at(1, IoBuf::from(&b"xy"[..]), IO)).unwrap();
        assert!(!same(&mem, &fork));
        assert_eq!(fork.image()[&name("a")], [0; 100]);
        assert_eq!(mem.image()[&name("a")][..4], *b"\0xy\0");
        block_on(fork.open(&name("a"))).unwrap();
        block_on(fork.remove(&name("a"))).unwrap();
        assert_eq!(fork.space_now().free, fork.space_now().total, "it gives back what it took");
        assert_eq!(mem.space_now().free, CAPACITY - 100);
    }

    #[test]
    fn an_image_is_a_copy_that_opens_again() {
        let mem = Mem::new("first");
        let a = block_on(mem.create(&name("a/b"), &Intent::DATA)).unwrap();
        block_on(a.write_at(1, IoBuf::from(&b"xy"[..]), IO)).unwrap();
        let copy = Mem::from_image("second", mem.image());
        copy.damage(&name("a/b"), 2, |byte| *byte ^= 0x80);
        assert_eq!(mem.image()[&name("a/b")], b"\0xy");
        assert_eq!(copy.image()[&name("a/b")], [0, b'x', b'y' ^ 0x80]);
    }
}
