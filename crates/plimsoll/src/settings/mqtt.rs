//! `[mqtt]`: a broker that time series come from.

use std::time::Duration;

use serve::http::line::Precision;
use serve::mqtt::{Json, Payload, Settings};
use serve::resp::{Secret, TlsClientFiles};

use super::document::Section;
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
    /// Which broker, and what of it.
    pub(crate) subscriber: Settings,
    /// What times in messages count: one of [`PRECISIONS`].
    precision: &'static str,
}

impl Mqtt {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, Mistake> {
        let text = |key, usual: &str| {
            let field = section.get(key);
            field.map_or(Ok(usual.to_owned()), |field| {
                field.text("a text that is not empty").map(str::to_owned)
            })
        };
        let with_port = |text: &str| {
            let (host, port) = text.rsplit_once(':')?;
            (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| text.to_owned())
        };
        const BROKER: &str = "a host and a port, such as \"localhost:1883\"";
        let broker = section.require("broker", BROKER)?.parsed(BROKER, with_port)?;
        let mut topics = Vec::new();
        for field in section.require("topics", TOPICS)?.list(TOPICS)? {
            topics.push(field.parsed(TOPICS, |text| is_filter(text).then(|| text.to_owned()))?);
        }
        let database = section.require("database", "the name of a database")?;
        let database = database.text("the name of a database")?.to_owned();
        let payload = section.get("payload");
        let payload = payload.map_or(Ok("line"), |field| field.word(&PAYLOADS))?;
        let payload = match payload {
            "json" => Payload::Json(json(section)?),
            _ => {
                let of_json = ["measurement", "topic_tag", "tags", "time"];
                if let Some(field) = of_json.into_iter().find_map(|key| section.get(key)) {
                    return Err(field.mistake("nothing without payload = \"json\""));
                }
                Payload::Lines
            }
        };
        let precision =
            section.get("precision").map_or(Ok("ns"), |field| field.word(&PRECISIONS))?;
        let login = match (section.get("user"), section.get("password")) {
            (None, None) => None,
            (None, Some(_)) => return Err(section.missing("user", "the password's user")),
            (Some(user), password) => {
                let given = |field: super::document::Field<'_>| {
                    field.text("a text that is not empty").map(str::to_owned)
                };
                let password = password.map_or(Ok(String::new()), given)?;
                Some((given(user)?, Secret::new(password)))
            }
        };
        let message_max = section.get("message_max").map(|field| field.size()).transpose()?;
        // Longer ones are none of the protocol.
        const MESSAGE_MAX: u64 = 256 << 20;
        let message_max = message_max.map_or(1 << 20, |bytes| bytes.min(MESSAGE_MAX));
        let keep_alive =
            section.get("keep_alive").map_or(Ok(Duration::from_secs(30)), |field| {
                let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(3600));
                field.parsed("a duration from \"1s\" to \"1h\"", |text| {
                    units::duration(text).filter(|wait| (shortest..=longest).contains(wait))
                })
            })?;
        let subscriber = Settings {
            broker,
            topics,
            database,
            client: text("client", "plimsoll")?,
            login,
            tls: tls(section)?,
            payload,
            precision: Precision::named(precision).unwrap_or_default(),
            message_bytes_max: usize::try_from(message_max).unwrap_or(usize::MAX),
            keep_alive,
        };
        Ok(Self { subscriber, precision })
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

fn json(section: &Section<'_>) -> Result<Json, Mistake> {
    let usual = Json::default();
    let text = |key, usual: String| {
        let field = section.get(key);
        field.map_or(Ok(usual), |field| field.text("a text that is not empty").map(str::to_owned))
    };
    let mut tags = Vec::new();
    if let Some(field) = section.get("tags") {
        const NAMES: &str = "a list of names";
        for name in field.list(NAMES)? {
            tags.push(name.text(NAMES)?.to_owned());
        }
    }
    Ok(Json {
        measurement: text("measurement", usual.measurement)?,
        topic: text("topic_tag", usual.topic)?,
        tags,
        time: text("time", usual.time)?,
    })
}

fn tls(section: &Section<'_>) -> Result<Option<TlsClientFiles>, Mistake> {
    let Some(section) = section.optional_section("tls", TLS_KEYS)? else { return Ok(None) };
    const PEM: &str = "the path of a PEM file";
    let ca = section.require("ca", PEM)?.path()?;
    let ours = match (section.get("cert"), section.get("key")) {
        (None, None) => None,
        _ => Some((section.require("cert", PEM)?.path()?, section.require("key", PEM)?.path()?)),
    };
    Ok(Some(TlsClientFiles { ca, ours }))
}

/// `+` is a level of its own, and `#` the last one.
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
