//! Sets of fields, each stored once and counted by use.

use std::collections::HashMap;
use std::sync::Arc;

/// The empty set, which new sources have.
pub(super) const EMPTY: u32 = 0;
/// The memory of a set besides its fields, in bytes: its place, its entry in the map, the allocation.
const SET_COST: usize = 88;

#[derive(Debug)]
struct Set {
    /// Ascending.
    fields: Arc<[u16]>,
    users: u32,
}

/// All sets, by number.
#[derive(Debug)]
pub(super) struct Sets {
    all: Vec<Set>,
    free: Vec<u32>,
    ids: HashMap<Arc<[u16]>, u32>,
    bytes: usize,
}

impl Default for Sets {
    fn default() -> Self {
        let empty: Arc<[u16]> = [].into();
        let ids = HashMap::from([(Arc::clone(&empty), EMPTY)]);
        // Its one use is never released.
        Self { all: vec![Set { fields: empty, users: 1 }], free: Vec::new(), ids, bytes: 0 }
    }
}

impl Sets {
    /// The fields of a set, ascending.
    pub(super) fn get(&self, set: u32) -> &[u16] {
        &self.all[set as usize].fields
    }

    /// The number of a set, given its ascending fields, if it exists.
    pub(super) fn find(&self, fields: &[u16]) -> Option<u32> {
        self.ids.get(fields).copied()
    }

    /// The number of a set, given its ascending fields, with one use more.
    pub(super) fn acquire(&mut self, fields: &[u16]) -> u32 {
        if fields.is_empty() {
            return EMPTY;
        }
        if let Some(set) = self.find(fields) {
            self.all[set as usize].users += 1;
            return set;
        }
        self.bytes += SET_COST + fields.len() * 2;
        let fields: Arc<[u16]> = fields.into();
        let new = Set { fields: Arc::clone(&fields), users: 1 };
        let set = match self.free.pop() {
            Some(set) => {
                self.all[set as usize] = new;
                set
            }
            None => {
                self.all.push(new);
                self.all.len() as u32 - 1
            }
        };
        self.ids.insert(fields, set);
        set
    }

    /// Counts one use less.
    pub(super) fn release(&mut self, set: u32) {
        if set == EMPTY {
            return;
        }
        let of = &mut self.all[set as usize];
        of.users -= 1;
        if of.users > 0 {
            return;
        }
        let fields = std::mem::replace(&mut of.fields, [].into());
        self.bytes -= SET_COST + fields.len() * 2;
        self.ids.remove(&fields);
        self.free.push(set);
    }

    /// Bytes in use.
    pub(super) fn memory(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_kept_once_and_while_something_has_it() {
        let mut sets = Sets::default();
        let ab = sets.acquire(&[1, 2]);
        assert_eq!((sets.acquire(&[1, 2]), sets.acquire(&[])), (ab, EMPTY));
        let a = sets.acquire(&[1]);
        assert!(a != ab && sets.get(ab) == [1, 2] && sets.memory() > 0);
        sets.release(ab);
        assert_eq!(sets.find(&[1, 2]), Some(ab));
        sets.release(ab);
        assert_eq!(sets.find(&[1, 2]), None);
        assert_eq!(sets.acquire(&[7]), ab, "its place is free");
        sets.release(ab);
        sets.release(a);
        sets.release(EMPTY);
        assert_eq!((sets.memory(), sets.get(EMPTY).len()), (0, 0));
    }
}
