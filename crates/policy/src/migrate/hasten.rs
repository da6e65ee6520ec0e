//! Copies of tables that are read on slow devices, on volumes with faster ones.
//!
//! A read of a disk takes a hundred times as long as one of an SSD, also where no volume is near its line. Reads go to the copy
//! that answers first, so a copy on a faster device is all that it takes. The tables whose readers save the most time for each
//! operation of the copy go first, while the faster volumes are far from their lines.

use std::time::Duration;

use super::{FASTER, Plan, State, Table, View, Why, worth};

/// A volume takes such copies up to this part of its line: beyond it, reads wait for their turn.
const FILLED: f64 = 0.7;

pub(super) fn hasten(view: &mut View<'_>, plan: &mut Plan) {
    let active = view.pool.volumes.iter().filter(|volume| volume.state == State::Active);
    let answers = active.map(|volume| volume.answer).filter(|answer| !answer.is_zero());
    let Some(fastest) = answers.min() else { return };
    let least = worth(view.terms.every);
    let mut slow: Vec<(f64, Duration, &Table)> = Vec::new();
    for table in view.pool.tables.iter().filter(|table| table.heat() >= least) {
        if let Some(answer) = view.answer_of(table)
            && answer > fastest * FASTER
        {
            slow.push((answer.as_secs_f64() * table.heat(), answer, table));
        }
    }
    slow.sort_by(|(a, _, one), (b, _, other)| b.total_cmp(a).then(one.object.cmp(&other.object)));
    for (_, answer, table) in slow {
        if let Err(why) = copy(view, table, answer, plan) {
            plan.skipped.count(why);
        }
    }
}

/// Plans a copy of a table, whose reads take this long now.
fn copy(
    view: &mut View<'_>,
    table: &Table,
    answer: Duration,
    plan: &mut Plan,
) -> Result<(), super::Skip> {
    view.may_be_spread(table)?;
    let is_faster = |at: &usize| {
        let new = view.answer(*at);
        !new.is_zero() && new * FASTER < answer
    };
    let has_slack = |at: &usize| {
        let after = (view.volumes[*at].ops + table.rate) / view.line(*at);
        after <= FILLED && view.is_target(*at, table)
    };
    let targets: Vec<_> = (0..view.volumes.len()).filter(is_faster).filter(has_slack).collect();
    let best = targets.iter().map(|&at| view.answer(at)).min();
    let best = best.ok_or_else(|| view.no_target(table))?;
    let targets = targets.into_iter().filter(|&at| view.answer(at) <= best * FASTER);
    let to = view.lightest(table, table.rate, targets).ok_or(super::Skip::Target)?;
    view.copy(table, to, Why::Speed, plan)?;
    view.volumes[to].ops += table.rate;
    Ok(())
}
