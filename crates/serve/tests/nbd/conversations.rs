//! Short conversations of clients, one for each way to begin one, and the answers to them. The files of the same names in
//! `testdata/nbd` are what the fuzzer begins with.

use std::collections::HashMap;
use std::path::PathBuf;

use serve::nbd::wire::*;

use super::entry;

/// Sets the length of pieces and what the stream holds: see `entry::run`.
const HOW: u8 = 0x41;
/// Of device `a`.
const EXPORT: &str = "export 16384";

/// What a client sends, and what is needed to read the answers.
struct Conversation {
    sent: Vec<u8>,
    has_zeroes: bool,
    headers: Headers,
    requests: u64,
    /// The lengths of reads by cookie.
    reads: HashMap<u64, usize>,
}

impl Conversation {
    fn begin(client_flags: u16) -> Self {
        let sent = u32::from(client_flags).to_be_bytes().to_vec();
        let has_zeroes = client_flags & flags::NO_ZEROES == 0;
        Self { sent, has_zeroes, headers: Headers::Compact, requests: 0, reads: HashMap::new() }
    }

    fn newstyle() -> Self {
        Self::begin(flags::FIXED_NEWSTYLE | flags::NO_ZEROES)
    }

    fn option(mut self, option: OptionCode, body: &[u8]) -> Self {
        OptionHead { option, len: body.len() as u32 }.encode(&mut self.sent);
        self.sent.extend(body);
        if option == OptionCode::ExtendedHeaders {
            self.headers = Headers::Extended;
        }
        self
    }

    /// Selects the context that tells holes from data.
    fn allocation(self) -> Self {
        let mut body = Vec::new();
        let queries = vec![BASE_ALLOCATION.to_owned()];
        MetaRequest { name: "a".to_owned(), queries }.encode(&mut body);
        self.option(OptionCode::SetMetaContext, &body)
    }

    fn go(self) -> Self {
        let mut body = Vec::new();
        let wanted = vec![InfoKind::BlockSize];
        InfoRequest { name: "a".to_owned(), wanted }.encode(&mut body);
        self.option(OptionCode::Go, &body)
    }

    fn request(mut self, command: Command, flags: u16, offset: u64, len: u64) -> Self {
        self.requests += 1;
        let cookie = self.requests;
        if command == Command::Read {
            self.reads.insert(cookie, len as usize);
        }
        Request { flags, command, cookie, offset, len }.encode(self.headers, &mut self.sent);
        self
    }

    fn write(self, flags: u16, offset: u64, data: &[u8]) -> Self {
        let is_extended = self.headers == Headers::Extended;
        let flags = flags | if is_extended { flags::PAYLOAD_LEN } else { 0 };
        let mut with = self.request(Command::Write, flags, offset, data.len() as u64);
        with.sent.extend(data);
        with
    }

    /// Every change, and a read behind it.
    fn changes(self) -> Self {
        self.write(0, 512, &[7; 64])
            .write(flags::FUA, 4096, &[8; 64])
            .request(Command::Trim, 0, 0, 4096)
            .request(Command::WriteZeroes, flags::NO_HOLE, 4096, 32)
            .request(Command::Cache, 0, 0, 8192)
            .request(Command::Flush, 0, 0, 0)
            .request(Command::Read, 0, 4096, 128)
    }

    fn disconnect(self) -> Self {
        self.request(Command::Disconnect, 0, 0, 0)
    }

    /// The kinds of the server's answers: those to options in their order, those to requests in that of the requests.
    fn kinds(&self, mut answers: &[u8]) -> Vec<String> {
        let input = &mut answers;
        decode_greeting(take(input, GREETING_BYTES).try_into().expect("18 bytes"))
            .expect("a greeting");
        let mut kinds = Vec::new();
        if self.names_export() {
            let export = Export::decode(take(input, 10)).expect("an export");
            kinds.push(format!("export {}", export.size));
            if self.has_zeroes {
                assert_eq!(take(input, 124), [0; 124]);
                kinds.push("zeroes".to_owned());
            }
        }
        while !self.names_export() && input.len() >= OPTION_REPLY_BYTES {
            let Ok(head) =
                OptionReplyHead::decode(input[..OPTION_REPLY_BYTES].try_into().expect("20 bytes"))
            else {
                break;
            };
            take(input, OPTION_REPLY_BYTES);
            let body = take(input, head.len as usize);
            kinds.push(match Info::decode(body) {
                Ok(Info::Export(export)) if head.reply == OptionReply::Info => {
                    format!("export {}", export.size)
                }
                _ => format!("{:?} {:?}", head.option, head.reply),
            });
        }
        let mut replies = Vec::new();
        while !input.is_empty() {
            replies.push(self.reply(input));
        }
        replies.sort();
        kinds.extend(replies.into_iter().map(|(cookie, kind)| format!("{cookie} {kind}")));
        kinds
    }

    fn names_export(&self) -> bool {
        self.sent[4 + 8..][..4] == u32::from(OptionCode::ExportName).to_be_bytes()
    }

    fn reply(&self, input: &mut &[u8]) -> (u64, String) {
        let head = ReplyHead::bytes(input[..4].try_into().expect("4 bytes")).expect("a reply");
        match ReplyHead::decode(take(input, head)).expect("a reply") {
            ReplyHead::Simple { error: Some(error), cookie } => (cookie, format!("{error:?}")),
            ReplyHead::Simple { error: None, cookie } => match self.reads.get(&cookie) {
                Some(&len) => (cookie, data(take(input, len))),
                None => (cookie, "done".to_owned()),
            },
            ReplyHead::Chunk { is_last, kind, cookie, len } => {
                assert!(is_last);
                let body = take(input, len as usize);
                let kind = match Chunk::decode(kind, body).expect("a chunk") {
                    Chunk::None => "done".to_owned(),
                    Chunk::Data { .. } => data(&body[Chunk::DATA_OFFSET_BYTES..]),
                    Chunk::Status { extents, .. } => format!("{} extents", extents.len()),
                    Chunk::Error { error, .. } => format!("{error:?}"),
                    Chunk::Hole { .. } => "hole".to_owned(),
                };
                (cookie, kind)
            }
        }
    }
}

fn data(bytes: &[u8]) -> String {
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    format!("{} bytes, sum {sum}", bytes.len())
}

fn take<'a>(input: &mut &'a [u8], len: usize) -> &'a [u8] {
    input.split_off(..len).expect("the answer is whole")
}

/// Every conversation with its name and the kinds of its answers.
fn all() -> Vec<(&'static str, Conversation, Vec<&'static str>)> {
    let four_reads = |begun: Conversation| {
        (0..4).fold(begun, |with, n| with.request(Command::Read, 0, 1000 * n, 100)).disconnect()
    };
    let go = [EXPORT, "Go Info", "Go Ack"];
    let done = ["1 done", "2 done", "3 done", "4 done", "5 done", "6 done", "7 128 bytes, sum 256"];
    let read4 =
        ["1 100 bytes, sum 0", "2 100 bytes, sum 0", "3 100 bytes, sum 0", "4 100 bytes, sum 0"];
    let contexts = ["SetMetaContext MetaContext", "SetMetaContext Ack"];
    let status = |begun: Conversation| {
        begun
            .changes()
            .request(Command::BlockStatus, 0, 0, 16384)
            .request(Command::BlockStatus, flags::REQ_ONE, 0, 16384)
            .request(Command::BlockStatus, 0, 16384, 512)
            .request(Command::Read, flags::DF, 16000, 385)
            .disconnect()
    };
    let told = ["8 3 extents", "9 1 extents", "10 Invalid", "11 Invalid"];
    vec![
        (
            "export-name",
            Conversation::newstyle().option(OptionCode::ExportName, b"a").disconnect(),
            vec![EXPORT],
        ),
        (
            "export-name-zeroes",
            four_reads(
                Conversation::begin(flags::FIXED_NEWSTYLE).option(OptionCode::ExportName, b"a"),
            ),
            [&[EXPORT, "zeroes"], &read4[..]].concat(),
        ),
        (
            "list-abort",
            Conversation::newstyle().option(OptionCode::List, b"").option(OptionCode::Abort, b""),
            vec!["List Server", "List Server", "List Ack", "Abort Ack"],
        ),
        ("go-read", four_reads(Conversation::newstyle().go()), [&go[..], &read4].concat()),
        (
            "go-write",
            Conversation::newstyle().go().changes().disconnect(),
            [&go[..], &done].concat(),
        ),
        (
            "structured-status",
            status(
                Conversation::newstyle().option(OptionCode::StructuredReply, b"").allocation().go(),
            ),
            [&["StructuredReply Ack"], &contexts[..], &go, &done, &told].concat(),
        ),
        (
            "extended-status",
            status(
                Conversation::newstyle().option(OptionCode::ExtendedHeaders, b"").allocation().go(),
            ),
            [&["ExtendedHeaders Ack"], &contexts[..], &go, &done, &told].concat(),
        ),
    ]
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/nbd")).join(name)
}

fn seed(conversation: &Conversation) -> Vec<u8> {
    [&[HOW], &conversation.sent[..]].concat()
}

#[test]
fn each_conversation_gets_its_answers() {
    for (name, conversation, wanted) in all() {
        let seed = seed(&conversation);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(file(name), &seed).expect("a file");
        }
        let stored = std::fs::read(file(name)).expect("it is in the repository");
        assert!(stored == seed, "{name} differs: UPDATE_EXPECT=1 writes it");
        assert_eq!(conversation.kinds(&entry::answers(&seed[1..])), wanted, "{name}");
        entry::run(&seed);
    }
}
