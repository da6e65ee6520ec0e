//! A volume that delays every call, before and after it, so that the calls of many users interleave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{
    Clock, Intent, Io, IoBuf, IoBufMut, Listed, Name, Object, Pending, Result, Space, Volume,
};

/// The longest delay.
pub(crate) const WAIT_US_MAX: u64 = 200;

#[derive(Clone)]
pub(crate) struct Jitter<V> {
    inner: V,
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    random: Mutex<Xoshiro256PlusPlus>,
    /// What each call takes besides.
    each: Duration,
    manifest_syncs: AtomicU64,
}

impl<V> Jitter<V> {
    pub(crate) fn new(inner: V, clock: &Clock, seed: u64) -> Self {
        Self::slow(inner, clock, seed, Duration::ZERO)
    }

    /// The same, with calls that take this much longer.
    pub(crate) fn slow(inner: V, clock: &Clock, seed: u64, each: Duration) -> Self {
        let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed));
        let clock = clock.clone();
        Self {
            inner,
            shared: Arc::new(Shared { clock, random, each, manifest_syncs: AtomicU64::new(0) }),
        }
    }

    /// The number of syncs of copies of the manifest.
    pub(crate) fn manifest_syncs(&self) -> u64 {
        self.shared.manifest_syncs.load(Ordering::Relaxed)
    }
}

impl Shared {
    async fn wait(&self) {
        let wait = self.random.lock().random_range(0..WAIT_US_MAX);
        self.clock.sleep(Duration::from_micros(wait)).await;
    }

    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        self.wait().await;
        self.clock.sleep(self.each).await;
        let done = call.await;
        self.wait().await;
        done
    }

    fn object(self: &Arc<Self>, name: Name, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        Arc::new(JitterObject { name, inner, shared: Arc::clone(self) })
    }
}

impl<V: Volume> Volume for Jitter<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let created = self.shared.around(self.inner.create(&name, &intent)).await?;
            Ok(self.shared.object(name, created))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let opened = self.shared.around(self.inner.open(&name)).await?;
            Ok(self.shared.object(name, opened))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move { self.shared.around(self.inner.remove(&name)).await })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(self.shared.around(self.inner.list()))
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(self.shared.around(self.inner.space()))
    }
}

struct JitterObject {
    name: Name,
    inner: Arc<dyn Object>,
    shared: Arc<Shared>,
}

impl Object for JitterObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(self.shared.around(async move { self.inner.read_at(offset, into, io).await }))
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.shared.around(async move { self.inner.write_at(offset, data, io).await }))
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_log(&self) -> bool {
        self.inner.is_log()
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(self.shared.around(async move { self.inner.set_len(len).await }))
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        if self.name.as_str().starts_with("manifest-") {
            self.shared.manifest_syncs.fetch_add(1, Ordering::Relaxed);
        }
        let synced: Pending<'_, ()> =
            Box::pin(self.shared.around(async move { self.inner.sync(io).await }));
        synced
    }
}

/// Gives up on `work` after `wait`.
pub(crate) async fn give_up_after<T>(
    clock: &Clock,
    wait: Duration,
    work: impl Future<Output = Result<T>>,
) -> Option<Result<T>> {
    use futures_util::future::{Either, select};
    match select(std::pin::pin!(work), clock.sleep(wait)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}
