//! The journal of a pool's manifest: its state, and the ids that it issues.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use volume::Result;

use crate::header::PoolId;
pub(crate) use crate::journal::Lsn;
use crate::journal::{self, Decoded, Replay};
use crate::leaf::ObjectId;
use crate::manifest::headers::Headers;
use crate::manifest::record::DecodeError;
use crate::manifest::{Begin, Dead, Record, State};
use crate::members::Members;

/// The ids that a lease adds. Ids are plenty; a lease costs a record, and a sync if it comes late.
const LEASE: u64 = 1024;
/// With this many ids left, the next lease is recorded, to be durable before they run out.
const LEASE_LOW: u64 = LEASE / 2;

impl Replay for State {
    type Record = Record;
    type Applied = Vec<Dead>;
    type Begin = Begin;
    type DecodeError = DecodeError;

    const NAME: &'static str = "manifest";
    const OWNER: &'static str = "the pool";
    const IO: Io = Io::new(Origin::UserWrite, Step::Manifest);

    fn apply(&mut self, edit: &[Record]) -> Result<Vec<Dead>> {
        self.apply(edit)
    }

    fn snapshot(&self) -> impl Iterator<Item = Record> {
        // The mark of a clean close applies only to the home that it was written to.
        self.snapshot().filter(|record| *record != Record::Close)
    }

    fn encode(record: &Record, out: &mut Vec<u8>) {
        record.encode(out);
    }

    fn decode(body: &[u8]) -> Decoded<Vec<Record>, Self> {
        Record::decode_all(body)
    }

    fn decode_begin(body: &[u8]) -> Decoded<Begin, Self> {
        Begin::decode(body)
    }

    fn snapshot_frames(begin: &Begin) -> u64 {
        begin.snapshot_frames
    }
}

/// The manifest of an open pool.
pub(crate) struct Journal {
    journal: journal::Journal<State, Headers>,
    pool: PoolId,
    /// Locked before the journal's state.
    ids: Mutex<Ids>,
}

/// Ids for new objects.
struct Ids {
    next: u64,
    /// The lease of ids below this is durable.
    safe: u64,
    /// A recorded lease: durable with this edit, up to this id.
    renewal: Option<(Lsn, u64)>,
}

impl Journal {
    /// Moves the recovered state to a new home, as `headers` say. `generation` is the highest number seen anywhere.
    /// Durable on return.
    ///
    /// # Errors
    /// Those of the volumes, when none takes a copy.
    pub(crate) async fn start(
        pool: PoolId,
        members: Arc<Members>,
        headers: Headers,
        mut state: State,
        generation: u64,
    ) -> Result<Self> {
        let issued = state.issued();
        let upto = issued.end + LEASE;
        state.apply(&[Record::Lease { from: issued.start, upto }])?;
        let journal = journal::Journal::start(members, headers, state, generation).await?;
        let ids = Ids { next: issued.end, safe: upto, renewal: None };
        Ok(Self { journal, pool, ids: Mutex::new(ids) })
    }

    pub(crate) const fn pool(&self) -> PoolId {
        self.pool
    }

    /// The volumes that are being drained.
    pub(crate) fn draining(&self) -> BTreeSet<VolumeId> {
        self.look(|state| state.draining().clone())
    }

    /// An id for a new object: unique, even across crashes.
    ///
    /// # Errors
    /// As for [`journal::Journal::durable`], when a new lease is needed.
    pub(crate) async fn issue_id(&self) -> Result<ObjectId> {
        loop {
            let lease = match self.next_id()? {
                Ok(id) => return Ok(id),
                Err(lease) => lease,
            };
            self.durable(lease).await?;
        }
    }

    /// An id, or the edit that must be durable before the next attempt.
    fn next_id(&self) -> Result<std::result::Result<ObjectId, Lsn>> {
        let mut ids = self.ids.lock();
        if let Some((_, safe)) = ids.renewal.take_if(|(lsn, _)| self.is_durable(*lsn)) {
            ids.safe = safe;
        }
        if ids.next + LEASE_LOW >= ids.safe && ids.renewal.is_none() {
            let issued = self.look(State::issued);
            let upto = issued.end + LEASE;
            let (lsn, _) = self.record(vec![Record::Lease { from: issued.start, upto }])?;
            ids.renewal = Some((lsn, upto));
        }
        if ids.next < ids.safe {
            ids.next += 1;
            return Ok(Ok(ObjectId(ids.next - 1)));
        }
        let (lsn, _) = ids.renewal.expect("recorded above, if not before");
        Ok(Err(lsn))
    }

    /// Marks a clean close. Durable on return.
    ///
    /// # Errors
    /// As for [`journal::Journal::ready`].
    pub(crate) async fn close(&self) -> Result<()> {
        self.journal.close(vec![Record::Close]).await
    }
}

impl Deref for Journal {
    type Target = journal::Journal<State, Headers>;

    fn deref(&self) -> &Self::Target {
        &self.journal
    }
}
