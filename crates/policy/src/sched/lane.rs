//! The waiting requests of a lane: in order of arrival for each store, and fair between stores.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). Each store has a tag, the virtual time at which its next
//! request starts; a grant advances it by the request's cost over the store's weight. The store with the smallest tag
//! goes next. The lane's virtual time is the tag of the last grant. A store that did not wait begins there, so it saves
//! up nothing while it is idle.

use std::collections::VecDeque;

use super::Ticket;
use crate::contract::Cost;
use crate::purpose::Tenant;
use crate::time::Instant;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    flows: Vec<Flow>,
    /// The virtual time.
    time: f64,
}

/// The waiting requests of one store.
#[derive(Clone, Debug)]
struct Flow {
    tenant: Tenant,
    /// By ticket.
    queue: VecDeque<Waiting>,
    /// The store's tag.
    starts: f64,
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) tenant: Tenant,
    pub(super) cost: Cost,
    /// The part of the cost already paid.
    pub(super) paid: Cost,
    /// Whether a user waits for it.
    pub(super) of_user: bool,
    pub(super) since: Instant,
    /// [`Instant::FAR`] if it has none.
    pub(super) deadline: Instant,
}

impl Waiting {
    /// The rest of the cost.
    pub(super) fn owed(&self) -> Cost {
        self.cost.less(self.paid)
    }
}

impl Flow {
    /// A request that has paid a part goes on, whatever the tags: its tokens are of no use to others. Equal tags go in
    /// order of arrival.
    fn is_before(&self, other: &Self) -> bool {
        let (Some(one), Some(two)) = (self.queue.front(), other.queue.front()) else {
            return !self.queue.is_empty();
        };
        let key = |head: &Waiting| (head.paid == Cost::default(), head.ticket);
        let ((unpaid, ticket), (other_unpaid, other_ticket)) = (key(one), key(two));
        let by_tag = self.starts.total_cmp(&other.starts).then(ticket.cmp(&other_ticket));
        unpaid.cmp(&other_unpaid).then(by_tag).is_lt()
    }
}

impl Lane {
    pub(super) fn len(&self) -> usize {
        self.flows.iter().map(|flow| flow.queue.len()).sum()
    }

    /// How many requests of a store wait.
    pub(super) fn len_of(&self, tenant: Tenant) -> usize {
        self.flows.iter().filter(|flow| flow.tenant == tenant).map(|flow| flow.queue.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.iter().all(|flow| flow.queue.is_empty())
    }

    /// The position of the flow with the next request.
    fn next(&self) -> Option<usize> {
        let mut next: Option<usize> = None;
        for (position, flow) in self.flows.iter().enumerate() {
            if next.map_or(!flow.queue.is_empty(), |next| flow.is_before(&self.flows[next])) {
                next = Some(position);
            }
        }
        next
    }

    /// The next request.
    pub(super) fn head(&self) -> Option<&Waiting> {
        self.flows[self.next()?].queue.front()
    }

    /// The same, mutable, to pay for it.
    pub(super) fn head_mut(&mut self) -> Option<&mut Waiting> {
        let next = self.next()?;
        self.flows[next].queue.front_mut()
    }

    fn flow(&mut self, tenant: Tenant) -> &mut Flow {
        let known = self.flows.iter().position(|flow| flow.tenant == tenant);
        let position = known.unwrap_or_else(|| {
            let (queue, starts) = (VecDeque::new(), self.time);
            self.flows.push(Flow { tenant, queue, starts });
            self.flows.len() - 1
        });
        let flow = &mut self.flows[position];
        if flow.queue.is_empty() {
            flow.starts = flow.starts.max(self.time);
        }
        flow
    }

    /// Adds the latest request.
    pub(super) fn push(&mut self, waiting: Waiting) {
        let queue = &mut self.flow(waiting.tenant).queue;
        assert!(queue.back().is_none_or(|last| last.ticket < waiting.ticket), "tickets ascend");
        queue.push_back(waiting);
    }

    /// Takes the next request; `price` is its cost over the weight of its store.
    pub(super) fn pop(&mut self, price: impl FnOnce(&Waiting) -> f64) -> Option<Waiting> {
        let next = self.next()?;
        let flow = &mut self.flows[next];
        let waiting = flow.queue.pop_front()?;
        self.time = self.time.max(flow.starts);
        flow.starts += price(&waiting);
        self.forget_idle();
        Some(waiting)
    }

    /// Undoes [`Lane::pop`]: the request waits before those of its store with later tickets.
    pub(super) fn put_back(&mut self, waiting: Waiting, price: f64) {
        let flow = self.flow(waiting.tenant);
        flow.starts -= price;
        let before = flow.queue.partition_point(|other| other.ticket < waiting.ticket);
        flow.queue.insert(before, waiting);
    }

    /// Removes the request of that ticket.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        for flow in &mut self.flows {
            if let Ok(place) = flow.queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) {
                let removed = flow.queue.remove(place);
                self.forget_idle();
                return removed;
            }
        }
        None
    }

    /// Removes all requests that `keep` refuses.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Waiting) -> bool) {
        self.flows.iter_mut().for_each(|flow| flow.queue.retain(&mut keep));
        self.forget_idle();
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiting> {
        self.flows.iter_mut().flat_map(|flow| &mut flow.queue)
    }

    /// When no request waits, no store is behind another: tags begin anew, and stay exact.
    fn forget_idle(&mut self) {
        if self.is_empty() {
            self.flows.iter_mut().for_each(|flow| flow.starts = 0.0);
            self.time = 0.0;
        }
    }
}
