//! Objects in place are verified by their stores, which have checksums of them.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use volume::{Error, ErrorKind, Expected, Io, Name, Verified, Verify};

use super::Spread;
use super::check::{Finding, Problem, problem};
use super::inode::Replica;
use super::scrub::ToScrub;

/// The stores that verify their objects, by what the names of these begin with. Its lock is taken alone.
#[derive(Default)]
pub(super) struct Verifiers(Mutex<Vec<(String, Arc<dyn Verify>)>>);

/// A store verifies its objects until this is dropped.
pub struct Verifying {
    pool: Spread,
    store: Arc<dyn Verify>,
}

impl Verifiers {
    fn of(&self, name: &Name) -> Option<Arc<dyn Verify>> {
        let all = self.0.lock();
        let mut its = all.iter().filter(|(begin, _)| name.as_str().starts_with(&**begin));
        its.next().map(|(_, store)| Arc::clone(store))
    }
}

impl Spread {
    /// Lets `store` verify the objects in place whose names begin so, whenever a scrub comes to one of them.
    #[must_use]
    pub fn verify_with(&self, begin: &str, store: Arc<dyn Verify>) -> Verifying {
        self.0.verifiers.0.lock().push((begin.to_owned(), Arc::clone(&store)));
        Verifying { pool: self.clone(), store }
    }

    /// What blocks of an object in place should be, as its store says. See [`Verify::expected`].
    pub(crate) async fn expected(
        &self,
        object: &Name,
        blocks: Range<u64>,
        fetch: Option<Io>,
    ) -> Vec<Expected> {
        let Some(store) = self.0.verifiers.of(object) else {
            return blocks.map(|_| Expected::Unchecked).collect();
        };
        let known = store.expected(object, blocks.clone(), fetch).await;
        known.unwrap_or_else(|e| {
            tracing::debug!("{object}: {e}");
            blocks.map(|_| Expected::Unknown).collect()
        })
    }

    /// Whether [`Spread::scrub_object`] can read this object now: the store of one in place has to be open.
    #[must_use]
    pub fn can_scrub(&self, object: &ToScrub) -> bool {
        !object.is_in_place() || self.0.verifiers.of(object.name()).is_some()
    }

    /// Lets the store of an object in place verify it. Copies that were damaged are repaired already.
    pub(super) async fn scrub_in_place(&self, object: &ToScrub) -> Vec<Finding> {
        let pool = &self.0;
        let Ok(inode) = pool.catalog.inode_by_id(object.id()) else { return Vec::new() };
        let finding = |volume: String, problem| {
            let name = object.name().to_string();
            Finding { volume, name, problem, elsewhere: false, copy: None }
        };
        let replicas = inode.replicas();
        let all: Vec<_> = replicas.iter().map(|replica| replica.labels()).collect();
        let _one = pool.damages.scrubbing.lock().await;
        let watch = pool.damages.watch(object.id());
        let verified = match pool.verifiers.of(object.name()) {
            Some(store) => store.verify(object.name()).await,
            None => Err(Error::new(ErrorKind::Busy, "its store is not open")),
        };
        let mut findings = Vec::new();
        let is_away = |replica: &&Arc<Replica>| !replica.is_here();
        for away in replicas.iter().filter(is_away) {
            findings.push(finding(away.labels(), Problem::Away));
        }
        for (number, repaired) in watch.found() {
            let Some(replica) = replicas.iter().find(|replica| replica.number == number) else {
                continue;
            };
            let problem = if repaired { Problem::Repaired } else { Problem::Damaged };
            findings.push(finding(replica.labels(), problem));
        }
        match verified {
            Ok(Verified { lost }) => {
                // A copy that is away was not read.
                if lost.is_empty() && replicas.iter().all(|replica| replica.is_here()) {
                    pool.damages.verified_all(object.id(), &watch.found());
                }
                let lost =
                    lost.into_iter().map(|what| finding(all.join(", "), Problem::Lost(what)));
                findings.extend(lost);
            }
            Err(e) => match problem(&e) {
                None => {}
                Some(_) => {
                    findings.push(finding(all.join(", "), Problem::Unread(e.to_string())));
                }
            },
        }
        findings
    }
}

impl Drop for Verifying {
    fn drop(&mut self) {
        self.pool.0.verifiers.0.lock().retain(|(_, store)| !Arc::ptr_eq(store, &self.store));
    }
}

impl std::fmt::Debug for Verifying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifying")
    }
}
