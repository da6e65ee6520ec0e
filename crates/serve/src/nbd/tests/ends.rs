//! Connections that the server ends.

use engine::block::Error;

use super::recorder::Recorder;
use super::*;

fn resize(device: &Recorder) {
    device.geometry.lock().size = 2 * SIZE;
}

/// The protocol cannot tell a client of the new size.
#[tokio::test]
async fn a_request_after_a_resize_ends_the_connection_and_those_before_are_answered() {
    let (device, stage) = Recorder::stage(Settings::default(), true).await;
    let mut client = stage.client(&[]).await;
    let written = client.send(Command::Write, 0, (0, 512), &[1; 512]).await;
    device.has_begun(1).await;
    resize(&device);
    client.send(Command::Write, 0, (4096, 512), &[1; 512]).await;
    settle().await;
    device.go_on();
    assert_eq!(client.hear(&HashMap::new()).await, (written, Reply::Done));
    assert!(client.is_closed().await);
    assert_eq!(device.writes(), [(0, 512)]);
}

#[tokio::test]
async fn a_silent_connection_ends_after_a_resize() {
    let (device, stage) = Recorder::stage(Settings::default(), false).await;
    let mut client = stage.client(&[]).await;
    resize(&device);
    assert!(client.is_closed().await);
}

/// Its requests in flight are answered. Those behind them are not begun.
#[tokio::test]
async fn a_deleted_device_ends_the_connection() {
    let (device, stage) = Recorder::stage(Settings::default(), true).await;
    *device.fails.lock() = Some(Error::Closed("deleted".into()));
    let mut client = stage.client(&[]).await;
    for at in 0..2 {
        client.send(Command::Write, 0, (at * 4096, 512), &[1; 512]).await;
    }
    device.has_begun(2).await;
    device.go_on();
    for _ in 0..2 {
        let (_, reply) = client.hear(&HashMap::new()).await;
        assert_eq!(reply, Reply::Error(Errno::Shutdown));
    }
    assert!(client.is_closed().await);
}
