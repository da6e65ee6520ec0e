//! The replies of a connection that are not sent yet: many go out in one system call, and data is not copied.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, BytesMut};
use engine::block::IoBufMut;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// The most pieces of a system call. Linux takes 1024.
const PIECES_MAX: usize = 64;
/// Shorter data is copied behind its head: a piece of its own costs more.
const COPIED_BYTES_MAX: usize = 4096;

/// Bytes to send, in order.
#[derive(Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Piece>,
    /// The last bytes of all, which grow.
    last: BytesMut,
    /// The bytes of heads and copied data.
    heads_bytes: usize,
    /// The bytes of data.
    data_bytes: u64,
    /// Whether the stream may hold bytes back.
    needs_flush: bool,
}

enum Piece {
    Heads(BytesMut),
    Data { data: IoBufMut, sent: usize },
}

impl Piece {
    fn rest(&self) -> &[u8] {
        match self {
            Self::Heads(bytes) => bytes,
            Self::Data { data, sent } => &data[*sent..],
        }
    }
}

impl Outbox {
    /// Where heads are written.
    pub(super) fn head(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.last.len();
        write(&mut self.last);
        self.heads_bytes += self.last.len() - before;
    }

    /// Adds data behind the last head.
    pub(super) fn data(&mut self, data: IoBufMut) {
        if data.len() <= COPIED_BYTES_MAX {
            return self.head(|out| out.extend_from_slice(&data));
        }
        if !self.last.is_empty() {
            self.pieces.push_back(Piece::Heads(self.last.split()));
        }
        self.data_bytes += data.len() as u64;
        self.pieces.push_back(Piece::Data { data, sent: 0 });
    }

    /// Whether everything is with the peer's side of the stream.
    pub(super) fn is_sent(&self) -> bool {
        self.pieces.is_empty() && self.last.is_empty() && !self.needs_flush
    }

    /// The bytes of heads and copied data that are not sent.
    pub(super) fn heads_bytes(&self) -> usize {
        self.heads_bytes
    }

    /// The bytes of data that are not sent.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Sends some. A caller may stop waiting at any time, and sends nothing twice.
    pub(super) async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.pieces.is_empty() && self.last.is_empty() {
            stream.flush().await?;
            self.needs_flush = false;
            return Ok(());
        }
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let rests = self.pieces.iter().map(Piece::rest).chain([&self.last[..]]);
        let mut used = 0;
        for (slice, rest) in slices.iter_mut().zip(rests) {
            *slice = IoSlice::new(rest);
            used += 1;
        }
        let written = stream.write_vectored(&slices[..used]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.needs_flush = true;
        self.forget(written);
        Ok(())
    }

    /// Drops the first `written` bytes.
    fn forget(&mut self, mut written: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let some = written.min(piece.rest().len());
            written -= some;
            match piece {
                Piece::Heads(bytes) => {
                    bytes.advance(some);
                    self.heads_bytes -= some;
                }
                Piece::Data { data, sent } => {
                    *sent += some;
                    if *sent == data.len() {
                        self.data_bytes -= data.len() as u64;
                    }
                }
            }
            if !piece.rest().is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.last.advance(written);
        self.heads_bytes -= written;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// A stream that takes a few bytes at a time, over pieces.
    struct Narrow(Vec<u8>, usize);

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let some = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..some]);
            Poll::Ready(Ok(some))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            self.poll_write(context, &all)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn heads_and_data_go_out_in_order_whatever_the_stream_takes() {
        for width in [1, 5, 5000, 1 << 20] {
            let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
            for at in 0..100u8 {
                let data = vec![at; if at % 3 == 0 { 9000 } else { usize::from(at) }];
                outbox.head(|out| out.extend_from_slice(&[at, 255]));
                outbox.data(IoBufMut::from(&data[..]));
                expected.extend([at, 255]);
                expected.extend(data);
            }
            assert_eq!(outbox.data_bytes(), 34 * 9000);
            let mut stream = Narrow(Vec::new(), width);
            while !outbox.is_sent() {
                outbox.send(&mut stream).await.expect("memory");
            }
            assert!(stream.0 == expected, "{width} bytes at a time");
            assert_eq!((outbox.heads_bytes(), outbox.data_bytes()), (0, 0));
        }
    }
}
