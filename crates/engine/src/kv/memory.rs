//! The model that real stores are compared with.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::RwLock;

use super::{Change, Count, Durability, KeyRange, KeyValue, Result, Scan, within};

/// A map in memory: the model that real stores are compared with. It survives nothing.
#[derive(Debug, Default)]
pub struct Memory {
    map: RwLock<BTreeMap<Bytes, Bytes>>,
}

impl KeyValue for Memory {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let map = self.map.read();
        Ok(keys.iter().map(|key| map.get(key).cloned()).collect())
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        let mut map = self.map.write();
        for change in changes {
            match change.clone() {
                Change::Put(key, value) => {
                    map.insert(key, value);
                }
                Change::Delete(key) => {
                    map.remove(&key);
                }
                Change::DeleteRange(range) => map.retain(|key, _| !range.contains(key)),
            }
        }
        Ok(())
    }

    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
        let map = self.map.read();
        let mut entries = within(&map, &scan.range);
        let mut found = Vec::new();
        let mut bytes = 0;
        while found.len() < scan.entries_max && bytes < scan.bytes_max.max(1) {
            let next = if scan.reverse { entries.next_back() } else { entries.next() };
            let Some((key, value)) = next else { break };
            bytes += key.len() + value.len();
            found.push((key.clone(), value.clone()));
        }
        Ok(found)
    }

    fn count(&self, range: &KeyRange) -> Result<Count> {
        Ok(Count { keys: within(&self.map.read(), range).count() as u64, exact: true })
    }

    fn yields(&self) -> bool {
        // There is nothing to wait for.
        true
    }

    fn durability(&self) -> Durability {
        Durability::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::conformance::{self, Once};

    #[test]
    fn conforms() {
        conformance::run(|| Box::new(Once(Memory::default())));
    }
}
