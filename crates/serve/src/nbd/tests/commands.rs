//! Commands and their errors.

use super::slow::slow;
use super::*;

/// Every command, in every form of replies.
#[tokio::test]
async fn every_command_is_done() {
    for options in [&[][..], STRUCTURED, EXTENDED] {
        let stage = Stage::new();
        let mut client = stage.client(options).await;
        assert_eq!(client.read(0, 5000).await, [0; 5000]);
        client.write(4000, &[7; 300]).await;
        assert_eq!(client.read(3999, 302).await, [&[0][..], &[7; 300], &[0]].concat());
        assert_eq!(client.ask(Command::Read, 0, (SIZE, 0), b"").await, Reply::Done);
        assert_eq!(client.ask(Command::Write, FUA, (9, 1), b"x").await, Reply::Done);
        assert_eq!(client.ask(Command::Flush, 0, (0, 0), b"").await, Reply::Done);
        assert_eq!(client.ask(Command::Cache, 0, (0, SIZE), b"").await, Reply::Done);
        let zero = client.ask(Command::WriteZeroes, NO_HOLE | FAST_ZERO, (4100, 100), b"").await;
        assert_eq!((zero, client.read(4100, 101).await[99..].to_vec()), (Reply::Done, vec![0, 7]));
        assert_eq!(client.ask(Command::Trim, 0, (4096, 4096), b"").await, Reply::Done);
        assert_eq!(client.read(4090, 300).await[6..], [0; 294]);
        let status = client.ask(Command::BlockStatus, 0, (0, 16384), b"").await;
        let hole = STATE_HOLE | STATE_ZERO;
        match options {
            [] => assert_eq!(status, Reply::Error(Errno::Invalid)),
            _ => assert_eq!(status, Reply::Extents(vec![(4096, 0), (12288, hole)])),
        }
        if !options.is_empty() {
            let one = client.ask(Command::BlockStatus, REQ_ONE, (512, 16384), b"").await;
            assert_eq!(one, Reply::Extents(vec![(3584, 0)]));
            assert_eq!(client.flags & SEND_DF, SEND_DF);
            let whole = client.ask(Command::Read, DF, (0, 4096), b"").await;
            assert!(matches!(whole, Reply::Data(data) if data.len() == 4096));
        }
        client.send(Command::Disconnect, 0, (0, 0), b"").await;
        assert!(client.is_closed().await);
        let requests: HashMap<_, _> = stage.service.stats.requests().collect();
        assert_eq!((requests["flush"], requests["write"]), (1, 2));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_the_next_request_is_served() {
    const MIB: u64 = 1 << 20;
    for options in [&[][..], STRUCTURED, EXTENDED] {
        let devices = Memory::default().with("a", SIZE);
        let stage = Stage::of(Arc::new(devices), Settings::default());
        let mut client = stage.client(options).await;
        let data = vec![1; 2 * MIB as usize];
        for (command, flags, range, data, error) in [
            (Command::Read, 0, (SIZE - 1, 2), &b""[..], Errno::Invalid),
            (Command::Read, 0, (u64::MAX, 2), b"", Errno::Invalid),
            (Command::Read, 1 << 9, (0, 2), b"", Errno::Invalid),
            (Command::Write, 0, (SIZE - 1, 2), b"xy", Errno::NoSpace),
            (Command::Write, 0, (0, 2 * MIB), &data, Errno::NoSpace),
            (Command::Write, REQ_ONE, (0, 2), b"xy", Errno::Invalid),
            (Command::WriteZeroes, 0, (1, SIZE), b"", Errno::NoSpace),
            (Command::Trim, 0, (1, SIZE), b"", Errno::Invalid),
            (Command::Cache, 0, (1, SIZE), b"", Errno::Invalid),
            (Command::BlockStatus, 0, (1, 0), b"", Errno::Invalid),
            (Command::Flush, 0, (1, 0), b"", Errno::Invalid),
            (Command::Other(8), 0, (0, 0), b"", Errno::Invalid),
        ] {
            let reply = client.ask(command, flags, range, data).await;
            assert_eq!(reply, Reply::Error(error), "{command:?} {flags} {range:?}");
        }
        assert_eq!(client.read(0, 4).await, [0; 4]);
        assert_eq!(stage.service.stats.in_flight.get(), 0);
    }
}

#[tokio::test]
async fn the_errors_of_a_device_have_numbers() {
    for options in [&[][..], STRUCTURED, EXTENDED] {
        let (_, stage) = slow(Settings::default()).await;
        let mut client = stage.client(options).await;
        assert_eq!(client.flags & SEND_FLUSH, 0, "it has no write cache");
        for (command, data, error) in [
            (Command::Write, &b"x"[..], Errno::NoSpace),
            (Command::WriteZeroes, b"", Errno::NotSupported),
            (Command::Cache, b"", Errno::Io),
        ] {
            assert_eq!(client.ask(command, 0, (0, 1), data).await, Reply::Error(error));
        }
        assert_eq!(client.ask(Command::Flush, 0, (0, 0), b"").await, Reply::Error(Errno::Io));
        let gone = client.ask(Command::Trim, 0, (0, 1), b"").await;
        assert_eq!(gone, Reply::Error(Errno::Shutdown));
        assert!(client.is_closed().await, "the device is gone");
        let errors: HashMap<_, _> = stage.service.stats.errors().collect();
        assert_eq!((errors["io"], errors["no_space"]), (2, 1));
    }
}
