//! One call to a volume or to an object of it, as data that layers match, count and record.

use std::fmt;

use crate::{Io, Name};

/// Which method is called.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Op {
    /// [`Volume::create`](crate::Volume::create)
    Create,
    /// [`Volume::open`](crate::Volume::open)
    Open,
    /// [`Volume::remove`](crate::Volume::remove)
    Remove,
    /// [`Volume::list`](crate::Volume::list)
    List,
    /// [`Volume::space`](crate::Volume::space)
    Space,
    /// [`Object::read_at`](crate::Object::read_at)
    Read,
    /// [`Object::write_at`](crate::Object::write_at)
    Write,
    /// [`Object::write_durable`](crate::Object::write_durable)
    WriteDurable,
    /// [`Object::zero`](crate::Object::zero)
    Zero,
    /// [`Object::extents`](crate::Object::extents)
    Extents,
    /// [`Object::set_len`](crate::Object::set_len)
    SetLen,
    /// [`Object::sync`](crate::Object::sync)
    Sync,
}

impl Op {
    /// The name in logs and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Space => "space",
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteDurable => "write_durable",
            Self::Zero => "zero",
            Self::Extents => "extents",
            Self::SetLen => "set_len",
            Self::Sync => "sync",
        }
    }
}

/// A call with its arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    /// The method.
    pub op: Op,
    /// The object; none for a call on the whole volume.
    pub name: Option<Name>,
    /// Where a range begins, in bytes; 0 for calls without one.
    pub offset: u64,
    /// The bytes of the range, or the new length; 0 for others.
    pub len: u64,
    /// The purpose, where the call has one.
    pub io: Option<Io>,
}

impl Call {
    /// A call on the volume.
    pub(super) const fn volume(op: Op) -> Self {
        Self { op, name: None, offset: 0, len: 0, io: None }
    }

    /// A call on a name.
    pub(super) fn named(op: Op, name: &Name) -> Self {
        Self { name: Some(name.clone()), ..Self::volume(op) }
    }

    /// A read or write.
    pub(super) fn bytes(op: Op, name: &Name, offset: u64, len: usize, io: Io) -> Self {
        Self::range(op, name, offset, len as u64, Some(io))
    }

    /// Any call on a range.
    pub(super) fn range(op: Op, name: &Name, offset: u64, len: u64, io: Option<Io>) -> Self {
        Self { offset, len, io, ..Self::named(op, name) }
    }

    pub(super) fn set_len(name: &Name, len: u64) -> Self {
        Self { len, ..Self::named(Op::SetLen, name) }
    }

    pub(super) fn sync(name: &Name, io: Io) -> Self {
        Self { io: Some(io), ..Self::named(Op::Sync, name) }
    }
}

impl fmt::Display for Call {
    /// `write kv/7.sst 4096 bytes at 8192`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match self.op {
            Op::Read | Op::Write | Op::WriteDurable | Op::Zero | Op::Extents => {
                write!(f, " {} bytes at {}", self.len, self.offset)
            }
            Op::SetLen => write!(f, " to {} bytes", self.len),
            _ => Ok(()),
        }
    }
}
