//! `[block]`: the store of block devices, and its listener for NBD clients.

use std::fmt;
use std::net::SocketAddr;

use plimsoll::block::Options;
use policy::units::MIB;
use serve::nbd;
use serve::tls::TlsFiles;

use super::document::{Field, Section};
use super::{Entry, Listen, Pool, kv, series, units};

/// The keys of the store.
pub(super) const KEYS: &[&str] = &[
    "pool",
    "durability",
    "checksum_memory",
    "io_weight",
    "oversell",
    "listen",
    "clients_max",
    "clients_per_address",
    "requests_max",
    "requests_memory",
    "all_requests_memory",
    "handshake_timeout",
    "stop_grace",
    "tls",
];

const DURABILITIES: [&str; 2] = ["flush", "always"];

/// Less holds the checksums of a few GiB: most reads of a larger device would fetch theirs from the pool.
const CHECKSUM_BYTES_MIN: u64 = MIB;

/// The port that is registered for NBD.
const PORT: u16 = 10809;

const LISTEN: &str = "an address and a port, such as \"127.0.0.1:10809\", or \"unix:<path>\"";

/// The store.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Its pool.
    pub(crate) pool: String,
    /// Its durability and memory.
    pub(crate) options: Options,
    /// Its I/O weight beside the other stores on the pool. Default 1.
    pub(crate) io_weight: u32,
    /// Whether devices may be sold more in all than the volumes give. Default: no.
    pub(crate) oversell: bool,
    /// The place for clients. Default 127.0.0.1:10809.
    pub(crate) listen: Listen,
    /// Limits of the listener.
    pub(crate) endpoint: nbd::Settings,
    /// Certificates, if clients use TLS. Default: none.
    pub(crate) tls: Option<TlsFiles>,
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        // Entries show every setting.
        self.entries() == other.entries()
    }
}

impl Block {
    /// Reads the store on one of the pools; `others` are the sections of other stores, and their pools.
    pub(super) fn read(
        section: &Section<'_>,
        pools: &[Pool],
        others: &[(&str, String)],
    ) -> Option<Self> {
        let names: Vec<_> = pools.iter().map(|pool| &*pool.name).collect();
        let accepted =
            if names.is_empty() { "the name of a pool".into() } else { names.join(", ") };
        let pool = section.need("pool", &accepted, |field| series::pool_of(field, pools, others));
        let mut options = Options::default();
        let durability = section.read_or("durability", "flush", |field| field.word(&DURABILITIES));
        options.durable = durability == "always";
        options.checksum_bytes =
            section.read_or("checksum_memory", options.checksum_bytes, |field| {
                field.parsed("a size of at least \"1MiB\"", |text| {
                    units::size(text).filter(|&bytes| bytes >= CHECKSUM_BYTES_MIN)
                })
            });
        let io_weight = kv::io_weight(section);
        let oversell = section.read_or("oversell", false, Field::flag);
        let tls = kv::tls(section);
        let listen = listen(section, tls.as_ref());
        let endpoint = endpoint(section);
        Some(Self { pool: pool?, options, io_weight, oversell, listen, endpoint, tls })
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |key, value: &dyn fmt::Display| Entry::new("block", key, value);
        let (size, duration) = (units::show_size, units::show_duration);
        let of = &self.endpoint;
        let durability = DURABILITIES[usize::from(self.options.durable)];
        let mut entries = vec![
            entry("pool", &format_args!("{:?}", self.pool)),
            entry("durability", &format_args!("{durability:?}")),
            entry("checksum_memory", &size(self.options.checksum_bytes)),
            entry("io_weight", &self.io_weight),
            entry("oversell", &self.oversell),
            entry("listen", &toml::Value::from(self.listen.to_string())),
            entry("clients_max", &of.clients_max),
            entry("requests_max", &of.requests_max),
            entry("requests_memory", &size(of.payload_bytes_max)),
            entry("all_requests_memory", &size(of.all_payload_bytes_max)),
            entry("handshake_timeout", &duration(of.handshake_timeout)),
            entry("stop_grace", &duration(of.stop_grace)),
        ];
        let per_address = of.clients_per_address;
        entries.extend(per_address.map(|most| entry("clients_per_address", &most)));
        entries.extend(self.tls.iter().map(|files| entry("tls", &kv::show_tls(files))));
        entries
    }
}

/// The place for clients. NBD has no passwords, so other machines need certificates.
fn listen(section: &Section<'_>, tls: Option<&TlsFiles>) -> Listen {
    let usual = Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], PORT)));
    let listen = section.read_or("listen", usual, |field| field.parsed(LISTEN, Listen::parse));
    let strangers_are_known = tls.is_some_and(|files| files.client_ca.is_some());
    if let (Some(field), false, false) =
        (section.get("listen"), strangers_are_known, listen.is_local())
    {
        section.note(field.mistake(
            "an address on loopback (127.0.0.1, [::1]), \"unix:<path>\", or any address and \
             tls = { cert = …, key = …, client_ca = … }: NBD knows no passwords",
        ));
    }
    listen
}

fn endpoint(section: &Section<'_>) -> nbd::Settings {
    let usual = nbd::Settings::default();
    let number = |key, usual: usize, most| {
        let number = section.read(key, |field| field.number(1..=most));
        number.map_or(usual, |number| number as usize)
    };
    let duration = |key, usual| {
        section.read_or(key, usual, |field| {
            let positive = |text: &str| units::duration(text).filter(|wait| !wait.is_zero());
            field.parsed("a duration above zero, such as \"30s\"", positive)
        })
    };
    nbd::Settings {
        clients_max: number("clients_max", usual.clients_max, 1_000_000),
        clients_per_address: kv::per_address(section, "clients_per_address"),
        requests_max: number("requests_max", usual.requests_max, 1 << 16),
        payload_bytes_max: section.read_or("requests_memory", usual.payload_bytes_max, Field::size),
        all_payload_bytes_max: section.read_or(
            "all_requests_memory",
            usual.all_payload_bytes_max,
            Field::size,
        ),
        handshake_timeout: duration("handshake_timeout", usual.handshake_timeout),
        stop_grace: duration("stop_grace", usual.stop_grace),
    }
}
