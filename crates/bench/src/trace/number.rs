//! Numbers in lines of text.

use std::str::FromStr;
use std::time::Duration;

use super::{Mismatch, Request};

/// The next field as a number.
pub(super) fn next<T: FromStr>(field: Option<&str>, expected: Mismatch) -> Result<T, Mismatch> {
    field.and_then(|field| field.trim().parse().ok()).ok_or(expected)
}

/// The bytes from which `count` blocks of `block_bytes` bytes start.
pub(super) fn bytes(count: u64, block_bytes: u64) -> Result<u64, Mismatch> {
    count.checked_mul(block_bytes).ok_or("a block within the first 16 EiB")
}

/// The request, if its end fits in 64 bits and it has a length.
pub(super) fn within_bounds(request: Request) -> Result<Option<Request>, Mismatch> {
    match request.offset.checked_add(u64::from(request.len)) {
        Some(_) => Ok((request.len > 0).then_some(request)),
        None => Err("a request that ends within the first 16 EiB"),
    }
}

/// Times of a trace, counted from its first one.
#[derive(Debug, Default)]
pub(super) struct Origin(Option<Duration>);

impl Origin {
    /// The time since the first one that was asked for; zero for an earlier one.
    pub(super) fn since(&mut self, time: Duration) -> Duration {
        time.saturating_sub(*self.0.get_or_insert(time))
    }

    /// The same for seconds with a fraction.
    pub(super) fn since_secs(&mut self, secs: f64) -> Result<Duration, Mismatch> {
        let time = Duration::try_from_secs_f64(secs);
        time.map(|time| self.since(time)).map_err(|_| "a time in seconds")
    }
}
