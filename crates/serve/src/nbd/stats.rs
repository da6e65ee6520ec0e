//! The counters of an NBD listener since the program started.

use super::wire::{Command, Errno};
use crate::figures::Counter;

/// The commands that are counted, by the names of their figures.
const COMMANDS: [(Command, &str); 7] = [
    (Command::Read, "read"),
    (Command::Write, "write"),
    (Command::Flush, "flush"),
    (Command::Trim, "trim"),
    (Command::Cache, "cache"),
    (Command::WriteZeroes, "write_zeroes"),
    (Command::BlockStatus, "block_status"),
];

/// The errors that are counted, by the names of their figures.
const ERRORS: [(Errno, &str); 7] = [
    (Errno::Perm, "perm"),
    (Errno::Io, "io"),
    (Errno::Invalid, "invalid"),
    (Errno::NoSpace, "no_space"),
    (Errno::Overflow, "overflow"),
    (Errno::NotSupported, "not_supported"),
    (Errno::Shutdown, "shutdown"),
];

/// The figures of one NBD listener.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections open now.
    pub open: Counter,
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections rejected at the limit.
    pub rejected: Counter,
    /// Connections without a device that were displaced by new ones.
    pub shed: Counter,
    /// Connections that have chosen a device and are open now.
    pub attached: Counter,
    /// Requests in progress.
    pub in_flight: Counter,
    /// Writes that became part of the write before them.
    pub merged: Counter,
    requests: [Counter; COMMANDS.len()],
    bytes: [Counter; COMMANDS.len()],
    errors: [Counter; ERRORS.len()],
}

impl Stats {
    /// The requests that devices were asked to do, by command.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(&COMMANDS, &self.requests)
    }

    /// The bytes of these requests' ranges, by command.
    pub fn bytes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(&COMMANDS, &self.bytes)
    }

    /// The requests that failed, by error.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(&ERRORS, &self.errors)
    }

    /// Counts a request that begins, and as one in flight until the result is dropped.
    pub(super) fn begin(&self, command: Command, bytes: u64) -> Held<'_> {
        if let Some(index) = COMMANDS.iter().position(|&(known, _)| known == command) {
            self.requests[index].add_one();
            self.bytes[index].add(bytes);
        }
        Held::new(&self.in_flight)
    }

    /// Counts a request that failed.
    pub(super) fn failed(&self, error: Errno) {
        if let Some(index) = ERRORS.iter().position(|&(known, _)| known == error) {
            self.errors[index].add_one();
        }
    }
}

fn named<T>(
    names: &'static [(T, &'static str)],
    counters: &[Counter],
) -> impl Iterator<Item = (&'static str, u64)> {
    names.iter().zip(counters).map(|(&(_, name), counter)| (name, counter.get()))
}

/// Counts one more until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Counter);

impl<'a> Held<'a> {
    pub(super) fn new(counter: &'a Counter) -> Self {
        counter.add_one();
        Self(counter)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}
