//! Steps that do not depend on hot volumes: missing copies, drains, and copies that are no longer needed.

use std::collections::HashMap;

use super::{Dropping, PAYBACK, Plan, State, Table, View, Whence, Why};
use crate::placement::VolumeId;

/// Copies tables with too few copies on volumes that stay. Those with the fewest go first, and among them the hottest.
pub(super) fn keep(view: &mut View<'_>, plan: &mut Plan) {
    let tables = view.pool.tables;
    let state = |view: &View<'_>, is: State, table: &Table| {
        table.copies.iter().filter(|copy| view.state(copy.volume) == is).count()
    };
    let mut short: Vec<(usize, &Table)> = Vec::new();
    for table in tables {
        let (active, draining) =
            (state(view, State::Active, table), state(view, State::Draining, table));
        if view.is_taken(table) || table.is_busy(view.terms.every) || active + draining == 0 {
            continue;
        }
        if active + state(view, State::Silent, table) < view.terms.copies_min {
            short.push((active + draining, table));
        } else if draining > 0 && active >= view.terms.copies_min {
            for volume in table.copies.iter().map(|copy| copy.volume) {
                if view.state(volume) == State::Draining {
                    drop_copy(view, plan, table, volume, Whence::Drain);
                }
            }
        }
    }
    short.sort_by(|(few, a), (many, b)| {
        few.cmp(many).then(b.heat().total_cmp(&a.heat())).then(a.object.cmp(&b.object))
    });
    for (_, table) in short {
        let targets = (0..view.volumes.len()).filter(|&at| view.takes(at, table));
        let why = match state(view, State::Draining, table) {
            0 => Why::Repair,
            _ => Why::Drain,
        };
        let copied = match view.lightest(table, 0.0, targets) {
            Some(to) => view.copy(table, to, why, plan),
            None => Err(view.no_target(table)),
        };
        if let Err(why) = copied {
            plan.skipped.count(why);
        }
    }
}

/// Drops surplus copies on nearly full volumes, the coldest first.
pub(super) fn make_room(view: &mut View<'_>, plan: &mut Plan) {
    let tables = view.pool.tables;
    for (at, volume) in view.pool.volumes.iter().enumerate() {
        let wanted = view.reserve(at);
        if volume.state != State::Active || view.free(at) >= wanted {
            continue;
        }
        let mut spare: Vec<_> =
            tables.iter().filter(|table| table.is_on(volume.id) && is_spare(view, table)).collect();
        spare.sort_by(|a, b| a.heat().total_cmp(&b.heat()).then(a.object.cmp(&b.object)));
        for table in spare {
            if view.free(at) >= wanted {
                break;
            }
            drop_copy(view, plan, table, volume.id, Whence::Room);
        }
    }
}

/// Drops surplus copies of tables that have been cold for long; the ones on the least loaded volumes stay.
pub(super) fn reclaim(view: &mut View<'_>, cold: &HashMap<u64, u32>, plan: &mut Plan) {
    for table in view.pool.tables {
        if cold.get(&table.object).is_none_or(|&decisions| decisions < PAYBACK)
            || !is_spare(view, table)
        {
            continue;
        }
        let copies = table.copies.iter().filter_map(|copy| view.at(copy.volume));
        let active = copies.filter(|&at| view.pool.volumes[at].state == State::Active);
        let mut active: Vec<_> = active.collect();
        active.sort_by(|&a, &b| view.weight(a).total_cmp(&view.weight(b)));
        for at in active.split_off(view.terms.copies_min.max(1)) {
            drop_copy(view, plan, table, view.pool.volumes[at].id, Whence::Cold);
        }
    }
}

/// Whether the table has surplus copies on volumes that stay.
fn is_spare(view: &View<'_>, table: &Table) -> bool {
    let active = table.copies.iter().filter(|copy| view.state(copy.volume) == State::Active);
    !view.is_taken(table)
        && !table.is_busy(view.terms.every)
        && active.count() > view.terms.copies_min.max(1)
}

fn drop_copy(
    view: &mut View<'_>,
    plan: &mut Plan,
    table: &Table,
    volume: VolumeId,
    whence: Whence,
) {
    view.take(table);
    view.freed(volume, table.len);
    plan.drops.push(Dropping { object: table.object, len: table.len, volume, whence });
}
