//! Reads of the slow volume under way, whose bytes other readers of the same range share.
//!
//! ```text
//!   first reader   join ─▶ leads ─▶ slow volume ─▶ answer
//!   second reader        join ─▶ follows ────────────▲
//! ```
//! Where many clients miss the same range, the slow volume is asked once. A follower begins after its leader, so it may get
//! only bytes that no change has touched since the leader began: a change forgets the reads under way in its range once it has
//! claimed it, and no read leads where a change is claimed. A follower that has waited too long reads itself, since the leader ends only while
//! its caller polls it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use volume::IoBuf;
use volume::ranges::Ranges;

/// The reads under way of one object.
#[derive(Default)]
pub(super) struct Reads(Arc<Mutex<Underway>>);

#[derive(Default)]
struct Underway {
    last: u64,
    /// By the first byte, and a number.
    reads: BTreeMap<(u64, u64), Arc<Read>>,
}

struct Read {
    bytes: Range<u64>,
    state: Mutex<State>,
}

enum State {
    /// One for each follower, once it waits.
    Waits(Vec<Option<Waker>>),
    /// The bytes; `None` if the leader got none.
    Ended(Option<IoBuf>),
}

/// What a reader shall do.
pub(super) enum Joined {
    /// Wait for another one.
    Follows(Follower),
    /// Read, and say what came.
    Leads(Leader),
    /// Read: a change is under way.
    Alone,
}

/// A reader that waits for another one.
pub(super) struct Follower {
    read: Arc<Read>,
    /// Its number among the followers.
    number: usize,
}

/// A reader that others may wait for. If it is dropped, they read themselves.
pub(super) struct Leader {
    underway: Arc<Mutex<Underway>>,
    key: (u64, u64),
    read: Arc<Read>,
}

impl Reads {
    /// A reader asks for a range. Followers may read up to `reach` bytes behind the beginning of their leader's range.
    pub(super) fn join(&self, range: &Range<u64>, changes: &Ranges, reach: u64) -> Joined {
        let mut underway = self.0.lock();
        let near = (range.start.saturating_sub(reach), 0)..=(range.start, u64::MAX);
        let mut covering = underway.reads.range(near).rev();
        if let Some((_, read)) = covering.find(|(_, read)| read.bytes.end >= range.end) {
            let number = read.add_follower();
            return Joined::Follows(Follower { read: Arc::clone(read), number });
        }
        // A change that claims the range later forgets this one.
        if !changes.is_free(range) {
            return Joined::Alone;
        }
        underway.last += 1;
        let key = (range.start, underway.last);
        let state = Mutex::new(State::Waits(Vec::new()));
        let read = Arc::new(Read { bytes: range.clone(), state });
        underway.reads.insert(key, Arc::clone(&read));
        Joined::Leads(Leader { underway: Arc::clone(&self.0), key, read })
    }

    /// A change of a range has claimed it: no reader follows the reads there any more.
    pub(super) fn forget(&self, range: &Range<u64>) {
        let mut underway = self.0.lock();
        underway
            .reads
            .retain(|_, read| read.bytes.end <= range.start || range.end <= read.bytes.start);
    }
}

impl Follower {
    /// The bytes of the leader that belong to `range`; `None` if it got none.
    pub(super) async fn bytes(self, range: &Range<u64>) -> Option<IoBuf> {
        let bytes = poll_fn(|cx| match &mut *self.read.state.lock() {
            State::Waits(wakers) => {
                wakers[self.number] = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Ended(bytes) => Poll::Ready(bytes.clone()),
        });
        let from = (range.start - self.read.bytes.start) as usize;
        let len = (range.end - range.start) as usize;
        Some(bytes.await?.slice(from..from + len))
    }
}

impl Leader {
    /// The read gave these bytes: if they are fewer than were asked for, the object was cut, and followers read themselves.
    pub(super) fn end(self, bytes: &[u8]) {
        self.leave();
        let is_followed = self.read.has_followers();
        let is_whole = bytes.len() as u64 == self.read.bytes.end - self.read.bytes.start;
        if is_followed && is_whole {
            self.read.end(Some(IoBuf::from(bytes)));
        }
    }

    /// Nobody follows from now on.
    fn leave(&self) {
        self.underway.lock().reads.remove(&self.key);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.leave();
        self.read.end(None);
    }
}

impl Read {
    /// Adds one while the read is under way; returns its number.
    fn add_follower(&self) -> usize {
        match &mut *self.state.lock() {
            State::Waits(wakers) => {
                wakers.push(None);
                wakers.len() - 1
            }
            State::Ended(_) => 0,
        }
    }

    fn has_followers(&self) -> bool {
        matches!(&*self.state.lock(), State::Waits(wakers) if !wakers.is_empty())
    }

    fn end(&self, bytes: Option<IoBuf>) {
        let mut state = self.state.lock();
        if let State::Waits(wakers) = &mut *state {
            let wakers = std::mem::take(wakers);
            *state = State::Ended(bytes);
            drop(state);
            wakers.into_iter().flatten().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const REACH: u64 = 100;

    fn join(reads: &Reads, range: Range<u64>) -> Joined {
        reads.join(&range, &Ranges::default(), REACH)
    }

    fn leads(reads: &Reads, range: Range<u64>) -> Leader {
        let Joined::Leads(leader) = join(reads, range) else { panic!("it leads") };
        leader
    }

    fn follows(reads: &Reads, range: Range<u64>) -> Follower {
        let Joined::Follows(follower) = join(reads, range) else { panic!("it follows") };
        follower
    }

    #[test]
    fn a_part_of_a_read_under_way_is_not_read_again() {
        let reads = Reads::default();
        let leader = leads(&reads, 10..20);
        let (all, part) = (follows(&reads, 10..20), follows(&reads, 12..14));
        drop(leads(&reads, 12..21));
        drop(leads(&reads, 9..14));
        let range = 12..14;
        let mut waits = std::pin::pin!(part.bytes(&range));
        assert!(waits.as_mut().now_or_never().is_none());
        leader.end(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(waits.now_or_never().flatten().unwrap()[..], [2, 3]);
        assert_eq!(all.bytes(&(10..20)).now_or_never().flatten().unwrap().len(), 10);
        drop(leads(&reads, 10..20));
    }

    #[test]
    fn nobody_follows_a_read_that_began_before_a_change() {
        let (reads, changes) = (Reads::default(), Ranges::default());
        let _before = leads(&reads, 10..20);
        let claim = changes.claim(19..30).now_or_never().unwrap();
        reads.forget(&(19..30));
        assert!(matches!(reads.join(&(10..20), &changes, REACH), Joined::Alone));
        drop(claim);
        assert!(matches!(reads.join(&(10..20), &changes, REACH), Joined::Leads(_)));
    }

    #[test]
    fn followers_of_a_read_that_fails_or_is_short_get_nothing() {
        let reads = Reads::default();
        for is_short in [false, true] {
            let leader = leads(&reads, 0..10);
            let follower = follows(&reads, 0..10);
            if is_short {
                leader.end(&[1; 9]);
            } else {
                drop(leader);
            }
            assert!(matches!(follower.bytes(&(0..10)).now_or_never(), Some(None)));
        }
    }
}
