//! Generic netlink, as far as the kernel's driver `nbd` needs it: one request at a time, answered by an
//! acknowledgement (linux/netlink.h, linux/genetlink.h). All numbers are in the machine's byte order.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Message types and flags.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
/// An attribute that holds attributes.
const NESTED: u16 = 1 << 15;
/// The family that knows the numbers of all others.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Lengths of headers, in bytes.
const MESSAGE_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// More than any answer of the driver, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Attributes of a message.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    #[must_use]
    pub(super) fn u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    #[must_use]
    pub(super) fn u64(self, kind: u16, value: u64) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Text without NUL: netlink ends it with one.
    #[must_use]
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    #[must_use]
    pub(super) fn nested(self, kind: u16, inner: &Self) -> Self {
        self.with(kind | NESTED, &inner.0)
    }

    /// # Panics
    /// If the value is longer than an attribute can say: 64 KiB.
    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let len = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("attributes are short");
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// A socket to the kernel.
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// # Errors
    /// The machine has no netlink.
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Some(netlink::GENERIC);
        let flags = SocketFlags::CLOEXEC;
        Ok(Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?))
    }

    /// The number of a family, which all its messages carry.
    ///
    /// # Errors
    /// `NotFound`: the module with this family is not loaded.
    pub(super) fn family(&self, name: &str) -> io::Result<u16> {
        let answer =
            self.call(CONTROL, GET_FAMILY, &Attributes::default().text(FAMILY_NAME, name))?;
        let id = attribute(&answer, FAMILY_ID).and_then(|id| u16_at(id, 0));
        id.ok_or_else(|| io::Error::other("the kernel's answer lacks the number of the family"))
    }

    /// Sends a command, and waits until the kernel has carried it out. Returns the attributes of its answer; none if it
    /// only acknowledges.
    ///
    /// # Errors
    /// The command's.
    pub(super) fn call(
        &self,
        family: u16,
        command: u8,
        attributes: &Attributes,
    ) -> io::Result<Vec<u8>> {
        send(&self.0, &message(family, command, attributes), SendFlags::empty())?;
        let mut buf = vec![0; ANSWER_MAX];
        let mut answer = Vec::new();
        loop {
            let (len, _) = match recv(&self.0, &mut buf[..], RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            for (kind, body) in messages(&buf[..len]) {
                if kind != ERROR {
                    answer = body.get(GENERIC_HEADER..).unwrap_or_default().to_vec();
                    continue;
                }
                let code =
                    body.get(..4).map(|code| i32::from_ne_bytes(code.try_into().expect("4 bytes")));
                return match code {
                    Some(0) => Ok(answer),
                    Some(code) => Err(io::Error::from_raw_os_error(-code)),
                    None => Err(io::Error::other("the kernel's answer is cut off")),
                };
            }
        }
    }
}

/// A request that the kernel acknowledges.
fn message(family: u16, command: u8, attributes: &Attributes) -> Vec<u8> {
    const VERSION: u8 = 1;
    let len = MESSAGE_HEADER + GENERIC_HEADER + attributes.0.len();
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend((REQUEST | ACK).to_ne_bytes());
    message.extend([0; 8]); // Sequence and port: one request at a time needs neither.
    message.extend([command, VERSION, 0, 0]);
    message.extend(&attributes.0);
    message
}

/// The messages of a datagram: type and body of each.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(datagram.get(..4)?.try_into().ok()?) as usize;
        let kind = u16_at(datagram, 4)?;
        let body = datagram.get(MESSAGE_HEADER..len)?;
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// The value of the first attribute of a kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(ATTRIBUTE_HEADER..len)?;
        if u16_at(attributes, 2)? & !NESTED == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_again_behind_padding() {
        let inner = Attributes::default().u32(1, 7);
        let all = Attributes::default().text(2, "nbd0").nested(7, &inner).u64(3, 4096);
        assert_eq!(all.0.len() % 4, 0);
        assert_eq!(attribute(&all.0, 2), Some(&b"nbd0\0"[..]));
        assert_eq!(attribute(&all.0, 7), Some(&inner.0[..]));
        assert_eq!(attribute(&all.0, 3), Some(&4096_u64.to_ne_bytes()[..]));
        assert_eq!(attribute(&all.0, 4), None);
        for cut in 0..all.0.len() {
            assert_ne!(attribute(&all.0[..cut], 3), Some(&4096_u64.to_ne_bytes()[..]), "{cut}");
        }
    }

    #[test]
    fn messages_of_one_datagram_are_apart() {
        let two = [
            message(5, 1, &Attributes::default().u32(1, 1)),
            message(ERROR, 0, &Attributes::default()),
        ];
        let datagram = two.concat();
        let kinds: Vec<_> = messages(&datagram).map(|(kind, body)| (kind, body.len())).collect();
        assert_eq!(kinds, [(5, 12), (ERROR, 4)]);
        assert_eq!(messages(&datagram[..10]).count(), 0);
    }

    #[test]
    fn the_kernel_knows_its_control_family_and_no_other_of_a_strange_name() {
        let socket = Socket::open().expect("a socket");
        assert_eq!(socket.family("nlctrl").expect("a number"), CONTROL);
        let error = socket.family("no-such-thing").expect_err("no family");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // The answers before are not left in the socket.
        assert_eq!(socket.family("nlctrl").expect("a number"), CONTROL);
    }
}
