//! Reading the tables of a block.

use super::Inner;
use super::failed;
use super::key::{BlockKey, GROUP_BITS, Owner};
use crate::series::Result;
use crate::series::block::{Block, Table};

impl Inner {
    /// The tables of a block without owed deletes; `None` if the block is gone.
    pub(super) async fn tables(&self, key: &BlockKey) -> Result<Option<Vec<(u32, Table)>>> {
        let Some((mut tables, _)) = self.measured_tables(key).await? else { return Ok(None) };
        let owed = self.state().owed.clone();
        for owed in owed.iter().filter(|owed| key.round < owed.before) {
            for (source, table) in &mut tables {
                owed.cuts.apply(*source, table);
            }
        }
        tables.retain(|(_, table)| !table.times.is_empty());
        Ok(Some(tables))
    }

    /// The tables of a block, owed deletes included, and its length; `None` if the block is gone.
    pub(super) async fn measured_tables(
        &self,
        key: &BlockKey,
    ) -> Result<Option<(Vec<(u32, Table)>, usize)>> {
        let name = key.bytes();
        let source = match key.slot.owner {
            Owner::Source(source) => source,
            Owner::Group(group) => group << GROUP_BITS,
        };
        let Some(bytes) = self.log.get(&name).await.map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        let block = Block::open(&name, &bytes).map_err(|bad| self.of_block(key, source, bad))?;
        let tables = block.tables().map_err(|bad| self.of_block(key, source, bad))?;
        Ok(Some((tables, bytes.len())))
    }
}
