//! `[http]`: the listener for time series.

use std::net::SocketAddr;

use serve::http::{self, Grant, Hosts, Token, server::Terms};
use serve::tls::TlsFiles;
use serve::{May, Secret};

use super::document::{Field, Section};
use super::{Entry, Mistake, admin, kv, units};

/// The keys of the section.
pub(super) const KEYS: &[&str] = &[
    "listen",
    "hosts",
    "tokens",
    "create",
    "body_max",
    "line_max",
    "bodies_memory",
    "answer_values_max",
    "queries_max",
    "connections_max",
    "connections_per_address",
    "read_timeout",
    "write_timeout",
    "stop_grace",
    "tls",
];

/// The keys of a restricted token.
const TOKEN_KEYS: &[&str] = &["token", "may", "databases"];

const LISTEN: &str = "an address and a port, such as \"127.0.0.1:8086\"";

/// The listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Http {
    /// The address for clients. Default 127.0.0.1:8086.
    pub(crate) listen: SocketAddr,
    /// Its settings, including tokens. The names it answers to follow from its address.
    pub(crate) endpoint: http::Settings,
    /// Additional names it answers to.
    pub(crate) hosts: Vec<String>,
    /// Certificates, if clients use TLS. Default: none.
    pub(crate) tls: Option<TlsFiles>,
}

impl Default for Http {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 8086));
        Self { listen, endpoint: http::Settings::default(), hosts: Vec::new(), tls: None }
    }
}

impl Http {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let usual = Self::default();
        let tls = kv::tls(section);
        let address = section.read_or("listen", usual.listen, |field| {
            field.parsed(LISTEN, |text| text.parse().ok())
        });
        let tokens = section.read_or("tokens", Vec::new(), tokens);
        let hosts = admin::hosts(section);
        let strangers_are_known = section.get("tokens").is_some()
            || tls.as_ref().is_some_and(|files| files.client_ca.is_some());
        if let (Some(field), false, false) =
            (section.get("listen"), strangers_are_known, address.ip().is_loopback())
        {
            section.note(field.mistake(
                "an address on loopback (127.0.0.1, [::1]), or any address and tokens or tls.client_ca",
            ));
        }
        let size = |key, usual: usize| {
            // The runtime's semaphores count held bytes in fewer than 64 bits.
            let most = u64::from(u32::MAX / 2);
            section.read(key, Field::size).map_or(usual, |bytes| bytes.min(most) as usize)
        };
        let number = |key, usual: usize| {
            let number = section.read(key, |field| field.number(1..=1_000_000_000));
            number.map_or(usual, |number| number as usize)
        };
        let duration = |key, usual| {
            section.read_or(key, usual, |field| {
                let positive = |text: &str| units::duration(text).filter(|wait| !wait.is_zero());
                field.parsed("a duration above zero, such as \"30s\"", positive)
            })
        };
        let of = &usual.endpoint;
        let body_bytes_max = size("body_max", of.body_bytes_max);
        let endpoint = http::Settings {
            tokens,
            hosts: Hosts::of(address.ip(), &hosts),
            create: section.read_or("create", of.create, Field::flag),
            body_bytes_max,
            line_bytes_max: size("line_max", of.line_bytes_max),
            bodies_bytes_max: size("bodies_memory", of.bodies_bytes_max.max(body_bytes_max)),
            answer_values_max: number("answer_values_max", of.answer_values_max),
            queries_max: number("queries_max", of.queries_max),
            terms: Terms {
                connections_max: number("connections_max", of.terms.connections_max),
                per_address_max: kv::per_address(section, "connections_per_address"),
                read_timeout: duration("read_timeout", of.terms.read_timeout),
                write_timeout: duration("write_timeout", of.terms.write_timeout),
                stop_grace: duration("stop_grace", of.terms.stop_grace),
            },
        };
        if let (Some(field), true) =
            (section.get("bodies_memory"), endpoint.bodies_bytes_max < body_bytes_max)
        {
            section.note(field.mistake("at least body_max"));
        }
        Self { listen: address, endpoint, hosts, tls }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |key, value: &dyn std::fmt::Display| Entry::new("http", key, value);
        let size = |bytes: usize| units::show_size(bytes as u64);
        let (endpoint, terms) = (&self.endpoint, &self.endpoint.terms);
        let mut entries = vec![entry("listen", &format_args!("\"{}\"", self.listen))];
        if !self.hosts.is_empty() {
            entries.push(entry("hosts", &toml::Value::from(self.hosts.clone())));
        }
        if !endpoint.tokens.is_empty() {
            let shown: Vec<_> = (1..).zip(&endpoint.tokens).map(show_token).collect();
            entries.push(entry("tokens", &format_args!("[{}]", shown.join(", "))));
        }
        entries.extend([
            entry("create", &endpoint.create),
            entry("body_max", &size(endpoint.body_bytes_max)),
            entry("line_max", &size(endpoint.line_bytes_max)),
            entry("bodies_memory", &size(endpoint.bodies_bytes_max)),
            entry("answer_values_max", &endpoint.answer_values_max),
            entry("queries_max", &endpoint.queries_max),
            entry("connections_max", &terms.connections_max),
            entry("read_timeout", &units::show_duration(terms.read_timeout)),
            entry("write_timeout", &units::show_duration(terms.write_timeout)),
            entry("stop_grace", &units::show_duration(terms.stop_grace)),
        ]);
        let per_address = terms.per_address_max;
        entries.extend(per_address.map(|most| entry("connections_per_address", &most)));
        entries.extend(self.tls.iter().map(|files| entry("tls", &kv::show_tls(files))));
        entries
    }
}

/// Tokens, each a text with all rights, or a table with its rights.
fn tokens(field: &Field<'_>) -> Result<Vec<Token>, Mistake> {
    const LIST: &str = "a list of texts that are not empty, or of tables such as \
                        { token = \"…\", may = \"read\", databases = [\"plant\"] }";
    const TOKEN: &str = "a text that is not empty";
    let mut known: Vec<Secret> = Vec::new();
    field.every(LIST, |item| {
        let mistake = item.mistake("each token once");
        let token = if item.is_table() {
            let section = item.section(TOKEN_KEYS)?;
            let token = section.require("token", TOKEN).and_then(|token| token.text(TOKEN));
            let databases = section.get("databases").map(|field| names(&field)).transpose();
            let (token, (databases, may)) =
                section.both(token, section.both(databases, kv::may(&section)))?;
            Token { secret: Secret::new(token), grant: Grant { may, databases } }
        } else {
            Token::full(item.text(LIST)?)
        };
        if known.contains(&token.secret) {
            return Err(mistake);
        }
        known.push(token.secret.clone());
        Ok(token)
    })
}

fn names(field: &Field<'_>) -> Result<Vec<String>, Mistake> {
    const NAMES: &str = "a list of names of databases";
    field.list(NAMES, |name| Ok(name.text(NAMES)?.to_owned()))
}

/// The first is masked like every secret, the others with a number as well: the output is a valid file, in which tokens
/// must differ.
fn show_token((number, token): (u32, &Token)) -> String {
    let secret = match number {
        1 => token.secret.to_string(),
        _ => format!("{}{number}", token.secret),
    };
    let Grant { may, databases } = &token.grant;
    if (*may, databases) == (May::All, &None) {
        return format!("\"{secret}\"");
    }
    let databases =
        databases.iter().map(|names| format!(", databases = {}", toml::Value::from(names.clone())));
    let databases: String = databases.collect();
    format!("{{ token = \"{secret}\", may = \"{}\"{databases} }}", may.word())
}
