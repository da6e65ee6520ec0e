//! An NBD client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serve::nbd::wire::{
    Command, Errno, GREETING_BYTES, Headers, Info, InfoRequest, OPTION_REPLY_BYTES, OptionCode,
    OptionHead, OptionReply, OptionReplyHead, ReplyHead, Request, decode_greeting, flags,
};

/// An NBD client with one request in flight.
pub(crate) struct Nbd {
    stream: TcpStream,
    pub(crate) size: u64,
    cookie: u64,
}

impl Nbd {
    /// Opens an export; returns the server's answer if it refuses.
    pub(crate) fn open(address: SocketAddr, name: &str) -> Result<Self, OptionReply> {
        let mut stream = TcpStream::connect(address).expect("the listener is open");
        let greeting: [u8; GREETING_BYTES] = bytes(&mut stream);
        let offered = decode_greeting(&greeting).expect("an NBD server");
        assert_eq!(offered & flags::FIXED_NEWSTYLE, flags::FIXED_NEWSTYLE);
        let mut body = Vec::new();
        InfoRequest { name: name.into(), wanted: Vec::new() }.encode(&mut body);
        let mut out = u32::from(flags::FIXED_NEWSTYLE | flags::NO_ZEROES).to_be_bytes().to_vec();
        let len = u32::try_from(body.len()).expect("a short name");
        OptionHead { option: OptionCode::Go, len }.encode(&mut out);
        out.extend(body);
        stream.write_all(&out).expect("the server reads");
        let mut size = None;
        loop {
            let head: [u8; OPTION_REPLY_BYTES] = bytes(&mut stream);
            let head = OptionReplyHead::decode(&head).expect("a reply");
            let mut body = vec![0; head.len as usize];
            stream.read_exact(&mut body).expect("the whole reply");
            match head.reply {
                OptionReply::Info => {
                    if let Info::Export(export) = Info::decode(&body).expect("information") {
                        size = Some(export.size);
                    }
                }
                OptionReply::Ack => break,
                refused => return Err(refused),
            }
        }
        Ok(Self { stream, size: size.expect("the size is always told"), cookie: 0 })
    }

    /// One request and its reply; `data` is what a write sends.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        offset: u64,
        len: usize,
        data: &[u8],
    ) -> Option<Errno> {
        self.cookie += 1;
        let len = len as u64;
        let request = Request { flags: 0, command, cookie: self.cookie, offset, len };
        let mut out = Vec::new();
        request.encode(Headers::Compact, &mut out);
        out.extend_from_slice(data);
        self.stream.write_all(&out).expect("the server reads");
        let head: [u8; 16] = bytes(&mut self.stream);
        match ReplyHead::decode(&head).expect("a reply") {
            ReplyHead::Simple { error, cookie } => {
                assert_eq!(cookie, self.cookie);
                error
            }
            ReplyHead::Chunk { .. } => panic!("structured replies were not agreed on"),
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        assert_eq!(self.ask(Command::Write, offset, data.len(), data), None);
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        assert_eq!(self.ask(Command::Read, offset, len, &[]), None);
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data).expect("the data follows");
        data
    }
}

fn bytes<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).expect("the server answers");
    bytes
}
