//! Row `known`: the cost of known series, active or not.

use bench::ingest::rows::{Readings, devops, hosts};
use bench::ingest::{Band, OURS, ReportWriter, process};

use super::Bench;
use super::load;
use super::server::{How, Kind, Server};

/// Sources made at a time: bytes to send are in memory.
const AT_ONCE: u64 = 100_000;
/// The memory of the store's buffers, out of 2 GiB for the whole server.
const SERIES: &str = "memory = \"256MiB\"\nseries_max = 30000000";
/// The memory limit of the whole server, in MiB.
const MEMORY_MIB_MAX: f64 = 2048.0;

pub(super) fn row(bench: &Bench<'_>, writer: &mut ReportWriter<'_>) -> anyhow::Result<()> {
    const MIB: f64 = (1 << 20) as f64;
    let (sources, fields) = (bench.scale.sources, bench.fields);
    let series = sources * fields;
    let case = |what: &str| format!("{series} series of {sources} sources: {what}");
    let mut tell = |what: &str, value: f64, unit: &str| {
        writer.figure("known", &case(what), unit, &[(OURS, vec![value])], Band::None);
    };
    let how = How { series: SERIES, ..How::USUAL };
    let home = bench.home(Kind::Ours)?;
    let server = Server::start(Kind::Ours, &home, how, &bench.clock)?;
    let (empty, _) = process::memory(server.process())?;

    // The rate of a few hosts, before others exist and among them.
    let few = devops(100, (sources / 1000).clamp(50, 1000), Readings::Integers, bench.seed);
    let rate = |server: &Server| -> anyhow::Result<f64> {
        let took = load::send(server, &few, 4, &bench.clock)?;
        Ok(few.rows as f64 / took.as_secs_f64())
    };
    let alone = rate(&server)?;
    tell("rows/s of 100 hosts before", alone, "rows/s");

    // The first step makes all sources known; the next ones write to a tenth of the sources.
    let active = sources / 10;
    let send = |server: &Server, sources: u64, step: u64| -> anyhow::Result<f64> {
        let (mut rows, mut took) = (0, 0.0);
        for first in (0..sources).step_by(AT_ONCE as usize) {
            let load = hosts(first, AT_ONCE.min(sources - first), step, fields as usize);
            took += load::send(server, &load, 4, &bench.clock)?.as_secs_f64();
            rows += load.rows;
        }
        Ok(rows as f64 / took)
    };
    tell("rows/s while they are made", send(&server, sources, 0)?, "rows/s");
    let (known, _) = process::memory(server.process())?;
    tell("memory of the server", known as f64 / MIB, "MiB");
    tell(
        "memory a series, buffers too",
        known.saturating_sub(empty) as f64 / series as f64,
        "bytes",
    );
    let mut among = Vec::new();
    for step in 1..=3 {
        among.push(send(&server, active, step)?);
    }
    let rows = bench::stats::median(&among);
    tell(&format!("rows/s, {} of them active", active * fields), rows, "rows/s");
    let among = rate(&server)?;
    tell("rows/s of 100 hosts among them", among, "rows/s");
    let (_, most) = process::memory(server.process())?;
    tell("memory of the server at most", most as f64 / MIB, "MiB");
    verify_some(&server, fields)?;

    let start = bench.clock.now();
    server.stop()?;
    tell("stopped after", bench.clock.now().since(start).as_secs_f64(), "s");
    let start = bench.clock.now();
    let server = Server::start(Kind::Ours, &home, how, &bench.clock)?;
    tell("started after", bench.clock.now().since(start).as_secs_f64(), "s");
    let (again, _) = process::memory(server.process())?;
    tell("memory of the server, started again", again as f64 / MIB, "MiB");
    let each = again.saturating_sub(empty) as f64 / series as f64;
    tell("memory a known series", each, "bytes");

    send(&server, active, 4)?;
    server.kill()?;
    let start = bench.clock.now();
    let server = Server::start(Kind::Ours, &home, how, &bench.clock)?;
    tell("started after it was killed, after", bench.clock.now().since(start).as_secs_f64(), "s");
    verify_some(&server, fields)?;
    server.stop()?;
    std::fs::remove_dir_all(&home)?;

    let report = &mut *writer.report;
    let what = "memory of the server at most, MiB";
    report.check("known", what, most as f64 / MIB, [0.0, MEMORY_MIB_MAX]);
    let what = "rows/s of 100 hosts among them / before";
    report.check("known", what, among / alone, [0.9, f64::INFINITY]);
    Ok(())
}

/// Checks that a host with a row in step 1 still has it.
fn verify_some(server: &Server, fields: u64) -> anyhow::Result<()> {
    let one = "SELECT count(usage_user) FROM cpu WHERE hostname = 'host_9876'";
    let path = format!("/query?db=bench&q={}", super::client::encoded(one));
    let answer: serde_json::Value = serde_json::from_slice(&server.connect()?.get(&path)?)?;
    let count = answer["results"][0]["series"][0]["values"][0][1].as_u64();
    anyhow::ensure!(count >= Some(1) && fields > 0, "host_9876 is lost: {answer}");
    Ok(())
}
