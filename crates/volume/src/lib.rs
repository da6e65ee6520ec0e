//! Effects on one device: a [`Volume`] is a flat space of named [`Object`]s, and everything that
//! stacks on a device (gate, simulation, faults, crashes, traces) is a volume around a volume.
//!
//! Operations are futures tied to no runtime. They wait only for a gate, for the [`clock`] or for a leaf. A thread that
//! may block runs them with [`task::block_on`]; a leaf then makes its system call in place.

pub mod again;
pub mod ahead;
pub mod blocking;
pub mod buf;
pub mod clock;
pub mod conformance;
pub mod dir;
mod driver;
pub mod durable;
mod error;
pub mod extent;
mod forward;
mod health;
pub mod heartbeat;
pub mod host;
pub mod io_pool;
pub mod layer;
mod limits;
pub mod mem;
mod name;
pub mod ranges;
mod ring;
pub mod task;
mod unsupported;
pub mod verify;
pub mod whole;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use again::Check;
pub use buf::{IoBuf, IoBufMut};
pub use clock::Clock;
pub use error::{Error, ErrorKind, Result};
pub use extent::{Extent, Zeros};
pub use limits::Limits;
pub use name::Name;
pub use policy::intent::Intent;
pub use policy::purpose::Io;
pub use policy::read_time::ReadTime;
pub use verify::{BlockSum, Expected, Verified, Verify};

/// An operation under way. Dropping it gives up waiting; an I/O that reached the device still ends.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// An operation that needed no waiting.
pub fn ready<'a, T: Send + 'a>(result: Result<T>) -> Pending<'a, T> {
    Box::pin(std::future::ready(result))
}

/// A flat space of named objects on one device, or on something that behaves like one.
///
/// A log ([`Kind::Log`](policy::intent::Kind::Log) at its creation) is appended through the page cache: its bytes survive
/// the death of the process at once, and the death of the machine after a sync. Every other object goes to the device with
/// each write.
///
/// `docs/adr/0033-one-revision-of-volume.md` has a table of what each call costs and promises on each kind of volume, and
/// [`conformance`] checks it.
pub trait Volume: Send + Sync {
    /// Makes a new, empty object of the kind that `intent` says, which it keeps: [`Object::is_log`]. It is durable, name
    /// and all, after its first sync.
    ///
    /// # Errors
    /// `AlreadyExists`; `OutOfSpace`, `Unavailable` or `Poisoned`: create it on another volume.
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>>;

    /// Opens an object for reading and writing.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`: try again when the volume is back.
    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>>;

    /// Removes an object. After a crash it may be there again, whole or in part, until another
    /// object of the volume was synced after the removal.
    ///
    /// Objects that are open stay readable.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`: try again when the volume is back.
    fn remove(&self, name: &Name) -> Pending<'_, ()>;

    /// Every object, in no order.
    ///
    /// # Errors
    /// `Unavailable`: try again when the volume is back.
    fn list(&self) -> Pending<'_, Vec<Listed>>;

    /// How much room there is.
    ///
    /// # Errors
    /// `Unavailable`: try again when the volume is back.
    fn space(&self) -> Pending<'_, Space>;

    /// About how long a user's read that came now would take: its wait at the gate, and the device's time. A caller uses it
    /// to choose between volumes that hold copies of the same bytes. A pool answers for a mean of its volumes;
    /// [`Object::expected_read`] knows more. It takes no lock. Zeros for a volume without a gate.
    fn expected_read(&self) -> ReadTime {
        ReadTime::default()
    }

    /// The part of what is paid for that users took in the last second: 1 is the line. Of several volumes that of the
    /// busiest. Zero for a volume without a limit.
    fn users_load(&self) -> f64 {
        0.0
    }

    /// The sizes by which calls cost least, and whether there are holes.
    fn limits(&self) -> Limits {
        Limits { holes: false, ..Limits::PAGES }
    }

    /// Makes an object of `data` that never changes again: written, synced and [sealed](Object::seal). Durable on return.
    /// A pool makes it whole or not at all; on a device, a crash or an error may leave a part of it.
    ///
    /// # Errors
    /// As for [`Volume::create`], [`Object::write_at`] and [`Object::seal`].
    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        whole::write(self, name, intent, data, io)
    }

    /// Gives an object another name, in place of the object that has it, if one does. Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported`: names change in the outermost pool only. Else as for a sync.
    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        unsupported::call(format_args!("rename {from} to {to}"))
    }

    /// Gives an object a further name. Durable on return.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`; `Unsupported`, as for [`Volume::rename`]. Else as for a sync.
    fn link(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        unsupported::call(format_args!("link {from} to {to}"))
    }
}

/// A shared volume is a volume, so that a layer can wrap a volume that others hold too.
#[deny(clippy::missing_trait_methods)]
impl<V: Volume + ?Sized> Volume for Arc<V> {
    crate::forward! {
        self => **self;
        fn create(name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>>;
        fn open(name: &Name) -> Pending<'_, Arc<dyn Object>>;
        fn remove(name: &Name) -> Pending<'_, ()>;
        fn list() -> Pending<'_, Vec<Listed>>;
        fn space() -> Pending<'_, Space>;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn write_whole(name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()>;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }
}

/// Random access to one object. Offsets and lengths in bytes.
///
/// Calls may overlap, as many as the device has use for. Of overlapping calls that are under way together, either may
/// come first. A change whose future was dropped after it began ends before a later change or read of the same bytes
/// begins. A read that begins after another one returned new bytes does not give old ones.
pub trait Object: Send + Sync {
    /// Reads `into.len()` bytes at `offset`; the result is shorter only where the object ends.
    ///
    /// # Errors
    /// `Busy`: the deadline passed or a queue was full; `Unavailable`: later or from a replica;
    /// `Corrupt`: from a replica.
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut>;

    /// Writes all of `data` at `offset`, extending the object if need be; a gap reads as zeros.
    ///
    /// Not durable before a sync. After an error the bytes of the range are unknown.
    ///
    /// # Errors
    /// `OutOfSpace`, `Unavailable`, `Poisoned`: write the object elsewhere.
    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()>;

    /// [`Object::read_at`] for a thread that may block, into the caller's memory; returns the number of bytes read.
    /// Whole pages go without a copy into page-aligned memory, such as [`buf::with_scratch`] lends.
    ///
    /// For callers that wait for one read at a time; only `read_at` lets several overlap.
    ///
    /// # Errors
    /// As for [`Object::read_at`].
    ///
    /// # Panics
    /// Inside a future that [`task::block_on`] runs.
    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        blocking::read_at(self, offset, into, io)
    }

    /// [`Object::write_at`] for a thread that may block, from the caller's memory.
    ///
    /// # Errors
    /// As for [`Object::write_at`].
    ///
    /// # Panics
    /// Inside a future that [`task::block_on`] runs.
    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        blocking::write_at(self, offset, data, io)
    }

    /// The exact length, also after a crash or a reopening.
    fn len(&self) -> u64;

    /// What the creator said: whether it is a log, see [`Volume`].
    fn is_log(&self) -> bool;

    /// Whether the object holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// [`Object::write_at`], with these bytes, the object's length and its name durable on return. Bytes of earlier writes
    /// are durable only after a sync. It costs one operation where the device can, also on copies: one for each.
    ///
    /// # Errors
    /// As for [`Object::write_at`]. `Poisoned`: as for [`Object::sync`], if earlier writes were not synced.
    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        durable::write(self, offset, data, io)
    }

    /// Makes the bytes of a range zeros, as far as the object has them, without writing them to the device. Its length
    /// stays. Durable after a sync. After an error the bytes of the range are unknown.
    ///
    /// # Errors
    /// `Unsupported`: write zeros, or leave them. Else as for [`Object::write_at`].
    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        let _ = (room, io);
        unsupported::call(format_args!("make {len} bytes at {offset} zeros"))
    }

    /// The extents of a range, in order and without gaps, as far as the object has it. What is called data may be zeros;
    /// what is called a hole is.
    ///
    /// # Errors
    /// As for [`Object::read_at`].
    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        extent::all_data(self, offset, len)
    }

    /// Cuts or extends the object; new bytes read as zeros. Durable after a sync.
    ///
    /// # Errors
    /// As for [`Object::write_at`].
    fn set_len(&self, len: u64) -> Pending<'_, ()>;

    /// Reads a range again after [`Object::read_at`] gave bytes that are not those written, as a checksum in them shows.
    /// `check` finds that out. A pool reads every copy. If `check` accepts one, those that it refuses are damaged: the
    /// pool counts them, and writes the accepted bytes over the range, durably. Of fragments it reads the data, and compares
    /// the parity of the columns whose data lie in the range as a whole: so parity is verified by ranges of whole stripes
    /// ([`Limits::stripe`]).
    ///
    /// # Errors
    /// `Corrupt`: `check` refused what each copy gave. A pool then counts no damage, since a crash may have cut the
    /// bytes off before they were durable. Else as for [`Object::read_at`].
    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        again::read(self, offset, into, io, check)
    }

    /// Makes the copies of a range equal, durably. A pool reads the range from every copy. Where they differ, it writes the
    /// bytes of one over those of the others, and bytes that are damaged in one are taken from another. A copy that
    /// cannot be reached or written is dropped, as when a write fails there. On a device it does nothing.
    ///
    /// The store of an object that is [in place](policy::intent::Kind::InPlace) calls this for each range whose writes a crash
    /// may have cut off, before it reads the range or writes to it. Other objects need no such call: their pool aligns them.
    /// Reads and changes of the range wait until this has ended; others go on.
    ///
    /// A store treats a range whose write failed or was given up in the same way: its mark stays until a sync after a later
    /// write of the whole range, or until an alignment.
    ///
    /// # Errors
    /// As for [`Object::sync`]. `Unavailable`: try again when a copy is back. `Busy`: try again. `Corrupt`: some bytes are
    /// damaged in every copy: write them, or restore the object. After an error the range is as much in doubt as before.
    fn align(&self, offset: u64, len: u64, io: Io) -> Pending<'_, ()> {
        let _ = (offset, len, io);
        ready(Ok(()))
    }

    /// [`Volume::expected_read`] of this range: of the copy that a read would choose, of the fragments that it reads
    /// together, of the side of a cache tier that has the bytes.
    fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        let _ = (offset, len);
        ReadTime::default()
    }

    /// Syncs the object, and declares that it never changes again: no write or change of length may follow, through
    /// this or another handle. A pool records the length and a checksum of all bytes, by which it tells later which
    /// copy is damaged, and it need not compare the copies after a crash. A device only syncs. Durable on return. To
    /// seal twice does nothing.
    ///
    /// # Errors
    /// As for [`Object::sync`]; `Corrupt`: the copies of a pool differ in bytes that were durable.
    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync(io)
    }

    /// When this is ready, everything written before the call, and the object's name, is durable. After a crash so is
    /// what was read: a store reads what it had not sealed, has wrong bytes [read again](Object::read_again), and syncs it,
    /// before it serves what it read.
    ///
    /// # Errors
    /// `Poisoned`: a sync failed, now or earlier. The content of the device is unknown: this object fails for ever, and
    /// the volume takes no new object until it has been probed.
    fn sync(&self, io: Io) -> Pending<'_, ()>;

    /// [`Object::sync`] of a log that has many small syncs before it. A volume that can first writes at least `more` bytes of filling behind the end,
    /// at most 1 MiB: bytes that are appended there change nothing else, so that their syncs need no write of the file system's journal. The
    /// object's length stays. Says whether they are there; they go with [`Object::seal`] and a change of the length.
    ///
    /// # Errors
    /// As for [`Object::sync`]. That there is no room for the filling is none.
    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        ahead::sync(self, more, io)
    }
}

/// One object of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// The object's name.
    pub name: Name,
    /// Its length in bytes.
    pub len: u64,
}

/// Space on a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Space {
    /// The capacity.
    pub total: u64,
    /// Bytes that can still be written.
    pub free: u64,
    /// Whether the file system lacks files (inodes): whatever its free bytes, none are counted in `free`.
    pub lacks_files: bool,
}
