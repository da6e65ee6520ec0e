//! Truncating the write-ahead log: stores catalogue, sessions and databases, and removes segments.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::catalogue::DatabaseFacts;
use super::key;
use super::pages::Meta;
use super::upkeep::Upkeep;
use super::{Inner, failed, in_doubt};
use crate::log::Edit;
use crate::series::Result;

impl Inner {
    /// Makes durable the facts that the log holds about rows in blocks, and removes segments that are not needed.
    pub(super) async fn checkpoint(&self, upkeep: &mut Upkeep) -> Result<()> {
        let (ticket, floor, sessions) = {
            let mut state = self.state();
            let sessions = state.sessions.encode(self.sizes.block);
            (state.queue.standing(), state.floor(), sessions)
        };
        // A stored session whose batch was lost would have the batch refused for ever.
        self.commit(ticket, true).await?;
        self.write_catalogue().await?;
        self.put_record(Bytes::from_static(key::SESSIONS), sessions).await?;
        self.log.sync().await.map_err(|error| failed(&error))?;
        // Store the new floor before removing segments: a removed segment that reappeared after a crash would put old
        // points over newer ones.
        self.write_meta(floor).await?;
        upkeep.floor = floor;
        self.forget_segments(floor).await;
        Ok(())
    }

    pub(super) async fn write_meta(&self, floor: u32) -> Result<()> {
        let databases = self.state().catalogue.databases.clone();
        self.write_meta_with(floor, databases).await
    }

    pub(super) async fn write_meta_with(
        &self,
        floor: u32,
        databases: BTreeMap<String, DatabaseFacts>,
    ) -> Result<()> {
        let (meta, clock) = {
            let state = self.state();
            let catalogue = &state.catalogue;
            let meta = Meta {
                floor,
                next_database: catalogue.next_database,
                next_measurement: catalogue.next_measurement,
                next_source: catalogue.sources.next(),
                databases,
            };
            (meta.encode(), state.away.encode(self.clock.wall()))
        };
        let put = |key, value| Edit::Put { key: Bytes::from_static(key), value, lives: None };
        let edits = vec![put(key::META, meta), put(key::CLOCK, clock)];
        self.log.write_upkeep(edits).await.map_err(|error| failed(&error))?;
        self.log.sync().await.map_err(|error| in_doubt(failed(&error)))
    }
}
