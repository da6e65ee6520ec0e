//! Every decision Plimsoll makes, as pure functions of (state, event, now).
//!
//! The crate does no I/O, waits for nothing, takes no lock, logs nothing, starts no thread and never asks the time.
//! State, a request and an [`time::Instant`] come in; plain data goes out. The shells that act on it live in the crates
//! above.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod budget;
pub mod cache;
pub mod code;
pub mod contract;
pub mod descriptors;
pub mod disk;
pub mod estimate;
pub mod heat;
pub mod inherit;
pub mod intent;
pub mod key_counts;
pub mod latency;
pub mod merge;
pub mod migrate;
pub mod parity_log;
pub mod placement;
pub mod prefetch;
pub mod pressure;
pub mod price;
pub mod promote;
pub mod provider;
pub mod purpose;
pub mod read_time;
pub mod reclaim;
pub mod recycle;
pub mod room;
pub mod route;
pub mod sched;
pub mod scrub;
pub mod steps;
pub mod time;
pub mod units;
pub mod valve;
pub mod weight;
