//! What clients read and write.

use std::sync::Arc;

use policy::purpose::{Io, Origin, Step};
use volume::{IoBuf, IoBufMut, Object, Pending};

const READ: Io = Io::new(Origin::UserRead, Step::Data);
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);

/// Bytes that clients read and write.
pub trait Target {
    /// Reads from `at` on.
    fn read(&self, at: u64, into: IoBufMut) -> Pending<'_, IoBufMut>;

    /// Writes at `at`, as a block device does that promises nothing before a flush.
    fn write(&self, at: u64, data: IoBuf) -> Pending<'_, ()>;
}

impl Target for Arc<dyn Object> {
    fn read(&self, at: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        self.read_at(at, into, READ)
    }

    fn write(&self, at: u64, data: IoBuf) -> Pending<'_, ()> {
        self.write_at(at, data, WRITE)
    }
}

/// The same, with writes that are durable when they are answered.
pub struct Durable(pub Arc<dyn Object>);

impl Target for Durable {
    fn read(&self, at: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        self.0.read_at(at, into, READ)
    }

    fn write(&self, at: u64, data: IoBuf) -> Pending<'_, ()> {
        self.0.write_durable(at, data, WRITE)
    }
}
