//! `[mqtt]`: a broker that delivers time series.

use std::time::Duration;

use serve::Secret;
use serve::http::line::Precision;
use serve::mqtt::{Json, Payload, Settings};
use serve::tls::TlsClientFiles;

use super::document::{Field, Section};
use super::{Entry, Mistake, units};

/// The keys of the subscriber.
pub(super) const KEYS: &[&str] = &[
    "broker",
    "topics",
    "database",
    "client",
    "user",
    "password",
    "tls",
    "payload",
    "precision",
    "measurement",
    "topic_tag",
    "tags",
    "time",
    "message_max",
    "keep_alive",
];

const TLS_KEYS: &[&str] = &["ca", "cert", "key"];
const PAYLOADS: [&str; 2] = ["line", "json"];
const PRECISIONS: [&str; 6] = ["ns", "us", "ms", "s", "m", "h"];
const TOPICS: &str = "a list of filters, such as [\"sensors/#\"]";

/// The subscriber.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mqtt {
    /// The broker, and what to subscribe to.
    pub(crate) subscriber: Settings,
    /// The unit of times in messages: one of [`PRECISIONS`].
    precision: &'static str,
}

impl Mqtt {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let text = |key, usual: &str| section.read_or(key, usual.to_owned(), text);
        let with_port = |text: &str| {
            let (host, port) = text.rsplit_once(':')?;
            (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| text.to_owned())
        };
        const BROKER: &str = "a host and a port, such as \"localhost:1883\"";
        let broker = section.need("broker", BROKER, |field| field.parsed(BROKER, with_port));
        let topics = section.need("topics", TOPICS, |field| {
            let filter = |text: &str| is_filter(text).then(|| text.to_owned());
            field.list(TOPICS, |topic| topic.parsed(TOPICS, filter))
        });
        let database = section.need("database", "the name of a database", |field| {
            field.text("the name of a database").map(str::to_owned)
        });
        let payload = match section.read_or("payload", "line", |field| field.word(&PAYLOADS)) {
            "json" => Payload::Json(json(section)),
            _ => {
                for key in ["measurement", "topic_tag", "tags", "time"] {
                    if let Some(field) = section.get(key) {
                        section.note(field.mistake("nothing, unless payload = \"json\""));
                    }
                }
                Payload::Lines
            }
        };
        let precision = section.read_or("precision", "ns", |field| field.word(&PRECISIONS));
        let password = section.read("password", self::text);
        if section.get("password").is_some() && section.get("user").is_none() {
            section.note(section.missing("user", "the user with this password"));
        }
        let user = section.read("user", self::text);
        let login = user.map(|user| (user, Secret::new(password.unwrap_or_default())));
        // The protocol does not allow longer ones.
        const MESSAGE_MAX: u64 = 256 << 20;
        let message_max = section.read("message_max", Field::size);
        let message_max = message_max.map_or(1 << 20, |bytes| bytes.min(MESSAGE_MAX));
        let keep_alive = section.read_or("keep_alive", Duration::from_secs(30), |field| {
            let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(3600));
            field.parsed("a duration from \"1s\" to \"1h\"", |text| {
                units::duration(text).filter(|wait| (shortest..=longest).contains(wait))
            })
        });
        let client = text("client", "plimsoll");
        let tls = tls(section);
        let subscriber = Settings {
            broker: broker?,
            topics: topics?,
            database: database?,
            client,
            login,
            tls,
            payload,
            precision: Precision::named(precision).unwrap_or_default(),
            message_bytes_max: usize::try_from(message_max).unwrap_or(usize::MAX),
            keep_alive,
        };
        Some(Self { subscriber, precision })
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |key, value: &dyn std::fmt::Display| Entry::new("mqtt", key, value);
        let text = |text: &str| toml::Value::from(text);
        let of = &self.subscriber;
        let mut entries = vec![
            entry("broker", &text(&of.broker)),
            entry("topics", &toml::Value::from(of.topics.clone())),
            entry("database", &text(&of.database)),
            entry("client", &text(&of.client)),
        ];
        if let Some((user, password)) = &of.login {
            entries.push(entry("user", &text(user)));
            entries.push(entry("password", &text(&password.to_string())));
        }
        if let Some(files) = &of.tls {
            let ours = files.ours.iter().flat_map(|(cert, key)| [("cert", cert), ("key", key)]);
            let files = std::iter::once(("ca", &files.ca)).chain(ours);
            let shown =
                files.map(|(key, path)| format!("{key} = {}", text(&path.display().to_string())));
            let shown = format!("{{ {} }}", shown.collect::<Vec<_>>().join(", "));
            entries.push(entry("tls", &shown));
        }
        match &of.payload {
            Payload::Lines => entries.push(entry("payload", &text("line"))),
            Payload::Json(json) => entries.extend([
                entry("payload", &text("json")),
                entry("measurement", &text(&json.measurement)),
                entry("topic_tag", &text(&json.topic)),
                entry("tags", &toml::Value::from(json.tags.clone())),
                entry("time", &text(&json.time)),
            ]),
        }
        entries.extend([
            entry("precision", &text(self.precision)),
            entry("message_max", &units::show_size(of.message_bytes_max as u64)),
            entry("keep_alive", &units::show_duration(of.keep_alive)),
        ]);
        entries
    }
}

fn text(field: &Field<'_>) -> Result<String, Mistake> {
    field.text("a text that is not empty").map(str::to_owned)
}

fn json(section: &Section<'_>) -> Json {
    const NAMES: &str = "a list of names";
    let usual = Json::default();
    let tags = section.read_or("tags", Vec::new(), |field| {
        field.list(NAMES, |name| Ok(name.text(NAMES)?.to_owned()))
    });
    Json {
        measurement: section.read_or("measurement", usual.measurement, text),
        topic: section.read_or("topic_tag", usual.topic, text),
        tags,
        time: section.read_or("time", usual.time, text),
    }
}

fn tls(section: &Section<'_>) -> Option<TlsClientFiles> {
    const PEM: &str = "the path of a PEM file";
    let section = section.optional_section("tls", TLS_KEYS)?;
    let file = |key| section.need(key, PEM, Field::path);
    let ca = file("ca");
    let ours = match (section.get("cert"), section.get("key")) {
        (None, None) => None,
        _ => Some((file("cert"), file("key"))),
    };
    let ours = match ours {
        None => None,
        Some((cert, key)) => Some((cert?, key?)),
    };
    Some(TlsClientFiles { ca: ca?, ours })
}

/// `+` must be a whole level, and `#` the last one.
fn is_filter(text: &str) -> bool {
    let levels: Vec<_> = text.split('/').collect();
    let last = levels.len() - 1;
    text.len() <= usize::from(u16::MAX)
        && levels.iter().enumerate().all(|(at, level)| match *level {
            "+" => true,
            "#" => at == last,
            other => !other.contains(['+', '#']),
        })
}
