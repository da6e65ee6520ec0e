//! The head on the slow volume: whose caches count, and since which opening.
//!
//! Two objects have it, and are written one after the other: a crash leaves one of them whole, and so does damage of one. The
//! one with the higher epoch counts.

use std::sync::Arc;

use policy::purpose::{Io, Origin, Step};
use volume::{Check, ErrorKind, Intent, IoBuf, IoBufMut, Name, Result, Volume};

use super::record::{self, Head};

/// What an epoch is raised by where a fast volume may have one of its own that follows the last one.
pub(super) const AWAY: u64 = 3;

const IO: Io = Io::new(Origin::Open, Step::Manifest);

/// Names that begin so belong to the tier.
const RESERVED: &str = "tier.";

/// Whether no user may have the name.
pub(super) fn is_reserved(name: &Name) -> bool {
    name.as_str().starts_with(RESERVED)
}

/// The head of a slow volume; `None` if it has none.
///
/// # Errors
/// Those of the volume.
pub(super) async fn read(slow: &dyn Volume) -> Result<Option<Head>> {
    let (mut last, mut failed) = (None::<Head>, None);
    for turn in 0..2 {
        let object = match slow.open(&name(turn)).await {
            Ok(object) => object,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let check: Check = Arc::new(|bytes| decode(bytes).is_some());
        let read = object.read_again(0, IoBufMut::zeroed(record::BLOCK), IO, check).await;
        let head = match read {
            Ok(bytes) => decode(&bytes),
            Err(e) if e.kind() == ErrorKind::Corrupt => None,
            Err(e) if e.kind().is_damage() => {
                failed = Some(e);
                None
            }
            Err(e) => return Err(e),
        };
        if let Some(head) = head {
            last = last.filter(|last| last.epoch >= head.epoch).or(Some(head));
        }
    }
    match failed {
        Some(error) if last.is_none() => Err(error),
        _ => Ok(last),
    }
}

fn decode(bytes: &[u8]) -> Option<Head> {
    record::read(bytes).and_then(|frame| Head::decode(frame.body))
}

/// Makes `head`, whose epoch is greater than that of the last one, the last one. Durable on return.
///
/// # Errors
/// Those of the volume.
pub(super) async fn write(slow: &dyn Volume, head: Head) -> Result<()> {
    let mut bytes = Vec::new();
    record::frame(&mut bytes, head.identity, head.epoch, &head.encode());
    let bytes = IoBuf::from(&bytes[..]);
    for turn in 0..2 {
        let name = name(turn);
        match slow.remove(&name).await {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        slow.write_whole(&name, &Intent::DATA, bytes.clone(), IO).await?;
    }
    Ok(())
}

fn name(turn: u64) -> Name {
    Name::new(&format!("{RESERVED}head-{turn}")).expect("a valid name")
}
