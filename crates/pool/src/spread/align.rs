//! What is done about copies when a pool opens after a crash: those of one object are made the same again,
//! and those of which bytes are missing go.
//!
//! Each copy of an object that was written to has all that was synced; of the rest it has any part. All of
//! them become what the longest is, before anybody reads. Dropping all but that one would do as well,
//! but for one thing: until new copies were made, losing its volume would lose what had been acknowledged.
//! So the others stay, and are mended where they are. Pieces that differ are written with the bytes of the
//! longest: what was synced in them is written over with itself, so that this may be cut anywhere.

use futures_util::StreamExt;
use futures_util::stream;
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use volume::{IoBufMut, Object, Result};

use super::Spread;
use super::body::Replica;
use super::check::Report;
use super::handle::Handle;
use crate::leaf::Kind;
use crate::manifest::recovery::Unequal;

const IO: Io = Io::new(Origin::Open, Step::Data);

/// How much is compared at once.
const PIECE: u64 = 256 * KIB;

/// How many objects at once: each has two volumes at work.
const AT_ONCE: usize = 4;

impl Spread {
    /// Makes copies the same again. Durable on return; a copy that cannot be made so goes.
    pub(super) async fn align(&self, unequal: Vec<Unequal>) {
        stream::iter(unequal).for_each_concurrent(AT_ONCE, |object| self.align_one(object)).await;
    }

    async fn align_one(&self, Unequal { id, copies }: Unequal) {
        let pool = &self.0;
        let Ok(body) = pool.body_by_id(id) else { return };
        let handle = self.handle(body);
        let body = handle.body();
        let mut copies = copies.into_iter().filter_map(|number| body.replica(number));
        let Some(mut lead) = copies.next() else { return };
        for other in copies {
            match handle.align(&lead, &other).await {
                Ok(()) => {}
                Err(Unlike::Lead(why)) => {
                    pool.lose(body, &[lead.number], &why.to_string());
                    lead = other;
                }
                Err(Unlike::Other(why)) => pool.lose(body, &[other.number], &why.to_string()),
            }
        }
        // Opening the others said how long those were.
        if let Ok(len) = handle.len_of(&lead).await {
            body.set_len(len);
        }
    }

    /// Drops copies of which bytes were missing when the volumes were looked at, of objects with another
    /// that is whole.
    pub(super) async fn drop_broken(&self, report: &Report) {
        match self.mend(report).await {
            Ok(0) => {}
            Ok(dropped) => tracing::warn!("{dropped} copies that lost bytes are dropped"),
            Err(e) => tracing::warn!("copies that lost bytes stay for now: {e}"),
        }
    }
}

/// Why copies are not the same, and which of them it lies with.
enum Unlike {
    Lead(volume::Error),
    Other(volume::Error),
}

impl Handle {
    /// Makes `other` what `lead` is, and both durable.
    async fn align(&self, lead: &Replica, other: &Replica) -> std::result::Result<(), Unlike> {
        let len = self.len_of(lead).await.map_err(Unlike::Lead)?;
        self.len_of(other).await.map_err(Unlike::Other)?;
        let mut at = 0;
        while at < len {
            let step = PIECE.min(len - at);
            let into = || IoBufMut::zeroed(step as usize);
            let wanted = self.read_from(lead, at, into(), IO).await.map_err(Unlike::Lead)?;
            let found = self.read_from(other, at, into(), IO).await.map_err(Unlike::Other)?;
            if wanted[..] != found[..] {
                let written = self.write_to(other, at, &wanted.freeze(), IO).await;
                written.map_err(Unlike::Other)?;
            }
            at += step;
        }
        // It is no longer than that: so they were sorted.
        self.sync_copy(lead, len, IO).await.map_err(Unlike::Lead)?;
        self.sync_copy(other, len, IO).await.map_err(Unlike::Other)
    }

    /// How long one copy is.
    async fn len_of(&self, replica: &Replica) -> Result<u64> {
        let mut len = 0;
        for part in 0..replica.parts() {
            len = self.leaf_of(replica, part).await?.len();
        }
        // Of anything but a log the manifest says it, and its parts were cut to that as they were opened.
        Ok(if self.body().kind == Kind::Log { len } else { self.len() })
    }
}
