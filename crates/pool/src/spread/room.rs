//! The space that can still be written on the pool.

use policy::room::writable;
use volume::layer::reserve;
use volume::{Error, ErrorKind, Result, Space};

use super::Spread;

/// The space on the volumes that take new objects, divided by the copies of each byte.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    /// All bytes.
    pub total: u64,
    /// Bytes that the store of the handle can still write; not what the other stores keep.
    pub writable: u64,
    /// Of them, the bytes that volumes leave to logs and flushes, and refuse to compactions and copies.
    pub last: u64,
    /// Volumes that take new objects.
    pub volumes: usize,
    /// Those of them whose file systems lack files (inodes): they count as full, whatever their free bytes.
    pub lack_files: usize,
    /// Copies that the pool keeps of each byte.
    pub copies: usize,
}

impl Spread {
    /// The space that volumes report now; those that are away, draining or full take nothing. Costs a system
    /// call for each volume, and no token.
    pub async fn room(&self) -> Room {
        let pool = &self.0;
        let draining = pool.journal.draining();
        let spaces = pool.members.spaces().await.into_iter();
        let open = spaces.filter(|(volume, _)| !draining.contains(volume));
        let open: Vec<Space> = open.filter_map(|(_, space)| space.ok()).collect();
        let of = |bytes: fn(&Space) -> u64| {
            let bytes: Vec<_> = open.iter().map(bytes).collect();
            writable(&bytes, pool.replication.target)
        };
        Room {
            total: of(|s| s.total),
            writable: of(|s| s.free).saturating_sub(pool.tenants.kept_by_others(self.1)),
            last: reserve::last_of(self.reserve()) / pool.replication.target as u64,
            volumes: open.len(),
            lack_files: open.iter().filter(|space| space.lacks_files).count(),
            copies: pool.replication.target,
        }
    }

    /// Frees the bytes of objects that were [removed](Spread::remove_soon) without a wait; says whether there were any. That costs a
    /// sync of the manifest. For callers that lack room: what makes an object does it by itself.
    pub async fn free_removed(&self) -> bool {
        if !self.0.catalog.has_condemned() {
            return false;
        }
        let freed = self.flush().await;
        if let Err(error) = &freed {
            tracing::debug!(%error, "removed objects keep their room");
        }
        freed.is_ok()
    }

    /// The same for users of the pool as one volume: what they can still write, each copy counted once.
    ///
    /// # Errors
    /// `Unavailable`: no volume takes new objects.
    pub(super) async fn space(&self) -> Result<Space> {
        match self.room().await {
            Room { volumes: 0, .. } => {
                let what = "no volume of the pool takes new objects: bring one back, or add one";
                Err(Error::new(ErrorKind::Unavailable, what))
            }
            Room { total, writable: free, lack_files, .. } => {
                Ok(Space { total, free, lacks_files: lack_files > 0 })
            }
        }
    }
}
