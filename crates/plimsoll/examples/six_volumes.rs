//! One store over six simulated volumes, read by many threads at full speed: the load of each volume against its paid
//! rate.

use std::time::Duration;

use plimsoll::kv::{Options, Store};
use plimsoll::volumes::{Volume, contract};

const KEYS: u64 = 40_000;
const THREADS: u64 = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("plimsoll-six-{}", std::process::id()));
    let mut store = Store::builder();
    for name in ["s1", "s2", "s3", "s4", "s5", "s6"] {
        store = store.volume(Volume::directory(name, dir.join(name), contract("gp3")?).simulated());
    }
    // Small tables, so that each volume gets a share of few data, and no data in memory, so that each read reaches a
    // volume.
    let options = Options {
        memtable: Some(256 << 10),
        table_size: Some(256 << 10),
        cache_data: false,
        ..Options::default()
    };
    let store = store.options(options).open()?;

    for key in 0..KEYS {
        let value: Vec<u8> = (0..256).map(|i| (mix(key * 256 + i) >> 56) as u8).collect();
        store.put(key.to_be_bytes(), value)?;
    }
    store.flush()?;
    store.compact_range::<&[u8], &[u8]>(None, None);

    let devices = store.devices().here();
    let issued =
        || devices.iter().map(|device| device.gate().meter().spent().ops).collect::<Vec<_>>();
    let (before, start) = (issued(), store.clock().now());
    let run = Duration::from_secs(2);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let keys = (0_u64..).map(|n| mix(n * THREADS + thread) % KEYS);
                for key in keys {
                    let found = store.get(key.to_be_bytes()).expect("no volume fails here");
                    assert!(found.is_some(), "what was put is there");
                    if store.clock().now().since(start) > run {
                        return;
                    }
                }
            });
        }
    });
    let seconds = store.clock().now().since(start).as_secs_f64();
    for ((device, before), after) in devices.iter().zip(before).zip(issued()) {
        let line = device.gate().meter().contract.paid_iops().unwrap_or(0);
        let used = (after - before) as f64 / seconds;
        let over = device.seen_by_provider().map_or(0, |seen| seen.throttled);
        println!("{}: {used:4.0} of {line} I/Os a second, {over} over the line", device.name());
    }
    store.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}

/// Numbers that look drawn at random: the finalizer of `SplitMix64`.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
