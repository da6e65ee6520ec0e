//! A device that records its writes, and holds them until it is told to go on.

use std::ops::Range;
use std::sync::Arc;

use engine::block::{
    BlockDevice, BlockDevices, Durable, Error, Extent, Geometry, IoBuf, IoBufMut, Memory, Pending,
    Zeros,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{SIZE, Settings, Stage};

pub(super) struct Recorder {
    inner: Arc<dyn BlockDevice>,
    /// Offset and length of each write that was begun.
    pub(super) begun: Mutex<Vec<(u64, usize, Durable)>>,
    /// The offsets of those that ended.
    pub(super) ended: Mutex<Vec<u64>>,
    goes_on: watch::Sender<bool>,
    pub(super) geometry: Mutex<Geometry>,
    /// What each write before `room_from` fails with.
    pub(super) fails: Mutex<Option<Error>>,
    room_from: Mutex<u64>,
    /// Reads return one byte less.
    pub(super) reads_short: Mutex<bool>,
}

impl Recorder {
    /// A server of this device, which holds writes if `holds`.
    pub(super) async fn stage(settings: Settings, holds: bool) -> (Arc<Self>, Stage) {
        let inner = Memory::default().with("a", 2 * SIZE).open("a").await.expect("there is one");
        let geometry = Geometry { size: SIZE, ..inner.geometry() };
        let recorder = Arc::new(Self {
            inner,
            begun: Mutex::default(),
            ended: Mutex::default(),
            goes_on: watch::Sender::new(!holds),
            geometry: Mutex::new(geometry),
            fails: Mutex::default(),
            room_from: Mutex::new(u64::MAX),
            reads_short: Mutex::default(),
        });
        let devices = Memory::default().with_device("a", Arc::clone(&recorder) as _);
        (recorder, Stage::of(Arc::new(devices), settings))
    }

    /// Writes from here on do not fail.
    pub(super) fn has_room_from(&self, offset: u64) {
        *self.room_from.lock() = offset;
    }

    /// Lets all writes go on.
    pub(super) fn go_on(&self) {
        self.goes_on.send_replace(true);
    }

    /// Waits until `count` writes have begun.
    pub(super) async fn has_begun(&self, count: usize) {
        while self.begun.lock().len() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Offset and length of each write so far.
    pub(super) fn writes(&self) -> Vec<(u64, usize)> {
        self.begun.lock().iter().map(|&(offset, len, _)| (offset, len)).collect()
    }
}

impl BlockDevice for Recorder {
    fn geometry(&self) -> Geometry {
        *self.geometry.lock()
    }

    fn read(&self, offset: u64, mut into: IoBufMut) -> Pending<'_, IoBufMut> {
        if *self.reads_short.lock() {
            into.resize(into.len() - 1);
        }
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, data: IoBuf, durable: Durable) -> Pending<'_, ()> {
        Box::pin(async move {
            self.begun.lock().push((offset, data.len(), durable));
            let _ = self.goes_on.subscribe().wait_for(|&goes_on| goes_on).await;
            let result = match self.fails.lock().clone() {
                Some(error) if offset < *self.room_from.lock() => Err(error),
                _ => Ok(()),
            };
            if result.is_ok() {
                self.inner.write(offset, data, durable).await?;
            }
            self.ended.lock().push(offset);
            result
        })
    }

    fn zero(
        &self,
        range: Range<u64>,
        room: Zeros,
        fast: bool,
        durable: Durable,
    ) -> Pending<'_, ()> {
        self.inner.zero(range, room, fast, durable)
    }

    fn discard(&self, range: Range<u64>, durable: Durable) -> Pending<'_, ()> {
        self.inner.discard(range, durable)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.inner.flush()
    }

    fn extents(&self, range: Range<u64>, most: usize) -> Pending<'_, Vec<Extent>> {
        self.inner.extents(range, most)
    }

    fn prefetch(&self, range: Range<u64>) -> Pending<'_, ()> {
        self.inner.prefetch(range)
    }
}
