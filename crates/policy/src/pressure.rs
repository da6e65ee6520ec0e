//! How near an LSM tree is to delaying its writers, and by which work.
//!
//! RocksDB slows writes down, then stops them, when memtables wait to be flushed, tables pile up in level 0, or
//! compactions owe too many bytes. A class by input level alone would allow that: in a long read peak, the work that
//! would prevent it has the lowest class (Calcspar, ATC 2023). So the distance to each threshold is a [`Pressure`],
//! which raises the class of exactly the work that is late. It falls only after some calm looks: near a threshold it
//! would otherwise change with every table.

use crate::purpose::Pressure;

/// Calm looks in a row before the pressure falls (the paper's number).
pub const CALM_LOOKS: u32 = 20;

/// The limits at which RocksDB delays writers of a column family.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Thresholds {
    /// The maximum number of memtables, including the active one.
    pub memtables: u64,
    /// Tables in level 0 from which writes are slowed down.
    pub level0: u64,
    /// Bytes owed from which writes are slowed down; 0 for never.
    pub owed_bytes: u64,
}

/// The backlog of a column family.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Backlog {
    /// Memtables that wait to be flushed.
    pub memtables: u64,
    /// Tables in level 0.
    pub level0: u64,
    /// Bytes that compactions owe.
    pub owed_bytes: u64,
}

/// How near the backlog is to the thresholds. If `waiting`, writers wait or are slowed down already: then the pressure
/// of the nearest threshold is 1.
#[must_use]
pub fn of(backlog: Backlog, thresholds: Thresholds, waiting: bool) -> Pressure {
    let part = |have: u64, of: u64| match of {
        0 => 0.0,
        of => (have as f64 / of as f64).min(1.0) as f32,
    };
    // With more than three, writes are slowed down before the last one is full.
    let memtables = match thresholds.memtables {
        more @ 4.. => more - 1,
        few => few,
    };
    let mut pressure = Pressure {
        flush: part(backlog.memtables, memtables).max(part(backlog.level0, thresholds.level0)),
        compaction: part(backlog.owed_bytes, thresholds.owed_bytes),
    };
    if waiting && pressure.compaction > pressure.flush {
        pressure.compaction = 1.0;
    } else if waiting {
        pressure.flush = 1.0;
    }
    pressure
}

/// The pressure in force: rises at once, falls after [`CALM_LOOKS`].
#[derive(Clone, Debug, Default)]
pub struct Gauge {
    flush: Held,
    compaction: Held,
}

impl Gauge {
    /// Takes in a measurement; returns the pressure in force.
    pub fn see(&mut self, seen: Pressure) -> Pressure {
        Pressure {
            flush: self.flush.see(seen.flush),
            compaction: self.compaction.see(seen.compaction),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Held {
    value: f32,
    calm: u32,
}

impl Held {
    fn see(&mut self, seen: f32) -> f32 {
        if step(seen) >= step(self.value) {
            (self.value, self.calm) = (seen, 0);
            return seen;
        }
        self.calm += 1;
        if self.calm >= CALM_LOOKS {
            (self.value, self.calm) = (seen, 0);
        }
        self.value
    }
}

/// The effect of a pressure: none, one class up, or up to the users' class.
fn step(pressure: f32) -> u8 {
    u8::from(pressure >= Pressure::HIGH) + u8::from(pressure >= 1.0)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::expect;
    use proptest::prelude::*;

    use super::*;
    use crate::purpose::{Io, Origin, Step};
    use crate::units::GIB;

    const USUAL: Thresholds = Thresholds { memtables: 4, level0: 20, owed_bytes: 64 * GIB };

    #[test]
    fn a_backlog_raises_the_class_of_the_work_that_is_late() {
        let mut report =
            String::from("memtables level0 owed waiting: flush level-0 level-1 level-4\n");
        for (memtables, level0, owed_gib, waiting) in [
            (0, 0, 0, false),
            (2, 14, 47, false),
            (3, 0, 0, false),
            (0, 15, 0, false),
            (0, 20, 0, false),
            (0, 0, 48, false),
            (0, 0, 64, false),
            (1, 2, 0, true),
            (1, 0, 60, true),
        ] {
            let backlog = Backlog { memtables, level0, owed_bytes: owed_gib * GIB };
            let pressure = of(backlog, USUAL, waiting);
            let class = |origin| Io::new(origin, Step::Data).class_under(pressure).name();
            let compaction = |level| class(Origin::Compaction { level });
            writeln!(
                report,
                "{memtables} {level0} {owed_gib} {waiting}: {} {} {} {}",
                class(Origin::Flush),
                compaction(0),
                compaction(1),
                compaction(4)
            )
            .unwrap();
        }
        expect![[r#"
            memtables level0 owed waiting: flush level-0 level-1 level-4
            0 0 0 false: urgent urgent background idle
            2 14 47 false: urgent urgent background idle
            3 0 0 false: foreground foreground background idle
            0 15 0 false: foreground foreground background idle
            0 20 0 false: foreground foreground background idle
            0 0 48 false: urgent foreground urgent background
            0 0 64 false: urgent foreground foreground foreground
            1 2 0 true: foreground foreground background idle
            1 0 60 true: urgent foreground foreground foreground
        "#]]
        .assert_eq(&report);
    }

    #[test]
    fn two_memtables_are_full_when_both_are() {
        let few = Thresholds { memtables: 2, ..USUAL };
        let flush = |memtables| of(Backlog { memtables, ..Backlog::default() }, few, false).flush;
        assert_eq!((flush(1), flush(2)), (0.5, 1.0));
    }

    #[test]
    fn nothing_is_owed_where_nothing_is_too_much() {
        let never = Thresholds { owed_bytes: 0, ..USUAL };
        let backlog = Backlog { owed_bytes: u64::MAX, ..Backlog::default() };
        assert_eq!(of(backlog, never, false), Pressure::default());
    }

    #[test]
    fn it_rises_at_once_and_falls_after_twenty_calm_looks() {
        let mut gauge = Gauge::default();
        let mut see = |flush| gauge.see(Pressure { flush, compaction: 0.0 }).flush;
        assert_eq!(see(0.8), 0.8);
        assert_eq!(see(1.0), 1.0);
        for _ in 1..CALM_LOOKS {
            assert_eq!(see(0.2), 1.0);
        }
        assert_eq!(see(0.9), 0.9);
        for _ in 1..CALM_LOOKS {
            assert_eq!(see(0.2), 0.9);
        }
        assert_eq!(see(0.2), 0.2);
    }

    proptest! {
        #[test]
        fn what_is_gone_by_is_never_below_what_is_seen(
            seen in prop::collection::vec(0.0f32..1.2, 1..200)
        ) {
            let mut gauge = Gauge::default();
            let mut since_rise = 0;
            let mut last = 0.0;
            for flush in seen {
                let held = gauge.see(Pressure { flush, compaction: 0.0 }).flush;
                prop_assert!(step(held) >= step(flush));
                since_rise = if step(held) > step(last) { 0 } else { since_rise + 1 };
                prop_assert!(step(held) >= step(last) || since_rise >= CALM_LOOKS);
                last = held;
            }
        }
    }
}
