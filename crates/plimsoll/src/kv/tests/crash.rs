//! The machine or the process ends at a random moment during transactions of a keyspace. Each transaction is there as a
//! whole or not at all, and acknowledged ones are.

use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::keyspace::{self, Expiry, Keyspace, Kind, Touch, Touches, Transaction};
use policy::units::KIB;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Volume;
use volume::layer::crash::{Crash, Power};

use super::*;

/// Keys that one transaction writes, all of them with one version.
const TOGETHER: u64 = 3;
/// The number of such groups. Each writer has some of them.
const GROUPS: u64 = 4;
const WRITERS: u64 = 2;
/// The most elements of a collection: some are deleted singly, some as a range.
const ELEMENTS: u64 = 90;
/// No expiry of this test is due.
const FAR: u64 = 1 << 50;

/// The value of a key.
enum Holds {
    Nothing,
    String,
    Hash(u64),
    Sorted(u64),
}

/// The value of the key `i` of a group in a version: all kinds take turns.
fn holds(i: u64, version: u64) -> Holds {
    match (version + i) % 5 {
        _ if version == 0 => Holds::Nothing,
        0 => Holds::Nothing,
        1 => Holds::String,
        2 => Holds::Hash(1 + version % ELEMENTS),
        3 => Holds::Hash(1 + 7 * version % ELEMENTS),
        _ => Holds::Sorted(1 + version % ELEMENTS),
    }
}

fn key(group: u64, i: u64) -> Bytes {
    format!("{group}/{i}").into()
}

fn names(range: Range<u64>) -> Vec<Bytes> {
    range.map(|n| format!("e{n:02}").into()).collect()
}

fn number(version: u64) -> Bytes {
    version.to_string().into()
}

fn fields(n: u64, version: u64) -> Vec<(Bytes, Bytes)> {
    names(0..n).into_iter().map(|name| (name, number(version))).collect()
}

fn scored(n: u64, version: u64) -> Vec<(Bytes, f64)> {
    names(0..n).into_iter().map(|name| (name, version as f64)).collect()
}

fn touches(group: u64, touch: Touch) -> Touches {
    let mut touches = Touches::default();
    (0..TOGETHER).for_each(|i| touches.add(key(group, i), touch));
    touches
}

/// Replaces the value of a key by that of `version`.
fn write(on: &mut Transaction<'_>, key: &[u8], to: &Holds, version: u64) -> keyspace::Result<()> {
    let kind = on.kind(key)?;
    match to {
        Holds::Nothing => drop(on.delete(key)?),
        Holds::String => on.put_string(key, number(version), Expiry::At(FAR + version))?,
        Holds::Hash(n) => {
            if kind != Some(Kind::Hash) {
                on.delete(key)?;
            }
            on.hash_set(key, &fields(*n, version))?;
            on.hash_delete(key, &names(*n..ELEMENTS))?;
        }
        Holds::Sorted(n) => {
            if kind != Some(Kind::SortedSet) {
                on.delete(key)?;
            }
            on.sorted_put(key, &scored(*n, version))?;
            on.sorted_delete(key, &names(*n..ELEMENTS))?;
        }
    }
    Ok(())
}

fn write_group(space: &Keyspace, group: u64, version: u64) -> keyspace::Result<()> {
    let mut transaction = space.begin(&touches(group, Touch::Write))?;
    for i in 0..TOGETHER {
        write(&mut transaction, &key(group, i), &holds(i, version), version)?;
    }
    transaction.commit()
}

/// Whether a key has its value of `version`, to the last element.
fn is(on: &mut Transaction<'_>, key: &[u8], expected: &Holds, version: u64) -> bool {
    let kind = on.kind(key).expect("a kind");
    let elements = usize::MAX;
    match expected {
        Holds::Nothing => kind.is_none(),
        Holds::String => {
            kind == Some(Kind::String)
                && on.string(key) == Ok(Some(number(version)))
                && on.expires(key) == Ok(Some(Some(FAR + version)))
        }
        Holds::Hash(n) => {
            kind == Some(Kind::Hash)
                && on.hash_len(key) == Ok(*n)
                && on.hash_entries(key, None, elements) == Ok(fields(*n, version))
        }
        Holds::Sorted(n) => {
            let all = (Bound::Unbounded, Bound::Unbounded);
            kind == Some(Kind::SortedSet)
                && on.sorted_len(key) == Ok(*n)
                && on.sorted_range(key, all, false, 0, elements) == Ok(scored(*n, version))
                && on.sorted_members(key, None, elements) == Ok(scored(*n, version))
        }
    }
}

/// Small memtables and tables, so that flushes and compactions are frequent. Enough memtables that no write waits for a
/// flush, which would be for ever on missing volumes. And enough jobs: RocksDB waits a second before it retries a
/// failed one, in threads that all stores share.
fn eager(durability: Durability) -> Options {
    Options {
        durability,
        memtable: Some(64 * KIB),
        memtables: 256,
        table_size: Some(64 * KIB),
        level_base: Some(256 * KIB),
        jobs: 32,
        ..small()
    }
}

fn open_on<V: Volume + Clone + 'static>(volumes: &[V], options: &Options) -> Option<Arc<Db>> {
    let members = volumes.iter().zip(["a", "b", "c"]);
    let members = members.map(|(volume, label)| Member::new(label, Arc::new(volume.clone())));
    let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(1));
    let pool = block_on(Spread::open(members.collect(), opening)).ok()?;
    open(pool, Clock::real(), options).ok().map(Arc::new)
}

fn keyspace_on(store: &Arc<Db>) -> keyspace::Result<Keyspace> {
    Keyspace::open(Arc::<Db>::clone(store), Box::new(|| 0), 1)
}

/// The versions of a group: the last acknowledged one, and the last one tried.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acknowledged: u64,
    tried: u64,
}

/// Writes versions of all groups until that fails.
fn write_until_the_end(space: &Keyspace) -> Vec<Known> {
    let writer = |n: u64| {
        let mut known = vec![Known::default(); GROUPS as usize];
        for turn in 0.. {
            let group = (turn * WRITERS + n) % GROUPS;
            let group_known = &mut known[group as usize];
            group_known.tried += 1;
            if write_group(space, group, group_known.tried).is_err() {
                break;
            }
            group_known.acknowledged = group_known.tried;
        }
        known
    };
    let known = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || writer(n))).collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect::<Vec<_>>()
    });
    // Each group belongs to one writer.
    (0..GROUPS).map(|group| known[(group % WRITERS) as usize][group as usize]).collect()
}

/// Checks that every group has one version, and that no other record is left.
fn check(survivors: &[Mem], known: &[Known], what: &str) {
    let store = open_on(survivors, &eager(Durability::Always)).expect("what survived opens");
    let space = keyspace_on(&store).expect("the keyspace opens");
    let (mut in_hashes, mut in_sets) = (0, 0);
    for (group, known) in known.iter().enumerate() {
        let group = group as u64;
        let mut on = space.begin(&touches(group, Touch::Read)).expect("it begins");
        let mut whole = |version| {
            (0..TOGETHER).all(|i| is(&mut on, &key(group, i), &holds(i, version), version))
        };
        let survived = whole(known.acknowledged) || whole(known.tried);
        assert!(survived, "{what}: group {group} is neither version of {known:?}");
        for key in (0..TOGETHER).map(|i| key(group, i)) {
            in_hashes += on.hash_len(&key).unwrap_or(0);
            in_sets += on.sorted_len(&key).unwrap_or(0);
        }
    }
    let records = |prefix: &'static [u8]| store.count(&KeyRange::with_prefix(prefix));
    let exactly = |keys| Ok(Count { keys, exact: true });
    assert_eq!(records(b"h"), exactly(in_hashes), "{what}: fields");
    assert_eq!(records(b"m"), exactly(in_sets), "{what}: members");
    assert_eq!(records(b"z"), exactly(in_sets), "{what}: members by score");
    // The keyspace goes on from there, and uses no id twice.
    for (group, known) in known.iter().enumerate() {
        let (group, version) = (group as u64, known.tried + 1);
        write_group(&space, group, version).expect("it goes on");
        let mut on = space.begin(&touches(group, Touch::Read)).expect("it begins");
        for i in 0..TOGETHER {
            assert!(is(&mut on, &key(group, i), &holds(i, version), version), "{what}: afterwards");
        }
    }
}

/// Runs a round for each seed, several at once.
fn rounds(seeds: u64, round: impl Fn(u64) + Sync) {
    const AT_ONCE: u64 = 8;
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let seed = next.fetch_add(1, Ordering::Relaxed)
                    && seed < seeds
                {
                    round(seed);
                }
            });
        }
    });
}

/// Volumes on one power supply, written to until it is cut.
fn crashed(random: &mut Xoshiro256PlusPlus, durability: Durability) -> (Vec<Crash>, Vec<Known>) {
    let power = Power::new();
    let volumes: Vec<_> =
        ["a", "b", "c"].iter().map(|label| Crash::new(Mem::new(label), &power)).collect();
    // Opening a pool and a store takes some hundred steps.
    power.cut_after(random.next_u64() % 3000);
    let store = open_on(&volumes, &eager(durability));
    let space = store.as_ref().and_then(|store| keyspace_on(store).ok());
    let nothing = vec![Known::default(); GROUPS as usize];
    let known = space.map_or(nothing, |space| write_until_the_end(&space));
    assert!(power.is_off());
    (volumes, known)
}

#[test]
fn acknowledged_transactions_survive_a_power_cut_whole() {
    rounds(24, |seed| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (volumes, known) = crashed(&mut random, Durability::Always);
        let survivors: Vec<_> = volumes.iter().map(|v| v.survivor(random.next_u64())).collect();
        check(&survivors, &known, &format!("seed {seed}"));
    });
}

#[test]
fn acknowledged_transactions_survive_the_process_whole() {
    rounds(16, |seed| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (volumes, known) = crashed(&mut random, Durability::EverySec);
        let survivors: Vec<_> = volumes.iter().map(Crash::after_process_death).collect();
        check(&survivors, &known, &format!("seed {seed}"));
    });
}
