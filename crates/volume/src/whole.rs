//! [`Volume::write_whole`] by means of the other calls.

use crate::{Intent, Io, IoBuf, Name, Pending, Volume};

/// Creates, writes and seals an object. An error after its creation leaves a part of it.
pub fn write<'a, V: Volume + ?Sized>(
    volume: &'a V,
    name: &Name,
    intent: &Intent,
    data: IoBuf,
    io: Io,
) -> Pending<'a, ()> {
    let (name, intent) = (name.clone(), Intent { len: Some(data.len() as u64), ..intent.clone() });
    Box::pin(async move {
        let object = volume.create(&name, &intent).await?;
        object.write_at(0, data, io).await?;
        object.seal(io).await
    })
}
