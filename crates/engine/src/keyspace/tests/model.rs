//! Random transactions, compared with maps in memory.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::keyspace::{Expiry, KeysPage};

/// Three keys on a stripe, two on another, one by itself.
static KEYS: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let space = Stage::new().space;
    let keys = [(0, 3), (1, 2), (2, 1)].map(|(stripe, n)| neighbours(&space, stripe).take(n));
    keys.into_iter().flatten().map(Bytes::from).collect()
});

/// Times of the wall clock, and of expiries.
const TIMES: std::ops::Range<u64> = 1000..1010;

const SCORES: [f64; 7] = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 2.5, f64::INFINITY];

#[derive(Clone, Debug)]
enum Step {
    Transaction {
        ops: Vec<Op>,
        everything: bool,
        /// Whether each key gets the weakest touch that its calls need.
        minimal: bool,
        commit: bool,
        /// The call of the store that fails; 0 for none.
        fails_in: u64,
    },
    RemoveExpired,
    Clock(u64),
    Reopen,
}

/// A call on a transaction, with the index of its key first.
#[derive(Clone, Debug)]
enum Op {
    Kind(usize),
    Expires(usize),
    String(usize),
    PutString(usize, Bytes, Expiry),
    HashLen(usize),
    HashGet(usize, Vec<Bytes>),
    HashEntries(usize, Option<Bytes>, usize),
    HashSet(usize, Vec<(Bytes, Bytes)>),
    HashDelete(usize, Vec<Bytes>),
    SortedLen(usize),
    SortedScores(usize, Vec<Bytes>),
    SortedPut(usize, Vec<(Bytes, f64)>),
    SortedDelete(usize, Vec<Bytes>),
    SortedRange(usize, (Bound<f64>, Bound<f64>), bool, usize, usize),
    SortedCount(usize, (Bound<f64>, Bound<f64>)),
    SortedMembers(usize, Option<Bytes>, usize),
    Delete(usize),
    SetExpires(usize, Option<u64>),
    Keys(usize, usize),
    Count,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..6_usize;
    let name = || (0..12_u8).prop_map(|n| Bytes::from(format!("e{n}")));
    let names = || vec(name(), 0..14);
    let value = || vec(any::<u8>(), 0..12).prop_map(Bytes::from);
    let score = || select(&SCORES[..]);
    let bound = move || {
        prop_oneof![
            Just(Bound::Unbounded),
            score().prop_map(Bound::Included),
            score().prop_map(Bound::Excluded),
        ]
    };
    let expiry = prop_oneof![Just(Expiry::Never), Just(Expiry::Keep), TIMES.prop_map(Expiry::At)];
    let max = || prop_oneof![3 => 0..14_usize, 1 => Just(usize::MAX)];
    prop_oneof![
        1 => key.clone().prop_map(Op::Kind),
        1 => key.clone().prop_map(Op::Expires),
        1 => key.clone().prop_map(Op::String),
        3 => (key.clone(), value(), expiry).prop_map(|(k, v, e)| Op::PutString(k, v, e)),
        1 => key.clone().prop_map(Op::HashLen),
        1 => (key.clone(), names()).prop_map(|(k, f)| Op::HashGet(k, f)),
        2 => (key.clone(), proptest::option::of(name()), max())
            .prop_map(|(k, a, m)| Op::HashEntries(k, a, m)),
        4 => (key.clone(), vec((name(), value()), 0..14)).prop_map(|(k, e)| Op::HashSet(k, e)),
        2 => (key.clone(), names()).prop_map(|(k, f)| Op::HashDelete(k, f)),
        1 => key.clone().prop_map(Op::SortedLen),
        1 => (key.clone(), names()).prop_map(|(k, m)| Op::SortedScores(k, m)),
        4 => (key.clone(), vec((name(), score()), 0..14)).prop_map(|(k, s)| Op::SortedPut(k, s)),
        2 => (key.clone(), names()).prop_map(|(k, m)| Op::SortedDelete(k, m)),
        3 => (key.clone(), (bound(), bound()), any::<bool>(), 0..8_usize, max())
            .prop_map(|(k, b, r, s, m)| Op::SortedRange(k, b, r, s, m)),
        1 => (key.clone(), (bound(), bound())).prop_map(|(k, b)| Op::SortedCount(k, b)),
        2 => (key.clone(), proptest::option::of(name()), max())
            .prop_map(|(k, a, m)| Op::SortedMembers(k, a, m)),
        2 => key.clone().prop_map(Op::Delete),
        2 => (key.clone(), proptest::option::of(TIMES))
            .prop_map(|(k, e)| Op::SetExpires(k, e)),
        2 => (key, 0..8_usize).prop_map(|(k, m)| Op::Keys(k, m)),
        1 => Just(Op::Count),
        1 => Just(Op::Clear),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let fails_in = prop_oneof![3 => Just(0), 1 => 1..12_u64];
    let often = || prop_oneof![4 => Just(true), 1 => Just(false)];
    let seldom = often().prop_map(|often| !often);
    let transaction = (vec(op(), 1..8), seldom, any::<bool>(), often(), fails_in);
    let transaction = transaction.prop_map(|(ops, everything, minimal, commit, fails_in)| {
        Step::Transaction { ops, everything, minimal, commit, fails_in }
    });
    prop_oneof![
        8 => transaction,
        1 => Just(Step::RemoveExpired),
        2 => TIMES.prop_map(Step::Clock),
        1 => Just(Step::Reopen),
    ]
}

impl Op {
    fn touch(&self) -> Option<(usize, Touch)> {
        let (key, touch) = match self {
            Op::Kind(key) | Op::Expires(key) | Op::HashLen(key) | Op::SortedLen(key) => {
                (key, Touch::Look)
            }
            Op::String(key) => (key, Touch::Peek),
            Op::HashGet(key, _) | Op::HashEntries(key, ..) => (key, Touch::Read),
            Op::SortedScores(key, _) | Op::SortedRange(key, ..) => (key, Touch::Read),
            Op::SortedCount(key, _) | Op::SortedMembers(key, ..) => (key, Touch::Read),
            Op::PutString(key, ..) => (key, Touch::Replace),
            Op::HashSet(key, _) | Op::HashDelete(key, _) => (key, Touch::Write),
            Op::SortedPut(key, _) | Op::SortedDelete(key, _) => (key, Touch::Write),
            Op::Delete(key) | Op::SetExpires(key, _) => (key, Touch::Write),
            Op::Keys(..) | Op::Count | Op::Clear => return None,
        };
        Some((*key, touch))
    }

    /// The answer, printed.
    fn run(&self, on: &mut Transaction<'_>) -> Result<String> {
        let key = |key: &usize| &KEYS[*key];
        Ok(match self {
            Op::Kind(k) => format!("{:?}", on.kind(key(k))?),
            Op::Expires(k) => format!("{:?}", on.expires(key(k))?),
            Op::String(k) => format!("{:?}", on.string(key(k))?),
            Op::PutString(k, value, expiry) => {
                format!("{:?}", on.put_string(key(k), value.clone(), *expiry)?)
            }
            Op::HashLen(k) => format!("{:?}", on.hash_len(key(k))?),
            Op::HashGet(k, fields) => format!("{:?}", on.hash_get(key(k), fields)?),
            Op::HashEntries(k, after, max) => {
                format!("{:?}", on.hash_entries(key(k), after.as_deref(), *max)?)
            }
            Op::HashSet(k, entries) => format!("{:?}", on.hash_set(key(k), entries)?),
            Op::HashDelete(k, fields) => format!("{:?}", on.hash_delete(key(k), fields)?),
            Op::SortedLen(k) => format!("{:?}", on.sorted_len(key(k))?),
            Op::SortedScores(k, members) => format!("{:?}", on.sorted_scores(key(k), members)?),
            Op::SortedPut(k, scored) => format!("{:?}", on.sorted_put(key(k), scored)?),
            Op::SortedDelete(k, members) => format!("{:?}", on.sorted_delete(key(k), members)?),
            Op::SortedRange(k, scores, reverse, skip, max) => {
                format!("{:?}", on.sorted_range(key(k), *scores, *reverse, *skip, *max)?)
            }
            Op::SortedCount(k, scores) => format!("{:?}", on.sorted_count(key(k), *scores)?),
            Op::SortedMembers(k, after, max) => {
                format!("{:?}", on.sorted_members(key(k), after.as_deref(), *max)?)
            }
            Op::Delete(k) => format!("{:?}", on.delete(key(k))?),
            Op::SetExpires(k, expires) => format!("{:?}", on.set_expires(key(k), *expires)?),
            Op::Keys(k, max) => format!("{:?}", on.keys(key(k), *max)?),
            Op::Count => format!("{:?}", on.count()?),
            Op::Clear => {
                on.clear();
                "cleared".into()
            }
        })
    }
}

/// The keys with a main record in the store.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model(BTreeMap<Bytes, Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    expires: Option<u64>,
    holds: Holds,
}

#[derive(Clone, Debug, PartialEq)]
enum Holds {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Sorted(BTreeMap<Bytes, f64>),
}

impl Holds {
    fn kind(&self) -> Kind {
        match self {
            Self::String(_) => Kind::String,
            Self::Hash(_) => Kind::Hash,
            Self::Sorted(_) => Kind::SortedSet,
        }
    }

    fn hash(&mut self) -> Result<&mut BTreeMap<Bytes, Bytes>> {
        if let Self::Hash(hash) = self { Ok(hash) } else { Err(Error::WrongKind) }
    }

    fn sorted(&mut self) -> Result<&mut BTreeMap<Bytes, f64>> {
        if let Self::Sorted(set) = self { Ok(set) } else { Err(Error::WrongKind) }
    }
}

impl Entry {
    fn is_over(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Model {
    /// The model of the records in the store.
    fn of(records: &BTreeMap<Bytes, Bytes>) -> Self {
        let elements = |range: KeyRange| {
            let elements = records.iter().filter(move |(record, _)| range.contains(record));
            elements.map(|(record, value)| (format::element_name(record), value.clone()))
        };
        let mains = records.iter().filter(|(record, _)| record[0] == format::KEYS);
        let entries = mains.map(|(record, value)| {
            let Main { expires, value } = Main::decode(value).expect("a main record");
            let score = |bytes: Bytes| f64::from_le_bytes(bytes[..].try_into().expect("a score"));
            let holds = match value {
                Value::String(value) => Holds::String(value),
                Value::Hash(hash) => Holds::Hash(elements(format::fields(hash.id)).collect()),
                Value::SortedSet(set) => Holds::Sorted(
                    elements(format::members(set.id)).map(|(m, s)| (m, score(s))).collect(),
                ),
            };
            (record.slice(1..), Entry { expires, holds })
        });
        Self(entries.collect())
    }

    fn live(&mut self, key: &Bytes, now: u64) -> Option<&mut Entry> {
        self.0.get_mut(key).filter(|entry| !entry.is_over(now))
    }

    /// The entry for a change; an expired key is removed first.
    fn opened(&mut self, key: &Bytes, now: u64) -> Option<&mut Entry> {
        if self.0.get(key).is_some_and(|entry| entry.is_over(now)) {
            self.0.remove(key);
        }
        self.0.get_mut(key)
    }

    fn remove_if(&mut self, key: &Bytes, removed: bool) {
        if removed {
            self.0.remove(key);
        }
    }

    fn keys(&self, from: &Bytes, max: usize, now: u64) -> KeysPage {
        let max = max.max(1);
        let page: Vec<_> = self.0.range::<Bytes, _>(from..).take(max).collect();
        let next = page.last().filter(|_| page.len() == max);
        let next = next.map(|(key, _)| [key, &b"\0"[..]].concat().into());
        let live = page.into_iter().filter(|(_, entry)| !entry.is_over(now));
        let keys = live.map(|(key, entry)| (key.clone(), entry.holds.kind())).collect();
        KeysPage { keys, next }
    }

    /// The answer, printed as [`Op::run`] does.
    fn run(&mut self, op: &Op, now: u64) -> Result<String> {
        let key = |key: &usize| &KEYS[*key];
        Ok(match op {
            Op::Kind(k) => {
                format!("{:?}", self.live(key(k), now).map(|entry| entry.holds.kind()))
            }
            Op::Expires(k) => format!("{:?}", self.live(key(k), now).map(|entry| entry.expires)),
            Op::String(k) => match self.live(key(k), now).map(|entry| &entry.holds) {
                None => format!("{:?}", None::<Bytes>),
                Some(Holds::String(value)) => format!("{:?}", Some(value)),
                Some(_) => return Err(Error::WrongKind),
            },
            Op::PutString(k, value, expiry) => {
                let expires = match expiry {
                    Expiry::Never => None,
                    Expiry::Keep => self.opened(key(k), now).and_then(|entry| entry.expires),
                    Expiry::At(expires) => Some(*expires),
                };
                let holds = Holds::String(value.clone());
                self.0.insert(key(k).clone(), Entry { expires, holds });
                "()".into()
            }
            Op::HashLen(k) => match self.live(key(k), now) {
                None => "0".into(),
                Some(entry) => entry.holds.hash()?.len().to_string(),
            },
            Op::HashGet(k, fields) => {
                let mut none = BTreeMap::new();
                let hash = match self.live(key(k), now) {
                    None => &mut none,
                    Some(entry) => entry.holds.hash()?,
                };
                format!("{:?}", fields.iter().map(|field| hash.get(field)).collect::<Vec<_>>())
            }
            Op::HashEntries(k, after, max) => {
                let mut none = BTreeMap::new();
                let hash = match self.live(key(k), now) {
                    None => &mut none,
                    Some(entry) => entry.holds.hash()?,
                };
                let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let behind = hash.range::<Bytes, _>((from, Bound::Unbounded));
                format!("{:?}", behind.take(*max).collect::<Vec<_>>())
            }
            Op::HashSet(k, entries) => {
                let mut made = BTreeMap::new();
                let old = self.opened(key(k), now);
                let is_new = old.is_none();
                let hash = match old {
                    None => &mut made,
                    Some(entry) => entry.holds.hash()?,
                };
                let before = hash.len();
                hash.extend(entries.iter().cloned());
                let created = hash.len() - before;
                if is_new && created > 0 {
                    let entry = Entry { expires: None, holds: Holds::Hash(made) };
                    self.0.insert(key(k).clone(), entry);
                }
                created.to_string()
            }
            Op::HashDelete(k, fields) => {
                let Some(entry) = self.opened(key(k), now) else { return Ok("0".into()) };
                let hash = entry.holds.hash()?;
                let deleted = fields.iter().filter(|field| hash.remove(*field).is_some()).count();
                let emptied = hash.is_empty();
                self.remove_if(key(k), emptied);
                deleted.to_string()
            }
            Op::SortedLen(k) => match self.live(key(k), now) {
                None => "0".into(),
                Some(entry) => entry.holds.sorted()?.len().to_string(),
            },
            Op::SortedScores(k, members) => {
                let mut none = BTreeMap::new();
                let set = match self.live(key(k), now) {
                    None => &mut none,
                    Some(entry) => entry.holds.sorted()?,
                };
                format!("{:?}", members.iter().map(|member| set.get(member)).collect::<Vec<_>>())
            }
            Op::SortedPut(k, scored) => {
                let mut made = BTreeMap::new();
                let old = self.opened(key(k), now);
                let is_new = old.is_none();
                let set = match old {
                    None => &mut made,
                    Some(entry) => entry.holds.sorted()?,
                };
                let before = set.clone();
                set.extend(scored.iter().map(|(member, score)| (member.clone(), score + 0.0)));
                let created = set.len() - before.len();
                let other = |(member, score): &(&Bytes, &f64)| {
                    before.get(*member).is_some_and(|before| before != *score)
                };
                let changed = set.iter().filter(other).count();
                if is_new && created > 0 {
                    let entry = Entry { expires: None, holds: Holds::Sorted(made) };
                    self.0.insert(key(k).clone(), entry);
                }
                format!("{:?}", (created, changed))
            }
            Op::SortedDelete(k, members) => {
                let Some(entry) = self.opened(key(k), now) else { return Ok("0".into()) };
                let set = entry.holds.sorted()?;
                let deleted = members.iter().filter(|member| set.remove(*member).is_some()).count();
                let emptied = set.is_empty();
                self.remove_if(key(k), emptied);
                deleted.to_string()
            }
            Op::SortedRange(k, scores, reverse, skip, max) => {
                let mut none = BTreeMap::new();
                let set = match self.live(key(k), now) {
                    None => &mut none,
                    Some(entry) => entry.holds.sorted()?,
                };
                let mut found: Vec<_> = set.iter().map(|(member, score)| (score, member)).collect();
                found.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
                found.retain(|(score, _)| scores.contains(*score));
                if *reverse {
                    found.reverse();
                }
                let found = found.into_iter().skip(*skip).take(*max);
                format!("{:?}", found.map(|(score, member)| (member, score)).collect::<Vec<_>>())
            }
            Op::SortedCount(k, scores) => match self.live(key(k), now) {
                None => "0".into(),
                Some(entry) => {
                    let within = entry.holds.sorted()?.values().filter(|n| scores.contains(*n));
                    within.count().to_string()
                }
            },
            Op::SortedMembers(k, after, max) => {
                let mut none = BTreeMap::new();
                let set = match self.live(key(k), now) {
                    None => &mut none,
                    Some(entry) => entry.holds.sorted()?,
                };
                let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let behind = set.range::<Bytes, _>((from, Bound::Unbounded));
                format!("{:?}", behind.take(*max).collect::<Vec<_>>())
            }
            Op::Delete(k) => {
                let existed = self.opened(key(k), now).is_some();
                self.0.remove(key(k));
                existed.to_string()
            }
            Op::SetExpires(k, expires) => {
                let Some(entry) = self.opened(key(k), now) else { return Ok("false".into()) };
                entry.expires = *expires;
                let over = entry.is_over(now);
                self.remove_if(key(k), over);
                "true".into()
            }
            Op::Keys(k, max) => format!("{:?}", self.keys(key(k), *max, now)),
            Op::Count => format!("{:?}", Count { keys: self.0.len() as u64, exact: true }),
            Op::Clear => {
                self.0.clear();
                "cleared".into()
            }
        })
    }
}

impl Stage {
    /// Runs the transaction on both; gives the model after it.
    fn run(
        &self,
        model: &Model,
        ops: &[Op],
        touches: &Touches,
        commit: bool,
    ) -> std::result::Result<Model, TestCaseError> {
        let mut after = model.clone();
        let mut transaction = match self.space.begin(touches) {
            Ok(transaction) => transaction,
            Err(error) => {
                prop_assert_eq!(error, self.failure());
                return Ok(after);
            }
        };
        let now = transaction.now();
        for op in ops {
            let found = op.run(&mut transaction);
            if found == Err(self.failure()) {
                // The failed call may have removed an expired key, and nothing else.
                if let Some((key, _)) = op.touch()
                    && transaction.main(&KEYS[key]) == Ok(None)
                {
                    after.opened(&KEYS[key], now);
                }
            } else {
                prop_assert_eq!(found, after.run(op, now), "{:?}", op);
            }
        }
        if !commit {
            return Ok(model.clone());
        }
        match transaction.commit() {
            Ok(()) => Ok(after),
            Err(error) => {
                prop_assert_eq!(error, self.failure());
                Ok(model.clone())
            }
        }
    }
}

fn touched(ops: &[Op], everything: bool, minimal: bool) -> Touches {
    let mut touches = Touches::default();
    if everything {
        touches.add_everything();
    }
    for (key, touch) in ops.iter().filter_map(Op::touch) {
        touches.add(KEYS[key].clone(), if minimal { touch } else { Touch::Write });
    }
    touches
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn keys_are_maps_across_failures_reopenings_and_jumps_of_the_clock(
        steps in vec(step(), 1..24),
    ) {
        let mut stage = Stage::new();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Transaction { mut ops, everything, minimal, commit, fails_in } => {
                    if !everything {
                        ops.retain(|op| !matches!(op, Op::Clear));
                    }
                    let touches = touched(&ops, everything, minimal);
                    stage.fail_call(fails_in);
                    model = stage.run(&model, &ops, &touches, commit)?;
                    stage.fail_call(0);
                }
                Step::RemoveExpired => {
                    let (before, keys) = (stage.space.expired(), model.0.len());
                    while stage.space.remove_expired() == Ok(true) {}
                    let now = stage.space.now();
                    model.0.retain(|_, entry| !entry.is_over(now));
                    let removed = (keys - model.0.len()) as u64;
                    prop_assert_eq!(stage.space.expired() - before, removed);
                    let due = format::expiries(0, now + 1);
                    let none = Count { keys: 0, exact: true };
                    prop_assert_eq!(stage.store.count(&due), Ok(none));
                }
                Step::Clock(now) => stage.at(now),
                Step::Reopen => stage.reopen(),
            }
            stage.audit();
            prop_assert_eq!(&Model::of(&stage.store.everything()), &model);
        }
    }
}
