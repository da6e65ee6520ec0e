use std::collections::BTreeMap;

use futures_util::FutureExt;
use policy::budget::Share;
use policy::contract::{Contract, Counted, Limit};
use policy::placement::{RoundRobin, VolumeId};
use policy::purpose::{Class, Io, Origin, Step};
use proptest::prelude::*;
use volume::layer::gate::Gate;
use volume::mem::Mem;
use volume::{Clock, Intent, IoBufMut, Name, Object, Volume};

use super::prefetch::Prefetcher;
use super::*;
use crate::spread::{Opening, Spread};
use crate::{Member, PoolId};

mod hits;
mod rewarm;

fn of(cache: &Cache, object: u64) -> CachedObject {
    CachedObject { cache: cache.clone(), object: ObjectId(object) }
}

fn found(object: &CachedObject, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    object.get(offset, len, |part| bytes.extend_from_slice(part)).then_some(bytes)
}

fn get(cache: &Cache, object: u64, offset: u64, len: usize) -> Option<Vec<u8>> {
    found(&of(cache, object), offset, len)
}

fn put(cache: &Cache, object: u64, offset: u64, bytes: &[u8]) {
    of(cache, object).insert(offset, bytes);
}

fn cache(bytes: u64) -> Cache {
    Cache::new(Options { bytes, policy: Some(Kind::Lrfu), prefetch: false, rewarm: false })
}

#[test]
fn a_read_is_found_again_and_its_beginning_too() {
    let cache = cache(MIB);
    put(&cache, 1, 100, b"block");
    assert_eq!(get(&cache, 1, 100, 5).as_deref(), Some(&b"block"[..]));
    assert_eq!(get(&cache, 1, 100, 3).as_deref(), Some(&b"blo"[..]));
    assert_eq!(get(&cache, 1, 100, 6), None, "more than was read");
    assert_eq!((get(&cache, 1, 101, 4), get(&cache, 2, 100, 5)), (None, None));
    let Figures { hits, misses, hit_bytes, entries, .. } = cache.figures();
    assert_eq!((hits, misses, hit_bytes, entries), (2, 3, 8, 1));
}

#[test]
fn a_longer_read_takes_the_place_of_a_shorter_one() {
    let cache = cache(MIB);
    put(&cache, 1, 0, b"blo");
    put(&cache, 1, 0, b"block");
    put(&cache, 1, 0, b"bl");
    assert_eq!(get(&cache, 1, 0, 5).as_deref(), Some(&b"block"[..]));
    assert_eq!(cache.figures().bytes, 5 + ENTRY_OVERHEAD);
}

#[test]
fn what_is_larger_than_a_block_can_be_is_not_kept() {
    let cache = cache(16 * MIB);
    put(&cache, 1, 0, &vec![0; ENTRY_MAX + 1]);
    assert_eq!(cache.figures().entries, 0);
}

/// A store whose indexes grow lowers the limit while others ask for figures: these once showed the new limit and the
/// bytes from before it.
#[test]
fn figures_never_show_more_bytes_than_the_limit_while_it_falls() {
    let cache = cache(16 * MIB);
    std::thread::scope(|scope| {
        let resizing = scope.spawn(|| {
            for round in 0..300 {
                cache.set_bytes(MIB);
                (0..40).for_each(|n| put(&cache, round, n << 20, &[0; 50_000]));
                cache.set_bytes(64 * KIB);
            }
        });
        while !resizing.is_finished() {
            let Figures { bytes, bytes_max, .. } = cache.figures();
            assert!(bytes <= bytes_max, "{bytes} bytes of {bytes_max}");
        }
    });
}

#[test]
fn a_damaged_read_is_not_served_twice() {
    let cache = cache(MIB);
    put(&cache, 1, 7, b"damaged");
    put(&cache, 1, 70, b"sound");
    of(&cache, 1).distrust(7, 7);
    assert_eq!(get(&cache, 1, 7, 7), None);
    assert!(get(&cache, 1, 70, 5).is_some());
}

/// Objects on gated volumes in memory, a cache over them, and its prefetcher.
struct Rig {
    clock: Clock,
    gates: Vec<Arc<Gate<Mem>>>,
    pool: Spread,
    cache: Cache,
    prefetcher: Prefetcher,
    objects: BTreeMap<u64, (Name, CachedObject, Arc<Handle>)>,
    next: u64,
}

const LABELS: [&str; 2] = ["a", "b"];

impl Rig {
    fn new(bytes: u64, policy: Option<Kind>) -> Self {
        let clock = Clock::simulated();
        let limit = Limit { counts: Counted::Ops, rate_per_sec: 1000, depth: 1000 };
        let contract = Contract { limits: vec![limit], ..Contract::unlimited() };
        let gate = |label| {
            Arc::new(Gate::new(Mem::new(label), label, &contract, Share::default(), clock.clone()))
        };
        let gates: Vec<_> = LABELS.map(gate).into();
        let members = gates.iter().zip(LABELS);
        let members = members.map(|(volume, label)| Member::new(label, Arc::clone(volume)));
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(1));
        let pool = clock.run(Spread::open(members.collect(), opening)).expect("memory opens");
        let cache = Cache::new(Options { bytes, policy, prefetch: true, rewarm: true });
        let prefetcher = Prefetcher::new(cache.clone());
        Self { clock, gates, pool, cache, prefetcher, objects: BTreeMap::new(), next: 0 }
    }

    /// Creates an object; returns its number in this test.
    fn create(&mut self, len: u64) -> u64 {
        let bytes: Vec<_> = (0..len).map(|offset| byte(self.next, offset)).collect();
        self.create_with(&bytes)
    }

    /// The same with zeros only.
    fn create_blank(&mut self, len: u64) -> u64 {
        self.create_with(&vec![0; len as usize])
    }

    fn create_with(&mut self, bytes: &[u8]) -> u64 {
        let number = self.next;
        self.next += 1;
        let name = Name::new(&format!("{number}.sst")).expect("a name");
        let io = Io::new(Origin::Flush, Step::Data);
        let made = self.pool.write_whole(&name, &Intent::DATA, bytes.into(), io);
        self.clock.run(made).expect("memory takes it");
        let handle = self.clock.run(self.pool.open_handle(&name)).expect("it was made");
        let handle = Arc::new(handle);
        self.objects.insert(number, (name, self.cache.open(&handle), handle));
        number
    }

    fn remove(&mut self, number: u64) {
        let (name, _, handle) = self.objects.remove(&number).expect("it is there");
        self.clock.run(self.pool.remove(&name)).expect("it is there");
        self.cache.forget(handle.id());
    }

    /// A user's read of up to `len` bytes: true from the cache; otherwise the bytes are inserted.
    fn read(&self, number: u64, offset: u64, len: u64) -> bool {
        let (_, cached, handle) = &self.objects[&number];
        let len = handle.len().saturating_sub(offset).min(len);
        let expected: Vec<_> = (offset..offset + len).map(|offset| byte(number, offset)).collect();
        if let Some(found) = found(cached, offset, len as usize) {
            assert!(found == expected, "{len} bytes at {offset} of {number}");
            return true;
        }
        cached.insert(offset, &expected);
        false
    }

    /// Reads at several places of a block, until it is warm.
    fn warm(&self, number: u64, index: u64) {
        for n in 0..4 {
            self.read(number, index * BLOCK + n * 8192, 100);
        }
    }

    /// Makes the prefetcher wait for operations from now on.
    fn starve(&self) {
        self.gates.iter().for_each(|gate| gate.set_contract(&slow()));
        // Users take the remaining tokens.
        for (_, _, handle) in self.objects.values() {
            let io = Io::new(Origin::UserRead, Step::Data);
            self.clock.run(handle.read_at(0, IoBufMut::zeroed(4096), io)).expect("a read");
        }
    }

    fn second(&mut self, used: f64) {
        self.prefetcher.on_second([VolumeId(0), VolumeId(1)].map(|volume| (volume, used)));
    }

    fn work(&mut self) {
        self.clock.run(self.prefetcher.work());
    }

    /// Operations of class idle.
    fn idle_ops(&self) -> u64 {
        self.gates.iter().map(|gate| gate.meter().classes[Class::Idle.index()].spent.ops).sum()
    }

    fn blocks(&self) -> u64 {
        self.cache.figures().blocks
    }
}

const BLOCK: u64 = Block::BYTES;

#[test]
fn a_warm_block_is_read_ahead_for_one_operation_and_answers_reads() {
    let mut rig = Rig::new(8 * MIB, None);
    let object = rig.create(3 * BLOCK);
    rig.warm(object, 1);
    rig.second(0.1);
    rig.work();
    let Figures { blocks, prefetches, useful, misses, .. } = rig.cache.figures();
    assert_eq!((blocks, prefetches, useful, misses, rig.idle_ops()), (1, 1, 0, 4, 1));
    assert!(rig.read(object, BLOCK, BLOCK), "all of it");
    assert!(rig.read(object, BLOCK + 77_777, 5000));
    assert!(!rig.read(object, BLOCK - 1, 2), "its neighbour is not here");
    assert!(!rig.read(object, 2 * BLOCK - 1, 2));
    let Figures { useful, prefetched_hits, .. } = rig.cache.figures();
    assert_eq!((useful, prefetched_hits), (1, 2));
}

#[test]
fn a_read_over_two_blocks_is_answered_if_both_are_here() {
    let mut rig = Rig::new(8 * MIB, None);
    let object = rig.create(2 * BLOCK);
    rig.warm(object, 0);
    rig.warm(object, 1);
    rig.second(0.1);
    rig.work();
    assert!(rig.read(object, BLOCK - 2000, 4101));
}

#[test]
fn the_last_block_ends_where_its_object_does() {
    for rest in [1, 4095, 4096, 4097, 100_000, BLOCK - 1] {
        let mut rig = Rig::new(8 * MIB, None);
        let object = rig.create(BLOCK + rest);
        for _ in 0..4 {
            rig.read(object, BLOCK, 1);
        }
        rig.second(0.1);
        rig.work();
        assert!(rig.read(object, BLOCK, rest), "{rest} bytes");
        let (_, cached, _) = &rig.objects[&object];
        assert_eq!(found(cached, BLOCK, rest as usize + 1), None, "past the end of the object");
        assert_eq!(cached.block(1).map(|bytes| bytes.len() as u64), Some(rest));
    }
}

#[test]
fn a_volume_whose_users_need_all_of_it_is_left_alone() {
    let mut rig = Rig::new(8 * MIB, None);
    let object = rig.create(BLOCK);
    rig.second(1.0);
    rig.warm(object, 0);
    rig.second(1.0);
    rig.work();
    assert_eq!((rig.blocks(), rig.idle_ops()), (0, 0));
    rig.warm(object, 0);
    rig.second(0.3);
    rig.work();
    assert_eq!((rig.blocks(), rig.idle_ops()), (1, 1), "now there is some to spare");
}

#[test]
fn what_waits_when_a_volume_becomes_heavy_is_given_up() {
    let mut rig = Rig::new(8 * MIB, None);
    let object = rig.create(BLOCK);
    rig.warm(object, 0);
    rig.starve();
    rig.second(0.1);
    assert!(rig.prefetcher.work().now_or_never().is_none(), "it waits");
    assert_eq!(rig.cache.figures().bytes, prefetched::BLOCK_BYTES, "and has its room");
    rig.second(1.0);
    rig.second(1.0);
    rig.work();
    assert_eq!((rig.blocks(), rig.idle_ops(), rig.cache.figures().bytes), (0, 0, 0));
}

/// A contract whose gate has no tokens for seconds.
fn slow() -> Contract {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: 1, depth: 1 };
    Contract { limits: vec![limit], ..Contract::unlimited() }
}

#[test]
fn an_object_that_goes_takes_its_blocks_along_even_those_on_their_way() {
    let mut rig = Rig::new(8 * MIB, None);
    let (here, coming) = (rig.create(BLOCK), rig.create(BLOCK));
    rig.warm(here, 0);
    rig.second(0.1);
    rig.work();
    assert_eq!(rig.blocks(), 1);
    rig.warm(coming, 0);
    rig.starve();
    rig.second(0.1);
    assert!(rig.prefetcher.work().now_or_never().is_none(), "it waits");
    // The reads under way keep the leaf object alive, so the cache itself must drop the block.
    rig.remove(coming);
    rig.remove(here);
    rig.work();
    let Figures { blocks, bytes, wasted, .. } = rig.cache.figures();
    assert_eq!((blocks, bytes, wasted), (0, 0, 1));
    rig.second(0.1);
    rig.work();
    assert_eq!(rig.blocks(), 0, "and its heat is gone too");
}

#[test]
fn a_block_takes_the_room_of_single_reads_only_if_it_saves_more() {
    let mut rig = Rig::new(2 * MIB, Some(Kind::Lrfu));
    let (reads, neighbourhood) = (rig.create(8 * BLOCK), rig.create(BLOCK));
    let read_all = |rig: &Rig| (0..480).filter(|at| rig.read(reads, at * 4096, 4096)).count();
    rig.second(1.0);
    rig.second(1.0);
    // Only single reads for a while, which fill the cache.
    for _ in 0..14 {
        read_all(&rig);
        rig.second(1.0);
        rig.work();
    }
    let full = rig.cache.figures();
    assert!(full.bytes_max - full.bytes < BLOCK, "{full:?}");
    let mut answered = 0;
    for _ in 0..8 {
        answered = read_all(&rig);
        rig.warm(neighbourhood, 0);
        rig.second(0.1);
        rig.work();
    }
    assert_eq!(answered, 480, "64 single reads a second are worth more");
    for _ in 0..60 {
        rig.second(1.0);
    }
    rig.second(0.1);
    for n in 0..8 {
        rig.read(neighbourhood, 50_000 + n, 100);
    }
    rig.second(0.1);
    rig.work();
    assert_eq!(rig.blocks(), 1, "the single reads have become cold");
    let Figures { entries, bytes, bytes_max, .. } = rig.cache.figures();
    assert!(entries < full.entries && bytes <= bytes_max);
}

#[test]
fn a_block_that_cannot_be_read_is_not_tried_again_until_it_is_warm_again() {
    let mut rig = Rig::new(8 * MIB, None);
    let object = rig.create(BLOCK);
    rig.warm(object, 0);
    let images: Vec<_> = rig.gates.iter().map(|gate| gate.inner().image()).collect();
    let volumes = rig.gates.iter().zip(&images);
    for (gate, image) in volumes {
        for name in image.keys().filter(|name| name.as_str().starts_with('o')) {
            let object = rig.clock.run(gate.inner().open(name)).expect("it is there");
            rig.clock.run(object.set_len(10)).expect("memory is cut");
        }
    }
    for _ in 0..3 {
        rig.second(0.1);
        rig.work();
    }
    assert_eq!((rig.blocks(), rig.cache.figures().bytes), (0, 0));
    let prefetched = rig.cache.0.prefetched.as_ref().expect("it prefetches");
    let mut warm = Vec::new();
    prefetched.sweep(1, |block, heat| warm.extend((heat > 0.0).then_some(block)));
    assert_eq!(warm, []);
}

/// An event of a cache.
#[derive(Clone, Debug)]
enum Event {
    Create {
        len: u64,
    },
    Remove,
    Read {
        object: u64,
        offset: u64,
        len: u64,
    },
    /// A second passes; planned reads are finished, or only begun.
    Second {
        used: f64,
        wait: bool,
    },
    Resize {
        bytes: u64,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1..4 * BLOCK).prop_map(|len| Event::Create { len }),
        1 => Just(Event::Remove),
        40 => (0u64..8, 0u64..40, 1u64..6000)
            .prop_map(|(object, at, len)| Event::Read { object, offset: at * 9000, len }),
        8 => (prop::sample::select(vec![0.1, 1.0]), any::<bool>())
            .prop_map(|(used, wait)| Event::Second { used, wait }),
        1 => (0u64..3_000_000).prop_map(|bytes| Event::Resize { bytes }),
    ]
}

/// A byte of an object: it differs from its neighbours, and from that of other objects.
fn byte(object: u64, offset: u64) -> u8 {
    (object * 31 + offset + offset / 251) as u8
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_gives_the_bytes_of_the_object_and_never_holds_too_many(
        kind in prop::option::of(prop::sample::select(&Kind::ALL[..])),
        bytes in 0u64..3_000_000,
        events in prop::collection::vec(any_event(), 1..300),
    ) {
        let mut rig = Rig::new(bytes, kind);
        rig.create(2 * BLOCK + 5000);
        for event in events {
            match event {
                Event::Create { len } => {
                    rig.create(len);
                }
                Event::Remove => {
                    if let Some((&oldest, _)) = rig.objects.iter().nth(1) {
                        rig.remove(oldest);
                    }
                }
                Event::Read { object, offset, len } => {
                    // The bytes are compared there.
                    let number = *rig.objects.keys().nth(object as usize % rig.objects.len()).expect("one");
                    rig.read(number, offset, len);
                }
                Event::Second { used, wait } => {
                    rig.second(used);
                    if wait {
                        rig.work();
                    } else {
                        let _ = rig.prefetcher.work().now_or_never();
                    }
                }
                Event::Resize { bytes } => {
                    rig.cache.set_bytes(bytes);
                    rig.second(0.1);
                }
            }
            let Figures { bytes, bytes_max, .. } = rig.cache.figures();
            prop_assert!(bytes <= bytes_max, "{bytes} bytes of {bytes_max}");
        }
        while let Some((&number, _)) = rig.objects.iter().next() {
            rig.remove(number);
        }
        rig.work();
        let Figures { bytes, entries, blocks, .. } = rig.cache.figures();
        prop_assert_eq!((bytes, entries, blocks), (0, 0, 0));
    }
}
