//! A volume that answers each call within a limit, also while the device below hangs.
//!
//! A device may take a request and never answer it: a frozen file system, a network volume whose server is gone. This
//! layer lets the caller go on after a limit, with [`TimedOut`](crate::ErrorKind::TimedOut). The call below goes on by
//! itself; it is *late*, and may still take effect.
//!
//! ```text
//!            a call is overdue              the page is written, or that fails
//!  serving ────────────────────▶ silent ──────────────────────────────────▶ serving
//!                                  writes a page of its own; refuses every call at once
//! ```
//!
//! - While the volume is silent, calls fail at once with `Unavailable`, and nothing is done for them. A volume that
//!   hangs so costs its limit once. Calls that were under way get [`GRACE`] more.
//! - A late write must not land on top of a newer one. Until a late write, cut or sync of an object has ended, every
//!   further one of it fails at once with `TimedOut`. The same holds for creations, openings and removals of a name
//!   after a late creation or removal of it. A creation that succeeds late is undone.
//! - The space on the volume is asked for at each call, and answered from memory where the device does not say within
//!   [`PATIENCE`], as long as the last answer is younger than the limit.
//!
//! It belongs below the gate, whose queue takes as long as it takes, and right above a leaf with its layers. It can only
//! give up a future: a leaf must not make a system call in the thread that polls it, see
//! [`IoPool::apart`](crate::io_pool::IoPool::apart). It never calls the blocking methods of the layers below.

mod state;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_task::Runnable;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use policy::purpose::{Origin, Step};
use policy::time::Instant;

use self::state::{State, Touched};
use crate::buf::PAGE;
use crate::layer::call::Op;
use crate::{
    Check, Clock, Error, ErrorKind, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name,
    Object, Pending, ReadTime, Result, Space, Volume, Zeros, ready, task,
};

/// The usual limit. A local disk that repeats a read of a bad sector takes some seconds; users give up soon after.
pub const LIMIT: Duration = Duration::from_secs(10);

/// A listing is many system calls, so its limit is this many times that of the others.
const LISTING: u32 = 6;

/// How much longer calls under way may take once the volume is silent: time for a page to be written, if only the
/// overdue call hangs.
pub const GRACE: Duration = Duration::from_secs(1);

/// How long a caller waits for the space on the volume, before it gets the last answer.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// The object that is written to see whether the volume answers. It is not listed.
const PROBE: &str = "plimsoll-probe";

const IO: Io = Io::new(Origin::UserWrite, Step::Manifest);

/// A volume with a limit on the time of each call. See the [module](self). Clones are handles to the same one.
#[derive(Clone)]
pub struct Deadline(Arc<Shared>);

impl Deadline {
    /// Puts a limit on the calls to `inner`; `label` names the volume in errors.
    pub fn new(inner: impl Volume + 'static, label: &str, limit: Duration, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            volume: Arc::new(inner),
            label: label.into(),
            limit,
            clock,
            state: Mutex::default(),
        }))
    }

    /// The limit on each call; a listing may take longer.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.0.limit
    }

    /// How long the volume has not answered; `None` while it serves.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        let since = self.0.state.lock().silent_since()?;
        Some(self.0.clock.now().since(since))
    }

    /// Runs other work on the volume below within the limit. After work of this name became late, no more of it begins
    /// before that has ended.
    ///
    /// # Errors
    /// Those of `work`; `TimedOut`, `Unavailable`.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &Name,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let what = What { doing: "work on", name: Some(name), op: None };
        self.0.call(what, self.0.limit, Box::pin(work)).await
    }
}

/// Runs work on a volume that is being opened, within `limit`. Late work goes on where it waits on other threads, and its
/// result is dropped.
///
/// # Errors
/// Those of `work`; `TimedOut`.
pub async fn opened<T>(
    label: &str,
    limit: Duration,
    clock: &Clock,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    match select(pin!(work), clock.sleep(limit)).await {
        Either::Left((opened, _)) => opened,
        Either::Right(_) => {
            let message = format!("volume {label}: it cannot be opened: no answer in {limit:?}");
            Err(Error::new(ErrorKind::TimedOut, message))
        }
    }
}

/// Writes and syncs a page that `volume` has for this, to see whether it answers.
///
/// # Errors
/// Those of the volume.
pub async fn try_out(volume: &dyn Volume) -> Result<()> {
    let name = probe();
    let page = match volume.open(&name).await {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            match volume.create(&name, &Intent::DATA).await {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => volume.open(&name).await?,
                created => created?,
            }
        }
        opened => opened?,
    };
    write_page(&*page).await
}

/// The same with a new object and every kind of call: a device may hang in reads alone, or in what a file system writes
/// to its journal.
async fn try_all(volume: &dyn Volume) -> Result<()> {
    let name = probe();
    match volume.remove(&name).await {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    volume.create(&name, &Intent::DATA).await?;
    let page = volume.open(&name).await?;
    page.set_len(2 * PAGE as u64).await?;
    write_page(&*page).await?;
    page.read_at(0, IoBufMut::zeroed(PAGE), IO).await.map(drop)
}

async fn write_page(page: &dyn Object) -> Result<()> {
    page.write_at(0, IoBufMut::zeroed(PAGE).freeze(), IO).await?;
    page.sync(IO).await
}

fn probe() -> Name {
    Name::new(PROBE).expect("it has only letters and a dash")
}

/// A call, for errors and for what a late one keeps others from.
#[derive(Clone, Copy)]
struct What<'a> {
    doing: &'static str,
    name: Option<&'a Name>,
    op: Option<Op>,
}

impl<'a> What<'a> {
    const fn of(op: Op, name: Option<&'a Name>) -> Self {
        Self { doing: op.name(), name, op: Some(op) }
    }

    fn touched(self) -> Option<Touched> {
        let name = self.name?.clone();
        match self.op {
            Some(Op::Write | Op::WriteDurable | Op::Zero | Op::SetLen | Op::Sync) => {
                Some(Touched::Bytes(name))
            }
            Some(Op::Create | Op::Remove) | None => Some(Touched::Entry(name)),
            Some(Op::Open | Op::List | Op::Space | Op::Read | Op::Extents) => None,
        }
    }
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.doing)?;
        self.name.map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

struct Shared {
    volume: Arc<dyn Volume>,
    label: String,
    limit: Duration,
    clock: Clock,
    /// Locked briefly; no waker and no call below runs under it.
    state: Mutex<State>,
}

impl Shared {
    async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        what: What<'_>,
        limit: Duration,
        work: Pending<'static, T>,
    ) -> Result<T> {
        self.admit(what)?;
        self.finish(what, limit, work).await
    }

    /// Refuses a call that would wait for a late one.
    fn admit(&self, what: What<'_>) -> Result<()> {
        let state = self.state.lock();
        if state.is_untroubled() {
            return Ok(());
        }
        if let Some(since) = state.silent_since() {
            let silent = self.clock.now().since(since) + self.limit;
            let why = format!("no answer for {} s, so nothing was done", silent.as_secs());
            return Err(self.error(ErrorKind::Unavailable, what, &why));
        }
        let waits = match what.touched() {
            Some(Touched::Bytes(name)) => state.has_late_bytes(&name),
            Some(Touched::Entry(name)) => state.has_late_entry(&name),
            Some(Touched::Room) | None => {
                what.op == Some(Op::Open)
                    && what.name.is_some_and(|name| state.has_late_entry(name))
            }
        };
        if waits {
            let why = "an earlier call of it has not ended, so nothing was done";
            return Err(self.error(ErrorKind::TimedOut, what, why));
        }
        Ok(())
    }

    async fn finish<T: Send + 'static>(
        self: &Arc<Self>,
        what: What<'_>,
        limit: Duration,
        mut work: Pending<'static, T>,
    ) -> Result<T> {
        match self.wait(&mut work, limit).await {
            Some(done) => done,
            None => Err(self.overdue(what, work)),
        }
    }

    /// The result of `work`, if it ends within `limit`.
    async fn wait<T>(
        self: &Arc<Self>,
        work: &mut Pending<'static, T>,
        limit: Duration,
    ) -> Option<Result<T>> {
        let mut under_way = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            let under_way = under_way.get_or_insert_with(|| UnderWay::begin(self, limit));
            match under_way.is_over(cx.waker()) {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Leaves a call to itself, and sees whether the volume still answers others; returns the caller's error.
    fn overdue<T: Send + 'static>(
        self: &Arc<Self>,
        what: What<'_>,
        work: Pending<'static, T>,
    ) -> Error {
        let late = Late::begin(self, what.touched());
        let created = what.name.filter(|_| what.op == Some(Op::Create)).cloned();
        detach(async move {
            let is_done = work.await.is_ok();
            if let Some(name) = created.filter(|_| is_done)
                && let Err(error) = late.0.volume.remove(&name).await
            {
                tracing::debug!("volume {}: {name} was created late: {error}", late.0.label);
            }
            drop(late);
        });
        let why = format!("no answer in {:?}: it may be done later", self.limit);
        let error = self.error(ErrorKind::TimedOut, what, &why);
        if self.state.lock().fall_silent(self.clock.now()) {
            tracing::warn!("{error}; calls are refused until the volume answers");
            let silence = Silence(Arc::clone(self));
            detach(async move {
                let tried = try_all(&*silence.0.volume).await;
                let label = &silence.0.label;
                match tried {
                    Ok(()) => tracing::warn!("volume {label}: it answers again"),
                    Err(error) => tracing::warn!("volume {label}: it answers again: {error}"),
                }
                drop(silence);
            });
            self.clock.wake_at(self.clock.now() + self.grace(), self.alarm());
        }
        error
    }

    async fn space(self: &Arc<Self>) -> Result<Space> {
        let what = What::of(Op::Space, None);
        self.admit(what)?;
        let (known, is_late) = self.state.lock().space(self.clock.now(), self.limit);
        match known {
            Some(space) if is_late => return Ok(space),
            None if is_late => {
                let why = format!("no answer in {:?}", self.limit);
                return Err(self.error(ErrorKind::TimedOut, what, &why));
            }
            _ => {}
        }
        let shared = Arc::clone(self);
        let mut work: Pending<'static, Space> = Box::pin(async move {
            let space = shared.volume.space().await?;
            shared.state.lock().set_space(shared.clock.now(), space);
            Ok(space)
        });
        let Some(known) = known else { return self.finish(what, self.limit, work).await };
        if let Some(done) = self.wait(&mut work, PATIENCE.min(self.limit)).await {
            return done;
        }
        let late = Late::begin(self, Some(Touched::Room));
        detach(async move {
            // It was recorded; an error is found by the next call.
            let _ = work.await;
            drop(late);
        });
        Ok(known)
    }

    fn object(self: &Arc<Self>, name: Name, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        Arc::new(Limited { inner, name, shared: Arc::clone(self) })
    }

    fn grace(&self) -> Duration {
        GRACE.min(self.limit)
    }

    /// Wakes the calls whose time is over. It does not keep the volume open.
    fn alarm(self: &Arc<Self>) -> Waker {
        Arc::new(Alarm(Arc::downgrade(self))).into()
    }

    fn ring(self: &Arc<Self>) {
        let (due, next) = self.state.lock().due(self.clock.now(), self.grace());
        if let Some(at) = next {
            self.clock.wake_at(at, self.alarm());
        }
        due.into_iter().for_each(Waker::wake);
    }

    fn error(&self, kind: ErrorKind, what: What<'_>, why: &str) -> Error {
        Error::new(kind, format!("volume {}: {what}: {why}", self.label))
    }
}

struct Alarm(Weak<Shared>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.ring();
        }
    }
}

/// A call that waits for the device.
struct UnderWay<'a> {
    shared: &'a Arc<Shared>,
    until: Instant,
    number: u64,
}

impl<'a> UnderWay<'a> {
    fn begin(shared: &'a Arc<Shared>, limit: Duration) -> Self {
        let until = shared.clock.now() + limit;
        let (number, alarm) = shared.state.lock().begin(until);
        if alarm {
            shared.clock.wake_at(until, shared.alarm());
        }
        Self { shared, until, number }
    }

    /// Whether its time is over; if not, `waker` is woken then.
    fn is_over(&self, waker: &Waker) -> bool {
        let mut state = self.shared.state.lock();
        // Read under the lock: an alarm that rings between the two would find no waker, and not ring again.
        let now = self.shared.clock.now();
        let is_over = state.is_over(self.until, now, self.shared.grace());
        if !is_over {
            state.wake_by(self.until, self.number, waker);
        }
        is_over
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().end(self.until, self.number);
    }
}

/// A late call; it has ended when this is dropped.
struct Late(Arc<Shared>, Option<Touched>);

impl Late {
    fn begin(shared: &Arc<Shared>, touched: Option<Touched>) -> Self {
        shared.state.lock().begin_late(touched.as_ref());
        Self(Arc::clone(shared), touched)
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.0.state.lock().end_late(self.1.as_ref());
    }
}

/// The volume is silent until this is dropped.
struct Silence(Arc<Shared>);

impl Drop for Silence {
    fn drop(&mut self) {
        self.0.state.lock().end_silence();
    }
}

/// Lets `work` run to its end by itself, wherever it is woken.
fn detach(work: impl Future<Output = ()> + Send + 'static) {
    let run = |runnable: Runnable| task::without_blocking(|| _ = runnable.run());
    let (runnable, task) = async_task::spawn(work, run);
    task.detach();
    runnable.schedule();
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Deadline {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let (volume, made) = (Arc::clone(&self.0.volume), name.clone());
            let work = Box::pin(async move { volume.create(&made, &intent).await });
            let object = self.0.call(What::of(Op::Create, Some(&name)), self.0.limit, work).await?;
            Ok(self.0.object(name, object))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let (volume, opened) = (Arc::clone(&self.0.volume), name.clone());
            let work = Box::pin(async move { volume.open(&opened).await });
            let object = self.0.call(What::of(Op::Open, Some(&name)), self.0.limit, work).await?;
            Ok(self.0.object(name, object))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move {
            let (volume, removed) = (Arc::clone(&self.0.volume), name.clone());
            let work = Box::pin(async move { volume.remove(&removed).await });
            self.0.call(What::of(Op::Remove, Some(&name)), self.0.limit, work).await
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            let volume = Arc::clone(&self.0.volume);
            let work = Box::pin(async move { volume.list().await });
            let limit = LISTING * self.0.limit;
            let mut listed = self.0.call(What::of(Op::List, None), limit, work).await?;
            listed.retain(|listed| listed.name.as_str() != PROBE);
            Ok(listed)
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(self.0.space())
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        crate::whole::write(self, name, intent, data, io)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(async move {
            let (volume, old, new) = (Arc::clone(&self.0.volume), from.clone(), to.clone());
            let work = Box::pin(async move { volume.rename(&old, &new).await });
            self.0
                .call(What { doing: "rename", name: Some(&from), op: None }, self.0.limit, work)
                .await
        })
    }

    fn link(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(async move {
            let (volume, old, new) = (Arc::clone(&self.0.volume), from.clone(), to.clone());
            let work = Box::pin(async move { volume.link(&old, &new).await });
            self.0
                .call(What { doing: "link", name: Some(&from), op: None }, self.0.limit, work)
                .await
        })
    }

    crate::forward! {
        self => self.0.volume;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
    }
}

/// An object of a volume with a limit.
struct Limited {
    inner: Arc<dyn Object>,
    name: Name,
    shared: Arc<Shared>,
}

impl Limited {
    fn call<T, F>(&self, op: Op, work: impl FnOnce(Arc<dyn Object>) -> F) -> Pending<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let what = What::of(op, Some(&self.name));
        let work = Box::pin(work(Arc::clone(&self.inner)));
        Box::pin(self.shared.call(what, self.shared.limit, work))
    }

    /// As [`Limited::call`], but the layer below is called before this returns. The layers above and below a log count
    /// its unsynced bytes at the call, and both must find the same.
    fn call_now<T, F>(&self, op: Op, work: impl FnOnce(Arc<dyn Object>) -> F) -> Pending<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let what = What::of(op, Some(&self.name));
        if let Err(refused) = self.shared.admit(what) {
            return ready(Err(refused));
        }
        let mut work: Pending<'static, T> = Box::pin(work(Arc::clone(&self.inner)));
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => ready(done),
            Poll::Pending => Box::pin(self.shared.finish(what, self.shared.limit, work)),
        }
    }

    fn sync_by<T, F>(&self, work: impl FnOnce(Arc<dyn Object>) -> F) -> Pending<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        if self.is_log() { self.call_now(Op::Sync, work) } else { self.call(Op::Sync, work) }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for Limited {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        self.call(Op::Read, move |inner| async move { inner.read_at(offset, into, io).await })
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        let work =
            move |inner: Arc<dyn Object>| async move { inner.write_at(offset, data, io).await };
        if self.is_log() { self.call_now(Op::Write, work) } else { self.call(Op::Write, work) }
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if self.is_log() {
            return crate::durable::write(self, offset, data, io);
        }
        self.call(Op::WriteDurable, move |inner| async move {
            inner.write_durable(offset, data, io).await
        })
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        self.call(Op::Zero, move |inner| async move { inner.zero(offset, len, room, io).await })
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        self.call(Op::Extents, move |inner| async move { inner.extents(offset, len).await })
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        crate::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        crate::blocking::write_at(self, offset, data, io)
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        self.call(Op::SetLen, move |inner| async move { inner.set_len(len).await })
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

    fn align(&self, offset: u64, len: u64, io: Io) -> Pending<'_, ()> {
        self.call(Op::Sync, move |inner| async move { inner.align(offset, len, io).await })
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync_by(move |inner| async move { inner.seal(io).await })
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        self.sync_by(move |inner| async move { inner.sync_ahead(more, io).await })
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        self.sync_by(move |inner| async move { inner.sync(io).await })
    }

    crate::forward! {
        self => self.inner;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn expected_read(offset: u64, len: u64) -> ReadTime;
    }
}

#[cfg(test)]
mod tests;
