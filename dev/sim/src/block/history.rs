//! The history of one sector, and whether what its readers got is linearizable.
//!
//! ```text
//!   begun ──────────── over      a change: it takes effect between them, or never if it was not acknowledged
//!        effect ─── seen         the first moment at which it surely had taken effect, and the begin of the last
//!                                call that found it
//! ```
//! One change comes before another one if it surely had an effect, or was over, before a call began that found the other
//! one. Histories in which two changes come before each other are not linearizable (Gibbons and Korach, 1997).
//!
//! Every change has a stamp of its own, but all changes to zeros have the same. A read of zeros that several of them
//! explain says nothing.

use std::fmt;

/// A moment: the number of calls that began or ended before it.
pub(super) type Moment = u64;

/// What a change leaves in a sector. Zero for zeros.
pub(super) type Stamp = u64;

const NEVER: Moment = Moment::MAX;

/// A change of the sector.
#[derive(Clone, Debug)]
struct Change {
    /// Those it may have left. Several only for the first one, which a crash left in doubt.
    stamps: Vec<Stamp>,
    begun: Moment,
    /// It was acknowledged, failed or was given up.
    over: Moment,
    acknowledged: Option<Moment>,
    effect: Moment,
    seen: Moment,
    /// A machine that dies keeps it, or a later one.
    durable: bool,
    /// A flush failed since: no later one makes it durable.
    is_lost: bool,
}

impl Change {
    /// The state at the begin of a life.
    fn first(stamps: Vec<Stamp>) -> Self {
        let durable = true;
        Self { stamps, acknowledged: Some(0), durable, over: 0, effect: 0, ..Self::begin(0, 0) }
    }

    fn begin(stamp: Stamp, now: Moment) -> Self {
        Self {
            stamps: vec![stamp],
            begun: now,
            over: NEVER,
            acknowledged: None,
            effect: NEVER,
            seen: now,
            durable: false,
            is_lost: false,
        }
    }

    fn is_before(&self, other: &Self) -> bool {
        self.effect.min(self.over) < other.seen
    }

    /// The change, if a read from `begun` to `now` has found it.
    fn found(&self, begun: Moment, now: Moment) -> Self {
        Self { effect: self.effect.min(now), seen: self.seen.max(begun), ..self.clone() }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stamps, begun, over, acknowledged, effect, seen, durable, .. } = self;
        let at = |moment: Moment| match moment {
            NEVER => "?".to_owned(),
            at => at.to_string(),
        };
        write!(f, "{stamps:?} begun {begun} over {}", at(*over))?;
        write!(f, " effect {} seen {seen}", at(*effect))?;
        write!(f, "{}", if acknowledged.is_some() { "" } else { " not acknowledged" })?;
        write!(f, "{}", if *durable { " durable" } else { "" })
    }
}

/// The end of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keeps {
    /// All that was acknowledged or read.
    Acknowledged,
    /// All that is durable.
    Durable,
}

/// The changes of a sector since the process began.
#[derive(Clone)]
pub(super) struct History(Vec<Change>);

impl History {
    /// A sector of a new device.
    pub(super) fn zeros() -> Self {
        Self(vec![Change::first(vec![0])])
    }

    pub(super) fn begin(&mut self, stamp: Stamp, now: Moment) {
        self.0.push(Change::begin(stamp, now));
    }

    /// The change that began at `begun` is acknowledged.
    pub(super) fn acknowledge(
        &mut self,
        begun: Moment,
        now: Moment,
        durable: bool,
    ) -> Result<(), String> {
        let Some(at) = self.0.iter().position(|change| change.begun == begun) else {
            return Ok(());
        };
        let change = &mut self.0[at];
        change.over = now;
        change.acknowledged = Some(now);
        change.effect = change.effect.min(now);
        change.durable |= durable;
        let changed = change.clone();
        match self.conflict(&changed, at) {
            None => Ok(()),
            Some(with) => Err(format!("{changed} contradicts {with}")),
        }
    }

    /// The change that began at `begun` failed or was given up: it took effect, or not.
    pub(super) fn give_up(&mut self, begun: Moment, now: Moment) {
        if let Some(change) = self.0.iter_mut().find(|change| change.begun == begun) {
            change.over = now;
        }
    }

    /// A read from `begun` to `now` has given this stamp.
    pub(super) fn found(&mut self, stamp: Stamp, begun: Moment, now: Moment) -> Result<(), String> {
        let may = |&at: &usize| {
            let change = &self.0[at];
            change.stamps.contains(&stamp)
                && change.begun < now
                && self.conflict(&change.found(begun, now), at).is_none()
        };
        let explain: Vec<_> = (0..self.0.len()).filter(may).collect();
        match explain[..] {
            [] => Err(format!("a read from {begun} to {now} gives {stamp}: {self}")),
            [one] => {
                let found = self.0[one].found(begun, now);
                self.0[one] = Change { stamps: vec![stamp], ..found };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A flush that began at `begun` has ended well.
    pub(super) fn flushed(&mut self, begun: Moment) {
        for change in &mut self.0 {
            let in_time = change.acknowledged.is_some_and(|at| at < begun);
            change.durable |= in_time && !change.is_lost;
        }
    }

    /// A flush has failed.
    pub(super) fn not_flushed(&mut self) {
        for change in &mut self.0 {
            change.is_lost |= change.acknowledged.is_some() && !change.durable;
        }
    }

    /// The process has died: what the next one may find.
    pub(super) fn die(&mut self, keeps: Keeps, now: Moment) {
        for change in &mut self.0 {
            change.over = change.over.min(now);
        }
        let stays = |change: &Change| match keeps {
            Keeps::Acknowledged => change.effect != NEVER,
            Keeps::Durable => change.durable,
        };
        let is_past = |at: usize| {
            let by = |(other, later): (usize, &Change)| {
                other != at && stays(later) && self.0[at].is_before(later)
            };
            self.0.iter().enumerate().any(by)
        };
        let left = (0..self.0.len()).filter(|&at| !is_past(at));
        let mut stamps: Vec<_> = left.flat_map(|at| self.0[at].stamps.clone()).collect();
        stamps.sort_unstable();
        stamps.dedup();
        self.0 = vec![Change::first(stamps)];
    }

    /// What it has for certain: the last change was acknowledged, and every other one was over before it began.
    pub(super) fn sure(&self) -> Option<Stamp> {
        let (last, others) = self.0.split_last()?;
        let is_sure = last.acknowledged.is_some()
            && last.stamps.len() == 1
            && others.iter().all(|change| change.over < last.begun);
        is_sure.then(|| last.stamps[0])
    }

    fn conflict(&self, change: &Change, at: usize) -> Option<&Change> {
        let conflicts = |(other, later): &(usize, &Change)| {
            // Another one that may never have taken effect contradicts nothing.
            *other != at
                && later.effect != NEVER
                && change.is_before(later)
                && later.is_before(change)
        };
        let mut others = self.0.iter().enumerate();
        others.find(conflicts).map(|(_, other)| other)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|change| write!(f, "\n  {change}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(history: &mut History, stamp: Stamp, begun: Moment, over: Moment) {
        history.begin(stamp, begun);
        history.acknowledge(begun, over, false).unwrap();
    }

    #[test]
    fn an_acknowledged_change_is_found_and_no_older_one() {
        let mut history = History::zeros();
        written(&mut history, 7, 1, 2);
        assert!(history.found(0, 3, 4).is_err());
        assert!(history.found(7, 3, 4).is_ok());
        assert!(history.found(8, 3, 4).is_err());
    }

    #[test]
    fn what_was_read_once_does_not_go_back() {
        let mut history = History::zeros();
        history.begin(7, 1);
        assert!(history.found(0, 2, 3).is_ok());
        assert!(history.found(7, 4, 5).is_ok());
        assert!(history.found(0, 6, 7).is_err());
        let mut history = History::zeros();
        history.begin(7, 1);
        history.begin(8, 2);
        assert!(history.found(7, 3, 4).is_ok());
        assert!(history.found(8, 5, 6).is_ok());
        assert!(history.found(7, 7, 8).is_err());
    }

    #[test]
    fn a_change_that_failed_is_there_or_never_comes() {
        let mut history = History::zeros();
        history.begin(7, 1);
        history.give_up(1, 2);
        let mut other = history.clone();
        assert!(history.found(7, 3, 4).is_ok());
        assert!(history.found(0, 5, 6).is_err());
        written(&mut other, 8, 3, 4);
        assert!(other.found(7, 5, 6).is_err());
    }

    #[test]
    fn a_crash_leaves_what_is_durable_or_later() {
        let mut history = History::zeros();
        written(&mut history, 7, 1, 2);
        history.flushed(3);
        written(&mut history, 8, 4, 5);
        let mut process = history.clone();
        history.die(Keeps::Durable, 6);
        assert!(history.clone().found(7, 7, 8).is_ok());
        assert!(history.clone().found(8, 7, 8).is_ok());
        assert!(history.clone().found(0, 7, 8).is_err());
        assert!(history.found(7, 7, 8).is_ok());
        assert!(history.found(8, 9, 10).is_err(), "it changes by itself");
        process.die(Keeps::Acknowledged, 6);
        assert!(process.found(7, 7, 8).is_err());
    }

    #[test]
    fn a_flush_that_failed_makes_nothing_durable_later() {
        let mut history = History::zeros();
        written(&mut history, 7, 1, 2);
        history.not_flushed();
        history.flushed(4);
        history.die(Keeps::Durable, 5);
        assert!(history.found(0, 6, 7).is_ok());
    }
}
