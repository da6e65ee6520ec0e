//! Pools on volumes that tests can cut, damage and remove.

use policy::placement::{Hash, LeastOverlap, Placement, RoundRobin, Single, Stripe};
use policy::purpose::{Origin, Step};
use policy::units::KIB;
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use volume::layer::crash::Crash;
use volume::mem::Mem;
use volume::{ErrorKind, Intent, Io, IoBuf, IoBufMut, Name, Object, Result, Volume};

pub(crate) const IO: Io = Io::new(Origin::UserWrite, Step::Data);
pub(crate) const POOL: PoolId = PoolId(0x504c_494d_534f_4c4c);

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Empty volumes called `s0`, `s1`, …
pub(crate) fn mems(count: usize) -> Vec<Mem> {
    (0..count).map(|i| Mem::new(&format!("s{i}"))).collect()
}

pub(crate) fn members<V: Volume + Clone + 'static>(volumes: &[V]) -> Vec<Member> {
    let volumes = volumes.iter().enumerate();
    volumes.map(|(i, volume)| Member::new(format!("s{i}"), volume.clone())).collect()
}

/// Every placement, by the name settings use.
pub(crate) const PLACEMENTS: [&str; 5] =
    ["single", "round-robin", "hash", "stripe", "least-overlap"];

pub(crate) fn opening(placement: &str) -> Opening {
    fn with(placement: impl Placement + 'static) -> Opening {
        Opening::new(placement).create_if_missing(POOL)
    }
    match placement {
        "single" => with(Single),
        "round-robin" => with(RoundRobin::default()),
        "hash" => with(Hash),
        "stripe" => with(Stripe::new(64 * KIB)),
        "least-overlap" => with(LeastOverlap::new(7)),
        _ => panic!("no placement {placement:?}"),
    }
}

pub(crate) async fn open<V: Volume + Clone + 'static>(volumes: &[V]) -> Result<Spread> {
    Spread::open(members(volumes), opening("round-robin")).await
}

/// The error of a failed opening.
pub(crate) fn refusal(opened: Result<Spread>) -> (ErrorKind, String) {
    match opened {
        Ok(_) => panic!("the pool opened"),
        Err(e) => (e.kind(), e.to_string()),
    }
}

/// New volumes with the same bytes.
pub(crate) fn copies(volumes: &[Mem]) -> Vec<Mem> {
    volumes.iter().map(|mem| Mem::from_image(mem.label(), mem.image())).collect()
}

/// What is left of the volumes of a machine after a power cut, which takes other bytes from each.
pub(crate) fn survivors(machine: &[Crash], seed: u64) -> Vec<Mem> {
    let volumes = (0..).zip(machine);
    volumes.map(|(i, volume)| volume.survivor(seed ^ i << 32)).collect()
}

/// The names of a volume's objects that are copies of the manifest.
pub(crate) fn manifests(volume: &Mem) -> Vec<Name> {
    let names = volume.image().into_keys();
    names.filter(|name| name.as_str().starts_with("manifest-")).collect()
}

/// Every byte of an object.
pub(crate) async fn read_all(object: &dyn Object) -> Result<Vec<u8>> {
    let read = object.read_at(0, IoBufMut::zeroed(object.len() as usize), IO).await?;
    Ok(read.to_vec())
}

/// Writes a whole, durable object of `data`.
pub(crate) async fn put(pool: &Spread, text: &str, data: &[u8]) -> Result<()> {
    pool.write_whole(&name(text), &Intent::DATA, IoBuf::from(data), IO).await
}

pub(crate) async fn get(pool: &Spread, text: &str) -> Result<Vec<u8>> {
    read_all(&*pool.open(&name(text)).await?).await
}
