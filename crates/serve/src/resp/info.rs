//! `INFO`: figures as Redis' clients and people read them. Only figures that are real are there.

use std::fmt::Write;

use bytes::Bytes;
use engine::kv::Durability;

use super::command::REDIS_VERSION;
use super::service::Service;

/// A section: its name in requests, its heading, and what writes its lines.
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

/// The sections asked for; the usual ones if none is named.
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

fn server(service: &Service, lines: &mut Lines) {
    let uptime = service.figures.uptime().as_secs();
    lines.put("redis_version", REDIS_VERSION);
    lines.put("plimsoll_version", env!("CARGO_PKG_VERSION"));
    lines.put("redis_mode", "standalone");
    lines.put("os", std::env::consts::OS);
    lines.put("arch_bits", usize::BITS);
    lines.put("process_id", std::process::id());
    lines.put("tcp_port", service.settings.port);
    lines.put("uptime_in_seconds", uptime);
    lines.put("uptime_in_days", uptime / (24 * 60 * 60));
}

fn clients(service: &Service, lines: &mut Lines) {
    lines.put("connected_clients", service.stats.clients.get());
    lines.put("maxclients", service.settings.clients_max);
}

fn memory(service: &Service, lines: &mut Lines) {
    let memory = service.figures.memory();
    lines.put("used_memory", memory.store);
    lines.put("used_memory_rss", memory.resident);
    lines.put("store_memory_max", memory.store_max);
    lines.put("maxmemory", 0);
    lines.put("maxmemory_policy", "noeviction");
    lines.put("mem_clients_normal", service.stats.buffered.get());
    lines.put("maxmemory_clients", service.settings.clients_bytes_max);
}

fn persistence(service: &Service, lines: &mut Lines) {
    let durability = match service.keyspace.durability() {
        Durability::Always => "always",
        Durability::EverySec => "everysec",
        Durability::None => "none",
    };
    lines.put("loading", 0);
    lines.put("aof_enabled", 1);
    lines.put("durability", durability);
}

fn stats(service: &Service, lines: &mut Lines) {
    let stats = &service.stats;
    lines.put("total_connections_received", stats.connections.get());
    lines.put("total_commands_processed", stats.commands());
    lines.put("total_net_input_bytes", stats.bytes_in.get());
    lines.put("total_net_output_bytes", stats.bytes_out.get());
    lines.put("rejected_connections", stats.rejected.get());
    lines.put("keyspace_hits", stats.hits.get());
    lines.put("keyspace_misses", stats.misses.get());
    lines.put("total_error_replies", stats.errors.get());
}

fn replication(_: &Service, lines: &mut Lines) {
    lines.put("role", "master");
    lines.put("connected_slaves", 0);
}

fn command_stats(service: &Service, lines: &mut Lines) {
    for (name, calls) in service.stats.calls() {
        lines.put(format_args!("cmdstat_{name}"), format_args!("calls={calls}"));
    }
}

/// A line for each volume: what is paid, what was used, who waited.
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
    // A store that cannot count says so where it is asked alone, by DBSIZE.
    if let Ok(count) = service.keyspace.count()
        && count.keys > 0
    {
        let kind = if count.exact { "counted" } else { "estimated" };
        lines.put("db0", format_args!("keys={},expires=0,avg_ttl=0,{kind}=1", count.keys));
    }
}
