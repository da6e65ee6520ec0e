//! `[kv]`: the key-value store, and its listener for Redis clients.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use plimsoll::kv::Options;
use serve::resp::{self, User};
use serve::tls::TlsFiles;
use serve::{May, Secret};

use super::document::{Field, Section};
use super::{Entry, Mistake, Pool, store, units};

/// The keys of the store.
pub(super) const KEYS: &[&str] = &[
    "pool",
    "meta",
    "memory",
    "durability",
    "wal_sync_interval",
    "memtable",
    "memtables",
    "table_size",
    "level_base",
    "bloom_bits",
    "cache",
    "cache_data",
    "cache_policy",
    "prefetch",
    "rewarm",
    "compression",
    "compression_last",
    "jobs",
    "subcompactions",
    "listen",
    "password",
    "users",
    "threads",
    "clients_max",
    "clients_per_address",
    "clients_memory",
    "bulk_max",
    "request_max",
    "stop_grace",
    "idle_timeout",
    "auth_timeout",
    "io_weight",
    "tls",
];

/// The keys of a user.
const USER_KEYS: &[&str] = &["name", "password", "may"];

/// The keys of `tls`.
const TLS_KEYS: &[&str] = &["cert", "key", "client_ca"];

/// The store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kv {
    /// Its pool.
    pub(crate) pool: String,
    /// The volumes for RocksDB's logs and the pool's manifest; the pool chooses if there are none.
    pub(crate) meta: Vec<String>,
    /// Its memory, durability, and options of RocksDB.
    pub(crate) options: Options,
    /// Its I/O weight beside the other store on the pool. Default 1.
    pub(crate) io_weight: u32,
    /// The address for clients. Default 127.0.0.1:6380.
    pub(crate) listen: SocketAddr,
    /// Limits and settings of the listener, including its password.
    pub(crate) endpoint: resp::Settings,
    /// Certificates, if clients use TLS. Default: none.
    pub(crate) tls: Option<TlsFiles>,
}

const LISTEN: &str = "an address and a port, such as \"127.0.0.1:6380\"";

impl Kv {
    /// Reads the store on one of the pools with these names; `pools` are the valid ones.
    pub(super) fn read(section: &Section<'_>, names: &[&str], pools: &[Pool]) -> Option<Self> {
        let accepted =
            if names.is_empty() { "the name of a pool".into() } else { names.join(", ") };
        let pool = section.need("pool", &accepted, |field| {
            let name = field.known(names)?;
            Pool::check_for_store(field, name, pools)?;
            Ok(name.to_owned())
        });
        let options = store::read(section);
        let tls = tls(section);
        let (listen, endpoint) = endpoint(section, tls.as_ref());
        let of = pools.iter().find(|other| Some(&other.name) == pool.as_ref());
        let meta = section.read_or("meta", Vec::new(), |field| {
            let known: Vec<_> =
                of.iter().flat_map(|pool| &pool.volumes).map(String::as_str).collect();
            field.list("a list of volumes of the pool", |name| Ok(name.known(&known)?.to_owned()))
        });
        let io_weight = io_weight(section);
        Some(Self { pool: pool?, meta, options, io_weight, listen, endpoint, tls })
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |key, value: &dyn std::fmt::Display| Entry::new("kv", key, value);
        let size = units::show_size;
        let endpoint = &self.endpoint;
        let mut entries = vec![
            entry("pool", &format_args!("{:?}", self.pool)),
            entry("listen", &format_args!("\"{}\"", self.listen)),
            entry("threads", &endpoint.threads),
            entry("clients_max", &endpoint.clients_max),
            entry("clients_memory", &size(endpoint.clients_bytes_max)),
            entry("bulk_max", &size(endpoint.bulk_bytes_max as u64)),
            entry("request_max", &size(endpoint.request_bytes_max as u64)),
            entry("stop_grace", &units::show_duration(endpoint.stop_grace)),
            entry("idle_timeout", &units::show_duration(endpoint.idle_timeout.unwrap_or_default())),
            entry("auth_timeout", &units::show_duration(endpoint.auth_timeout)),
            entry("io_weight", &self.io_weight),
        ];
        entries.splice(1..1, store::entries(&self.options));
        if !self.meta.is_empty() {
            entries.insert(1, entry("meta", &toml::Value::from(self.meta.clone())));
        }
        entries.extend(
            endpoint.password.iter().map(|secret| entry("password", &format_args!("\"{secret}\""))),
        );
        if !endpoint.users.is_empty() {
            let shown: Vec<_> = endpoint.users.iter().map(show_user).collect();
            entries.push(entry("users", &format_args!("[{}]", shown.join(", "))));
        }
        entries
            .extend(endpoint.clients_per_address.map(|most| entry("clients_per_address", &most)));
        entries.extend(self.tls.iter().map(|files| entry("tls", &show_tls(files))));
        entries
    }
}

/// The I/O weight of a store beside the other one on its pool.
pub(super) fn io_weight(section: &Section<'_>) -> u32 {
    let number = |field: &Field<'_>| field.number(1..=100);
    u32::try_from(section.read_or("io_weight", 1, number)).expect("it was checked")
}

/// The certificates of a section, if given.
pub(super) fn tls(section: &Section<'_>) -> Option<TlsFiles> {
    let section = section.optional_section("tls", TLS_KEYS)?;
    let file = |key| section.need(key, "the path of a PEM file", Field::path);
    let (cert, key) = (file("cert"), file("key"));
    let client_ca = section.read("client_ca", Field::path);
    Some(TlsFiles { cert: cert?, key: key?, client_ca })
}

pub(super) fn show_tls(files: &TlsFiles) -> String {
    let client_ca = files.client_ca.as_ref().map(|path| ("client_ca", path));
    let files = [("cert", &files.cert), ("key", &files.key)].into_iter().chain(client_ca);
    let shown = |path: &Path| toml::Value::from(path.display().to_string());
    let files: Vec<_> = files.map(|(key, path)| format!("{key} = {}", shown(path))).collect();
    format!("{{ {} }}", files.join(", "))
}

fn endpoint(section: &Section<'_>, tls: Option<&TlsFiles>) -> (SocketAddr, resp::Settings) {
    let usual = resp::Settings::default();
    let loopback = SocketAddr::from(([127, 0, 0, 1], usual.port));
    let address =
        section.read_or("listen", loopback, |field| field.parsed(LISTEN, |text| text.parse().ok()));
    let password = section.read("password", |field| field.text("a text that is not empty"));
    let users = section.read_or("users", Vec::new(), users);
    if let (Some(field), false, None) = (section.get("users"), users.is_empty(), password) {
        section.note(
            field.mistake("users and a password: without one every client may do everything"),
        );
    }
    let strangers_are_known =
        section.get("password").is_some() || tls.is_some_and(|files| files.client_ca.is_some());
    if let (Some(field), false, false) =
        (section.get("listen"), strangers_are_known, address.ip().is_loopback())
    {
        section.note(field.mistake(
            "an address on loopback (127.0.0.1, [::1]), or any address and a password or tls.client_ca",
        ));
    }
    let number = |key, usual: u64, range| section.read_or(key, usual, |field| field.number(range));
    let size = |key, usual: usize| {
        let bytes = section.read(key, Field::size);
        bytes.map_or(usual, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    };
    let duration = |key, usual| section.read_or(key, usual, Field::duration);
    let auth_timeout = section.read_or("auth_timeout", usual.auth_timeout, |field| {
        let positive = |text: &str| units::duration(text).filter(|longest| !longest.is_zero());
        field.parsed("a duration above zero, such as \"30s\"", positive)
    });
    let bulk_bytes_max = size("bulk_max", usual.bulk_bytes_max);
    let request_bytes_max = size("request_max", usual.request_bytes_max.max(bulk_bytes_max));
    let endpoint = resp::Settings {
        password: password.map(Secret::new),
        users,
        clients_max: number("clients_max", usual.clients_max, 1..=1_000_000),
        clients_per_address: per_address(section, "clients_per_address"),
        bulk_bytes_max,
        request_bytes_max,
        clients_bytes_max: size("clients_memory", usual.clients_bytes_max as usize) as u64,
        threads: number("threads", usual.threads as u64, 1..=512) as usize,
        stop_grace: duration("stop_grace", usual.stop_grace),
        idle_timeout: Some(duration("idle_timeout", Duration::ZERO)).filter(|d| !d.is_zero()),
        auth_timeout,
        port: address.port(),
        tls: tls.is_some(),
    };
    if let (Some(field), true) = (section.get("bulk_max"), endpoint.bulk_bytes_max > BULK_MAX) {
        let most = units::show_size(BULK_MAX as u64);
        section
            .note(field.mistake(format!("at most {most}: the store keeps a value in one piece")));
    }
    if let (Some(field), true) = (section.get("request_max"), request_bytes_max < bulk_bytes_max) {
        section.note(field.mistake("at least bulk_max"));
    }
    (address, endpoint)
}

/// Named clients with restricted rights.
fn users(field: &Field<'_>) -> Result<Vec<User>, Mistake> {
    const LIST: &str =
        "a list of tables such as { name = \"dashboard\", password = \"…\", may = \"read\" }";
    const NAME: &str = "a name that no other user has, nor default";
    const PASSWORD: &str = "a text that is not empty";
    let mut taken = BTreeSet::from(["default".to_owned()]);
    field.every(LIST, |item| {
        let section = item.section(USER_KEYS)?;
        let free = |text: &str| {
            let free = !text.contains(char::is_whitespace) && taken.insert(text.to_owned());
            free.then(|| text.to_owned())
        };
        let name = section.require("name", NAME).and_then(|name| name.parsed(NAME, free));
        let password = section.require("password", PASSWORD);
        let password = password.and_then(|password| password.text(PASSWORD));
        let ((name, password), may) = section.both(section.both(name, password), may(&section))?;
        Ok(User { name, password: Secret::new(password), may })
    })
}

fn show_user(user: &User) -> String {
    let User { name, password, may } = user;
    let name = toml::Value::from(name.clone());
    format!("{{ name = {name}, password = \"{password}\", may = \"{}\" }}", may.word())
}

/// The value of `may`.
pub(super) fn may(section: &Section<'_>) -> Result<May, Mistake> {
    let words = May::EVERY.map(May::word);
    let Some(field) = section.get("may") else { return Ok(May::default()) };
    let word = field.word(&words)?;
    let found = May::EVERY.into_iter().find(|may| may.word() == word);
    Ok(found.expect("the word is one of them"))
}

/// The most connections of one address, if given.
pub(super) fn per_address(section: &Section<'_>, key: &str) -> Option<usize> {
    section.read(key, |field| field.number(1..=1_000_000)).map(|most| most as usize)
}

/// The longest value, well below the 32-bit lengths of RocksDB's formats.
const BULK_MAX: usize = 1 << 30;
