//! Column families: ships in one, the miles they sailed in another, and a batch over both.

use plimsoll::kv::{Family, Store};
use plimsoll::rust_rocksdb::{IteratorMode, MergeOperands, WriteBatch};
use plimsoll::volumes::{Volume, contract};

/// Sums up the values merged into a key.
fn sum(_key: &[u8], sum: Option<&[u8]>, miles: &MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let mut total = sum.map_or(Some(0), number)?;
    for miles in miles {
        total += number(miles)?;
    }
    Some(total.to_le_bytes().into())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("plimsoll-families-{}", std::process::id()));
    for round in 1..=2 {
        // The merge operator has to be given at every opening; families without special options are found by
        // themselves.
        let store = Store::builder()
            .volume(Volume::directory("a", dir.join("a"), contract("gp3")?).simulated())
            .family(Family::new("miles").rocks(|o| o.set_merge_operator_associative("sum", sum)))
            .open()?;
        if round == 1 {
            store.create_family(Family::new("ships"))?;
        }
        {
            let ships = store.cf_handle("ships").expect("it was made in the first round");
            let miles = store.cf_handle("miles").expect("it was named");
            let mut batch = WriteBatch::default();
            for (ship, sailed) in [("Cutty Sark", 360_u64), ("Thermopylae", 380)] {
                batch.put_cf(&ships, ship, "clipper");
                batch.merge_cf(&miles, ship, sailed.to_le_bytes());
            }
            store.write(&batch)?;
            for entry in store.iterator_cf(&miles, IteratorMode::Start) {
                let (ship, sailed) = entry?;
                let sailed = u64::from_le_bytes(sailed[..].try_into()?);
                println!("round {round}: {} sailed {sailed} miles", String::from_utf8_lossy(&ship));
            }
        }
        store.close()?;
    }
    Ok(std::fs::remove_dir_all(dir)?)
}
