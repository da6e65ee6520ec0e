use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn get(cache: &Cache, object: u64, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    cache
        .of(ObjectId(object))
        .get(offset, len, |part| bytes.extend_from_slice(part))
        .then_some(bytes)
}

fn put(cache: &Cache, object: u64, offset: u64, bytes: &[u8]) {
    cache.of(ObjectId(object)).insert(offset, bytes);
}

fn cache(bytes: u64) -> Cache {
    Cache::new(Options { bytes, policy: Some(Kind::S3Fifo) })
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

#[test]
fn a_damaged_read_is_not_served_twice() {
    let cache = cache(MIB);
    put(&cache, 1, 7, b"damaged");
    put(&cache, 1, 70, b"sound");
    cache.of(ObjectId(1)).distrust(7);
    assert_eq!(get(&cache, 1, 7, 7), None);
    assert!(get(&cache, 1, 70, 5).is_some());
}

/// Something that happens to a cache.
#[derive(Clone, Debug)]
enum Event {
    /// A read, which goes to the object if it is not cached, and is kept then.
    Read {
        object: u64,
        offset: u64,
        len: usize,
    },
    Forget {
        object: u64,
    },
    Resize {
        bytes: u64,
    },
}

fn any_event() -> impl Strategy<Value = Event> {
    let object = 0u64..6;
    prop_oneof![
        20 => (object.clone(), 0u64..40, 1usize..6000)
            .prop_map(|(object, at, len)| Event::Read { object, offset: at * 3000, len }),
        1 => object.prop_map(|object| Event::Forget { object }),
        1 => (0u64..300_000).prop_map(|bytes| Event::Resize { bytes }),
    ]
}

/// The bytes of every object: each differs from its neighbours and from the same one of others.
fn byte(object: u64, offset: u64) -> u8 {
    (object * 31 + offset + offset / 251) as u8
}

proptest! {
    #[test]
    fn it_gives_the_bytes_of_the_object_and_never_holds_too_many(
        kind in prop::sample::select(&Kind::ALL[..]),
        bytes in 0u64..300_000,
        events in prop::collection::vec(any_event(), 1..300),
    ) {
        let cache = Cache::new(Options { bytes, policy: Some(kind) });
        // The longest read kept at each place, if none of it went.
        let mut kept: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        let mut most = bytes;
        for event in events {
            match event {
                Event::Read { object, offset, len } => {
                    let expected: Vec<_> =
                        (offset..offset + len as u64).map(|at| byte(object, at)).collect();
                    if let Some(found) = get(&cache, object, offset, len) {
                        prop_assert_eq!(found, expected);
                        prop_assert!(kept.get(&(object, offset)).is_some_and(|&kept| len <= kept));
                    } else {
                        put(&cache, object, offset, &expected);
                        let longest = kept.entry((object, offset)).or_default();
                        *longest = len.max(*longest);
                    }
                }
                Event::Forget { object } => {
                    cache.forget(ObjectId(object));
                    kept.retain(|&(other, _), _| other != object);
                }
                Event::Resize { bytes } => {
                    cache.set_bytes(bytes);
                    most = bytes;
                }
            }
            let figures = cache.figures();
            prop_assert!(figures.bytes <= most, "{} bytes of {most}", figures.bytes);
            prop_assert!(figures.entries <= kept.len() as u64);
        }
        for object in 0..6 {
            cache.forget(ObjectId(object));
        }
        prop_assert_eq!((cache.figures().bytes, cache.figures().entries), (0, 0));
    }
}
