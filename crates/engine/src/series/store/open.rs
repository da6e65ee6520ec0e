//! Opening: reads the catalogue and replays the write-ahead log. Reads no blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use policy::time::Instant;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use volume::again;
use volume::task::yield_now;
use volume::{Check, Clock, IoBufMut, Name, Object, Volume};

use super::away::Away;
use super::commit::Writer;
use super::flush::Which;
use super::key::{self, BlockKey};
use super::overwritten::Dropped;
use super::pages::{self, Meta};
use super::replay::Numbers;
use super::rounds::SEGMENTS;
use super::sizes::Sizes;
use super::state::{Limits, SeriesState};
use super::tend::Heartbeats;
use super::upkeep::Upkeep;
use super::wal::{self, Records};
use super::{Counts, Inner, Options, Store, failed};
use crate::log::{self, Durability, Member, StoreId};
use crate::series::{Error, Result};

const OPEN: Io = Io::new(Origin::Open, Step::Log);
/// How many bytes of a segment one read takes, and how many such reads are under way.
const STEP: usize = 1 << 20;
const AHEAD: usize = 4;
/// Segments that are read side by side, and those that wait for their replay.
const READ_AT_ONCE: usize = 2;
const READ_AHEAD: usize = 1;
/// Bytes that are replayed before the next read is begun.
const YIELD_AFTER: usize = 256 << 10;
/// The smallest buffers.
const BUFFERS_MIN: u64 = 64 << 10;
/// The most of the volumes that the write-ahead log takes, 1/16.
const WAL_SHARE: u64 = 16;

/// The findings of an opening.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The log store under it.
    pub log: log::Report,
    /// Replayed segments of the write-ahead log, and the bytes replayed.
    pub segments: u64,
    /// See `segments`.
    pub segment_bytes: u64,
    /// Blocks that the replay wrote, since memory did not hold the rows or rows had been deleted.
    pub blocks: u64,
    /// How long the opening of the log store took.
    pub log_took: Duration,
    /// How long the replay took.
    pub replay_took: Duration,
    /// Segments that end in an invalid record: a crash cut them short.
    pub torn: Vec<String>,
    /// Records with a valid checksum but inconsistent contents, by object: their points are lost.
    pub damage: Vec<String>,
}

impl Store {
    /// Opens the store on these volumes, each given with its label; creates it if `create` gives an id and there is
    /// none.
    ///
    /// # Errors
    /// As for [`log::Store::open`].
    pub async fn open(
        members: Vec<(String, Arc<dyn Volume>)>,
        mut options: Options,
        clock: Clock,
        create: Option<StoreId>,
    ) -> Result<(Self, Report)> {
        Name::new(&format!("{}-wal/0.log", options.name)).map_err(|error| failed(&error))?;
        if options.buffer_bytes < BUFFERS_MIN {
            return Err(Error::Invalid("buffer_bytes: give at least 64 KiB".into()));
        }
        let mut blocks = options.log.clone();
        blocks.name = format!("{}-blocks", options.name);
        blocks.durability = Durability::Never;
        // The reserve holds all buffers twice: the blocks of a flush, and the rewritten blocks while those they replace
        // are still there.
        blocks.set_aside = 2 * options.buffer_bytes / members.len().max(1) as u64;
        let to_member = |(label, volume): &(String, Arc<dyn Volume>)| {
            Member::new(label.clone(), Arc::clone(volume))
        };
        let log_members = members.iter().map(to_member).collect();
        let began = clock.now();
        let (log, log_report) = log::Store::open(log_members, blocks, clock.clone(), create)
            .await
            .map_err(|error| failed(&error))?;
        let mut report = Report { log: log_report, ..Report::default() };
        report.log_took = clock.now().since(began);
        let (set_aside, capacity) = log.room_set_aside();
        options.buffer_bytes = options.buffer_bytes.min(set_aside / 2).max(BUFFERS_MIN);
        options.wal_bytes = options.wal_bytes.min(capacity / WAL_SHARE);

        let meta = match get(&log, key::META).await? {
            // A new store writes this record before all others.
            None if log.keys(b"", None, 1).is_empty() => Meta::default(),
            None => return Err(damaged("databases")),
            Some(bytes) => Meta::decode(&bytes).ok_or_else(|| damaged("databases"))?,
        };
        let mut segments = Vec::new();
        let mut segment_sizes = BTreeMap::new();
        for (position, (label, _)) in members.iter().enumerate() {
            let volume = log.volume(position);
            for listed in volume.list().await.map_err(|error| failed(&error))? {
                let Some(segment) = segment_of(&options.name, &listed.name) else { continue };
                if segment < meta.floor {
                    // A removed segment that reappeared.
                    volume.remove(&listed.name).await.map_err(|error| failed(&error))?;
                } else {
                    log.count_beside(position, listed.len, 0);
                    segment_sizes.insert(segment, listed.len);
                    segments.push((segment, label.clone(), Arc::clone(&volume), listed.name));
                }
            }
        }
        segments.sort_by_key(|segment| segment.0);
        let newest = segments.last().map_or(meta.floor, |segment| segment.0);
        let segment = newest.checked_add(1).ok_or_else(|| damaged("write-ahead log"))?;
        let sizes = Sizes::of(&log);
        let limits = Limits {
            buffer_bytes: options.buffer_bytes as usize,
            source_bytes: options.source_bytes as usize,
            segment_bytes: (options.wal_bytes / SEGMENTS).clamp(4 << 10, 64 << 20),
            series: options.series_max,
            value_bytes: sizes.text(),
        };
        let mut state = SeriesState::new(log.id(), segment, limits);
        state.round = u64::from(segment) << 32;
        let floor = meta.floor;
        load(&log, &mut state, meta, clock.now()).await?;
        let ended = get(&log, key::CLOCK).await?.and_then(|bytes| Away::decode(&bytes));
        state.away =
            ended.map_or_else(Away::default, |ended| Away::since(ended, clock.wall(), clock.now()));
        // The new segment exists before any newer record, so its number is not used again.
        state.queue.begin();
        let opened = clock.now();
        let heartbeats = Heartbeats::new(options.durability, &clock);
        let inner = Inner {
            log,
            options,
            clock,
            members,
            state: Mutex::new(state),
            wal_bytes: AtomicU64::new(segment_sizes.values().sum()),
            writer: AsyncMutex::new(Writer::new(segment_sizes)),
            upkeep: AsyncMutex::new(Upkeep::new(floor)),
            closing: AtomicBool::new(false),
            refusing: Mutex::default(),
            waits_since: Mutex::default(),
            counts: Counts::default(),
            opened,
            heartbeats,
            sizes,
            dropped: Dropped::default(),
        };
        let ticket = inner.state().queue.ticket;
        match inner.commit(ticket, true).await {
            // Not even the reserve has room. New rounds follow those of all blocks.
            Err(Error::OutOfSpace(why)) => {
                tracing::warn!(store = %inner.options.name, %why, "the store is open, but its volumes are full");
                let round = inner.newest_round();
                let mut state = inner.state();
                state.round = state.round.max(round + 1);
            }
            begun => begun?,
        }
        let id = inner.log.id();
        let reads = segments.into_iter().map(async |(number, label, volume, name)| {
            let object = volume.open(&name).await.map_err(|error| failed(&error))?;
            let bytes = read_segment(&*object, id, number).await?;
            // Blocks written from it could otherwise survive a crash that loses its dirty pages.
            object.sync(OPEN).await.map_err(|error| failed(&error))?;
            Ok::<Segment, Error>((number, format!("{label}: {name}"), bytes))
        });
        let mut reads = stream::iter(reads).buffered(READ_AT_ONCE);
        let (ready, next) = mpsc::channel(READ_AHEAD);
        let reading = async move {
            while let Some(read) = reads.next().await {
                // A replay that failed takes no more.
                if ready.send(read).await.is_err() {
                    break;
                }
            }
        };
        let (_, replayed) = join(reading, inner.replay_all(next, &mut report)).await;
        replayed?;
        report.replay_took = inner.clock.now().since(opened);
        report.blocks = inner.counts.blocks.load(Ordering::Relaxed);
        Ok((Self(Arc::new(inner)), report))
    }
}

/// A segment of the write-ahead log: its number, its name for people, and its bytes.
type Segment = (u32, String, Vec<u8>);

impl Inner {
    /// Replays segments while later ones are read.
    async fn replay_all(
        &self,
        mut segments: mpsc::Receiver<Result<Segment>>,
        report: &mut Report,
    ) -> Result<()> {
        while let Some(read) = segments.recv().await {
            let (number, what, bytes) = read?;
            report.segments += 1;
            self.replay(number, &bytes, &what, report).await?;
        }
        Ok(())
    }

    async fn replay(
        &self,
        segment: u32,
        bytes: &[u8],
        what: &str,
        report: &mut Report,
    ) -> Result<()> {
        let Some(mut records) = Records::new(bytes, self.log.id(), segment) else {
            // A crash came before its header was written.
            report.torn.push(what.into());
            return Ok(());
        };
        let mut upkeep = self.upkeep.lock().await;
        let (mut numbers, mut yielded) = (Numbers::default(), 0);
        while let Some(body) = records.next() {
            if records.end() - yielded > YIELD_AFTER {
                yielded = records.end();
                yield_now().await;
            }
            let done = match body.split_first() {
                Some((&wal::BATCH, body)) => {
                    let now = self.clock.now();
                    self.state().replay(body, segment, &mut numbers, now)
                }
                Some((&wal::DELETE, body)) => match self.redo(&mut upkeep, segment, body).await {
                    Some(done) => Some(done?),
                    None => None,
                },
                _ => None,
            };
            if done.is_none() {
                report.damage.push(format!("{what}: the record before byte {}", records.end()));
            }
            // A start waits for what is written here. Upkeep writes the rest when the store serves.
            match self.make_room(&mut upkeep, self.options.buffer_bytes as usize).await {
                // The log respects its limit, so its rows fit memory.
                Err(Error::OutOfSpace(_)) => {}
                made => made?,
            }
        }
        report.segment_bytes += records.end() as u64;
        if records.end() < bytes.len() {
            report.torn.push(what.into());
        }
        // Write rows that the last run took and did not write.
        match self.write_blocks(&mut upkeep, Which::Taken, None).await {
            Ok(_) | Err(Error::OutOfSpace(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The latest round of any block.
    fn newest_round(&self) -> u64 {
        let keys = self.log.keys(b"", None, usize::MAX);
        let rounds = keys.iter().filter_map(|key| BlockKey::parse(key)).map(|key| key.round);
        rounds.max().unwrap_or(0)
    }
}

async fn load(log: &log::Store, state: &mut SeriesState, meta: Meta, now: Instant) -> Result<()> {
    let catalogue = &mut state.catalogue;
    (catalogue.databases, catalogue.next_database) = (meta.databases, meta.next_database);
    catalogue.next_measurement = meta.next_measurement;
    catalogue.sources.pass_over(meta.next_source);
    let number = |key: &[u8]| Some(u32::from_be_bytes(*key.get(1..)?.first_chunk()?));
    for key in log.keys(&[key::MEASUREMENT], None, usize::MAX) {
        let bytes = get(log, &key).await?;
        if let (Some(id), Some(bytes)) = (number(&key), bytes) {
            pages::load_measurement(catalogue, id, &bytes)
                .ok_or_else(|| damaged("measurements"))?;
        }
    }
    for key in log.keys(&[key::PAGE], None, usize::MAX) {
        let bytes = get(log, &key).await?;
        if let (Some(page), Some(bytes)) = (number(&key), bytes) {
            pages::load_page(catalogue, page, &bytes).ok_or_else(|| damaged("sources"))?;
        }
    }
    catalogue.dirty_measurements.clear();
    catalogue.dirty_pages.clear();
    for key in log.keys(key::SESSIONS, None, usize::MAX) {
        if let Some(bytes) = get(log, &key).await? {
            state.sessions.decode(&bytes, now).ok_or_else(|| damaged("sessions"))?;
        }
    }
    Ok(())
}

async fn get(log: &log::Store, key: &[u8]) -> Result<Option<volume::IoBuf>> {
    log.get(key).await.map_err(|error| failed(&error))
}

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!(
        "the catalogue's {what} are invalid: open the store with the program that wrote it, or restore it"
    ))
}

/// Reads a segment of the write-ahead log. Where it has no whole record, the other copies of the segment are asked: one
/// copy of a pool may be damaged where another is not.
pub(super) async fn read_segment(
    object: &dyn Object,
    store: StoreId,
    segment: u32,
) -> Result<Vec<u8>> {
    let mut bytes = read(object).await?;
    let header = wal::header(store, segment);
    if bytes.len() >= header.len() && bytes[..header.len()] != header {
        let check: Check = Arc::new(move |bytes| *bytes == header);
        let into = IoBufMut::zeroed(header.len());
        if let Ok(found) = object.read_again(0, into, OPEN, check).await {
            bytes[..header.len()].copy_from_slice(&found);
        }
    }
    let Some(mut records) = Records::new(&bytes, store, segment) else { return Ok(bytes) };
    records.by_ref().for_each(drop);
    let mut end = records.end();
    while end < bytes.len() {
        let (at, rest) = (end as u64, bytes.len() - end);
        let records = move |bytes: &[u8]| wal::records_len(bytes, segment, at);
        // A copy that is away may have more. Until it is back, that counts as torn.
        let Some(found) = again::records(object, at, rest, OPEN, records).await else { break };
        let len = found.len();
        bytes[end..end + len].copy_from_slice(&found);
        end += len;
        // The first copy may go on from here.
        end += wal::records_len(&bytes[end..], segment, end as u64);
    }
    Ok(bytes)
}

async fn read(object: &dyn Object) -> Result<Vec<u8>> {
    let len = object.len() as usize;
    let steps = (0..len)
        .step_by(STEP)
        .map(|at| object.read_at(at as u64, IoBufMut::zeroed(STEP.min(len - at)), OPEN));
    let mut steps = stream::iter(steps).buffered(AHEAD);
    let mut bytes = Vec::with_capacity(len);
    while let Some(read) = steps.next().await {
        let read = read.map_err(|error| failed(&error))?;
        bytes.extend_from_slice(&read);
    }
    Ok(bytes)
}

/// The number of a segment of the store, if the object is one.
pub(super) fn segment_of(store: &str, name: &Name) -> Option<u32> {
    let id = name.as_str().strip_prefix(store)?.strip_prefix("-wal/")?.strip_suffix(".log")?;
    u32::from_str_radix(id, 16).ok().filter(|_| id.len() == 8)
}
