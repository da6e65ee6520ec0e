//! The rules that protect the data. Tests switch each one off, and demand that the search then finds a failure.

/// A rule of the protocol. The invariants are those of the module's documentation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rule {
    /// I1: a parity server asks for the value before the first write of a range.
    Coverage,
    /// I2: a parity server forgets the base of a range only when its header says that the range's version is complete.
    DurableBelow,
    /// I3: a write is in place when all parity servers of the view have logged it.
    Everywhere,
    /// I4: a value before a write counts only for that write, and only where none is known.
    OriginalOnce,
    /// I5: a parity server ignores a version that it has, or that is complete.
    Monotone,
    /// I5: a parity server that discarded a version ignores its later copies.
    Discarded,
    /// I6: a merge leaves out versions that may yet be discarded.
    MergeSettled,
    /// I6: a merge splits no range that was written before and after its end.
    MergeWhole,
    /// I7: servers ignore messages of other views.
    View,
    /// A write is complete when the strip has it durably, though its client was answered before.
    Flushed,
    /// A data server that restarts writes again what may be torn.
    Redo,
    /// A version that a surviving parity server lacks is discarded on all.
    SameEverywhere,
    /// A data server carries out a request once.
    Dedupe,
    /// Writes of overlapping ranges wait for each other.
    Lock,
}

/// All rules, or in tests all but one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    #[cfg(test)]
    pub(super) off: Option<Rule>,
}

impl Rules {
    /// Whether the rule holds: always, but in tests.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests switch rules off"))]
    pub(super) fn keep(self, rule: Rule) -> bool {
        #[cfg(test)]
        return self.off != Some(rule);
        #[cfg(not(test))]
        {
            let _ = rule;
            true
        }
    }
}
