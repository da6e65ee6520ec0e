//! How much of a client's requests is in progress.

use super::slow::{Slow, slow};
use super::*;

/// Sends `count` reads of a block, and waits until the device has begun `most`.
async fn crowd(slow: &Slow, client: &mut Client, count: u64, most: usize) {
    for at in 0..count {
        client.send(Command::Read, 0, (at * 512, 512), b"").await;
    }
    while slow.begun.lock().len() < most {
        tokio::task::yield_now().await;
    }
}

async fn hear_all(client: &mut Client, count: u64) {
    let reads = (1..=count).map(|cookie| (cookie, 512)).collect();
    let mut open: std::collections::BTreeSet<_> = (1..=count).collect();
    while !open.is_empty() {
        let (cookie, reply) = client.hear(&reads).await;
        assert!(open.remove(&cookie));
        assert_eq!(reply, Reply::Data(vec![0; 512]));
    }
}

/// All tasks run on the thread of the test, so a server that could begin more would have.
#[tokio::test]
async fn requests_begin_in_order_and_no_more_than_the_limit() {
    let (slow, stage) = slow(Settings { requests_max: 8, ..Settings::default() }).await;
    let mut client = stage.client(STRUCTURED).await;
    crowd(&slow, &mut client, 20, 8).await;
    settle().await;
    assert_eq!(stage.service.stats.in_flight.get(), 8);
    slow.open();
    hear_all(&mut client, 20).await;
    assert_eq!(*slow.begun.lock(), (0..20).map(|at| at * 512).collect::<Vec<_>>());
}

#[tokio::test]
async fn payloads_are_limited_but_for_a_single_one() {
    let (slow, stage) = slow(Settings { payload_bytes_max: 1024, ..Settings::default() }).await;
    let mut client = stage.client(STRUCTURED).await;
    crowd(&slow, &mut client, 10, 2).await;
    settle().await;
    assert_eq!(slow.begun.lock().len(), 2);
    slow.open();
    hear_all(&mut client, 10).await;
    assert_eq!(client.read(0, 100_000).await.len(), 100_000);
}

/// Two connections share the memory of one request and a half, and each begins one.
#[tokio::test]
async fn all_connections_share_a_limit_and_each_has_one_request() {
    let settings = Settings { all_payload_bytes_max: 768, ..Settings::default() };
    let (slow, stage) = slow(settings).await;
    let (mut one, mut other) = (stage.client(STRUCTURED).await, stage.client(STRUCTURED).await);
    crowd(&slow, &mut one, 5, 1).await;
    crowd(&slow, &mut other, 5, 2).await;
    settle().await;
    assert_eq!((slow.begun.lock().len(), stage.service.payload_bytes()), (2, 1024));
    // The reply to one makes room for another one.
    slow.open();
    hear_all(&mut one, 5).await;
    hear_all(&mut other, 5).await;
    drop((one, other));
    while stage.service.stats.open.get() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.service.payload_bytes(), 0);
}

#[tokio::test]
async fn requests_in_flight_are_answered_before_the_end() {
    for ends in ["disconnect", "half-close", "stop"] {
        let (slow, mut stage) = slow(Settings::default()).await;
        let mut client = stage.client(&[]).await;
        crowd(&slow, &mut client, 20, 20).await;
        match ends {
            "disconnect" => {
                client.send(Command::Disconnect, 0, (0, 0), b"").await;
            }
            "half-close" => client.stream.shutdown().await.expect("it can always close"),
            _ => {
                let (unused, _) = oneshot::channel();
                std::mem::replace(&mut stage.stop, unused).send(()).expect("the server runs");
            }
        }
        settle().await;
        slow.open();
        hear_all(&mut client, 20).await;
        assert!(client.is_closed().await, "{ends}");
        if ends == "stop" {
            stage.running.await.expect("no panic");
        }
        assert_eq!(stage.service.stats.in_flight.get(), 0);
    }
}
