//! The scrub of a store on volumes of its own.

use super::upkeep::{open_on, tended};
use super::*;

const PERIOD: Duration = Duration::from_secs(1000);

/// A store on a volume of its own, with several sealed files.
fn with_sealed_files() -> (World, Mem, Store) {
    let (world, mem, store) = without_files();
    // So short a time is no part of a pass.
    world.clock.run(tended(&store, fill(&world, &store)));
    (world, mem, store)
}

fn without_files() -> (World, Mem, Store) {
    let (mut world, mem) = (World::new(), Mem::new("v0"));
    world.options.scrub_every = Some(PERIOD);
    let store = open_on(&world, Arc::new(mem.clone()));
    (world, mem, store)
}

/// Writes several files, and waits until they are sealed.
async fn fill(world: &World, store: &Store) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for n in 0..600 {
        let mut batch = Batch::new("db");
        // A text that a block does not make shorter.
        let value: String = (0..500).map(|_| rng.random_range('!'..='~')).collect();
        row(&mut batch, "a", "f", n * SECOND, Value::Text(&value));
        store.write(batch, None).await.unwrap();
    }
    store.flush().await.unwrap();
    world.clock.sleep(Duration::from_secs(1)).await;
}

/// Damages a byte of each page of the sealed files; gives how many live records that damages.
fn rot(mem: &Mem, store: &Store) -> u64 {
    for (id, len) in store.0.log.sealed() {
        let image = mem.image();
        let is_it = |name: &&Name| name.as_str().ends_with(&format!("/{:010x}.log", id.0));
        let file = image.keys().find(is_it).expect("a sealed file");
        (120..len).step_by(4096).for_each(|at| mem.damage(file, at, |byte| *byte ^= 1));
    }
    // All at once, in a copy.
    let (copy, mem) = (World::new(), Mem::from_image("v0", mem.image()));
    let lost = copy.clock.run(open_again(&copy, &mem).0.log.scrub()).unwrap().lost.len();
    assert!(lost >= 8, "{lost}");
    lost as u64
}

fn after(world: &World, store: &Store, wait: Duration) -> u64 {
    world.clock.run(tended(store, world.clock.sleep(wait)));
    store.health().damaged
}

#[test]
fn damage_that_nothing_reads_shows_within_the_period() {
    let (world, mem, store) = with_sealed_files();
    let all = rot(&mem, &store);
    assert_eq!(after(&world, &store, PERIOD / 100), 0, "it reads no file at once");
    let found = after(&world, &store, PERIOD / 2);
    assert!((1..all).contains(&found), "{found} of {all}: it does not wait for the end");
    assert_eq!(after(&world, &store, PERIOD / 2), all);
}

/// A pass that began without a file read the first ones at its end, all at once.
#[test]
fn the_first_files_of_a_store_are_spread_over_the_period_too() {
    let (world, mem, store) = without_files();
    let watched = async {
        world.clock.sleep(PERIOD / 100).await;
        fill(&world, &store).await;
        let all = rot(&mem, &store);
        // The task looks for files once a minute.
        world.clock.sleep(PERIOD / 2 + Duration::from_secs(60)).await;
        let found = store.health().damaged;
        assert!((1..all).contains(&found), "{found} of {all}");
        world.clock.sleep(PERIOD / 2).await;
        assert_eq!(store.health().damaged, all);
    };
    world.clock.run(tended(&store, watched));
}

#[test]
fn a_restart_goes_on_with_the_pass() {
    let (world, mem, store) = with_sealed_files();
    let all = rot(&mem, &store);
    let first = after(&world, &store, PERIOD * 6 / 10);
    assert!((1..all).contains(&first), "{first} of {all}");
    world.clock.run(store.close()).unwrap();
    let store = open_again(&world, &mem);
    let second = after(&world, &store, PERIOD * 4 / 10);
    assert_eq!((first + second, second > 0), (all, true), "each file once");
}

#[test]
fn a_close_waits_for_no_pass() {
    let (world, _, store) = with_sealed_files();
    let began = world.clock.now();
    let close = async {
        world.clock.sleep(Duration::from_secs(1)).await;
        store.close().await.unwrap();
    };
    // All tasks end.
    world.clock.run(futures_util::future::join(store.tend(), close));
    assert!(world.clock.now().since(began) < Duration::from_secs(5));
}

fn open_again(world: &World, mem: &Mem) -> Store {
    let members = vec![("v0".to_string(), Arc::new(mem.clone()) as Arc<dyn Volume>)];
    let opening = Store::open(members, world.options.clone(), world.clock.clone(), Some(ID));
    world.clock.run(opening).unwrap().0
}
