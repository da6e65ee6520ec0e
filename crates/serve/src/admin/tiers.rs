//! `/tiers`: the fast sides of cache tiers, taken in use, flushed and taken out of use in service; answers as JSON.

use serde::{Deserialize, Serialize};

/// The answer to a `POST` below `/tiers/NAME`: the tier afterwards.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Tier {
    /// Its name in the settings.
    pub name: String,
    /// The name of the side with the cache.
    pub fast: String,
    /// The name of the side that has everything.
    pub slow: String,
    /// Whether the fast side is in use.
    pub attached: bool,
    /// Bytes written back to the slow side for the request, and by the tier's own flushes meanwhile.
    #[serde(default)]
    pub flushed_bytes: u64,
    /// Bytes given up by the request: reads of them fail until they are written.
    #[serde(default)]
    pub lost_bytes: u64,
    /// Bytes whose newest state is only on the fast side now.
    #[serde(default)]
    pub dirty_bytes: u64,
}
