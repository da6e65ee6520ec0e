use std::fs as std_fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::task::{Context, Poll, Wake, Waker};

use policy::purpose::{Origin, Step};
use tempfile::TempDir;

use super::sys::hook::Hooked;
use super::*;
use crate::conformance::{self, Blocking, Harness, Work};
use crate::task::block_on;
use crate::{Io, IoBuf, IoBufMut, Zeros};

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

/// Where another file system is mounted that the tests shall run on.
const PLACE: &str = "PLIMSOLL_TEST_DIR";

/// A directory on the device of the build, unless [`PLACE`] says another: no memory file system, so `O_DIRECT` means
/// something.
fn on_device() -> TempDir {
    if let Some(place) = std::env::var_os(PLACE) {
        return TempDir::new_in(place).unwrap();
    }
    let program = std::env::current_exe().unwrap();
    TempDir::new_in(program.parent().unwrap()).unwrap()
}

fn on_tmpfs() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

fn open(path: &Path) -> Dir {
    Dir::open(path, DirOptions::default()).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn create(dir: &Dir, text: &str) -> Arc<dyn Object> {
    block_on(dir.create(&name(text), &conformance::intent(&name(text)))).unwrap()
}

fn write(object: &dyn Object, offset: u64, bytes: &[u8]) {
    block_on(object.write_at(offset, IoBuf::from(bytes), IO)).unwrap();
}

fn read(object: &dyn Object) -> Vec<u8> {
    let len = usize::try_from(object.len()).unwrap();
    block_on(object.read_at(0, IoBufMut::zeroed(len), IO)).unwrap().to_vec()
}

/// The bytes that every test appends: a function of the offset, never zero.
fn stream(range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(|i| (i % 255) as u8 + 1).collect()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

fn conforms(make: fn() -> TempDir, options: DirOptions) {
    conformance::run(|| {
        let (temp, options) = (make(), options.clone());
        Box::new(Blocking::reopening(move || {
            Arc::new(Dir::open(temp.path(), options.clone()).unwrap())
        }))
    });
}

#[test]
fn conforms_with_direct_io() {
    assert!(open(on_device().path()).is_direct(), "the build is on a file system with O_DIRECT");
    conforms(on_device, DirOptions::default());
}

#[test]
fn conforms_where_no_call_is_made_in_place() {
    for io in [IoPool::apart(THREADS), IoPool::threads(THREADS)] {
        conforms(on_device, DirOptions { io: io.clone(), ..DirOptions::default() });
        conforms(on_tmpfs, DirOptions { io: io.clone(), ..DirOptions::default() });
        conforms(on_device, DirOptions { direct: false, io, ..DirOptions::default() });
    }
}

#[test]
fn conforms_through_the_page_cache() {
    conforms(on_device, DirOptions { direct: false, ..DirOptions::default() });
}

#[test]
fn conforms_in_memory_where_direct_io_means_nothing() {
    assert!(!open(on_tmpfs().path()).is_direct());
    conforms(on_tmpfs, DirOptions::default());
}

#[test]
fn conforms_where_no_thread_may_block() {
    for io in [IoPool::new(THREADS), IoPool::apart(THREADS)] {
        conformance::run(|| {
            let (temp, io) = (on_device(), io.clone());
            let options = move || DirOptions { io: io.clone(), ..DirOptions::default() };
            let open = move || Dir::open(temp.path(), options()).unwrap();
            Box::new(Unblocked(Blocking::reopening(move || Arc::new(open()))))
        });
    }
}

#[test]
fn transfers_by_ring_read_and_write_what_others_do() {
    let temp = on_device();
    let options = DirOptions { io: IoPool::apart(THREADS), ..DirOptions::default() };
    let dir = Dir::open(temp.path(), options).unwrap();
    assert!(dir.0.io.has_ring(), "this kernel has no io_uring: its tests need one");
    let object = create(&dir, "a");
    // Whole pages, parts of pages, a length that is no page, and more than a ring takes.
    let mut known = vec![0; 300_000];
    for (offset, len) in [(0, 8192), (4096, 4096), (100, 50), (8192, 131_072), (4096, 290_000)] {
        let bytes = stream(offset..offset + len);
        write(&*object, offset as u64, &bytes);
        known[offset..offset + len].copy_from_slice(&bytes);
    }
    known.truncate(294_096);
    for (offset, len) in
        [(0, 4096), (1, 1), (4095, 2), (290_816, 4096), (294_000, 4096), (294_096, 1), (5, 294_091)]
    {
        let read = block_on(object.read_at(offset, IoBufMut::zeroed(len), IO)).unwrap();
        let offset = usize::try_from(offset).unwrap();
        assert_eq!(*read, known[offset..known.len().min(offset + len)], "{len} bytes at {offset}");
    }
    assert!(dir.0.takes_rings.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_file_system_that_cannot_say_whether_it_would_wait_gets_threads() {
    let temp = on_device();
    let options = DirOptions { io: IoPool::apart(THREADS), ..DirOptions::default() };
    let dir = Dir::open(temp.path(), options).unwrap();
    let object = create(&dir, "a");
    let failing = Arc::new(Mutex::new(Some(Errno::INVAL)));
    let once = Arc::clone(&failing);
    let _hooked = sys::hook::ask(move |call| match (call, once.lock().take()) {
        (Call::Write, Some(errno)) => Err(errno),
        _ => Ok(()),
    });
    write(&*object, 0, &stream(0..4096));
    assert!(failing.lock().is_none(), "the ring was asked first");
    assert_eq!(read(&*object), stream(0..4096));
}

/// Where the file system cannot say that an append would wait, the ring gives each back.
#[test]
fn appends_to_a_log_hold_their_bytes_whoever_makes_them() {
    let temp = on_device();
    let options = DirOptions { io: IoPool::apart(THREADS), ..DirOptions::default() };
    let mut dir = Dir::open(temp.path(), options).unwrap();
    let found = dir.0.abilities.nowait_writes;
    let ways = [(found, "found.log"), (true, "ring.log"), (false, "thread.log")];
    for (nowait_writes, text) in ways {
        Arc::get_mut(&mut dir.0).unwrap().abilities.nowait_writes = nowait_writes;
        let log = create(&dir, text);
        let mut end = 0;
        for len in [1, 4095, 4096, 100, 200_000, 7, 131_072].repeat(3) {
            log.blocking_write_at(end as u64, &stream(end..end + len), IO).unwrap();
            end += len;
            assert_eq!(log.len(), end as u64);
        }
        assert_eq!(read(&*log), stream(0..end), "{text}");
        block_on(log.sync(IO)).unwrap();
    }
    assert!(dir.0.takes_rings.load(std::sync::atomic::Ordering::Relaxed));
}

/// Polls like an executor: without the mark that lets a leaf block.
struct Unblocked(Blocking);

impl Harness for Unblocked {
    fn volume(&self) -> Arc<dyn Volume> {
        self.0.volume()
    }

    fn run(&mut self, mut work: Work) {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        while work.as_mut().poll(&mut cx) == Poll::Pending {
            std::thread::park();
        }
    }

    fn reopen(&mut self) -> bool {
        self.0.reopen()
    }
}

#[test]
fn the_length_of_the_file_is_the_length_of_the_object_at_every_moment() {
    let temp = on_device();
    let dir = open(temp.path());
    for text in ["data", "wal.log"] {
        let object = create(&dir, text);
        let file = temp.path().join(OBJECTS).join(text);
        let mut at = 0;
        for len in [1, 4095, 4096, 4097, 10_000, 8192, 3, 70_001] {
            write(&*object, at as u64, &stream(at..at + len));
            at += len;
            assert_eq!(std_fs::metadata(&file).unwrap().len(), at as u64);
        }
        assert_eq!(std_fs::read(&file).unwrap(), stream(0..at));
    }
}

#[test]
fn names_are_files_and_slashes_percent_signs() {
    let temp = on_device();
    let dir = open(temp.path());
    write(&*create(&dir, "kv/a/000001.sst"), 0, b"table");
    let file = temp.path().join(OBJECTS).join("kv%a%000001.sst");
    assert_eq!(std_fs::read(file).unwrap(), b"table");
}

#[test]
fn what_is_no_object_is_left_alone() {
    let temp = on_device();
    let dir = open(temp.path());
    let objects = temp.path().join(OBJECTS);
    std_fs::create_dir(objects.join("directory")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", objects.join("link")).unwrap();
    std_fs::write(objects.join(".hidden"), "x").unwrap();
    std_fs::write(objects.join("two words"), "x").unwrap();
    create(&dir, "object");
    let listed = block_on(dir.list()).unwrap();
    assert_eq!(listed, [Listed { name: name("object"), len: 0 }]);
    assert!(block_on(dir.open(&name("link"))).is_err(), "no link leads out of the directory");
    assert!(block_on(dir.remove(&name("directory"))).is_err());
    assert_eq!(std_fs::read_dir(&objects).unwrap().count(), 5);
}

#[test]
fn parts_of_one_page_written_by_many_threads_are_all_there() {
    let temp = on_device();
    let dir = open(temp.path());
    let object = create(&dir, "a");
    let bytes = stream(0..40 * 997);
    // Each thread writes every fourth piece: pieces share pages, some cover whole ones.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (object, bytes) = (&*object, &bytes);
            scope.spawn(move || {
                for (i, piece) in bytes.chunks(997 * 5).enumerate().skip(thread).step_by(4) {
                    for (j, part) in piece.chunks(997).enumerate() {
                        write(object, ((i * 5 + j) * 997) as u64, part);
                    }
                }
                for page in (0..4).map(|page| 65_536 + (page * 4 + thread) * 4096) {
                    write(object, page as u64, &stream(page..page + 4096));
                }
            });
        }
    });
    let all = read(&*object);
    assert!(all[..bytes.len()] == bytes);
    assert!(all[65_536..] == stream(65_536..65_536 + 16 * 4096));
    drop((object, dir));
    let again = block_on(open(temp.path()).open(&name("a"))).unwrap();
    assert!(read(&*again) == all);
}

#[test]
fn room_is_set_aside_without_changing_the_length() {
    let temp = on_device();
    let dir = open(temp.path());
    let intent = Intent { len: Some(1 << 20), ..Intent::DATA };
    let object = block_on(dir.create(&name("a"), &intent)).unwrap();
    assert_eq!(object.len(), 0);
    let file = std_fs::metadata(temp.path().join(OBJECTS).join("a")).unwrap();
    assert_eq!((file.len(), file.blocks() * 512), (0, 1 << 20));
    write(&*object, 0, &stream(0..5000));
    assert_eq!(read(&*object), stream(0..5000));
}

#[test]
fn an_object_that_cannot_fit_leaves_nothing_behind() {
    let temp = on_tmpfs();
    let dir = open(temp.path());
    let Space { total, free, .. } = block_on(dir.space()).unwrap();
    assert!(free <= total);
    let intent = Intent { len: Some(total + 4096), ..Intent::DATA };
    let refused = block_on(dir.create(&name("a"), &intent));
    assert_eq!(kind(refused), Some(ErrorKind::OutOfSpace));
    assert_eq!(block_on(dir.list()).unwrap(), []);
    create(&dir, "a");
}

#[test]
fn a_volume_that_refused_a_write_has_no_room() {
    let temp = on_device();
    let dir = open(temp.path());
    let a = create(&dir, "a");
    write(&*a, 0, &[1; 4096]);
    let free = || block_on(dir.space()).unwrap().free;
    assert_ne!(free(), 0);
    let _refuses = sys::hook::ask(move |call| match call {
        Call::Write | Call::Allocate => Err(Errno::DQUOT),
        _ => Ok(()),
    });
    // What other programs remove from the file system between the two counts as room.
    let has_none = (0..100).any(|_| {
        let refused = block_on(a.write_at(0, IoBuf::from(&[2; 4096][..]), IO));
        assert_eq!(kind(refused), Some(ErrorKind::OutOfSpace));
        free() == 0
    });
    assert!(has_none, "{} bytes are free", free());
}

/// A full quota counts as a full volume, because the same steps make room. The limit of one file's length does not.
#[test]
fn a_quota_is_room_and_the_length_of_a_file_is_not() {
    for (errno, kind) in [
        (Errno::NOSPC, ErrorKind::OutOfSpace),
        (Errno::DQUOT, ErrorKind::OutOfSpace),
        (Errno::FBIG, ErrorKind::Invalid),
    ] {
        assert_eq!(sys::error(Path::new("/"), "x", errno).kind(), kind);
    }
    assert_eq!(Error::from_io("x", Errno::DQUOT.into()).kind(), ErrorKind::OutOfSpace);
}

/// Makes system calls of this thread fail: the first of `call`, or every one of any kind.
fn fail(call: Option<Call>, errno: Errno) -> Hooked {
    let mut over = false;
    sys::hook::ask(move |made| {
        let fails = call.is_none_or(|call| made == call && !over);
        over |= fails;
        if fails { Err(errno) } else { Ok(()) }
    })
}

/// One call on the volume for each system call of an object, with the error that it gave.
fn try_each(errno: Errno, only: bool) -> Vec<(Call, Option<ErrorKind>)> {
    let calls = [Call::Open, Call::Read, Call::Write, Call::SetLen, Call::Allocate];
    let tried = calls.into_iter().map(|call| {
        // A new volume each time: the result of a probe holds for a while.
        let temp = on_device();
        let dir = open(temp.path());
        let object = create(&dir, "a");
        write(&*object, 0, &stream(0..5000));
        let failing = fail(only.then_some(call), errno);
        let room = Intent { len: Some(8192), ..Intent::DATA };
        let work = || match call {
            Call::Read => kind(block_on(object.read_at(0, IoBufMut::zeroed(5000), IO))),
            Call::Write => kind(block_on(object.write_at(0, IoBuf::from(&[7_u8; 4096][..]), IO))),
            Call::SetLen => kind(block_on(object.set_len(4096))),
            _ => kind(block_on(dir.create(&name("b"), &room))),
        };
        let failed = work();
        drop(failing);
        assert_eq!(work(), None, "{call:?} works again");
        (call, failed)
    });
    tried.collect()
}

/// Every error of a device once counted as a volume that is away: a copy with a bad sector was never replaced.
#[test]
fn a_bad_sector_is_an_error_of_its_bytes_and_a_dead_device_one_of_the_volume() {
    for errno in [Errno::IO, Errno::NODATA] {
        for (call, failed) in try_each(errno, true) {
            assert_eq!(failed, Some(ErrorKind::Io), "{call:?}, {errno}");
        }
        for (call, failed) in try_each(errno, false) {
            assert_eq!(failed, Some(ErrorKind::Unavailable), "{call:?}, {errno}");
        }
    }
}

/// These once counted as damage: good copies were dropped because the process had too many files open.
#[test]
fn what_the_process_lacks_changes_nothing_and_is_no_damage() {
    for errno in [Errno::MFILE, Errno::ACCESS, Errno::NOMEM, Errno::BADF] {
        for (call, failed) in try_each(errno, true) {
            assert_eq!(failed, Some(ErrorKind::Busy), "{call:?}, {errno}");
        }
    }
}

#[test]
fn a_write_that_the_process_could_not_finish_is_in_doubt() {
    let temp = on_device();
    let object = create(&open(temp.path()), "a");
    let mut writes = 0;
    let _failing = sys::hook::ask(move |call| {
        writes += u32::from(call == Call::Write);
        if call == Call::Write && writes > 1 { Err(Errno::NOMEM) } else { Ok(()) }
    });
    // A part of a page, whole pages, and a part of a page.
    let written = block_on(object.write_at(100, IoBuf::from(&stream(0..9000)[..]), IO));
    assert_eq!(kind(written), Some(ErrorKind::Unavailable));
}

#[test]
fn a_sync_that_fails_loses_the_object_whatever_the_error() {
    for errno in [Errno::IO, Errno::NODATA, Errno::NOMEM, Errno::NOSPC] {
        let temp = on_device();
        let object = create(&open(temp.path()), "a");
        let _failing = fail(Some(Call::Sync), errno);
        assert_eq!(kind(block_on(object.sync(IO))), Some(ErrorKind::Poisoned), "{errno}");
    }
}

/// A creation once held the lock of all names while the file system set room aside.
#[test]
fn a_slow_creation_holds_up_only_its_own_name() {
    let temp = on_device();
    let dir = open(temp.path());
    create(&dir, "a");
    let (volume, other) = (Arc::clone(&dir.0), name("a"));
    let free = Arc::new(Mutex::new(None));
    let found = Arc::clone(&free);
    let _hooked = sys::hook::ask(move |call| {
        if call == Call::Allocate {
            let opened = volume.opened.try_lock();
            *found.lock() = Some(opened.is_some_and(|opened| !opened.claimed.contains(&other)));
        }
        Ok(())
    });
    let room = Intent { len: Some(8192), ..Intent::DATA };
    block_on(dir.create(&name("b"), &room)).unwrap();
    assert_eq!(*free.lock(), Some(true));
}

#[test]
fn one_name_is_created_opened_and_removed_by_one_call_at_a_time() {
    let temp = on_device();
    let dir = open(temp.path());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let made = block_on(dir.create(&name("a"), &Intent::DATA));
                    assert!(matches!(kind(made), None | Some(ErrorKind::AlreadyExists)));
                    let found = block_on(dir.open(&name("a")));
                    assert!(matches!(kind(found), None | Some(ErrorKind::NotFound)));
                    let _ = block_on(dir.remove(&name("a")));
                }
            });
        }
    });
    assert_eq!(block_on(dir.list()).unwrap(), []);
    assert!(dir.0.opened.lock().claimed.is_empty());
}

#[test]
fn a_directory_that_was_moved_away_is_unavailable_until_it_is_back() {
    let temp = on_device();
    let (path, away) = (temp.path().join("volume"), temp.path().join("away"));
    let options = || DirOptions { create: true, ..DirOptions::default() };
    let dir = Dir::open(&path, options()).unwrap();
    let object = create(&dir, "a");
    write(&*object, 0, b"a");
    std_fs::rename(&path, &away).unwrap();
    let errors = [
        block_on(dir.create(&name("b"), &Intent::DATA)).err(),
        block_on(dir.open(&name("a"))).err(),
        block_on(dir.remove(&name("a"))).err(),
        block_on(dir.list()).err(),
        block_on(dir.space()).err(),
        block_on(dir.probe()).err(),
    ];
    for error in errors.map(Option::unwrap) {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    assert_eq!(read(&*object), b"a", "what is open goes on");
    // Another directory in its place is refused, too.
    std_fs::create_dir_all(path.join(OBJECTS)).unwrap();
    assert_eq!(kind(block_on(dir.list())), Some(ErrorKind::Unavailable));
    std_fs::remove_dir_all(&path).unwrap();
    std_fs::rename(&away, &path).unwrap();
    assert_eq!(block_on(dir.list()).unwrap().len(), 1);
}

#[test]
fn a_missing_directory_is_made_only_on_request() {
    let temp = on_device();
    let path = temp.path().join("not/there");
    let missing = Dir::open(&path, DirOptions::default()).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::Unavailable);
    assert!(missing.to_string().contains("mount or create it"), "{missing}");
    assert!(!path.exists());
    Dir::open(&path, DirOptions { create: true, ..DirOptions::default() }).unwrap();
}

#[test]
fn a_failed_sync_poisons_the_object_for_ever_and_the_volume_until_probed() {
    let temp = on_device();
    let dir = open(temp.path());
    let (a, b) = (create(&dir, "a"), create(&dir, "b"));
    write(&*a, 0, b"a");
    let file = dir.0.opened.lock().files[&name("a")].upgrade().unwrap();
    let failed = file.sync_by(|| Err(Errno::IO)).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Poisoned);
    let poisoned = Some(ErrorKind::Poisoned);
    assert_eq!(kind(block_on(a.sync(IO))), poisoned, "the next sync would succeed, and lie");
    assert_eq!(kind(block_on(a.write_at(0, IoBuf::from(&b"b"[..]), IO))), poisoned);
    assert_eq!(kind(block_on(a.set_len(0))), poisoned);
    assert_eq!(read(&*a), b"a");
    // The probe fails, too.
    let in_the_way = temp.path().join("plimsoll.probe");
    std_fs::create_dir(&in_the_way).unwrap();
    assert_eq!(kind(block_on(dir.create(&name("c"), &Intent::DATA))), poisoned);
    assert!(block_on(dir.probe()).is_err());
    write(&*b, 0, b"b");
    block_on(b.sync(IO)).unwrap();
    std_fs::remove_dir(&in_the_way).unwrap();
    create(&dir, "c");
    drop((a, file));
    let again = block_on(dir.open(&name("a"))).unwrap();
    assert_eq!(kind(block_on(again.sync(IO))), poisoned, "letting go of it does not heal it");
    block_on(dir.remove(&name("a"))).unwrap();
    block_on(create(&dir, "a").sync(IO)).unwrap();
}

/// Runs `work` with an error of the next forced write.
fn failing_write<T>(errno: Errno, work: impl FnOnce() -> T) -> T {
    let _hooked = sys::hook::ask(move |call| match call {
        Call::Sync => Err(errno),
        _ => Ok(()),
    });
    work()
}

/// A failed forced write may also have lost earlier bytes in the device's cache.
#[test]
fn a_failed_durable_write_loses_its_own_bytes_only_if_all_others_were_synced() {
    let temp = on_device();
    let dir = open(temp.path());
    let a = create(&dir, "a");
    let durable = |byte| block_on(a.write_durable(0, IoBuf::from(&[byte; 4096][..]), IO));
    write(&*a, 0, &[1; 8192]);
    block_on(a.sync(IO)).unwrap();
    let failed = failing_write(Errno::IO, || durable(2));
    assert_eq!(kind(failed), Some(ErrorKind::Io), "the volume works otherwise");
    block_on(a.sync(IO)).unwrap();
    durable(3).unwrap();
    write(&*a, 4096, &[4; 4096]);
    let full = failing_write(Errno::NOSPC, || durable(5));
    assert_eq!(kind(full), Some(ErrorKind::OutOfSpace), "nothing was sent");
    let failed = failing_write(Errno::IO, || durable(6));
    assert_eq!(kind(failed), Some(ErrorKind::Poisoned));
    assert_eq!(kind(block_on(a.sync(IO))), Some(ErrorKind::Poisoned));
}

/// The kernel makes overlapping direct writes at the same time.
#[test]
fn a_change_waits_for_one_of_the_same_bytes_that_was_given_up() {
    let temp = on_device();
    let dir = open(temp.path());
    let a = create(&dir, "a");
    let file = dir.0.opened.lock().files[&name("a")].upgrade().unwrap();
    drop(a);
    let handle = Handle(file);
    let mut cx = Context::from_waker(Waker::noop());
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let mut first = handle.change(0..4096, move |_| {
        begun.send(()).unwrap();
        may_go_on.recv().unwrap();
        Ok(())
    });
    assert!(first.as_mut().poll(&mut cx).is_pending());
    has_begun.recv().unwrap();
    drop(first);
    let mut write = handle.write_at(4000, IoBuf::from(&[1; 200][..]), IO);
    let mut read = handle.read_at(0, IoBufMut::zeroed(1), IO);
    assert!(read.as_mut().poll(&mut cx).is_pending() && write.as_mut().poll(&mut cx).is_pending());
    block_on(handle.write_at(8192, IoBuf::from(&[2; 100][..]), IO)).unwrap();
    assert_eq!(handle.len(), 8292, "other bytes are written meanwhile");
    assert!(read.as_mut().poll(&mut cx).is_pending(), "it has not begun");
    go_on.send(()).unwrap();
    assert_eq!(block_on(read).unwrap().len(), 1);
    block_on(write).unwrap();
}

#[test]
fn a_hole_gives_room_back_and_kept_zeros_take_it() {
    const LEN: u64 = 4 << 20;
    let temp = on_device();
    let dir = open(temp.path());
    assert!(dir.limits().holes, "the build is on a file system with holes");
    let a = create(&dir, "a");
    write(&*a, 0, &vec![7; LEN as usize]);
    block_on(a.sync(IO)).unwrap();
    let room = || std_fs::metadata(temp.path().join(OBJECTS).join("a")).unwrap().blocks() * 512;
    let extents = || block_on(a.extents(0, LEN)).unwrap().len();
    assert!(room() >= LEN && extents() == 1);
    block_on(a.zero(LEN / 4, LEN / 2, Zeros::Free, IO)).unwrap();
    assert!(room() <= LEN / 2 + LEN / 8, "{} bytes", room());
    assert_eq!(extents(), 3);
    match block_on(a.zero(LEN / 4, LEN / 2, Zeros::Keep, IO)) {
        Ok(()) => assert!(room() >= LEN, "{} bytes", room()),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
    }
    assert_eq!(a.len(), LEN);
}

#[test]
fn the_file_of_an_object_tells_its_kind() {
    let temp = on_device();
    let dir = open(temp.path());
    block_on(dir.create(&name("kv/journal"), &Intent::LOG)).unwrap();
    block_on(dir.create(&name("old.log"), &Intent::DATA)).unwrap();
    let mut files: Vec<_> = std_fs::read_dir(temp.path().join(OBJECTS)).unwrap().collect();
    let mut files: Vec<_> = files.drain(..).map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["kv%journal%", "old.log%"]);
    std_fs::write(temp.path().join(OBJECTS).join("kv%7.log"), b"made earlier").unwrap();
    assert!(block_on(dir.open(&name("kv/7.log"))).unwrap().is_log());
}

#[test]
fn a_volume_is_open_once_in_one_process() {
    let temp = on_device();
    let dir = open(temp.path());
    let object = create(&dir, "a");
    let fenced = Dir::open(temp.path(), DirOptions::default()).err().unwrap();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
    assert!(fenced.to_string().contains(&std::process::id().to_string()), "{fenced}");
    drop(dir);
    assert!(Dir::open(temp.path(), DirOptions::default()).is_err(), "an object is still open");
    drop(object);
    open(temp.path());
}

/// Names the directory of a test that runs in a second process.
const OTHER_PROCESS: &str = "PLIMSOLL_TEST_OTHER_PROCESS";

/// The same test in another process, which dies with this value at the latest.
struct Other {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(test: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("dir::tests::{test}"), "--nocapture"])
            .env(OTHER_PROCESS, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// What it printed after the next `word`; `None` once it is dead.
    fn hear(&mut self, word: &str) -> Option<String> {
        self.lines.find_map(|line| Some(line.unwrap().split_once(word)?.1.trim().to_owned()))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_second_process_is_fenced_until_the_first_is_dead() {
    if let Some(path) = std::env::var_os(OTHER_PROCESS) {
        let _dir = open(Path::new(&path));
        println!("holds it");
        // Holds the lock until the test kills this process, or closes its pipe.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let temp = on_device();
    let mut other = Other::start("a_second_process_is_fenced_until_the_first_is_dead", temp.path());
    other.hear("holds it").unwrap();
    let fenced = Dir::open(temp.path(), DirOptions::default()).err().unwrap();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
    assert!(fenced.to_string().contains(&format!("process {}:", other.child.id())), "{fenced}");
    other.kill();
    open(temp.path());
}

/// Kills a process that appends odd pieces, at any moment. Every byte it reported is there, and the length ends with
/// bytes it wrote: never with padding.
#[test]
fn a_killed_process_leaves_exact_lengths() {
    const OBJECTS: [&str; 2] = ["data", "wal.log"];
    if let Some(path) = std::env::var_os(OTHER_PROCESS) {
        let dir = open(Path::new(&path));
        let objects = OBJECTS.map(|text| create(&dir, text));
        let mut at = 0;
        loop {
            let end = at + 1 + at * 31 % 9001;
            for object in &objects {
                write(&**object, at as u64, &stream(at..end));
            }
            println!("written to {end}");
            at = end;
        }
    }
    for round in 0..4 {
        let temp = on_device();
        let mut other = Other::start("a_killed_process_leaves_exact_lengths", temp.path());
        let mut written = 0;
        for _ in 0..20 + round * 7 {
            written = other.hear("written to").unwrap().parse().unwrap();
        }
        other.kill();
        let dir = open(temp.path());
        for text in OBJECTS {
            let object = block_on(dir.open(&name(text))).unwrap();
            let len = usize::try_from(object.len()).unwrap();
            assert!(len >= written, "{text}: {len} bytes of {written}");
            assert!(read(&*object) == stream(0..len), "{text}: {len} bytes");
        }
    }
}

/// A log of `len` bytes that was written ahead, on a volume of its own.
fn ahead(dir: &Dir, len: usize) -> Arc<dyn Object> {
    let log = create(dir, "kv/7.log");
    write(&*log, 0, &stream(0..len));
    assert!(block_on(log.sync_ahead(100_000, IO)).unwrap());
    log
}

fn file_len(path: &Path) -> u64 {
    std_fs::metadata(path.join("objects/kv%7.log")).unwrap().len()
}

#[test]
fn a_log_that_is_written_ahead_has_its_length_for_all() {
    for place in [on_device(), on_tmpfs()] {
        let dir = open(place.path());
        let log = ahead(&dir, 1000);
        let before = file_len(place.path());
        assert!(before > 100_000 && log.len() == 1000);
        for (len, more) in [(1000, 1), (1001, 511), (1512, 24), (1536, 5000), (6536, 90_000)] {
            write(&*log, len as u64, &stream(len..len + more));
            assert_eq!(log.len() as usize, len + more);
            assert_eq!(read(&*log), stream(0..len + more));
            let listed = block_on(dir.list()).unwrap();
            assert_eq!(listed[0].len as usize, len + more);
            let behind = block_on(log.read_at(0, IoBufMut::zeroed(200_000), IO)).unwrap();
            assert_eq!(behind.len(), len + more, "reads end where the object ends");
            let mut into = vec![0; 200_000];
            assert_eq!(log.blocking_read_at(10, &mut into, IO).unwrap(), len + more - 10);
        }
        assert_eq!(file_len(place.path()), before, "no append made the file longer");
        // Bytes below the end change in place.
        write(&*log, 10, b"other bytes");
        assert_eq!(log.len(), 96_536);
    }
}

/// The process dies without a word: the next one finds the length by the file.
#[test]
fn a_log_that_was_written_ahead_is_opened_with_its_length() {
    let place = on_device();
    for more in [0, 1, 480, 511, 512, 5000] {
        let dir = open(place.path());
        let log = ahead(&dir, 700);
        write(&*log, 700, &stream(700..700 + more));
        drop((log, dir));
        let dir = open(place.path());
        assert_eq!(block_on(dir.list()).unwrap()[0].len as usize, 700 + more);
        let log = block_on(dir.open(&name("kv/7.log"))).unwrap();
        assert_eq!(read(&*log), stream(0..700 + more));
        assert_eq!(file_len(place.path()) as usize, 700 + more, "it is cut");
        write(&*log, log.len(), b"and goes on");
        block_on(log.sync(IO)).unwrap();
        block_on(dir.remove(&name("kv/7.log"))).unwrap();
    }
}

#[test]
fn a_log_is_as_long_as_its_file_once_it_is_sealed_cut_or_outgrows_it() {
    let place = on_device();
    let dir = open(place.path());
    type Act = fn(&dyn Object);
    let acts: [(Act, usize); 5] = [
        (|log| block_on(log.seal(IO)).unwrap(), 700),
        (|log| block_on(log.set_len(300)).unwrap(), 300),
        (|log| block_on(log.set_len(9000)).unwrap(), 9000),
        (|log| write(log, 700, &stream(700..200_000)), 200_000),
        (|log| write(log, 1000, &stream(1000..1001)), 1001),
    ];
    for (act, len) in acts {
        let log = ahead(&dir, 700);
        act(&*log);
        assert_eq!((log.len() as usize, file_len(place.path()) as usize), (len, len));
        let bytes = read(&*log);
        assert_eq!(bytes[..300], stream(0..300));
        let gap = 700.min(len)..1000.min(len);
        assert!(len == 200_000 || bytes[gap].iter().all(|&byte| byte == 0), "gaps are zeros");
        let mode = std_fs::metadata(place.path().join("objects/kv%7.log")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        block_on(dir.remove(&name("kv/7.log"))).unwrap();
    }
}

#[test]
fn a_log_grows_ahead_again_before_its_filling_ends() {
    let place = on_device();
    let dir = open(place.path());
    let log = ahead(&dir, 700);
    let before = file_len(place.path());
    write(&*log, 700, &stream(700..90_000));
    assert!(block_on(log.sync_ahead(100_000, IO)).unwrap());
    assert!(file_len(place.path()) > before);
    write(&*log, 90_000, &stream(90_000..180_000));
    assert_eq!(read(&*log), stream(0..180_000));
    drop((log, dir));
    let dir = open(place.path());
    let log = block_on(dir.open(&name("kv/7.log"))).unwrap();
    assert_eq!(read(&*log), stream(0..180_000));
}

/// The mode tells that the file is longer: without it the next opening would take the filling for bytes of the log.
#[test]
fn a_file_system_that_keeps_no_mode_writes_nothing_ahead() {
    let place = on_device();
    let dir = open(place.path());
    let log = create(&dir, "kv/7.log");
    write(&*log, 0, &stream(0..700));
    let hooked = sys::hook::ask(|call| match call {
        Call::SetMode => Err(Errno::PERM),
        _ => Ok(()),
    });
    assert!(!block_on(log.sync_ahead(100_000, IO)).unwrap());
    drop(hooked);
    assert_eq!((log.len(), file_len(place.path())), (700, 700));
    write(&*log, 700, &stream(700..800));
    block_on(log.sync(IO)).unwrap();
    assert_eq!(read(&*log), stream(0..800));
}

#[test]
fn a_volume_without_room_for_the_filling_syncs_without() {
    let place = on_device();
    let dir = open(place.path());
    let log = create(&dir, "kv/7.log");
    write(&*log, 0, &stream(0..700));
    let hooked = sys::hook::ask(|call| match call {
        Call::Write => Err(Errno::NOSPC),
        _ => Ok(()),
    });
    assert!(!block_on(log.sync_ahead(100_000, IO)).unwrap());
    drop(hooked);
    assert_eq!((log.len(), file_len(place.path())), (700, 700));
    write(&*log, 700, &stream(700..800));
    assert_eq!(read(&*log), stream(0..800));
    assert!(block_on(dir.space()).unwrap().free > 0, "the volume does not count as full");
    let data = create(&dir, "kv/7.sst");
    assert!(!block_on(data.sync_ahead(100_000, IO)).unwrap(), "only logs are written ahead");
}
