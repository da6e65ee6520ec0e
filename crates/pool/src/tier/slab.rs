//! The slots on the fast volume: one object, whose room is taken at once.

use std::sync::Arc;

use policy::cache::Slot;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Result, Volume, Zeros};

/// The purpose of what the tier does for itself.
pub(super) const OWN: Io = Io::new(Origin::Copy, Step::Data);

pub(super) struct Slab {
    object: Arc<dyn Object>,
    unit: u64,
}

impl Slab {
    /// Opens the slab, or makes a new one if there is none of this size; true if it is new.
    pub(super) async fn open(volume: &dyn Volume, unit: u64, slots: u32) -> Result<(Self, bool)> {
        let (name, len) = (name(), unit * u64::from(slots));
        match volume.open(&name).await {
            Ok(object) if object.len() == len => return Ok((Self { object, unit }, false)),
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
        Ok((Self { object, unit }, true))
    }

    /// Reads all of `into` at `within` bytes from the beginning of a slot.
    pub(super) async fn read(
        &self,
        slot: Slot,
        within: u64,
        into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let len = into.len();
        let read = self.object.read_at(self.at(slot, within), into, io).await?;
        if read.len() < len {
            let what = format!("slot {slot}: {} of {len} bytes", read.len());
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(read)
    }

    pub(super) async fn write(&self, slot: Slot, within: u64, data: IoBuf, io: Io) -> Result<()> {
        self.object.write_at(self.at(slot, within), data, io).await
    }

    pub(super) async fn sync(&self) -> Result<()> {
        self.object.sync(OWN).await
    }

    fn at(&self, slot: Slot, within: u64) -> u64 {
        u64::from(slot) * self.unit + within
    }
}

fn name() -> Name {
    Name::new("tier.slab").expect("a valid name")
}
