//! Reads and writes that the kernel makes while their thread waits for other things, too (`io_uring`).
//!
//! A thread in a system call cannot give up, and a device may hang. So a volume with a limit on its calls makes each on
//! another thread, at the price of two switches between threads. A thread that runs [`block_on`](crate::task::block_on)
//! has a cheaper way: it hands its calls to the kernel, and waits in one system call for the end of one, for its alarms and
//! for wakers. Threads that may not block share a [`Driver`](crate::driver::Driver), a thread that does this for all of
//! them.
//!
//! ```text
//!   block_on: poll the future ──begin──▶ calls ──enter──▶ kernel ──▶ device
//!                   ▲                                        │
//!                   └────── wake ◀── `ended` runs ◀── end ◀──┘   or a bell, or the time of an alarm
//! ```
//!
//! - No call waits before it reached the device (`RWF_NOWAIT`): one that would ends with [`Errno::AGAIN`], and its caller
//!   makes it on another thread. So a device that hangs holds no thread at all.
//! - A call owns its memory and its file until the kernel has ended it. If its thread stops waiting before that, another
//!   thread waits for what is left.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};
use slab::Slab;

use crate::{IoBuf, IoBufMut};

/// Calls that are handed to the kernel at once. More may be under way.
const ENTRIES: u32 = 64;
/// The longest call. A device takes larger ones in parts, and such a call would wait between them.
pub(crate) const BYTES_MAX: usize = 128 * 1024;
/// Marks the end of a wait for the bell.
const BELL: u64 = u64::MAX;

thread_local! {
    static HERE: RefCell<Option<Ring>> = const { RefCell::new(None) };
    /// Whether the thread's executor waits for its calls.
    static IS_HOSTED: Cell<bool> = const { Cell::new(false) };
}

/// What a call reads into, all of it, or writes.
pub(crate) enum Memory {
    Read(IoBufMut),
    Write(IoBuf),
}

/// A read or a write of one piece of a file.
pub(crate) struct Transfer {
    pub(crate) file: Arc<dyn AsFd + Send + Sync>,
    pub(crate) offset: u64,
    pub(crate) memory: Memory,
}

impl Transfer {
    /// The kernel's description. The memory must stay where it is, and live, until the kernel has ended the call.
    fn entry(&mut self, flags: ReadWriteFlags) -> squeue::Entry {
        let fd = types::Fd(self.file.as_fd().as_raw_fd());
        let flags = flags.bits().cast_signed();
        let len =
            |bytes: &[u8]| u32::try_from(bytes.len()).expect("a call is at most BYTES_MAX long");
        match &mut self.memory {
            Memory::Read(into) => opcode::Read::new(fd, into.as_mut_ptr(), len(into))
                .offset(self.offset)
                .rw_flags(flags)
                .build(),
            Memory::Write(data) => opcode::Write::new(fd, data.as_ptr(), len(data))
                .offset(self.offset)
                .rw_flags(flags)
                .build(),
        }
    }
}

/// The bytes that were transferred, and the memory.
type Ended = Box<dyn FnOnce(Result<usize, Errno>, Memory) + Send>;

/// A transfer, and what to do when it ends, on whatever thread finds that out.
pub(crate) struct Call {
    pub(crate) transfer: Transfer,
    pub(crate) ended: Ended,
    pub(crate) flags: ReadWriteFlags,
}

impl Call {
    pub(crate) fn new(
        transfer: Transfer,
        ended: impl FnOnce(Result<usize, Errno>, Memory) + Send + 'static,
    ) -> Self {
        Self { transfer, ended: Box::new(ended), flags: ReadWriteFlags::NOWAIT }
    }

    /// The call lets its file go first: a caller that learns of the end may close the volume and open it again.
    pub(crate) fn end(self, result: Result<usize, Errno>) {
        let Transfer { file, memory, .. } = self.transfer;
        drop(file);
        (self.ended)(result, memory);
    }
}

/// Begins a call that this thread waits for, which runs `block_on`. Without a ring it ends at once: with `NOSYS` if there will
/// be none, else with `AGAIN`.
pub(crate) fn begin(call: Call) {
    let refused = HERE.with_borrow_mut(|here| {
        let ring = match here {
            Some(ring) => ring,
            None => match Ring::new() {
                Ok(ring) => here.insert(ring),
                Err(error) => return Err((call, refusal(&error))),
            },
        };
        ring.begin(call).map_err(|call| (call, Errno::AGAIN))
    });
    if let Err((call, errno)) = refused {
        call.end(Err(errno));
    }
}

/// Whether this thread waits for calls without `block_on`.
pub(crate) fn is_hosted() -> bool {
    IS_HOSTED.get()
}

/// The thread's executor waits for its calls from here on.
pub(crate) fn host() -> io::Result<()> {
    HERE.with_borrow_mut(|here| {
        if here.is_none() {
            *here = Some(Ring::new()?);
        }
        Ok::<_, io::Error>(())
    })?;
    assert!(!IS_HOSTED.replace(true), "one host on a thread");
    Ok(())
}

/// See [`leave`].
pub(crate) fn unhost() {
    IS_HOSTED.set(false);
    leave();
}

/// A descriptor that can be read when a call of this thread has ended.
pub(crate) fn readiness() -> io::Result<OwnedFd> {
    HERE.with_borrow(|here| {
        let ring = here.as_ref().ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the ring, which is borrowed here, keeps its descriptor open.
        let uring = unsafe { BorrowedFd::borrow_raw(ring.uring.as_raw_fd()) };
        uring.try_clone_to_owned()
    })
}

/// Why there is no ring: the kernel has none, or an older one, or forbids it to this process; anything else passes.
fn refusal(error: &io::Error) -> Errno {
    match Errno::from_io_error(error) {
        Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP) => {
            Errno::NOSYS
        }
        _ => Errno::AGAIN,
    }
}

/// Whether calls of this thread are under way.
pub(crate) fn is_in_use() -> bool {
    HERE.with_borrow(|here| here.as_ref().is_some_and(|ring| !ring.calls.is_empty()))
}

/// What others ring to end a [`wait`] of this thread.
pub(crate) fn bell() -> Option<Arc<OwnedFd>> {
    HERE.with_borrow(|here| here.as_ref().map(|ring| Arc::clone(&ring.bell)))
}

/// Ends a wait of the thread whose bell it is.
pub(crate) fn ring(bell: &OwnedFd) {
    // The write fails only if the thread left billions of earlier rings uncounted.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Hands new calls to the kernel and ends those that it has ended, without waiting.
pub(crate) fn turn() {
    let ended = HERE.with_borrow_mut(|here| here.as_mut().map(|ring| ring.turn(Wait::No)));
    ended.into_iter().for_each(Ends::tell);
}

/// Hands new calls to the kernel and waits for the end of one, for the bell, or for `limit`.
pub(crate) fn wait(limit: Option<Duration>) -> Ends {
    let wait = limit.map_or(Wait::Forever, Wait::AtMost);
    HERE.with_borrow_mut(|here| here.as_mut().map(|ring| ring.turn(wait))).unwrap_or_default()
}

/// The thread stops waiting: another one waits for what is left. A host goes on.
pub(crate) fn leave() {
    if is_hosted() {
        return;
    }
    let ring = HERE.with_borrow_mut(|here| here.take_if(|ring| !ring.calls.is_empty()));
    if let Some(ring) = ring {
        ring.finish_elsewhere();
    }
}

/// Calls that the kernel has ended, and whose callers do not know yet.
#[derive(Default)]
#[must_use]
pub(crate) struct Ends(Vec<(Call, Result<usize, Errno>)>);

impl Ends {
    /// No ring is borrowed here: what ends may begin other calls.
    pub(crate) fn tell(self) {
        self.0.into_iter().for_each(|(call, result)| call.end(result));
    }
}

enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

/// The calls of one thread, and what it shares with the kernel for them.
struct Ring {
    uring: IoUring,
    /// By the number that the kernel knows a call by. Entries leave it only when the kernel has ended them.
    calls: Slab<Call>,
    bell: Arc<OwnedFd>,
    is_bell_watched: bool,
}

impl Ring {
    fn new() -> io::Result<Self> {
        // The kernel ends calls when their thread waits or makes a system call, and does not interrupt it for that. Kernels
        // that know this flag, from 5.19 on, have all else that is used here.
        let uring = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(ENTRIES)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { uring, calls: Slab::new(), bell, is_bell_watched: false })
    }

    fn begin(&mut self, call: Call) -> Result<(), Call> {
        let room = self.calls.vacant_entry();
        let number = room.key() as u64;
        let call = room.insert(call);
        let entry = call.transfer.entry(call.flags).user_data(number);
        if self.push(&entry) { Ok(()) } else { Err(self.calls.remove(number as usize)) }
    }

    fn push(&mut self, entry: &squeue::Entry) -> bool {
        if self.uring.submission().is_full() {
            // What fails stays in the queue.
            let _ = self.uring.submit();
        }
        // SAFETY: the memory and the file of a call live in `calls` until its end was read from the completion queue, also
        // if the thread stops waiting (`finish_elsewhere`), and their addresses do not change as the call moves; the watch of
        // the bell has no memory.
        unsafe { self.uring.submission().push(entry).is_ok() }
    }

    /// Whether there are calls to hand over, or ends that the kernel keeps back until it is entered.
    fn wants_kernel(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn turn(&mut self, wait: Wait) -> Ends {
        if !matches!(wait, Wait::No) && !self.is_bell_watched {
            let fd = types::Fd(self.bell.as_raw_fd());
            let watch = opcode::PollAdd::new(fd, PollFlags::IN.bits().into());
            self.is_bell_watched = self.push(&watch.build().user_data(BELL));
        }
        // An error is a signal, the time of an alarm, or a lack that passes: the caller looks and comes again.
        let _ = match wait {
            Wait::No if !self.wants_kernel() => Ok(0),
            Wait::No => self.uring.submit(),
            Wait::Forever => self.uring.submit_and_wait(1),
            Wait::AtMost(limit) => {
                let limit = types::Timespec::from(limit);
                let args = types::SubmitArgs::new().timespec(&limit);
                self.uring.submitter().submit_with_args(1, &args)
            }
        };
        let Self { uring, calls, bell, is_bell_watched } = self;
        let ended = uring.completion().filter_map(|entry: cqueue::Entry| {
            if entry.user_data() == BELL {
                *is_bell_watched = false;
                // The read makes the bell silent until another thread rings it.
                let _ = rustix::io::read(bell.as_fd(), &mut [0; 8]);
                return None;
            }
            let call = calls.remove(usize::try_from(entry.user_data()).ok()?);
            let moved = usize::try_from(entry.result());
            Some((call, moved.map_err(|_| Errno::from_raw_os_error(-entry.result()))))
        });
        Ends(ended.collect())
    }

    /// Calls whose thread waits for something else by now have a thread of their own: there are as many as devices are late.
    fn finish_elsewhere(self) {
        let ring = Arc::new(Mutex::new(Some(self)));
        let theirs = Arc::clone(&ring);
        let work = move || {
            let Some(mut ring) = theirs.lock().take() else { return };
            while !ring.calls.is_empty() {
                ring.turn(Wait::Forever).tell();
            }
        };
        if std::thread::Builder::new().name("io-late".into()).spawn(work).is_err() {
            // No room for a thread. The kernel may still use the memory of the calls, so it stays theirs.
            std::mem::forget(ring);
        }
    }
}

#[cfg(test)]
mod tests;
