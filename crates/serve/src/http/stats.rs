//! The counters of a listener.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;

use super::server::Connections;
use crate::figures::Counter;

/// The counters of a listener, from zero when it is made.
#[derive(Debug, Default)]
pub struct Stats {
    /// Rows stored.
    pub rows: Counter,
    /// Points in them.
    pub points: Counter,
    /// Lines and rows refused.
    pub dropped: Counter,
    /// Batches that were stored before.
    pub repeated: Counter,
    /// Bytes of bodies, as received.
    pub bytes_in: Counter,
    /// Bytes of answers to queries.
    pub bytes_out: Counter,
    /// Writes told to retry.
    pub busy: Counter,
    /// Statements and queries.
    pub queries: Counter,
    /// The durations of writes, from the header to the answer.
    pub write_times: Times,
    /// The durations of queries, until their client had the whole answer.
    pub query_times: Times,
    /// Its connections.
    pub connections: Arc<Connections>,
    /// Requests by kind and outcome.
    requests: [[Counter; OUTCOMES.len()]; WANTED.len()],
}

/// The kinds of requests.
const WANTED: [&str; 4] = ["write", "query", "api", "other"];
/// Their outcomes, by status.
const OUTCOMES: [&str; 3] = ["done", "refused", "failed"];

impl Stats {
    /// Counts an answered request.
    pub(super) fn answered(&self, path: &str, status: StatusCode) {
        let wanted = match path {
            "/write" | "/api/v2/write" => 0,
            "/query" => 1,
            path if path.starts_with("/api/") => 2,
            _ => 3,
        };
        let outcome = match status {
            status if status.is_server_error() => 2,
            status if status.is_client_error() => 1,
            _ => 0,
        };
        self.requests[wanted][outcome].add_one();
    }

    /// Requests by kind (`write`, `query`, `api`, `other`) and outcome (`done`; `refused`, a client's error; `failed`,
    /// a server's error), with their numbers.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        WANTED.into_iter().zip(&self.requests).flat_map(|(wanted, counts)| {
            let counts = OUTCOMES.into_iter().zip(counts);
            counts.map(move |(outcome, n)| (wanted, outcome, n.get()))
        })
    }
}

/// A histogram of durations, in octaves from a quarter of a millisecond on.
#[derive(Debug, Default)]
pub struct Times {
    counts: [Counter; BOUNDS],
    total_nanos: Counter,
}

/// Up to half a minute, and one bucket for longer ones.
const BOUNDS: usize = 19;
const SHORTEST: Duration = Duration::from_micros(250);

impl Times {
    pub(super) fn add(&self, took: Duration) {
        let octave = (0..BOUNDS - 1).find(|&octave| took <= SHORTEST * (1 << octave));
        self.counts[octave.unwrap_or(BOUNDS - 1)].add_one();
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.total_nanos.add(nanos);
    }

    /// The sum of all.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_nanos.get())
    }

    /// The number up to each bound and above the previous one; the last has no bound.
    pub fn octaves(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.counts.iter().enumerate().map(|(octave, count)| {
            let bound = if octave < BOUNDS - 1 { SHORTEST * (1 << octave) } else { Duration::MAX };
            (bound, count.get())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_octaves() {
        let times = Times::default();
        for micros in [0, 250, 251, 500, 1_000_000_000] {
            times.add(Duration::from_micros(micros));
        }
        let counts: Vec<_> = times.octaves().filter(|(_, count)| *count > 0).collect();
        let octave = |micros| Duration::from_micros(micros);
        assert_eq!(counts, [(octave(250), 2), (octave(500), 2), (Duration::MAX, 1)]);
        assert_eq!(times.total(), Duration::from_micros(1_000_001_001));
    }

    #[test]
    fn requests_are_told_apart_by_what_they_want() {
        let stats = Stats::default();
        stats.answered("/api/v2/write", StatusCode::NO_CONTENT);
        stats.answered("/api/points", StatusCode::BAD_REQUEST);
        stats.answered("/query", StatusCode::SERVICE_UNAVAILABLE);
        let seen: Vec<_> = stats.requests().filter(|(.., count)| *count > 0).collect();
        assert_eq!(seen, [("write", "done", 1), ("query", "failed", 1), ("api", "refused", 1)]);
    }
}
