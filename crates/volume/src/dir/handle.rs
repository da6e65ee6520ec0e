//! An open object as callers hold it: the calls of a [`File`], in the order of its changes.

use std::ops::Range;
use std::sync::Arc;

use super::file::File;
use super::transfer::{self, span};
use crate::{
    Check, Extent, Io, IoBuf, IoBufMut, Object, Pending, ReadTime, Result, Zeros, extent, ready,
};

/// What callers hold.
pub(super) struct Handle(pub(super) Arc<File>);

impl Handle {
    fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&File) -> Result<T> + Send + 'static,
    ) -> Pending<'_, T> {
        let file = Arc::clone(&self.0);
        Box::pin(self.0.volume.io.run(move || call(&file)))
    }

    /// Makes a change of `range`: after older changes of it, and before younger ones begin, also if the caller gives up.
    pub(super) fn change(
        &self,
        range: Range<u64>,
        call: impl FnOnce(&File) -> Result<()> + Send + 'static,
    ) -> Pending<'_, ()> {
        let file = Arc::clone(&self.0);
        Box::pin(async move {
            let claim = file.changes.claim(range).await;
            let changed = move || {
                let done = call(&file);
                drop(claim);
                done
            };
            self.0.volume.io.run(changed).await
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for Handle {
    fn read_at(&self, offset: u64, into: IoBufMut, _io: Io) -> Pending<'_, IoBufMut> {
        let file = Arc::clone(&self.0);
        Box::pin(async move {
            file.changes.settled(span(offset, into.len() as u64)).await;
            transfer::read(file, offset, into).await
        })
    }

    fn write_at(&self, offset: u64, data: IoBuf, _io: Io) -> Pending<'_, ()> {
        Box::pin(transfer::write(Arc::clone(&self.0), offset, data))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, _io: Io) -> Pending<'_, ()> {
        self.change(span(offset, data.len() as u64), move |file| file.write_durable(offset, &data))
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, _io: Io) -> Pending<'_, ()> {
        let range = span(offset, len);
        self.change(range.clone(), move |file| file.zero(&range, room))
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        if !self.0.volume.abilities.holes {
            return extent::all_data(self, offset, len);
        }
        let range = extent::within(offset, len, self.len());
        self.run(move |file| file.extents(range))
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        if self.0.volume.io.is_apart() || !self.0.changes.is_idle() {
            return crate::blocking::read_at(self, offset, into, io);
        }
        self.0.read_into(offset, into)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        if self.0.volume.io.is_apart() || !self.0.changes.is_idle() {
            return crate::blocking::write_at(self, offset, data, io);
        }
        self.0.write_at(offset, data)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn is_log(&self) -> bool {
        self.0.is_log
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        self.change(len.min(self.len())..u64::MAX, move |file| file.set_len(len))
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

    fn seal(&self, _io: Io) -> Pending<'_, ()> {
        self.run(File::seal)
    }

    fn sync_ahead(&self, more: u64, _io: Io) -> Pending<'_, bool> {
        self.run(move |file| {
            let is_ahead = file.write_ahead(more);
            file.sync().map(|()| is_ahead)
        })
    }

    fn sync(&self, _io: Io) -> Pending<'_, ()> {
        self.run(File::sync)
    }
}
