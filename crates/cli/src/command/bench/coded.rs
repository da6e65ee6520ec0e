//! `plimsoll bench coded`.

mod case;
mod fixture;
mod rows;
mod scale;
mod schemes;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::compare::Plan;
use bench::report::Report;
use policy::units::Bytes;
use volume::Clock;

use self::case::{Bencher, OFFERED_SHARE};
use self::scale::{SHAPE, Scale, VOLUMES};
use super::fixture::load_takes;
use super::{Compared, Timed, announce};
use crate::command::interrupt::Interrupt;

/// Copies and fragments side by side: what the same durability costs in room, operations and latency
///
/// Runs one store on pools of six equal simulated volumes that keep two copies, three copies, or four fragments of data and two
/// of parity. Each has the same records, and the same load from the same seeds, with all volumes, while some are away, and
/// while a lost one is replaced. Nothing but indexes and filters is cached.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench coded --profile smoke
  plimsoll bench coded --rows load,C --html coded.html
  plimsoll bench coded --json coded.json --html coded.html   # every row: about half an hour")]
pub(super) struct Args {
    #[command(flatten)]
    compared: Compared,

    #[command(flatten)]
    timed: Timed,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.compared.options();
    let profile = options.profile;
    let scale = Scale::of(profile, args.compared.runs, args.timed.time(profile));
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let plan = Plan::new(rows::all(), &options, &rows::SMOKE)?;
    let loads = load_takes(scale.records) * u32::try_from(schemes::ALL.len()).unwrap_or(u32::MAX);
    let takes = plan.cases.iter().map(|case| case.takes(&scale));
    let takes = takes.sum::<anyhow::Result<Duration>>()?;
    let work = format!(
        "{} records to load for each of {} schemes, then {}",
        scale.records,
        schemes::ALL.len(),
        plan.size()
    );
    announce("coded", takes + loads, &work);

    let mut bencher = Bencher::new(scale, Clock::real(), interrupt.asked(), options.seed);
    let mut report = Report::new("coded", &options);
    describe(&mut report, &scale)?;
    for scheme in schemes::ALL {
        if interrupt.is_asked() {
            break;
        }
        let levels = bencher.load(scheme)?;
        let line = format!("{}: tables by level after the load: {levels:?}", scheme.name);
        report.notes.push(line);
    }
    args.compared.run(&plan, report, &interrupt, |case| bencher.measure(case))
}

/// Adds the notes that a reader of the report needs.
fn describe(report: &mut Report, scale: &Scale) -> anyhow::Result<()> {
    report.notes.push(format!(
        "{} records of {} + {} bytes, {} without overhead; tables {}, memtable {}, first level {}, no \
         compression, 10 bits of filter; only indexes and filters are cached",
        scale.records,
        SHAPE.key_bytes,
        SHAPE.value_bytes,
        Bytes(scale.data()),
        Bytes(scale.sizes.table),
        Bytes(scale.sizes.memtable),
        Bytes(scale.sizes.level_base),
    ));
    let contract = scale.contract()?;
    report.notes.push(format!(
        "{VOLUMES} volumes, simulated on memory: gp3, IOPS and bytes a second divided by {}: {} paid operations a second \
         each",
        scale.volume_divisor,
        contract.paid_iops().unwrap_or(0),
    ));
    report.assume(&contract);
    report.notes.push(format!(
        "{} runs of {} after {} that do not count, of {} threads, in the closed loop; then as many at {OFFERED_SHARE} of what \
         the slowest store of the case did, latencies from the intended starts",
        scale.runs,
        humantime::format_duration(scale.run_time()),
        humantime::format_duration(scale.lead),
        scale.threads,
    ));
    report
        .notes
        .extend(schemes::ALL.iter().map(|scheme| format!("{}: {}", scheme.name, scheme.about)));
    Ok(())
}
