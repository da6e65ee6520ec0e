//! The units that the requests of a trace touch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::trace::Request;

/// Numbers for the touched units of one size: from zero, in the order of their first access.
#[derive(Debug)]
pub(super) struct Units {
    bytes: u32,
    numbers: HashMap<(u32, u64), u32>,
}

impl Units {
    pub(super) fn new(bytes: u32) -> Self {
        Self { bytes, numbers: HashMap::new() }
    }

    /// Bytes of a unit.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The units touched so far: the footprint.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The units of a request, as volume and place on it.
    fn of(&self, request: &Request) -> impl Iterator<Item = (u32, u64)> + use<> {
        let (volume, bytes) = (request.volume, u64::from(self.bytes));
        let last = request.offset + u64::from(request.len.saturating_sub(1));
        (request.offset / bytes..=last / bytes).map(move |place| (volume, place))
    }

    /// Adds the units of a request; returns their count.
    ///
    /// # Errors
    /// More than four billion units.
    pub(super) fn add(&mut self, request: &Request) -> anyhow::Result<u64> {
        let mut count = 0;
        for unit in self.of(request) {
            count += 1;
            let next = self.numbers.len();
            if let Entry::Vacant(entry) = self.numbers.entry(unit) {
                anyhow::ensure!(
                    next < u32::MAX as usize,
                    "more than 4 billion units of {} B",
                    self.bytes
                );
                entry.insert(u32::try_from(next)?);
            }
        }
        Ok(count)
    }

    /// The numbers of a request's units. Leaves out what was never added.
    pub(super) fn numbers(&self, request: &Request) -> impl Iterator<Item = u32> {
        self.of(request).filter_map(|unit| self.numbers.get(&unit).copied())
    }
}
