//! What goes wrong, and when: rules over calls, as pure decisions.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::layer::call::{Call, Op};
use crate::{Error, ErrorKind, IoBufMut, Result};

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// The call is not made and fails with this kind.
    Fail(ErrorKind),
    /// The call is made, and then fails with this kind: a time-out as its caller sees it.
    FailAfter(ErrorKind),
    /// The volume is full: no object is created or grows, and no space is free. Other calls succeed.
    Full,
    /// One bit of the data read or written is wrong, and the call succeeds.
    FlipBit,
    /// The call reads or writes only the first half; a write reports success.
    Short,
    /// The call reads or writes one page (4 KiB) further on, and succeeds.
    Misplaced,
    /// The call takes this much longer. Other effects apply as well.
    Slow(Duration),
}

impl Effect {
    /// Whether a call can fail this way.
    const fn concerns(self, op: Op) -> bool {
        match self {
            Self::Fail(_) | Self::FailAfter(_) | Self::Slow(_) => true,
            Self::Full => matches!(op, Op::Create | Op::Write | Op::SetLen | Op::Space),
            Self::FlipBit | Self::Short | Self::Misplaced => matches!(op, Op::Read | Op::Write),
        }
    }
}

/// Which calls go wrong, and how. Without conditions: every call that the effect can concern.
#[derive(Clone, Debug)]
pub struct Rule {
    effect: Effect,
    op: Option<Op>,
    volume: Option<Box<str>>,
    name: Option<Box<str>>,
    calls: Range<u64>,
}

impl Rule {
    /// All calls go wrong.
    #[must_use]
    pub const fn new(effect: Effect) -> Self {
        Self { effect, op: None, volume: None, name: None, calls: 0..u64::MAX }
    }

    /// Only calls of this method.
    #[must_use]
    pub fn on(self, op: Op) -> Self {
        Self { op: Some(op), ..self }
    }

    /// Only calls to the volume with this label.
    #[must_use]
    pub fn volume(self, label: &str) -> Self {
        Self { volume: Some(label.into()), ..self }
    }

    /// Only calls on objects whose name matches; `*` stands for any characters.
    #[must_use]
    pub fn named(self, pattern: &str) -> Self {
        Self { name: Some(pattern.into()), ..self }
    }

    /// Of the matching calls, only the `k`-th since the rule was added, counted from 0.
    #[must_use]
    pub fn nth(self, k: u64) -> Self {
        self.calls(k..k + 1)
    }

    /// Of the matching calls, only these, counted from 0 since the rule was added.
    #[must_use]
    pub fn calls(self, calls: Range<u64>) -> Self {
        Self { calls, ..self }
    }

    fn matches(&self, volume: &str, call: &Call) -> bool {
        let name =
            |pattern: &str| call.name.as_ref().is_some_and(|name| matches(pattern, name.as_str()));
        self.effect.concerns(call.op)
            && self.op.is_none_or(|op| op == call.op)
            && self.volume.as_deref().is_none_or(|label| label == volume)
            && self.name.as_deref().is_none_or(name)
    }
}

/// Whether `text` is `pattern`, in which each `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}

/// A handle to a rule in force, to lift it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Injected(u64);

/// The rules of one or several volumes. Clones are handles to the same plan.
#[derive(Clone)]
pub struct FaultPlan(Arc<Mutex<State>>);

struct State {
    rules: Vec<Active>,
    injected: u64,
    calls: u64,
    random: Xoshiro256PlusPlus,
}

struct Active {
    id: Injected,
    rule: Rule,
    /// Calls so far that match, whatever the rule's `calls` say.
    seen: u64,
}

impl FaultPlan {
    /// A plan without rules. Which bits flip depends on `seed` and the calls alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self(Arc::new(Mutex::new(State { rules: Vec::new(), injected: 0, calls: 0, random })))
    }

    /// Puts a rule in force from the next call on. Of several that match a call, the first added
    /// decides.
    pub fn inject(&self, rule: Rule) -> Injected {
        let mut state = self.0.lock();
        state.injected += 1;
        let id = Injected(state.injected);
        state.rules.push(Active { id, rule, seen: 0 });
        id
    }

    /// Lifts a rule: the volume is back, or has room again. Does nothing if it is lifted already.
    pub fn lift(&self, id: Injected) {
        self.0.lock().rules.retain(|active| active.id != id);
    }

    /// Lifts every rule.
    pub fn clear(&self) {
        self.0.lock().rules.clear();
    }

    /// Calls so far on all volumes, failed ones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Decides about a call to `volume`, on an object of `len` bytes if it is on one: the extra time it takes, and its
    /// end.
    pub(super) fn decide(
        &self,
        volume: &str,
        call: &Call,
        len: u64,
    ) -> (Duration, Result<Verdict>) {
        let mut state = self.0.lock();
        state.calls += 1;
        let mut wait = Duration::ZERO;
        let mut decided = None;
        for active in state.rules.iter_mut().filter(|active| active.rule.matches(volume, call)) {
            let in_turn = active.rule.calls.contains(&active.seen);
            active.seen += 1;
            match active.rule.effect {
                _ if !in_turn => {}
                Effect::Slow(longer) => wait += longer,
                Effect::Full if !needs_room(call, len) => {}
                effect => decided = decided.or(Some(effect)),
            }
        }
        let injected = |kind| Error::new(kind, format!("{volume}: {call}: injected fault"));
        let verdict = match decided {
            None | Some(Effect::Slow(_)) => Ok(Verdict::default()),
            Some(Effect::Fail(kind)) => Err(injected(kind)),
            Some(Effect::FailAfter(kind)) => Ok(Verdict { fails: Some(injected(kind)), lie: None }),
            Some(Effect::Full) if call.op == Op::Space => Ok(Verdict::lie(Lie::NoRoom)),
            Some(Effect::Full) => Err(injected(ErrorKind::OutOfSpace)),
            Some(Effect::FlipBit) => Ok(Verdict::lie(Lie::FlipBit(state.random.random()))),
            Some(Effect::Short) => Ok(Verdict::lie(Lie::Short)),
            Some(Effect::Misplaced) => Ok(Verdict::lie(Lie::Misplaced)),
        };
        (wait, verdict)
    }
}

/// Whether a full volume must refuse the call, or report that it is full.
fn needs_room(call: &Call, len: u64) -> bool {
    match call.op {
        Op::Create | Op::Space => true,
        Op::Write => call.offset.saturating_add(call.len) > len,
        _ => call.len > len,
    }
}

/// How a call that is made goes wrong, if at all.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The error that the caller gets although the call was made.
    pub(super) fails: Option<Error>,
    /// The silent fault of a call that succeeds.
    pub(super) lie: Option<Lie>,
}

impl Verdict {
    fn lie(lie: Lie) -> Self {
        Self { fails: None, lie: Some(lie) }
    }

    /// The result for the caller.
    pub(super) fn end<T>(self, made: Result<T>) -> Result<T> {
        match self.fails {
            Some(error) => Err(error),
            None => made,
        }
    }
}

/// A fault that the device does not report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lie {
    /// This bit, modulo the number of bits.
    FlipBit(u64),
    Short,
    Misplaced,
    NoRoom,
}

impl Lie {
    /// Damages bytes in transit, as far as the fault concerns them.
    pub(super) fn tell(self, bytes: &mut IoBufMut) {
        match self {
            Self::FlipBit(_) if bytes.is_empty() => {}
            Self::FlipBit(number) => {
                let bit = (number % (bytes.len() as u64 * 8)) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            Self::Short => bytes.resize(bytes.len() / 2),
            Self::Misplaced | Self::NoRoom => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", ""),
            ("*", "a/b"),
            ("*.log", "kv/1.log"),
            ("kv/*", "kv/1.log"),
            ("k*/*.l*g", "kv/1.log"),
            ("*a*a", "aaa"),
            ("a**b", "ab"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*", "ba"), ("*.log", "1.logs"), ("a*a", "a"), ("*x*", "abc")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
