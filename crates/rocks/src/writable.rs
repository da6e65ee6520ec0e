//! Files that are being written: logs and tables behind one type.

use std::sync::Arc;

use parking_lot::Mutex;
use volume::{Error, ErrorKind, Result};

use crate::error::Call;
use crate::logs::LogFile;
use crate::origin::Activity;
use crate::table::TableWriter;

/// How a file is opened for writing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OpenFor {
    /// As a new file, which replaces one of the same name.
    Create,
    /// To append at its end.
    Append,
    /// To overwrite it in place, from its start.
    Overwrite,
}

/// A file that is being written.
pub(crate) enum Writable {
    /// Appended at once.
    Log(Arc<LogFile>),
    /// Buffered or streamed. RocksDB writes it from one thread at a time.
    Table(Mutex<TableWriter>),
}

impl Writable {
    /// The type of call, which decides the answer to an error.
    pub(crate) fn call(&self) -> Call {
        match self {
            Self::Log(_) => Call::LogWrite,
            Self::Table(_) => Call::TableWrite,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Log(log) => log.len(),
            Self::Table(table) => table.lock().len(),
        }
    }

    pub(crate) fn append(&self, data: &[u8], activity: Activity) -> Result<()> {
        match self {
            Self::Log(log) => log.append(data),
            Self::Table(table) => table.lock().append(data, activity),
        }
    }

    /// Makes appended bytes readable. A log's also survive a crash of the process.
    pub(crate) fn flush(&self, activity: Activity) -> Result<()> {
        match self {
            // Every append has done so already.
            Self::Log(_) => Ok(()),
            Self::Table(table) => table.lock().flush(activity),
        }
    }

    pub(crate) fn sync(&self, activity: Activity) -> Result<()> {
        match self {
            Self::Log(log) => log.sync(),
            Self::Table(table) => table.lock().sync(activity),
        }
    }

    pub(crate) fn truncate(&self, len: u64) -> Result<()> {
        match self {
            Self::Log(log) => log.truncate(len),
            Self::Table(table) if table.lock().len() == len => Ok(()),
            Self::Table(_) => {
                Err(Error::new(ErrorKind::Invalid, "a table cannot be cut while it is written"))
            }
        }
    }

    pub(crate) fn close(&self, activity: Activity) -> Result<()> {
        match self {
            // The timer syncs it if it is dirty.
            Self::Log(_) => Ok(()),
            Self::Table(table) => table.lock().close(activity),
        }
    }
}
