use std::collections::BTreeMap;

use bytes::{Buf, BufMut};
use proptest::prelude::*;

use super::*;

/// Numbers of the protocol, apart from those that the relay uses.
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const EIO: u32 = 5;
const ESHUTDOWN: u32 = 108;

fn message(kind: u16, flags: u16, cookie: u64, len: u32) -> Vec<u8> {
    let mut message = Vec::new();
    message.put_u32(0x2560_9513);
    message.put_u16(flags);
    message.put_u16(kind);
    message.put_u64(cookie);
    message.put_u64(cookie << 12);
    message.put_u32(len);
    if kind == WRITE {
        message.extend((0..len).map(|at| (u64::from(at) + cookie) as u8));
    }
    message
}

/// A reply; of a read, with bytes that depend on the request alone.
fn answer(kind: u16, cookie: u64, len: u32, error: u32) -> Vec<u8> {
    let mut message = Vec::new();
    message.put_u32(0x6744_6698);
    message.put_u32(error);
    message.put_u64(cookie);
    if kind == READ && error == 0 {
        message.extend((0..len).map(|at| (u64::from(at) ^ cookie) as u8));
    }
    message
}

fn taken(queue: &mut Outgoing) -> Vec<u8> {
    queue.copy_to_bytes(queue.remaining()).to_vec()
}

/// A relay that has sent these requests to a server.
fn with(requests: &[Vec<u8>]) -> Relay {
    let mut relay = Relay::default();
    relay.on_connected(false);
    ask(&mut relay, requests);
    assert_eq!(taken(&mut relay.to_server), requests.concat());
    relay
}

fn ask(relay: &mut Relay, requests: &[Vec<u8>]) {
    relay.from_kernel.extend_from_slice(&requests.concat());
    relay.on_kernel().expect("requests");
}

fn reply_with(relay: &mut Relay, replies: &[Vec<u8>]) -> Result<Vec<u8>, Violation> {
    relay.from_server.extend_from_slice(&replies.concat());
    relay.on_server().map(|()| taken(&mut relay.to_kernel))
}

#[test]
fn requests_without_an_answer_are_sent_again_in_their_order() {
    let requests = [message(WRITE, 0, 9, 40), message(READ, 0, 3, 8), message(FLUSH, 0, 5, 0)];
    let mut relay = with(&requests);
    let answered = answer(READ, 3, 8, 0);
    assert_eq!(reply_with(&mut relay, std::slice::from_ref(&answered)), Ok(answered));
    relay.on_disconnected();
    ask(&mut relay, &[message(READ, 0, 1, 8)]);
    assert!(relay.to_server.is_empty(), "there is no server");
    assert_eq!(relay.on_connected(false), 3);
    let again = [requests[0].clone(), requests[2].clone(), message(READ, 0, 1, 8)];
    assert_eq!(taken(&mut relay.to_server), again.concat());
}

#[test]
fn half_a_reply_of_a_dead_server_is_void() {
    let mut relay = with(&[message(READ, 0, 1, 100)]);
    let whole = answer(READ, 1, 100, 0);
    assert_eq!(reply_with(&mut relay, &[whole[..90].to_vec()]), Ok(vec![]));
    relay.on_disconnected();
    relay.on_connected(false);
    assert_eq!(reply_with(&mut relay, std::slice::from_ref(&whole)), Ok(whole));
}

#[test]
fn a_reply_to_no_request_breaks_the_connection() {
    let mut relay = with(&[message(READ, 0, 1, 8)]);
    assert!(reply_with(&mut relay, &[answer(READ, 2, 8, 0)]).is_err());
    let mut relay = with(&[message(FLUSH, 0, 1, 0)]);
    let twice = vec![answer(FLUSH, 1, 0, 0); 2];
    assert!(reply_with(&mut relay, &twice).is_err());
    assert_eq!(taken(&mut relay.to_kernel), twice[0], "the first counts");
    let mut relay = with(&[]);
    assert!(reply_with(&mut relay, &[vec![0; 16]]).is_err());
}

#[test]
fn the_kernel_is_held_to_the_protocol_too() {
    let mut relay = with(&[message(READ, 0, 1, 8)]);
    relay.from_kernel.extend_from_slice(&message(READ, 0, 1, 8));
    assert!(relay.on_kernel().is_err(), "two at once");
    let mut relay = with(&[]);
    relay.from_kernel.extend_from_slice(&message(READ, 0, 1, u32::MAX));
    assert!(relay.on_kernel().is_err(), "too long");
    let mut relay = with(&[]);
    relay.from_kernel.extend_from_slice(&[1; 28]);
    assert!(relay.on_kernel().is_err(), "no request");
}

#[test]
fn what_a_stopping_server_refuses_waits_for_the_next() {
    let mut relay = with(&[message(WRITE, 0, 1, 8), message(WRITE, 0, 2, 8)]);
    assert_eq!(reply_with(&mut relay, &[answer(WRITE, 1, 8, ESHUTDOWN)]), Ok(vec![]));
    ask(&mut relay, &[message(READ, 0, 3, 8)]);
    assert!(relay.to_server.is_empty(), "it gets nothing more, and still has request 2");
    let second = answer(WRITE, 2, 8, 0);
    assert_eq!(reply_with(&mut relay, std::slice::from_ref(&second)), Ok(second));
    assert_eq!(taken(&mut relay.to_server), disconnect(0));
    assert_eq!(relay.on_connected(false), 2);
    assert_eq!(
        taken(&mut relay.to_server),
        [message(WRITE, 0, 1, 8), message(READ, 0, 3, 8)].concat()
    );
}

#[test]
fn errors_of_a_running_server_reach_the_kernel() {
    let mut relay = with(&[message(READ, 0, 1, 8)]);
    let failed = answer(READ, 1, 8, EIO);
    assert_eq!(reply_with(&mut relay, std::slice::from_ref(&failed)), Ok(failed));
    assert_eq!(relay.on_connected(false), 0);
}

#[test]
fn a_detached_device_ends_the_connection() {
    let mut relay = with(&[message(READ, 0, 1, 8)]);
    ask(&mut relay, &[message(DISCONNECT, 0, 0, 0)]);
    assert!(relay.is_over());
    assert_eq!(taken(&mut relay.to_server), message(DISCONNECT, 0, 0, 0));
    let mut relay = with(&[]);
    relay.is_leased = true;
    ask(&mut relay, &[message(DISCONNECT, 0, 0, 0)]);
    assert_eq!(taken(&mut relay.to_server), disconnect(flags::RELEASE));
}

#[test]
fn a_flush_fails_once_after_a_server_lost_changes_that_it_had_answered() {
    let mut relay = with(&[message(WRITE, 0, 1, 8), message(WRITE, FUA, 2, 8)]);
    let done = [answer(WRITE, 1, 8, 0), answer(WRITE, 2, 8, 0)];
    assert_eq!(reply_with(&mut relay, &done), Ok(done.concat()));
    ask(&mut relay, &[message(FLUSH, 0, 3, 0)]);
    // The flush was under way; that of the next machine would not cover the write.
    relay.on_connected(true);
    assert!(relay.to_server.is_empty());
    assert_eq!(taken(&mut relay.to_kernel), answer(FLUSH, 3, 0, EIO));
    ask(&mut relay, &[message(FLUSH, 0, 4, 0)]);
    assert_eq!(taken(&mut relay.to_server), message(FLUSH, 0, 4, 0), "once is enough");
}

#[test]
fn a_lost_cache_with_nothing_in_it_fails_no_flush() {
    // Writes that are durable when they are answered, writes before a flush, and writes without an answer.
    let mut relay = with(&[message(WRITE, FUA, 1, 8), message(WRITE, 0, 2, 8)]);
    reply_with(&mut relay, &[answer(WRITE, 1, 8, 0), answer(WRITE, 2, 8, 0)]).expect("replies");
    ask(&mut relay, &[message(FLUSH, 0, 3, 0)]);
    reply_with(&mut relay, &[answer(FLUSH, 3, 0, 0)]).expect("a reply");
    ask(&mut relay, &[message(WRITE, 0, 4, 8), message(FLUSH, 0, 5, 0)]);
    taken(&mut relay.to_server);
    relay.on_connected(true);
    assert_eq!(
        taken(&mut relay.to_server),
        [message(WRITE, 0, 4, 8), message(FLUSH, 0, 5, 0)].concat()
    );
}

#[test]
fn a_flush_covers_only_changes_that_were_answered_before_it() {
    let mut relay = with(&[message(WRITE, 0, 1, 8), message(FLUSH, 0, 2, 0)]);
    // The write is answered after the flush was sent, so the flush may not have covered it.
    reply_with(&mut relay, &[answer(WRITE, 1, 8, 0), answer(FLUSH, 2, 0, 0)]).expect("replies");
    relay.on_connected(true);
    ask(&mut relay, &[message(FLUSH, 0, 3, 0)]);
    assert_eq!(taken(&mut relay.to_kernel), answer(FLUSH, 3, 0, EIO));
}

/// One step of a run.
#[derive(Clone, Debug)]
enum Step {
    /// The kernel sends a request of this type over so many bytes.
    Ask(u16, u32),
    /// So many bytes pass from one buffer to the next; which one is the first number modulo 4.
    Pass(u8, usize),
    /// The server answers one of the requests it has.
    Answer(usize),
    /// The server dies with all it has, and another one comes.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(vec![READ, WRITE, FLUSH, TRIM, WRITE_ZEROES]);
    prop_oneof![
        3 => (kind, 1..60_u32).prop_map(|(kind, len)| Step::Ask(kind, len)),
        8 => (any::<u8>(), 1..90_usize).prop_map(|(way, count)| Step::Pass(way, count)),
        4 => any::<usize>().prop_map(Step::Answer),
        1 => Just(Step::Restart),
    ]
}

/// A kernel and servers around a relay; every buffer passes its bytes in pieces.
#[derive(Default)]
struct World {
    relay: Relay,
    asked: BTreeMap<u64, (u16, u32)>,
    kernel_out: Vec<u8>,
    kernel_in: Vec<u8>,
    server_in: Vec<u8>,
    server_has: Vec<u64>,
    server_out: Vec<u8>,
    answered: BTreeMap<u64, u32>,
}

impl World {
    fn pass(&mut self, way: u8, count: usize) {
        match way % 4 {
            0 => {
                let count = count.min(self.kernel_out.len());
                self.relay.from_kernel.extend(self.kernel_out.drain(..count));
                self.relay.on_kernel().expect("requests");
            }
            1 => {
                let count = count.min(self.relay.to_server.remaining());
                self.server_in.extend(self.relay.to_server.copy_to_bytes(count));
                self.serve();
            }
            2 => {
                let count = count.min(self.server_out.len());
                self.relay.from_server.extend(self.server_out.drain(..count));
                self.relay.on_server().expect("replies");
            }
            _ => {
                let count = count.min(self.relay.to_kernel.remaining());
                self.kernel_in.extend(self.relay.to_kernel.copy_to_bytes(count));
                self.take();
            }
        }
    }

    /// The server takes whole requests, and finds them as the kernel sent them.
    fn serve(&mut self) {
        while self.server_in.len() >= REQUEST_BYTES {
            let cookie = u64::from_be_bytes(self.server_in[8..16].try_into().expect("8 bytes"));
            let (kind, len) = self.asked[&cookie];
            let wanted = message(kind, 0, cookie, len);
            if self.server_in.len() < wanted.len() {
                return;
            }
            assert_eq!(self.server_in.drain(..wanted.len()).collect::<Vec<_>>(), wanted);
            assert!(!self.server_has.contains(&cookie), "twice on one connection");
            assert!(!self.answered.contains_key(&cookie), "the kernel has the answer");
            self.server_has.push(cookie);
        }
    }

    /// The kernel takes whole replies, each to a request of its own.
    fn take(&mut self) {
        while self.kernel_in.len() >= REPLY_BYTES {
            let cookie = u64::from_be_bytes(self.kernel_in[8..16].try_into().expect("8 bytes"));
            let (kind, len) = self.asked[&cookie];
            let wanted = answer(kind, cookie, len, 0);
            if self.kernel_in.len() < wanted.len() {
                return;
            }
            assert_eq!(self.kernel_in.drain(..wanted.len()).collect::<Vec<_>>(), wanted);
            *self.answered.entry(cookie).or_default() += 1;
        }
    }

    fn answer(&mut self, which: usize) {
        if !self.server_has.is_empty() {
            let cookie = self.server_has.swap_remove(which % self.server_has.len());
            let (kind, len) = self.asked[&cookie];
            self.server_out.extend(answer(kind, cookie, len, 0));
        }
    }

    fn restart(&mut self) {
        self.server_in.clear();
        self.server_out.clear();
        self.server_has.clear();
        self.relay.on_connected(false);
    }
}

proptest! {
    /// Whatever way the bytes are cut and whenever the server dies: the server gets requests as the kernel sent them, and
    /// the kernel gets one right answer to each.
    #[test]
    fn every_request_is_answered_once(steps in prop::collection::vec(step(), 0..200)) {
        let mut world = World::default();
        for step in steps {
            match step {
                Step::Ask(kind, len) => {
                    let cookie = world.asked.len() as u64;
                    world.asked.insert(cookie, (kind, len));
                    world.kernel_out.extend(message(kind, 0, cookie, len));
                }
                Step::Pass(way, count) => world.pass(way, count),
                Step::Answer(which) => world.answer(which),
                Step::Restart => world.restart(),
            }
        }
        // From here on no server dies.
        world.restart();
        for _ in 0..=world.asked.len() {
            (0..4).for_each(|way| world.pass(way, usize::MAX));
            (0..world.server_has.len()).for_each(|_| world.answer(0));
        }
        let once: BTreeMap<_, _> = world.asked.keys().map(|&cookie| (cookie, 1)).collect();
        prop_assert_eq!(world.answered, once);
        prop_assert!(world.relay.in_flight.is_empty());
    }
}
