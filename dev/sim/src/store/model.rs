//! The model of a user of a log store: the possible values of a key.

use std::collections::BTreeMap;

/// A value, as the number of the operation that put it; none if the key was deleted.
pub(crate) type Seen = Option<u32>;

/// How a life of the store ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Death {
    /// The process crashed and the machine did not.
    Process,
    /// The power went off.
    Power,
}

/// One operation on a key.
#[derive(Clone, Copy, Debug)]
struct Done {
    seen: Seen,
    /// Whether it was acknowledged.
    answered: bool,
}

/// One key of one user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Key {
    /// The last durable value.
    base: Seen,
    /// The operations since.
    history: Vec<Done>,
}

impl Key {
    /// Begins an operation, which may take effect from now on.
    pub(crate) fn begin(&mut self, seen: Seen) {
        self.history.push(Done { seen, answered: false });
    }

    /// Marks the last operation as acknowledged.
    pub(crate) fn answered(&mut self) {
        self.history.last_mut().expect("it began").answered = true;
    }

    /// Makes the acknowledged ones of the first `upto` operations durable.
    pub(crate) fn synced(&mut self, upto: usize) {
        if let Some(last) = self.history[..upto].iter().rposition(|done| done.answered) {
            self.base = self.history[last].seen;
            self.history.drain(..=last);
        }
    }

    /// The number of operations that are not known to be durable.
    pub(crate) fn len(&self) -> usize {
        self.history.len()
    }

    /// Whether a value is possible while the store runs.
    pub(crate) fn may_be(&self, seen: Seen) -> bool {
        self.after(Death::Process, false).contains(&seen)
    }

    /// The possible values after a crash; `durable` says that acknowledged operations are durable.
    pub(crate) fn after(&self, death: Death, durable: bool) -> Vec<Seen> {
        let answered = self.history.iter().rposition(|done| done.answered);
        let certain = answered.filter(|_| durable || death == Death::Process);
        let rest = certain.map_or(0, |at| at + 1);
        let base = certain.map_or(self.base, |at| self.history[at].seen);
        std::iter::once(base).chain(self.history[rest..].iter().map(|done| done.seen)).collect()
    }

    /// Records the value that was found after a crash, which is durable now.
    pub(crate) fn witness(&mut self, seen: Seen) {
        self.base = seen;
        self.history.clear();
    }

    /// The value, if no operation is in progress or failed.
    pub(crate) fn settled(&self) -> Seen {
        self.history.last().map_or(self.base, |done| done.seen)
    }
}

/// The keys of one user.
pub(crate) type Model = BTreeMap<Vec<u8>, Key>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_is_there_and_the_rest_may_be() {
        let mut key = Key::default();
        assert_eq!(key.after(Death::Power, true), [None]);
        key.begin(Some(1));
        assert_eq!(key.after(Death::Power, true), [None, Some(1)]);
        key.answered();
        assert_eq!(key.after(Death::Power, true), [Some(1)]);
        key.begin(Some(2));
        key.answered();
        assert_eq!(key.after(Death::Power, false), [None, Some(1), Some(2)]);
        assert_eq!(key.after(Death::Process, false), [Some(2)]);
        key.synced(2);
        key.begin(None);
        assert_eq!(key.after(Death::Power, false), [Some(2), None]);
        assert!(key.may_be(Some(2)) && !key.may_be(Some(1)));
        key.witness(None);
        assert_eq!(key.after(Death::Power, true), [None]);
    }
}
