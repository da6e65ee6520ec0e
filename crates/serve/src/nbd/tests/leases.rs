//! The lease of a device: one host writes to it, and all others read.

use futures_util::poll;

use super::recorder::Recorder;
use super::*;

/// A host that takes device `a`.
fn host(id: u8) -> LeaseRequest {
    let (name, holder_name) = ("a".to_owned(), format!("host {id}"));
    LeaseRequest { name, holder: [id; 16], holder_name, token: None, force: false }
}

fn by_force(id: u8) -> LeaseRequest {
    LeaseRequest { force: true, ..host(id) }
}

fn again(id: u8, token: Token) -> LeaseRequest {
    LeaseRequest { token: Some(token), ..host(id) }
}

/// A client with the lease and its token, or what the server says.
async fn take(stage: &Stage, request: LeaseRequest) -> Result<(Client, Token), String> {
    let stream = greeted(stage.connect().await).await;
    let mut client = Client { stream, headers: Headers::Compact, cookie: 0, flags: 0 };
    let (mut out, mut data) = (Vec::new(), Vec::new());
    request.encode(&mut data);
    OptionHead { option: OptionCode::TakeLease, len: data.len() as u32 }.encode(&mut out);
    out.extend(data);
    client.stream.write_all(&out).await.expect("it reads");
    let mut token = None;
    loop {
        let mut head = [0; OPTION_REPLY_BYTES];
        client.stream.read_exact(&mut head).await.map_err(|error| error.to_string())?;
        let head = OptionReplyHead::decode(&head).expect("a reply");
        let mut body = vec![0; head.len as usize];
        client.stream.read_exact(&mut body).await.expect("a reply");
        match head.reply {
            OptionReply::Token => token = Some(u64::from_be_bytes(body.try_into().expect("8"))),
            OptionReply::Ack => break,
            OptionReply::Held => return Err(String::from_utf8(body).expect("text")),
            other => panic!("{other:?}"),
        }
    }
    let mut data = Vec::new();
    InfoRequest { name: "a".to_owned(), wanted: Vec::new() }.encode(&mut data);
    client.negotiate(OptionCode::Go, &data).await;
    assert_eq!(client.flags & READ_ONLY, 0);
    Ok((client, token.expect("a token")))
}

#[tokio::test]
async fn one_host_writes_and_all_others_read() {
    let stage = Stage::new();
    let (mut first, token) = take(&stage, host(1)).await.unwrap_or_else(|why| panic!("{why}"));
    first.write(0, &[1; 512]).await;
    let refused = take(&stage, host(2)).await.err();
    assert_eq!(refused.as_deref(), Some("device a is held by host 1"));
    for options in [STRUCTURED, EXTENDED] {
        let mut plain = stage.client(options).await;
        assert_eq!(plain.flags & READ_ONLY, READ_ONLY);
        assert_eq!(plain.read(0, 512).await, [1; 512]);
        assert_eq!(plain.ask(Command::Flush, 0, (0, 0), b"").await, Reply::Done);
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            let data = if command == Command::Write { &[2; 512][..] } else { b"" };
            let refused = plain.ask(command, 0, (0, 512), data).await;
            assert_eq!(refused, Reply::Error(Errno::Perm), "{command:?}");
        }
    }
    // Its network broke, and it comes back.
    let (mut second, same) =
        take(&stage, again(1, token)).await.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(same, token);
    assert!(first.is_closed().await);
    assert_eq!(second.read(0, 512).await, [1; 512]);
    // Its machine restarts, and the earlier connection of its machine may not write any more.
    let (mut third, newer) = take(&stage, host(1)).await.unwrap_or_else(|why| panic!("{why}"));
    assert!(newer > token && second.is_closed().await);
    let refused = take(&stage, again(1, token)).await.err();
    assert_eq!(refused.as_deref(), Some("the lease of device a was taken by host 1"));
    third.write(0, &[3; 512]).await;
}

/// As after a cut network: the earlier holder has a write in progress, and another one in the server's buffers.
#[tokio::test]
async fn a_take_by_force_waits_for_the_earlier_holder_which_never_comes_back() {
    let settings = Settings { requests_max: 1, ..Settings::default() };
    let (device, stage) = Recorder::stage(settings, true).await;
    let (mut old, token) = take(&stage, host(1)).await.unwrap_or_else(|why| panic!("{why}"));
    old.send(Command::Write, 0, (0, 512), &[1; 512]).await;
    old.send(Command::Write, 0, (4096, 512), &[1; 512]).await;
    device.has_begun(1).await;
    let mut newer = Box::pin(take(&stage, by_force(2)));
    while !stage.service.devices.lease("a").is_held_with(token + 1) {
        assert!(poll!(&mut newer).is_pending());
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        assert!(poll!(&mut newer).is_pending());
        tokio::task::yield_now().await;
    }
    device.go_on();
    let (mut newer, newer_token) = newer.await.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!((&*device.ended.lock(), newer_token), (&vec![0], token + 1));
    assert!(old.is_closed().await, "it gets no reply");
    newer.write(8192, &[2; 512]).await;
    assert_eq!(device.writes(), [(0, 512), (8192, 512)]);
    let refused = take(&stage, again(1, token)).await.err();
    assert_eq!(refused.as_deref(), Some("the lease of device a was taken by host 2"));
    // Nor after the newer one gave the device up: the earlier host's cache is older than the device.
    let released = (0, 0);
    newer.send(Command::Disconnect, RELEASE, released, b"").await;
    assert!(newer.is_closed().await);
    let refused = take(&stage, again(1, token)).await.err();
    assert_eq!(refused.as_deref(), Some("the lease of device a was released"));
    assert_eq!(stage.service.writers.connections(), 0);
}

#[tokio::test]
async fn a_lease_lasts_over_a_restart_of_the_server_and_an_end_without_release() {
    let devices: Arc<dyn BlockDevices> = Arc::new(Memory::default().with("a", SIZE));
    let stage = Stage::of(Arc::clone(&devices), Settings::default());
    let (old, token) = take(&stage, host(1)).await.unwrap_or_else(|why| panic!("{why}"));
    drop((old, stage));
    let stage = Stage::of(devices, Settings::default());
    assert_eq!(stage.client(&[]).await.flags & READ_ONLY, READ_ONLY);
    assert!(take(&stage, host(2)).await.is_err());
    let (mut same, _) = take(&stage, again(1, token)).await.unwrap_or_else(|why| panic!("{why}"));
    same.write(0, &[1; 512]).await;
    same.send(Command::Disconnect, RELEASE, (0, 0), b"").await;
    assert!(same.is_closed().await);
    // It is free before the connection is closed.
    let mut plain = stage.client(&[]).await;
    assert_eq!(plain.flags & READ_ONLY, 0);
    plain.write(0, &[1; 512]).await;
}

/// Time passes by itself while the server waits for connections that are about to end.
#[tokio::test]
async fn a_lease_is_refused_while_others_write_unless_by_force() {
    let stage = Stage::new();
    let mut plain = stage.client(&[]).await;
    let refused = take(&stage, host(1)).await.err();
    let told = "connections without a lease may write to device a: 1";
    assert_eq!(refused.as_deref(), Some(told));
    plain.write(0, &[1; 512]).await;
    let (mut holder, _) = take(&stage, by_force(1)).await.unwrap_or_else(|why| panic!("{why}"));
    assert!(plain.is_closed().await);
    holder.write(0, &[1; 512]).await;
    // One that is done is waited for.
    holder.send(Command::Disconnect, RELEASE, (0, 0), b"").await;
    assert!(holder.is_closed().await);
    let mut plain = stage.client(&[]).await;
    let mut taking = Box::pin(take(&stage, host(2)));
    for _ in 0..100 {
        assert!(poll!(&mut taking).is_pending());
        tokio::task::yield_now().await;
    }
    plain.send(Command::Disconnect, 0, (0, 0), b"").await;
    taking.await.unwrap_or_else(|why| panic!("{why}"));
}

#[tokio::test]
async fn an_operator_ends_a_lease_and_its_connections() {
    let (device, stage) = Recorder::stage(Settings::default(), true).await;
    let (mut old, token) = take(&stage, host(1)).await.unwrap_or_else(|why| panic!("{why}"));
    old.send(Command::Write, 0, (0, 512), &[1; 512]).await;
    device.has_begun(1).await;
    stage.service.devices.release("a", None).await.expect("released");
    // The holder's last request is done before another client writes.
    let mut plain = Box::pin(stage.client(&[]));
    for _ in 0..100 {
        assert!(poll!(&mut plain).is_pending());
        tokio::task::yield_now().await;
    }
    stage.service.end_released("a");
    device.go_on();
    assert_eq!(plain.await.flags & READ_ONLY, 0);
    assert!(old.is_closed().await);
    assert!(take(&stage, again(1, token)).await.is_err());
}
