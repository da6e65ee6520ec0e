//! The bytes of a keyspace in its store, as `docs/format/keyspace.md` has them.
//!
//! | record | key | value |
//! |---|---|---|
//! | a key's main record | `k` key | header, then the value or where its elements are |
//! | a field of a hash | `h` id field | value |
//! | a member of a sorted set | `m` id member | score |
//! | the same by score | `z` id score member | nothing |
//! | an expiry | `t` milliseconds key | nothing |
//! | a stripe with collections | `c` stripe | nothing |
//! | the next unused id | `i` | id |
//! | what this is | `v` | magic, version, seed |
//!
//! Integers in keys are big-endian, so that their order is that of the bytes; in values little-endian.

use std::ops::Bound;

use bytes::{BufMut, Bytes, BytesMut};

use crate::kv::KeyRange;

/// What marks a store as a keyspace.
const MAGIC: &[u8; 8] = b"plimsoll";
/// The version of everything here.
pub(super) const VERSION: u32 = 1;

/// Where the next unused id is.
pub(super) const NEXT_ID: &[u8] = b"i";
/// Where magic, version and seed are.
pub(super) const IDENTITY: &[u8] = b"v";
/// Every main record.
pub(super) const KEYS: u8 = b'k';
/// Every field.
const HASHES: u8 = b'h';
/// Every member.
const MEMBERS: u8 = b'm';
/// Every member by its score.
const SCORES: u8 = b'z';
/// Every expiry.
pub(super) const EXPIRIES: u8 = b't';
/// Every mark of a stripe.
pub(super) const MARKS: u8 = b'c';

/// Which kind of value a key has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A byte string.
    String,
    /// A map from fields to values.
    Hash,
    /// Members in the order of their scores.
    SortedSet,
}

/// Where the elements of a collection are, and how many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Collection {
    /// Never used again once the collection is gone: what is left of it is nobody's.
    pub(super) id: u64,
    /// At least one: an empty collection does not exist.
    pub(super) len: u64,
}

/// What a main record says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    String(Bytes),
    Hash(Collection),
    SortedSet(Collection),
}

impl Value {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::String(_) => Kind::String,
            Self::Hash(_) => Kind::Hash,
            Self::SortedSet(_) => Kind::SortedSet,
        }
    }
}

/// A key's main record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Main {
    /// Milliseconds since 1970 from which on the key does not exist.
    pub(super) expires: Option<u64>,
    pub(super) value: Value,
}

/// What a main record says without its bytes: what commands need that tell kind, expiry or length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    /// Milliseconds since 1970 from which on the key does not exist.
    pub(super) expires: Option<u64>,
    pub(super) kind: Kind,
    /// The bytes of a string, the elements of a collection.
    pub(super) len: u64,
}

const EXPIRES_FLAG: u8 = 0x80;

impl Main {
    pub(super) fn head(&self) -> Head {
        let len = match &self.value {
            Value::String(value) => value.len() as u64,
            Value::Hash(collection) | Value::SortedSet(collection) => collection.len,
        };
        Head { expires: self.expires, kind: self.value.kind(), len }
    }

    pub(super) fn encode(&self) -> Bytes {
        let kind = match self.value.kind() {
            Kind::String => 1,
            Kind::Hash => 2,
            Kind::SortedSet => 3,
        };
        let body = if let Value::String(value) = &self.value { value.len() } else { 16 };
        let mut out = BytesMut::with_capacity(1 + 8 + body);
        match self.expires {
            None => out.put_u8(kind),
            Some(expires) => {
                out.put_u8(kind | EXPIRES_FLAG);
                out.put_u64_le(expires);
            }
        }
        match &self.value {
            Value::String(value) => out.put_slice(value),
            Value::Hash(collection) | Value::SortedSet(collection) => {
                out.put_u64_le(collection.id);
                out.put_u64_le(collection.len);
            }
        }
        out.freeze()
    }

    /// `None` for bytes that are no main record of a version known here.
    pub(super) fn decode(record: &Bytes) -> Option<Self> {
        let header = *record.first()?;
        let mut rest = record.slice(1..);
        let expires = (header & EXPIRES_FLAG != 0).then(|| take_u64(&mut rest));
        let expires = match expires {
            None => None,
            Some(read) => Some(read?),
        };
        let mut collection = || {
            let (id, len) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
            (rest.is_empty() && len > 0).then_some(Collection { id, len })
        };
        let value = match header & !EXPIRES_FLAG {
            1 => Value::String(rest),
            2 => Value::Hash(collection()?),
            3 => Value::SortedSet(collection()?),
            _ => return None,
        };
        Some(Self { expires, value })
    }
}

fn take_u64(rest: &mut Bytes) -> Option<u64> {
    let taken = rest.get(..8)?.try_into().expect("eight bytes");
    *rest = rest.slice(8..);
    Some(u64::from_le_bytes(taken))
}

/// Magic, version and seed.
pub(super) fn identity(seed: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(20);
    out.put_slice(MAGIC);
    out.put_u32_le(VERSION);
    out.put_u64_le(seed);
    out.freeze()
}

/// The version and the seed; `None` for anything else.
pub(super) fn read_identity(record: &[u8]) -> Option<(u32, u64)> {
    let rest = record.strip_prefix(MAGIC)?;
    let (version, seed) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*version), u64::from_le_bytes(seed.try_into().ok()?)))
}

/// Where the main record of `key` is.
pub(super) fn main_key(key: &[u8]) -> Bytes {
    joined(KEYS, &[key])
}

/// Where the mark of a stripe is.
pub(super) fn mark_key(stripe: u16) -> Bytes {
    joined(MARKS, &[&stripe.to_be_bytes()])
}

/// The stripe whose mark this is.
pub(super) fn marked_stripe(record: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(record.get(1..)?.try_into().ok()?))
}

/// Where the expiry of `key` is.
pub(super) fn expiry_key(expires: u64, key: &[u8]) -> Bytes {
    joined(EXPIRIES, &[&expires.to_be_bytes(), key])
}

/// When which key expires.
pub(super) fn read_expiry(record: &Bytes) -> Option<(u64, Bytes)> {
    let expires = record.get(1..9)?.try_into().expect("eight bytes");
    Some((u64::from_be_bytes(expires), record.slice(9..)))
}

/// The expiries from `from` on and before `end`, in milliseconds.
pub(super) fn expiries(from: u64, end: u64) -> KeyRange {
    // From the beginning of time on, what is no expiry is found too.
    let first = if from == 0 { joined(EXPIRIES, &[]) } else { expiry_key(from, &[]) };
    KeyRange { from: first, to: Some(expiry_key(end, &[])) }
}

/// Everything but what this is and the next unused id.
pub(super) fn data() -> [KeyRange; 6] {
    [KEYS, HASHES, MEMBERS, SCORES, EXPIRIES, MARKS]
        .map(|prefix| KeyRange::with_prefix(vec![prefix]))
}

/// Where a field of the hash `id` is.
pub(super) fn field_key(id: u64, field: &[u8]) -> Bytes {
    joined(HASHES, &[&id.to_be_bytes(), field])
}

/// All fields of the hash `id`.
pub(super) fn fields(id: u64) -> KeyRange {
    KeyRange::with_prefix(field_key(id, &[]))
}

/// The field, or the member, that follows prefix and id.
pub(super) fn element_name(record: &Bytes) -> Bytes {
    record.slice(1 + 8..)
}

/// Where the score of a member of the sorted set `id` is.
pub(super) fn member_key(id: u64, member: &[u8]) -> Bytes {
    joined(MEMBERS, &[&id.to_be_bytes(), member])
}

/// The scores of all members of the sorted set `id`.
pub(super) fn members(id: u64) -> KeyRange {
    KeyRange::with_prefix(member_key(id, &[]))
}

/// Where a member of the sorted set `id` is by its score.
pub(super) fn score_key(id: u64, score: f64, member: &[u8]) -> Bytes {
    joined(SCORES, &[&id.to_be_bytes(), &ordered(score).to_be_bytes(), member])
}

/// All members of the sorted set `id` by their scores.
pub(super) fn scores(id: u64) -> KeyRange {
    KeyRange::with_prefix(joined(SCORES, &[&id.to_be_bytes()]))
}

/// The members of the sorted set `id` whose scores are between the bounds.
pub(super) fn scores_within(id: u64, (from, to): (Bound<f64>, Bound<f64>)) -> KeyRange {
    let all = scores(id);
    let at = |score: f64| joined(SCORES, &[&id.to_be_bytes(), &ordered(score).to_be_bytes()]);
    let behind = |score: f64| KeyRange::with_prefix(at(score)).to;
    KeyRange {
        from: match from {
            Bound::Unbounded => all.from,
            Bound::Included(score) => at(score),
            Bound::Excluded(score) => behind(score).expect("a prefix with 'z' has a successor"),
        },
        to: match to {
            Bound::Unbounded => all.to,
            Bound::Included(score) => behind(score),
            Bound::Excluded(score) => Some(at(score)),
        },
    }
}

/// The score and the member that such a key names.
pub(super) fn read_score(record: &Bytes) -> Option<(f64, Bytes)> {
    let score = record.get(9..17)?.try_into().expect("eight bytes");
    Some((unordered(u64::from_be_bytes(score)), record.slice(17..)))
}

/// A number whose order is that of the scores: negative ones are turned round. Both zeros are one.
fn ordered(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

fn unordered(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

fn joined(prefix: u8, parts: &[&[u8]]) -> Bytes {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = BytesMut::with_capacity(1 + len);
    out.put_u8(prefix);
    parts.iter().for_each(|part| out.put_slice(part));
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let collection = (any::<u64>(), 1..u64::MAX).prop_map(|(id, len)| Collection { id, len });
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40)
                .prop_map(|bytes| Value::String(bytes.into())),
            collection.clone().prop_map(Value::Hash),
            collection.prop_map(Value::SortedSet),
        ]
    }

    proptest! {
        #[test]
        fn a_main_record_is_read_as_it_was_written(expires: Option<u64>, value in value()) {
            let main = Main { expires, value };
            prop_assert_eq!(Main::decode(&main.encode()), Some(main));
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let bytes = Bytes::from(bytes);
            if let Some(main) = Main::decode(&bytes) {
                prop_assert_eq!(main.encode(), bytes);
            }
        }

        #[test]
        fn keys_by_score_have_the_order_of_scores(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            let (first, second) = (score_key(1, a, b""), score_key(1, b, b""));
            prop_assert_eq!(Some(first.cmp(&second)), a.partial_cmp(&b));
            prop_assert_eq!(read_score(&first), Some((a, Bytes::new())));
        }
    }

    /// Written down once: a change of these bytes is a change of the format.
    #[test]
    fn version_1_has_these_bytes() {
        let string = Main { expires: None, value: Value::String(Bytes::from_static(b"v")) };
        assert_eq!(string.encode(), &b"\x01v"[..]);
        let hash = Main { expires: Some(2), value: Value::Hash(Collection { id: 3, len: 4 }) };
        assert_eq!(
            hash.encode(),
            &b"\x82\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0"[..]
        );
        assert_eq!(expiry_key(1, b"k"), &b"t\0\0\0\0\0\0\0\x01k"[..]);
        assert_eq!(field_key(1, b"f"), &b"h\0\0\0\0\0\0\0\x01f"[..]);
        assert_eq!(member_key(1, b"m"), &b"m\0\0\0\0\0\0\0\x01m"[..]);
        assert_eq!(score_key(1, 1.0, b"m"), &b"z\0\0\0\0\0\0\0\x01\xbf\xf0\0\0\0\0\0\0m"[..]);
        assert_eq!(mark_key(258), &b"c\x01\x02"[..]);
        assert_eq!(read_identity(&identity(7)), Some((VERSION, 7)));
    }
}
