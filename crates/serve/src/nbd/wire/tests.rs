//! What is written is read back; what is read at random makes no panic.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn headers() -> impl Strategy<Value = Headers> {
    prop_oneof![Just(Headers::Compact), Just(Headers::Extended)]
}

fn name() -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("no zeros", |&c| c != '\0'), 0..20)
        .prop_map(|chars| chars.into_iter().collect())
}

fn info() -> impl Strategy<Value = Info> {
    prop_oneof![
        any::<(u64, u16)>().prop_map(|(size, flags)| Info::Export(Export { size, flags })),
        name().prop_map(Info::Name),
        name().prop_map(Info::Description),
        any::<(u32, u32, u32)>().prop_map(|(min, preferred, payload_max)| Info::BlockSize {
            min,
            preferred,
            payload_max
        }),
        (4..u16::MAX).prop_map(Info::Other),
    ]
}

fn chunk() -> impl Strategy<Value = Chunk> {
    let status = (0..=0xffff_0000u64, any::<u32>())
        .prop_map(|(len, flags)| Status { len, flags: flags.into() });
    let error = any::<u32>().prop_map(Errno::from);
    prop_oneof![
        Just(Chunk::None),
        any::<(u64, u32)>().prop_map(|(offset, len)| Chunk::Hole { offset, len }),
        (any::<u32>(), vec(status, 0..9))
            .prop_map(|(context, extents)| Chunk::Status { context, extents }),
        (error, name(), option::of(any::<u64>()))
            .prop_map(|(error, message, offset)| Chunk::Error { error, message, offset }),
    ]
}

/// What `encode` writes.
fn written(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

/// Splits a reply into its head and its body.
fn reply(bytes: &[u8]) -> (ReplyHead, &[u8]) {
    let len = ReplyHead::bytes(bytes[..4].try_into().expect("4 bytes")).expect("a reply");
    (ReplyHead::decode(&bytes[..len]).expect("a head"), &bytes[len..])
}

/// The examples are counted out by hand from the specification.
#[test]
fn the_bytes_are_those_of_the_specification() {
    let greeting = written(|out| encode_greeting(flags::FIXED_NEWSTYLE | flags::NO_ZEROES, out));
    assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
    let go = InfoRequest { name: "a".into(), wanted: vec![InfoKind::BlockSize] };
    assert_eq!(written(|out| go.encode(out)), b"\0\0\0\x01a\0\x01\0\x03");
    let head = OptionHead { option: OptionCode::Go, len: 9 };
    assert_eq!(written(|out| head.encode(out)), b"IHAVEOPT\0\0\0\x07\0\0\0\x09");
    let refused = written(|out| {
        OptionReplyHead::encode(OptionCode::List, OptionReply::TlsRequired, b"", out);
    });
    assert_eq!(refused, b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x03\x80\0\0\x05\0\0\0\0");
    let write = Request { flags: 1, command: Command::Write, cookie: 2, offset: 3, len: 4 };
    assert_eq!(
        written(|out| write.encode(Headers::Compact, out)),
        b"\x25\x60\x95\x13\0\x01\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x04"
    );
    assert_eq!(
        written(|out| write.encode(Headers::Extended, out)),
        b"\x21\xe4\x1c\x71\0\x01\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04"
    );
    assert_eq!(
        written(|out| encode_simple(2, Some(Errno::NoSpace), out)),
        b"\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\x02"
    );
    assert_eq!(
        written(|out| encode_data(2, 3, 4, Headers::Compact, out)),
        b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x0c\0\0\0\0\0\0\0\x03"
    );
    let holes = Chunk::Status { context: 1, extents: vec![Status { len: 5, flags: 3 }] };
    assert_eq!(
        written(|out| encode_chunk(2, 3, &holes, Headers::Extended, out)),
        b"\x6e\x8a\x27\x8c\0\x01\0\x06\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x18\
          \0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03"
    );
}

#[test]
fn a_long_extent_is_cut_where_lengths_are_short() {
    let extents = [4096, 10 << 40, 4096].map(|len| Status { len, flags: 3 }).to_vec();
    let status = Chunk::Status { context: 1, extents };
    let bytes = written(|out| encode_chunk(0, 0, &status, Headers::Compact, out));
    let (_, body) = reply(&bytes);
    let cut = [4096, 0xffff_0000].map(|len| Status { len, flags: 3 }).to_vec();
    let told = Chunk::decode(ChunkKind::BlockStatus, body);
    assert_eq!(told, Ok(Chunk::Status { context: 1, extents: cut }));
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let message = "é".repeat(STRING_BYTES_MAX);
    let error = Chunk::Error { error: Errno::Io, message, offset: None };
    let bytes = written(|out| encode_chunk(0, 0, &error, Headers::Compact, out));
    let cut = "é".repeat(STRING_BYTES_MAX / 2);
    let told = Chunk::decode(ChunkKind::Error, reply(&bytes).1);
    assert_eq!(told, Ok(Chunk::Error { error: Errno::Io, message: cut, offset: None }));
}

proptest! {
    #[test]
    fn negotiation_is_read_back(
        bits: u16,
        option: u32,
        len: u32,
        kind: u32,
        name in name(),
        wanted in vec(any::<u16>(), 0..5),
        queries in vec(name(), 0..5),
        info in info(),
    ) {
        let greeting = written(|out| encode_greeting(bits, out));
        prop_assert_eq!(decode_greeting(&greeting.try_into().expect("its size")), Ok(bits));
        let head = OptionHead { option: option.into(), len };
        let bytes = written(|out| head.encode(out));
        prop_assert_eq!(OptionHead::decode(&bytes.try_into().expect("its size")), Ok(head));
        let bytes = written(|out| {
            OptionReplyHead::encode(head.option, kind.into(), name.as_bytes(), out);
        });
        let (first, body) = bytes.split_first_chunk().expect("a head");
        let told = OptionReplyHead { option: head.option, reply: kind.into(), len: body.len() as u32 };
        prop_assert_eq!((OptionReplyHead::decode(first), body), (Ok(told), name.as_bytes()));
        let wanted = wanted.into_iter().map(InfoKind::from).collect();
        let asked = InfoRequest { name: name.clone(), wanted };
        prop_assert_eq!(InfoRequest::decode(&written(|out| asked.encode(out))), Ok(asked));
        let asked = MetaRequest { name: name.clone(), queries };
        prop_assert_eq!(MetaRequest::decode(&written(|out| asked.encode(out))), Ok(asked));
        let listed = written(|out| encode_server_name(&name, out));
        prop_assert_eq!(decode_server_name(&listed), Ok(name.clone()));
        let context = Context { id: len, name };
        prop_assert_eq!(Context::decode(&written(|out| context.encode(out))), Ok(context));
        prop_assert_eq!(Info::decode(&written(|out| info.encode(out))), Ok(info));
    }

    #[test]
    fn requests_are_read_back(
        flags: u16, command: u16, cookie: u64, offset: u64, len: u32, headers in headers(),
    ) {
        let command = command.into();
        let request = Request { flags, command, cookie, offset, len: len.into() };
        let bytes = written(|out| request.encode(headers, out));
        prop_assert_eq!(bytes.len(), headers.request_bytes());
        prop_assert_eq!(Request::decode(&bytes, headers), Ok(request));
    }

    #[test]
    fn replies_are_read_back(
        cookie: u64, at: u64, error in option::of(1..u32::MAX), chunk in chunk(), headers in headers(),
    ) {
        let error = error.map(Errno::from);
        let bytes = written(|out| encode_simple(cookie, error, out));
        prop_assert_eq!(reply(&bytes), (ReplyHead::Simple { error, cookie }, &b""[..]));
        let bytes = written(|out| encode_chunk(cookie, at, &chunk, headers, out));
        let (head, body) = reply(&bytes);
        let ReplyHead::Chunk { is_last: true, kind, cookie: told, len } = head else {
            panic!("{head:?}");
        };
        prop_assert_eq!((told, len), (cookie, body.len() as u64));
        prop_assert_eq!(Chunk::decode(kind, body), Ok(chunk));
        let mut bytes = written(|out| encode_data(cookie, at, 5, headers, out));
        bytes.extend(b"bytes");
        let (head, body) = reply(&bytes);
        let kind = ChunkKind::OffsetData;
        prop_assert_eq!(head, ReplyHead::Chunk { is_last: true, kind, cookie, len: 13 });
        prop_assert_eq!(Chunk::decode(kind, body), Ok(Chunk::Data { offset: at }));
    }

    /// Lengths at random would rarely be right.
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(prop_oneof![0..3u8, any::<u8>()], 0..80)) {
        let _ = InfoRequest::decode(&bytes);
        let _ = MetaRequest::decode(&bytes);
        let _ = Info::decode(&bytes);
        let _ = Context::decode(&bytes);
        let _ = decode_server_name(&bytes);
        let _ = Export::decode(&bytes);
        for headers in [Headers::Compact, Headers::Extended] {
            let _ = Request::decode(&bytes, headers);
        }
        let _ = ReplyHead::decode(&bytes);
        for kind in [0, 1, 2, 5, 6, 7, 0x8001, 0x8002] {
            let _ = Chunk::decode(kind.into(), &bytes);
        }
    }
}
