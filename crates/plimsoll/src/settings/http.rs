//! `[http]`: the door to time series.

use std::net::SocketAddr;

use serve::http::{self, server::Terms};
use serve::resp::{Secret, TlsFiles};

use super::document::{Field, Section};
use super::{Entry, Mistake, kv, units};

/// The keys of the door.
pub(super) const KEYS: &[&str] = &[
    "listen",
    "tokens",
    "create",
    "body_max",
    "line_max",
    "bodies_memory",
    "answer_values_max",
    "queries_max",
    "connections_max",
    "read_timeout",
    "write_timeout",
    "stop_grace",
    "tls",
];

const LISTEN: &str = "an address and a port, such as \"127.0.0.1:8086\"";

/// The door.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Http {
    /// Where clients connect. Default 127.0.0.1:8086.
    pub(crate) listen: SocketAddr,
    /// Its terms, tokens among them.
    pub(crate) door: http::Settings,
    /// Certificates, where clients speak TLS. Default: none, they do not.
    pub(crate) tls: Option<TlsFiles>,
}

impl Default for Http {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 8086));
        Self { listen, door: http::Settings::default(), tls: None }
    }
}

impl Http {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, Mistake> {
        let usual = Self::default();
        let tls = kv::tls(section)?;
        let listen = section.get("listen");
        let address = listen
            .as_ref()
            .map_or(Ok(usual.listen), |field| field.parsed(LISTEN, |text| text.parse().ok()))?;
        let mut tokens = Vec::new();
        if let Some(field) = section.get("tokens") {
            let listed = field.list("a list of texts that are not empty")?;
            for token in listed {
                tokens.push(Secret::new(token.text("a text that is not empty")?));
            }
        }
        let strangers_are_known =
            !tokens.is_empty() || tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        if let (Some(field), false, false) =
            (&listen, strangers_are_known, address.ip().is_loopback())
        {
            return Err(field.mistake(
                "an address on loopback (127.0.0.1, [::1]), or any address and tokens or tls.client_ca",
            ));
        }
        let size = |key, usual: usize| {
            let field = section.get(key).map(|field| field.size()).transpose()?;
            // The runtime counts bytes that are held in fewer than 64 bits.
            let most = u64::from(u32::MAX / 2);
            Ok(field.map_or(usual, |bytes| bytes.min(most) as usize))
        };
        let number = |key, usual: usize| {
            let field =
                section.get(key).map(|field| field.number(1..=1_000_000_000)).transpose()?;
            Ok(field.map_or(usual, |number| number as usize))
        };
        let duration = |key, usual| {
            section.get(key).map_or(Ok(usual), |field: Field<'_>| {
                let positive = |text: &str| units::duration(text).filter(|wait| !wait.is_zero());
                field.parsed("a duration above zero, such as \"30s\"", positive)
            })
        };
        let of = &usual.door;
        let body_bytes_max = size("body_max", of.body_bytes_max)?;
        let door = http::Settings {
            tokens,
            create: section.get("create").map_or(Ok(of.create), |field| field.flag())?,
            body_bytes_max,
            line_bytes_max: size("line_max", of.line_bytes_max)?,
            bodies_bytes_max: size("bodies_memory", of.bodies_bytes_max.max(body_bytes_max))?,
            answer_values_max: number("answer_values_max", of.answer_values_max)?,
            queries_max: number("queries_max", of.queries_max)?,
            terms: Terms {
                connections_max: number("connections_max", of.terms.connections_max)?,
                read_timeout: duration("read_timeout", of.terms.read_timeout)?,
                write_timeout: duration("write_timeout", of.terms.write_timeout)?,
                stop_grace: duration("stop_grace", of.terms.stop_grace)?,
            },
        };
        if let (Some(field), true) =
            (section.get("bodies_memory"), door.bodies_bytes_max < body_bytes_max)
        {
            return Err(field.mistake("at least body_max"));
        }
        Ok(Self { listen: address, door, tls })
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |key, value: &dyn std::fmt::Display| Entry::new("http", key, value);
        let size = |bytes: usize| units::show_size(bytes as u64);
        let (door, terms) = (&self.door, &self.door.terms);
        let mut entries = vec![entry("listen", &format_args!("\"{}\"", self.listen))];
        if !door.tokens.is_empty() {
            let stars: Vec<_> = door.tokens.iter().map(ToString::to_string).collect();
            entries.push(entry("tokens", &toml::Value::from(stars)));
        }
        entries.extend([
            entry("create", &door.create),
            entry("body_max", &size(door.body_bytes_max)),
            entry("line_max", &size(door.line_bytes_max)),
            entry("bodies_memory", &size(door.bodies_bytes_max)),
            entry("answer_values_max", &door.answer_values_max),
            entry("queries_max", &door.queries_max),
            entry("connections_max", &terms.connections_max),
            entry("read_timeout", &units::show_duration(terms.read_timeout)),
            entry("write_timeout", &units::show_duration(terms.write_timeout)),
            entry("stop_grace", &units::show_duration(terms.stop_grace)),
        ]);
        entries.extend(self.tls.iter().map(|files| entry("tls", &kv::show_tls(files))));
        entries
    }
}
