//! Commands on the server: what it holds, how it is set, how it does.

use super::{Call, Command, NO_KEYS, Run};
use crate::resp::glob::matches_any_case;
use crate::resp::info;
use crate::resp::reply::Reply;
use crate::resp::service::Service;
use engine::kv::Durability;

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command {
        name: "config",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        group: "server",
        since: "2.0.0",
        summary: "A container for server configuration commands",
        run: Run::Subcommands(CONFIG),
    },
    Command {
        name: "info",
        arity: -1,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        group: "server",
        since: "1.0.0",
        summary: "Get information and statistics about the server",
        run: Run::Call(info),
    },
];

/// `INFO [section…]`.
fn info(call: &mut Call<'_>) -> Reply {
    Reply::Text(info::text(call.service, &call.words[1..]))
}

/// The subcommands of `CONFIG`.
static CONFIG: &[Command] = &[Command {
    name: "get",
    arity: -3,
    flags: &["admin", "noscript", "loading", "stale"],
    keys: NO_KEYS,
    group: "server",
    since: "2.0.0",
    summary: "Get the values of configuration parameters",
    run: Run::Call(config_get),
}];

fn config_get(call: &mut Call<'_>) -> Reply {
    let wanted = |name: &str| {
        let mut patterns = call.words[2..].iter();
        patterns.any(|pattern| matches_any_case(pattern, name.as_bytes()))
    };
    let pairs = parameters(call.service).into_iter().filter(|(name, _)| wanted(name));
    Reply::Map(pairs.map(|(name, value)| (Reply::word(name), Reply::Bulk(value.into()))).collect())
}

/// What clients and benchmarks ask for, in Redis' terms. The settings file says more, and is the only
/// place to change any of it.
fn parameters(service: &Service) -> Vec<(&'static str, String)> {
    let settings = &service.settings;
    let (appendonly, appendfsync) = match service.keyspace.durability() {
        Durability::Always => ("yes", "always"),
        Durability::EverySec => ("yes", "everysec"),
        Durability::None => ("yes", "no"),
    };
    vec![
        ("appendfsync", appendfsync.into()),
        ("appendonly", appendonly.into()),
        ("client-query-buffer-limit", settings.request_bytes_max.to_string()),
        ("databases", "1".into()),
        ("maxclients", settings.clients_max.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-clients", settings.clients_bytes_max.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", settings.port.to_string()),
        ("proto-max-bulk-len", settings.bulk_bytes_max.to_string()),
        ("save", String::new()),
        ("timeout", "0".into()),
    ]
}
