//! The replay of one trace through every scheme.

use std::time::Duration;

use anyhow::ensure;
use policy::promote::{AccessKind, Runs};
use policy::time::Instant;
use policy::units::{KIB, MIB};

use super::cache::{Cache, Counts, Seen};
use super::scheme::Scheme;
use super::size::Size;
use super::source::Source;
use super::units::Units;

/// Sizes of the cached unit, in bytes: a block, as dm-cache and bcache may have it, and a piece of an object.
pub const UNIT_BYTES: [u32; 2] = [4 * KIB as u32, MIB as u32];

/// Sequential runs that are remembered.
const RUNS: usize = 4096;

/// The time between two requests of a trace without times.
const APART: Duration = Duration::from_millis(1);

/// What a trace asks for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    /// Requests.
    pub requests: u64,
    /// Those that write.
    pub writes: u64,
    /// Bytes of all requests.
    pub bytes: u64,
    /// Accesses to units of each size: one for each unit that a request touches.
    pub accesses: [u64; UNIT_BYTES.len()],
    /// Different units of each size.
    pub footprint: [u64; UNIT_BYTES.len()],
}

/// A cache of one size, with units of one size, under every scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// The size that was asked for.
    pub size: Size,
    /// The units that fit.
    pub room: usize,
    /// The counts of each scheme, in the order of [`Scheme::all`].
    pub counts: Vec<Counts>,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The name of the trace.
    pub name: String,
    /// What it is.
    pub about: String,
    /// What it asks for.
    pub facts: Facts,
    /// The caches, by unit and size.
    pub cells: Vec<Cell>,
}

/// Replays a trace: once to learn its footprint, then once for each scheme. Takes memory in proportion to the footprint
/// and the number of sizes, not to the requests.
///
/// # Errors
/// The trace cannot be read or has no request.
pub fn replay(source: &Source, sizes: &[Size]) -> anyhow::Result<Replayed> {
    let mut facts = Facts::default();
    let mut units = UNIT_BYTES.map(Units::new);
    for request in source.requests()? {
        let request = request?;
        facts.requests += 1;
        facts.writes += u64::from(request.is_write);
        facts.bytes += u64::from(request.len);
        for (units, accesses) in units.iter_mut().zip(&mut facts.accesses) {
            *accesses += units.add(&request)?;
        }
    }
    ensure!(facts.requests > 0, "{} has no requests", source.name());
    facts.footprint = units.each_ref().map(|units| units.len() as u64);
    let mut cells: Vec<Cell> = Vec::new();
    for units in &units {
        cells.extend(sizes.iter().map(|&size| Cell {
            unit_bytes: units.bytes(),
            size,
            room: size.units(units.len(), units.bytes()),
            counts: Vec::new(),
        }));
    }
    for scheme in Scheme::all() {
        let counts = replay_through(scheme, source, &units, &cells)?;
        for (cell, counts) in cells.iter_mut().zip(counts) {
            cell.counts.push(counts);
        }
    }
    Ok(Replayed { name: source.name(), about: source.about(), facts, cells })
}

/// The counts of one scheme in each cell. `cells` has the caches for the first of `units`, then those for the next.
fn replay_through(
    scheme: Scheme,
    source: &Source,
    units: &[Units],
    cells: &[Cell],
) -> anyhow::Result<Vec<Counts>> {
    let sizes = cells.len() / units.len();
    let caches = |units: &Units, cells: &[Cell]| -> Vec<Cache> {
        let cache = |cell: &Cell| Cache::new(scheme, cell.unit_bytes, cell.room, units.len());
        cells.iter().map(cache).collect()
    };
    let mut caches: Vec<Vec<Cache>> = units
        .iter()
        .zip(cells.chunks(sizes.max(1)))
        .map(|(units, cells)| caches(units, cells))
        .collect();
    let (mut runs, mut now) = (Runs::new(RUNS), Instant::ZERO);
    for request in source.requests()? {
        let request = request?;
        let next = if request.at.is_zero() { now + APART } else { Instant::ZERO + request.at };
        now = now.max(next);
        let kind = if request.is_write { AccessKind::Write } else { AccessKind::Read };
        let sequential = runs.note(request.volume.into(), request.offset, request.len.into());
        let seen = Seen { kind, sequential, now };
        for (units, caches) in units.iter().zip(&mut caches) {
            for unit in units.numbers(&request) {
                caches.iter_mut().for_each(|cache| cache.access(unit, seen));
            }
        }
    }
    Ok(caches.iter().flatten().map(Cache::counts).collect())
}
