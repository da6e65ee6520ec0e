//! From the page cache to the device: where nobody waits for a sync, puts are let in as fast as the device
//! takes them out again.
//!
//! ```text
//!   put ─▶ its turn: less than `max` is not durable? ─▶ group ─▶ page cache ─▶ answered
//!             ▲                                                      │ a piece, or half of `max`
//!             └───────────── so many bytes are durable ◀──── sync, two pieces at a time
//! ```
//! A disk that is given each group as it comes turns once for each: between the end of one write and the
//! beginning of the next the sector has passed by. A cache that takes everything until it is full makes puts
//! fast first and then lets all of them wait for long. So writing back goes on all the time, in pieces that are
//! worth the way from one open file to another, and puts wait in a line, each for about what a piece takes.
//!
//! [`Store::tend`](super::Store::tend) writes back. Where it does not keep pace, or nobody runs it, the first
//! put of the line does.
//!
//! What is not durable is known file by file, with its smallest sequence: so it is known too what is.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use volume::{ErrorKind, Result};

use super::format::Layout;
use super::merge::{LOOK, PAUSE};
use super::state::{Phase, State, Stream};
use super::writer::Writer;
use super::{FileId, Inner, WRITE};

/// What of a file is written back at once, at most: on a disk the way from another file is a tenth of it.
const PIECE_MAX: u64 = 8 << 20;
/// But no more than this part of the volume, 1/256.
const PIECE_SHARE: u64 = 256;
/// Pieces at the device at the same time: while one is written the next waits there, or a disk turns between
/// them.
const AT_ONCE: usize = 2;
/// So much of a volume may be in the page cache, at most: a piece of each open file and those at the device.
const DIRTY_MAX: u64 = 256 << 20;
/// And no more than this part of it, 1/32: what died cannot go before what killed it is durable.
const DIRTY_SHARE: u64 = 32;

/// What was written to one volume and is not durable yet, and the puts that wait for their turn.
pub(super) struct Dirty {
    piece: u64,
    max: u64,
    files: BTreeMap<FileId, Soiled>,
    /// At the device.
    pieces: usize,
    /// Bytes in the page cache, and of puts that were let in.
    total: u64,
    /// Those that wait, in the order they came.
    line: VecDeque<Turn>,
    next_ticket: u64,
}

/// What of a file is not durable.
struct Soiled {
    stream: Stream,
    /// It is still written to: what it has is taken in pieces. Otherwise who seals it takes the rest.
    is_open: bool,
    /// Bytes for which no sync has begun, and the smallest sequence among them.
    waiting: u64,
    first: u64,
    /// The smallest sequence of each part that is synced now.
    syncing: Vec<u64>,
}

/// A put in the line.
struct Turn {
    ticket: u64,
    bytes: u64,
    /// It is to look whether it has to write back.
    is_called: bool,
    waker: Option<Waker>,
}

/// Whether something that counts could be lost in a crash.
pub(super) enum Doubt {
    /// No.
    None,
    /// All that could is being synced.
    OnItsWay,
    /// Some of it waits for a sync.
    Waits,
    /// A sync of this file failed, and what it holds was not copied elsewhere yet.
    Failed(FileId),
}

impl Dirty {
    /// Of a volume of so many bytes, with up to so many files open for puts.
    pub(super) fn of(capacity: u64, open: u64) -> Self {
        let piece = PIECE_MAX.min(capacity / PIECE_SHARE);
        let max = (piece * (open + AT_ONCE as u64)).min(DIRTY_MAX).min(capacity / DIRTY_SHARE);
        Self {
            piece,
            max,
            files: BTreeMap::new(),
            pieces: 0,
            total: 0,
            line: VecDeque::new(),
            next_ticket: 0,
        }
    }

    /// Counts what was written to the open file of a stream; says whether there is something to write back now.
    pub(super) fn wrote(&mut self, file: FileId, stream: Stream, bytes: u64, first: u64) -> bool {
        let soiled = self.files.entry(file).or_insert_with(|| Soiled {
            stream,
            is_open: true,
            waiting: 0,
            first: u64::MAX,
            syncing: Vec::new(),
        });
        soiled.waiting += bytes;
        soiled.first = soiled.first.min(first);
        self.total += bytes;
        self.due().is_some()
    }

    /// The file is written no more.
    pub(super) fn full(&mut self, file: FileId) {
        if let Some(soiled) = self.files.get_mut(&file) {
            soiled.is_open = false;
        }
    }

    /// All of the file is durable, or never will be.
    pub(super) fn forget(&mut self, file: FileId) {
        if let Some(soiled) = self.files.remove(&file) {
            self.total -= soiled.waiting;
        }
    }

    /// The stream to write back now.
    fn due(&self) -> Option<Stream> {
        if self.pieces >= AT_ONCE {
            return None;
        }
        let open = self.files.values().filter(|soiled| soiled.is_open && soiled.waiting > 0);
        let most = open.max_by_key(|soiled| soiled.waiting)?;
        (most.waiting >= self.piece || self.total >= self.max / 2).then_some(most.stream)
    }

    /// Lets a put of so many bytes in, or puts it at the end of the line.
    fn come(&mut self, bytes: u64) -> Option<u64> {
        if self.line.is_empty() && self.total < self.max {
            self.total += bytes;
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let is_called = self.line.is_empty();
        self.line.push_back(Turn { ticket, bytes, is_called, waker: None });
        Some(ticket)
    }

    fn turn(&mut self, ticket: u64) -> Option<&mut Turn> {
        let at = self.line.binary_search_by_key(&ticket, |turn| turn.ticket).ok()?;
        self.line.get_mut(at)
    }

    fn is_first(&self, ticket: u64) -> bool {
        self.line.front().is_some_and(|first| first.ticket == ticket)
    }

    /// Lets in who is next. Gives whom to wake: those, and the first of the others.
    fn let_in(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        while self.total < self.max
            && let Some(next) = self.line.pop_front()
        {
            self.total += next.bytes;
            woken.extend(next.waker);
        }
        if let Some(first) = self.line.front_mut() {
            first.is_called = true;
            woken.extend(first.waker.take());
        }
        woken
    }

    /// A put that was let in has ended, or one of the line went away.
    fn leave(&mut self, ticket: Option<u64>, bytes: u64) -> Vec<Waker> {
        let place = ticket
            .and_then(|ticket| self.line.binary_search_by_key(&ticket, |turn| turn.ticket).ok());
        match place {
            Some(at) => drop(self.line.remove(at)),
            None => self.total -= bytes,
        }
        self.let_in()
    }
}

/// A put's part of what may be in the page cache, from when it came until it ended.
pub(super) struct Let<'a> {
    inner: &'a Inner,
    seat: usize,
    /// None if it need not wait.
    ticket: Option<u64>,
    bytes: u64,
}

impl Drop for Let<'_> {
    fn drop(&mut self) {
        let woken = self.inner.state().seats[self.seat].dirty.leave(self.ticket, self.bytes);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// What of a file somebody syncs now. If it does not end well, the bytes wait again.
pub(super) struct Claim<'a> {
    inner: &'a Inner,
    seat: usize,
    file: FileId,
    bytes: u64,
    first: u64,
    is_piece: bool,
    is_durable: bool,
}

impl Claim<'_> {
    /// It is durable.
    pub(super) fn end(mut self) {
        self.is_durable = true;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let woken = {
            let mut state = self.inner.state();
            let dirty = &mut state.seats[self.seat].dirty;
            dirty.pieces -= usize::from(self.is_piece);
            dirty.total -= self.bytes;
            if self.bytes > 0
                && let Some(soiled) = dirty.files.get_mut(&self.file)
            {
                let at = soiled.syncing.iter().position(|first| *first == self.first);
                soiled.syncing.swap_remove(at.expect("it was claimed"));
                if !self.is_durable {
                    soiled.waiting += self.bytes;
                    soiled.first = soiled.first.min(self.first);
                    dirty.total += self.bytes;
                } else if soiled.waiting == 0 && soiled.syncing.is_empty() {
                    dirty.files.remove(&self.file);
                }
            }
            dirty.let_in()
        };
        woken.into_iter().for_each(Waker::wake);
        self.inner.bell.ring();
    }
}

impl State {
    /// Whether a crash could take something that counts, has at most this sequence and is of a partition, or
    /// of any; `but` for one file.
    fn doubt(&self, upto: u64, layout: Option<Layout>, but: FileId) -> Doubt {
        let is_of = |of: Layout| layout.is_none_or(|layout| layout == of);
        let failed = self.seats.iter().flat_map(|seat| &seat.doubtful).find(|&&id| {
            let facts = &self.files[&id];
            let is_unsafe = facts.phase == Phase::Doubtful && facts.live > 0;
            id != but && is_unsafe && facts.sequence_min <= upto && is_of(facts.layout)
        });
        if let Some(&failed) = failed {
            return Doubt::Failed(failed);
        }
        let mut is_syncing = false;
        for soiled in self.seats.iter().flat_map(|seat| seat.dirty.files.values()) {
            if is_of(soiled.stream.layout) {
                if soiled.first <= upto {
                    return Doubt::Waits;
                }
                is_syncing |= soiled.syncing.iter().any(|first| *first <= upto);
            }
        }
        if self.is_under_way(upto, is_of) {
            return Doubt::Waits;
        }
        if is_syncing { Doubt::OnItsWay } else { Doubt::None }
    }
}

impl Inner {
    /// Writes back what is due, until the store is closed.
    pub(super) async fn write_back_always(&self, seat: usize) {
        while !self.is_closing() {
            let seen = self.bell.rings();
            match self.write_back_due(seat).await {
                Ok(true) => {}
                Ok(false) => self.bell.after(seen).await,
                Err(error) => {
                    // Who waits for durability hears of it, and so does the next who writes.
                    tracing::warn!(volume = %self.disks[seat].label, %error, "writing back failed");
                    if error.kind() != ErrorKind::Poisoned {
                        self.pass(PAUSE).await;
                    }
                }
            }
        }
    }

    /// Waits until so many bytes may be written to the page cache; the first who waits writes back meanwhile.
    pub(super) async fn hold_back(&self, seat: usize, bytes: u64) -> Result<Let<'_>> {
        let ticket = self.state().seats[seat].dirty.come(bytes);
        let place = Let { inner: self, seat, ticket, bytes };
        let Some(ticket) = ticket else { return Ok(place) };
        loop {
            let is_first = self.state().seats[seat].dirty.is_first(ticket);
            if is_first && self.write_back_due(seat).await? {
                continue;
            }
            let is_in = poll_fn(|cx| {
                let mut state = self.state();
                let Some(turn) = state.seats[seat].dirty.turn(ticket) else {
                    return Poll::Ready(true);
                };
                if std::mem::take(&mut turn.is_called) {
                    return Poll::Ready(false);
                }
                turn.waker = Some(cx.waker().clone());
                Poll::Pending
            });
            if is_in.await {
                return Ok(place);
            }
        }
    }

    /// Lets puts in after something was [forgotten](Dirty::forget).
    pub(super) fn let_in(&self, seat: usize) {
        let woken = self.state().seats[seat].dirty.let_in();
        woken.into_iter().for_each(Waker::wake);
    }

    /// Says whether there was anything.
    async fn write_back_due(&self, seat: usize) -> Result<bool> {
        let due = {
            let state = self.state();
            let stream = state.seats[seat].dirty.due();
            stream.and_then(|stream| state.writers.get(&stream).map(Arc::clone))
        };
        let Some(writer) = due else { return Ok(false) };
        self.write_back(&writer, true).await?;
        Ok(true)
    }

    /// Whoever gets it syncs what of the file is not durable.
    pub(super) fn claim(&self, seat: usize, file: FileId, is_piece: bool) -> Claim<'_> {
        let mut state = self.state();
        let dirty = &mut state.seats[seat].dirty;
        dirty.pieces += usize::from(is_piece);
        let (mut bytes, mut first) = (0, u64::MAX);
        if let Some(soiled) = dirty.files.get_mut(&file).filter(|soiled| soiled.waiting > 0) {
            bytes = std::mem::take(&mut soiled.waiting);
            first = std::mem::replace(&mut soiled.first, u64::MAX);
            soiled.syncing.push(first);
        }
        Claim { inner: self, seat, file, bytes, first, is_piece, is_durable: false }
    }

    /// Writes what is queued for a stream and makes its open file durable. Others go on writing while the
    /// device works.
    pub(super) async fn write_back(&self, writer: &Writer, is_piece: bool) -> Result<()> {
        let seat = writer.stream.seat;
        let (file, until, claim) = {
            let mut output = writer.output.lock().await;
            while !writer.is_idle() || !output.group.is_empty() {
                self.write_group(writer, &mut output).await;
            }
            let Some(open) = output.open.as_mut() else { return Ok(()) };
            let claim = self.claim(seat, open.file.id, is_piece);
            if !open.is_dirty() {
                claim.end();
                return Ok(());
            }
            let until = open.close_page();
            open.counts();
            (Arc::clone(&open.file), until, claim)
        };
        let synced = self.sync_object(seat, &*file.object, WRITE).await;
        match &synced {
            Ok(()) => claim.end(),
            Err(_) => drop(claim),
        }
        let mut output = writer.output.lock().await;
        if let Some(open) = output.open.as_mut().filter(|open| Arc::ptr_eq(&open.file, &file)) {
            match &synced {
                Ok(()) => open.synced_until(until),
                Err(error) if error.kind() == ErrorKind::Poisoned => {
                    self.abandon(writer, &mut output);
                }
                Err(_) => {}
            }
        }
        synced
    }

    /// Makes durable what counts and has at most this sequence, of a partition or of all; `but` for one file.
    /// For a time it leaves that to those who write back anyway: a sync of a bit of a file costs a disk a turn.
    ///
    /// # Errors
    /// `Poisoned`: a sync failed, and what it was for is not copied elsewhere yet.
    pub(super) async fn make_durable(
        &self,
        upto: u64,
        layout: Option<Layout>,
        but: FileId,
        patience: Duration,
    ) -> Result<()> {
        let until = self.clock.now() + patience;
        loop {
            let seen = self.bell.rings();
            let doubt = self.state().doubt(upto, layout, but);
            match doubt {
                Doubt::None => return Ok(()),
                Doubt::OnItsWay => self.wait(seen, LOOK).await,
                Doubt::Waits => match until.since(self.clock.now()) {
                    Duration::ZERO => self.sync_partition(layout).await?,
                    left => self.wait(seen, left).await,
                },
                Doubt::Failed(file) => return Err(self.unsafe_error(file)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::merge::Group;
    use policy::units::MIB;

    use super::*;

    /// Pieces of 1 MiB, and room for three.
    fn dirty() -> Dirty {
        let dirty = Dirty::of(256 * MIB, 1);
        assert_eq!((dirty.piece, dirty.max), (MIB, 3 * MIB));
        dirty
    }

    fn stream(partition: u16) -> Stream {
        let layout = Layout { partitions: 2, partition };
        Stream { seat: 0, layout, group: Group::default(), copies: false }
    }

    #[test]
    fn puts_are_let_in_in_the_order_they_came_as_room_is_made() {
        let mut dirty = dirty();
        assert_eq!(dirty.come(2 * MIB), None);
        assert_eq!(dirty.come(2 * MIB), None, "less than the limit was there");
        let line: Vec<_> = (0..4).map(|_| dirty.come(MIB).expect("it is full")).collect();
        assert!(dirty.is_first(line[0]));
        dirty.leave(Some(line[1]), MIB);
        assert_eq!((dirty.total, dirty.line.len()), (4 * MIB, 3), "who went away had nothing");
        dirty.leave(None, 2 * MIB);
        assert!(dirty.turn(line[0]).is_none() && dirty.is_first(line[2]));
        assert_eq!(dirty.total, 3 * MIB);
        assert!(
            dirty.turn(line[2]).is_some_and(|turn| turn.is_called),
            "it may have to write back"
        );
        assert_eq!(dirty.come(1), Some(4), "nobody overtakes");
    }

    #[test]
    fn a_piece_of_the_fullest_open_file_is_due_and_two_at_a_time() {
        let mut dirty = dirty();
        assert!(!dirty.wrote(FileId(1), stream(0), MIB / 2, 5));
        assert!(!dirty.wrote(FileId(2), stream(1), MIB / 2 - 1, 6));
        assert!(dirty.wrote(FileId(1), stream(0), MIB / 2, 7));
        assert_eq!(dirty.due(), Some(stream(0)));
        dirty.pieces = AT_ONCE;
        assert_eq!(dirty.due(), None);
        dirty.pieces = 0;
        dirty.full(FileId(1));
        assert_eq!(dirty.due(), None, "who seals it takes it; the other has too little");
        dirty.forget(FileId(1));
        assert_eq!(dirty.total, MIB / 2 - 1);
    }

    #[test]
    fn half_of_the_room_is_due_whoever_has_it() {
        let mut dirty = dirty();
        for file in 1..=8 {
            dirty.wrote(FileId(file), stream(file as u16), MIB / 4, file);
        }
        assert!(dirty.due().is_some(), "of eight files none has a piece");
    }
}
