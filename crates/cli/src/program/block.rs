//! The block devices of the program: what the admin listener lists and changes, and the figures of their store.

use engine::block::Error;
use plimsoll::block::{Info, Store};
use serve::admin;
use serve::admin::block::{Device, List, New, Resize};
use serve::figures;

use super::{Program, stores};

impl Program {
    pub(super) fn list_devices(&self) -> Result<List, admin::Error> {
        let devices = self.block_store()?.list().into_iter().map(device).collect();
        Ok(List { pool: self.pool_name(), devices })
    }

    pub(super) fn new_device(&self, new: &New) -> Result<Device, admin::Error> {
        let New { name, size_bytes } = new;
        let store = self.block_store()?;
        store.create(name, *size_bytes).map_err(refused)?;
        tracing::info!("block device {name}: created with {size_bytes} bytes");
        named(store, name)
    }

    pub(super) fn change_size(&self, name: &str, to: &Resize) -> Result<Device, admin::Error> {
        let store = self.block_store()?;
        let before = named(store, name)?.size_bytes;
        let after = to.size_bytes;
        if after < before && !to.shrink {
            return Err(admin::Error::Conflict(format!(
                "block device {name} has {before} bytes: what lies behind {after} would be gone for good; shrink the \
                 file system on it first, then `plimsoll block resize --shrink`"
            )));
        }
        store.resize(name, after, to.shrink).map_err(refused)?;
        tracing::info!("block device {name}: {after} bytes instead of {before}");
        named(store, name)
    }

    pub(super) fn remove_device(&self, name: &str) -> Result<Device, admin::Error> {
        let store = self.block_store()?;
        let was = named(store, name)?;
        store.delete(name).map_err(refused)?;
        tracing::info!("block device {name}: deleted, with {} bytes", was.size_bytes);
        Ok(was)
    }

    /// The figures of the store, if it is open.
    pub(super) fn block_figures(&self) -> Option<figures::Block> {
        let store = self.block()?;
        let of = store.figures();
        let devices = store.list().into_iter().map(|info| {
            let Device { name, size_bytes, room_bytes } = device(info);
            figures::BlockDevice { name, size_bytes, room_bytes }
        });
        Some(figures::Block {
            devices: devices.collect(),
            reads: of.reads,
            read_bytes: of.bytes_read,
            writes: of.writes,
            written_bytes: of.bytes_written,
            discards: of.discards,
            flushes: of.flushes,
            checksum_fetches: of.checksum_fetches,
            checksum_writes: of.checksum_writes,
            checksum_bytes: of.checksum_bytes,
            region_marks: of.region_marks,
            dirty_regions: of.dirty_regions,
            unverified_reads: of.unverified_reads,
            repaired: of.repaired,
            damaged: of.damaged,
        })
    }

    fn block_store(&self) -> Result<&Store, admin::Error> {
        if let Some(store) = self.block() {
            return Ok(store);
        }
        let mut failed = self.stores.failed().into_iter();
        Err(match failed.find(|(name, _)| *name == stores::BLOCK) {
            Some((_, why)) => admin::Error::Unavailable(format!(
                "the store of block devices is not open, and is tried again every ten seconds: {why}"
            )),
            None => admin::Error::NotFound(format!(
                "{}: the settings have no block devices: add a section [block] with `pool`, and start the server again",
                self.file.display()
            )),
        })
    }
}

fn named(store: &Store, name: &str) -> Result<Device, admin::Error> {
    let all = store.list();
    let names = || all.iter().map(|info| &*info.name).collect::<Vec<_>>().join(", ");
    match all.iter().find(|info| info.name == name) {
        Some(info) => Ok(device(info.clone())),
        None if all.is_empty() => Err(admin::Error::NotFound(format!(
            "block device {name}: there is none; `plimsoll block create {name} 10GiB` makes one"
        ))),
        None => Err(admin::Error::NotFound(format!(
            "block device {name}: there is none; there are: {}",
            names()
        ))),
    }
}

fn device(info: Info) -> Device {
    let Info { name, size, room, .. } = info;
    Device { name, size_bytes: size, room_bytes: room }
}

/// What an administrator does about it.
fn refused(error: plimsoll::Error) -> admin::Error {
    let told = error.to_string();
    match error {
        plimsoll::Error::Block(error) => match error {
            Error::NotFound(_) => admin::Error::NotFound(told),
            Error::AlreadyExists(_) | Error::OutOfSpace(_) => admin::Error::Conflict(told),
            Error::Invalid(_) | Error::Unsupported(_) => admin::Error::Invalid(told),
            Error::Busy(_) | Error::Unavailable(_) | Error::Closed(_) => {
                admin::Error::Unavailable(told)
            }
            _ => admin::Error::Internal(told),
        },
        _ => admin::Error::Internal(told),
    }
}
