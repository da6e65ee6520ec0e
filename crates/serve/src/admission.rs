//! Admission of connections under a limit: connections that send no requests give way.
//!
//! A connection without an accepted request is a *stranger*. Any client can open a thousand of them and stay silent.
//! When the limit is reached, a new connection displaces the oldest stranger; without strangers, the connection that
//! was idle longest, if for at least [`IDLE_MIN`]. The new connection is rejected only if all others are in use.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A connection used more recently than this is never displaced. Clients' pools keep connections for their next
/// request, and reopen one that was closed after a minute.
const IDLE_MIN: Duration = Duration::from_secs(60);

/// The limits on connections of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limits {
    /// For all addresses together.
    pub(crate) connections_max: usize,
    /// For one address; for IPv6 one /64 network, which is what a customer gets. `None`: half of all, and all for
    /// loopback.
    pub(crate) per_address_max: Option<usize>,
}

/// The connections of a listener.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    by_address: HashMap<IpAddr, usize>,
    /// Connections neither closed nor told to close, in the order they came.
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    address: Option<IpAddr>,
    cut: CancellationToken,
    is_stranger: bool,
    usage: Arc<Usage>,
}

/// The last use of a connection.
#[derive(Debug, Default)]
struct Usage {
    /// Whether a request is under way.
    is_busy: AtomicBool,
    /// The last use, in milliseconds since the listener was opened.
    last_ms: AtomicU64,
}

/// An admitted connection; dropping it frees its place.
#[derive(Debug)]
pub(crate) struct Guest {
    admission: Arc<Admission>,
    id: u64,
    /// A local copy, so that the shared state is locked only on a change.
    is_stranger: AtomicBool,
    usage: Arc<Usage>,
}

/// The result of an admission.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) guest: Guest,
    /// Whether another connection was closed for it.
    pub(crate) shed: bool,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, began: Instant::now(), state: Mutex::default() })
    }

    /// Admits a connection from `from`; cancelling `cut` closes it. `None` if the limit is reached and no connection
    /// can be displaced.
    pub(crate) fn admit(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        cut: CancellationToken,
        now: Instant,
    ) -> Option<Admitted> {
        let address = from.map(counted);
        let now_ms = self.ms(now);
        let mut state = self.state.lock();
        let (mut full, mut shed) = (state.open.len() >= self.limits.connections_max, false);
        if let Some(address) = address
            && state.by_address.get(&address).copied().unwrap_or(0) >= self.most_from(address)
        {
            // An address over its limit displaces only its own connections.
            if !state.shed(Some(address), now_ms) {
                return None;
            }
            (full, shed) = (false, true);
        }
        if full {
            if !state.shed(None, now_ms) {
                return None;
            }
            shed = true;
        }
        let id = state.next;
        state.next += 1;
        if let Some(address) = address {
            *state.by_address.entry(address).or_default() += 1;
        }
        let usage = Arc::new(Usage::default());
        usage.last_ms.store(now_ms, Ordering::Relaxed);
        let open = Open { address, cut, is_stranger: true, usage: Arc::clone(&usage) };
        state.open.insert(id, open);
        let admission = Arc::clone(self);
        let guest = Guest { admission, id, is_stranger: AtomicBool::new(true), usage };
        Some(Admitted { guest, shed })
    }

    fn most_from(&self, address: IpAddr) -> usize {
        let all = self.limits.connections_max;
        let usual = if address.is_loopback() { all } else { all.div_ceil(2) };
        self.limits.per_address_max.unwrap_or(usual)
    }

    /// Milliseconds since the listener was opened.
    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }
}

impl State {
    /// Closes the least useful connection, of one address if given; false if there is none.
    fn shed(&mut self, of: Option<IpAddr>, now_ms: u64) -> bool {
        let mut there = self.open.iter().filter(|(_, open)| of.is_none() || open.address == of);
        let stranger = there.clone().find(|(_, open)| open.is_stranger).map(|(&id, _)| id);
        let found = stranger.or_else(|| {
            let idle =
                there.by_ref().filter(|(_, open)| !open.usage.is_busy.load(Ordering::Relaxed));
            let last = idle.map(|(&id, open)| (open.usage.last_ms.load(Ordering::Relaxed), id));
            let longest = last.min()?;
            let is_idle = u128::from(now_ms.saturating_sub(longest.0)) >= IDLE_MIN.as_millis();
            is_idle.then_some(longest.1)
        });
        let Some(id) = found else { return false };
        if let Some(cut) = self.leave(id) {
            cut.cancel();
        }
        true
    }

    /// Frees the place of a connection; returns its token if it was open.
    fn leave(&mut self, id: u64) -> Option<CancellationToken> {
        let Open { address, cut, .. } = self.open.remove(&id)?;
        if let Some(address) = address
            && let Some(open) = self.by_address.get_mut(&address)
        {
            *open -= 1;
            if *open == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(cut)
    }
}

impl Guest {
    /// A request was accepted: the connection is no longer a stranger.
    pub(crate) fn is_known(&self) {
        self.set_stranger(false);
    }

    /// A request was refused for lack of authentication: the connection counts as a stranger again.
    pub(crate) fn is_stranger(&self) {
        self.set_stranger(true);
    }

    fn set_stranger(&self, is_stranger: bool) {
        if self.is_stranger.load(Ordering::Relaxed) == is_stranger {
            return;
        }
        // A connection told to close stays so.
        if let Some(open) = self.admission.state.lock().open.get_mut(&self.id) {
            open.is_stranger = is_stranger;
            self.is_stranger.store(is_stranger, Ordering::Relaxed);
        }
    }

    /// A request is under way until [`Guest::rests`].
    pub(crate) fn works(&self) {
        self.usage.is_busy.store(true, Ordering::Relaxed);
    }

    /// No request is under way.
    pub(crate) fn rests(&self, now: Instant) {
        self.moves(now);
        self.usage.is_busy.store(false, Ordering::Relaxed);
    }

    /// Data was sent or received.
    pub(crate) fn moves(&self, now: Instant) {
        self.usage.last_ms.store(self.admission.ms(now), Ordering::Relaxed);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A displaced connection has left already.
        self.admission.state.lock().leave(self.id);
    }
}

/// The part of an address that limits count by.
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

    fn endpoint(connections_max: usize, per_address_max: Option<usize>) -> Arc<Admission> {
        Admission::new(Limits { connections_max, per_address_max })
    }

    fn come(endpoint: &Arc<Admission>, from: &str) -> Option<(Admitted, CancellationToken)> {
        let cut = CancellationToken::new();
        let from = from.parse().expect("an address");
        Some((endpoint.admit(Some(from), cut.clone(), Instant::now())?, cut))
    }

    const HERE: &str = "127.0.0.1";

    #[test]
    fn the_stranger_that_came_first_gives_way() {
        let endpoint = endpoint(3, None);
        let (known, known_cut) = come(&endpoint, HERE).expect("room");
        known.guest.is_known();
        let (_first, first_cut) = come(&endpoint, HERE).expect("room");
        let (_second, second_cut) = come(&endpoint, HERE).expect("room");
        let (new, _) = come(&endpoint, HERE).expect("a stranger gives way");
        assert!(new.shed);
        assert!(first_cut.is_cancelled());
        assert!(!known_cut.is_cancelled() && !second_cut.is_cancelled());
    }

    /// Once, a client that had sent a command was never closed, however long it was silent.
    #[test]
    fn without_strangers_the_one_that_was_idle_longest_gives_way() {
        let endpoint = endpoint(3, None);
        let began = Instant::now();
        let after = |secs| began + Duration::from_secs(secs);
        let come = |secs| {
            let cut = CancellationToken::new();
            let from = HERE.parse().expect("an address");
            Some((endpoint.admit(Some(from), cut.clone(), after(secs))?, cut))
        };
        let [(first, first_cut), (second, second_cut), (third, third_cut)] =
            [0, 0, 0].map(|secs| come(secs).expect("room"));
        [&first, &second, &third].into_iter().for_each(|admitted| admitted.guest.is_known());
        first.guest.works();
        third.guest.moves(after(2));
        assert!(come(59).is_none(), "none was idle for long enough");
        let (fourth, fourth_cut) = come(61).expect("the second was idle for long enough");
        assert!(fourth.shed && second_cut.is_cancelled());
        assert!(!first_cut.is_cancelled() && !third_cut.is_cancelled());
        second.guest.is_known();
        fourth.guest.is_known();
        // A busy connection is never idle; its idle time counts from its end.
        first.guest.rests(after(1000));
        third.guest.moves(after(1001));
        fourth.guest.moves(after(1002));
        assert!(come(1059).is_none());
        assert!(come(1062).is_some());
        assert!(first_cut.is_cancelled());
        assert!(!third_cut.is_cancelled() && !fourth_cut.is_cancelled());
    }

    #[test]
    fn who_is_known_and_in_use_gives_way_to_nobody() {
        let endpoint = endpoint(2, None);
        let guests: Vec<_> = (0..2).map(|_| come(&endpoint, HERE).expect("room")).collect();
        guests.iter().for_each(|(admitted, _)| admitted.guest.is_known());
        assert!(come(&endpoint, HERE).is_none());
        assert!(guests.iter().all(|(_, cut)| !cut.is_cancelled()));
        drop(guests);
        assert!(!come(&endpoint, HERE).expect("room again").0.shed);
    }

    #[test]
    fn who_was_refused_is_a_stranger_again() {
        let endpoint = endpoint(1, None);
        let (one, cut) = come(&endpoint, HERE).expect("room");
        one.guest.is_known();
        one.guest.is_stranger();
        assert!(come(&endpoint, HERE).expect("a stranger gives way").0.shed);
        assert!(cut.is_cancelled());
    }

    #[test]
    fn a_place_is_free_once_however_it_was_left() {
        let endpoint = endpoint(2, None);
        let (first, _) = come(&endpoint, HERE).expect("room");
        let (second, _) = come(&endpoint, HERE).expect("room");
        let (third, _) = come(&endpoint, HERE).expect("the first gives way");
        // Too late: it was told to close already.
        first.guest.is_known();
        drop(first);
        second.guest.is_known();
        third.guest.is_known();
        assert!(come(&endpoint, HERE).is_none(), "there are two");
        drop((second, third));
        assert!(endpoint.state.lock().open.is_empty());
        assert!(endpoint.state.lock().by_address.is_empty());
    }

    #[test]
    fn one_address_takes_half_of_a_endpoint_and_loopback_all() {
        let endpoint = endpoint(4, None);
        let far: Vec<_> = (0..2).map(|_| come(&endpoint, "10.0.0.1").expect("room")).collect();
        far.iter().for_each(|(admitted, _)| admitted.guest.is_known());
        assert!(come(&endpoint, "10.0.0.1").is_none());
        let here: Vec<_> = (0..2).map(|_| come(&endpoint, HERE).expect("room")).collect();
        // The address has its half and no stranger of its own; strangers of others do not count.
        assert!(come(&endpoint, "10.0.0.1").is_none());
        assert!(here.iter().all(|(_, cut)| !cut.is_cancelled()));
        drop(far);
        let more: Vec<_> = (0..2).map(|_| come(&endpoint, HERE).expect("room")).collect();
        assert!(more.iter().all(|(admitted, _)| !admitted.shed));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let endpoint = endpoint(100, Some(2));
        let one = come(&endpoint, "2001:db8::1").expect("room").0;
        let two = come(&endpoint, "2001:db8::2").expect("room").0;
        [&one, &two].into_iter().for_each(|admitted| admitted.guest.is_known());
        assert!(come(&endpoint, "2001:db8::3").is_none());
        assert!(come(&endpoint, "2001:db8:0:1::1").is_some());
        let mapped = come(&endpoint, "::ffff:10.0.0.1").expect("room").0;
        let plain = come(&endpoint, "10.0.0.1").expect("room").0;
        [&mapped, &plain].into_iter().for_each(|admitted| admitted.guest.is_known());
        assert!(come(&endpoint, "10.0.0.1").is_none());
    }
}
