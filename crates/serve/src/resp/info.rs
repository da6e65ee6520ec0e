//! `INFO`: figures in the format of Redis, without those that do not exist here.

use std::fmt::Write;

use bytes::Bytes;
use engine::kv::Durability;

use super::service::Service;
use super::settings::REDIS_VERSION;

/// A section: its heading, which is also its name in requests, and the function that writes its lines.
struct Section {
    heading: &'static str,
    /// Whether `INFO` without arguments shows it.
    default: bool,
    write: fn(&Service, &mut Lines),
}

const SECTIONS: &[Section] = &[
    Section { heading: "Server", default: true, write: server },
    Section { heading: "Clients", default: true, write: clients },
    Section { heading: "Memory", default: true, write: memory },
    Section { heading: "Persistence", default: true, write: persistence },
    Section { heading: "Stats", default: true, write: stats },
    Section { heading: "Replication", default: true, write: replication },
    Section { heading: "Commandstats", default: false, write: command_stats },
    Section { heading: "Plimsoll", default: true, write: plimsoll },
    Section { heading: "Keyspace", default: true, write: keyspace },
];

/// The requested sections; the default ones if none is named.
pub(super) fn text(service: &Service, asked: &[Bytes]) -> String {
    let is = |word: &Bytes, name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let everything = asked.iter().any(|word| is(word, "all") || is(word, "everything"));
    let default = asked.is_empty() || asked.iter().any(|word| is(word, "default"));
    let wanted = |section: &&Section| {
        everything
            || (default && section.default)
            || asked.iter().any(|word| is(word, section.heading))
    };
    let mut lines = Lines(String::new());
    for section in SECTIONS.iter().filter(wanted) {
        if !lines.0.is_empty() {
            lines.0.push_str("\r\n");
        }
        lines.heading(section.heading);
        (section.write)(service, &mut lines);
    }
    lines.0
}

struct Lines(String);

impl Lines {
    fn heading(&mut self, name: &str) {
        self.push(format_args!("# {name}"));
    }

    fn put(&mut self, name: impl std::fmt::Display, value: impl std::fmt::Display) {
        self.push(format_args!("{name}:{value}"));
    }

    fn push(&mut self, line: std::fmt::Arguments<'_>) {
        write!(self.0, "{line}\r\n").expect("a string takes any text");
    }
}

/// Microseconds in a millisecond.
pub(super) const MICROSECONDS: u64 = 1000;

fn server(service: &Service, lines: &mut Lines) {
    let uptime = service.figures.uptime().as_secs();
    lines.put("redis_version", REDIS_VERSION);
    lines.put("plimsoll_version", env!("CARGO_PKG_VERSION"));
    lines.put("redis_mode", "standalone");
    lines.put("os", std::env::consts::OS);
    lines.put("arch_bits", usize::BITS);
    lines.put("process_id", std::process::id());
    lines.put("tcp_port", service.settings.port);
    lines.put("server_time_usec", service.keyspace.now() * MICROSECONDS);
    lines.put("uptime_in_seconds", uptime);
    lines.put("uptime_in_days", uptime / (24 * 60 * 60));
}

fn clients(service: &Service, lines: &mut Lines) {
    lines.put("connected_clients", service.stats.clients.get());
    lines.put("maxclients", service.settings.clients_max);
    lines.put("blocked_clients", 0);
}

fn memory(service: &Service, lines: &mut Lines) {
    let memory = service.figures.memory();
    lines.put("used_memory", memory.store);
    lines.put("used_memory_human", human(memory.store));
    lines.put("used_memory_rss", memory.resident);
    lines.put("used_memory_rss_human", human(memory.resident));
    lines.put("store_memory_max", memory.store_max);
    lines.put("maxmemory", 0);
    lines.put("maxmemory_policy", "noeviction");
    lines.put("mem_clients_normal", service.stats.buffered.get());
    lines.put("maxmemory_clients", service.settings.clients_bytes_max);
}

/// Bytes in Redis' human-readable form.
fn human(bytes: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|&(unit, _)| bytes >= unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / unit as f64),
        None => format!("{bytes}B"),
    }
}

fn persistence(service: &Service, lines: &mut Lines) {
    let durability = match service.keyspace.durability() {
        Durability::Always => "always",
        Durability::EverySec => "everysec",
        Durability::None => "none",
    };
    lines.put("loading", 0);
    // The write-ahead log corresponds to Redis' append-only file.
    lines.put("aof_enabled", 1);
    lines.put("appendfsync", appendfsync(service.keyspace.durability()));
    lines.put("durability", durability);
}

/// Redis' word for it.
pub(super) const fn appendfsync(durability: Durability) -> &'static str {
    match durability {
        Durability::Always => "always",
        Durability::EverySec => "everysec",
        Durability::None => "no",
    }
}

fn stats(service: &Service, lines: &mut Lines) {
    const KIB: f64 = 1024.0;
    let stats = &service.stats;
    let rates = stats.rates();
    let commands: u64 = stats.recent_calls().map(|(_, calls)| calls).sum();
    lines.put("total_connections_received", stats.connections.recent());
    lines.put("total_commands_processed", commands);
    lines.put("instantaneous_ops_per_sec", format_args!("{:.0}", rates.commands));
    lines.put("total_net_input_bytes", stats.bytes_in.recent());
    lines.put("total_net_output_bytes", stats.bytes_out.recent());
    lines.put("instantaneous_input_kbps", format_args!("{:.2}", rates.bytes_in / KIB));
    lines.put("instantaneous_output_kbps", format_args!("{:.2}", rates.bytes_out / KIB));
    lines.put("rejected_connections", stats.rejected.recent());
    lines.put("expired_keys", stats.recently_expired(service.keyspace.expired()));
    lines.put("evicted_keys", 0);
    lines.put("keyspace_hits", stats.hits.recent());
    lines.put("keyspace_misses", stats.misses.recent());
    lines.put("total_error_replies", stats.errors.recent());
}

fn replication(_: &Service, lines: &mut Lines) {
    lines.put("role", "master");
    lines.put("connected_slaves", 0);
}

fn command_stats(service: &Service, lines: &mut Lines) {
    for (name, calls) in service.stats.recent_calls() {
        lines.put(format_args!("cmdstat_{name}"), format_args!("calls={calls}"));
    }
}

/// A line for each volume: its paid rates, its use, and its waits.
fn plimsoll(service: &Service, lines: &mut Lines) {
    let or_unlimited = |limit: Option<u64>| limit.map_or("unlimited".into(), |n| n.to_string());
    for volume in service.figures.volumes() {
        let mut line = format!(
            "contract={},paid_iops={},paid_bytes_per_sec={},ops={},bytes={}",
            volume.contract,
            or_unlimited(volume.paid_iops),
            or_unlimited(volume.paid_bytes_per_sec),
            volume.ops,
            volume.bytes,
        );
        let mut more = |name: std::fmt::Arguments<'_>, value: u64| {
            write!(line, ",{name}={value}").expect("a string takes any text");
        };
        for class in &volume.classes {
            more(format_args!("{}_granted", class.name), class.granted);
            more(format_args!("{}_queued", class.name), class.queued);
        }
        if let Some(ops) = volume.provider_ops {
            more(format_args!("provider_ops"), ops);
        }
        if let Some(throttled) = volume.throttled {
            more(format_args!("throttled"), throttled);
        }
        if let Some(space) = volume.space {
            more(format_args!("total_bytes"), space.total);
            more(format_args!("free_bytes"), space.free);
        }
        lines.put(format_args!("volume_{}", volume.name), line);
    }
}

fn keyspace(service: &Service, lines: &mut Lines) {
    // A failed count is reported by DBSIZE; here the line is left out.
    if let Ok(count) = service.keyspace.count()
        && count.keys > 0
    {
        let kind = if count.exact { "counted" } else { "estimated" };
        let expires = service.keyspace.count_expiring().map_or(0, |expiring| expiring.keys);
        let (keys, expires) = (count.keys, expires.min(count.keys));
        lines.put("db0", format_args!("keys={keys},expires={expires},avg_ttl=0,{kind}=1"));
    }
}
