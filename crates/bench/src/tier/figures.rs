//! Replays in a report.

use policy::units::{Bytes, KIB, MIB};

use super::cache::Counts;
use super::replay::{Cell, Replayed, UNIT_BYTES};
use super::scheme::{Promotion, Scheme};
use super::size::Size;
use crate::report::{Axis, Curve, Plot, Report, Stroke, Table};

/// The column of what no cache can exceed: every access but the first to each unit.
const LIMIT: &str = "limit";

/// Adds the figures, tables and plots of replays, and the notes that a reader needs.
pub fn describe(report: &mut Report, replays: &[Replayed]) {
    report.notes.push(
        "computed by replay: the policies decide which unit a cache of this size holds; nothing was measured on volumes, \
         and no time passes"
            .into(),
    );
    report.notes.push(
        "hits: the share of accesses that find their unit; a request is one access for each unit that it touches, reads \
         and writes alike, from an empty cache on. On demand every miss installs its whole unit; lazy, one of a unit that was \
         accessed often enough lately, and that continues no sequential run. promoted / user bytes are the bytes of \
         installed units for each byte of the requests"
            .into(),
    );
    report.notes.push(
        "limit: every access but the first to each unit; no cache that fills on demand exceeds it"
            .into(),
    );
    let notes = replays.iter().map(|replay| format!("{}: {}", replay.name, replay.about));
    report.notes.extend(notes);
    let facts = facts(report, replays);
    report.tables.push(facts);
    for (nth, unit_bytes) in UNIT_BYTES.into_iter().enumerate() {
        for promotion in Promotion::ALL {
            describe_unit(report, replays, promotion, nth, unit_bytes);
        }
    }
}

/// Adds the tables and plots of one size of units under one rule for promotion.
fn describe_unit(
    report: &mut Report,
    replays: &[Replayed],
    promotion: Promotion,
    nth: usize,
    unit_bytes: u32,
) {
    let unit = Bytes(unit_bytes.into()).to_string();
    let [mut hits, mut promoted] = [("hits", "%"), ("promoted / user bytes", "x")]
        .map(|(what, unit_of_figure)| sheet(&unit, promotion, what, unit_of_figure));
    if promotion == Promotion::Demand {
        hits.columns.push(LIMIT.into());
    }
    for replay in replays {
        let of_unit = |cell: &&Cell| cell.unit_bytes == unit_bytes;
        for cell in replay.cells.iter().filter(of_unit) {
            let case = format!("{}, {} of {unit}", replay.name, size(cell));
            add(report, &mut hits, &unit, &case, "%", hits_of(replay, cell, promotion, nth));
            let figures = promoted_of(replay, cell, promotion);
            add(report, &mut promoted, &unit, &case, "x", figures);
        }
        report.plots.push(plot(replay, promotion, nth, unit_bytes));
    }
    report.tables.extend([hits, promoted]);
}

/// The size of a cache: as it was asked for, and in units.
fn size(cell: &Cell) -> String {
    format!("{} = {}", cell.size, cell.room)
}

fn sheet(unit: &str, promotion: Promotion, what: &str, unit_of_figure: &str) -> Table {
    Table {
        title: format!("units of {unit}, {}: {what}, {unit_of_figure}", promotion.name()),
        columns: Scheme::of(promotion).map(Scheme::name).collect(),
        lines: Vec::new(),
    }
}

/// Adds the figures of a cache to the report and a table, by columns of the table.
fn add(
    report: &mut Report,
    table: &mut Table,
    unit: &str,
    case: &str,
    of: &str,
    figures: Vec<f64>,
) {
    let id = format!("units of {unit}");
    for (scheme, figure) in table.columns.iter().zip(&figures) {
        report.row(&id, case, scheme, *figure, of);
    }
    table.lines.push((case.into(), figures.into_iter().map(Some).collect()));
}

/// The counts of the schemes with one rule.
fn counts_of(cell: &Cell, promotion: Promotion) -> impl Iterator<Item = &Counts> {
    let counts = Scheme::all().zip(&cell.counts);
    counts.filter(move |(scheme, _)| scheme.promotion == promotion).map(|(_, counts)| counts)
}

/// The hits of each scheme with a rule in percent, and their limit.
fn hits_of(replay: &Replayed, cell: &Cell, promotion: Promotion, nth: usize) -> Vec<f64> {
    let percent = |hits: u64, accesses: u64| 100.0 * hits as f64 / accesses as f64;
    let (accesses, footprint) = (replay.facts.accesses[nth], replay.facts.footprint[nth]);
    let limit = percent(accesses - footprint, accesses);
    let hits = counts_of(cell, promotion).map(|counts| percent(counts.hits, counts.accesses));
    hits.chain([limit]).collect()
}

fn promoted_of(replay: &Replayed, cell: &Cell, promotion: Promotion) -> Vec<f64> {
    let bytes = |units: u64| units as f64 * f64::from(cell.unit_bytes);
    let promoted = counts_of(cell, promotion).map(|counts| bytes(counts.promoted));
    promoted.map(|bytes| bytes / replay.facts.bytes as f64).collect()
}

/// What each trace asks for.
fn facts(report: &mut Report, replays: &[Replayed]) -> Table {
    let [block, unit] = UNIT_BYTES.map(|bytes| Bytes(bytes.into()));
    let columns = [
        ("requests".into(), ""),
        ("writes".into(), "%"),
        ("mean request".into(), "KiB"),
        (format!("footprint in {block}"), "MiB"),
        (format!("footprint in {unit}"), "MiB"),
    ];
    let mut table = Table {
        title: "trace".into(),
        columns: columns.iter().map(|(name, unit)| format!("{name}, {unit}")).collect(),
        lines: Vec::new(),
    };
    table.columns[0] = "requests".into();
    for replay in replays {
        let facts = &replay.facts;
        let requests = facts.requests as f64;
        let footprint =
            |nth: usize| facts.footprint[nth] as f64 * f64::from(UNIT_BYTES[nth]) / MIB as f64;
        let figures = [
            requests,
            100.0 * facts.writes as f64 / requests,
            facts.bytes as f64 / requests / KIB as f64,
            footprint(0),
            footprint(1),
        ];
        for ((name, unit), figure) in columns.iter().zip(figures) {
            report.row("trace", &replay.name, name, figure, unit);
        }
        table.lines.push((replay.name.clone(), figures.map(Some).into()));
    }
    table
}

/// Hits over the size of the cache.
fn plot(replay: &Replayed, promotion: Promotion, nth: usize, unit_bytes: u32) -> Plot {
    let footprint = replay.facts.footprint[nth] as f64;
    let cells: Vec<&Cell> =
        replay.cells.iter().filter(|cell| cell.unit_bytes == unit_bytes).collect();
    let names = Scheme::of(promotion).map(Scheme::name).chain([LIMIT.into()]);
    let curves = names.enumerate().map(|(at, name)| {
        let stroke = if name == LIMIT { Stroke::Dashes } else { Stroke::Line };
        let mut points: Vec<(f64, f64)> = Vec::new();
        for cell in &cells {
            let percent = match cell.size {
                Size::Percent(percent) => percent,
                Size::Bytes(_) => 100.0 * cell.room as f64 / footprint,
            };
            points.push((percent, hits_of(replay, cell, promotion, nth)[at]));
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Curve::new(name, stroke, points)
    });
    let unit = Bytes(unit_bytes.into());
    let title = format!(
        "{}, units of {unit}, {}: hits by the size of the cache",
        replay.name,
        promotion.name()
    );
    let axes = ["cache, % of the footprint", "hits, %"];
    Plot { x_axis: Axis::Log, ..Plot::new(title, axes, curves) }
}
