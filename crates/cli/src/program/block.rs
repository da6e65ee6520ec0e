//! The block devices of the program: what the admin listener lists and changes, and the figures of their store.

use engine::block::Error;
use plimsoll::block::{Info, Store};
use policy::contract::Contract;
use serve::admin;
use serve::admin::block::{Device, Limit, List, New, NewLimit, Resize};
use serve::figures;

use super::{Program, stores};
use crate::settings;

impl Program {
    pub(super) fn list_devices(&self) -> Result<List, admin::Error> {
        let devices = self.block_store()?.list().into_iter().map(device).collect();
        let pool =
            self.stores.pool_of(stores::BLOCK).map_or_else(String::new, |root| root.name.into());
        Ok(List { pool, devices })
    }

    pub(super) fn new_device(&self, new: &New) -> Result<Device, admin::Error> {
        let New { name, size_bytes, limit, oversell } = new;
        let store = self.block_store()?;
        let limit = contract(name, limit.as_deref(), *size_bytes)?;
        let oversell = self.oversells(*oversell);
        store.create_limited(name, *size_bytes, limit, oversell).map_err(refused)?;
        tracing::info!("block device {name}: created with {size_bytes} bytes");
        named(store, name)
    }

    pub(super) fn change_limit(&self, name: &str, to: &NewLimit) -> Result<Device, admin::Error> {
        let store = self.block_store()?;
        let size = named(store, name)?.size_bytes;
        let limit = contract(name, to.limit.as_deref(), size)?;
        let terms = limit.as_ref().map_or_else(|| "none".into(), settings::terms);
        store.set_limit(name, limit, self.oversells(to.oversell)).map_err(refused)?;
        tracing::info!("block device {name}: its limit is {terms}");
        named(store, name)
    }

    /// Whether devices may be sold more than the volumes give, if one call `asks` for it.
    fn oversells(&self, asks: bool) -> bool {
        asks || self.settings.lock().block.as_ref().is_some_and(|block| block.oversell)
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

    pub(super) fn end_lease(&self, name: &str) -> Result<Device, admin::Error> {
        let store = self.block_store()?;
        let was = named(store, name)?;
        store.release(name).map_err(refused)?;
        if let Some(holder) = was.holder {
            tracing::info!("block device {name}: released, and was held by {holder}");
        }
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
            let of = info.figures;
            figures::BlockDevice {
                reads: of.reads,
                read_bytes: of.bytes_read,
                writes: of.writes,
                written_bytes: of.bytes_written,
                limit_iops: info.limit.as_ref().and_then(Contract::paid_iops),
                limit_bytes_per_s: info.limit.as_ref().and_then(Contract::paid_bytes_per_sec),
                limited: of.limited,
                limited_s: of.limited_for.as_secs_f64(),
                name: info.name,
                size_bytes: info.size,
                room_bytes: info.room,
            }
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
            completing_reads: of.completing_reads,
            extents_made: of.extents_made,
            region_marks: of.region_marks,
            regions_aligned: of.regions_aligned,
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
    let Info { name, size, room, limit, lease, figures: _ } = info;
    let limit = limit.map(|limit| Limit {
        terms: settings::terms(&limit),
        iops: limit.paid_iops(),
        bytes_per_s: limit.paid_bytes_per_sec(),
    });
    let holder = lease.holder.map(|holder| holder.name);
    Device { name, size_bytes: size, room_bytes: room, limit, holder }
}

/// The contract that a request asks for, for a device of this size.
fn contract(name: &str, text: Option<&str>, size: u64) -> Result<Option<Contract>, admin::Error> {
    let contract = text.map(|text| settings::sold(text, size)).transpose();
    contract.map_err(|why| admin::Error::Invalid(format!("block device {name}: its limit: {why}")))
}

/// What an administrator does about it.
fn refused(error: plimsoll::Error) -> admin::Error {
    let told = error.to_string();
    match error {
        plimsoll::Error::Block(error) => match error {
            Error::NotFound(_) => admin::Error::NotFound(told),
            Error::AlreadyExists(_) | Error::Held(_) | Error::OutOfSpace(_) => {
                admin::Error::Conflict(told)
            }
            Error::Invalid(_) | Error::Unsupported(_) => admin::Error::Invalid(told),
            Error::Busy(_) | Error::Unavailable(_) | Error::Closed(_) => {
                admin::Error::Unavailable(told)
            }
            _ => admin::Error::Internal(told),
        },
        _ => admin::Error::Internal(told),
    }
}
