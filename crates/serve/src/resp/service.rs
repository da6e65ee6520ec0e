//! The state that all connections of a RESP listener share.

use std::sync::Arc;

use engine::keyspace::{Keyspace, ReadLimits};

use super::access::Access;
use super::cursors::Cursors;
use super::peers::Peers;
use super::settings::{ARGS_MAX, BYTES_PER_ELEMENT, Settings};
use super::stats::Stats;
use super::wire::Limits;
use crate::figures::Figures;

/// The store, and all other state of commands.
pub struct Service {
    /// The settings, without the password and the users.
    pub settings: Settings,
    /// The password and the users.
    pub access: Arc<Access>,
    /// The keyspace of the listener.
    pub keyspace: Arc<Keyspace>,
    /// Figures of the surrounding program.
    pub figures: Arc<dyn Figures>,
    /// The listener's counters.
    pub stats: Stats,
    /// The positions of clients' scans.
    pub(super) cursors: Cursors,
    /// The open connections.
    pub(super) peers: Peers,
}

impl Service {
    /// A service of `keyspace` that counts the calls of these `commands`. [`Service::new`] supplies their names: it
    /// stands beside the table of commands, since commands depend on the service.
    pub(super) fn of(
        mut settings: Settings,
        keyspace: Arc<Keyspace>,
        figures: Arc<dyn Figures>,
        commands: Vec<&'static str>,
    ) -> Self {
        let users = std::mem::take(&mut settings.users);
        let access = Access::new(settings.password.take(), users);
        Self {
            settings,
            access: Arc::new(access),
            keyspace,
            figures,
            stats: Stats::new(commands),
            cursors: Cursors::default(),
            peers: Peers::default(),
        }
    }

    /// The memory that a command, or the commands of `EXEC`, may hold for the reply. It also bounds data that is read
    /// but not sent. A reply within [`Settings::request_bytes_max`] normally needs no more.
    pub(super) fn read_limits(&self) -> ReadLimits {
        // Records are some bytes longer than their values, and the longest value must fit.
        const HEADS: usize = 64 * 1024;
        let Settings { bulk_bytes_max, request_bytes_max, .. } = self.settings;
        ReadLimits {
            bytes_max: request_bytes_max.max(bulk_bytes_max).saturating_add(HEADS),
            elements_max: request_bytes_max / BYTES_PER_ELEMENT,
        }
    }

    /// The limits on a client's requests.
    #[must_use]
    pub fn limits(&self, authenticated: bool) -> Limits {
        if !authenticated {
            return Limits::unauthenticated();
        }
        let Settings { bulk_bytes_max, request_bytes_max, .. } = self.settings;
        Limits { bulk_bytes_max, request_bytes_max, args_max: ARGS_MAX, authenticated }
    }
}
