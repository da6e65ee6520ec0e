//! Inspecting a store without opening it: its blocks, and the segments of its write-ahead log.

use std::sync::Arc;

use volume::Volume;

use super::failed;
use super::open::{read_segment, segment_of};
use super::wal::Records;
use crate::log::{self, Member};
use crate::series::Result;

/// The suffix of the log store that has the blocks, after the store's name.
const BLOCKS: &str = "-blocks";

/// What an inspection found in a store that is not open.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inspected {
    /// The log store with the blocks and the catalogue.
    pub blocks: log::Inspected,
    /// Segments of the write-ahead log.
    pub segments: u64,
    /// Their whole records, and the bytes of these.
    pub records: u64,
    /// See `records`.
    pub record_bytes: u64,
    /// Segments that end in an invalid record: a crash cut them short, and no durable record is missing.
    pub torn: Vec<String>,
    /// Invalid places with whole records behind them. Opening the store reads a segment only up to the first such
    /// place.
    pub damage: Vec<Damage>,
}

/// A damaged place of the write-ahead log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damage {
    /// Volume and name of the segment.
    pub what: String,
    /// Where the damage begins, in bytes.
    pub offset: u64,
    /// Where the next whole record begins.
    pub resumes: u64,
}

/// The names of the stores of points on these volumes, each of which comes with its label.
///
/// # Errors
/// As for [`log::stores_on`].
pub async fn stores_on(members: &[(String, Arc<dyn Volume>)]) -> Result<Vec<String>> {
    let found = log::stores_on(&to_log(members)).await.map_err(|error| failed(&error))?;
    let names = found.iter().filter_map(|name| name.strip_suffix(BLOCKS));
    Ok(names.map(str::to_owned).collect())
}

/// Inspects the store called `name` on these volumes. Reads its whole write-ahead log, and with `scrub` every block.
/// Changes nothing, but a pool repairs damaged copies that it finds this way.
///
/// # Errors
/// As for [`log::inspect`].
pub async fn inspect(
    members: &[(String, Arc<dyn Volume>)],
    name: &str,
    scrub: bool,
) -> Result<Inspected> {
    let blocks = log::inspect(&to_log(members), &format!("{name}{BLOCKS}"), scrub).await;
    let mut found =
        Inspected { blocks: blocks.map_err(|error| failed(&error))?, ..Inspected::default() };
    let Some(store) = found.blocks.store else { return Ok(found) };
    for (label, volume) in members {
        for listed in volume.list().await.map_err(|error| failed(&error))? {
            let Some(segment) = segment_of(name, &listed.name) else { continue };
            let what = format!("volume {label}: {}", listed.name);
            let object = volume.open(&listed.name).await.map_err(|error| failed(&error))?;
            let bytes = read_segment(&*object, store, segment).await?;
            found.segments += 1;
            let Some(mut records) = Records::new(&bytes, store, segment) else {
                // A crash came before its header was written.
                found.torn.push(what);
                continue;
            };
            loop {
                let start = records.end();
                found.records += records.by_ref().count() as u64;
                found.record_bytes += (records.end() - start) as u64;
                let Some(resumes) = records.resume() else { break };
                let (what, offset) = (what.clone(), records.end() as u64);
                found.damage.push(Damage { what, offset, resumes: resumes as u64 });
                records.skip_to(resumes);
            }
            if records.end() < bytes.len() {
                found.torn.push(what);
            }
        }
    }
    Ok(found)
}

fn to_log(members: &[(String, Arc<dyn Volume>)]) -> Vec<Member> {
    let member = |(label, volume): &(String, Arc<dyn Volume>)| {
        Member::new(label.clone(), Arc::clone(volume))
    };
    members.iter().map(member).collect()
}
