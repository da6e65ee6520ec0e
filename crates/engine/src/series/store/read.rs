//! Reading the points of some series of a source: blocks and buffered rows, merged window by window. The fields of a
//! source share their blocks, and mostly their times, so these are found, read and decoded once.
//!
//! Slots of a series may overlap: its rate changed, or it shares a block with others. Their bounds divide time into
//! windows, each with a fixed set of blocks. Of points with equal times the one of the latest round counts; buffered
//! rows come after all blocks.

use std::collections::VecDeque;
use std::sync::Arc;

use super::catalogue::{field_of, source_of};
use super::cuts::Owed;
use super::key::{self, BlockKey, LEVELS, Owner, Slot};
use super::{Inner, failed, rows};
use crate::series::block::Block;
use crate::series::value::Points;
use crate::series::{Columns, Cursor, Error, Pending, Result, Scan, SeriesId, Span};

/// Keys looked up at a time.
const KEYS: usize = 256;

impl Inner {
    /// Keys of an owner's blocks that may have points in an interval.
    pub(super) fn blocks_of(&self, owner: Owner, span: Span, into: &mut Vec<BlockKey>) {
        if span.is_empty() {
            return;
        }
        for level in LEVELS {
            let prefix = Slot::level_prefix(owner, level);
            let first = Slot { owner, level, start: key::start_of(span.from, level) };
            // Keys of blocks extend this prefix, so those of the first slot are behind it.
            let mut after = first.prefix();
            'level: loop {
                let keys = self.log.keys(&prefix, Some(&after), KEYS);
                for found in keys.iter().filter_map(|key| BlockKey::parse(key)) {
                    if found.slot.start >= span.to {
                        break 'level;
                    }
                    into.push(found);
                }
                match keys.last() {
                    Some(last) if keys.len() == KEYS => after = last.to_vec(),
                    _ => break,
                }
            }
        }
    }

    /// The name of a series' source, for messages.
    pub(super) fn name_of(&self, source: u32) -> String {
        let state = self.state();
        let Some((measurement, tags)) = state.catalogue.source_key(source) else {
            return format!("source {source}");
        };
        let mut name = state
            .catalogue
            .measurements
            .get(&measurement)
            .map_or_else(String::new, |of| of.name.to_string());
        for (key, value) in tags {
            name.extend([",", key, "=", value]);
        }
        name
    }

    /// An error that names a block.
    pub(super) fn of_block(
        &self,
        key: &BlockKey,
        source: u32,
        what: impl std::fmt::Display,
    ) -> Error {
        let (name, slot) = (self.name_of(source), key.slot);
        Error::Corrupt(format!(
            "series {name}, slot from {} to {} ns: {what}; its other points can still be read",
            slot.start,
            slot.end()
        ))
    }
}

/// See [`crate::series::Series::read_columns`].
pub(super) struct Walk {
    inner: Arc<Inner>,
    source: u32,
    fields: Vec<u16>,
    scan: Scan,
    plan: Option<Plan>,
}

struct Plan {
    /// The count of dropped hidden points when the plan was made.
    dropped: u64,
    /// Owed deletes that concern the source.
    owed: Vec<Arc<Owed>>,
    /// Blocks, with the points of each field once they are read.
    blocks: Vec<(BlockKey, Option<Vec<Points>>)>,
    windows: VecDeque<Window>,
    waiting: Vec<Points>,
}

struct Window {
    span: Span,
    /// In the order of their rounds.
    blocks: Vec<usize>,
}

/// Why a window gives no points now.
enum Gone {
    /// Another block replaced one of these.
    Regrouped,
    Failed(Error),
}

impl Walk {
    pub(super) fn new(inner: Arc<Inner>, series: &[SeriesId], scan: Scan) -> Self {
        let source = source_of(*series.first().expect("there is a series"));
        assert!(series.iter().all(|&one| source_of(one) == source), "series of one source");
        let fields = series.iter().map(|&one| field_of(one)).collect();
        Self { inner, source, fields, scan, plan: None }
    }

    async fn step(&mut self) -> Result<Option<Vec<Points>>> {
        while self.scan.limit > 0 && !self.scan.span.is_empty() {
            if self.plan.is_none() && !self.make_plan() {
                return Ok(None);
            }
            let plan = self.plan.as_mut().expect("it was just made");
            let next = match self.scan.descending {
                true => plan.windows.pop_back(),
                false => plan.windows.pop_front(),
            };
            let Some(window) = next else { return Ok(None) };
            let gathered = gather(&self.inner, plan, &window, self.source, &self.fields).await;
            if let Err(Gone::Regrouped) = gathered {
                // The new plan finds the points in their new block.
                self.plan = None;
                continue;
            }
            if self.scan.descending {
                self.scan.span.to = window.span.from;
            } else {
                self.scan.span.from = window.span.to;
            }
            let mut columns = match gathered {
                Ok(columns) => columns,
                Err(Gone::Failed(error)) => return Err(error),
                Err(Gone::Regrouped) => unreachable!("it was handled above"),
            };
            for points in &mut columns {
                if self.scan.descending {
                    points.reverse();
                }
                points.truncate(self.scan.limit);
            }
            // A field with this many values has at least as many rows.
            let most = columns.iter().map(Points::len).max().unwrap_or(0);
            self.scan.limit -= most;
            if most > 0 {
                return Ok(Some(columns));
            }
        }
        Ok(None)
    }

    /// Plans which blocks count in which window. False if there is no such series.
    fn make_plan(&mut self) -> bool {
        let dropped = self.inner.dropped.of(self.source);
        let (waiting, owed) = {
            let state = self.inner.state();
            let catalogue = &state.catalogue;
            let kinds = self.fields.iter().map(|&field| catalogue.kind_of(self.source, field));
            let waiting: Option<Vec<Points>> = kinds.map(|kind| kind.map(Points::new)).collect();
            let Some(mut waiting) = waiting else { return false };
            let Some(facts) = catalogue.database_of(self.source) else { return false };
            let span = &mut self.scan.span;
            span.from = span.from.max(facts.cutoff(self.inner.clock.wall()));
            let wanted = self.fields.iter().enumerate().map(|(at, &field)| (field, at)).collect();
            for rows in state.waiting(self.source) {
                rows::points(rows, &catalogue.shapes, &wanted, &mut waiting);
            }
            let owed = state.owed.iter().filter(|owed| owed.cuts.fields.contains_key(&self.source));
            (waiting, owed.cloned().collect())
        };
        // Rows first, then keys: rows that become a block in between are seen twice, not missed.
        let span = self.scan.span;
        let waiting = waiting.iter().map(|points| merge(&[points], span)).collect();
        let mut keys = Vec::new();
        self.inner.blocks_of(Owner::Source(self.source), span, &mut keys);
        self.inner.blocks_of(Owner::group_of(self.source), span, &mut keys);
        keys.sort_by_key(|key| key.round);
        let mut bounds = vec![span.from, span.to];
        for key in &keys {
            bounds.extend([key.slot.start, key.slot.end()]);
        }
        bounds.retain(|&bound| span.from <= bound && bound <= span.to);
        bounds.sort_unstable();
        bounds.dedup();
        let mut windows: Vec<Window> = bounds
            .windows(2)
            .map(|pair| Window { span: Span { from: pair[0], to: pair[1] }, blocks: Vec::new() })
            .collect();
        for (at, key) in keys.iter().enumerate() {
            let first = windows.partition_point(|window| window.span.to <= key.slot.start);
            let until = windows.partition_point(|window| window.span.from < key.slot.end());
            windows[first..until].iter_mut().for_each(|window| window.blocks.push(at));
        }
        let blocks = keys.into_iter().map(|key| (key, None)).collect();
        self.plan = Some(Plan { dropped, owed, blocks, windows: windows.into(), waiting });
        true
    }
}

async fn gather(
    inner: &Inner,
    plan: &mut Plan,
    window: &Window,
    source: u32,
    fields: &[u16],
) -> std::result::Result<Vec<Points>, Gone> {
    for &at in &window.blocks {
        let (key, loaded) = &mut plan.blocks[at];
        if loaded.is_none() {
            *loaded = Some(load(inner, key, source, fields, &plan.waiting, &plan.owed).await?);
            // A block newer than the plan may hide points that were dropped from this one.
            if inner.dropped.of(source) != plan.dropped {
                return Err(Gone::Regrouped);
            }
        }
    }
    let merged = plan.waiting.iter().enumerate().map(|(field, waiting)| {
        let loaded = |&at: &usize| &plan.blocks[at].1.as_ref().expect("it was just loaded")[field];
        let mut parts: Vec<&Points> = window.blocks.iter().map(loaded).collect();
        parts.push(waiting);
        merge(&parts, window.span)
    });
    let merged = merged.collect();
    // A block can be freed after its last window, from either side.
    for &at in &window.blocks {
        let is_needed = |next: Option<&Window>| next.is_some_and(|next| next.blocks.contains(&at));
        if !is_needed(plan.windows.front()) && !is_needed(plan.windows.back()) {
            plan.blocks[at].1 = None;
        }
    }
    Ok(merged)
}

async fn load(
    inner: &Inner,
    key: &BlockKey,
    source: u32,
    fields: &[u16],
    waiting: &[Points],
    owed: &[Arc<Owed>],
) -> std::result::Result<Vec<Points>, Gone> {
    let name = key.bytes();
    let damaged = |what: &dyn std::fmt::Display| Gone::Failed(inner.of_block(key, source, what));
    let bytes = match inner.log.get(&name).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(Gone::Regrouped),
        Err(error) if error.kind() == volume::ErrorKind::Corrupt => return Err(damaged(&error)),
        Err(error) => return Err(Gone::Failed(failed(&error))),
    };
    let block = Block::open(&name, &bytes).map_err(|bad| damaged(&bad))?;
    let columns = block.points(source, fields).map_err(|bad| damaged(&bad))?;
    let columns = columns.into_iter().zip(waiting).map(|(points, waiting)| {
        let kind = waiting.values.kind();
        let points = points.unwrap_or_else(|| Points::new(kind));
        let found = points.values.kind();
        if found == kind {
            Ok(points)
        } else {
            Err(damaged(&format_args!("it has {found}s where {kind}s are expected")))
        }
    });
    let mut columns: Vec<Points> = columns.collect::<std::result::Result<_, _>>()?;
    for owed in owed.iter().filter(|owed| key.round < owed.before) {
        for (points, &field) in columns.iter_mut().zip(fields) {
            if owed.cuts.has(source, field) {
                points.cut(owed.cuts.span);
            }
        }
    }
    Ok(columns)
}

/// The points of an interval: of those with equal times, the last one of the last part. There is at least one part.
fn merge(parts: &[&Points], span: Span) -> Points {
    let kind = parts[0].values.kind();
    let is_sorted = |points: &Points| points.times.is_sorted_by(|a, b| a < b);
    let mut filled = parts.iter().filter(|part| !part.is_empty());
    let only = match (filled.next(), filled.next()) {
        (Some(part), None) => Some(part).filter(|part| is_sorted(part)),
        _ => None,
    };
    let mut merged = Points::new(kind);
    if let Some(part) = only {
        let from = part.times.partition_point(|&time| time < span.from);
        let until = part.times.partition_point(|&time| time < span.to).max(from);
        merged.times.extend_from_slice(&part.times[from..until]);
        merged.values.extend_from(&part.values, from..until);
        return merged;
    }
    let mut order: Vec<(i64, usize, usize)> = Vec::new();
    for (part, points) in parts.iter().enumerate() {
        let within = points.times.iter().enumerate().filter(|(_, time)| span.contains(**time));
        order.extend(within.map(|(at, &time)| (time, part, at)));
    }
    order.sort_unstable();
    for (place, &(time, part, at)) in order.iter().enumerate() {
        if order.get(place + 1).is_none_or(|next| next.0 != time) {
            merged.times.push(time);
            merged.values.extend_from(&parts[part].values, at..at + 1);
        }
    }
    merged
}

impl Columns for Walk {
    fn next(&mut self) -> Pending<'_, Option<Vec<Points>>> {
        Box::pin(self.step())
    }
}

/// Over one series.
impl Cursor for Walk {
    fn next(&mut self) -> Pending<'_, Option<Points>> {
        Box::pin(async move { Ok(self.step().await?.and_then(|mut columns| columns.pop())) })
    }
}
