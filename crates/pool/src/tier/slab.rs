//! The places on the fast volume: one object, whose room is taken at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Result, Volume, Zeros};

use super::places::Place;
use super::route::PAGE;
use super::sums::{self, Sum};

/// The purpose of installs.
pub(super) const OWN: Io = Io::new(Origin::Promotion, Step::Data);

pub(super) struct Slab {
    volume: Arc<dyn Volume>,
    object: Arc<dyn Object>,
    is_closed: AtomicBool,
}

impl Slab {
    /// Opens the slab, or makes a new one if there is none of this size; true if it is new.
    pub(super) async fn open(volume: &Arc<dyn Volume>, places: u32) -> Result<(Self, bool)> {
        let (name, len) = (name(), position(places));
        let of =
            |object| Self { volume: Arc::clone(volume), object, is_closed: AtomicBool::new(false) };
        match volume.open(&name).await {
            Ok(object) if object.len() == len => return Ok((of(object), false)),
            Ok(object) => {
                drop(object);
                volume.remove(&name).await?;
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let object = volume.create(&name, &Intent { len: Some(len), ..Intent::IN_PLACE }).await?;
        object.set_len(len).await?;
        match object.zero(0, len, Zeros::Keep, OWN).await {
            Err(e) if e.kind() != ErrorKind::Unsupported => return Err(e),
            _ => {}
        }
        object.sync(OWN).await?;
        Ok((of(object), true))
    }

    /// The fast volume.
    pub(super) const fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    /// The volume is given up: every call fails from now on. What it has may be older than what the slow volume has, and its
    /// places may belong to a slab that is opened later.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// # Errors
    /// `Unavailable`: the volume was given up.
    fn must_be_open(&self) -> Result<()> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Unavailable, "the fast volume was given up")),
            false => Ok(()),
        }
    }

    /// Reads all of `into` at a position of the slab.
    pub(super) fn read(
        &self,
        at: u64,
        into: IoBufMut,
        io: Io,
    ) -> impl Future<Output = Result<IoBufMut>> + '_ {
        let len = into.len();
        let reading = self.must_be_open().map(|()| self.object.read_at(at, into, io));
        async move {
            let read = reading?.await?;
            if read.len() < len {
                let what = format!("the slab of a tier at {at}: {} of {len} bytes", read.len());
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            Ok(read)
        }
    }

    /// Reads a page at a position of the slab, from a copy that fits its checksum.
    ///
    /// # Errors
    /// `Corrupt`: no copy does. Else those of the volume.
    pub(super) async fn read_page(&self, at: u64, sum: Sum, io: Io) -> Result<IoBufMut> {
        let into = || IoBufMut::zeroed(PAGE as usize);
        let read = self.read(at, into(), io).await;
        if read.as_ref().is_ok_and(|page| sums::fits(sum, page)) || sum.is_none() {
            return read;
        }
        self.object.read_again(at, into(), io, Arc::new(move |page| sums::fits(sum, page))).await
    }

    pub(super) async fn write(&self, at: u64, data: IoBuf, io: Io) -> Result<()> {
        self.must_be_open()?;
        self.object.write_at(at, data, io).await
    }

    /// [`Slab::write`], durable on return if `is_durable`.
    pub(super) async fn put(&self, at: u64, data: IoBuf, io: Io, is_durable: bool) -> Result<()> {
        if is_durable {
            self.must_be_open()?;
            return self.object.write_durable(at, data, io).await;
        }
        self.write(at, data, io).await
    }

    pub(super) async fn sync(&self) -> Result<()> {
        self.must_be_open()?;
        self.object.sync(OWN).await
    }
}

/// Where a place begins, in bytes.
pub(super) fn position(place: Place) -> u64 {
    u64::from(place) * PAGE
}

fn name() -> Name {
    Name::new("tier.slab").expect("a valid name")
}
