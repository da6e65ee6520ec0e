//! The contents of a message: lines as for `/write`, or JSON.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use engine::series::{Batch, Value};
use rumqttc::mqttbytes::v4::Publish;
use serde_json::{Map, Value as Any};

use crate::http::line::{Decoder, Precision};
use crate::http::{row, time};

/// The format of messages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Payload {
    /// Line protocol.
    Lines,
    /// An object, or a list of them.
    Json(Json),
}

/// The roles of an object's members.
///
/// All numbers are floats: a sensor that sends `20` and `20.5` means one kind. Texts and booleans are fields, too.
/// Members of nested objects and lists are named `outer_inner` and `list_0`; nulls are left out. The topic is a tag.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Json {
    /// The measurement of the rows.
    pub measurement: String,
    /// The tag for the topic; empty for none.
    pub topic: String,
    /// The members of the outermost object that are tags.
    pub tags: Vec<String>,
    /// The member with the time: a number, in the precision of the settings, or RFC 3339. Without it a row gets the
    /// current time.
    pub time: String,
}

impl Default for Json {
    fn default() -> Self {
        Self {
            measurement: "mqtt".into(),
            topic: "topic".into(),
            tags: Vec::new(),
            time: "time".into(),
        }
    }
}

/// Assigns times to rows without one, each later than all before: rows of one source with the same time would overwrite
/// each other.
pub(super) struct Stamps<'a> {
    now: i64,
    last: &'a AtomicI64,
}

impl<'a> Stamps<'a> {
    /// From `now` on, or from the last assigned time if that is later.
    pub(super) fn new(now: i64, last: &'a AtomicI64) -> Self {
        Self { now, last }
    }

    fn next(&mut self) -> i64 {
        let next = self.last.load(Relaxed).saturating_add(1).max(self.now);
        self.last.store(next, Relaxed);
        next
    }
}

/// The time of a retained message is unknown.
const RETAINED: &str = "a retained message must contain its time";

impl Payload {
    /// Adds a message's rows to a batch. `stamps` assigns times to rows without one; without it each row must have a
    /// time. Returns the mistakes in other rows.
    pub(super) fn put(
        &self,
        batch: &mut Batch,
        message: &Publish,
        precision: Precision,
        mut stamps: Option<Stamps<'_>>,
    ) -> Vec<String> {
        let stamps = &mut stamps;
        let bytes = &message.payload[..];
        match self {
            Self::Lines => lines(batch, bytes, precision, stamps),
            Self::Json(json) => match serde_json::from_slice(bytes) {
                Ok(Any::Array(rows)) => {
                    let rows = rows.iter();
                    let ended = rows.map(|any| json.row(batch, message, any, precision, stamps));
                    ended.filter_map(Result::err).collect()
                }
                Ok(any) => {
                    json.row(batch, message, &any, precision, stamps).err().into_iter().collect()
                }
                Err(error) => vec![format!("the payload is not JSON: {error}")],
            },
        }
    }
}

fn lines(
    batch: &mut Batch,
    bytes: &[u8],
    precision: Precision,
    stamps: &mut Option<Stamps<'_>>,
) -> Vec<String> {
    let mut problems = Vec::new();
    // The message is complete, so a line may be as long as the message.
    let mut decoder = Decoder::new(precision, bytes.len());
    decoder.push(bytes);
    decoder.finish();
    while let Some(line) = decoder.next() {
        let put = match &line {
            Ok(line) => {
                let stamp = match (line.timestamp(), &mut *stamps) {
                    (Some(_), _) => 0,
                    (None, Some(stamps)) => stamps.next(),
                    (None, None) => {
                        problems.push(RETAINED.to_owned());
                        continue;
                    }
                };
                row::put(batch, line, stamp)
                    .map_err(|(byte, problem)| line.bad(byte, problem).to_string())
            }
            Err(bad) => Err(bad.to_string()),
        };
        if let Err(problem) = put {
            batch.give_up();
            problems.push(problem);
        }
    }
    problems
}

impl Json {
    fn row(
        &self,
        batch: &mut Batch,
        message: &Publish,
        any: &Any,
        precision: Precision,
        stamps: &mut Option<Stamps<'_>>,
    ) -> Result<(), String> {
        let Any::Object(object) = any else {
            return Err("the payload is neither an object nor a list of objects".into());
        };
        let time = self.time(object, precision, stamps)?;
        batch.begin(&self.measurement);
        if !self.topic.is_empty() {
            batch.tag(&self.topic, &message.topic);
        }
        for key in &self.tags {
            match object.get(key) {
                None | Some(Any::Null) => {}
                Some(Any::String(text)) => batch.tag(key, text),
                Some(number @ (Any::Number(_) | Any::Bool(_))) => {
                    batch.tag(key, &number.to_string())
                }
                Some(_) => {
                    batch.give_up();
                    return Err(format!(
                        "{key:?} is a tag in the settings, but its value is an object or a list"
                    ));
                }
            }
        }
        for (key, value) in object {
            if *key != self.time && !self.tags.contains(key) {
                put(batch, key, value);
            }
        }
        batch.end(time).map_err(|refused| refused.to_string())
    }

    fn time(
        &self,
        object: &Map<String, Any>,
        precision: Precision,
        stamps: &mut Option<Stamps<'_>>,
    ) -> Result<i64, String> {
        let unreadable = |value: &Any| format!("{:?}: {value} is no time", self.time);
        match object.get(&self.time) {
            None | Some(Any::Null) => {
                stamps.as_mut().map(Stamps::next).ok_or_else(|| RETAINED.into())
            }
            Some(value @ Any::String(text)) => time::parse(text).ok_or_else(|| unreadable(value)),
            Some(value @ Any::Number(number)) => {
                let nanos = match (number.as_i64(), number.as_f64()) {
                    (Some(whole), _) => whole.checked_mul(precision.nanos()),
                    (None, Some(part)) => {
                        let nanos = (part * precision.nanos() as f64).round();
                        let fits = (i64::MIN as f64..i64::MAX as f64).contains(&nanos);
                        fits.then_some(nanos as i64)
                    }
                    (None, None) => None,
                };
                nanos.ok_or_else(|| unreadable(value))
            }
            Some(value) => Err(unreadable(value)),
        }
    }
}

/// Adds a value, and the values inside it.
fn put(batch: &mut Batch, name: &str, value: &Any) {
    match value {
        Any::Null => {}
        Any::Bool(value) => batch.field(name, Value::Boolean(*value)),
        Any::Number(number) => {
            if let Some(value) = number.as_f64() {
                batch.field(name, Value::Float(value));
            }
        }
        Any::String(text) => batch.field(name, Value::Text(text)),
        Any::Array(list) => {
            for (at, inner) in list.iter().enumerate() {
                put(batch, &format!("{name}_{at}"), inner);
            }
        }
        Any::Object(object) => {
            for (key, inner) in object {
                put(batch, &format!("{name}_{key}"), inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rumqttc::mqttbytes::QoS;

    use super::*;

    const NOW: i64 = 1_700_000_000_123_456_789;
    const SECOND: i64 = 1_000_000_000;

    /// Each row as text, and the mistakes.
    fn read(payload: &Payload, text: &str, now: Option<i64>) -> (Vec<String>, Vec<String>) {
        let mut batch = Batch::new("db");
        let message = Publish::new("hall/1", QoS::AtLeastOnce, text);
        let last = AtomicI64::new(i64::MIN);
        let stamps = now.map(|now| Stamps::new(now, &last));
        let problems = payload.put(&mut batch, &message, Precision::Seconds, stamps);
        let shown = batch.rows().map(|row| {
            let tags: Vec<_> = row.tags().map(|(key, value)| format!("{key}={value}")).collect();
            let fields: Vec<_> =
                row.fields().map(|(name, value)| format!("{name}={value:?}")).collect();
            format!("{} {} {} {}", row.measurement(), tags.join(","), fields.join(","), row.time)
        });
        (shown.collect(), problems)
    }

    #[test]
    fn lines_are_rows_and_bad_ones_are_told() {
        let (rows, problems) = read(&Payload::Lines, "m,t=a v=1i 7\nm v=\nm v=2", Some(NOW));
        assert_eq!(
            rows,
            ["m t=a v=Integer(1) 7000000000".into(), format!("m  v=Float(2.0) {NOW}")]
        );
        assert!(problems.len() == 1 && problems[0].contains("missing field value"), "{problems:?}");
        let (rows, problems) = read(&Payload::Lines, "m v=1 7\nm v=2", None);
        assert_eq!((rows.len(), &problems[..]), (1, &[RETAINED.to_owned()][..]));
    }

    #[test]
    fn objects_are_rows_of_floats_texts_and_truths() {
        let json = Json { tags: vec!["id".into(), "rack".into()], ..Json::default() };
        let payload = Payload::Json(json);
        let text = r#"[{"time": 7, "id": "a b", "rack": 3, "t": 20, "ok": true, "on": null,
            "in": {"x": [1.5, "ü"]}}, {"time": "2026-01-01T00:00:00Z", "v": -1}, {"time": 1.5, "v": 2}]"#;
        let (rows, problems) = read(&payload, text, None);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(
            rows,
            [
                "mqtt id=a b,rack=3,topic=hall/1 in_x_0=Float(1.5),in_x_1=Text(\"ü\"),ok=Boolean(true),\
                 t=Float(20.0) 7000000000",
                "mqtt topic=hall/1 v=Float(-1.0) 1767225600000000000",
                "mqtt topic=hall/1 v=Float(2.0) 1500000000",
            ]
        );
    }

    /// Once, rows without a time that arrived together got the same time: of each source only the last survived.
    #[test]
    fn rows_without_a_time_have_one_of_their_own_each() {
        let last = AtomicI64::new(i64::MIN);
        let mut times = Vec::new();
        let json = Payload::Json(Json::default());
        for (payload, text, now) in [
            (&Payload::Lines, "m v=1\nm v=2\nm v=3 1", NOW),
            (&json, r#"[{"v": 1}, {"v": 2, "time": null}]"#, NOW),
            (&json, r#"{"v": 3}"#, NOW),
            // The clock was set back.
            (&json, r#"{"v": 4}"#, NOW - SECOND),
            (&json, r#"{"v": 5}"#, NOW + SECOND),
        ] {
            let mut batch = Batch::new("db");
            let message = Publish::new("hall/1", QoS::AtLeastOnce, text);
            let stamps = Some(Stamps::new(now, &last));
            assert!(payload.put(&mut batch, &message, Precision::Seconds, stamps).is_empty());
            times.extend(batch.rows().map(|row| row.time));
        }
        let given = [0, 1, SECOND - NOW, 2, 3, 4, 5, SECOND].map(|step| NOW + step);
        assert_eq!(times, given);
    }

    #[test]
    fn what_cannot_be_read_leaves_nothing_behind() {
        let json = Json { tags: vec!["id".into()], ..Json::default() };
        let payload = Payload::Json(json);
        for (text, wanted) in [
            ("{", "not JSON"),
            ("7", "neither an object"),
            ("[[]]", "neither an object"),
            ("{}", "no field"),
            (r#"{"id": {}, "v": 1}"#, "an object or a list"),
            (r#"{"time": true, "v": 1}"#, "no time"),
            (r#"{"time": 1e300, "v": 1}"#, "no time"),
            (r#"{"time": "soon", "v": 1}"#, "no time"),
        ] {
            let (rows, problems) = read(&payload, text, Some(NOW));
            assert!(rows.is_empty() && problems.len() == 1, "{text}: {rows:?} {problems:?}");
            assert!(problems[0].contains(wanted), "{text}: {problems:?}");
        }
        assert_eq!(read(&payload, r#"{"v": 1}"#, None).1, [RETAINED]);
        // Nested far beyond any real message.
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&payload, &deep, Some(NOW)).1[0].contains("not JSON"));
    }
}
