//! Numbers for volumes that a trace names.

use std::collections::HashMap;

use super::Mismatch;

/// No trace has as many: more means that the file has another format.
const VOLUMES_MAX: usize = 4096;

/// Volumes by name, numbered from zero in the order of appearance.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    names: HashMap<String, u32>,
}

impl Volumes {
    pub(super) fn number(&mut self, name: &str) -> Result<u32, Mismatch> {
        if let Some(number) = self.names.get(name) {
            return Ok(*number);
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        if self.names.len() >= VOLUMES_MAX {
            return Err("at most 4096 different volumes");
        }
        self.names.insert(name.to_owned(), number);
        Ok(number)
    }
}
