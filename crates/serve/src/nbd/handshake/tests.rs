use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::nbd::wire::flags::{FIXED_NEWSTYLE, HAS_FLAGS, NO_ZEROES, SEND_DF, SEND_FLUSH};
use crate::nbd::wire::{Export, GREETING_BYTES, OPTION_REPLY_BYTES, decode_greeting};

const GEOMETRY: Geometry = Geometry { size: 1 << 20, block: 4096, writes_are_durable: false };
const FLAGS: u16 = FIXED_NEWSTYLE | NO_ZEROES;

/// A client of a server with these devices.
struct Client {
    handshake: Handshake,
    devices: Vec<String>,
    input: BytesMut,
}

/// The replies to an option, and what the server does then.
type Heard = (Vec<(OptionReply, Vec<u8>)>, Result<Next, Malformed>);

impl Client {
    fn new(devices: &[&str], has_tls: bool, flags: u16) -> Self {
        let mut out = BytesMut::new();
        let handshake = Handshake::new(has_tls, &mut out);
        let greeting: [u8; GREETING_BYTES] = out[..].try_into().expect("a greeting");
        assert_eq!(decode_greeting(&greeting), Ok(FLAGS));
        let devices = devices.iter().map(|&name| name.to_owned()).collect();
        Self { handshake, devices, input: BytesMut::from(&u32::from(flags).to_be_bytes()[..]) }
    }

    /// A client in the middle of the negotiation with a server without TLS.
    fn plain(devices: &[&str]) -> Self {
        Self::new(devices, false, FLAGS)
    }

    fn send(&mut self, option: OptionCode, data: &[u8]) -> Heard {
        OptionHead { option, len: data.len() as u32 }.encode(&mut self.input);
        self.input.extend_from_slice(data);
        let mut out = BytesMut::new();
        let next = self.handshake.next(&mut self.input, || self.devices.clone(), &mut out);
        (heard(&out, option), next)
    }

    /// The only reply to an option.
    fn ask(&mut self, option: OptionCode, data: &[u8]) -> OptionReply {
        let (heard, next) = self.send(option, data);
        let [(reply, _)] = &heard[..] else { panic!("{heard:?}") };
        assert!(matches!(next, Ok(Next::Answered | Next::Close)), "{next:?}");
        *reply
    }

    fn wants(&mut self, option: OptionCode, data: &[u8]) -> Wanted {
        match self.send(option, data) {
            (heard, Ok(Next::Open(wanted))) if heard.is_empty() => wanted,
            other => panic!("{other:?}"),
        }
    }
}

/// Reads replies to `option`.
fn heard(mut bytes: &[u8], option: OptionCode) -> Vec<(OptionReply, Vec<u8>)> {
    let mut heard = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<OPTION_REPLY_BYTES>() {
        let head = OptionReplyHead::decode(head).expect("a reply");
        assert_eq!(head.option, option);
        let (body, rest) = rest.split_at(head.len as usize);
        heard.push((head.reply, body.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    heard
}

fn go(name: &str, wanted: &[InfoKind]) -> Vec<u8> {
    let mut out = Vec::new();
    InfoRequest { name: name.into(), wanted: wanted.into() }.encode(&mut out);
    out
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let queries = queries.iter().map(|&query| query.into()).collect();
    let mut out = Vec::new();
    MetaRequest { name: name.into(), queries }.encode(&mut out);
    out
}

#[test]
fn go_describes_the_device_and_ends_the_negotiation() {
    let mut client = Client::plain(&["a", "b"]);
    let wanted = client.wants(OptionCode::Go, &go("b", &[InfoKind::Name]));
    assert_eq!(wanted.name, "b");
    let mut out = BytesMut::new();
    let agreed = client.handshake.opened(&wanted, Ok(GEOMETRY), false, &mut out);
    assert_eq!(agreed, Ok(Some(Agreed::default())));
    let heard = heard(&out, OptionCode::Go);
    let infos: Vec<_> = heard.iter().map(|(reply, body)| (*reply, Info::decode(body))).collect();
    let [(OptionReply::Info, Ok(Info::Export(export))), block, name, ack] = &infos[..] else {
        panic!("{infos:?}");
    };
    assert_eq!(export.size, 1 << 20);
    assert_eq!(export.flags & (HAS_FLAGS | SEND_FLUSH | SEND_DF), HAS_FLAGS | SEND_FLUSH);
    let sizes = Info::BlockSize { min: 512, preferred: 4096, payload_max: 32 << 20 };
    assert_eq!(*block, (OptionReply::Info, Ok(sizes)));
    assert_eq!(*name, (OptionReply::Info, Ok(Info::Name("b".into()))));
    assert_eq!(ack.0, OptionReply::Ack);
}

#[test]
fn info_goes_on_and_failures_say_why() {
    let mut client = Client::plain(&["a"]);
    let wanted = client.wants(OptionCode::Info, &go("a", &[]));
    let mut out = BytesMut::new();
    assert_eq!(client.handshake.opened(&wanted, Ok(GEOMETRY), false, &mut out), Ok(None));
    for (error, reply) in [
        (Error::NotFound("gone".into()), OptionReply::Unknown),
        (Error::Closed("stopping".into()), OptionReply::Shutdown),
        (Error::Unavailable("away".into()), OptionReply::Policy),
    ] {
        let wanted = client.wants(OptionCode::Go, &go("a", &[]));
        let mut out = BytesMut::new();
        let opened = client.handshake.opened(&wanted, Err(error), false, &mut out);
        assert_eq!((opened, heard(&out, OptionCode::Go)[0].0), (Ok(None), reply));
    }
    assert_eq!(client.ask(OptionCode::Go, &go("c", &[])), OptionReply::Unknown);
    assert_eq!(client.ask(OptionCode::Go, b"\0\0\0\x09a"), OptionReply::Invalid);
}

#[test]
fn the_empty_name_is_the_only_device() {
    assert_eq!(Client::plain(&["a"]).wants(OptionCode::Go, &go("", &[])).name, "a");
    for devices in [&[][..], &["a", "b"]] {
        let reply = Client::plain(devices).ask(OptionCode::Go, &go("", &[]));
        assert_eq!(reply, OptionReply::Unknown);
    }
}

#[test]
fn an_old_client_gets_a_device_by_its_name_or_is_closed() {
    for (flags, bytes) in [(0, 134), (NO_ZEROES, 10), (FLAGS, 10)] {
        let mut client = Client::new(&["a"], false, flags);
        let wanted = client.wants(OptionCode::ExportName, b"a");
        let mut out = BytesMut::new();
        let agreed = client.handshake.opened(&wanted, Ok(GEOMETRY), false, &mut out);
        assert_eq!((agreed, out.len()), (Ok(Some(Agreed::default())), bytes));
        assert_eq!(Export::decode(&out).map(|export| export.size), Ok(1 << 20));
    }
    let (heard, next) = Client::plain(&["a"]).send(OptionCode::ExportName, b"b");
    assert!(heard.is_empty() && next.is_err());
    let (heard, next) = Client::new(&["a"], false, 0).send(OptionCode::List, b"");
    assert!(heard.is_empty() && matches!(next, Ok(Next::Close)), "it understands no replies");
    let mut unknown = Client::new(&["a"], false, 1 << 5);
    assert!(unknown.send(OptionCode::List, b"").1.is_err(), "its flags mean something unknown");
}

#[test]
fn lists_the_devices() {
    let mut client = Client::plain(&["a", "b"]);
    let (heard, _) = client.send(OptionCode::List, b"");
    let name = |name: &str| (OptionReply::Server, [&[0, 0, 0, 1], name.as_bytes()].concat());
    assert_eq!(heard, [name("a"), name("b"), (OptionReply::Ack, Vec::new())]);
    assert_eq!(client.ask(OptionCode::List, b"x"), OptionReply::Invalid);
}

#[test]
fn with_tls_nothing_is_told_before_it() {
    let mut client = Client::new(&["a"], true, FLAGS);
    for option in [
        OptionCode::List,
        OptionCode::Go,
        OptionCode::Info,
        OptionCode::StructuredReply,
        OptionCode::SetMetaContext,
        OptionCode::TakeOver,
        OptionCode::Other(77),
    ] {
        assert_eq!(client.ask(option, &go("a", &[])), OptionReply::TlsRequired);
    }
    assert_eq!(client.ask(OptionCode::StartTls, b"x"), OptionReply::Invalid);
    let (heard, next) = client.send(OptionCode::StartTls, b"");
    assert_eq!(heard, [(OptionReply::Ack, Vec::new())]);
    assert!(matches!(next, Ok(Next::StartTls)));
    client.handshake.is_secure();
    assert_eq!(client.ask(OptionCode::StartTls, b""), OptionReply::Invalid);
    assert_eq!(client.wants(OptionCode::Go, &go("a", &[])).name, "a");

    let (heard, next) = Client::new(&["a"], true, FLAGS).send(OptionCode::ExportName, b"a");
    assert!(heard.is_empty() && matches!(next, Ok(Next::Close)));
    assert_eq!(Client::plain(&["a"]).ask(OptionCode::StartTls, b""), OptionReply::Policy);
}

/// Bytes in front of TLS could be taken for the secured client's (CVE-2021-3716 of nbdkit).
#[test]
fn nothing_may_follow_starttls_before_tls() {
    let mut client = Client::new(&["a"], true, FLAGS);
    let starttls = OptionHead { option: OptionCode::StartTls, len: 0 };
    starttls.encode(&mut client.input);
    OptionHead { option: OptionCode::List, len: 0 }.encode(&mut client.input);
    let (handshake, input) = (&mut client.handshake, &mut client.input);
    assert!(handshake.next(input, Vec::new, &mut BytesMut::new()).is_err());
}

#[test]
fn structured_replies_and_extended_headers_are_agreed_on_once() {
    let mut client = Client::plain(&["a"]);
    assert_eq!(client.ask(OptionCode::StructuredReply, b"x"), OptionReply::Invalid);
    assert_eq!(client.ask(OptionCode::StructuredReply, b""), OptionReply::Ack);
    assert_eq!(client.ask(OptionCode::StructuredReply, b""), OptionReply::Invalid);
    assert_eq!(client.ask(OptionCode::ExtendedHeaders, b""), OptionReply::Ack);
    assert_eq!(client.ask(OptionCode::ExtendedHeaders, b""), OptionReply::Invalid);
    let again = client.ask(OptionCode::StructuredReply, b"");
    assert_eq!(again, OptionReply::ExtendedHeadersRequired);
    let wanted = client.wants(OptionCode::Go, &go("a", &[]));
    let agreed = client.handshake.opened(&wanted, Ok(GEOMETRY), false, &mut BytesMut::new());
    let agreed = agreed.expect("a device").expect("the end");
    assert_eq!(agreed.replies, Replies::Extended);
    assert_ne!(agreed.export(&GEOMETRY).flags & SEND_DF, 0);
}

#[test]
fn a_context_is_selected_for_one_device() {
    let mut client = Client::plain(&["a", "b"]);
    let all = contexts("a", &["x:y", CONTEXT]);
    assert_eq!(client.ask(OptionCode::SetMetaContext, &all), OptionReply::Invalid);
    client.ask(OptionCode::StructuredReply, b"");
    let found = |id: u8| {
        let context = [&[0, 0, 0, id], CONTEXT.as_bytes()].concat();
        vec![(OptionReply::MetaContext, context), (OptionReply::Ack, Vec::new())]
    };
    for queries in [&[][..], &["base:"], &[CONTEXT]] {
        let (heard, _) = client.send(OptionCode::ListMetaContext, &contexts("b", queries));
        assert_eq!(heard, found(0));
    }
    assert_eq!(client.ask(OptionCode::ListMetaContext, &contexts("a", &["x:"])), OptionReply::Ack);
    let unknown = client.ask(OptionCode::ListMetaContext, &contexts("c", &[]));
    assert_eq!(unknown, OptionReply::Unknown);

    let mut selected = |set: &[u8], name: &str| {
        let (heard, _) = client.send(OptionCode::SetMetaContext, set);
        let wanted = client.wants(OptionCode::Go, &go(name, &[]));
        let opened = client.handshake.opened(&wanted, Ok(GEOMETRY), false, &mut BytesMut::new());
        let agreed = opened.expect("a device").expect("the end");
        (heard.len() == 2, agreed.has_allocation)
    };
    assert_eq!(selected(&all, "a"), (true, true));
    assert_eq!(selected(&all, "b"), (true, false), "it was selected for another");
    assert_eq!(selected(&contexts("a", &["base:"]), "a"), (false, false));
    assert_eq!(selected(&contexts("a", &[]), "a"), (false, false));
    assert_eq!(selected(b"?", "a"), (false, false));
}

#[test]
fn a_connection_takes_over_with_one_id() {
    let mut client = Client::plain(&["a"]);
    for id in [&[7; 15][..], &[7; 17], &[]] {
        assert_eq!(client.ask(OptionCode::TakeOver, id), OptionReply::Invalid);
    }
    for _ in 0..2 {
        let (told, next) = client.send(OptionCode::TakeOver, &[7; 16]);
        let Ok(Next::TakeOver(id)) = next else { panic!("{next:?}") };
        assert_eq!((told, id), (vec![], [7; 16]), "it is answered later");
        let mut out = BytesMut::new();
        Handshake::took_over(&[9; 16], &mut out);
        let epoch = (OptionReply::CacheEpoch, vec![9; 16]);
        assert_eq!(heard(&out, OptionCode::TakeOver), [epoch, (OptionReply::Ack, vec![])]);
    }
    assert_eq!(client.ask(OptionCode::TakeOver, &[8; 16]), OptionReply::Invalid);
    assert_eq!(client.wants(OptionCode::Go, &go("a", &[])).name, "a");
}

#[test]
fn what_is_too_long_or_unknown_is_refused() {
    let mut client = Client::plain(&["a"]);
    assert_eq!(client.ask(OptionCode::Other(4), b"x"), OptionReply::Unsupported);
    let long = vec![0; OPTION_BYTES_MAX as usize + 1];
    assert_eq!(client.ask(OptionCode::Go, &long), OptionReply::TooBig);
    assert_eq!(client.ask(OptionCode::Abort, b""), OptionReply::Ack);
    let head = OptionHead { option: OptionCode::Go, len: OPTION_BYTES_ABSURD + 1 };
    head.encode(&mut client.input);
    assert!(client.send(OptionCode::List, b"").1.is_err());
}

#[test]
fn a_client_that_sends_options_for_ever_is_closed() {
    let mut client = Client::plain(&["a"]);
    for _ in 0..OPTIONS_MAX {
        client.send(OptionCode::List, b"").1.expect("there may be some");
    }
    assert!(client.send(OptionCode::List, b"").1.is_err());
}

proptest! {
    /// Options at random, in pieces: no panic, and no device without its name.
    #[test]
    fn odd_clients_do_no_harm(
        has_tls: bool,
        options in vec((0..14u32, vec(prop_oneof![0..4u8, any::<u8>()], 0..40)), 0..20),
        piece in 1..30usize,
    ) {
        let mut client = Client::new(&["a", "b"], has_tls, FLAGS);
        let mut sent = Vec::new();
        for (option, data) in options {
            OptionHead { option: option.into(), len: data.len() as u32 }.encode(&mut sent);
            sent.extend(data);
        }
        let mut out = BytesMut::new();
        'sent: for piece in sent.chunks(piece) {
            client.input.extend_from_slice(piece);
            loop {
                let names = || client.devices.clone();
                match client.handshake.next(&mut client.input, names, &mut out) {
                    Ok(Next::Read) => break,
                    Ok(Next::Answered | Next::TakeOver(_) | Next::TakeLease(_)) => {}
                    Ok(Next::Open(wanted)) => {
                        prop_assert!(!has_tls && ["a", "b"].contains(&&wanted.name[..]));
                        let closed = Err(Error::Closed("it stops".into()));
                        let _ = client.handshake.opened(&wanted, closed, false, &mut out);
                    }
                    Ok(Next::StartTls | Next::Close) | Err(_) => break 'sent,
                }
            }
        }
    }
}
