//! Reads settle where they wait least, so volumes that share tables become level.
//!
//! A table with copies on two volumes does not send half of its reads to each: each read goes where the wait is
//! shorter. So one copy of a hot enough table can take the whole excess of a volume, where half of its reads would not
//! suffice and two smaller tables would need copies. The problem is to minimise the highest weight over all divisions
//! of reads among copies. The copies to add are chosen greedily, by the reads each takes off a hot volume for each
//! operation it costs. The division of reads is solved by water-filling, one table at a time.

use super::{Balance, DECISIONS, Plan, Skip, Table, View, Why};

/// See [`Policy::Level`](super::Policy::Level).
pub(super) struct Level;

/// A volume this far above the mean is relieved. Less than in the published policy, because there is no step of half a
/// table that could overshoot.
const ABOVE: f64 = 0.02;
/// Relief goes down to this far above the mean.
const LEVEL: f64 = 0.005;
/// The least excess assumed of a volume for which users keep waiting while another has spare capacity: reads that did
/// not come because their users waited are not measured.
const UNSERVED: f64 = 0.05;
/// How often all tables in motion are poured: each round halves the error at least.
const ROUNDS: usize = 3;

impl Balance for Level {
    fn balance(&self, view: &mut View<'_>, plan: &mut Plan) {
        if view.someone_idles() {
            let mean = view.mean();
            let long = |at: &usize| view.volumes[*at].hot as usize == DECISIONS;
            let sources: Vec<_> = view.sources().filter(long).collect();
            for at in sources {
                let demand = (mean + UNSERVED) * view.line(at);
                view.volumes[at].ops = view.volumes[at].ops.max(demand);
            }
        }
        let mean = view.mean();
        // All other tables have settled: their measured shares hold.
        let settling = view.pool.tables.iter().filter(|table| view.is_settling(table));
        let mut moving: Vec<_> = settling.map(|table| Poured::new(view, table)).collect();
        for flight in view.pool.in_flight {
            let table = view.pool.tables.iter().find(|table| table.object == flight.object);
            if let (Some(table), Some(to)) = (table, view.at(flight.to)) {
                moving.push(Poured::with(view, table, to));
            }
        }
        settle(view, &mut moving);
        let mut sources: Vec<_> = view.sources().map(|at| Source { at, tables: None }).collect();
        let mut relieved = Vec::new();
        while let Some(hottest) = hottest(view, &sources) {
            let from = sources[hottest].at;
            let margin = if relieved.contains(&from) { LEVEL } else { ABOVE };
            let excess = (view.weight(from) - mean) * view.line(from);
            if excess <= margin * mean * view.line(from) {
                if !relieved.contains(&from) {
                    plan.skipped.count(Skip::Even);
                }
                sources.swap_remove(hottest);
                continue;
            }
            match next(view, &mut sources[hottest], excess, plan) {
                Ok((table, to)) => {
                    moving.push(Poured::with(view, table, to));
                    settle(view, &mut moving);
                    relieved.push(from);
                }
                Err(why) => {
                    plan.skipped.count(why);
                    sources.swap_remove(hottest);
                }
            }
        }
    }
}

/// A volume with an excess, and those of its tables that may be copied.
struct Source<'a> {
    at: usize,
    tables: Option<Vec<&'a Table>>,
}

fn hottest(view: &View<'_>, sources: &[Source<'_>]) -> Option<usize> {
    let weight = |index: &usize| view.weight(sources[*index].at);
    (0..sources.len()).max_by(|a, b| weight(a).total_cmp(&weight(b)))
}

/// Plans the copy that takes the most off a volume for its cost.
fn next<'a>(
    view: &mut View<'a>,
    source: &mut Source<'a>,
    excess: f64,
    plan: &mut Plan,
) -> Result<(&'a Table, usize), Skip> {
    let from = source.at;
    let id = view.pool.volumes[from].id;
    let tables = source.tables.get_or_insert_with(|| view.hottest_on(id, plan));
    // Some may have been copied for another of their volumes.
    tables.retain(|table| !view.is_taken(table));
    let mut refused = Skip::Target;
    loop {
        let gain = |table: &Table| (table.rate * table.share(id)).min(excess) / table.blocks();
        // The tables are sorted by heat: none after one that is colder than the best gain can beat it.
        let mut best: Option<(usize, f64)> = None;
        for (index, table) in tables.iter().enumerate() {
            if best.is_some_and(|(_, gain)| table.heat() <= gain) {
                break;
            }
            if best.is_none_or(|(_, most)| gain(table) > most) {
                best = Some((index, gain(table)));
            }
        }
        let Some((index, _)) = best else { return Err(refused) };
        let table = tables.remove(index);
        let targets = (0..view.volumes.len()).filter(|&at| {
            (view.is_target(at, table) || view.has_slack(at) && view.has_room(at, table))
                && view.relieves(from, at)
        });
        let Some(to) = view.lightest(table, 0.0, targets) else {
            refused = view.no_target(table);
            continue;
        };
        // Both volumes are level when the copy has taken this much, or it takes all of the table's reads.
        let (line_from, line_to) = (view.line(from), view.line(to));
        let between =
            (view.weight(from) - view.weight(to)) * line_from * line_to / (line_from + line_to);
        let taken = (table.rate * table.share(id)).min(between);
        if !table.pays(taken, view.terms.every) {
            refused = Skip::Overshoot;
            continue;
        }
        view.copy(table, to, Why::Heat, plan)?;
        return Ok((table, to));
    }
}

/// A table whose reads divide freely, and the reads a second of each of its volumes.
struct Poured {
    reads: Vec<(usize, f64)>,
}

impl Poured {
    fn new(view: &View<'_>, table: &Table) -> Self {
        let copies = table.copies.iter().filter_map(|copy| {
            let at = view.at(copy.volume)?;
            let readable = view.pool.volumes[at].state.answers();
            readable.then_some((at, copy.share * table.rate))
        });
        Self { reads: copies.collect() }
    }

    /// With one more copy, on the volume at `to`.
    fn with(view: &View<'_>, table: &Table, to: usize) -> Self {
        let mut poured = Self::new(view, table);
        poured.reads.push((to, 0.0));
        poured
    }

    /// Takes all reads off the volumes and pours them where the weight is lowest.
    fn pour(&mut self, view: &mut View<'_>) {
        let mut left = 0.0;
        for (at, reads) in &mut self.reads {
            view.volumes[*at].ops -= *reads;
            left += std::mem::take(reads);
        }
        self.reads.sort_by(|(a, _), (b, _)| view.weight(*a).total_cmp(&view.weight(*b)));
        // The water reaches each volume that is lower than the level it has with those before.
        let (mut ops, mut lines, mut reached) = (left, 0.0, 0);
        for (at, _) in &self.reads {
            if lines > 0.0 && view.weight(*at) >= ops / lines {
                break;
            }
            ops += view.volumes[*at].ops;
            lines += view.line(*at);
            reached += 1;
        }
        for (at, reads) in &mut self.reads[..reached] {
            let to = ops / lines * view.line(*at);
            *reads = (to - view.volumes[*at].ops).max(0.0);
            view.volumes[*at].ops += *reads;
        }
    }
}

fn settle(view: &mut View<'_>, moving: &mut [Poured]) {
    for _ in 0..ROUNDS {
        moving.iter_mut().for_each(|table| table.pour(view));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::migrate::{Replica, Snapshot, State, Terms, Volume};
    use crate::placement::VolumeId;

    proptest! {
        #[test]
        fn reads_are_poured_as_if_each_went_where_there_is_least(
            volumes in vec((50.0..500.0_f64, 0.0..1.0_f64), 1..6),
            rate in 0.0..500.0_f64,
        ) {
            let count = volumes.len();
            let mut loads: Vec<_> = volumes.iter().map(|(line, weight)| line * weight).collect();
            let volumes: Vec<_> = (0..).zip(&volumes).map(|(id, &(line, weight))| Volume {
                id: VolumeId(id),
                state: State::Active,
                line,
                line_bytes: f64::INFINITY,
                used: 0.0,
                used_now: 0.0,
                wait: std::time::Duration::ZERO,
                // All of the table's reads are on the first so far.
                weight: weight + if id == 0 { rate / line } else { 0.0 },
                free: 0,
                total: 0,
                held: 0,
                answer: std::time::Duration::ZERO,
            }).collect();
            let copies = (0..count as u16).map(|id| Replica {
                volume: VolumeId(id),
                share: if id == 0 { 1.0 } else { 0.0 },
            });
            let table = Table {
                object: 1,
                len: 1,
                rate,
                copies: copies.collect(),
                age: std::time::Duration::ZERO,
                leaving: None,
            };
            let tables = [table];
            let pool =
                Snapshot { volumes: &volumes, tables: &tables, in_flight: &[], overlap: &|_, _| 0.0 };
            let nothing = std::collections::HashMap::new();
            let mut view = View::new(&pool, Terms::default(), &nothing);
            let mut poured = Poured::new(&view, &tables[0]);
            poured.pour(&mut view);
            const DROPS: usize = 2000;
            for _ in 0..DROPS {
                let weight = |at: &usize| loads[*at] / volumes[*at].line;
                let least = (0..count).min_by(|a, b| weight(a).total_cmp(&weight(b)));
                loads[least.expect("there is one")] += rate / DROPS as f64;
            }
            for (at, ops) in loads.iter().enumerate() {
                let poured = view.volumes[at].ops;
                prop_assert!((poured - ops).abs() <= 2.0, "{at}: {poured}, not {ops}");
            }
            let sum: f64 = poured.reads.iter().map(|(_, reads)| reads).sum();
            prop_assert!((sum - rate).abs() < 1e-6);
        }
    }
}
