//! The store in twenty lines: two volumes, a key, and what comes back.

use plimsoll::kv::Store;
use plimsoll::volumes::{Volume, contract};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Without `simulated` these are directories on mounted devices.
    let dir = std::env::temp_dir().join(format!("plimsoll-embed-{}", std::process::id()));
    let volume = |name: &str| -> Result<Volume, Box<dyn std::error::Error>> {
        Ok(Volume::directory(name, dir.join(name), contract("gp3")?).simulated())
    };

    let store = Store::builder().volume(volume("a")?).volume(volume("b")?).open()?;
    store.put("ship", "plimsoll")?;
    let ship = store.get("ship")?.expect("it was put");
    println!("ship: {}", String::from_utf8_lossy(&ship));
    store.close()?;

    Ok(std::fs::remove_dir_all(dir)?)
}
