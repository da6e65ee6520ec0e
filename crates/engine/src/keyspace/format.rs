//! The bytes of a keyspace in its store, as `docs/format/keyspace.md` specifies them.
//!
//! | record | key | value |
//! |---|---|---|
//! | a key's main record | `k` key | header, then the value, or the id of its collection |
//! | a field of a hash | `h` id field | value |
//! | a member of a sorted set | `m` id member | score |
//! | the same member by score | `z` id score member | nothing |
//! | an expiry | `t` milliseconds key | nothing |
//! | a stripe with collections | `c` stripe | nothing |
//! | the next unused id | `i` | id |
//! | the identity of the keyspace | `v` | magic, version, seed |
//!
//! Integers are big-endian in keys, so that byte order is numeric order, and little-endian in values.

use std::ops::Bound;

use bytes::{BufMut, Bytes, BytesMut};

use crate::kv::KeyRange;

/// Marks a store as a keyspace.
const MAGIC: &[u8; 8] = b"plimsoll";
/// The version of this format.
pub(super) const VERSION: u32 = 1;

/// The key of the next unused id.
pub(super) const NEXT_ID: &[u8] = b"i";
/// The key of magic, version and seed.
pub(super) const IDENTITY: &[u8] = b"v";
/// The prefix of main records.
pub(super) const KEYS: u8 = b'k';
/// The prefix of fields.
const HASHES: u8 = b'h';
/// The prefix of members.
const MEMBERS: u8 = b'm';
/// The prefix of members by score.
const SCORES: u8 = b'z';
/// The prefix of expiries.
pub(super) const EXPIRIES: u8 = b't';
/// The prefix of marks of stripes.
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

/// The id of a collection's elements, and how many there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Collection {
    /// Never reused: records that a removed collection leaves behind belong to no other one.
    pub(super) id: u64,
    /// At least one: an empty collection does not exist.
    pub(super) len: u64,
}

/// The value in a main record.
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

/// A main record without its bytes: enough for commands that report kind, expiry or length.
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

/// The record key of the main record of `key`.
pub(super) fn main_key(key: &[u8]) -> Bytes {
    joined(KEYS, &[key])
}

/// The record key of the mark of a stripe.
pub(super) fn mark_key(stripe: u16) -> Bytes {
    joined(MARKS, &[&stripe.to_be_bytes()])
}

/// The stripe whose mark this is.
pub(super) fn marked_stripe(record: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(record.get(1..)?.try_into().ok()?))
}

/// The record key of an expiry of `key`.
pub(super) fn expiry_key(expires: u64, key: &[u8]) -> Bytes {
    joined(EXPIRIES, &[&expires.to_be_bytes(), key])
}

/// The time and the key of an expiry.
pub(super) fn read_expiry(record: &Bytes) -> Option<(u64, Bytes)> {
    let expires = record.get(1..9)?.try_into().expect("eight bytes");
    Some((u64::from_be_bytes(expires), record.slice(9..)))
}

/// The expiries from `from` on and before `end`, in milliseconds.
pub(super) fn expiries(from: u64, end: u64) -> KeyRange {
    // From time 0 on, the range covers the whole prefix, so that a malformed expiry is found too.
    let first = if from == 0 { joined(EXPIRIES, &[]) } else { expiry_key(from, &[]) };
    KeyRange { from: first, to: Some(expiry_key(end, &[])) }
}

/// All records but the identity and the next unused id.
pub(super) fn data() -> [KeyRange; 6] {
    [KEYS, HASHES, MEMBERS, SCORES, EXPIRIES, MARKS]
        .map(|prefix| KeyRange::with_prefix(vec![prefix]))
}

/// The record key of a field of the hash `id`.
pub(super) fn field_key(id: u64, field: &[u8]) -> Bytes {
    joined(HASHES, &[&id.to_be_bytes(), field])
}

/// All fields of the hash `id`.
pub(super) fn fields(id: u64) -> KeyRange {
    KeyRange::with_prefix(field_key(id, &[]))
}

/// The field or the member, which follows prefix and id.
pub(super) fn element_name(record: &Bytes) -> Bytes {
    record.slice(1 + 8..)
}

/// The record key of the score of a member of the sorted set `id`.
pub(super) fn member_key(id: u64, member: &[u8]) -> Bytes {
    joined(MEMBERS, &[&id.to_be_bytes(), member])
}

/// The scores of all members of the sorted set `id`.
pub(super) fn members(id: u64) -> KeyRange {
    KeyRange::with_prefix(member_key(id, &[]))
}

/// The record key of a member of the sorted set `id` by its score.
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

/// A number that orders as scores do: bits of negative scores are inverted. Both zeros are one.
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

    /// Constants on purpose: a change of these bytes is a change of the format.
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
