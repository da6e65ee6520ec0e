//! TANGO's baseline: by I/Os in the last second, from the most to the fewest (TANGO).
//!
//! In each decision, the hottest table of the volume with the most I/Os is copied to the one with the fewest, that of
//! the second to the last but one, and so on, while a source is at its line and above its target. It knows no weights,
//! mean or overshoot: it takes one second's noise for load, and finds a highest volume even if all are at their lines.

use super::{Balance, HOT_USED, Plan, Skip, State, View, Why};

/// See [`Policy::Iops`](super::Policy::Iops).
pub(super) struct Iops;

impl Balance for Iops {
    fn balance(&self, view: &mut View<'_>, plan: &mut Plan) {
        let volumes = view.pool.volumes;
        let used = |at: usize| volumes[at].used_now;
        let is_active = |at: &usize| volumes[*at].state == State::Active;
        let mut order: Vec<_> = (0..volumes.len()).filter(is_active).collect();
        order.sort_by(|&a, &b| used(b).total_cmp(&used(a)));
        let pairs: Vec<_> = order.iter().zip(order.iter().rev()).collect();
        for (&from, &to) in pairs {
            if used(from) < HOT_USED || used(from) <= used(to) {
                return;
            }
            let tables = view.hottest_on(volumes[from].id, plan);
            let first = tables.first().copied();
            let copied = match tables.into_iter().find(|table| view.has_room(to, table)) {
                Some(table) => view.copy(table, to, Why::Heat, plan),
                None => Err(first.map_or(Skip::Target, |table| view.no_target(table))),
            };
            if let Err(why) = copied {
                plan.skipped.count(why);
            }
        }
    }
}
