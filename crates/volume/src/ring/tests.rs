use std::io::Write as _;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use futures_util::future::{Either, join, join_all, select};

use super::*;
use crate::Clock;
use crate::driver::Driver;
use crate::io_pool::{IoPool, THREADS};
use crate::task::{block_on, yield_now};

fn has_ring() -> bool {
    assert!(Ring::new().is_ok(), "this kernel has no io_uring: its tests need one");
    true
}

/// A read of a pipe, which ends when something is written to it.
fn read_of(reader: &Arc<OwnedFd>, ended: mpsc::Sender<Result<Vec<u8>, Errno>>) -> Call {
    let file: Arc<dyn AsFd + Send + Sync> = Arc::<OwnedFd>::clone(reader);
    let memory = Memory::Read(IoBufMut::zeroed(5));
    let transfer = Transfer { file, offset: u64::MAX, memory };
    let mut call = Call::new(transfer, move |moved, memory| {
        let Memory::Read(read) = memory else { panic!("it was a read") };
        // A test that ended does not listen.
        let _ = ended.send(moved.map(|moved| read[..moved].to_vec()));
    });
    call.flags = ReadWriteFlags::empty();
    call
}

fn hanging() -> (Arc<OwnedFd>, std::fs::File) {
    let (reader, writer) = io::pipe().unwrap();
    (Arc::new(reader.into()), OwnedFd::from(writer).into())
}

/// Polls until `ended` has something: calls end while the thread waits.
async fn received<T>(ended: &mpsc::Receiver<T>) -> T {
    loop {
        if let Ok(value) = ended.try_recv() {
            return value;
        }
        yield_now().await;
    }
}

#[test]
fn a_wait_ends_with_a_call() {
    assert!(has_ring());
    let ((reader, mut writer), (tx, rx)) = (hanging(), mpsc::channel());
    block_on(async {
        begin(read_of(&reader, tx));
        writer.write_all(b"early").unwrap();
        assert_eq!(received(&rx).await.unwrap(), b"early");
    });
    assert!(!is_in_use());
}

#[test]
fn a_call_has_let_its_file_go_when_its_end_is_told() {
    assert!(has_ring());
    let ((reader, mut writer), (tx, rx)) = (hanging(), mpsc::channel());
    block_on(async {
        let watched = Arc::downgrade(&reader);
        let mut call = read_of(&reader, mpsc::channel().0);
        call.ended = Box::new(move |_, _| tx.send(watched.strong_count()).unwrap());
        begin(call);
        drop(reader);
        writer.write_all(b"ended").unwrap();
        assert_eq!(received(&rx).await, 0);
    });
}

#[test]
fn a_thread_that_waits_for_a_call_is_woken_by_others_and_by_alarms() {
    assert!(has_ring());
    let ((reader, mut writer), (tx, rx)) = (hanging(), mpsc::channel());
    let pool = IoPool::threads(THREADS);
    block_on(async {
        begin(read_of(&reader, tx));
        for round in 0..100u32 {
            // Another thread wakes this one.
            assert_eq!(pool.run(move || round).await, round);
        }
        Clock::real().sleep(Duration::from_millis(2)).await;
        assert!(is_in_use() && rx.try_recv().is_err());
        writer.write_all(b"later").unwrap();
        assert_eq!(received(&rx).await.unwrap(), b"later");
    });
}

#[test]
fn a_call_that_its_thread_left_ends_elsewhere() {
    assert!(has_ring());
    let ((reader, mut writer), (tx, rx)) = (hanging(), mpsc::channel());
    let begun = Instant::now();
    block_on(async {
        begin(read_of(&reader, tx));
        Clock::real().sleep(Duration::from_millis(1)).await;
    });
    assert!(!is_in_use());
    writer.write_all(b"late!").unwrap();
    let read = rx.recv_timeout(Duration::from_secs(60)).expect("somebody waits for it");
    assert_eq!(read.unwrap(), b"late!", "{:?}", begun.elapsed());
    // The thread has a ring again.
    let (tx, rx) = mpsc::channel();
    block_on(async {
        begin(read_of(&reader, tx));
        writer.write_all(b"again").unwrap();
        assert_eq!(received(&rx).await.unwrap(), b"again");
    });
}

#[test]
fn a_call_of_a_thread_that_ended_ends_too() {
    assert!(has_ring());
    let ((reader, mut writer), (tx, rx)) = (hanging(), mpsc::channel());
    let theirs = Arc::clone(&reader);
    let thread = thread::spawn(move || {
        block_on(async {
            begin(read_of(&theirs, tx));
            Clock::real().sleep(Duration::from_millis(1)).await;
        });
    });
    thread.join().unwrap();
    writer.write_all(b"alone").unwrap();
    ends_without_its_thread(&rx, b"alone");
}

/// The kernel may cancel a call whose thread has ended: its caller repeats it then.
fn ends_without_its_thread(rx: &mpsc::Receiver<Result<Vec<u8>, Errno>>, wanted: &[u8]) {
    match rx.recv_timeout(Duration::from_secs(60)).expect("the kernel ends it") {
        Ok(read) => assert_eq!(read, wanted),
        Err(errno) => assert_eq!(errno, Errno::CANCELED),
    }
}

#[test]
fn the_driver_survives_the_panic_of_a_call() {
    assert!(has_ring());
    let ((reader, mut writer), driver) = (hanging(), Driver::default());
    let (held, is_let_go) = mpsc::channel::<()>();
    let mut call = read_of(&reader, mpsc::channel().0);
    call.ended = Box::new(move |_, _| panic!("{held:?} goes with the panic"));
    driver.begin(call);
    writer.write_all(b"first").unwrap();
    assert!(is_let_go.recv().is_err());
    let (tx, rx) = mpsc::channel();
    driver.begin(read_of(&reader, tx));
    writer.write_all(b"other").unwrap();
    assert_eq!(rx.recv_timeout(Duration::from_secs(60)).unwrap().unwrap(), b"other");
}

#[test]
fn the_driver_makes_calls_while_others_hang() {
    assert!(has_ring());
    let (driver, (hangs, mut its_end)) = (Driver::default(), hanging());
    let (slow_tx, slow_rx) = mpsc::channel();
    driver.begin(read_of(&hangs, slow_tx));
    for _ in 0..50 {
        let ((reader, mut writer), (tx, rx)) = (hanging(), mpsc::channel());
        driver.begin(read_of(&reader, tx));
        writer.write_all(b"quick").unwrap();
        let read = rx.recv_timeout(Duration::from_secs(60)).expect("the driver goes on");
        assert_eq!(read.unwrap(), b"quick");
    }
    assert!(slow_rx.try_recv().is_err());
    drop(driver);
    its_end.write_all(b"there").unwrap();
    ends_without_its_thread(&slow_rx, b"there");
}

#[test]
fn more_calls_than_entries_are_under_way() {
    assert!(has_ring());
    let pipes: Vec<_> = (0..5 * ENTRIES).map(|_| hanging()).collect();
    let (tx, rx) = mpsc::channel();
    block_on(async {
        for (reader, _) in &pipes {
            begin(read_of(reader, tx.clone()));
        }
        yield_now().await;
        for (_, writer) in &pipes {
            let mut writer = writer;
            writer.write_all(b"12345").unwrap();
        }
        for _ in &pipes {
            assert_eq!(received(&rx).await.unwrap(), b"12345");
        }
    });
}

#[test]
fn a_call_that_would_wait_is_given_back() {
    assert!(has_ring());
    let ((reader, _writer), (tx, rx)) = (hanging(), mpsc::channel());
    let mut call = read_of(&reader, tx);
    call.flags = ReadWriteFlags::NOWAIT;
    block_on(async {
        begin(call);
        let refused = received(&rx).await.unwrap_err();
        assert!([Errno::AGAIN, Errno::OPNOTSUPP].contains(&refused), "{refused}");
    });
}

#[test]
fn a_transfer_that_nobody_waits_for_still_ends() {
    assert!(has_ring());
    let io = IoPool::apart(THREADS);
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let write = |at: u64, ended: mpsc::Sender<usize>| {
        let file: Arc<dyn AsFd + Send + Sync> = Arc::<OwnedFd>::clone(&file);
        let memory = Memory::Write(IoBuf::from(&[7u8; 4096][..]));
        let transfer = Transfer { file, offset: at, memory };
        // The page cache of a new file takes no writes without waiting on every file system.
        io.transfer(transfer, move |moved, _| {
            ended.send(moved.unwrap_or(4096)).unwrap();
            moved
        })
    };
    let (tx, rx) = mpsc::channel();
    block_on(async { drop(write(0, tx.clone())) });
    assert_eq!(rx.recv_timeout(Duration::from_secs(60)), Ok(4096));
    drop(write(4096, tx.clone()));
    assert_eq!(rx.recv_timeout(Duration::from_secs(60)), Ok(4096));
    block_on(async {
        let both = join(write(0, tx.clone()), write(4096, tx.clone())).await;
        for ended in [both.0, both.1] {
            assert!(matches!(ended, Ok(4096) | Err(Errno::AGAIN | Errno::OPNOTSUPP)), "{ended:?}");
        }
        let first = select(write(0, tx.clone()), write(4096, tx.clone())).await;
        assert!(matches!(first, Either::Left(_) | Either::Right(_)));
        join_all((0..200).map(|i| write(i * 4096, tx.clone()))).await;
    });
}
