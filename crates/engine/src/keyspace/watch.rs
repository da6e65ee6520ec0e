//! Keys that must not have changed when a transaction runs.

use bytes::Bytes;

use super::stripes::StripeIndex;
use super::{Keyspace, Result, Touch, Touches, Transaction};

/// A key as it was when it was watched.
#[derive(Clone, Debug)]
pub struct Watched {
    key: Bytes,
    stripe: StripeIndex,
    version: u64,
    /// Whether it existed and was not expired.
    existed: bool,
}

impl Keyspace {
    /// Watches `key` from now on.
    ///
    /// # Errors
    /// What the store reports.
    pub fn watch(&self, key: &Bytes) -> Result<Watched> {
        let mut touches = Touches::default();
        touches.add(key.clone(), Touch::Read);
        let mut transaction = self.begin(&touches)?;
        let existed = transaction.head(key)?.is_some();
        let stripe = self.stripes.of(key);
        let version = self.stripes.version(stripe);
        Ok(Watched { key: key.clone(), stripe, version, existed })
    }
}

impl Touches {
    /// Adds the touch that a transaction needs to ask whether `watched` [is unchanged](Transaction::is_unchanged).
    pub fn add_watched(&mut self, watched: &Watched) {
        self.add(watched.key.clone(), Touch::Look);
        // A commit writes to the store before it marks the stripe: without a lock, the transaction could run in
        // between.
        self.lock();
    }
}

impl Transaction<'_> {
    /// Whether the key is as it was. Rarely a change of another key of its stripe makes it seem changed: the client
    /// tries again.
    ///
    /// # Errors
    /// What the store reports.
    pub fn is_unchanged(&mut self, watched: &Watched) -> Result<bool> {
        Ok(self.space.stripes.version(watched.stripe) == watched.version
            && self.head(&watched.key)?.is_some() == watched.existed)
    }
}
