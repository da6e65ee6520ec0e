//! The head on the slow volume: whose caches count, and since which opening.
//!
//! Two objects take turns, so that a crash leaves one of them whole. The one with the higher epoch counts.

use policy::purpose::{Io, Origin, Step};
use volume::{ErrorKind, Intent, IoBuf, IoBufMut, Name, Result, Volume};

use super::record::{self, Head};

/// What an epoch is raised by where a fast volume may have one of its own that follows the last one: an odd number, so that
/// the heads take turns.
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
    let mut last: Option<Head> = None;
    for turn in 0..2 {
        let object = match slow.open(&name(turn)).await {
            Ok(object) => object,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let bytes = object.read_at(0, IoBufMut::zeroed(record::BLOCK), IO).await?;
        let head = record::read(&bytes).and_then(|frame| Head::decode(frame.body));
        if let Some(head) = head {
            last = last.filter(|last| last.epoch >= head.epoch).or(Some(head));
        }
    }
    Ok(last)
}

/// Makes `head`, whose epoch is greater than that of the last one by an odd number, the last one. Durable on return.
///
/// # Errors
/// Those of the volume.
pub(super) async fn write(slow: &dyn Volume, head: Head) -> Result<()> {
    let name = name(head.epoch % 2);
    match slow.remove(&name).await {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut bytes = Vec::new();
    record::frame(&mut bytes, head.identity, head.epoch, &head.encode());
    slow.write_whole(&name, &Intent::DATA, IoBuf::from(&bytes[..]), IO).await
}

fn name(turn: u64) -> Name {
    Name::new(&format!("{RESERVED}head-{turn}")).expect("a valid name")
}
