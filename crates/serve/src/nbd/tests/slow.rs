//! A device whose reads wait, and whose changes fail.

use engine::block::{Durable, Error, Extent, Geometry, IoBuf, IoBufMut, Zeros};
use tokio::sync::Notify;

use super::*;

/// A device that answers nothing until it is told to, and notes what reached it.
pub(super) struct Slow {
    inner: Arc<dyn BlockDevice>,
    pub(super) begun: parking_lot::Mutex<Vec<u64>>,
    go: Notify,
    is_open: std::sync::atomic::AtomicBool,
}

impl Slow {
    async fn wait(&self) {
        let told = self.go.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if !self.is_open.load(std::sync::atomic::Ordering::SeqCst) {
            told.await;
        }
    }

    pub(super) fn open(&self) {
        self.is_open.store(true, std::sync::atomic::Ordering::SeqCst);
        self.go.notify_waiters();
    }
}

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        Geometry { writes_are_durable: true, ..self.inner.geometry() }
    }

    fn read(&self, offset: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        Box::pin(async move {
            self.begun.lock().push(offset);
            self.wait().await;
            self.inner.read(offset, into).await
        })
    }

    fn write(&self, _: u64, _: IoBuf, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::OutOfSpace("full".into())) })
    }

    fn zero(&self, _: std::ops::Range<u64>, _: Zeros, _: bool, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Unsupported("it would be slow".into())) })
    }

    fn discard(&self, _: std::ops::Range<u64>, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Closed("deleted".into())) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Corrupt("bad bytes".into())) })
    }

    fn extents(&self, range: std::ops::Range<u64>, most: usize) -> Pending<'_, Vec<Extent>> {
        self.inner.extents(range, most)
    }

    fn prefetch(&self, _: std::ops::Range<u64>) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Busy("later".into())) })
    }
}

/// A server of one.
pub(super) async fn slow(settings: Settings) -> (Arc<Slow>, Stage) {
    let inner = Memory::default().with("a", SIZE).open("a").await.expect("there is one");
    let (begun, is_open) = (parking_lot::Mutex::default(), false.into());
    let slow = Arc::new(Slow { inner, begun, go: Notify::new(), is_open });
    let devices = Memory::default().with_device("a", Arc::clone(&slow) as _);
    (slow, Stage::of(Arc::new(devices), settings))
}
