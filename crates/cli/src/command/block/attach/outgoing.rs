//! Bytes that wait to be written to a socket.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// A queue of messages. They share their memory with the relay, which keeps requests until they are answered.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    messages: VecDeque<Bytes>,
    len: usize,
}

impl Outgoing {
    pub(super) fn push(&mut self, message: Bytes) {
        self.len += message.len();
        if !message.is_empty() {
            self.messages.push_back(message);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Forgets everything, also a message that was written in part.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.messages.front().map_or(&[][..], |message| &message[..])
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let count = into.len().min(self.messages.len());
        for (slice, message) in into.iter_mut().zip(&self.messages) {
            *slice = IoSlice::new(message);
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        self.len -= count;
        while count > 0 {
            let Some(front) = self.messages.front_mut() else { return };
            let part = count.min(front.len());
            front.advance(part);
            count -= part;
            if front.is_empty() {
                self.messages.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_advance_leaves_the_rest() {
        let whole: Vec<u8> = (0..30).collect();
        for cut in 0..=30 {
            let mut queue = Outgoing::default();
            for part in [&whole[..10], &[], &whole[10..11], &whole[11..]] {
                queue.push(Bytes::copy_from_slice(part));
            }
            let mut slices = [IoSlice::new(&[]); 8];
            let filled = queue.chunks_vectored(&mut slices);
            assert_eq!(
                slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>(),
                whole
            );
            queue.advance(cut);
            assert_eq!(queue.remaining(), 30 - cut);
            assert_eq!(queue.is_empty(), cut == 30);
            assert_eq!(queue.copy_to_bytes(30 - cut), whole[cut..]);
        }
    }
}
