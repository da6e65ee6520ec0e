//! Inspecting stores without opening them.

use super::*;

#[test]
fn a_damaged_record_of_the_write_ahead_log_is_named() {
    let world = World::new();
    let store = world.with_database();
    for time in 0..5 {
        world.clock.run(store.write(one("a", time, 1.0), None)).unwrap();
    }
    let mem = world.crash.after_process_death();
    let image = mem.image();
    let (name, bytes) =
        image.iter().find(|(name, _)| name.as_str().starts_with("series-wal/")).expect("a segment");
    let volume: Arc<dyn Volume> = Arc::new(mem.clone());
    let members = vec![("v0".to_string(), volume)];
    let look = || world.clock.run(inspect(&members, "series", true)).unwrap();
    assert_eq!(world.clock.run(stores_on(&members)).unwrap(), ["series"]);

    let whole = look();
    assert_eq!((whole.segments, whole.records), (1, 5), "{whole:?}");
    assert_eq!((whole.damage.len(), whole.blocks.flaws.len()), (0, 0), "{whole:?}");

    // The second record: behind the length, the checksum and the body of the first.
    let first = u32::from_le_bytes(bytes[64..68].try_into().unwrap());
    let second = 64 + 8 + u64::from(first);
    mem.damage(name, second + 10, |byte| *byte ^= 1);
    let found = look();
    assert_eq!(found.records, 4, "{found:?}");
    let [damage] = &found.damage[..] else { panic!("{found:?}") };
    assert_eq!((damage.offset, damage.what.contains("v0: series-wal/")), (second, true));
    assert!(damage.resumes > second);
    assert_eq!(mem.image().len(), image.len(), "nothing is made or removed");
}
