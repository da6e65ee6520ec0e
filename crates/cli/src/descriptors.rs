//! The limit of open files, and what the settings need of it.

use policy::descriptors::{TooFew, Use, tables_max};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serve::http::server::Terms;

use crate::settings::{On, Settings};

/// Files beside connections and tables: logs, manifests, the pieces of reserves, probes, sockets of the runtime.
const OTHERS: u64 = 256;
/// Files that a store of time series has open on each volume at its start; it has one more for each file that it fills.
const SERIES_MIN: u64 = 64;
/// Of a thread that reads volumes: its ring, and what wakes it there.
const RING: u64 = 2;
/// Of a client of block devices, which has a thread: its connection, the thread's ring and the files of its runtime.
const BLOCK_CLIENT: u64 = 8;

/// Raises the limit of open files of this process as far as the system lets it. The usual limit of 1024 is that of
/// programs that use `select`.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// How many tables the key-value store may have open; `None` without one, or without a limit.
///
/// # Errors
/// The settings need more files than this process may have open.
pub(crate) fn tables(settings: &Settings) -> Result<Option<u32>, TooFew> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) => divide(settings, limit),
        None => Ok(None),
    }
}

fn divide(settings: &Settings, limit: u64) -> Result<Option<u32>, TooFew> {
    let mut uses = vec![Use { what: "logs, manifests and probes".into(), descriptors: OTHERS }];
    let mut takes = |what: &str, descriptors: u64| {
        uses.push(Use { what: what.into(), descriptors });
    };
    if let Some(kv) = &settings.kv {
        takes("kv.clients_max", kv.endpoint.clients_max);
        // As many commands that write as those that only read.
        takes("kv.threads", 2 * RING * kv.endpoint.threads as u64);
    }
    if let Some((series, http)) = &settings.series {
        takes("http.connections_max", http.endpoint.terms.connections_max as u64);
        let volumes = match &series.on {
            On::Volumes(names) => names.len(),
            On::Pool(name) => {
                settings.pool(name).map_or(0, |pool| pool.leaves(&settings.pools).len())
            }
        };
        takes("time series", SERIES_MIN * volumes as u64);
    }
    if let Some(block) = &settings.block {
        takes("block.clients_max", BLOCK_CLIENT * block.endpoint.clients_max as u64);
    }
    if settings.admin.is_some() {
        takes("the admin listener", Terms::default().connections_max as u64);
    }
    let Some(pool) = settings.kv.as_ref().and_then(|kv| settings.pool(&kv.pool)) else {
        return tables_max(limit, &uses, 0).map(|_| None);
    };
    // A written copy is open a second time, for the parts of its pages; heat may add a copy.
    let files = pool.code.map_or(pool.copies, |code| code.fragments());
    let per_table = 2 * files as u64 + 1;
    let tables = tables_max(limit, &uses, per_table)?;
    // The files of time series grow with their volumes.
    let tables = if settings.series.is_some() { tables / 2 } else { tables };
    Ok(Some(u32::try_from(tables).unwrap_or(u32::MAX)))
}
