//! Reading a copy back.

use policy::units::MIB;
use volume::{Io, IoBufMut, Result};
use xxhash_rust::xxh3::Xxh3;

use super::handle::Handle;
use super::inode::Replica;

/// Bytes that are read at once.
const PIECE: u64 = MIB;

/// The xxh3-64 of the first bytes of a copy, up to two lengths.
pub(super) struct Hashes {
    pub(super) first: u64,
    pub(super) all: u64,
}

/// Reads one copy up to `all`.
///
/// # Errors
/// Those of its volumes.
pub(super) async fn read_through(
    object: &Handle,
    replica: &Replica,
    [first, all]: [u64; 2],
    io: Io,
) -> Result<Hashes> {
    let mut hash = Xxh3::new();
    let mut at = 0;
    let mut hashes = [0; 2];
    for (end, digest) in [first, all].into_iter().zip(&mut hashes) {
        while at < end {
            let into = IoBufMut::zeroed(PIECE.min(end - at) as usize);
            let read = object.read_from(replica, at, into, io).await?;
            hash.update(&read);
            at += read.len() as u64;
        }
        *digest = hash.digest();
    }
    let [first, all] = hashes;
    Ok(Hashes { first, all })
}
