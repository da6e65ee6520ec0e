//! The queries of the Time Series Benchmark Suite, in the language of each server.

use std::fmt::Write;

use anyhow::{Context, ensure};
use bench::ingest::rows::START;

use super::client::{Client, encoded};
use super::server::Kind;

const SECOND: i64 = 1_000_000_000;

/// A query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ask {
    /// Every point of one series over twelve hours.
    Series,
    /// `single-groupby-1-1-1`: the maximum of each minute of an hour, of one host.
    OneHost,
    /// `single-groupby-1-8-1`: the same of eight hosts together.
    EightHosts,
    /// `lastpoint`: the newest row of every host.
    LastPoint,
    /// `high-cpu-1`: rows of one host in twelve hours where a field is above 90.
    HighCpu,
}

impl Ask {
    pub(super) const ALL: [Self; 5] =
        [Self::Series, Self::OneHost, Self::EightHosts, Self::LastPoint, Self::HighCpu];

    /// The name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Series => "one series, all of it",
            Self::OneHost => "single-groupby-1-1-1",
            Self::EightHosts => "single-groupby-1-8-1",
            Self::LastPoint => "lastpoint",
            Self::HighCpu => "high-cpu-1",
        }
    }

    /// The request to a server; `turn` selects hosts and hours.
    pub(super) fn path(self, kind: Kind, turn: u64, hosts: u64, end: i64) -> String {
        let host = |more: u64| format!("host_{}", (turn * 7 + more * 13) % hosts);
        let hours = ((end - START) / (3600 * SECOND)).max(1);
        let (from, hour) = (START, START + (turn as i64 % hours) * 3600 * SECOND);
        if kind == Kind::Victoria {
            return self.victoria(host, from, hour, end);
        }
        let any: Vec<String> = (0..8).map(|more| format!("hostname = '{}'", host(more))).collect();
        let (one, any) = (&any[0], any.join(" OR "));
        let span = |from: i64, to: i64| format!("time >= {from} AND time < {to}");
        let (all, hour) = (span(from, end), span(hour, hour + 3600 * SECOND));
        let query = match self {
            Self::Series => format!("SELECT usage_user FROM cpu WHERE {one} AND {all}"),
            Self::OneHost => {
                format!("SELECT max(usage_user) FROM cpu WHERE {one} AND {hour} GROUP BY time(1m)")
            }
            Self::EightHosts => {
                format!(
                    "SELECT max(usage_user) FROM cpu WHERE ({any}) AND {hour} GROUP BY time(1m)"
                )
            }
            Self::LastPoint => {
                "SELECT * FROM cpu GROUP BY hostname ORDER BY time DESC LIMIT 1".to_owned()
            }
            Self::HighCpu => {
                format!("SELECT * FROM cpu WHERE usage_user > 90.0 AND {one} AND {all}")
            }
        };
        format!("/query?db=bench&epoch=ns&q={}", encoded(&query))
    }

    fn victoria(self, host: impl Fn(u64) -> String, from: i64, hour: i64, end: i64) -> String {
        let (from, hour, end) = (from / SECOND, hour / SECOND, end / SECOND);
        let one = format!("cpu_usage_user{{hostname=\"{}\"}}", host(0));
        let range = |query: &str, from: i64, to: i64, step: u32| {
            let query = encoded(query);
            // Disables the cache of answers: the other servers have none.
            format!("/api/v1/query_range?query={query}&start={from}&end={to}&step={step}&nocache=1")
        };
        match self {
            Self::Series => {
                format!("/api/v1/export?match[]={}&start={from}&end={end}", encoded(&one))
            }
            Self::OneHost => {
                range(&format!("max(max_over_time({one}[1m]))"), hour, hour + 3599, 60)
            }
            Self::EightHosts => {
                let mut any = host(0);
                (1..8).for_each(|more| write!(any, "|{}", host(more)).expect("text grows"));
                let any = format!("cpu_usage_user{{hostname=~\"{any}\"}}");
                range(&format!("max(max_over_time({any}[1m]))"), hour, hour + 3599, 60)
            }
            Self::LastPoint => {
                let query = format!("last_over_time({{__name__=~\"cpu_.*\"}}[{}s])", end - from);
                format!("/api/v1/query?query={}&time={end}&nocache=1", encoded(&query))
            }
            Self::HighCpu => range(&format!("{one} > 90"), from, end, 10),
        }
    }
}

/// Sends a query once and returns the bytes of the answer; `None` if the server refuses it.
pub(super) fn ask(client: &mut Client, path: &str) -> anyhow::Result<Option<usize>> {
    let answer = client.send(&format!("GET {path}"), b"")?;
    // Our server and InfluxDB report a wrong statement inside an answer with status 200.
    let is_refused =
        answer.status >= 400 || answer.body.windows(9).any(|part| part == b"\"error\":\"");
    Ok((!is_refused).then_some(answer.body.len()))
}

/// The number of points of a series in an answer to [`Ask::Series`].
pub(super) fn points(kind: Kind, client: &mut Client, path: &str) -> anyhow::Result<usize> {
    let body = client.get(path)?;
    let body: serde_json::Value = serde_json::from_slice(&body).context("an answer in JSON")?;
    let values = match kind {
        Kind::Victoria => &body["values"],
        _ => &body["results"][0]["series"][0]["values"],
    };
    let values = values.as_array().map(Vec::len);
    ensure!(values.is_some(), "{}: no points: {body}", kind.name());
    Ok(values.unwrap_or_default())
}
