//! A volume that fails on demand: any call, the k-th of a kind, or all of them for a while.
//!
//! It belongs right above a leaf, where a device would fail. A [`FaultPlan`] says what goes wrong. Several volumes may
//! share one, so that "the k-th call" counts over all of them, and a test may change it while they run.
//!
//! After a sync that fails with `Poisoned`, the volume does what [`Object::sync`] promises: it refuses writes to the
//! object, and takes no new objects until [`Fault::probe`].

mod plan;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use self::plan::{Effect, FaultPlan, Injected, Rule};
use self::plan::{Lie, Verdict};
use super::call::{Call, Op};
use crate::buf::PAGE;
use crate::health::Health;
use crate::{
    Check, Clock, Error, ErrorKind, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name,
    Object, Pending, ReadTime, Result, Space, Volume, Zeros,
};

/// A volume with a plan for its failures. The volume inside serves all other calls.
pub struct Fault<V> {
    inner: V,
    shared: Arc<Shared>,
}

impl<V: Volume> Fault<V> {
    /// Wraps `inner` under `plan`; `label` names the volume in rules and errors. Slow calls wait on `clock`.
    #[must_use]
    pub fn new(inner: V, label: &str, plan: &FaultPlan, clock: &Clock) -> Self {
        let shared = Shared {
            label: label.into(),
            plan: plan.clone(),
            clock: clock.clone(),
            health: Health::default(),
        };
        Self { inner, shared: Arc::new(shared) }
    }

    /// Lets the volume take new objects again after a failed sync, as a probe of a device would.
    pub fn probe(&self) {
        self.shared.health.probed();
    }

    fn object(&self, name: Name, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        let poisoned = self.shared.health.has_lost(&name).into();
        Arc::new(FaultObject { inner, name, poisoned, shared: Arc::clone(&self.shared) })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<V: Volume> Volume for Fault<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let call = Call::named(Op::Create, &name);
            let verdict = self.shared.begin(&call, 0).await?;
            if self.shared.health.is_poisoned() {
                return Err(self.shared.poisoned(&call));
            }
            let created = self.inner.create(&name, &intent).await;
            verdict.end(created).map(|object| self.object(name, object))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let verdict = self.shared.begin(&Call::named(Op::Open, &name), 0).await?;
            let opened = self.inner.open(&name).await;
            verdict.end(opened).map(|object| self.object(name, object))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move {
            let verdict = self.shared.begin(&Call::named(Op::Remove, &name), 0).await?;
            let removed = self.inner.remove(&name).await;
            if removed.is_ok() {
                self.shared.health.forget(&name);
            }
            verdict.end(removed)
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            let verdict = self.shared.begin(&Call::volume(Op::List), 0).await?;
            verdict.end(self.inner.list().await)
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async move {
            let verdict = self.shared.begin(&Call::volume(Op::Space), 0).await?;
            let full = verdict.lie == Some(Lie::NoRoom);
            let space = self.inner.space().await;
            verdict.end(space.map(|space| if full { Space { free: 0, ..space } } else { space }))
        })
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        crate::whole::write(self, name, intent, data, io)
    }

    crate::forward! {
        self => self.inner;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }
}

struct Shared {
    label: Arc<str>,
    plan: FaultPlan,
    clock: Clock,
    health: Health,
}

impl Shared {
    /// Asks the plan about a call, and waits as long as it says. `len` is the length of the object, if the call is on
    /// one. An error means that the call must not be made.
    async fn begin(&self, call: &Call, len: u64) -> Result<Verdict> {
        let (wait, verdict) = self.plan.decide(&self.label, call, len);
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
        verdict
    }

    fn poisoned(&self, call: &Call) -> Error {
        let message = format!("{}: {call}: a sync failed earlier", self.label);
        Error::new(ErrorKind::Poisoned, message)
    }
}

struct FaultObject {
    inner: Arc<dyn Object>,
    name: Name,
    poisoned: AtomicBool,
    shared: Arc<Shared>,
}

impl FaultObject {
    /// Like [`Shared::begin`], for a call that a failed sync forbids.
    async fn begin_change(&self, call: &Call) -> Result<Verdict> {
        let verdict = self.shared.begin(call, self.inner.len()).await?;
        let lost = self.poisoned.load(Ordering::Acquire) || self.shared.health.has_lost(&self.name);
        if lost { Err(self.shared.poisoned(call)) } else { Ok(verdict) }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for FaultObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(async move {
            let call = Call::bytes(Op::Read, &self.name, offset, into.len(), io);
            let verdict = self.shared.begin(&call, self.inner.len()).await?;
            let from = if verdict.lie == Some(Lie::Misplaced) { misplaced(offset) } else { offset };
            let mut read = self.inner.read_at(from, into, io).await;
            if let (Some(lie), Ok(bytes)) = (verdict.lie, &mut read) {
                lie.tell(bytes);
            }
            verdict.end(read)
        })
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let call = Call::bytes(Op::Write, &self.name, offset, data.len(), io);
            let verdict = self.begin_change(&call).await?;
            let written = match verdict.lie {
                None => self.inner.write_at(offset, data, io).await,
                Some(lie) => {
                    let to = if lie == Lie::Misplaced { misplaced(offset) } else { offset };
                    let mut bytes = IoBufMut::from(&*data);
                    lie.tell(&mut bytes);
                    self.inner.write_at(to, bytes.freeze(), io).await
                }
            };
            verdict.end(written)
        })
    }

    /// A write and a sync: each may fail.
    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        crate::durable::write(self, offset, data, io)
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let call = Call::range(Op::Zero, &self.name, offset, len, Some(io));
            let verdict = self.begin_change(&call).await?;
            verdict.end(self.inner.zero(offset, len, room, io).await)
        })
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        Box::pin(async move {
            let call = Call::range(Op::Extents, &self.name, offset, len, None);
            let verdict = self.shared.begin(&call, self.inner.len()).await?;
            verdict.end(self.inner.extents(offset, len).await)
        })
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        crate::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        crate::blocking::write_at(self, offset, data, io)
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            let verdict = self.begin_change(&Call::set_len(&self.name, len)).await?;
            verdict.end(self.inner.set_len(len).await)
        })
    }

    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        crate::again::read(self, offset, into, io, check)
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        crate::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync(io)
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let synced = match self.begin_change(&Call::sync(&self.name, io)).await {
                Ok(verdict) => verdict.end(self.inner.sync(io).await),
                Err(e) => Err(e),
            };
            if synced.as_ref().is_err_and(|e| e.kind() == ErrorKind::Poisoned) {
                self.poisoned.store(true, Ordering::Release);
                self.shared.health.poison(&self.name);
            }
            synced
        })
    }

    crate::forward! {
        self => self.inner;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn align(offset: u64, len: u64, io: Io) -> Pending<'_, ()>;
        fn expected_read(offset: u64, len: u64) -> ReadTime;
    }
}

/// The wrong offset of a misplaced read or write: one page further.
fn misplaced(offset: u64) -> u64 {
    offset.saturating_add(PAGE as u64)
}

#[cfg(test)]
mod tests;
