//! A volume that records every call: for logs that people read, and for tests that count.
//!
//! It may stand anywhere in a stack and records the calls that pass there: above a gate the requests, below it the I/O
//! that the gate granted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use policy::time::{Instant, NANOS_PER_SEC};

use super::call::{Call, Op};
use crate::{
    Check, Clock, ErrorKind, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object,
    Pending, ReadTime, Result, Space, Volume, Zeros,
};

/// How a call ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// With an error of this kind.
    Failed(ErrorKind),
    /// The caller dropped it before its end.
    GivenUp,
}

/// One call that ended.
#[derive(Clone, Debug)]
pub struct Record {
    /// The number of the call in this log, by its begin, from 0. Records are in the order of their ends.
    pub sequence: u64,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// The label of the volume.
    pub volume: Arc<str>,
    /// The call.
    pub call: Call,
    /// How it ended.
    pub outcome: Outcome,
}

impl fmt::Display for Record {
    /// `     7 0.000250000 +100us a: read kv/7.sst 4096 bytes at 8192 (UserRead, Data: foreground) done`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.began.as_nanos();
        let (secs, nanos) = (nanos / NANOS_PER_SEC, nanos % NANOS_PER_SEC);
        let Self { sequence, took, volume, call, .. } = self;
        write!(f, "{sequence:6} {secs}.{nanos:09} +{}us {volume}: {call}", took.as_micros())?;
        if let Some(io) = call.io {
            write!(f, " ({:?}, {:?}: {})", io.origin, io.step, io.class().name())?;
        }
        match self.outcome {
            Outcome::Done => f.write_str(" done"),
            Outcome::Failed(kind) => write!(f, " failed: {kind:?}"),
            Outcome::GivenUp => f.write_str(" given up"),
        }
    }
}

/// The last calls of one or several volumes. Clones are handles to the same log.
#[derive(Clone)]
pub struct TraceLog(Arc<Mutex<Ring>>);

struct Ring {
    records: VecDeque<Record>,
    records_max: usize,
    begun: u64,
    forgotten: u64,
}

impl TraceLog {
    /// An empty log that keeps the last `records_max` calls.
    #[must_use]
    pub fn new(records_max: usize) -> Self {
        let records = VecDeque::new();
        Self(Arc::new(Mutex::new(Ring { records, records_max, begun: 0, forgotten: 0 })))
    }

    /// The recorded calls, in the order they ended.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.0.lock().records.iter().cloned().collect()
    }

    /// How many calls the log has dropped.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.0.lock().forgotten
    }

    fn begin(&self) -> u64 {
        let mut ring = self.0.lock();
        ring.begun += 1;
        ring.begun - 1
    }

    fn end(&self, record: Record) {
        let mut ring = self.0.lock();
        ring.records.push_back(record);
        if ring.records.len() > ring.records_max {
            ring.records.pop_front();
            ring.forgotten += 1;
        }
    }
}

impl fmt::Display for TraceLog {
    /// A line for each call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records().iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}

/// A volume whose calls are recorded. It passes them on unchanged.
pub struct Trace<V> {
    inner: V,
    pen: Pen,
}

impl<V: Volume> Trace<V> {
    /// Records the calls to `inner` under `label` in `log`, with the times of `clock`.
    #[must_use]
    pub fn new(inner: V, label: &str, log: &TraceLog, clock: &Clock) -> Self {
        Self { inner, pen: Pen { label: label.into(), log: log.clone(), clock: clock.clone() } }
    }

    fn object(&self, name: Name, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        Arc::new(TraceObject { inner, name, pen: self.pen.clone() })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<V: Volume> Volume for Trace<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let open = self.pen.begin(Call::named(Op::Create, &name));
            let created = open.end(self.inner.create(&name, &intent).await);
            created.map(|object| self.object(name, object))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let open = self.pen.begin(Call::named(Op::Open, &name));
            let opened = open.end(self.inner.open(&name).await);
            opened.map(|object| self.object(name, object))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move {
            let open = self.pen.begin(Call::named(Op::Remove, &name));
            open.end(self.inner.remove(&name).await)
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            let open = self.pen.begin(Call::volume(Op::List));
            open.end(self.inner.list().await)
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async move {
            let open = self.pen.begin(Call::volume(Op::Space));
            open.end(self.inner.space().await)
        })
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        crate::whole::write(self, name, intent, data, io)
    }

    crate::forward! {
        self => self.inner;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }
}

struct TraceObject {
    inner: Arc<dyn Object>,
    name: Name,
    pen: Pen,
}

#[deny(clippy::missing_trait_methods)]
impl Object for TraceObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(async move {
            let call = Call::bytes(Op::Read, &self.name, offset, into.len(), io);
            let open = self.pen.begin(call);
            open.end(self.inner.read_at(offset, into, io).await)
        })
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let call = Call::bytes(Op::Write, &self.name, offset, data.len(), io);
            let open = self.pen.begin(call);
            open.end(self.inner.write_at(offset, data, io).await)
        })
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let call = Call::bytes(Op::WriteDurable, &self.name, offset, data.len(), io);
            let open = self.pen.begin(call);
            open.end(self.inner.write_durable(offset, data, io).await)
        })
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let open = self.pen.begin(Call::range(Op::Zero, &self.name, offset, len, Some(io)));
            open.end(self.inner.zero(offset, len, room, io).await)
        })
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        Box::pin(async move {
            let open = self.pen.begin(Call::range(Op::Extents, &self.name, offset, len, None));
            open.end(self.inner.extents(offset, len).await)
        })
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        crate::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        crate::blocking::write_at(self, offset, data, io)
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            let open = self.pen.begin(Call::set_len(&self.name, len));
            open.end(self.inner.set_len(len).await)
        })
    }

    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        crate::again::read(self, offset, into, io, check)
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        crate::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync(io)
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let open = self.pen.begin(Call::sync(&self.name, io));
            open.end(self.inner.sync(io).await)
        })
    }

    crate::forward! {
        self => self.inner;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn align(offset: u64, len: u64, io: Io) -> Pending<'_, ()>;
        fn expected_read(offset: u64, len: u64) -> ReadTime;
    }
}

/// What a record needs: the label, the log and the clock.
#[derive(Clone)]
struct Pen {
    label: Arc<str>,
    log: TraceLog,
    clock: Clock,
}

impl Pen {
    fn begin(&self, call: Call) -> OpenRecord<'_> {
        let (sequence, began) = (self.log.begin(), self.clock.now());
        OpenRecord { pen: self, sequence, began, call, outcome: Outcome::GivenUp }
    }
}

/// A call in flight: recorded when it ends or is dropped.
struct OpenRecord<'a> {
    pen: &'a Pen,
    sequence: u64,
    began: Instant,
    call: Call,
    outcome: Outcome,
}

impl OpenRecord<'_> {
    fn end<T>(mut self, result: Result<T>) -> Result<T> {
        self.outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(e) => Outcome::Failed(e.kind()),
        };
        result
    }
}

impl Drop for OpenRecord<'_> {
    fn drop(&mut self) {
        self.pen.log.end(Record {
            sequence: self.sequence,
            began: self.began,
            took: self.pen.clock.now().since(self.began),
            volume: Arc::clone(&self.pen.label),
            call: self.call.clone(),
            outcome: self.outcome,
        });
    }
}

#[cfg(test)]
mod tests {
    use policy::purpose::{Origin, Step};

    use super::*;
    use crate::conformance::{self, Blocking};
    use crate::layer::fault::{Effect, Fault, FaultPlan, Rule};
    use crate::mem::Mem;

    const READ: Io = Io::new(Origin::UserRead, Step::Data);
    const FLUSH: Io = Io::new(Origin::Flush, Step::Data);

    #[test]
    fn conforms() {
        conformance::run(|| {
            let (mem, log, clock) = (Mem::new("m"), TraceLog::new(1000), Clock::simulated());
            let traced = log.clone();
            let open = move || Arc::new(Trace::new(mem.clone(), "m", &traced, &clock)) as _;
            Box::new(Blocking::reopening(open).counted(&log, 1))
        });
    }

    #[test]
    fn every_call_is_a_line_with_its_time_reason_and_end() {
        let (log, clock, plan) = (TraceLog::new(100), Clock::simulated(), FaultPlan::new(1));
        let volume = Fault::new(Mem::new("a"), "a", &plan, &clock);
        let volume = Trace::new(volume, "a", &log, &clock);
        let name = Name::new("kv/7.sst").unwrap();
        plan.inject(Rule::new(Effect::Slow(Duration::from_micros(250))).on(Op::Write));
        plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Sync));
        clock.run(async {
            let object = volume.create(&name, &Intent::DATA).await.unwrap();
            let data = IoBufMut::zeroed(4096).freeze();
            object.write_at(8192, data, FLUSH).await.unwrap();
            object.sync(FLUSH).await.unwrap_err();
            object.read_at(8192, IoBufMut::zeroed(10), READ).await.unwrap();
            object.set_len(5).await.unwrap();
            drop(object.read_at(0, IoBufMut::zeroed(1), READ));
            let waits = object.write_at(0, IoBufMut::zeroed(1).freeze(), READ);
            assert!(futures_util::poll!(waits).is_pending());
            volume.list().await.unwrap();
        });
        let expected = "     \
     0 0.000000000 +0us a: create kv/7.sst done
     1 0.000000000 +250us a: write kv/7.sst 4096 bytes at 8192 (Flush, Data: urgent) done
     2 0.000250000 +0us a: sync kv/7.sst (Flush, Data: urgent) failed: Unavailable
     3 0.000250000 +0us a: read kv/7.sst 10 bytes at 8192 (UserRead, Data: foreground) done
     4 0.000250000 +0us a: set_len kv/7.sst to 5 bytes done
     5 0.000250000 +0us a: write kv/7.sst 1 bytes at 0 (UserRead, Data: foreground) given up
     6 0.000250000 +0us a: list done
";
        assert_eq!(log.to_string(), expected);
    }

    #[test]
    fn the_log_keeps_the_last_and_counts_the_rest() {
        let (log, clock) = (TraceLog::new(3), Clock::simulated());
        let volume = Trace::new(Mem::new("m"), "m", &log, &clock);
        for _ in 0..5 {
            clock.run(volume.space()).unwrap();
        }
        let kept: Vec<_> = log.records().iter().map(|record| record.sequence).collect();
        assert_eq!((kept, log.forgotten()), (vec![2, 3, 4], 2));
    }
}
