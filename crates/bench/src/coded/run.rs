//! One run of one scheme: what it did in a closed loop, then at a rate that all schemes get.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::drive::{Driven, Latencies, Operation};

/// The counters of a store, for all its volumes together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counted {
    /// Operations that the gates charged for reads.
    Reads,
    /// Operations that the gates charged for writes.
    Writes,
    /// The part of the reads for which users wait.
    UserReads,
    /// Bytes written.
    WrittenBytes,
    /// Bytes read to make copies and fragments.
    CopyReadBytes,
    /// Bytes written to make copies and fragments.
    CopyWrittenBytes,
    /// Ranges that reads computed from other fragments.
    Decoded,
    /// Requests that the simulated provider saw.
    Requests,
    /// Those of them that it made wait.
    Overdrafts,
}

impl Counted {
    /// Every counter, in the order of [`Driven::counted`].
    pub const ALL: [Self; 9] = [
        Self::Reads,
        Self::Writes,
        Self::UserReads,
        Self::WrittenBytes,
        Self::CopyReadBytes,
        Self::CopyWrittenBytes,
        Self::Decoded,
        Self::Requests,
        Self::Overdrafts,
    ];

    /// The value of this counter among those of all.
    pub(super) fn among(self, counted: &[u64]) -> u64 {
        counted.get(self as usize).copied().unwrap_or(0)
    }
}

/// What lies on the volumes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Room {
    /// Bytes of all objects on all volumes.
    pub held_bytes: u64,
    /// The part of tables: all copies and fragments.
    pub tables_held_bytes: u64,
    /// The lengths of the tables, each counted once.
    pub tables_bytes: u64,
    /// The part of logs.
    pub logs_held_bytes: u64,
}

/// What a load cost and left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Loaded records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub data_bytes: u64,
    /// The growth of each counter until all compactions after the load had ended.
    pub counted: Vec<u64>,
    /// The room of the result.
    pub room: Room,
}

/// A run in the open loop.
#[derive(Clone, Debug, Default)]
pub struct Offered {
    /// Operations that it started each second.
    pub per_sec: u64,
    /// What its threads did.
    pub driven: Driven,
}

/// The replacement of a lost volume during [`Offered`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebuilt {
    /// The time until every object had its copies or fragments again; `None` if the run ended before.
    pub took: Option<Duration>,
    /// Bytes that the pool had on the lost volume.
    pub lost_bytes: u64,
}

/// The result of one run of one scheme. A part is `None` if the case does not have it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The load.
    pub loaded: Option<Loaded>,
    /// The closed loop.
    pub closed: Option<Driven>,
    /// The open loop.
    pub offered: Option<Offered>,
    /// The lost volume.
    pub rebuilt: Option<Rebuilt>,
    /// Paid operations a second of the volumes that the store was opened on.
    pub paid_iops: u64,
}

impl Run {
    /// What threads did, in the closed loop and at the common rate.
    pub(super) fn driven(&self) -> impl Iterator<Item = &Driven> {
        self.closed.iter().chain(self.offered.as_ref().map(|offered| &offered.driven))
    }

    /// Operations of users a second in the closed loop.
    #[must_use]
    pub fn qps(&self) -> f64 {
        self.closed
            .as_ref()
            .map_or(f64::NAN, |driven| driven.operations() as f64 / driven.elapsed.as_secs_f64())
    }

    /// The used share of the paid operations in the closed loop.
    #[must_use]
    pub fn used(&self) -> f64 {
        self.closed.as_ref().map_or(f64::NAN, |driven| {
            let of = |counted: Counted| counted.among(&driven.counted);
            let ops = of(Counted::Reads) + of(Counted::Writes);
            ops as f64 / driven.elapsed.as_secs_f64() / self.paid_iops as f64
        })
    }

    /// The growth of a counter for each operation of users at the common rate.
    #[must_use]
    pub fn for_each_operation(&self, counted: Counted) -> f64 {
        self.offered.as_ref().map_or(f64::NAN, |Offered { driven, .. }| {
            counted.among(&driven.counted) as f64 / driven.operations() as f64
        })
    }

    /// Operations charged for what users wait to read, for each of their reads at the common rate.
    #[must_use]
    pub fn ios_per_read(&self) -> f64 {
        self.offered.as_ref().map_or(f64::NAN, |Offered { driven, .. }| {
            let reads = merged(&driven.latencies, |operation| !operation.only_writes());
            let charged = Counted::UserReads.among(&driven.counted);
            reads.map_or(f64::NAN, |reads| charged as f64 / reads.len() as f64)
        })
    }

    /// The quantile `part` of the latencies of reads at the common rate, from their intended starts, in microseconds.
    #[must_use]
    pub fn read_us(&self, part: f64) -> f64 {
        self.quantile_us(part, |operation| !operation.only_writes())
    }

    /// The same of writes.
    #[must_use]
    pub fn write_us(&self, part: f64) -> f64 {
        self.quantile_us(part, Operation::only_writes)
    }

    fn quantile_us(&self, part: f64, which: impl Fn(Operation) -> bool) -> f64 {
        let open = self.offered.as_ref().map(|offered| &offered.driven.open);
        let nanos = open.and_then(|open| merged(open, which));
        nanos.map_or(f64::NAN, |nanos| nanos.value_at_quantile(part) as f64 / 1e3)
    }

    /// A part of the room after the load, for each byte of the users' data.
    #[must_use]
    pub fn held_per_byte(&self, part: impl Fn(&Room) -> u64) -> f64 {
        self.loaded
            .as_ref()
            .map_or(f64::NAN, |loaded| part(&loaded.room) as f64 / loaded.data_bytes as f64)
    }

    /// Bytes of tables on all volumes for each byte of the tables.
    #[must_use]
    pub fn held_per_table_byte(&self) -> f64 {
        self.loaded.as_ref().map_or(f64::NAN, |Loaded { room, .. }| {
            room.tables_held_bytes as f64 / room.tables_bytes as f64
        })
    }

    /// The growth of a counter in the load for each loaded record.
    #[must_use]
    pub fn for_each_record(&self, counted: Counted) -> f64 {
        self.loaded.as_ref().map_or(f64::NAN, |loaded| {
            counted.among(&loaded.counted) as f64 / loaded.records as f64
        })
    }

    /// Bytes written in the load for each byte of the users' data.
    #[must_use]
    pub fn written_per_byte(&self) -> f64 {
        self.loaded.as_ref().map_or(f64::NAN, |loaded| {
            Counted::WrittenBytes.among(&loaded.counted) as f64 / loaded.data_bytes as f64
        })
    }

    /// Seconds until a lost volume was made good. NaN if the run ended before.
    #[must_use]
    pub fn rebuild_secs(&self) -> f64 {
        let took = self.rebuilt.and_then(|rebuilt| rebuilt.took);
        took.map_or(f64::NAN, |took| took.as_secs_f64())
    }

    /// The growth of a counter during the rebuild for each byte that was lost. NaN if the run ended before.
    #[must_use]
    pub fn for_each_lost_byte(&self, counted: Counted) -> f64 {
        match (&self.rebuilt, &self.offered) {
            (Some(Rebuilt { took: Some(_), lost_bytes }), Some(Offered { driven, .. })) => {
                counted.among(&driven.counted) as f64 / *lost_bytes as f64
            }
            _ => f64::NAN,
        }
    }
}

/// The latencies of some kinds of operations together; `None` if there were none.
fn merged(latencies: &Latencies, which: impl Fn(Operation) -> bool) -> Option<Histogram<u64>> {
    let those = latencies.each().filter(|(operation, _)| which(*operation));
    let merged = those.map(|(_, nanos)| nanos.clone()).reduce(|mut all, nanos| {
        all.add(&nanos).expect("histograms of one kind add up");
        all
    });
    merged.filter(|nanos| !nanos.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driven(reads: u64, updates: u64, counted: Vec<u64>) -> Driven {
        let mut driven = Driven { elapsed: Duration::from_secs(2), counted, ..Driven::default() };
        for (operation, count, ms) in [(Operation::Read, reads, 1), (Operation::Update, updates, 5)]
        {
            for _ in 0..count {
                driven.latencies.record(operation, Duration::from_micros(1));
                driven.open.record(operation, Duration::from_millis(ms));
            }
        }
        driven
    }

    #[test]
    fn figures_come_from_the_loop_that_they_are_about() {
        let closed = driven(400, 0, vec![500, 100, 400, 0, 0, 0, 0, 0, 0]);
        let offered = Offered { per_sec: 50, driven: driven(60, 40, vec![90, 30, 75]) };
        let run =
            Run { closed: Some(closed), offered: Some(offered), paid_iops: 600, ..Run::default() };
        assert_eq!((run.qps(), run.used()), (200.0, 0.5));
        assert_eq!(run.for_each_operation(Counted::Reads), 0.9);
        assert_eq!(run.for_each_operation(Counted::Decoded), 0.0);
        assert_eq!(run.ios_per_read(), 1.25);
        let ms = |us: f64| (us / 1e3).round();
        assert_eq!([ms(run.read_us(0.99)), ms(run.write_us(0.5))], [1.0, 5.0]);
        let closed_only = Run { offered: None, ..run };
        assert!(closed_only.read_us(0.99).is_nan() && closed_only.ios_per_read().is_nan());
    }

    #[test]
    fn room_is_that_of_all_copies_over_the_users_bytes() {
        let room = Room {
            held_bytes: 330,
            tables_held_bytes: 300,
            tables_bytes: 150,
            logs_held_bytes: 20,
        };
        let counted = vec![10, 40, 0, 600];
        let loaded = Loaded { records: 20, data_bytes: 100, counted, room };
        let run = Run { loaded: Some(loaded), ..Run::default() };
        assert_eq!(run.held_per_byte(|room| room.held_bytes), 3.3);
        assert_eq!(run.held_per_table_byte(), 2.0);
        assert_eq!([run.for_each_record(Counted::Writes), run.written_per_byte()], [2.0, 6.0]);
        assert!(run.qps().is_nan() && run.rebuild_secs().is_nan());
    }

    #[test]
    fn a_rebuild_that_did_not_end_has_no_figures() {
        let offered = Offered { per_sec: 1, driven: driven(1, 0, vec![0, 0, 0, 0, 400, 100]) };
        let of = |took| Run {
            offered: Some(offered.clone()),
            rebuilt: Some(Rebuilt { took, lost_bytes: 100 }),
            ..Run::default()
        };
        let ended = of(Some(Duration::from_secs(3)));
        assert_eq!(ended.for_each_lost_byte(Counted::CopyReadBytes), 4.0);
        assert_eq!(ended.rebuild_secs(), 3.0);
        assert!(of(None).for_each_lost_byte(Counted::CopyReadBytes).is_nan());
        assert!(of(None).rebuild_secs().is_nan());
    }
}
