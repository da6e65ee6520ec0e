//! Which calls are under way, which are late, and whether the volume is silent: plain data.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use policy::time::Instant;

use crate::{Name, Space};

/// What a late call may still change.
pub(super) enum Touched {
    /// The bytes or length of an object.
    Bytes(Name),
    /// Whether there is an object of this name.
    Entry(Name),
    /// What is known of the space.
    Room,
}

#[derive(Default)]
pub(super) struct State {
    /// Calls that wait for the device, by the end of their time and a number, with the tasks to wake then.
    under_way: BTreeMap<(Instant, u64), Option<Waker>>,
    number: u64,
    /// The alarm that rings first.
    alarm: Option<Instant>,
    silent_since: Option<Instant>,
    /// Late calls.
    late: usize,
    bytes: BTreeMap<Name, usize>,
    entries: BTreeMap<Name, usize>,
    /// Late calls for the space.
    rooms: usize,
    /// The last answer, and when it came.
    space: Option<(Instant, Space)>,
}

impl State {
    /// Whether every call may go on.
    pub(super) const fn is_untroubled(&self) -> bool {
        self.late == 0 && self.silent_since.is_none()
    }

    pub(super) const fn silent_since(&self) -> Option<Instant> {
        self.silent_since
    }

    /// The volume does not answer; false if that was known.
    pub(super) const fn fall_silent(&mut self, now: Instant) -> bool {
        if self.silent_since.is_some() {
            return false;
        }
        self.silent_since = Some(now);
        true
    }

    pub(super) const fn end_silence(&mut self) {
        self.silent_since = None;
    }

    pub(super) fn has_late_bytes(&self, name: &Name) -> bool {
        self.bytes.contains_key(name)
    }

    pub(super) fn has_late_entry(&self, name: &Name) -> bool {
        self.entries.contains_key(name)
    }

    /// Enters a call whose time ends at `until`: its number, and whether an alarm has to be set for it.
    pub(super) fn begin(&mut self, until: Instant) -> (u64, bool) {
        self.number += 1;
        self.under_way.insert((until, self.number), None);
        let is_first = self.alarm.is_none_or(|at| until < at);
        if is_first {
            self.alarm = Some(until);
        }
        (self.number, is_first)
    }

    pub(super) fn end(&mut self, until: Instant, number: u64) {
        self.under_way.remove(&(until, number));
    }

    /// Whether the time of a call is over.
    pub(super) fn is_over(&self, until: Instant, now: Instant, grace: Duration) -> bool {
        now >= until || self.is_grace_over(now, grace)
    }

    fn is_grace_over(&self, now: Instant, grace: Duration) -> bool {
        self.silent_since.is_some_and(|since| now >= since + grace)
    }

    /// Wakes `waker` when the time of a call is over.
    pub(super) fn wake_by(&mut self, until: Instant, number: u64, waker: &Waker) {
        match self.under_way.entry((until, number)).or_default() {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// The tasks whose time is over, and the next time to look, if an alarm has to be set for it.
    pub(super) fn due(&mut self, now: Instant, grace: Duration) -> (Vec<Waker>, Option<Instant>) {
        let all = self.is_grace_over(now, grace);
        let due = self.under_way.iter_mut().take_while(|((until, _), _)| all || *until <= now);
        let due = due.filter_map(|(_, waker)| waker.take()).collect();
        if self.alarm.is_some_and(|at| at > now) {
            return (due, None);
        }
        self.alarm = self.under_way.keys().map(|(until, _)| *until).find(|&until| until > now);
        (due, self.alarm)
    }

    pub(super) fn begin_late(&mut self, touched: Option<&Touched>) {
        self.late += 1;
        match touched {
            Some(Touched::Bytes(name)) => *self.bytes.entry(name.clone()).or_default() += 1,
            Some(Touched::Entry(name)) => *self.entries.entry(name.clone()).or_default() += 1,
            Some(Touched::Room) => self.rooms += 1,
            None => {}
        }
    }

    pub(super) fn end_late(&mut self, touched: Option<&Touched>) {
        self.late -= 1;
        let (calls, name) = match touched {
            Some(Touched::Bytes(name)) => (&mut self.bytes, name),
            Some(Touched::Entry(name)) => (&mut self.entries, name),
            Some(Touched::Room) => {
                self.rooms -= 1;
                return;
            }
            None => return,
        };
        if let Some(left) = calls.get_mut(name) {
            *left -= 1;
            if *left == 0 {
                calls.remove(name);
            }
        }
    }

    pub(super) const fn set_space(&mut self, now: Instant, space: Space) {
        self.space = Some((now, space));
    }

    /// The last answer, unless it is older than `limit`, and whether a call for a newer one is late.
    pub(super) fn space(&self, now: Instant, limit: Duration) -> (Option<Space>, bool) {
        let young = self.space.filter(|(at, _)| now.since(*at) <= limit);
        (young.map(|(_, space)| space), self.rooms > 0)
    }
}
