//! Bytes of the log that are in memory: the newest, and those that are about to go in place.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use parking_lot::Mutex;
use volume::IoBuf;

/// Pieces of files, the oldest of which go first.
pub(super) struct Kept {
    most: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By file and offset.
    pieces: BTreeMap<(u64, u64), IoBuf>,
    queue: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Kept {
    /// Keeps at most this many bytes, or one piece.
    pub(super) fn new(most: u64) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Keeps a piece of a file.
    pub(super) fn put(&self, file: u64, at: u64, bytes: IoBuf) {
        let mut state = self.state.lock();
        let len = bytes.len() as u64;
        if let Some(old) = state.pieces.insert((file, at), bytes) {
            state.bytes -= old.len() as u64;
        } else {
            state.queue.push_back((file, at));
        }
        state.bytes += len;
        while state.bytes > self.most
            && state.queue.len() > 1
            && let Some(oldest) = state.queue.pop_front()
        {
            state.remove(oldest);
        }
    }

    /// The bytes of a range of a file, if they are in one piece.
    pub(super) fn get(&self, file: u64, range: Range<u64>) -> Option<IoBuf> {
        let state = self.state.lock();
        let (&(of, at), bytes) = state.pieces.range(..=(file, range.start)).next_back()?;
        let is_there = of == file && range.end <= at + bytes.len() as u64;
        is_there.then(|| bytes.slice((range.start - at) as usize..(range.end - at) as usize))
    }

    /// A file was removed.
    pub(super) fn forget(&self, file: u64) {
        let mut state = self.state.lock();
        let gone: Vec<_> =
            state.pieces.range((file, 0)..=(file, u64::MAX)).map(|(at, _)| *at).collect();
        gone.into_iter().for_each(|at| state.remove(at));
        state.queue.retain(|(of, _)| *of != file);
    }
}

impl State {
    fn remove(&mut self, at: (u64, u64)) {
        if let Some(old) = self.pieces.remove(&at) {
            self.bytes -= old.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(byte: u8, len: usize) -> IoBuf {
        IoBuf::from(&vec![byte; len][..])
    }

    #[test]
    fn the_oldest_pieces_go_and_ranges_are_found_in_one_piece() {
        let kept = Kept::new(100);
        kept.put(1, 0, piece(1, 40));
        kept.put(1, 40, piece(2, 40));
        assert_eq!(&kept.get(1, 50..60).unwrap()[..], [2; 10]);
        assert!(kept.get(1, 30..50).is_none(), "it is in two pieces");
        assert!(kept.get(2, 0..1).is_none() && kept.get(1, 80..81).is_none());
        kept.put(2, 0, piece(3, 40));
        assert!(kept.get(1, 0..1).is_none());
        assert!(kept.get(1, 40..80).is_some());
        kept.forget(1);
        assert!(kept.get(1, 40..41).is_none());
        assert_eq!(kept.state.lock().bytes, 40);
        kept.put(3, 0, piece(4, 500));
        assert!(kept.get(3, 0..500).is_some(), "one piece stays");
    }
}
