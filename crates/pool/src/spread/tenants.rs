//! The stores on a pool as its tenants: their numbers, and the room that each keeps for its own work.
//!
//! A store refuses its users' writes before its reserve is used. Beside another store that is not enough: that one's users
//! would take the room. So a store tells the pool what it keeps, and the pool leaves that out of the room of the others.

use std::sync::Arc;

use parking_lot::Mutex;
use policy::purpose::Tenant;
use volume::Io;

use super::Spread;

/// Room that a store keeps for its own work, in bytes, each copy counted once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Kept {
    /// Its reserve: what deletes, flushes, merges and a recovery may need at any time.
    pub reserve: u64,
    /// What it is about to write besides: its buffers, and merges that outgrew the reserve.
    pub pending: u64,
}

/// The stores that have entered the pool since it was opened, in that order.
#[derive(Default)]
pub(super) struct Tenants(Mutex<Vec<Entered>>);

struct Entered {
    name: String,
    kept: Kept,
}

impl Tenants {
    /// The tenant called `name`, known or new.
    fn enter(&self, name: &str) -> Tenant {
        let mut all = self.0.lock();
        let known = all.iter().position(|entered| entered.name == name);
        let position = known.unwrap_or_else(|| {
            all.push(Entered { name: name.into(), kept: Kept::default() });
            all.len() - 1
        });
        // The pool itself is 0.
        Tenant(u32::try_from(position + 1).expect("so many names do not fit memory"))
    }

    /// The bytes that all tenants but this one keep.
    pub(super) fn kept_by_others(&self, tenant: Tenant) -> u64 {
        let all = self.0.lock();
        let all = (1..).zip(&*all).filter(|&(number, _)| Tenant(number) != tenant);
        all.fold(0, |sum, (_, Entered { kept, .. })| {
            sum.saturating_add(kept.reserve).saturating_add(kept.pending)
        })
    }
}

impl Spread {
    /// A handle for the store called `name`, for all calls of that store: its [room](Self::room) leaves out what the
    /// other stores keep. A store has the same number each time it enters.
    #[must_use]
    pub fn enter(&self, name: &str) -> Self {
        Self(Arc::clone(&self.0), self.0.tenants.enter(name))
    }

    /// The same I/O for the store of this handle.
    pub(super) const fn tagged(&self, io: Io) -> Io {
        match self.1 {
            // Of no store, or of one on a pool that this one is a volume of.
            Tenant::POOL => io,
            tenant => io.for_tenant(tenant),
        }
    }

    /// The same for an object that is built on those of the pool.
    pub(crate) const fn tag(&self, io: Io) -> Io {
        self.tagged(io)
    }

    /// The store of this handle; [`Tenant::POOL`] for the pool's own.
    #[must_use]
    pub const fn tenant(&self) -> Tenant {
        self.1
    }

    /// The names of the stores that have entered, with their numbers.
    #[must_use]
    pub fn tenants(&self) -> Vec<(Tenant, String)> {
        let all = self.0.tenants.0.lock();
        (1..).map(Tenant).zip(all.iter().map(|entered| entered.name.clone())).collect()
    }

    /// Keeps this much room for the store of this handle, instead of what it kept before: the other stores see it as
    /// used. It stays kept when the store is closed, for its next opening, until the pool is closed. No effect through
    /// the pool's own handle.
    pub fn keep(&self, kept: Kept) {
        let Some(position) = (self.1.0 as usize).checked_sub(1) else { return };
        self.0.tenants.0.lock()[position].kept = kept;
    }

    /// The reserves that stores keep, in bytes on all volumes together: each copy counts.
    #[must_use]
    pub fn reserve(&self) -> u64 {
        let each: u64 = self.0.tenants.0.lock().iter().map(|entered| entered.kept.reserve).sum();
        each.saturating_mul(self.0.replication.target as u64)
    }
}
