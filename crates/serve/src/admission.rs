//! Who may connect, where connections are short: those that ask for nothing give way.
//!
//! A connection that has asked for nothing yet is a *stranger*. Anybody can open a thousand of them and say
//! nothing. Where there is no room for another connection, the stranger that came first is closed for it; only
//! where every connection is in use is the new one turned away.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How many connections a door takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limits {
    /// All together.
    pub(crate) connections_max: usize,
    /// From one address: of IPv6 from one network of 64 bits, which is what a customer gets. None: half of
    /// all, and from loopback all.
    pub(crate) per_address_max: Option<usize>,
}

/// The connections of a door.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Connections that are not closed, nor told to.
    open: usize,
    by_address: HashMap<IpAddr, usize>,
    /// In the order they came.
    strangers: BTreeMap<u64, (Option<IpAddr>, CancellationToken)>,
}

/// A connection that was let in; dropped, its place is free.
#[derive(Debug)]
pub(crate) struct Guest {
    admission: Arc<Admission>,
    id: u64,
    address: Option<IpAddr>,
    cut: CancellationToken,
    is_stranger: AtomicBool,
}

/// What letting somebody in came to.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) guest: Guest,
    /// Whether a stranger was closed for it.
    pub(crate) shed: bool,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Lets in a connection from `from`, which `cut` closes. `None` if there is no room, and no stranger
    /// who would make some.
    pub(crate) fn admit(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        cut: CancellationToken,
    ) -> Option<Admitted> {
        let address = from.map(counted);
        let mut state = self.state.lock();
        let (mut full, mut shed) = (state.open >= self.limits.connections_max, false);
        if let Some(address) = address
            && state.by_address.get(&address).copied().unwrap_or(0) >= self.most_from(address)
        {
            // Its own strangers make room for it, nobody else's.
            if !state.shed(Some(address)) {
                return None;
            }
            (full, shed) = (false, true);
        }
        if full {
            if !state.shed(None) {
                return None;
            }
            shed = true;
        }
        let id = state.next;
        state.next += 1;
        state.open += 1;
        if let Some(address) = address {
            *state.by_address.entry(address).or_default() += 1;
        }
        state.strangers.insert(id, (address, cut.clone()));
        let admission = Arc::clone(self);
        let is_stranger = AtomicBool::new(true);
        Some(Admitted { guest: Guest { admission, id, address, cut, is_stranger }, shed })
    }

    fn most_from(&self, address: IpAddr) -> usize {
        let all = self.limits.connections_max;
        let usual = if address.is_loopback() { all } else { all.div_ceil(2) };
        self.limits.per_address_max.unwrap_or(usual)
    }
}

impl State {
    /// Closes the stranger that came first, of an address if one is given; false if there is none.
    fn shed(&mut self, of: Option<IpAddr>) -> bool {
        let mut strangers = self.strangers.iter();
        let found = strangers.find(|(_, (address, _))| of.is_none() || *address == of);
        let Some((&id, _)) = found else { return false };
        if let Some((address, cut)) = self.strangers.remove(&id) {
            cut.cancel();
            self.leave(address);
        }
        true
    }

    fn leave(&mut self, address: Option<IpAddr>) {
        self.open -= 1;
        if let Some(address) = address
            && let Some(open) = self.by_address.get_mut(&address)
        {
            *open -= 1;
            if *open == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Guest {
    /// It asked for something that it may ask for: it is no stranger any more.
    pub(crate) fn is_known(&self) {
        if self.is_stranger.load(Ordering::Relaxed) {
            let mut state = self.admission.state.lock();
            // One that was told to close stays told.
            if state.strangers.remove(&self.id).is_some() {
                self.is_stranger.store(false, Ordering::Relaxed);
            }
        }
    }

    /// What it asked for was refused for want of a name: it is what it was before.
    pub(crate) fn is_stranger(&self) {
        if !self.is_stranger.load(Ordering::Relaxed) {
            let mut state = self.admission.state.lock();
            state.strangers.insert(self.id, (self.address, self.cut.clone()));
            self.is_stranger.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        let was_stranger = self.is_stranger.load(Ordering::Relaxed);
        // One that was shed has left already.
        if state.strangers.remove(&self.id).is_some() || !was_stranger {
            state.leave(self.address);
        }
    }
}

/// The part of an address that is counted.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(connections_max: usize, per_address_max: Option<usize>) -> Arc<Admission> {
        Admission::new(Limits { connections_max, per_address_max })
    }

    fn come(door: &Arc<Admission>, from: &str) -> Option<(Admitted, CancellationToken)> {
        let cut = CancellationToken::new();
        let from = from.parse().expect("an address");
        Some((door.admit(Some(from), cut.clone())?, cut))
    }

    const HERE: &str = "127.0.0.1";

    #[test]
    fn the_stranger_that_came_first_gives_way() {
        let door = door(3, None);
        let (known, known_cut) = come(&door, HERE).expect("room");
        known.guest.is_known();
        let (_first, first_cut) = come(&door, HERE).expect("room");
        let (_second, second_cut) = come(&door, HERE).expect("room");
        let (new, _) = come(&door, HERE).expect("a stranger gives way");
        assert!(new.shed);
        assert!(first_cut.is_cancelled());
        assert!(!known_cut.is_cancelled() && !second_cut.is_cancelled());
    }

    #[test]
    fn who_is_known_gives_way_to_nobody() {
        let door = door(2, None);
        let guests: Vec<_> = (0..2).map(|_| come(&door, HERE).expect("room")).collect();
        guests.iter().for_each(|(admitted, _)| admitted.guest.is_known());
        assert!(come(&door, HERE).is_none());
        assert!(guests.iter().all(|(_, cut)| !cut.is_cancelled()));
        drop(guests);
        assert!(!come(&door, HERE).expect("room again").0.shed);
    }

    #[test]
    fn who_was_refused_is_a_stranger_again() {
        let door = door(1, None);
        let (one, cut) = come(&door, HERE).expect("room");
        one.guest.is_known();
        one.guest.is_stranger();
        assert!(come(&door, HERE).expect("a stranger gives way").0.shed);
        assert!(cut.is_cancelled());
    }

    #[test]
    fn a_place_is_free_once_however_it_was_left() {
        let door = door(2, None);
        let (first, _) = come(&door, HERE).expect("room");
        let (second, _) = come(&door, HERE).expect("room");
        let (third, _) = come(&door, HERE).expect("the first gives way");
        // Known too late: it was told to close.
        first.guest.is_known();
        drop(first);
        second.guest.is_known();
        third.guest.is_known();
        assert!(come(&door, HERE).is_none(), "there are two");
        drop((second, third));
        assert_eq!(door.state.lock().open, 0);
        assert!(door.state.lock().by_address.is_empty());
    }

    #[test]
    fn one_address_takes_half_of_a_door_and_loopback_all() {
        let door = door(4, None);
        let far: Vec<_> = (0..2).map(|_| come(&door, "10.0.0.1").expect("room")).collect();
        far.iter().for_each(|(admitted, _)| admitted.guest.is_known());
        assert!(come(&door, "10.0.0.1").is_none());
        let here: Vec<_> = (0..2).map(|_| come(&door, HERE).expect("room")).collect();
        // The address has its half and no stranger, whatever strangers others are.
        assert!(come(&door, "10.0.0.1").is_none());
        assert!(here.iter().all(|(_, cut)| !cut.is_cancelled()));
        drop(far);
        let more: Vec<_> = (0..2).map(|_| come(&door, HERE).expect("room")).collect();
        assert!(more.iter().all(|(admitted, _)| !admitted.shed));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let door = door(100, Some(2));
        let one = come(&door, "2001:db8::1").expect("room").0;
        let two = come(&door, "2001:db8::2").expect("room").0;
        [&one, &two].into_iter().for_each(|admitted| admitted.guest.is_known());
        assert!(come(&door, "2001:db8::3").is_none());
        assert!(come(&door, "2001:db8:0:1::1").is_some());
        let mapped = come(&door, "::ffff:10.0.0.1").expect("room").0;
        let plain = come(&door, "10.0.0.1").expect("room").0;
        [&mapped, &plain].into_iter().for_each(|admitted| admitted.guest.is_known());
        assert!(come(&door, "10.0.0.1").is_none());
    }
}
