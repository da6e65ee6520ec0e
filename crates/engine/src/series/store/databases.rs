//! Creating and dropping databases.

use super::catalogue::DatabaseFacts;
use super::query::Query;
use super::upkeep::Upkeep;
use super::{Inner, in_doubt};
use crate::series::{Database, Error, Result, Selector, Span};

/// A limit because one record holds them all, and a write to a missing database may create it.
const DATABASES_MAX: usize = 10_000;

impl Inner {
    pub(super) async fn create_database(&self, database: Database) -> Result<()> {
        let Database { name, keep } = database;
        if !(1..=255).contains(&name.len()) {
            return Err(Error::Invalid(format!(
                "database {name:?}: give it a name of 1 to 255 bytes"
            )));
        }
        let upkeep = self.upkeep.lock().await;
        let max = self.sizes.block;
        let (id, databases) = {
            let catalogue = &mut self.state().catalogue;
            let count = catalogue.databases.len();
            // Names, and numbers of at most 40 bytes.
            let bytes: usize = catalogue.databases.keys().map(|name| name.len() + 40).sum();
            let mut databases = catalogue.databases.clone();
            let id = catalogue.next_database;
            match databases.get_mut(&name) {
                Some(facts) if facts.keep == keep => return Ok(()),
                Some(facts) => facts.keep = keep,
                None if count >= DATABASES_MAX || bytes + 600 > max => {
                    return Err(Error::Invalid(format!(
                        "there are {count} databases, and no room for another: drop some"
                    )));
                }
                None => {
                    catalogue.next_database += 1;
                    databases.insert(name.clone(), DatabaseFacts::new(id, keep));
                }
            }
            (id, databases)
        };
        // No writer finds it before it is durable: a start would not know the database of its points.
        self.write_meta_with(upkeep.floor, databases).await?;
        let mut state = self.state();
        let facts = state.catalogue.databases.entry(name);
        facts.or_insert_with(|| DatabaseFacts::new(id, keep)).keep = keep;
        Ok(())
    }

    pub(super) async fn drop_database(&self, name: &str) -> Result<bool> {
        let mut upkeep = self.upkeep.lock().await;
        // From here on no write finds it.
        let facts = self.state().catalogue.databases.remove(name);
        let Some(facts) = facts else {
            // An earlier call may have dropped it without making that durable.
            self.store_databases(&mut upkeep).await?;
            return Ok(false);
        };
        let id = facts.id;
        let queued = match self
            .queue_delete(&Query::dropped(self, &Selector::all(name), id), Span::ALL)
        {
            Ok((logged, cuts)) => self.commit(logged.ticket, true).await.map(|()| (logged, cuts)),
            Err(error) => Err(error),
        };
        let (logged, cuts) = match queued {
            Ok(queued) => queued,
            Err(error) => {
                self.state().catalogue.databases.insert(name.to_string(), facts);
                return Err(error);
            }
        };
        upkeep.is_meta_owed = true;
        let done = self.carry_out(&mut upkeep, cuts, logged.segment).await;
        self.state().catalogue.forget_database(id);
        self.tidy();
        done?;
        self.store_databases(&mut upkeep).await?;
        Ok(true)
    }

    /// Stores that databases were dropped, unless that is stored already.
    pub(super) async fn store_databases(&self, upkeep: &mut Upkeep) -> Result<()> {
        if upkeep.is_meta_owed {
            // The log has the delete, so the database does not come back if this fails for lack of room.
            self.write_catalogue().await.map_err(in_doubt)?;
            self.write_meta(upkeep.floor).await.map_err(in_doubt)?;
            upkeep.is_meta_owed = false;
        }
        Ok(())
    }
}
