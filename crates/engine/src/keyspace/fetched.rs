//! What a transaction fetches before it begins: the main records of its keys.

use std::collections::HashMap;

use bytes::Bytes;

use super::format::{self, Head};
use super::records::decode;
use super::touches::{Budget, ReadLimits, Touch, Touches};
use super::{Keyspace, Result};

/// A transaction fetches no further part ahead once its values have this many bytes.
pub const FETCHED_BYTES_MAX: usize = 16 << 20;
/// How many keys of several parts are fetched in one call. More: fewer calls of the store; but a value may be as long
/// as a client may send, and all of them are in memory before they are counted.
const PARTS_KEYS_MAX: usize = 8;

/// The most records looked at in one call of the store, where all of them together exceed the limit of a call. Few in
/// tests, so that borders are met.
const LOOKED_AT_ONCE: usize = if cfg!(test) { 3 } else { 128 };

/// What a transaction does with a record that it fetches ahead. The order matters: a key of several touches is fetched
/// for the first of them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Use {
    /// Holds it, to change it.
    Change,
    /// Holds it, to give it to the caller: its bytes count against the budget.
    Read,
    /// Keeps its head.
    Look,
}

/// What a transaction fetched ahead.
#[derive(Default)]
pub(super) struct Fetched {
    /// Records as the store has them.
    pub(super) records: HashMap<Bytes, Option<Bytes>>,
    /// Heads of main records whose value no touch needs.
    pub(super) heads: HashMap<Bytes, Option<Head>>,
    /// How many parts of the touches were fetched.
    pub(super) parts: usize,
}

impl Fetched {
    /// Fetches main records, and gives what they leave of `limits`. `None` where a part does not fit one call of the
    /// store and is not `locked`: without locks its keys may change between two calls.
    pub(super) fn of(
        space: &Keyspace,
        touches: &Touches,
        limits: ReadLimits,
        locked: bool,
    ) -> Result<Option<(Self, Budget)>> {
        let mut budget = Budget::new(limits);
        let mut fetched = Self::default();
        let (mut from, mut bytes) = (0, 0);
        let mut parts = touches.parts.iter().copied().enumerate().peekable();
        while let Some((n, end)) = parts.next() {
            let joins = |(_, next): &(usize, usize)| next - from <= PARTS_KEYS_MAX;
            if parts.peek().is_some_and(joins) {
                continue;
            }
            let keys = &touches.keys[from..end];
            let Some(more) = fetched.fetch(space, keys, &mut budget, locked)? else {
                return Ok(None);
            };
            bytes += more;
            (from, fetched.parts) = (end, n + 1);
            if bytes >= FETCHED_BYTES_MAX {
                return Ok(Some((fetched, budget)));
            }
        }
        let rest = fetched.fetch(space, &touches.keys[from..], &mut budget, locked)?;
        Ok(rest.map(|_| (fetched, budget)))
    }

    /// Fetches the main records of keys that are not there yet, and gives the number of their bytes.
    fn fetch(
        &mut self,
        space: &Keyspace,
        keys: &[(Bytes, Touch)],
        budget: &mut Budget,
        locked: bool,
    ) -> Result<Option<usize>> {
        let stripes = &space.stripes;
        let wanted = keys.iter().filter_map(|(key, touch)| {
            let usage = match touch {
                Touch::Look => Use::Look,
                Touch::Peek | Touch::Read => Use::Read,
                Touch::Write => Use::Change,
                Touch::Replace if stripes.may_have_collections(stripes.of(key)) => Use::Change,
                Touch::Replace => return None,
            };
            Some((format::main_key(key), usage))
        });
        let mut wanted: Vec<_> =
            wanted.filter(|(record, usage)| !self.has(record, *usage)).collect();
        if wanted.len() > 1 {
            wanted.sort_unstable();
            wanted.dedup_by(|later, kept| later.0 == kept.0);
        }
        if wanted.is_empty() {
            return Ok(Some(0));
        }
        let all: Vec<_> = wanted.iter().map(|(record, _)| record.clone()).collect();
        if let Some(values) = space.store.get_many_within(&all, budget.bytes_left)? {
            let mut bytes = 0;
            for ((record, usage), value) in wanted.into_iter().zip(values) {
                bytes += value.as_ref().map_or(0, Bytes::len);
                self.keep(record, usage, value, budget)?;
            }
            return Ok(Some(bytes));
        }
        // Too much for one call, unless the excess is in records that are changed or looked at, which have no limit.
        let of = |usage| {
            let some = wanted.iter().filter(move |(_, of)| *of == usage);
            some.map(|(record, _)| record.clone()).collect::<Vec<_>>()
        };
        let (changed, read, looked_at) = (of(Use::Change), of(Use::Read), of(Use::Look));
        if changed.is_empty() && looked_at.is_empty() {
            return Err(budget.too_long());
        }
        if !locked && wanted.len() > 1 {
            return Ok(None);
        }
        let mut bytes = 0;
        let mut keep =
            |records: &[Bytes], usage, values: Vec<Option<Bytes>>, budget: &mut Budget| {
                records.iter().zip(values).try_for_each(|(record, value)| {
                    bytes += value.as_ref().map_or(0, Bytes::len);
                    self.keep(record.clone(), usage, value, budget)
                })
            };
        if !read.is_empty() {
            let values = space.store.get_many_within(&read, budget.bytes_left)?;
            keep(&read, Use::Read, values.ok_or_else(|| budget.too_long())?, budget)?;
        }
        if !changed.is_empty() {
            keep(&changed, Use::Change, space.store.get_many(&changed)?, budget)?;
        }
        let (mut rest, mut at_once) = (&looked_at[..], LOOKED_AT_ONCE);
        while !rest.is_empty() {
            let (some, behind) = rest.split_at(at_once.min(rest.len()));
            let limit = budget.limits.bytes_max.min(FETCHED_BYTES_MAX);
            let max = if some.len() > 1 { limit } else { usize::MAX };
            match space.store.get_many_within(some, max)? {
                Some(values) => {
                    keep(some, Use::Look, values, budget)?;
                    rest = behind;
                }
                None => at_once = some.len().div_ceil(2),
            }
        }
        Ok(Some(bytes))
    }

    /// Whether the record needs no further fetch for this use.
    fn has(&self, record: &Bytes, usage: Use) -> bool {
        self.records.contains_key(record) || usage == Use::Look && self.heads.contains_key(record)
    }

    /// Keeps the part of a record that its use needs.
    fn keep(
        &mut self,
        record: Bytes,
        usage: Use,
        value: Option<Bytes>,
        budget: &mut Budget,
    ) -> Result<()> {
        if usage == Use::Look {
            let main = value.map(|value| decode(&record[1..], &value)).transpose()?;
            self.heads.insert(record, main.map(|main| main.head()));
            return Ok(());
        }
        if usage == Use::Read {
            let bytes = value.as_ref().map_or(0, Bytes::len);
            budget.bytes_left = budget.bytes_left.saturating_sub(bytes);
        }
        self.records.insert(record, value);
        Ok(())
    }
}
