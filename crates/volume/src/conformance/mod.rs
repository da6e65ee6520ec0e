//! One suite that every [`Volume`] passes: leaves, layers and pools alike.
//!
//! A test hands [`run`] a way to make a fresh, empty volume:
//!
//! ```
//! use std::sync::Arc;
//! use volume::conformance::{self, Blocking};
//! use volume::mem::Mem;
//!
//! conformance::run(|| {
//!     let mem = Mem::new("mem");
//!     Box::new(Blocking::reopening(move || Arc::new(mem.clone())))
//! });
//! ```
//!
//! Volumes that wait for virtual time bring a [`Harness`] of their own, which moves the clock.

mod costs;
mod model;
mod names;
mod objects;
mod order;
mod ranges;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::purpose::{Origin, Step};

use crate::layer::trace::TraceLog;
use crate::{ErrorKind, Intent, Io, IoBuf, IoBufMut, Name, Object, Result, Volume, task};

/// A part of a case, to run to its end.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The suite's access to a volume under test.
pub trait Harness {
    /// The volume. The suite drops it and its objects before [`Harness::reopen`].
    fn volume(&self) -> Arc<dyn Volume>;

    /// Runs `work` to its end.
    fn run(&mut self, work: Work);

    /// Whether the suite may block its own thread on the volume: not in virtual time.
    fn may_block(&self) -> bool {
        false
    }

    /// The calls to the devices below, if the test counts them there with a [`Trace`](crate::layer::trace::Trace) of each.
    fn calls(&self) -> Option<TraceLog> {
        None
    }

    /// On how many devices each object is.
    fn copies(&self) -> usize {
        1
    }

    /// Closes the volume and opens it again; false if the volume cannot be reopened.
    fn reopen(&mut self) -> bool;
}

/// A harness for volumes that a blocking thread can drive: all that need no virtual time.
pub struct Blocking {
    volume: Option<Arc<dyn Volume>>,
    open: Option<Box<dyn Fn() -> Arc<dyn Volume>>>,
    counted: Option<(TraceLog, usize)>,
}

impl Blocking {
    /// For a volume that cannot be opened twice.
    pub fn new(volume: impl Volume + 'static) -> Self {
        Self { volume: Some(Arc::new(volume)), open: None, counted: None }
    }

    /// For a volume that `open` opens, at first and at each reopening.
    pub fn reopening(open: impl Fn() -> Arc<dyn Volume> + 'static) -> Self {
        Self { volume: Some(open()), open: Some(Box::new(open)), counted: None }
    }

    /// The same, with the calls to its devices, on `copies` of which each object is.
    #[must_use]
    pub fn counted(self, calls: &TraceLog, copies: usize) -> Self {
        Self { counted: Some((calls.clone(), copies)), ..self }
    }
}

impl Harness for Blocking {
    fn volume(&self) -> Arc<dyn Volume> {
        Arc::clone(self.volume.as_ref().expect("there is a volume between reopenings"))
    }

    fn run(&mut self, work: Work) {
        task::block_on(work);
    }

    fn may_block(&self) -> bool {
        true
    }

    fn calls(&self) -> Option<TraceLog> {
        self.counted.as_ref().map(|(calls, _)| calls.clone())
    }

    fn copies(&self) -> usize {
        self.counted.as_ref().map_or(1, |(_, copies)| *copies)
    }

    fn reopen(&mut self) -> bool {
        let Some(open) = &self.open else { return false };
        // Drops the old one first: a volume may allow one opening at a time.
        self.volume = None;
        self.volume = Some(open());
        true
    }
}

/// Runs every case, each on a fresh volume.
///
/// # Panics
/// When the volume does not do what [`Volume`] and [`Object`] promise; the case is named on stderr.
pub fn run(make: impl Fn() -> Box<dyn Harness>) {
    for (name, case) in cases() {
        let _named = NameOnPanic(name);
        case(&mut *make());
    }
}

type Case = fn(&mut dyn Harness);

fn cases() -> impl Iterator<Item = (&'static str, Case)> {
    let all =
        [names::CASES, objects::CASES, ranges::CASES, order::CASES, model::CASES, costs::CASES];
    all.into_iter().flatten().copied()
}

struct NameOnPanic(&'static str);

impl Drop for NameOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("conformance case: {}", self.0);
        }
    }
}

/// Runs a part of a case on the current volume; returns its output.
fn run_part<T, F>(harness: &mut dyn Harness, part: impl FnOnce(Arc<dyn Volume>) -> F) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let answer = Arc::new(Mutex::new(None));
    let (work, slot) = (part(harness.volume()), Arc::clone(&answer));
    harness.run(Box::pin(async move {
        let output = work.await;
        *slot.lock() = Some(output);
    }));
    answer.lock().take().expect("the harness runs its work to the end")
}

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

/// An object that bypasses the page cache, and one that goes through it.
const BOTH: [&str; 2] = ["data", "wal.log"];

fn name(name: &str) -> Name {
    Name::new(name).expect("the suite uses valid names")
}

/// What tests create an object with: a log if its name ends in `.log`.
#[must_use]
pub fn intent(name: &Name) -> Intent {
    if name.ends_as_log() { Intent::LOG } else { Intent::DATA }
}

async fn create(volume: &dyn Volume, text: &str) -> Arc<dyn Object> {
    let name = name(text);
    volume.create(&name, &intent(&name)).await.unwrap_or_else(|e| panic!("create {text}: {e}"))
}

async fn open(volume: &dyn Volume, text: &str) -> Arc<dyn Object> {
    volume.open(&name(text)).await.unwrap_or_else(|e| panic!("open {text}: {e}"))
}

async fn write(object: &dyn Object, offset: u64, bytes: &[u8]) {
    let written = object.write_at(offset, IoBuf::from(bytes), IO).await;
    written.unwrap_or_else(|e| panic!("write {} bytes at {offset}: {e}", bytes.len()));
}

async fn write_durable(object: &dyn Object, offset: u64, bytes: &[u8]) {
    let written = object.write_durable(offset, IoBuf::from(bytes), IO).await;
    written.unwrap_or_else(|e| panic!("write {} bytes at {offset} durably: {e}", bytes.len()));
}

async fn read(object: &dyn Object, offset: u64, len: usize) -> Vec<u8> {
    let read = object.read_at(offset, IoBufMut::zeroed(len), IO).await;
    read.unwrap_or_else(|e| panic!("read {len} bytes at {offset}: {e}")).to_vec()
}

async fn sync(object: &dyn Object) {
    object.sync(IO).await.unwrap_or_else(|e| panic!("sync: {e}"));
}

/// The bytes of an object. It asks for one page more, so that a length too short shows.
async fn content(object: &dyn Object) -> Vec<u8> {
    let len = usize::try_from(object.len()).expect("objects of the suite fit in memory");
    let bytes = read(object, 0, len + 4096).await;
    assert_eq!(bytes.len(), len, "a read over the end gives what there is");
    bytes
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

/// Bytes that differ from page to page and between seeds.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed * 31) % 251) as u8).collect()
}
