//! A volume that delays every call, before and after it, so that the calls of many users interleave.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{
    Clock, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending, Space, Volume, Zeros,
};

pub(crate) struct Delay<V> {
    inner: V,
    shared: Arc<Waits>,
}

struct Waits {
    clock: Clock,
    max_us: u64,
    random: Mutex<Xoshiro256PlusPlus>,
}

impl<V> Delay<V> {
    pub(crate) fn new(inner: V, clock: &Clock, max_us: u64, seed: u64) -> Self {
        let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed));
        Self { inner, shared: Arc::new(Waits { clock: clock.clone(), max_us, random }) }
    }
}

impl Waits {
    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        self.wait().await;
        let done = call.await;
        self.wait().await;
        done
    }

    async fn wait(&self) {
        let wait = self.random.lock().random_range(0..self.max_us);
        self.clock.sleep(Duration::from_micros(wait)).await;
    }

    fn object(self: &Arc<Self>, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        Arc::new(DelayObject { inner, shared: Arc::clone(self) })
    }
}

impl<V: Volume> Volume for Delay<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let created = self.shared.around(self.inner.create(&name, &intent)).await?;
            Ok(self.shared.object(created))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let opened = self.shared.around(self.inner.open(&name)).await?;
            Ok(self.shared.object(opened))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move { self.shared.around(self.inner.remove(&name)).await })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        self.inner.list()
    }

    fn space(&self) -> Pending<'_, Space> {
        self.inner.space()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}

struct DelayObject {
    inner: Arc<dyn Object>,
    shared: Arc<Waits>,
}

impl Object for DelayObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(self.shared.around(async move { self.inner.read_at(offset, into, io).await }))
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.shared.around(async move { self.inner.write_at(offset, data, io).await }))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(
            self.shared.around(async move { self.inner.write_durable(offset, data, io).await }),
        )
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(self.shared.around(async move { self.inner.zero(offset, len, room, io).await }))
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
        Box::pin(self.shared.around(async move { self.inner.sync(io).await }))
    }
}
