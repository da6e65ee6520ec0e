//! Executes the plans of [`policy::migrate`]: missing copies up to the replication target, copies of hot
//! tables, and drops.
//!
//! ```text
//!   each second    add up heats and weights of the pool
//!   each decision  their means, and loads of gates ──▶ Planner ──▶ drops and copies
//!   when something was lost, or a volume joined    ──▶ Planner ──▶ missing copies
//!   in between     a copy begins once `Pace` allows it on its volumes
//! ```
//! Logs and other objects that may still be written are unknown to the planner: the mover copies them one
//! after the other beside it. In both cases a volume that does not answer counts as lost after a wait.
//!
//! A mover is one future, which the caller drives. Dropping it abandons its copies safely: an unrecorded
//! copy is an orphan, which the pool removes; a recorded one is complete.

mod figures;
mod history;

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use policy::migrate::{
    Copying, Dropping, Flight, Pace, Plan, Planner, Policy, Skip, Snapshot, State, Steps, Terms,
    Ticket, Volume, Why, bytes_per_sec,
};
use policy::placement::{Code, VolumeId};
use policy::purpose::{Io, Origin, Step};
use policy::time::Instant;
use policy::units::Bytes;
use volume::heartbeat::{Heartbeat, SILENCE_MAX};
use volume::{Clock, ErrorKind, Result, Volume as _};

pub use self::figures::Figures;
pub use self::history::GateLoad;
use self::history::{LoadHistory, copy_lines};
use crate::leaf::ObjectId;
use crate::spread::{How, Redundancy, Repaired, Spread};

const SECOND: Duration = Duration::from_secs(1);

/// The longest time between two checks of the replication target, also with rare decisions.
const MEND_EVERY: Duration = Duration::from_secs(10);
/// Copies that can wait. Two kinds cannot: copies for heat relieve a saturated volume, where work of class idle would
/// starve, and rebuilds end the time in which one more loss loses data. Both have origins of their own, and [`Pace`] and
/// [`Steps`] limit them.
const IO: Io = Io::new(Origin::Copy, Step::Data);

/// Copies and drops the tables of a pool. See the [module](self).
pub struct Mover {
    pool: Spread,
    clock: Clock,
    planner: Planner,
    history: LoadHistory,
    pace: Pace,
    /// The I/Os of rebuilds.
    steps: Arc<Mutex<Steps>>,
    /// Copies planned and not begun, the most important first.
    planned: VecDeque<Copying>,
    under_way: FuturesUnordered<UnderWay>,
    /// Volumes that take copies.
    takers: usize,
    dropping: bool,
    /// Copies of objects unknown to the planner are in progress.
    mending: bool,
    /// Copies that may differ since a crash are being aligned.
    aligning: bool,
    /// Complete objects are being cut into fragments.
    recoding: bool,
    /// Copies were made for the replication target since its last check.
    news: bool,
    figures: Arc<Mutex<Figures>>,
    heartbeat: Heartbeat,
    /// A copy that failed since the last check of the replication target.
    failure: Option<String>,
}

type UnderWay = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// Finished work.
enum Ended {
    Copy { copying: Copying, began: Instant, result: Result<()> },
    Drops { dropped: Vec<Dropping> },
    Others(Repaired),
    Aligned,
    Recoded,
}

/// The event that ended a wait.
enum Event {
    Ended(Ended),
    /// The pool reports a shortfall or a suspect copy.
    Amiss,
    Time,
}

impl Mover {
    /// A mover for the tables of `pool`, whose gates use `clock`. Each table gets at least as many copies
    /// as the pool's replication target.
    #[must_use]
    pub fn new(pool: Spread, clock: Clock, policy: Policy, terms: Terms) -> Self {
        let terms = Terms { copies_min: terms.copies_min.max(pool.replication().target), ..terms };
        let heartbeat = Heartbeat::new("repair and rebalancing", SILENCE_MAX, &clock);
        Self {
            pool,
            clock,
            heartbeat,
            failure: None,
            planner: Planner::new(policy, terms),
            history: LoadHistory::default(),
            pace: Pace::default(),
            steps: Arc::default(),
            planned: VecDeque::new(),
            under_way: FuturesUnordered::new(),
            takers: 0,
            dropping: false,
            mending: false,
            aligning: false,
            recoding: false,
            news: false,
            figures: Arc::default(),
        }
    }

    /// Its figures, for other threads.
    #[must_use]
    pub fn figures(&self) -> Arc<Mutex<Figures>> {
        Arc::clone(&self.figures)
    }

    /// The record of its rounds. A round ends with a check of the replication target; it failed if a copy did.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// Runs until it is dropped. `look` returns the loads of the gates so far.
    pub async fn run(mut self, mut look: impl FnMut() -> Vec<GateLoad>) {
        let loads = look();
        self.history.begin(&loads, self.clock.now());
        self.set_lines(&loads);
        let mut second = self.clock.now() + SECOND;
        let mut decision = self.clock.now() + self.planner.terms().every;
        let mut mend = self.clock.now() + MEND_EVERY;
        loop {
            self.begin_what_may();
            let now = self.clock.now();
            if self.is_idle() && std::mem::take(&mut self.news) {
                // There may be more to do.
                mend = mend.min(now + SECOND);
            }
            let wake = self.pace.next(now).filter(|_| !self.planned.is_empty());
            let wake = wake.map_or(second, |at| at.min(second)).min(decision).min(mend);
            match self.next_event(wake).await {
                Event::Ended(ended) => self.on_end(ended),
                // Wait a second, because more reports may follow.
                Event::Amiss => mend = mend.min(self.clock.now() + SECOND),
                Event::Time => {
                    let now = self.clock.now();
                    if now >= second {
                        self.history.on_second(&self.pool);
                        second = now + SECOND;
                    }
                    if now >= decision {
                        self.decide(&look()).await;
                        decision = now + self.planner.terms().every;
                        mend = now + MEND_EVERY;
                    } else if now >= mend {
                        self.mend(&look()).await;
                        mend = now + MEND_EVERY;
                    }
                }
            }
        }
    }

    /// The first event before `wake`, or [`Event::Time`].
    async fn next_event(&mut self, wake: Instant) -> Event {
        let mut sleep = pin!(self.clock.sleep_until(wake));
        let (under_way, pool) = (&mut self.under_way, &self.pool);
        poll_fn(|cx| {
            if let Poll::Ready(Some(ended)) = under_way.poll_next_unpin(cx) {
                return Poll::Ready(Event::Ended(ended));
            }
            if pool.replication().poll_amiss(cx).is_ready() {
                return Poll::Ready(Event::Amiss);
            }
            sleep.as_mut().poll(cx).map(|()| Event::Time)
        })
        .await
    }

    fn is_idle(&self) -> bool {
        self.planned.is_empty() && self.under_way.is_empty()
    }

    /// Paces copies by what the volumes carry now.
    fn set_lines(&mut self, loads: &[GateLoad]) {
        let lines = copy_lines(loads);
        self.steps.lock().set_lines(lines.clone());
        self.pace.set_lines(lines);
    }

    async fn decide(&mut self, loads: &[GateLoad]) {
        self.set_lines(loads);
        let now = self.clock.now();
        let (volumes, plan) =
            self.plan(loads, now, |planner, seen| planner.decide(seen, now)).await;
        self.pool.placing().set_initial_replicas(plan.initial_replicas);
        self.drop_copies(plan.drops);
        self.planned = plan.copies.into();
        self.history.begin(loads, now);
        {
            let mut figures = self.figures.lock();
            figures.decisions += 1;
            figures.skipped.add(&plan.skipped);
        }
        self.keep_redundancy(&volumes).await;
    }

    /// As [`Mover::decide`], but only for the replication target: copies planned for the sake of reads stay.
    async fn mend(&mut self, loads: &[GateLoad]) {
        self.set_lines(loads);
        let now = self.clock.now();
        let (volumes, plan) = self.plan(loads, now, |planner, seen| planner.mend(seen)).await;
        self.drop_copies(plan.drops);
        let for_reads = std::mem::take(&mut self.planned).into_iter();
        let for_reads = for_reads.filter(|copying| {
            !copying.why.is_for_target()
                && plan.copies.iter().all(|planned| planned.object != copying.object)
        });
        let for_reads: Vec<_> = for_reads.collect();
        self.planned = plan.copies.into_iter().chain(for_reads).collect();
        self.keep_redundancy(&volumes).await;
    }

    /// Takes a snapshot of the pool and asks the planner.
    async fn plan(
        &mut self,
        loads: &[GateLoad],
        now: Instant,
        ask: impl FnOnce(&mut Planner, &Snapshot<'_>) -> Plan,
    ) -> (Vec<Volume>, Plan) {
        let silence_max = self.planner.terms().silence_max;
        let volumes = self.history.volumes(&self.pool, loads, silence_max, now).await;
        let tables = self.history.tables(&self.pool, now);
        let in_flight: Vec<_> = self.pace.in_flight().collect();
        let overlap = |object, volume| self.pool.placing().overlap(ObjectId(object), volume);
        let snapshot = Snapshot {
            volumes: &volumes,
            tables: &tables,
            in_flight: &in_flight,
            overlap: &overlap,
        };
        let plan = ask(&mut self.planner, &snapshot);
        for volume in &volumes {
            let label = self.pool.label(volume.id);
            let [weight, used, wait_ms] =
                [volume.weight, volume.used, volume.wait.as_secs_f64() * 1e3];
            tracing::debug!(volume = %label, weight, used, wait_ms, "as seen by migration");
        }
        let skipped = plan.skipped.iter().filter(|(_, count)| *count > 0);
        let skipped: Vec<_> = skipped.map(|(why, count)| (why.name(), count)).collect();
        let (copies, drops) = (plan.copies.len(), plan.drops.len());
        tracing::debug!(copies, drops, ?skipped, "migration decided");
        for copy in &plan.copies {
            let (to, why) = (self.pool.label(copy.to), copy.why.name());
            tracing::debug!(object = copy.object, %to, why, "a copy is planned");
        }
        (volumes, plan)
    }

    /// Does what the planner does not, and reports redundancy: moves the manifest away from volumes that do not answer,
    /// aligns copies that may differ since a crash, checks suspect copies, and repairs objects that are not tables.
    async fn keep_redundancy(&mut self, volumes: &[Volume]) {
        let of = |states: &[State]| {
            let those = volumes.iter().filter(|volume| states.contains(&volume.state));
            those.map(|volume| volume.id).collect::<BTreeSet<VolumeId>>()
        };
        let (lost, silent) = (of(&[State::Away]), of(&[State::Silent, State::Away]));
        if let Err(e) = self.pool.keep_manifest_from(&silent).await {
            tracing::debug!("the manifest stays where it is: {e}");
        }
        match self.failure.take() {
            Some(why) => self.heartbeat.failed(&why),
            None => self.heartbeat.completed(),
        }
        let redundancy = self.pool.redundancy(&silent);
        self.takers = of(&[State::Active]).len();
        self.tell(&redundancy, self.takers);
        self.figures.lock().redundancy = redundancy;
        self.plan_initial_replicas().await;
        if !std::mem::replace(&mut self.aligning, true) {
            let pool = self.pool.clone();
            self.under_way.push(Box::pin(async move {
                pool.settle_unequal().await;
                Ended::Aligned
            }));
        }
        if self.pool.code().is_some() && !std::mem::replace(&mut self.recoding, true) {
            let pool = self.pool.clone();
            self.under_way.push(Box::pin(async move {
                pool.recode(IO).await;
                Ended::Recoded
            }));
        }
        let suspects = self.pool.replication().take_suspects();
        if std::mem::replace(&mut self.mending, true) {
            self.pool.replication().suspect_again(suspects);
            return;
        }
        let pool = self.pool.clone();
        // Placement chooses where these go: any volume may be one of them.
        let last = self.rebuild(volumes.iter().map(|volume| volume.id).collect());
        self.under_way.push(Box::pin(async move {
            for suspect in suspects {
                pool.distrust_object(suspect, IO).await;
            }
            // A pool of single copies may have fragments from when it had a code.
            let repaired = match redundancy {
                Redundancy { target: 1, short: 0, .. } => Repaired::default(),
                _ => pool.repair_others(&lost, &How::from(IO), &last).await,
            };
            Ended::Others(repaired)
        }));
    }

    /// Plans the missing initial replicas of streamed tables, after all other copies.
    async fn plan_initial_replicas(&mut self) {
        for table in self.pool.replication().take_begun_short() {
            let object = table.0;
            let is_planned = self.planned.iter().any(|copying| copying.object == object)
                || self.pace.in_flight().any(|flight| flight.object == object);
            if is_planned {
                continue;
            }
            if let Some(copying) = self.pool.place_initial_replica(table).await {
                self.planned.push_back(copying);
            }
        }
    }

    /// Logs changes of redundancy.
    fn tell(&self, now: &Redundancy, takers: usize) {
        let before = self.figures.lock().redundancy;
        let Redundancy { target, short, short_bytes, unreadable, .. } = *now;
        if unreadable > before.unreadable {
            tracing::error!(
                "{unreadable} objects cannot be read: the volumes that have them are away"
            );
        }
        if short > 0 && before.short == 0 {
            let bytes = Bytes(short_bytes);
            let needed = self.pool.code().map_or(target, Code::fragments);
            let why = match takers < needed {
                true => {
                    format!(
                        "only {takers} volumes take copies: add a volume, or bring back those that are away"
                    )
                }
                false => "the missing copies are made in the background".into(),
            };
            let what = self.promise(target);
            tracing::warn!("{short} objects ({bytes}) have fewer than {what}; {why}");
        }
        if short == 0 && before.short > 0 {
            tracing::info!("every object has {} again", self.promise(target));
        }
    }

    /// What every object should have.
    fn promise(&self, copies: usize) -> String {
        match self.pool.code() {
            None => format!("{copies} copies"),
            Some(code) => format!("{copies} copies, or the fragments of {code}"),
        }
    }

    fn drop_copies(&mut self, drops: Vec<Dropping>) {
        // Until the last drops end: the next plan contains the rest again.
        if drops.is_empty() || std::mem::replace(&mut self.dropping, true) {
            return;
        }
        let pool = self.pool.clone();
        self.under_way.push(Box::pin(async move {
            let mut dropped = Vec::new();
            for drop in drops {
                match pool.drop_copy(ObjectId(drop.object), drop.volume).await {
                    Ok(()) => dropped.push(drop),
                    Err(e) => tracing::debug!("a copy is not dropped: {e}"),
                }
            }
            Ended::Drops { dropped }
        }));
    }

    fn begin_what_may(&mut self) {
        let now = self.clock.now();
        let mut later = VecDeque::new();
        for copying in std::mem::take(&mut self.planned) {
            let flight = flight(&copying);
            if !self.pace.may_begin(flight, now) {
                later.push_back(copying);
            } else if self.has_come_to_leave(ObjectId(copying.object)) {
                self.figures.lock().skipped.count(Skip::Busy);
            } else {
                let most = bytes_per_sec(self.takers, copying.is_last);
                self.pace.begin(flight, copying.len, most, now);
                let (pool, id) = (self.pool.clone(), ObjectId(copying.object));
                let how = match copying.why {
                    Why::Heat => How::from(Io::new(Origin::Relief, Step::Data)),
                    _ if copying.is_last => self.rebuild(vec![copying.from, copying.to]),
                    Why::Repair | Why::Drain | Why::Speed => How::from(IO),
                };
                self.under_way.push(Box::pin(async move {
                    let result = pool.copy_by(id, copying.to, &how).await.map(drop);
                    Ended::Copy { copying, began: now, result }
                }));
            }
        }
        self.planned = later;
        let mut figures = self.figures.lock();
        figures.planned = self.planned.len() as u64;
        figures.in_flight = self.pace.in_flight().count() as u64;
    }

    /// How a copy between these volumes is made of an object of which one readable copy is left: the next loss would
    /// lose it.
    fn rebuild(&self, volumes: Vec<VolumeId>) -> How {
        let (steps, clock, pool) = (Arc::clone(&self.steps), self.clock.clone(), self.pool.clone());
        let wait = move || {
            let turn = Turn::new(Arc::clone(&steps), volumes.clone());
            let (clock, pool) = (clock.clone(), pool.clone());
            Box::pin(async move {
                loop {
                    let users_wait = !pool.expected_read().wait.is_zero();
                    let now = clock.now();
                    let Err(at) = turn.take(users_wait, now) else { return Ok(()) };
                    // The volumes may be faster by then.
                    clock.sleep_until(at.min(now + SECOND)).await;
                }
            }) as _
        };
        How { io: Io::new(Origin::Rebuild, Step::Data), wait: Some(Arc::new(wait)) }
    }

    /// Whether a table is leaving now that was not leaving when its copy was planned.
    fn has_come_to_leave(&self, id: ObjectId) -> bool {
        self.pool.placing().is_table_leaving(id) && !self.history.knew_leaving(id)
    }

    fn on_end(&mut self, ended: Ended) {
        match ended {
            Ended::Copy { copying, began, result } => {
                self.pace.end(flight(&copying));
                self.on_copied(&copying, began, result);
            }
            Ended::Drops { dropped } => {
                self.dropping = false;
                let mut figures = self.figures.lock();
                for drop in dropped {
                    figures.dropped[drop.whence as usize] += 1;
                }
            }
            Ended::Aligned => self.aligning = false,
            Ended::Recoded => self.recoding = false,
            Ended::Others(Repaired { made, short, .. }) => {
                self.mending = false;
                self.news |= made > 0;
                self.figures.lock().made[Why::Repair as usize] += made;
                for (name, why) in short.iter().take(1) {
                    let more = short.len() - 1;
                    tracing::debug!("{name} (and {more} more) has too few copies for now: {why}");
                }
            }
        }
    }

    fn on_copied(&mut self, copying: &Copying, began: Instant, result: Result<()>) {
        let now = self.clock.now();
        let mut figures = self.figures.lock();
        match result {
            Ok(()) => {
                self.news |= copying.why.is_for_target();
                self.planner.copied(copying.object, now);
                figures.made[copying.why as usize] += 1;
                figures.bytes += copying.len;
                figures.times.record(now.since(began));
            }
            // A compaction removed it, or another task made the copy first.
            Err(e) if matches!(e.kind(), ErrorKind::Gone | ErrorKind::AlreadyExists) => {
                figures.gone += 1;
            }
            Err(e) => {
                figures.failed += 1;
                let (to, why) = (self.pool.label(copying.to), copying.why.name());
                let id = copying.object;
                let failure = format!("table {id} is not copied to volume {to} ({why}): {e}");
                tracing::warn!("{failure}");
                self.failure = Some(failure);
            }
        }
    }
}

/// Resets initial replicas: without a mover, no task plans copies.
impl Drop for Mover {
    fn drop(&mut self) {
        self.pool.placing().set_initial_replicas(None);
    }
}

/// A rebuild's I/O that waits, or has gone.
struct Turn {
    steps: Arc<Mutex<Steps>>,
    ticket: Ticket,
}

impl Turn {
    fn new(steps: Arc<Mutex<Steps>>, volumes: Vec<VolumeId>) -> Self {
        let ticket = steps.lock().come(volumes);
        Self { steps, ticket }
    }

    fn take(&self, users_wait: bool, now: Instant) -> std::result::Result<(), Instant> {
        self.steps.lock().take(self.ticket, users_wait, now)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.steps.lock().leave(self.ticket);
    }
}

fn flight(copying: &Copying) -> Flight {
    Flight { object: copying.object, from: copying.from, to: copying.to }
}
