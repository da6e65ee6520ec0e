//! A client's newer connection ends its earlier ones.

use futures_util::poll;

use super::recorder::Recorder;
use super::*;

const OURS: &[OptionCode] = &[OptionCode::TakeOver];

/// Names the id of the client's device. Whether the server answers, and the connection.
async fn take_over(stage: &Stage, id: [u8; 16]) -> (bool, DuplexStream) {
    let mut stream = greeted(stage.connect().await).await;
    let mut out = Vec::new();
    OptionHead { option: OptionCode::TakeOver, len: 16 }.encode(&mut out);
    out.extend(id);
    stream.write_all(&out).await.expect("it reads");
    let mut answer = [0; 2 * OPTION_REPLY_BYTES + 16];
    (stream.read_exact(&mut answer).await.is_ok(), stream)
}

/// A write that was begun is done before the newer connection may go on; one that was not begun is never done.
#[tokio::test]
async fn nothing_of_an_earlier_connection_is_in_progress_after_the_answer() {
    let settings = Settings { requests_max: 1, ..Settings::default() };
    let (device, stage) = Recorder::stage(settings, true).await;
    let mut old = stage.client(OURS).await;
    old.send(Command::Write, 0, (0, 512), &[1; 512]).await;
    old.send(Command::Write, 0, (4096, 512), &[1; 512]).await;
    device.has_begun(1).await;
    let mut newer = Box::pin(stage.client(OURS));
    for _ in 0..100 {
        assert!(poll!(&mut newer).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(device.ended.lock().is_empty());
    device.go_on();
    let mut newer = newer.await;
    assert_eq!(*device.ended.lock(), [0]);
    assert!(old.is_closed().await, "it gets no reply");
    assert_eq!(newer.read(0, 512).await, [1; 512]);
    newer.write(8192, &[2; 512]).await;
    assert_eq!(device.writes(), [(0, 512), (8192, 512)]);
}

/// It waits for the rest of a request, or for an option, and holds nothing.
#[tokio::test]
async fn an_earlier_connection_that_still_reads_ends_at_once() {
    let (device, stage) = Recorder::stage(Settings::default(), false).await;
    let mut old = stage.client(OURS).await;
    old.stream.write_all(&[0x25, 0x60]).await.expect("it reads");
    let (is_answered, mut newer) = take_over(&stage, ID).await;
    assert!(is_answered && old.is_closed().await);
    let mut newest = stage.client(OURS).await;
    assert_eq!(newer.read(&mut [0]).await.expect("it is closed"), 0);
    newest.write(0, &[1; 512]).await;
    assert_eq!(device.writes(), [(0, 512)]);
}

/// The last one of several at once gets the id, and it waits for those before the others, too.
#[tokio::test]
async fn an_id_has_one_connection() {
    let (device, stage) = Recorder::stage(Settings::default(), true).await;
    let mut old = stage.client(OURS).await;
    old.send(Command::Write, 0, (0, 512), &[1; 512]).await;
    device.has_begun(1).await;
    let mut second = Box::pin(take_over(&stage, ID));
    while stage.service.leases.holders() < 2 {
        assert!(poll!(&mut second).is_pending());
        tokio::task::yield_now().await;
    }
    let mut third = Box::pin(take_over(&stage, ID));
    let (second_is_answered, _) = loop {
        assert!(poll!(&mut third).is_pending());
        if let std::task::Poll::Ready(ended) = poll!(&mut second) {
            break ended;
        }
        tokio::task::yield_now().await;
    };
    assert!(!second_is_answered && device.ended.lock().is_empty());
    device.go_on();
    assert!(third.await.0);
    assert_eq!(*device.ended.lock(), [0]);
}

#[tokio::test]
async fn ids_take_memory_while_their_connections_are_open() {
    let (_, stage) = Recorder::stage(Settings::default(), false).await;
    let mut open = Vec::new();
    for at in 0..50 {
        let (is_answered, mut stream) = take_over(&stage, [at; 16]).await;
        assert!(is_answered);
        // A second id of the connection is refused.
        let mut out = Vec::new();
        OptionHead { option: OptionCode::TakeOver, len: 16 }.encode(&mut out);
        out.extend([100 + at; 16]);
        stream.write_all(&out).await.expect("it reads");
        let mut head = [0; OPTION_REPLY_BYTES];
        stream.read_exact(&mut head).await.expect("a reply");
        let reply = OptionReplyHead::decode(&head).expect("a reply").reply;
        assert_eq!(reply, OptionReply::Invalid);
        open.push(stream);
    }
    assert_eq!(stage.service.leases.holders(), 50);
    drop(open);
    while stage.service.stats.open.get() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.service.leases.holders(), 0);
}
