//! Commands on the server: its figures, its parameters, its time.

use super::catalogue::help;
use super::row::{Call, Command, NO_KEYS, Run};
use super::words::{shown, syntax_error};
use crate::resp::glob::matches_any_case;
use crate::resp::info::{self, MICROSECONDS};
use crate::resp::reply::Reply;
use crate::resp::service::Service;
use crate::resp::settings::KEEPALIVE;

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
    Command::call("info", -1, &["loading", "stale"], info).about(
        "server",
        "1.0.0",
        "Get information and statistics about the server",
    ),
    Command::call("time", 1, &["loading", "stale", "fast"], time).about(
        "server",
        "2.6.0",
        "Return the time: seconds since 1970 and microseconds, to the millisecond",
    ),
];

/// `TIME`.
fn time(call: &mut Call<'_>) -> Reply {
    const MILLISECONDS: u64 = 1000;
    let now = call.service.keyspace.now();
    let parts = [now / MILLISECONDS, now % MILLISECONDS * MICROSECONDS];
    Reply::Array(parts.map(|part| Reply::Bulk(part.to_string().into())).into())
}

/// `INFO [section…]`.
fn info(call: &mut Call<'_>) -> Reply {
    Reply::Text(info::text(call.service, &call.words[1..]))
}

/// The subcommands of `CONFIG`.
static CONFIG: &[Command] = &[
    config_row("get", -3, "2.0.0", "Get the values of parameters: pattern...", config_get),
    config_row("help", 2, "5.0.0", "Print this help", |_| help("CONFIG", CONFIG)),
    config_row("resetstat", 2, "2.0.0", "Reset the statistics that INFO reports", |call| {
        call.service.stats.begin_anew(call.service.keyspace.expired());
        Reply::OK
    }),
    config_row("set", -4, "2.0.0", "Refused: change the settings file instead", config_set),
];

const fn config_row(
    name: &'static str,
    arity: i32,
    since: &'static str,
    summary: &'static str,
    run: fn(&mut Call<'_>) -> Reply,
) -> Command {
    const FLAGS: &[&str] = &["admin", "noscript", "loading", "stale"];
    Command::call(name, arity, FLAGS, run).about("server", since, summary)
}

/// `CONFIG SET` is refused: changes by Redis clients would be lost at a restart.
fn config_set(call: &mut Call<'_>) -> Reply {
    let known = parameters(call.service);
    let name = &call.words[2];
    if !call.words.len().is_multiple_of(2) {
        return syntax_error();
    }
    let name = shown(name);
    if !known.iter().any(|(known, _)| name.eq_ignore_ascii_case(known)) {
        return Reply::error(format_args!(
            "Unknown option or number of arguments for CONFIG SET - '{name}'"
        ));
    }
    Reply::error(format_args!(
        "CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config: \
         change the settings file and restart"
    ))
}

fn config_get(call: &mut Call<'_>) -> Reply {
    let wanted = |name: &str| {
        let mut patterns = call.words[2..].iter();
        patterns.any(|pattern| matches_any_case(pattern, name.as_bytes()))
    };
    let pairs = parameters(call.service).into_iter().filter(|(name, _)| wanted(name));
    Reply::Map(pairs.map(|(name, value)| (Reply::word(name), Reply::Bulk(value.into()))).collect())
}

/// The parameters that clients and benchmarks query, in Redis' terms. The settings file has all, and is the only place
/// to change them.
fn parameters(service: &Service) -> Vec<(&'static str, String)> {
    let settings = &service.settings;
    let (plain, tls) = if settings.tls { (0, settings.port) } else { (settings.port, 0) };
    let seconds = settings.idle_timeout.unwrap_or_default().as_secs();
    vec![
        ("appendfsync", info::appendfsync(service.keyspace.durability()).into()),
        ("appendonly", "yes".into()),
        ("client-query-buffer-limit", settings.request_bytes_max.to_string()),
        ("cluster-enabled", "no".into()),
        ("databases", "1".into()),
        ("maxclients", settings.clients_max.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-clients", settings.clients_bytes_max.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("notify-keyspace-events", String::new()),
        ("port", plain.to_string()),
        ("proto-max-bulk-len", settings.bulk_bytes_max.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", KEEPALIVE.as_secs().to_string()),
        ("timeout", seconds.to_string()),
        ("tls-port", tls.to_string()),
    ]
}
