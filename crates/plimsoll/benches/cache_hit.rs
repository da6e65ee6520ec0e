//! Time of a get whose block is cached, by what caches it: for docs/adr/0010.
//!
//! Memory for a volume, no limit, one thread; all data fit each cache. The caches take turns, and of
//! several rounds the least disturbed counts.

use plimsoll::kv::{CachePolicy, Compression, Options, Store};
use plimsoll::volumes::Volume;
use policy::contract::Contract;
use policy::units::MIB;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const KEYS: u32 = 20_000;
const ROUNDS: usize = 15;
const POLICIES: [CachePolicy; 5] = [
    CachePolicy::RocksDb,
    CachePolicy::Lrfu,
    CachePolicy::S3Fifo,
    CachePolicy::Sieve,
    CachePolicy::Lru,
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let stores: Vec<_> = POLICIES
            .into_iter()
            .map(|policy| filled(policy, compression))
            .collect::<Result<_, _>>()?;
        let mut best = [f64::MAX; POLICIES.len()];
        for _ in 0..ROUNDS {
            for (store, best) in stores.iter().zip(&mut best) {
                *best = best.min(nanos_a_get(store)?);
            }
        }
        for (policy, nanos) in POLICIES.iter().zip(best) {
            println!("{compression:?}, {policy:?}: {nanos:.0} ns a get");
        }
        stores.into_iter().try_for_each(Store::close)?;
    }
    Ok(())
}

fn filled(
    cache_policy: CachePolicy,
    compression: Compression,
) -> Result<Store, Box<dyn std::error::Error>> {
    let options = Options {
        cache_policy,
        prefetch: false,
        memory: 512 * MIB,
        compression,
        compression_last: compression,
        ..Options::default()
    };
    let store = Store::builder()
        .volume(Volume::memory("v", Contract::unlimited()))
        .options(options)
        .open()?;
    for n in 0..KEYS {
        // Half of each value is the same in all, as in much that people store.
        let mut value = [7; 256];
        Xoshiro256PlusPlus::seed_from_u64(n.into()).fill_bytes(&mut value[..128]);
        store.put(n.to_be_bytes(), value)?;
    }
    store.flush()?;
    Ok(store)
}

fn nanos_a_get(store: &Store) -> Result<f64, Box<dyn std::error::Error>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let began = store.clock().now();
    for _ in 0..2 * KEYS {
        let n = random.random_range(0..KEYS);
        if store.get_pinned(n.to_be_bytes())?.is_none() {
            return Err(format!("key {n} is gone").into());
        }
    }
    Ok(store.clock().now().since(began).as_nanos() as f64 / f64::from(2 * KEYS))
}
