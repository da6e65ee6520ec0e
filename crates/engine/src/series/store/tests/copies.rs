//! A store on a pool with two copies of everything, one of which rots on either volume.

use pool::spread::Damage;
use volume::Name;

use super::*;

const SOURCES: [&str; 3] = ["a", "b", "c"];
const POINTS: i64 = 120;

/// A pool on two volumes, and the options of a store on it.
struct Copies {
    world: World,
    mems: Vec<Mem>,
    pool: Spread,
}

impl Copies {
    fn new() -> Self {
        let world = World::new();
        let mems: Vec<_> = (0..2).map(|n| Mem::new(&format!("v{n}"))).collect();
        let members = mems.iter().map(|mem| Member::new(mem.label(), mem.clone())).collect();
        let opening = Opening::new(RoundRobin::default()).copies(2).create_if_missing(PoolId(5));
        let pool = world.clock.run(Spread::open(members, opening)).unwrap();
        Self { world, mems, pool }
    }

    fn open(&self) -> Store {
        let members = vec![("pool".to_string(), Arc::new(self.pool.clone()) as Arc<dyn Volume>)];
        let (options, clock) = (self.world.options.clone(), self.world.clock.clone());
        self.world.clock.run(Store::open(members, options, clock, Some(ID))).unwrap().0
    }

    /// Writes the points with these numbers.
    fn write(&self, store: &Store, numbers: std::ops::Range<i64>) {
        for n in numbers {
            for source in SOURCES {
                let batch = one(source, n * SECOND, n as f64);
                self.world.clock.run(store.write(batch, None)).unwrap();
            }
        }
    }

    fn assert_all_reads(&self, store: &Store, points: i64) {
        for source in SOURCES {
            let selector = Selector::all("db")
                .tagged(Predicate::Tag("s".into(), Test::Is(source.to_string())));
            let [info] = &store.find(&selector, None, 2).unwrap()[..] else { panic!("{source}") };
            let found = self.world.points(store, info.id, Scan::of(Span::ALL)).unwrap();
            let expected: Vec<_> =
                (0..points).map(|n| (n * SECOND, Scalar::Float(n as f64))).collect();
            assert_eq!(found, expected, "{source}");
        }
    }

    /// Flips a bit in each page of the volume's copies of objects whose name begins with `prefix`; returns how many
    /// copies that are.
    fn rot(&self, volume: usize, prefix: &str) -> u64 {
        let mut rotten = 0;
        for (leaf, bytes) in self.leaves(volume, prefix) {
            let pages = (0..bytes.len()).step_by(4096).map(|page| page + 120);
            let used: Vec<_> = pages.filter(|&at| bytes.get(at).is_some_and(|b| *b != 0)).collect();
            for &at in &used {
                self.mems[volume].damage(&leaf, at as u64, |byte| *byte ^= 1);
            }
            rotten += u64::from(!used.is_empty());
        }
        rotten
    }

    /// The copies on a volume of the objects whose name begins with `prefix`, without hints.
    fn leaves(&self, volume: usize, prefix: &str) -> Vec<(Name, Vec<u8>)> {
        let objects = self.pool.objects().into_iter().filter(|object| {
            let name = object.name.as_str();
            name.starts_with(prefix) && (name.ends_with(".seg") || name.ends_with(".log"))
        });
        let image = self.mems[volume].image();
        let leaves = objects.map(|object| {
            let id = object.id.to_string();
            let leaf = image.iter().find(|(leaf, _)| leaf.as_str()[1..].starts_with(&id));
            let (leaf, bytes) = leaf.expect("each volume has a copy");
            (leaf.clone(), bytes.clone())
        });
        leaves.collect()
    }

    fn assert_alike(&self, prefix: &str) {
        let bytes = |volume: usize| -> Vec<Vec<u8>> {
            self.leaves(volume, prefix).into_iter().map(|(_, bytes)| bytes).collect()
        };
        assert!(bytes(0) == bytes(1), "copies of {prefix} differ");
    }
}

/// Queries failed or not by the copy that a read was routed to, and a merge kept the damage for ever.
#[test]
fn a_rotten_copy_of_blocks_fails_no_query_and_is_repaired() {
    for volume in 0..2 {
        let copies = Copies::new();
        let store = copies.open();
        copies.world.clock.run(store.create_database(database(None))).unwrap();
        copies.write(&store, 0..POINTS);
        copies.world.clock.run(store.flush()).unwrap();
        let rotten = copies.rot(volume, "series-blocks/");
        assert!(rotten > 0);
        for _ in 0..8 {
            copies.assert_all_reads(&store, POINTS);
        }
        copies.world.tend(&store);
        copies.assert_all_reads(&store, POINTS);
        let scrubbed = copies.world.clock.run(store.0.log.scrub()).unwrap();
        assert_eq!((scrubbed.lost, scrubbed.harmless), (vec![], vec![]));
        assert_eq!(store.health().damaged, 0);
        let Damage { found, left, .. } = copies.pool.damage();
        assert!((1..=rotten).contains(&found) && left == 0, "{found} of {rotten}, {left} left");
        // All blocks were read from both copies by now, or written anew.
        copies.world.clock.run(store.close()).unwrap();
        for _ in 0..8 {
            let found = copies.world.clock.run(log_scrub(&store)).unwrap();
            assert_eq!(found, 0);
        }
        copies.assert_alike("series-blocks/");
    }
}

async fn log_scrub(store: &Store) -> volume::Result<usize> {
    store.0.log.scrub().await.map(|scrubbed| scrubbed.lost.len())
}

/// The write-ahead log ended at the first rotten record of the copy that was read: acknowledged points were lost.
#[test]
fn a_rotten_copy_of_the_write_ahead_log_loses_no_point() {
    for volume in 0..2 {
        let copies = Copies::new();
        let store = copies.open();
        copies.world.clock.run(store.create_database(database(None))).unwrap();
        copies.write(&store, 0..20);
        drop(store);
        for _ in 0..4 {
            assert!(copies.rot(volume, "series-wal/") > 0);
            // A program that ends without a word: the next one replays the log.
            let store = copies.open();
            copies.assert_all_reads(&store, 20);
        }
        assert_eq!(copies.pool.damage().left, 0);
    }
}
