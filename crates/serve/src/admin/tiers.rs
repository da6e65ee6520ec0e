//! `/tiers`: the fast sides of cache tiers, taken in use and out of use in service; answers as JSON.

use serde::{Deserialize, Serialize};

/// The answer to `POST /tiers/NAME/attach` and `POST /tiers/NAME/detach`: the tier afterwards.
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
}
