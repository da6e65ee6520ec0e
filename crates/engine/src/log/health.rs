//! The store's condition, for health checks.

use volume::heartbeat::Heartbeat;

use super::state::MemberState;
use super::{Disk, Inner, Store};
use crate::health::StoreHealth;

impl Store {
    /// The store's condition now, from memory: cheap enough for a check each second. `writes_refused` is set where no
    /// volume takes writes.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let inner = &self.0;
        let state = inner.state();
        let members = || inner.disks.iter().zip(&state.members);
        let refusing: Vec<_> =
            members().filter(|(_, member)| member.is_refusing(state.sequence)).collect();
        let why = |(disk, member): &(&Disk, &MemberState)| {
            let full = || Inner::full(&disk.label, member.space.lacks_files);
            member.away.clone().unwrap_or_else(full)
        };
        let all: Vec<_> = refusing.iter().map(why).collect();
        let writes_refused = match inner.is_closing() {
            true => Some("the store is closed: open it again".to_string()),
            false => (all.len() == inner.disks.len()).then(|| all.join("; ")),
        };
        let away: Vec<_> = members().filter_map(|(_, member)| member.away.clone()).collect();
        let damaged = state.files.values().map(|facts| facts.damaged.len() as u64).sum();
        let disks = inner.disks.iter().flat_map(|disk| [&disk.merges, &disk.seals]);
        let tasks = disks.chain([&inner.syncs]).map(Heartbeat::health).collect();
        StoreHealth {
            tasks,
            writes_refused,
            reads_refused: (!away.is_empty()).then(|| away.join("; ")),
            damaged,
            ..StoreHealth::default()
        }
    }
}

impl Inner {
    /// The message for a full volume, which may lack files instead of bytes, with the way out.
    pub(super) fn full(labels: &str, lacks_files: bool) -> String {
        let remaining = match lacks_files {
            true => "inodes (`df -i`), not bytes, are",
            false => "room is",
        };
        format!(
            "volume {labels}: the remaining {remaining} reserved for deletes and merges: delete something, or \
             give it more room"
        )
    }
}
