//! `/health`: whether each store serves its users now, and which volumes answer.
//!
//! | request | 200 | 503 |
//! |---|---|---|
//! | `GET /health` | nothing is wrong | anything is: for people and alarms |
//! | `GET /health/ready` | every store takes writes and serves reads | one refuses something: for load balancers |
//! | `GET /health/ready?store=kv&for=reads` | this store serves reads | it refuses some |
//! | `GET /health/live` | the program answers | never |
//!
//! Missing copies, repaired damage, a stopped background task and a cache tier without its fast side leave a store *ready*:
//! another copy serves its users.
//! `/health` answers 503 for them, because an administrator must act.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Json, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::health::StoreHealth;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::Control;

/// The limit on the program's time to report its health. Monitors commonly give up after five seconds.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// The health at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Health {
    /// Each store, by its section in the settings: `kv`, `series`, `block`.
    pub stores: BTreeMap<String, StoreHealth>,
    /// Each volume, by its name in the settings, with its problem.
    pub volumes: BTreeMap<String, Option<String>>,
    /// Each cache tier, by its name in the settings. A tier serves without its fast side.
    pub tiers: BTreeMap<String, TierHealth>,
    /// Why the health of the stores is unknown.
    pub unknown: Option<String>,
}

/// The health of a cache tier.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TierHealth {
    /// Whether its fast side is in use.
    pub attached: bool,
    /// Bytes that were lost with a fast side: reads of them fail until they are written.
    pub stale_bytes: u64,
    /// Its problems, in words.
    pub problems: Vec<String>,
}

impl Health {
    /// Whether there are no problems.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.unknown.is_none()
            && self.stores.values().all(StoreHealth::is_healthy)
            && self.volumes.values().all(Option::is_none)
            && self.tiers.values().all(|tier| tier.problems.is_empty())
    }

    /// The problems, in words, one on each line.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<_> = self.unknown.iter().cloned().collect();
        problems.extend(self.volumes.values().flatten().cloned());
        problems.extend(self.tiers.values().flat_map(|tier| tier.problems.iter().cloned()));
        for (name, store) in &self.stores {
            let mut tell = |what: &str, why: &str| problems.push(format!("{name}: {what}: {why}"));
            if let Some(why) = &store.writes_refused {
                tell("writes are refused", why);
            }
            if let Some(why) = &store.reads_refused {
                tell("reads fail", why);
            }
            for problem in store.tasks.iter().filter_map(|task| task.problem.as_ref()) {
                tell("background work", problem);
            }
            if store.copies_short > 0 {
                let objects = store.copies_short;
                problems.push(format!(
                    "{name}: {objects} objects have fewer copies or fragments than the pool promises"
                ));
            }
            if store.damaged > 0 {
                let damaged = store.damaged;
                problems.push(format!(
                    "{name}: damage found and not repaired: {damaged}; the log and `plimsoll check --scrub` \
                     name the places"
                ));
            }
        }
        problems
    }

    fn is_ready(&self, of: &Wanted) -> bool {
        let is_asked = |name: &str| of.store.as_deref().is_none_or(|wanted| wanted == name);
        let mut stores = self.stores.iter().filter(|(name, _)| is_asked(name));
        self.unknown.is_none()
            && stores.all(|(_, store)| match of.what {
                Some(What::Reads) => store.reads_refused.is_none(),
                Some(What::Writes) => store.writes_refused.is_none(),
                None => store.reads_refused.is_none() && store.writes_refused.is_none(),
            })
    }
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut document =
            to.serialize_struct("Health", 4 + usize::from(!self.tiers.is_empty()))?;
        document.serialize_field("healthy", &self.is_healthy())?;
        document.serialize_field("problems", &self.problems())?;
        let stores = self.stores.iter().map(|(name, store)| (name, StoreShown::of(store)));
        document.serialize_field("stores", &stores.collect::<BTreeMap<_, _>>())?;
        let volumes = self.volumes.iter().map(|(name, problem)| {
            (name, VolumeShown { answers: problem.is_none(), problem: problem.as_deref() })
        });
        document.serialize_field("volumes", &volumes.collect::<BTreeMap<_, _>>())?;
        let tiers = self.tiers.iter().map(|(name, tier)| (name, TierShown::of(tier)));
        if !self.tiers.is_empty() {
            document.serialize_field("tiers", &tiers.collect::<BTreeMap<_, _>>())?;
        }
        document.end()
    }
}

#[derive(Serialize)]
struct StoreShown<'h> {
    takes_writes: bool,
    serves_reads: bool,
    /// Objects with fewer copies than the replication target.
    copies_short: u64,
    /// Places with damage found and not repaired.
    damaged: u64,
    /// Whether all background tasks work.
    upkeep: bool,
    /// These tasks, by name.
    tasks: BTreeMap<&'h str, TaskShown<'h>>,
}

#[derive(Serialize)]
struct TaskShown<'h> {
    /// Whole seconds since the last completed round.
    since_completed_s: u64,
    /// Failed rounds in a row.
    failures: u64,
    /// The error of the last failed round.
    error: Option<&'h str>,
    problem: Option<&'h str>,
}

impl<'h> StoreShown<'h> {
    fn of(store: &'h StoreHealth) -> Self {
        let tasks = store.tasks.iter().map(|task| {
            let shown = TaskShown {
                since_completed_s: task.since_completed.as_secs(),
                failures: task.failures,
                error: task.error.as_deref(),
                problem: task.problem.as_deref(),
            };
            (&task.task[..], shown)
        });
        Self {
            takes_writes: store.writes_refused.is_none(),
            serves_reads: store.reads_refused.is_none(),
            copies_short: store.copies_short,
            damaged: store.damaged,
            upkeep: store.upkeep_works(),
            tasks: tasks.collect(),
        }
    }
}

#[derive(Serialize)]
struct VolumeShown<'h> {
    answers: bool,
    problem: Option<&'h str>,
}

#[derive(Serialize)]
struct TierShown {
    /// Whether its fast side is in use.
    attached: bool,
    /// Bytes that reads refuse until they are written.
    stale_bytes: u64,
    problem: Option<String>,
}

impl TierShown {
    fn of(tier: &TierHealth) -> Self {
        let TierHealth { attached, stale_bytes, ref problems } = *tier;
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        Self { attached, stale_bytes, problem }
    }
}

/// Queries the health of the program. Only one query runs at a time, and each caller waits a bounded time for it: a
/// hanging store occupies one thread, however many callers there are.
pub(super) struct Asker {
    control: Arc<dyn Control>,
    answer_max: Duration,
    under_way: Mutex<Option<JoinHandle<Health>>>,
}

impl Asker {
    pub(super) fn new(control: Arc<dyn Control>) -> Self {
        Self { control, answer_max: ANSWER_MAX, under_way: Mutex::default() }
    }

    pub(super) async fn ask(&self) -> Health {
        let asked = timeout(self.answer_max, async {
            let mut under_way = self.under_way.lock().await;
            // Discards the outdated answer of a query whose callers all timed out.
            under_way.take_if(|question| question.is_finished());
            let control = Arc::clone(&self.control);
            let question =
                under_way.get_or_insert_with(|| spawn_blocking(move || control.health()));
            let answer = question.await;
            *under_way = None;
            answer
        });
        let unknown = match asked.await {
            Ok(Ok(health)) => return health,
            Ok(Err(panic)) => format!("the health check failed: {panic}"),
            Err(_) => format!("the stores do not answer within {:?}", self.answer_max),
        };
        Health { unknown: Some(unknown), ..Health::default() }
    }
}

/// The query of a load balancer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    store: Option<String>,
    #[serde(rename = "for")]
    what: Option<What>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Reads,
    Writes,
}

pub(super) async fn health(State(asker): State<Arc<Asker>>) -> Response {
    let health = asker.ask().await;
    (status(health.is_healthy()), Json(health)).into_response()
}

pub(super) async fn ready(
    State(asker): State<Arc<Asker>>,
    Query(wanted): Query<Wanted>,
) -> Response {
    let health = asker.ask().await;
    if let (Some(store), None) = (&wanted.store, &health.unknown)
        && !health.stores.contains_key(store)
    {
        let known: Vec<_> = health.stores.keys().map(String::as_str).collect();
        let what = format!("no store is called {store}; the stores are {}\n", known.join(", "));
        return (StatusCode::NOT_FOUND, what).into_response();
    }
    let ready = health.is_ready(&wanted);
    let problems = health.problems();
    (status(ready), Json(Ready { ready, problems })).into_response()
}

pub(super) async fn live() -> Response {
    (StatusCode::OK, "alive\n").into_response()
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    problems: Vec<String>,
}

const fn status(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::admin::scrub::Scrubs;
    use crate::admin::tiers::Tier;
    use crate::admin::volumes::{Changed, List, New, Volume};
    use crate::admin::{Error, block};

    /// Reports its health once the lock is free.
    #[derive(Default)]
    struct Slow {
        hung: std::sync::Mutex<()>,
        asked: AtomicUsize,
    }

    impl Control for Slow {
        fn health(&self) -> Health {
            self.asked.fetch_add(1, Ordering::SeqCst);
            drop(self.hung.lock().expect("no thread panicked"));
            Health::default()
        }

        fn reload(&self) -> Result<Vec<String>, Error> {
            unimplemented!("not asked here")
        }

        fn volumes(&self) -> List {
            unimplemented!("not asked here")
        }

        fn add_volume(&self, _: &New) -> Result<Changed, Error> {
            unimplemented!("not asked here")
        }

        fn drain_volume(&self, _: &str) -> Result<Volume, Error> {
            unimplemented!("not asked here")
        }

        fn keep_volume(&self, _: &str) -> Result<Volume, Error> {
            unimplemented!("not asked here")
        }

        fn remove_volume(&self, _: &str, _: bool) -> Result<Changed, Error> {
            unimplemented!("not asked here")
        }

        fn attach_tier(&self, _: &str) -> Result<Tier, Error> {
            unimplemented!("not asked here")
        }

        fn detach_tier(&self, _: &str) -> Result<Tier, Error> {
            unimplemented!("not asked here")
        }

        fn lose_tier(&self, _: &str) -> Result<Tier, Error> {
            unimplemented!("not asked here")
        }

        fn flush_tier(&self, _: &str) -> Result<Tier, Error> {
            unimplemented!("not asked here")
        }

        fn devices(&self) -> Result<block::List, Error> {
            unimplemented!("not asked here")
        }

        fn create_device(&self, _: &block::New) -> Result<block::Device, Error> {
            unimplemented!("not asked here")
        }

        fn resize_device(&self, _: &str, _: &block::Resize) -> Result<block::Device, Error> {
            unimplemented!("not asked here")
        }

        fn limit_device(&self, _: &str, _: &block::NewLimit) -> Result<block::Device, Error> {
            unimplemented!("not asked here")
        }

        fn release_device(&self, _: &str) -> Result<block::Device, Error> {
            unimplemented!("not asked here")
        }

        fn delete_device(&self, _: &str) -> Result<block::Device, Error> {
            unimplemented!("not asked here")
        }

        fn scrub(&self, _: Option<&str>) -> Result<Scrubs, Error> {
            unimplemented!("not asked here")
        }

        fn begin_scrub(&self, _: Option<&str>) -> Result<Scrubs, Error> {
            unimplemented!("not asked here")
        }
    }

    #[test]
    fn a_tier_without_its_fast_side_is_a_problem_that_refuses_nothing() {
        let problem = "tier cached: ebs serves all reads".to_owned();
        let mut health = Health::default();
        health.stores.insert("kv".into(), StoreHealth::default());
        let tier = TierHealth { problems: vec![problem.clone()], ..TierHealth::default() };
        health.tiers.insert("cached".into(), tier);
        assert!(!health.is_healthy() && health.is_ready(&Wanted { store: None, what: None }));
        assert_eq!(health.problems(), [&*problem]);
        let shown = serde_json::to_value(&health).expect("JSON");
        assert_eq!(shown["tiers"]["cached"]["attached"], false);
    }

    #[test]
    fn a_program_that_hangs_is_not_healthy_and_is_asked_once() {
        let slow = Arc::new(Slow::default());
        let hung = slow.hung.lock().expect("no thread panicked");
        let asker = Asker {
            answer_max: Duration::from_millis(1),
            ..Asker::new(Arc::clone(&slow) as Arc<dyn Control>)
        };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        for _ in 0..10 {
            let health = runtime.block_on(asker.ask());
            assert!(!health.is_healthy() && health.unknown.is_some(), "{health:?}");
            assert!(!health.is_ready(&Wanted { store: None, what: None }));
        }
        assert!(
            slow.asked.load(Ordering::SeqCst) <= 1,
            "one thread waits, however often it is asked"
        );
        drop(hung);
        while !runtime.block_on(asker.ask()).is_healthy() {}
    }
}
