//! The key ranges of the tables of a level, searchable for overlaps.
//!
//! The tables of most levels are disjoint, with exceptions: level 0 overlaps, and any other level has a compaction's
//! outputs beside its inputs for a while. So each level is a treap (Seidel and Aragon, 1996) ordered by first keys, in
//! which every node knows the table below it that reaches furthest. Finding k tables of n costs O(log n + k). All
//! levels share one slab of nodes that grows by chunks: an insertion never moves the others.

/// The index of a node. [`NIL`] stands for an empty treap.
pub(super) type Slot = u32;

/// No node.
pub(super) const NIL: Slot = Slot::MAX;

const CHUNK: usize = 256;

/// The nodes of all treaps, and free nodes.
#[derive(Debug)]
pub(super) struct Nodes<T> {
    chunks: Vec<Vec<Node<T>>>,
    /// The first free node; they are linked by `left`.
    free: Slot,
}

#[derive(Debug)]
struct Node<T> {
    /// The first key, then the last one, in one allocation.
    keys: Box<[u8]>,
    object: u64,
    value: T,
    first_len: u32,
    left: Slot,
    right: Slot,
    /// The node with the largest last key in this subtree.
    furthest: Slot,
}

impl<T> Node<T> {
    fn first(&self) -> &[u8] {
        &self.keys[..self.first_len as usize]
    }

    fn last(&self) -> &[u8] {
        &self.keys[self.first_len as usize..]
    }
}

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: NIL }
    }
}

impl<T: Default> Nodes<T> {
    /// A new node, in no treap yet.
    pub(super) fn add(&mut self, object: u64, first: &[u8], last: &[u8], value: T) -> Slot {
        let keys = [first, last].concat().into();
        let first_len = u32::try_from(first.len()).expect("keys have less than 4 GiB");
        let node = Node { keys, object, value, first_len, left: NIL, right: NIL, furthest: NIL };
        if self.free != NIL {
            let slot = self.free;
            self.free = self.node(slot).left;
            *self.node_mut(slot) = node;
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("one was just made if there was none");
        chunk.push(node);
        Slot::try_from(before + chunk.len() - 1).expect("fewer than 2^32 tables")
    }

    /// Frees a node that is in no treap.
    pub(super) fn free(&mut self, slot: Slot) {
        let free = std::mem::replace(&mut self.free, slot);
        let node = self.node_mut(slot);
        (node.keys, node.value) = (Box::default(), T::default());
        (node.first_len, node.left) = (0, free);
    }

    /// Bytes of memory, keys included.
    pub(super) fn bytes(&self) -> usize {
        let nodes = self.chunks.iter().flatten().map(|node| node.keys.len()).sum::<usize>();
        nodes + self.chunks.len() * CHUNK * size_of::<Node<T>>()
    }

    pub(super) fn object(&self, slot: Slot) -> u64 {
        self.node(slot).object
    }

    pub(super) fn value(&self, slot: Slot) -> &T {
        &self.node(slot).value
    }

    pub(super) fn value_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.node_mut(slot).value
    }

    /// The smallest and the largest key of a table.
    pub(super) fn keys(&self, slot: Slot) -> (&[u8], &[u8]) {
        let node = self.node(slot);
        (node.first(), node.last())
    }

    /// Inserts a node into the treap at `root`; returns the new root.
    pub(super) fn insert(&mut self, root: Slot, new: Slot) -> Slot {
        if root == NIL {
            self.link(new, NIL, NIL);
            return new;
        }
        if self.priority(new) > self.priority(root) {
            let (before, after) = self.split(root, new);
            self.link(new, before, after);
            return new;
        }
        let (left, right) = self.children(root);
        if self.is_before(new, root) {
            let left = self.insert(left, new);
            self.link(root, left, right);
        } else {
            let right = self.insert(right, new);
            self.link(root, left, right);
        }
        root
    }

    /// Removes a node from the treap at `root`, which contains it; returns the new root.
    pub(super) fn remove(&mut self, root: Slot, gone: Slot) -> Slot {
        assert!(root != NIL, "a table is where it was put");
        let (left, right) = self.children(root);
        if root == gone {
            return self.join(left, right);
        }
        if self.is_before(gone, root) {
            let left = self.remove(left, gone);
            self.link(root, left, right);
        } else {
            let right = self.remove(right, gone);
            self.link(root, left, right);
        }
        root
    }

    /// Passes the tables under `root` that overlap `first` to `last` to `visit`, by ascending first keys, until it
    /// returns false.
    pub(super) fn overlapping(
        &self,
        root: Slot,
        first: &[u8],
        last: &[u8],
        visit: &mut impl FnMut(Slot) -> bool,
    ) -> bool {
        if root == NIL || self.node(self.node(root).furthest).last() < first {
            return true;
        }
        let node = self.node(root);
        if !self.overlapping(node.left, first, last, visit) {
            return false;
        }
        if node.first() > last {
            return true;
        }
        (node.last() < first || visit(root)) && self.overlapping(node.right, first, last, visit)
    }

    fn node(&self, slot: Slot) -> &Node<T> {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    fn node_mut(&mut self, slot: Slot) -> &mut Node<T> {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    fn children(&self, slot: Slot) -> (Slot, Slot) {
        let node = self.node(slot);
        (node.left, node.right)
    }

    /// A node's priority in the heap: pseudo-random and stable.
    fn priority(&self, slot: Slot) -> u64 {
        super::mix(self.node(slot).object)
    }

    fn is_before(&self, one: Slot, other: Slot) -> bool {
        let (one, other) = (self.node(one), self.node(other));
        (one.first(), one.object) < (other.first(), other.object)
    }

    /// Sets the children of a node.
    fn link(&mut self, slot: Slot, left: Slot, right: Slot) {
        let mut furthest = slot;
        for child in [left, right] {
            if child != NIL {
                let other = self.node(child).furthest;
                if self.node(other).last() > self.node(furthest).last() {
                    furthest = other;
                }
            }
        }
        let node = self.node_mut(slot);
        (node.left, node.right, node.furthest) = (left, right, furthest);
    }

    /// The nodes before `at`, and those after it.
    fn split(&mut self, root: Slot, at: Slot) -> (Slot, Slot) {
        if root == NIL {
            return (NIL, NIL);
        }
        let (left, right) = self.children(root);
        if self.is_before(root, at) {
            let (before, after) = self.split(right, at);
            self.link(root, left, before);
            (root, after)
        } else {
            let (before, after) = self.split(left, at);
            self.link(root, after, right);
            (before, root)
        }
    }

    /// Joins two treaps of which one is all before the other.
    fn join(&mut self, before: Slot, after: Slot) -> Slot {
        if before == NIL || after == NIL {
            return if before == NIL { after } else { before };
        }
        if self.priority(before) > self.priority(after) {
            let (left, right) = self.children(before);
            let right = self.join(right, after);
            self.link(before, left, right);
            before
        } else {
            let (left, right) = self.children(after);
            let left = self.join(before, left);
            self.link(after, left, right);
            after
        }
    }
}
