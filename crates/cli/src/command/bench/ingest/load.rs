//! Sends a load, and counts it back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bench::ingest::rows::{Load, START};
use volume::Clock;
use volume::task::block_on;

use super::client::{Client, encoded};
use super::server::{Kind, Server};

/// Attempts of a writer that the server asks to retry.
const TRIES: usize = 100;

/// Sends a load over several connections, each with one request under way. Returns the duration.
pub(super) fn send(
    server: &Server,
    load: &Load,
    connections: usize,
    clock: &Clock,
) -> anyhow::Result<Duration> {
    let clients = (0..connections).map(|_| server.connect()).collect::<anyhow::Result<Vec<_>>>()?;
    let next = AtomicUsize::new(0);
    let start = clock.now();
    thread::scope(|scope| {
        let next = &next;
        let senders: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    while let Some(batch) = load.batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                        write(&mut client, batch, clock)?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        let each = senders.into_iter().map(|sender| sender.join().expect("it does not panic"));
        each.collect::<anyhow::Result<()>>()
    })
    .with_context(|| server.kind.name())?;
    Ok(clock.now().since(start))
}

fn write(client: &mut Client, batch: &[u8], clock: &Clock) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let answer = client.send("POST /write?db=bench&precision=ns", batch)?;
        match (answer.status, answer.retry_after) {
            (204, _) => return Ok(()),
            (503, Some(after)) => block_on(clock.sleep(Duration::from_secs(after))),
            (status, _) => {
                bail!("a batch is refused: {status}: {}", String::from_utf8_lossy(&answer.body))
            }
        }
    }
    bail!("a batch is not taken after {TRIES} tries")
}

/// The number of points of a load that a server returns.
pub(super) fn count(server: &Server, load: &Load) -> anyhow::Result<u64> {
    let mut client = server.connect()?;
    let mut count = 0.0;
    if server.kind == Kind::Victoria {
        // Queries do not see data of the last second until a flush.
        client.get("/internal/force_flush")?;
        let (span, end) = ((load.end - START) / 1_000_000_000 + 10, load.end / 1_000_000_000);
        let query = format!("sum(count_over_time({{db=\"bench\"}}[{span}s]))");
        let path = format!("/api/v1/query?query={}&time={end}&nocache=1", encoded(&query));
        let answer: serde_json::Value = serde_json::from_slice(&client.get(&path)?)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        count = value.and_then(|value| value.parse().ok()).unwrap_or_default();
    } else {
        for measurement in load.measurements {
            let query = format!("SELECT count(*) FROM \"{measurement}\"");
            let path = format!("/query?db=bench&q={}", encoded(&query));
            let answer: serde_json::Value = serde_json::from_slice(&client.get(&path)?)?;
            let counts = answer["results"][0]["series"][0]["values"][0].as_array();
            // The first column is the time.
            let counts = counts.map_or(&[][..], Vec::as_slice).iter().skip(1);
            count += counts.filter_map(serde_json::Value::as_f64).sum::<f64>();
        }
    }
    Ok(count as u64)
}

/// Counts a load back, and fails if the count differs from the load's.
pub(super) fn verify(server: &Server, load: &Load) -> anyhow::Result<()> {
    let (stored, sent) = (count(server, load)?, load.points);
    ensure!(stored == sent, "{}: {stored} points of {sent} are stored", server.kind.name());
    Ok(())
}
