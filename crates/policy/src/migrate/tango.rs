//! The published way: by weight, and a copy takes half of the reads (TANGO).

use super::{BAND, Balance, Plan, Skip, View, Why};

/// See [`Policy::Tango`](super::Policy::Tango).
pub(super) struct Tango;

impl Balance for Tango {
    fn balance(&self, view: &mut View<'_>, plan: &mut Plan) {
        let mean = view.mean();
        let mut sources: Vec<_> = view.sources().collect();
        sources.sort_by(|&a, &b| view.weight(b).total_cmp(&view.weight(a)));
        for from in sources {
            if view.weight(from) <= (1.0 + BAND) * mean {
                plan.skipped.count(Skip::Even);
                continue;
            }
            relieve(view, from, mean, plan);
        }
    }
}

/// Copies tables of one volume, hottest first, until its load is at the mean.
fn relieve(view: &mut View<'_>, from: usize, mean: f64, plan: &mut Plan) {
    let id = view.pool.volumes[from].id;
    for table in view.hottest_on(id, plan) {
        if view.weight(from) <= mean {
            break;
        }
        // With one more copy, all get the same part of the reads of this one.
        let ops = table.rate * table.share(id) / (table.copies.len() + 1) as f64;
        let targets = (0..view.volumes.len()).filter(|&at| view.is_target(at, table));
        let Some(to) = view.lightest(table, ops, targets) else {
            plan.skipped.count(view.no_target(table));
            break;
        };
        let after = (view.volumes[to].ops + ops) / view.line(to);
        if after > (view.volumes[from].ops - ops) / view.line(from) {
            plan.skipped.count(Skip::Overshoot);
            break;
        }
        if let Err(why) = view.copy(table, to, Why::Heat, plan) {
            plan.skipped.count(why);
            break;
        }
        view.volumes[from].ops -= ops;
        view.volumes[to].ops += ops;
    }
}
