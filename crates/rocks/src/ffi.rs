//! The boundary to C++, and the only file of the crate with `unsafe`. Its twin is `shim/ffi.h`.
//!
//! The header's pointers to objects of the Rust half are references here, or boxes where the call takes
//! ownership. C++ upholds those types: it passes pointers that it got from Rust, for the length of a
//! call, never after `release`, and it uses a `&mut` object from one thread at a time. No call unwinds
//! into C++: a panic becomes an error.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{ptr, slice};

use policy::inherit::Fences;
use policy::intent::KeyRange;
use policy::key_counts::KeyCounts;
use policy::pressure::Thresholds;
use rust_librocksdb_sys::{
    rocksdb_column_family_handle_t, rocksdb_env_t,
    rocksdb_options_get_level0_slowdown_writes_trigger,
    rocksdb_options_get_max_write_buffer_number,
    rocksdb_options_get_soft_pending_compaction_bytes_limit, rocksdb_options_t,
};
use rust_rocksdb::{AsColumnFamilyRef, AsRawPtr, Env, Options};

use crate::error::{Call, Code, Error, Status};
use crate::file_system::FileSystem;
use crate::origin::Activity;
use crate::readable::{Read, Readable, Why};
use crate::sequential::Sequential;
use crate::thread::{self, BlockReads};
use crate::writable::{OpenFor, Writable};

// --- C++ for Rust -------------------------------------------------------------------------------

unsafe extern "C" {
    fn plimsoll_env_new(fs: *mut c_void) -> *mut rocksdb_env_t;
    fn plimsoll_install_table_range(options: *mut rocksdb_options_t, counts: *const c_void);
    fn plimsoll_family_is_bytewise(family: *mut rocksdb_column_family_handle_t) -> bool;
    fn plimsoll_layout_holds(options: *mut rocksdb_options_t, env: *mut rocksdb_env_t) -> bool;
}

/// An environment whose files are those of `fs`. It keeps `fs` alive.
pub(crate) fn environment(fs: Arc<FileSystem>) -> Env {
    // SAFETY: the C++ side takes the box over and `Env` the environment, whose destruction gives the
    // box back to `plimsoll_fs_release`.
    unsafe { Env::from_raw(plimsoll_env_new(Box::into_raw(Box::new(fs)).cast())) }
}

/// The thresholds at which RocksDB stalls the writers of a family with `options`.
pub(crate) fn thresholds(options: &Options) -> Thresholds {
    // A negative number is never reached.
    let count = |number: i32| u64::try_from(number).unwrap_or(0);
    // SAFETY: the pointer is that of living options, and these calls only read what it points to.
    unsafe {
        let options = options.as_raw_ptr();
        Thresholds {
            memtables: count(rocksdb_options_get_max_write_buffer_number(options)),
            level0: count(rocksdb_options_get_level0_slowdown_writes_trigger(options)),
            owed_bytes: rocksdb_options_get_soft_pending_compaction_bytes_limit(options) as u64,
        }
    }
}

/// Makes tables built with `options` report the keys they cover, and how often these were read by `counts`.
pub(crate) fn install_table_range(options: &mut Options, counts: Option<Arc<KeyCounts>>) {
    let counts = counts.map_or(ptr::null(), Arc::into_raw);
    // SAFETY: the options are exclusively borrowed for the call, and `check_layout` checked the layout of
    // the struct behind the pointer. The C++ side takes the counts over, and gives them back once to
    // `plimsoll_key_counts_release`.
    unsafe { plimsoll_install_table_range(options.as_raw_ptr(), counts.cast()) }
}

/// Whether the keys of a column family are in the order of their bytes.
pub(crate) fn is_bytewise(family: &impl AsColumnFamilyRef) -> bool {
    // SAFETY: the handle is valid, and the call only reads through it. The C++ half is compiled for the
    // one version of RocksDB whose handles it knows.
    unsafe { plimsoll_family_is_bytewise(family.inner()) }
}

/// Checks that the structs behind RocksDB's C API have the layout that the C++ half assumes.
///
/// # Errors
/// `Layout`: the headers are not those of the library that was linked.
pub(crate) fn check_layout(env: &Env) -> Result<(), Error> {
    let scratch = Options::default();
    // SAFETY: both pointers are valid for the call, and the scratch options are local. The call does not
    // keep the environment: it leaves the standard one in the options.
    let holds = unsafe { plimsoll_layout_holds(scratch.as_raw_ptr(), env.as_raw_ptr()) };
    if holds { Ok(()) } else { Err(Error::Layout("options and environment")) }
}

// --- What crosses -------------------------------------------------------------------------------

/// Bytes of the caller.
#[repr(C)]
pub(crate) struct Bytes<'a> {
    data: *const u8,
    len: usize,
    caller: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    fn get(&self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: both constructors, here and in C++, take the pointer from bytes that live for 'a.
        unsafe { slice::from_raw_parts(self.data, self.len) }
    }

    fn path(&self) -> Result<&'a str, Status> {
        str::from_utf8(self.get()).map_err(|_| Status::new(Code::Invalid, "a path is not UTF-8"))
    }
}

impl<'a> From<&'a str> for Bytes<'a> {
    fn from(text: &'a str) -> Self {
        Self { data: text.as_ptr(), len: text.len(), caller: PhantomData }
    }
}

/// How a call ended.
#[repr(C)]
pub(crate) struct Outcome {
    message: *mut u8,
    message_len: usize,
    code: u8,
    retryable: bool,
    file_scope: bool,
}

impl Outcome {
    const OK: Self = Self {
        message: ptr::null_mut(),
        message_len: 0,
        code: Code::Ok as u8,
        retryable: false,
        file_scope: false,
    };
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        let message = Box::leak(status.message.into_bytes().into_boxed_slice());
        Self {
            message: message.as_mut_ptr(),
            message_len: message.len(),
            code: status.code as u8,
            retryable: status.retryable,
            file_scope: status.file_scope,
        }
    }
}

impl From<Result<(), Status>> for Outcome {
    fn from(result: Result<(), Status>) -> Self {
        result.map_or_else(Self::from, |()| Self::OK)
    }
}

/// RocksDB's reason for an I/O.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Reason {
    timeout_micros: u64,
    activity: u8,
    again: bool,
}

impl Reason {
    const fn activity(self) -> Activity {
        Activity::from_code(self.activity)
    }

    fn why(self) -> Why {
        let micros = self.timeout_micros;
        let timeout = (micros > 0).then(|| Duration::from_micros(micros));
        Why { activity: self.activity(), timeout, again: self.again }
    }
}

/// One read.
#[repr(C)]
pub(crate) struct ReadRequest {
    offset: u64,
    into: *mut MaybeUninit<u8>,
    len: usize,
    got: usize,
    outcome: Outcome,
}

const _: () = assert!(
    size_of::<Bytes<'_>>() == 16
        && size_of::<Outcome>() == 24
        && size_of::<Reason>() == 16
        && size_of::<ReadRequest>() == 56
);

type NameSink = extern "C" fn(into: *mut c_void, name: Bytes<'_>);

/// Runs a call of C++ and answers it, even if it panics.
fn answer(call: impl FnOnce() -> Result<(), Status>) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(call));
    result.unwrap_or_else(|panic| Err(bug(panic.as_ref()))).into()
}

/// Runs a call that has no way to fail.
fn run(call: impl FnOnce()) {
    // The panic hook has reported the panic.
    let _ = catch_unwind(AssertUnwindSafe(call));
}

fn bug(panic: &(dyn Any + Send)) -> Status {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Status::new(Code::IoError, format!("a bug: {}", said.unwrap_or("a panic without a message")))
}

/// Turns a result of the pool into the answer to a call.
trait Asked<T> {
    fn asked(self, call: Call) -> Result<T, Status>;
}

impl<T> Asked<T> for volume::Result<T> {
    fn asked(self, call: Call) -> Result<T, Status> {
        self.map_err(|error| Status::of(&error, call))
    }
}

/// Runs a call about names.
fn names<T>(out: &mut T, call: impl FnOnce() -> Result<volume::Result<T>, Status>) -> Outcome {
    answer(|| {
        *out = call()?.asked(Call::Names)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_message_free(message: *mut u8, len: usize) {
    let message = ptr::slice_from_raw_parts_mut(message, len);
    // SAFETY: `Outcome::from` leaked it as a box of this length, and C++ gives it back once.
    drop(unsafe { Box::from_raw(message) });
}

// --- The file system ----------------------------------------------------------------------------

/// C++ holds a box around its `Arc`, so that it can clone it.
type Shared = Arc<FileSystem>;

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_retain(fs: &Shared) -> Box<Shared> {
    Box::new(Arc::clone(fs))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_release(fs: Box<Shared>) {
    run(|| drop(fs));
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_open_sequential(
    fs: &Shared,
    path: Bytes<'_>,
    file: &mut Option<Box<Sequential>>,
) -> Outcome {
    names(file, || Ok(fs.open_sequential(path.path()?).map(|file| Some(Box::new(file)))))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_open_readable(
    fs: &Shared,
    path: Bytes<'_>,
    file: &mut Option<Box<Readable>>,
) -> Outcome {
    names(file, || Ok(fs.open_readable(path.path()?).map(|file| Some(Box::new(file)))))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_open_writable(
    fs: &Shared,
    path: Bytes<'_>,
    how: u8,
    file: &mut Option<Box<Writable>>,
) -> Outcome {
    names(file, || {
        let how = match how {
            0 => OpenFor::Create,
            1 => OpenFor::Append,
            _ => OpenFor::Overwrite,
        };
        Ok(fs.open_writable(path.path()?, how).map(|file| Some(Box::new(file))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_exists(fs: &Shared, path: Bytes<'_>) -> Outcome {
    answer(|| {
        let path = path.path()?;
        match fs.exists(path).asked(Call::Names)? {
            true => Ok(()),
            false => Err(Status::new(Code::NotFound, path)),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_children(
    fs: &Shared,
    path: Bytes<'_>,
    sink: NameSink,
    into: *mut c_void,
) -> Outcome {
    answer(|| {
        let path = path.path()?;
        match fs.children(path).asked(Call::Names)? {
            Some(names) => names.iter().for_each(|name| sink(into, name.as_str().into())),
            None => return Err(Status::new(Code::NotFound, path)),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_remove(fs: &Shared, path: Bytes<'_>) -> Outcome {
    names(&mut (), || Ok(fs.remove(path.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_truncate(fs: &Shared, path: Bytes<'_>, len: u64) -> Outcome {
    names(&mut (), || Ok(fs.truncate(path.path()?, len)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_create_dir(fs: &Shared, path: Bytes<'_>, may_exist: bool) -> Outcome {
    names(&mut (), || Ok(fs.create_dir(path.path()?, may_exist)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_remove_dir(fs: &Shared, path: Bytes<'_>) -> Outcome {
    names(&mut (), || Ok(fs.remove_dir(path.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_is_dir(fs: &Shared, path: Bytes<'_>, is_dir: &mut bool) -> Outcome {
    names(is_dir, || Ok(fs.is_dir(path.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_len(fs: &Shared, path: Bytes<'_>, len: &mut u64) -> Outcome {
    names(len, || Ok(fs.len(path.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_rename(fs: &Shared, from: Bytes<'_>, to: Bytes<'_>) -> Outcome {
    names(&mut (), || Ok(fs.rename(from.path()?, to.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_link(fs: &Shared, from: Bytes<'_>, to: Bytes<'_>) -> Outcome {
    names(&mut (), || Ok(fs.link(from.path()?, to.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_links(fs: &Shared, path: Bytes<'_>, count: &mut u64) -> Outcome {
    names(count, || Ok(fs.links(path.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_same(
    fs: &Shared,
    one: Bytes<'_>,
    other: Bytes<'_>,
    same: &mut bool,
) -> Outcome {
    names(same, || Ok(fs.same(one.path()?, other.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_lock(fs: &Shared, path: Bytes<'_>) -> Outcome {
    names(&mut (), || Ok(fs.lock(path.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_unlock(fs: &Shared, path: Bytes<'_>) -> Outcome {
    names(&mut (), || Ok(fs.unlock(path.path()?)))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_free_space(fs: &Shared, bytes: &mut u64) -> Outcome {
    names(bytes, || Ok(fs.free_space()))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_sync_file(fs: &Shared, path: Bytes<'_>) -> Outcome {
    answer(|| fs.sync_file(path.path()?).asked(Call::LogWrite))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_flush_names(fs: &Shared) -> Outcome {
    answer(|| fs.flush_names().asked(Call::LogWrite))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_fs_info_log(fs: &Shared, level: u8, line: Bytes<'_>) {
    run(|| fs.info_log().line(level, line.get()));
}

// --- Files --------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn plimsoll_sequential_read(
    file: &mut Sequential,
    into: *mut MaybeUninit<u8>,
    len: usize,
    got: &mut usize,
) -> Outcome {
    answer(|| {
        // SAFETY: RocksDB's buffer has room for `len` bytes and is exclusively ours during the read.
        let into = unsafe { buffer(into, len) };
        *got = file.read(into).asked(Call::Read)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_sequential_skip(file: &mut Sequential, count: u64) -> Outcome {
    answer(|| {
        file.skip(count);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_sequential_release(file: Box<Sequential>) {
    run(|| drop(file));
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_readable_read(
    file: &Readable,
    offset: u64,
    into: *mut MaybeUninit<u8>,
    len: usize,
    reason: Reason,
    got: &mut usize,
) -> Outcome {
    let why = reason.why();
    answer(|| {
        // SAFETY: RocksDB's buffer has room for `len` bytes and is exclusively ours during the read.
        let into = unsafe { buffer(into, len) };
        *got = file.read(offset, into, why).asked(why.call())?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_readable_read_all(
    file: &Readable,
    requests: *mut ReadRequest,
    count: usize,
    reason: Reason,
) {
    // SAFETY: C++ made that many requests, and they live until the call returns.
    let requests = unsafe { slice::from_raw_parts_mut(requests, count) };
    let why = reason.why();
    let call = why.call();
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: each request's buffer has room for its `len` bytes and is its own.
        let reads = requests.iter().map(|request| unsafe { buffer(request.into, request.len) });
        let reads =
            requests.iter().zip(reads).map(|(request, into)| Read::new(request.offset, into));
        let mut reads: Vec<_> = reads.collect();
        file.read_all(&mut reads, why);
        reads.into_iter().map(|read| read.got.asked(call)).collect::<Vec<_>>()
    }));
    let mut done = done.map(Vec::into_iter);
    for request in requests {
        let done = match &mut done {
            Ok(done) => done.next().unwrap_or(Ok(0)),
            Err(panic) => Err(bug(panic.as_ref())),
        };
        request.got = *done.as_ref().unwrap_or(&0);
        request.outcome = done.map(|_| ()).into();
    }
}

/// # Safety
/// `into` has room for `len` bytes, and nothing else accesses them while the result lives.
unsafe fn buffer<'a>(into: *mut MaybeUninit<u8>, len: usize) -> &'a mut [MaybeUninit<u8>] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: as the caller guarantees; `MaybeUninit` bytes need not be initialised.
    unsafe { slice::from_raw_parts_mut(into, len) }
}

/// Initialised bytes, as a buffer of RocksDB's.
#[cfg(test)]
pub(crate) fn buffer_over(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the result borrows the bytes, and the crate writes only initialised bytes to buffers.
    unsafe { buffer(bytes.as_mut_ptr().cast(), bytes.len()) }
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_readable_len(file: &Readable) -> u64 {
    file.len()
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_readable_release(file: Box<Readable>) {
    run(|| drop(file));
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_writable_append(file: &Writable, data: Bytes<'_>, why: Reason) -> Outcome {
    answer(|| file.append(data.get(), why.activity()).asked(file.call()))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_writable_truncate(file: &Writable, len: u64) -> Outcome {
    answer(|| file.truncate(len).asked(file.call()))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_writable_flush(file: &Writable, why: Reason) -> Outcome {
    answer(|| file.flush(why.activity()).asked(file.call()))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_writable_sync(file: &Writable, why: Reason) -> Outcome {
    answer(|| file.sync(why.activity()).asked(file.call()))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_writable_close(file: &Writable, why: Reason) -> Outcome {
    answer(|| file.close(why.activity()).asked(file.call()))
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_writable_len(file: &Writable) -> u64 {
    file.len()
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_writable_release(file: Box<Writable>) {
    run(|| drop(file));
}

// --- Tables being built -------------------------------------------------------------------------

/// No panic can leave it: it looks at four numbers in memory.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_key_counts_get(counts: &KeyCounts, key: Bytes<'_>) -> u8 {
    counts.get(key.get())
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_key_counts_release(counts: *const KeyCounts) {
    // SAFETY: `install_table_range` made the pointer from an `Arc`, and C++ gives it back once.
    run(|| drop(unsafe { Arc::from_raw(counts) }));
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_table_begun(family: u32, level: i32) {
    run(|| thread::begin_table(family, level));
}

#[unsafe(no_mangle)]
extern "C" fn plimsoll_table_finished(
    first: Bytes<'_>,
    last: Bytes<'_>,
    starts: *const Bytes<'_>,
    count: usize,
    data_len: u64,
    reads: *const BlockReads,
    reads_count: usize,
) {
    // SAFETY: C++ made that many of both, and they live until the call returns.
    let (starts, reads) = unsafe { (items(starts, count), items(reads, reads_count)) };
    run(|| {
        let range = KeyRange { first: first.get().into(), last: last.get().into() };
        let fences = Fences::new(&range, starts.iter().map(|start| start.get().into()));
        thread::finish_table(range, fences, data_len, reads);
    });
}

/// The items of a vector of C++, whose pointer may be null if it is empty.
///
/// # Safety
/// There are that many at the pointer, and they live and do not change during `'a`.
unsafe fn items<'a, T>(first: *const T, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: as promised by the caller.
        _ => unsafe { slice::from_raw_parts(first, count) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(outcome: Outcome) -> String {
        let bytes = Bytes { data: outcome.message, len: outcome.message_len, caller: PhantomData };
        let text = str::from_utf8(bytes.get()).unwrap().to_owned();
        plimsoll_message_free(outcome.message, outcome.message_len);
        text
    }

    #[test]
    fn a_panic_is_an_error_to_cpp() {
        let outcome = answer(|| panic!("no such {}", "luck"));
        assert_eq!(outcome.code, Code::IoError as u8);
        assert_eq!(message(outcome), "a bug: no such luck");
    }

    #[test]
    fn a_message_crosses_whole() {
        let outcome = Outcome::from(Status::new(Code::Fenced, "v1: full"));
        assert_eq!(outcome.code, Code::Fenced as u8);
        assert_eq!(message(outcome), "v1: full");
        assert_eq!(answer(|| Ok(())).code, Code::Ok as u8);
    }

    #[test]
    fn a_path_that_is_not_text_is_refused() {
        let bytes = [0xff, b'/'];
        let path = Bytes { data: bytes.as_ptr(), len: 2, caller: PhantomData };
        assert_eq!(path.path().unwrap_err().code, Code::Invalid);
        assert_eq!(Bytes::from("/CURRENT").path(), Ok("/CURRENT"));
    }
}
