//! Rust that the guides quote. `src/guide.rs` compares the lines with those of the guides.

use plimsoll::kv::{self, Family, Options, Store};
use plimsoll::pool::Spread;
use plimsoll::rust_rocksdb::MergeOperands;
use plimsoll::volume::Clock;
use plimsoll::volumes::{Volume, contract};

type Done = Result<(), Box<dyn std::error::Error>>;

fn sum(_: &[u8], before: Option<&[u8]>, more: &MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let sum = before.into_iter().chain(more).filter_map(number).sum::<u64>();
    Some(sum.to_le_bytes().to_vec())
}

/// `docs/guide/kv.md`, "Column families".
#[test]
fn families_come_and_go() -> Done {
    let dir = tempfile::tempdir()?;
    let volume = Volume::directory("a", dir.path(), contract("unlimited")?);
    #[rustfmt::skip] // The lines of the guide.
    let store = Store::builder()
        .volume(volume)
        .family(Family::new("miles").rocks(|options| options.set_merge_operator_associative("sum", sum)))
        .family(Family::new("logs").tables(|tables| tables.set_block_size(32 << 10)))
        .open()?;
    store.create_family(Family::new("ships"))?;
    let ships = store.cf_handle("ships").expect("it was made");
    store.put_cf(&ships, "1", "Samaritan")?;
    store.drop_cf("ships")?;
    drop(ships);
    assert!(store.cf_handle("ships").is_none() && store.cf_handle("miles").is_some());
    Ok(store.close()?)
}

/// `docs/guide/kv.md`, "Checkpoints and backups".
#[expect(dead_code, reason = "compiled; the directory of its backups is the reader's")]
fn copies(store: &Store, pool: Spread, clock: Clock, options: Options) -> Done {
    #[rustfmt::skip] // The lines of the guide.
    {
        store.checkpoint("monday")?;
        store.back_up("/mnt/elsewhere/backups")?;
        kv::restore(pool.clone(), clock.clone(), &options, "/mnt/elsewhere/backups")?;
        kv::destroy(pool, clock, "kv/monday")?;
    };
    Ok(())
}

/// `docs/guide/kv.md`, at its beginning.
#[expect(dead_code, reason = "compiled; the volumes are the reader's")]
#[rustfmt::skip] // The lines of the guide.
mod program {
    use plimsoll::kv::Store;
    use plimsoll::volumes::{Volume, contract};

    fn main() -> Result<(), Box<dyn std::error::Error>> {
        let gp3 = contract("gp3")?;
        let store = Store::builder()
            .volume(Volume::directory("a", "/mnt/ebs-a", gp3.clone()))
            .volume(Volume::directory("b", "/mnt/ebs-b", gp3))
            .open()?;
        store.put("ship", "plimsoll")?;
        let ship = store.get("ship")?;
        println!("{ship:?}");
        store.close()?;
        Ok(())
    }
}
