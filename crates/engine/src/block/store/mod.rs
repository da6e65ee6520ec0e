//! Block devices on a pool.
//!
//! ```text
//!   device ─▶ extents of 64 MiB, an object each, made when they are first written
//!   object:  64 MiB of blocks │ a page of checksums for each region of 4 MiB
//!   marks:   a bit for each region that is being written, durable before its first write
//! ```
//! The pool's manifest is the map: an extent is an object with a name, so a device has no map of its own that could
//! disagree with what is there. Blocks are overwritten in place, so a durable overwrite of a block costs one operation on
//! each copy.
//!
//! Every block of 4 KiB has a checksum, which a read verifies; bytes that do not fit are read from another copy.
//! Checksums are in memory, and written to the end of the extent some time later. Until then the region has its mark. After
//! a crash, the copies of regions with marks are aligned before they are used ([`volume::Object::align`]), and their checksums are made anew; those of
//! all other regions are trusted.
//!
//! The volume must be able to rename, and must keep one order of changes of names: the outermost pool does.

mod damaged;
mod device;
mod extents;
mod failure;
mod figures;
mod limiter;
mod marks;
mod pace;
mod pages;
mod regions;
mod room;
mod scrub;
mod shape;
mod sums;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::contract::Contract;
use policy::purpose::{Io, Origin, Step};
use policy::units::MIB;
use volume::{Clock, ErrorKind, Intent, IoBuf, IoBufMut, Name, Volume};

use self::damaged::Damaged;
use self::device::Device;
use self::extents::Extents;
use self::failure::failed;
use self::figures::Counts;
pub use self::figures::{DeviceFigures, Figures};
use self::marks::Marks;
use self::pages::Pages;
use self::room::Room;
pub use self::scrub::Scrubbed;
use self::shape::{REGION, REGIONS_MAX, Shape};
use self::table::{Row, Table, check_limit, check_name, check_size};
use super::{BlockDevice, BlockDevices, Error, Holder, Lease, Pending, Result};
use crate::health::StoreHealth;

const IO: Io = Io::new(Origin::UserWrite, Step::Log);

/// A store's settings. All of them may change from one opening to the next.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its objects' names begin with; default `block`.
    pub name: String,
    /// The size of the extents of new devices, in bytes: each is an object of the pool. Default 64 MiB; rounded to whole
    /// regions of 4 MiB. Smaller ones give back room of discarded bytes sooner, and cost an object each.
    pub extent_bytes: u64,
    /// Every write is durable when it is acknowledged, and devices say that they have no write cache. Else a write is
    /// durable after a flush, and survives the death of the process at once. Default false.
    pub durable: bool,
    /// The memory of checksums, in bytes; default 64 MiB. Checksums of 1 GiB take 1 MiB; a read or write of blocks whose
    /// checksums are not in memory costs an operation more.
    pub checksum_bytes: u64,
    /// The time after the last write of a region when its checksums may be written, and its mark go; default 10 s. A
    /// shorter one leaves less to compare after a crash, and costs more operations. Of a device that is written all the time, one region is
    /// cleaned for 16 writes at most.
    pub clean_after: Duration,
    /// The number of regions of 4 MiB that may have marks, on each device; default 16,384, that is 64 GiB. Those written the
    /// longest time ago are cleaned when there are more, whatever it costs. A larger number leaves more in doubt after a crash:
    /// with copies, each region is read from all of them before its first use.
    pub dirty_regions_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "block".into(),
            extent_bytes: 64 * MIB,
            durable: false,
            checksum_bytes: 64 * MIB,
            clean_after: Duration::from_secs(10),
            dirty_regions_max: 16_384,
        }
    }
}

/// One device, as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// What its extents take at most, in bytes, each copy counted once: extents have holes.
    pub room: u64,
    /// What its clients get at most; `None` without a limit.
    pub limit: Option<Contract>,
    /// Who may write to it.
    pub lease: Lease,
    /// What its clients had it do.
    pub figures: DeviceFigures,
}

/// A store of block devices. Clones share it.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    devices: Mutex<BTreeMap<String, Arc<Device>>>,
    /// Locked while the table is changed.
    table: AsyncMutex<Kept>,
    incarnations: Arc<AtomicU64>,
}

/// The table of devices.
struct Kept {
    table: Table,
    /// It is on the volume. After a change that failed, a crash may leave the changed one.
    is_sure: bool,
}

/// What all devices use.
struct Shared {
    volume: Arc<dyn Volume>,
    clock: Clock,
    options: Options,
    pages: Pages,
    room: Room,
    damaged: Damaged,
    counts: Counts,
}

impl Store {
    /// Opens the store, or makes one without devices.
    ///
    /// # Errors
    /// As the kind says. `Corrupt`: the table of devices.
    pub async fn open(volume: Arc<dyn Volume>, options: Options, clock: Clock) -> Result<Self> {
        let pages = Pages::new(options.checksum_bytes);
        let room = Room::new(Arc::clone(&volume));
        let shared = Arc::new(Shared {
            volume,
            clock,
            options,
            pages,
            room,
            damaged: Damaged::default(),
            counts: Counts::default(),
        });
        let table = shared.read_table().await?;
        let incarnations = Arc::new(AtomicU64::new(0));
        let mut found = shared.objects_by_device().await?;
        let mut devices = BTreeMap::new();
        for (name, row) in &table.devices {
            let found = found.remove(&row.id).unwrap_or_default();
            let device = shared.open_device(name, row, found, &incarnations).await?;
            devices.insert(name.clone(), Arc::new(device));
        }
        // Those of devices whose deletion a crash cut off.
        for name in found.into_values().flatten().map(|(name, _)| name) {
            shared.remove(&name).await?;
        }
        let devices = Mutex::new(devices);
        let table = AsyncMutex::new(Kept { table, is_sure: true });
        Ok(Self(Arc::new(Inner { shared, devices, table, incarnations })))
    }

    /// Makes a device of zeros without a limit: [`Store::create_limited`].
    ///
    /// # Errors
    /// As [`Store::create_limited`].
    pub async fn create(&self, name: &str, size: u64) -> Result<()> {
        self.create_limited(name, size, None).await
    }

    /// Makes a device of zeros, which takes no room yet. Its clients get at most `limit`, as [`Store::set_limit`] says.
    /// Durable on return. `size` is in bytes, whole blocks of 4096.
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid`: the name, the size or the limit. Else as the kind says.
    pub async fn create_limited(
        &self,
        name: &str,
        size: u64,
        limit: Option<Contract>,
    ) -> Result<()> {
        check_name(name)?;
        check_size(size)?;
        let limit = check_limit(limit)?;
        let mut kept = self.0.table.lock().await;
        if kept.table.devices.contains_key(name) {
            return Err(Error::AlreadyExists(format!("device {name}")));
        }
        let (id, shape) = (kept.table.next, self.0.shared.shape());
        let lease = table::first_lease(id);
        let row = Row { id, size, shape, limit, lease };
        // If this fails, a table that names the number may be found after a crash, so no other device gets it.
        kept.table.next += 1;
        let mut next = kept.table.clone();
        next.devices.insert(name.to_owned(), row.clone());
        let shared = &self.0.shared;
        shared.create_marks(&row).await?;
        self.keep(&mut kept, next).await?;
        let device = shared.open_device(name, &row, Vec::new(), &self.0.incarnations).await?;
        self.0.devices.lock().insert(name.to_owned(), Arc::new(device));
        Ok(())
    }

    /// Changes the size of a device, in bytes. Bytes that a smaller one has not are given up, only if `shrink` says so.
    /// Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `Invalid`: the size, or it is smaller. Else as the kind says.
    pub async fn resize(&self, name: &str, size: u64, shrink: bool) -> Result<()> {
        check_size(size)?;
        let mut kept = self.0.table.lock().await;
        let device = self.device(name)?;
        let before = device.size();
        if size < before && !shrink {
            return Err(Error::Invalid(format!(
                "device {name} has {before} bytes: to make it smaller gives up those behind, and has to be asked for"
            )));
        }
        let mut next = kept.table.clone();
        if let Some(row) = next.devices.get_mut(name) {
            row.size = size;
        }
        if size < before {
            // From here on, calls beyond the new end fail.
            device.size.store(size, Ordering::Release);
            let mut cut = device.cut(size..before).await;
            if cut.is_ok() {
                cut = self.keep(&mut kept, next).await;
            }
            if cut.is_err() {
                device.size.store(before, Ordering::Release);
            }
            cut
        } else {
            let grown = device.marks.extend(shape::regions(size)).await;
            grown.map_err(|e| failed(format_args!("device {name}"), e))?;
            self.keep(&mut kept, next).await?;
            device.size.store(size, Ordering::Release);
            Ok(())
        }
    }

    /// Sets what the clients of a device get at most, from now on; `None` is no limit. Durable on return. It does not ask
    /// whether the volumes can give it.
    ///
    /// # Errors
    /// `NotFound`; `Invalid`: the limit. Else as the kind says: the old limit stays.
    pub async fn set_limit(&self, name: &str, limit: Option<Contract>) -> Result<()> {
        let limit = check_limit(limit)?;
        let mut kept = self.0.table.lock().await;
        let device = self.device(name)?;
        let mut next = kept.table.clone();
        if let Some(row) = next.devices.get_mut(name) {
            row.limit.clone_from(&limit);
        }
        self.keep(&mut kept, next).await?;
        device.limiter.set(limit);
        Ok(())
    }

    /// Changes the lease of a device to what `change` makes of it, if that is another one. Durable on return.
    async fn change_lease(
        &self,
        name: &str,
        change: impl FnOnce(&Lease) -> Result<Option<Lease>>,
    ) -> Result<u64> {
        let mut kept = self.0.table.lock().await;
        let device = self.device(name)?;
        let before = device.lease.lock().clone();
        let Some(lease) = change(&before)? else { return Ok(before.token) };
        let mut next = kept.table.clone();
        if let Some(row) = next.devices.get_mut(name) {
            row.lease = lease.clone();
        }
        self.keep(&mut kept, next).await?;
        let token = lease.token;
        *device.lease.lock() = lease;
        Ok(token)
    }

    /// Deletes a device and its bytes. Durable on return: clients that have it open get `Closed`.
    ///
    /// # Errors
    /// `NotFound`. Else as the kind says: the device may be gone already, and its room is given back at the next opening.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let mut kept = self.0.table.lock().await;
        let device = self.device(name)?;
        let mut next = kept.table.clone();
        next.devices.remove(name);
        self.keep(&mut kept, next).await?;
        self.0.devices.lock().remove(name);
        device.end();
        device.remove(&device.extents.present(0..u64::MAX)).await?;
        self.0.shared.remove(&self.0.shared.marks_name(device.id)?).await
    }

    /// Every device, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Info> {
        let devices = self.0.devices.lock();
        let info = |(name, device): (&String, &Arc<Device>)| Info {
            name: name.clone(),
            size: device.size(),
            room: device.extents.len() as u64 * device.shape.extent(),
            limit: device.limiter.contract(),
            lease: device.lease.lock().clone(),
            figures: device.counts.figures(),
        };
        devices.iter().map(info).collect()
    }

    /// The device that an object of this name belongs to.
    #[must_use]
    pub fn device_of(&self, object: &Name) -> Option<String> {
        let rest = object.as_str().strip_prefix(&*self.0.shared.options.name)?.strip_prefix('/')?;
        let id = table::Id::from_str_radix(rest.split_once('/')?.0, 16).ok()?;
        let devices = self.0.devices.lock();
        devices.iter().find(|(_, device)| device.id == id).map(|(name, _)| name.clone())
    }

    /// What it did since the opening, and holds now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let devices = self.all();
        Figures {
            dirty_regions: devices.iter().map(|device| device.regions.len() as u64).sum(),
            checksum_bytes: self.0.shared.pages.bytes(),
            devices: devices.len() as u64,
            ..self.0.shared.counts.figures()
        }
    }

    /// Its condition now. A pool tells of its own.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let Shared { room, damaged, .. } = &*self.0.shared;
        StoreHealth {
            writes_refused: room.refused(),
            damaged: damaged.count() as u64,
            ..StoreHealth::default()
        }
    }

    /// Cleans what was not written lately. The store's owner calls it every second or so.
    ///
    /// # Errors
    /// As the kind says: it is tried again at the next call.
    pub async fn tend(&self) -> Result<()> {
        // It shows in the health as long as there is none.
        if let Err(error) = self.0.shared.room.look_again().await {
            tracing::debug!("{error}");
        }
        let mut tended = self.make_sure().await;
        for device in self.all() {
            tended = tended.and(device.clean_cold().await);
        }
        tended
    }

    /// Makes everything durable, and leaves nothing in doubt. Calls on its devices get `Closed` from now on.
    ///
    /// # Errors
    /// As the kind says: acknowledged changes are as durable as they were.
    pub async fn close(&self) -> Result<()> {
        let mut closed = self.make_sure().await;
        for device in self.all() {
            device.end();
            closed = closed.and(device.make_durable().await);
            closed = closed.and(device.clean_all().await);
        }
        closed
    }

    /// Puts another table in place of the one that is kept. Durable on return.
    async fn keep(&self, kept: &mut Kept, next: Table) -> Result<()> {
        kept.is_sure = false;
        self.0.shared.write_table(&next).await?;
        *kept = Kept { table: next, is_sure: true };
        Ok(())
    }

    /// Writes the table anew after a change of it failed: else a crash could bring that change back, after clients wrote to
    /// what it takes away.
    async fn make_sure(&self) -> Result<()> {
        let mut kept = self.0.table.lock().await;
        if kept.is_sure {
            return Ok(());
        }
        let table = kept.table.clone();
        self.keep(&mut kept, table).await
    }

    fn all(&self) -> Vec<Arc<Device>> {
        self.0.devices.lock().values().cloned().collect()
    }

    fn device(&self, name: &str) -> Result<Arc<Device>> {
        let devices = self.0.devices.lock();
        devices
            .get(name)
            .cloned()
            .ok_or_else(|| Error::NotFound(format!("there is no device {name}")))
    }
}

impl Shared {
    /// The shape of new devices.
    fn shape(&self) -> Shape {
        Shape { regions: self.options.extent_bytes.div_ceil(REGION).clamp(1, REGIONS_MAX) }
    }

    /// The objects of each device by its number, but the table's.
    async fn objects_by_device(&self) -> Result<BTreeMap<table::Id, Vec<(Name, u64)>>> {
        let listed = self.volume.list().await.map_err(|e| self.failed(e))?;
        let prefix = format!("{}/", self.options.name);
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for object in listed {
            let rest = object.name.as_str().strip_prefix(&prefix);
            if let Some((id, _)) = rest.and_then(|rest| rest.split_once('/'))
                && let Ok(id) = table::Id::from_str_radix(id, 16)
            {
                found.entry(id).or_default().push((object.name, object.len));
            }
        }
        Ok(found)
    }

    async fn read_table(&self) -> Result<Table> {
        let object = match self.volume.open(&self.table_name()?).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Table::default()),
            opened => opened.map_err(|e| self.failed(e))?,
        };
        let into = || IoBufMut::zeroed(object.len() as usize);
        let io = Io::new(Origin::Open, Step::Log);
        let read = object.read_at(0, into(), io).await.map_err(|e| self.failed(e))?;
        if let Ok(table) = Table::decode(&read) {
            return Ok(table);
        }
        let check: volume::Check = Arc::new(|bytes: &[u8]| Table::decode(bytes).is_ok());
        match object.read_again(0, into(), io, check).await {
            Ok(read) => Table::decode(&read),
            // It says what is wrong with the bytes.
            Err(error) if error.kind().is_damage() => Table::decode(&read),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Puts a table in place of the one that is there. Durable on return.
    async fn write_table(&self, table: &Table) -> Result<()> {
        let next = self.name("devices.next")?;
        match self.volume.remove(&next).await {
            // It is what an earlier attempt left.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(self.failed(error)),
            _ => {}
        }
        let intent = Intent { len: None, ..Intent::DATA };
        let bytes = IoBuf::from(&table.encode()[..]);
        let written = self.volume.write_whole(&next, &intent, bytes, IO).await;
        written.map_err(|e| self.failed(e))?;
        let renamed = self.volume.rename(&next, &self.table_name()?).await;
        renamed.map_err(|e| self.failed(e))
    }

    async fn create_marks(&self, row: &Row) -> Result<()> {
        let made = self.volume.create(&self.marks_name(row.id)?, &Intent::IN_PLACE).await;
        let object = made.map_err(|e| self.failed(e))?;
        let grown = Marks::grow(&*object, row.id, shape::regions(row.size)).await;
        grown.map_err(|e| self.failed(e))
    }

    async fn open_device(
        self: &Arc<Self>,
        name: &str,
        row: &Row,
        found: Vec<(Name, u64)>,
        incarnations: &Arc<AtomicU64>,
    ) -> Result<Device> {
        let wrong = |error| failed(format_args!("device {name}"), error);
        let marks = self.volume.open(&self.marks_name(row.id)?).await.map_err(wrong)?;
        let (marks, marked) = Marks::open(marks, row.id).await.map_err(wrong)?;
        let prefix = self.prefix(row.id);
        let mut present = Vec::new();
        for (object, len) in found {
            let number = object.as_str().strip_prefix(&prefix).and_then(|n| n.strip_prefix('/'));
            let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
            match number {
                Some(number)
                    if len == row.shape.object()
                        && number < row.size.div_ceil(row.shape.extent()) =>
                {
                    present.push(number);
                }
                // It is behind the device's end, or its creation was cut off: no byte of it was acknowledged.
                Some(_) => self.remove(&object).await?,
                None => {}
            }
        }
        let extents = Extents::new(
            Arc::clone(&self.volume),
            prefix,
            (row.id, row.shape),
            present,
            Arc::clone(incarnations),
        );
        Ok(Device::new((name.to_owned(), row), Arc::clone(self), extents, marks, marked))
    }

    async fn remove(&self, name: &Name) -> Result<()> {
        match self.volume.remove(name).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    fn prefix(&self, id: table::Id) -> String {
        format!("{}/{id:08x}", self.options.name)
    }

    fn marks_name(&self, id: table::Id) -> Result<Name> {
        self.name(&format!("{id:08x}/marks"))
    }

    fn table_name(&self) -> Result<Name> {
        self.name("devices")
    }

    fn name(&self, rest: &str) -> Result<Name> {
        let name = Name::new(&format!("{}/{rest}", self.options.name));
        name.map_err(|error| Error::Invalid(error.to_string()))
    }

    fn failed(&self, error: volume::Error) -> Error {
        failed(format_args!("store of block devices {}", self.options.name), error)
    }
}

impl BlockDevices for Store {
    fn names(&self) -> Vec<String> {
        self.0.devices.lock().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Pending<'_, Arc<dyn BlockDevice>> {
        let device = self.device(name).map(|device| device as Arc<dyn BlockDevice>);
        Box::pin(std::future::ready(device))
    }

    fn lease(&self, name: &str) -> Lease {
        self.device(name).map_or_else(|_| Lease::default(), |device| device.lease.lock().clone())
    }

    fn take(&self, name: &str, holder: &Holder, force: bool) -> Pending<'_, u64> {
        let (name, holder) = (name.to_owned(), holder.clone());
        Box::pin(async move {
            self.change_lease(&name, |lease| lease.taken(&name, &holder, force).map(Some)).await
        })
    }

    fn release(&self, name: &str, token: Option<u64>) -> Pending<'_, ()> {
        let name = name.to_owned();
        Box::pin(async move {
            self.change_lease(&name, |lease| Ok(lease.released(token))).await.map(drop)
        })
    }
}
