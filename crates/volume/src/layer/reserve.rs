//! Room set aside, and released to writes that find the volume full.
//!
//! ```text
//!   |  objects  |  free  |  pieces: objects without bytes, with room set aside  |
//!                        ◀── one is removed when a write finds the volume full
//! ```
//! A full store cannot free room: a delete is a write. So this layer sets room aside where the file system can
//! ([`Intent::len`]), in pieces that no other program can take. When a call fails for lack of room, the layer removes a
//! piece and repeats the call, until it succeeds or no piece is left. The last pieces are for logs, flushes and whatever
//! else [may take them](Io::may_take_last_room). One of these may need only a page of a piece; the rest is not for other
//! writes either, which leave as much free as is missing of the last pieces. Each piece is an object, so removing one frees an inode, too.
//!
//! The layer does not decide who may have the room. Its owner counts what is [held](Reserve::held), and refuses writes
//! that free nothing long before.
//!
//! It belongs right below its user. It passes a failed sync on: the user has to write the lost bytes again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use policy::intent::Kind;
use policy::purpose::{Origin, Step};

use crate::buf::PAGE;
use crate::{
    Check, Error, ErrorKind, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object,
    Pending, ReadTime, Result, Space, Volume, Zeros,
};

/// Number of pieces.
const PIECES: u64 = 16;
/// Of these, the last ones.
const LAST: usize = 2;
/// Stands before the number of a piece and its length, both in hexadecimal digits.
const NAME: &str = "reserve.";
/// After this many pieces in a row that took no room, the file system is known to set none aside. One piece proves
/// nothing: another program may have freed as much at the time.
const REFUSALS_MAX: u32 = 3;
const IO: Io = Io::new(Origin::Bulk, Step::Data);

/// Of a reserve of this many bytes, those that only some writes [may take](Io::may_take_last_room).
#[must_use]
pub const fn last_of(reserve: u64) -> u64 {
    piece_of(reserve) * LAST as u64
}

/// The bytes of a piece of such a reserve.
const fn piece_of(reserve: u64) -> u64 {
    (reserve / PIECES).next_multiple_of(PAGE as u64)
}

/// A volume with room kept back. Clones are handles to the same one.
#[derive(Clone)]
pub struct Reserve(Arc<Shared>);

struct Shared {
    inner: Arc<dyn Volume>,
    prefix: String,
    pieces: Mutex<Vec<Piece>>,
    /// The number of the next piece. No number is used twice: a late removal must not hit a newer piece.
    next: AtomicU64,
    /// Pieces in a row that took no room.
    refusals: AtomicU32,
    /// The bytes that its owner asked for last.
    target: AtomicU64,
    /// Whether pieces are not listed, and count as free.
    is_hidden: AtomicBool,
}

#[derive(Clone, Copy)]
struct Piece {
    number: u64,
    len: u64,
    /// Its removal is under way, or was cancelled.
    is_leaving: bool,
}

impl Piece {
    /// Whether both have the same name.
    const fn is(&self, other: &Self) -> bool {
        self.number == other.number && self.len == other.len
    }
}

impl Reserve {
    /// Takes over the pieces on `inner` from before, under names that begin with `prefix`.
    ///
    /// # Errors
    /// As for [`Volume::list`].
    pub async fn open(inner: Arc<dyn Volume>, prefix: &str) -> Result<Self> {
        let shared = Shared {
            inner,
            prefix: format!("{prefix}{NAME}"),
            pieces: Mutex::default(),
            next: AtomicU64::new(0),
            refusals: AtomicU32::new(0),
            target: AtomicU64::new(0),
            is_hidden: AtomicBool::new(false),
        };
        for listed in shared.inner.list().await? {
            let Some(piece) = shared.piece_of(&listed.name) else { continue };
            shared.next.fetch_max(piece.number + 1, Ordering::Relaxed);
            // A piece with bytes is known to have room; one without may stem from the moment before a crash.
            if listed.len > 0 {
                shared.pieces.lock().push(piece);
            } else {
                shared.inner.remove(&listed.name).await?;
            }
        }
        Ok(Self(Arc::new(shared)))
    }

    /// Bytes in pieces now; the volume counts them as used.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.held()
    }

    /// From now on, does not list pieces and counts them as free. For an owner above a pool: the pool would take pieces
    /// for foreign objects, and avoid a volume whose only room is in its reserve.
    pub fn hide(&self) {
        self.0.is_hidden.store(true, Ordering::Relaxed);
    }

    /// Moves one piece towards `target` bytes: adds one if there is room for it and as much again, or removes one that
    /// is too many. Says whether it did. Only one call may run at a time.
    ///
    /// # Errors
    /// As for [`Volume::create`].
    pub async fn approach(&self, target: u64) -> Result<bool> {
        self.0.target.store(target, Ordering::Relaxed);
        if self.0.pieces.lock().iter().any(|piece| piece.is_leaving) {
            // Its removal may have been cancelled: until it is gone its room is neither held nor free.
            return self.0.let_go(0).await;
        }
        let held = self.held();
        let len = piece_of(target);
        if held > target + len {
            return self.0.let_go(0).await;
        }
        if len == 0
            || held + len > target + PAGE as u64
            || self.0.refusals.load(Ordering::Relaxed) >= REFUSALS_MAX
        {
            return Ok(false);
        }
        let before = self.0.inner.space().await?;
        if before.free < 2 * len {
            return Ok(false);
        }
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let piece = Piece { number, len, is_leaving: false };
        let name = self.0.name(&piece);
        let intent = Intent { len: Some(len), ..Intent::DATA };
        let object = match self.0.inner.create(&name, &intent).await {
            Ok(object) => object,
            Err(error) if error.kind() == ErrorKind::OutOfSpace => return Ok(false),
            Err(error) => return Err(error),
        };
        let after = self.0.inner.space().await?;
        if before.free.saturating_sub(after.free) < len / 2 {
            if self.0.refusals.fetch_add(1, Ordering::Relaxed) + 1 == REFUSALS_MAX {
                tracing::info!(object = %name, "the file system cannot reserve room");
            }
            self.0.inner.remove(&name).await?;
            return Ok(false);
        }
        self.0.refusals.store(0, Ordering::Relaxed);
        let kept = async {
            object.write_at(0, IoBufMut::zeroed(PAGE).freeze(), IO).await?;
            object.sync(IO).await
        };
        if let Err(error) = kept.await {
            self.0.inner.remove(&name).await?;
            return Err(error);
        }
        self.0.pieces.lock().push(piece);
        Ok(true)
    }
}

impl Shared {
    fn held(&self) -> u64 {
        let pieces = self.pieces.lock();
        pieces.iter().filter(|piece| !piece.is_leaving).map(|piece| piece.len).sum()
    }

    /// The bytes that are missing of the last pieces.
    fn lacks(&self) -> u64 {
        last_of(self.target.load(Ordering::Relaxed)).saturating_sub(self.held())
    }

    /// Refuses `len` bytes that would not leave free what is missing of the last pieces.
    async fn leave_last(&self, len: u64) -> Result<()> {
        let lacks = self.lacks();
        if lacks == 0 {
            return Ok(());
        }
        let Space { free, lacks_files, .. } = self.inner.space().await?;
        // One that lacks files reports no free bytes, whatever it has.
        if lacks_files || free >= lacks.saturating_add(len) {
            return Ok(());
        }
        let what = format!(
            "{len} bytes of a compaction or copy do not fit: of {free} free bytes, {lacks} are for logs and flushes"
        );
        Err(Error::new(ErrorKind::OutOfSpace, what))
    }

    fn name(&self, piece: &Piece) -> Name {
        let name = format!("{}{:02x}.{:x}", self.prefix, piece.number, piece.len);
        Name::new(&name).expect("the prefix is one of names")
    }

    fn piece_of(&self, name: &Name) -> Option<Piece> {
        let (number, len) = name.as_str().strip_prefix(&self.prefix)?.split_once('.')?;
        let number = u64::from_str_radix(number, 16).ok().filter(|&number| number < u64::MAX)?;
        let len = u64::from_str_radix(len, 16).ok()?;
        Some(Piece { number, len, is_leaving: false })
    }

    /// Removes a piece, but for the last `but`; says whether there was one.
    ///
    /// Also removes a piece that another call is removing: its room may serve both calls, and the other call may have
    /// been cancelled. So a piece stays in the list until it is gone.
    async fn let_go(&self, but: usize) -> Result<bool> {
        let Some(piece) = self.leaving(but) else { return Ok(false) };
        let name = self.name(&piece);
        match self.inner.remove(&name).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let mut pieces = self.pieces.lock();
                let stays = pieces.iter_mut().filter(|other| other.is(&piece));
                stays.for_each(|piece| piece.is_leaving = false);
                Err(error)
            }
            _ => {
                self.pieces.lock().retain(|other| !other.is(&piece));
                tracing::debug!(object = %name, "the volume is full: reserved room is used");
                Ok(true)
            }
        }
    }

    /// The next piece to remove, but for the last `but`.
    fn leaving(&self, but: usize) -> Option<Piece> {
        let mut pieces = self.pieces.lock();
        let last = pieces.len().checked_sub(1).filter(|_| pieces.len() > but);
        let place = pieces.iter().position(|piece| piece.is_leaving).or(last)?;
        pieces[place].is_leaving = true;
        Some(pieces[place])
    }

    /// Creates an object, without room for its bytes if only the last pieces have that: each write says later whether it may take
    /// them. An object that is overwritten in place gets its room.
    async fn create(&self, name: &Name, intent: &Intent) -> Result<Arc<dyn Object>> {
        let ahead = intent.len.filter(|_| intent.kind != Kind::InPlace);
        if ahead.is_some() {
            match self.with_room(ahead, || self.inner.create(name, intent)).await {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                made => return made,
            }
        }
        let bare = Intent { len: intent.len.filter(|_| ahead.is_none()), ..intent.clone() };
        self.with_room(None, || self.inner.create(name, &bare)).await
    }

    /// Repeats `work` as long as it fails for lack of room and a piece is left to remove, but for the last ones if it is a
    /// write of `bulk` bytes that may not take them.
    async fn with_room<T, W: Future<Output = Result<T>>>(
        &self,
        bulk: Option<u64>,
        work: impl Fn() -> W,
    ) -> Result<T> {
        let but = if bulk.is_some() { LAST } else { 0 };
        if let Some(len) = bulk {
            self.leave_last(len).await?;
        }
        loop {
            match work().await {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                    if !matches!(self.let_go(but).await, Ok(true)) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Reserve {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let inner = self.0.create(&name, &intent).await?;
            Ok(Arc::new(Kept { inner, shared: Arc::clone(&self.0) }) as Arc<dyn Object>)
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let inner = self.0.inner.open(&name).await?;
            Ok(Arc::new(Kept { inner, shared: Arc::clone(&self.0) }) as Arc<dyn Object>)
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            let mut listed = self.0.inner.list().await?;
            if self.0.is_hidden.load(Ordering::Relaxed) {
                listed.retain(|listed| self.0.piece_of(&listed.name).is_none());
            }
            Ok(listed)
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async move {
            let space = self.0.inner.space().await?;
            let hidden = self.0.is_hidden.load(Ordering::Relaxed);
            let lent = if hidden { self.held() } else { 0 };
            Ok(Space { free: (space.free + lent).min(space.total), ..space })
        })
    }

    crate::forward! {
        self => self.0.inner;
        fn remove(name: &Name) -> Pending<'_, ()>;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        crate::whole::write(self, name, intent, data, io)
    }
}

/// The bytes of a write that may not take the last room.
fn bulk(io: Io, len: usize) -> Option<u64> {
    (!io.may_take_last_room()).then_some(len as u64)
}

struct Kept {
    inner: Arc<dyn Object>,
    shared: Arc<Shared>,
}

#[deny(clippy::missing_trait_methods)]
impl Object for Kept {
    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        let bulk = bulk(io, data.len());
        let write = move || self.inner.write_at(offset, data.clone(), io);
        Box::pin(self.shared.with_room(bulk, write))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        let bulk = bulk(io, data.len());
        let write = move || self.inner.write_durable(offset, data.clone(), io);
        Box::pin(self.shared.with_room(bulk, write))
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        let bulk = (room == Zeros::Keep && !io.may_take_last_room()).then_some(len);
        let zero = move || self.inner.zero(offset, len, room, io);
        Box::pin(self.shared.with_room(bulk, zero))
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        if !io.may_take_last_room() && self.shared.lacks() > 0 {
            return crate::blocking::write_at(self, offset, data, io);
        }
        match self.inner.blocking_write_at(offset, data, io) {
            // The second attempt finds the volume full again, and then removes pieces.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                crate::blocking::write_at(self, offset, data, io)
            }
            done => done,
        }
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(self.shared.with_room(None, move || self.inner.set_len(len)))
    }

    crate::forward! {
        self => self.inner;
        fn read_at(offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut>;
        fn blocking_read_at(offset: u64, into: &mut [u8], io: Io) -> Result<usize>;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn extents(offset: u64, len: u64) -> Pending<'_, Vec<Extent>>;
        fn read_again(offset: u64, into: IoBufMut, io: Io, check: Check) -> Pending<'_, IoBufMut>;
        fn align(offset: u64, len: u64, io: Io) -> Pending<'_, ()>;
        fn expected_read(offset: u64, len: u64) -> ReadTime;
        fn seal(io: Io) -> Pending<'_, ()>;
        fn sync_ahead(more: u64, io: Io) -> Pending<'_, bool>;
        fn sync(io: Io) -> Pending<'_, ()>;
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::time::Duration;

    use futures_util::future::{join, join3};

    use super::*;
    use crate::Clock;
    use crate::conformance::{self, Blocking};
    use crate::layer::crash::{Crash, Power};
    use crate::layer::trace::{Trace, TraceLog};
    use crate::mem::Mem;
    use crate::task::block_on;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn on(volume: impl Volume + 'static) -> Reserve {
        block_on(Reserve::open(Arc::new(volume), "x/")).unwrap()
    }

    fn keep(reserve: &Reserve, target: u64) {
        while block_on(reserve.approach(target)).unwrap() {}
    }

    fn pages(count: usize) -> IoBuf {
        IoBufMut::zeroed(count * PAGE).freeze()
    }

    /// A volume in memory whose removals take a while, and which can remove one object while it makes another.
    struct Slow {
        mem: Mem,
        clock: Clock,
        goes: Mutex<Option<Name>>,
    }

    impl Slow {
        fn new(clock: &Clock, pages: usize) -> Self {
            let mem = Mem::with_capacity("v", (pages * PAGE) as u64);
            Self { mem, clock: clock.clone(), goes: Mutex::default() }
        }
    }

    #[deny(clippy::missing_trait_methods)]
    impl Volume for Slow {
        fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
            if let Some(goes) = self.goes.lock().take() {
                self.mem.remove_now(&goes).unwrap();
            }
            self.mem.create(name, intent)
        }

        fn remove(&self, name: &Name) -> Pending<'_, ()> {
            let name = name.clone();
            Box::pin(async move {
                self.clock.sleep(Duration::from_millis(1)).await;
                self.mem.remove(&name).await
            })
        }

        crate::forward! {
            self => self.mem;
            fn open(name: &Name) -> Pending<'_, Arc<dyn Object>>;
            fn list() -> Pending<'_, Vec<Listed>>;
            fn space() -> Pending<'_, Space>;
            fn expected_read() -> ReadTime;
            fn users_load() -> f64;
            fn limits() -> Limits;
            fn write_whole(name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()>;
            fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
            fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
        }
    }

    /// A full volume with a reserve of one piece of two pages, and two empty objects.
    fn with_one_piece(clock: &Clock) -> (Reserve, [Arc<dyn Object>; 2]) {
        let reserve = on(Slow::new(clock, 64));
        keep(&reserve, 32 * PAGE as u64);
        clock.run(async {
            let stranger = reserve.create(&name("stranger"), &Intent::DATA).await.unwrap();
            stranger.write_at(0, pages(32 + 30), IO).await.unwrap();
            assert_eq!(reserve.held(), 2 * PAGE as u64);
            let a = reserve.create(&name("a"), &Intent::DATA).await.unwrap();
            (reserve.clone(), [a, reserve.create(&name("b"), &Intent::DATA).await.unwrap()])
        })
    }

    /// While one write removed the last piece, another found none and failed, though there was soon room for both.
    #[test]
    fn one_piece_serves_all_writes_that_find_the_volume_full() {
        let clock = Clock::simulated();
        let (reserve, [a, b]) = with_one_piece(&clock);
        let both = clock.run(join(a.write_at(0, pages(1), IO), b.write_at(0, pages(1), IO)));
        both.0.and(both.1).unwrap();
        assert_eq!(reserve.held(), 0);
        let full = clock.run(a.write_at(0, pages(2), IO)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::OutOfSpace);
    }

    /// A piece whose removal was cancelled was forgotten: its room stayed taken until the next start.
    #[test]
    fn a_piece_is_there_for_others_when_a_write_is_given_up() {
        let clock = Clock::simulated();
        let (reserve, [a, b]) = with_one_piece(&clock);
        let mut write = a.write_at(0, pages(1), IO);
        assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(write);
        clock.run(b.write_at(0, pages(2), IO)).unwrap();
        assert_eq!((reserve.held(), a.len()), (0, 0));
    }

    /// The pieces on the volume, in bytes.
    fn listed(reserve: &Reserve) -> u64 {
        let listed = block_on(reserve.list()).unwrap();
        let pieces = listed.iter().filter_map(|listed| reserve.0.piece_of(&listed.name));
        pieces.map(|piece| piece.len).sum()
    }

    /// The second of two removals of one piece hit a new piece of the same name, which counted as held for ever.
    #[test]
    fn a_removal_that_comes_late_leaves_newer_pieces_alone() {
        let clock = Clock::simulated();
        let (reserve, [a, b]) = with_one_piece(&clock);
        let after = |micros| clock.sleep(Duration::from_micros(micros));
        clock.run(async {
            let first = a.write_at(0, pages(1), IO);
            let second = async {
                after(500).await;
                b.write_at(0, pages(1), IO).await
            };
            let anew = async {
                after(1200).await;
                let stranger = reserve.open(&name("stranger")).await.unwrap();
                stranger.set_len(0).await.unwrap();
                assert!(reserve.approach(32 * PAGE as u64).await.unwrap());
            };
            let (first, second, ()) = join3(first, second, anew).await;
            first.and(second).unwrap();
        });
        assert_eq!((reserve.held(), listed(&reserve)), (2 * PAGE as u64, 2 * PAGE as u64));
    }

    /// A piece whose removal was cancelled was replaced and stayed, neither held nor free.
    #[test]
    fn a_removal_that_was_given_up_is_made_before_more_is_kept() {
        let clock = Clock::simulated();
        let (reserve, [a, _]) = with_one_piece(&clock);
        let mut write = a.write_at(0, pages(1), IO);
        assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(write);
        let target = 32 * PAGE as u64;
        clock.run(async {
            let stranger = reserve.open(&name("stranger")).await.unwrap();
            stranger.set_len(0).await.unwrap();
            while reserve.approach(target).await.unwrap() {}
        });
        assert_eq!((reserve.held(), listed(&reserve)), (target, target));
    }

    /// A piece seemed to take no room because another object went meanwhile: no piece was made until the next start.
    #[test]
    fn room_that_others_free_meanwhile_is_not_taken_for_a_refusal() {
        let clock = Clock::simulated();
        let slow = Slow::new(&clock, 64);
        let stranger = block_on(slow.create(&name("stranger"), &Intent::DATA)).unwrap();
        block_on(stranger.write_at(0, pages(32), IO)).unwrap();
        drop(stranger);
        *slow.goes.lock() = Some(name("stranger"));
        let reserve = on(slow);
        let target = 32 * PAGE as u64;
        let keep = || clock.run(async { while reserve.approach(target).await.unwrap() {} });
        keep();
        assert_eq!(reserve.held(), 0);
        keep();
        assert_eq!(reserve.held(), target);
    }

    #[test]
    fn conforms() {
        conformance::run(|| {
            let (mem, calls) = (Mem::new("mem"), TraceLog::new(1000));
            let traced = calls.clone();
            let open = move || {
                let clock = Clock::simulated();
                Arc::new(on(Trace::new(mem.clone(), "mem", &traced, &clock))) as _
            };
            Box::new(Blocking::reopening(open).counted(&calls, 1))
        });
    }

    #[test]
    fn a_write_that_finds_no_room_gets_what_is_kept_back_and_no_more_than_it_needs() {
        let mem = Mem::with_capacity("v", 64 * PAGE as u64);
        let reserve = on(mem.clone());
        keep(&reserve, 32 * PAGE as u64);
        assert_eq!(reserve.held(), 32 * PAGE as u64);
        let stranger = block_on(mem.create(&name("stranger"), &Intent::DATA)).unwrap();
        block_on(stranger.write_at(0, pages(32), IO)).unwrap();
        assert_eq!(block_on(mem.space()).unwrap().free, 0);
        let object = block_on(reserve.create(&name("a"), &Intent::DATA)).unwrap();
        block_on(object.write_at(0, pages(3), IO)).unwrap();
        assert_eq!(reserve.held(), 28 * PAGE as u64);
        block_on(object.set_len(8 * PAGE as u64)).unwrap();
        let full = block_on(object.write_at(0, pages(33), IO)).unwrap_err();
        assert_eq!((full.kind(), reserve.held()), (ErrorKind::OutOfSpace, 0));
        block_on(mem.remove(&name("stranger"))).unwrap();
        drop(stranger);
        keep(&reserve, 32 * PAGE as u64);
        assert_eq!(reserve.held(), 32 * PAGE as u64, "it is back with the room");
        keep(&reserve, 16 * PAGE as u64);
        assert!(reserve.held() < 18 * PAGE as u64, "and goes if less is asked for");
    }

    /// Compactions once took all of it, and deletes were refused, as their log failed.
    #[test]
    fn the_last_pieces_are_not_for_compactions() {
        let mem = Mem::with_capacity("v", 64 * PAGE as u64);
        let reserve = on(mem.clone());
        keep(&reserve, 32 * PAGE as u64);
        let object = block_on(reserve.create(&name("a"), &Intent::DATA)).unwrap();
        let compaction = Io::new(Origin::Compaction { level: 1 }, Step::Data);
        let full = block_on(object.write_at(0, pages(61), compaction)).unwrap_err();
        assert_eq!((full.kind(), reserve.held()), (ErrorKind::OutOfSpace, 4 * PAGE as u64));
        block_on(object.write_at(0, pages(60), compaction)).unwrap();
        let full = object.blocking_write_at(60 * PAGE as u64, &[1; PAGE], compaction).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::OutOfSpace);
        let log = Io::new(Origin::UserWrite, Step::Log);
        object.blocking_write_at(60 * PAGE as u64, &[1; PAGE], log).unwrap();
        assert_eq!(reserve.held(), 2 * PAGE as u64);
    }

    /// A log took a page of a piece, and compactions the rest, until no piece was left and the log failed.
    #[test]
    fn what_a_log_leaves_of_the_last_pieces_is_not_for_compactions() {
        let mem = Mem::with_capacity("v", 64 * PAGE as u64);
        let reserve = on(mem.clone());
        keep(&reserve, 32 * PAGE as u64);
        let [table, more] =
            ["a", "b"].map(|n| block_on(reserve.create(&name(n), &Intent::DATA)).unwrap());
        let compaction = Io::new(Origin::Compaction { level: 1 }, Step::Data);
        let log = Io::new(Origin::UserWrite, Step::Log);
        block_on(table.write_at(0, pages(60), compaction)).unwrap();
        for page in 0..4 {
            let at = (page * PAGE) as u64;
            let refused = [
                block_on(more.write_at(at, pages(1), compaction)).unwrap_err(),
                more.blocking_write_at(at, &[1; PAGE], compaction).unwrap_err(),
            ];
            assert_eq!(refused.map(|error| error.kind()), [ErrorKind::OutOfSpace; 2]);
            more.blocking_write_at(at, &[1; PAGE], log).unwrap();
        }
        let at = 4 * PAGE as u64;
        block_on(table.set_len(56 * PAGE as u64)).unwrap();
        block_on(more.zero(0, at, Zeros::Keep, compaction)).unwrap_err();
        block_on(more.zero(0, at, Zeros::Free, compaction)).unwrap();
        block_on(more.write_at(at, pages(1), compaction)).unwrap_err();
        block_on(table.set_len(55 * PAGE as u64)).unwrap();
        block_on(more.write_at(at, pages(1), compaction)).unwrap();
    }

    /// A compaction writes a table whole, which takes its room at its creation: it took the last pieces.
    #[test]
    fn no_room_is_taken_ahead_from_the_last_pieces() {
        let mem = Mem::with_capacity("v", 64 * PAGE as u64);
        let reserve = on(mem.clone());
        keep(&reserve, 32 * PAGE as u64);
        let stranger = block_on(mem.create(&name("stranger"), &Intent::DATA)).unwrap();
        block_on(stranger.write_at(0, pages(32), IO)).unwrap();
        let table = Intent { len: Some(24 * PAGE as u64), ..Intent::DATA };
        block_on(reserve.create(&name("a"), &table)).unwrap();
        assert_eq!(reserve.held(), 8 * PAGE as u64);
        let write_whole = |called, origin| {
            let io = Io::new(origin, Step::Data);
            block_on(reserve.write_whole(&name(called), &table, pages(5), io))
        };
        let full = write_whole("b", Origin::Compaction { level: 1 }).unwrap_err();
        assert_eq!((full.kind(), reserve.held()), (ErrorKind::OutOfSpace, 4 * PAGE as u64));
        write_whole("c", Origin::Flush).unwrap();
        assert_eq!(reserve.held(), 2 * PAGE as u64);
    }

    #[test]
    fn a_hidden_reserve_counts_as_free_and_is_not_listed() {
        let mem = Mem::with_capacity("v", 64 * PAGE as u64);
        let reserve = on(mem.clone());
        reserve.hide();
        keep(&reserve, 32 * PAGE as u64);
        assert_eq!(block_on(reserve.space()).unwrap().free, 64 * PAGE as u64);
        assert_eq!(block_on(reserve.list()).unwrap(), []);
        assert_eq!(block_on(mem.space()).unwrap().free, 32 * PAGE as u64);
        let object = block_on(reserve.create(&name("a"), &Intent::DATA)).unwrap();
        object.blocking_write_at(0, &vec![1; 40 * PAGE], IO).unwrap();
        assert_eq!(block_on(reserve.space()).unwrap().free, 24 * PAGE as u64);
    }

    #[test]
    fn what_is_kept_back_survives_and_is_taken_up_again() {
        let mem = Mem::with_capacity("v", 64 * PAGE as u64);
        let crash = Crash::new(mem, &Power::new());
        let reserve = on(crash.clone());
        keep(&reserve, 32 * PAGE as u64);
        for seed in 0..8 {
            let survivor = crash.survivor(seed);
            assert_eq!(survivor.space_now().free, 32 * PAGE as u64);
            assert_eq!(on(survivor).held(), 32 * PAGE as u64);
        }
    }
}
