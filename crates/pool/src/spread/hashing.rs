//! Changes of an object under way, as its running checksum sees them.

use super::inode::Inode;

/// A change of an object under way. Dropped before its end, it ends the running checksum: the bytes are unknown.
pub(super) struct Hashing<'a> {
    inode: &'a Inode,
    offset: u64,
    has_ended: bool,
}

impl<'a> Hashing<'a> {
    /// Before the change of bytes from `offset` on.
    pub(super) fn begin(inode: &'a Inode, offset: u64) -> Self {
        inode.run(|running| running.begin(offset));
        Self { inode, offset, has_ended: false }
    }

    /// Every copy has `data`.
    pub(super) fn written(mut self, data: &[u8]) {
        self.has_ended = true;
        self.inode.run(|running| running.write(self.offset, data));
    }

    /// Every copy has the length `len`.
    pub(super) fn resized(mut self, len: u64) {
        self.has_ended = true;
        self.inode.run(|running| running.resize(len));
    }
}

impl Drop for Hashing<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.inode.run(|_| false);
        }
    }
}
