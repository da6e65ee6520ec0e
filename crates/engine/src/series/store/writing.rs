//! Batches of changes to the log store.

use super::key::BlockKey;
use super::sizes::Sizes;
use super::{Counts, Inner, failed};
use crate::log::Edit;
use crate::series::Result;

/// Edits for the log store, in batches of a size that it takes.
pub(super) struct Writing<'a> {
    inner: &'a Inner,
    max: usize,
    edits: Vec<Edit>,
    bytes: usize,
}

impl<'a> Writing<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        // A part of the reserve of upkeep: merges reclaim replaced records before the next batch.
        let part = usize::try_from(inner.options.buffer_bytes / 4).unwrap_or(usize::MAX);
        Self { inner, max: inner.sizes.batch.min(part), edits: Vec::new(), bytes: 0 }
    }

    /// Adds an edit; first writes the earlier ones if they would be too many together.
    pub(super) async fn add(&mut self, edit: Edit) -> Result<()> {
        let bytes = Sizes::edit(&edit);
        if self.bytes + bytes > self.max {
            self.write().await?;
        }
        if let Edit::Put { key, value, .. } = &edit
            && BlockKey::parse(key).is_some()
        {
            Counts::add(&self.inner.counts.blocks, 1);
            Counts::add(&self.inner.counts.block_bytes, value.len() as u64);
        }
        self.edits.push(edit);
        self.bytes += bytes;
        Ok(())
    }

    /// Writes the rest.
    pub(super) async fn end(mut self) -> Result<()> {
        self.write().await
    }

    async fn write(&mut self) -> Result<()> {
        self.bytes = 0;
        let edits = std::mem::take(&mut self.edits);
        if edits.is_empty() {
            return Ok(());
        }
        self.inner.log.write_upkeep(edits).await.map_err(|error| failed(&error))
    }
}
