//! Keys that have to be unchanged when a transaction is done.

use bytes::Bytes;

use super::stripes::StripeIndex;
use super::{Keyspace, Result, Touch, Touches, Transaction};

/// A key as it was when it was watched.
#[derive(Clone, Debug)]
pub struct Watched {
    key: Bytes,
    stripe: StripeIndex,
    version: u64,
    /// Whether it existed, and its time was not over.
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
    /// Adds what a transaction has to touch to ask whether `watched` [is unchanged](
    /// Transaction::is_unchanged).
    pub fn add_watched(&mut self, watched: &Watched) {
        self.add(watched.key.clone(), Touch::Look);
        // A change is in the store before its stripe says so: without a lock, the transaction could see it in between.
        self.lock();
    }
}

impl Transaction<'_> {
    /// Whether the key is as it was. A change of another key may make it seem changed, seldom: who
    /// watches tries again.
    ///
    /// # Errors
    /// What the store reports.
    pub fn is_unchanged(&mut self, watched: &Watched) -> Result<bool> {
        Ok(self.space.stripes.version(watched.stripe) == watched.version
            && self.head(&watched.key)?.is_some() == watched.existed)
    }
}
