//! Writes that come together become one.

use engine::block::{Durable, Error};

use super::recorder::Recorder;
use super::*;

const KIB: u64 = 1024;

/// Sends writes of `len` bytes at these offsets in one burst. The cookie of each is its position.
async fn burst(client: &mut Client, writes: &[(u64, u16)], len: u64) {
    let mut out = Vec::new();
    for (at, &(offset, flags)) in writes.iter().enumerate() {
        let (cookie, command) = (at as u64, Command::Write);
        Request { flags, command, cookie, offset, len }.encode(Headers::Compact, &mut out);
        out.extend(std::iter::repeat_n(at as u8 + 1, len as usize));
    }
    client.stream.write_all(&out).await.expect("it reads");
}

/// The replies to that many writes.
async fn replies(client: &mut Client, count: usize) -> Vec<Reply> {
    let mut replies = vec![None; count];
    for _ in 0..count {
        let (cookie, reply) = client.hear(&HashMap::new()).await;
        assert_eq!(replies[cookie as usize].replace(reply), None);
    }
    replies.into_iter().flatten().collect()
}

/// The stream between client and server holds `capacity` bytes.
async fn client(stage: &Stage, capacity: usize) -> Client {
    let (stream, theirs) = duplex(capacity);
    stage.queue.send(theirs).await.expect("the server accepts");
    let stream = greeted(stream).await;
    let mut client = Client { stream, headers: Headers::Compact, cookie: 0, flags: 0 };
    client.negotiate(OptionCode::Go, &[0; 6]).await;
    client
}

#[tokio::test]
async fn a_burst_of_a_long_write_is_one_and_each_request_is_answered() {
    let (device, stage) = Recorder::stage(Settings::default(), false).await;
    let mut client = client(&stage, 2 << 20).await;
    let writes: Vec<_> = (0..16).map(|at| (at * 64 * KIB, 0)).collect();
    burst(&mut client, &writes, 64 * KIB).await;
    assert_eq!(replies(&mut client, 16).await, vec![Reply::Done; 16]);
    assert_eq!(device.writes(), [(0, 1 << 20)]);
    for at in 0..16 {
        let read = client.read(at * 64 * KIB, 64 * KIB).await;
        assert!(read.iter().all(|&byte| byte == at as u8 + 1));
    }
    let requests: HashMap<_, _> = stage.service.stats.requests().collect();
    assert_eq!((requests["write"], stage.service.stats.merged.get()), (16, 15));
    assert_eq!(stage.service.stats.in_flight.get(), 0);
}

#[tokio::test]
async fn gaps_and_other_flags_part_writes() {
    let (device, stage) = Recorder::stage(Settings::default(), false).await;
    let mut client = client(&stage, 2 << 20).await;
    let writes = [(0, 0), (4096, 0), (12288, 0), (16384, FUA), (20480, FUA), (24576, 0)];
    burst(&mut client, &writes, 4096).await;
    assert_eq!(replies(&mut client, 6).await, vec![Reply::Done; 6]);
    let (later, now) = (Durable::Later, Durable::Now);
    let wanted = [(0, 8192, later), (12288, 4096, later), (16384, 8192, now), (24576, 4096, later)];
    assert_eq!(*device.begun.lock(), wanted);
}

/// No write waits for bytes that may come, nor do reads behind it.
#[tokio::test]
async fn a_request_in_part_keeps_nothing_waiting() {
    let (device, stage) = Recorder::stage(Settings::default(), false).await;
    let mut client = client(&stage, 2 << 20).await;
    let mut out = Vec::new();
    let request = |command, cookie, offset, len| Request { flags: 0, command, cookie, offset, len };
    request(Command::Write, 1, 0, 512).encode(Headers::Compact, &mut out);
    out.extend([1; 512]);
    request(Command::Read, 2, 4096, 512).encode(Headers::Compact, &mut out);
    request(Command::Write, 3, 512, 512).encode(Headers::Compact, &mut out);
    out.extend([3; 512]);
    request(Command::Write, 4, 1024, 512).encode(Headers::Compact, &mut out);
    out.extend([4; 100]);
    client.stream.write_all(&out).await.expect("it reads");
    let reads = HashMap::from([(2, 512)]);
    for (cookie, reply) in [(1, Reply::Done), (2, Reply::Data(vec![0; 512])), (3, Reply::Done)] {
        assert_eq!(client.hear(&reads).await, (cookie, reply));
    }
    assert_eq!(device.writes(), [(0, 512), (512, 512)]);
    client.stream.write_all(&[4; 412]).await.expect("it reads");
    assert_eq!(client.hear(&reads).await, (4, Reply::Done));
    assert_eq!(client.read(1024, 512).await, [4; 512]);
}

/// Bytes that have room can be written when others cannot.
#[tokio::test]
async fn without_room_each_write_is_tried_by_itself() {
    let (device, stage) = Recorder::stage(Settings::default(), false).await;
    *device.fails.lock() = Some(Error::OutOfSpace("full".into()));
    device.has_room_from(4096);
    let mut client = client(&stage, 2 << 20).await;
    burst(&mut client, &[(0, 0), (4096, 0)], 4096).await;
    let wanted = [Reply::Error(Errno::NoSpace), Reply::Done];
    assert_eq!(replies(&mut client, 2).await, wanted);
    assert_eq!(device.writes(), [(0, 8192), (0, 4096), (4096, 4096)]);
}

/// Otherwise the rest of its reply would be taken for the next one.
#[tokio::test]
async fn a_short_read_of_the_device_is_an_error() {
    let (device, stage) = Recorder::stage(Settings::default(), false).await;
    let mut client = client(&stage, 1 << 16).await;
    *device.reads_short.lock() = true;
    assert_eq!(client.ask(Command::Read, 0, (0, 512), b"").await, Reply::Error(Errno::Io));
    *device.reads_short.lock() = false;
    assert_eq!(client.read(0, 512).await, [0; 512]);
}
