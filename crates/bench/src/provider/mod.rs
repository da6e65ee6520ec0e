//! `bench provider`: does the simulated provider behave like the measured one, and does it answer on time?
//!
//! B01 and B02 run [`Simulate`] around memory in virtual time, over several seeds. A third part runs the same layer in
//! real time and measures how late its answers are: an error that every bench on simulated volumes has.

mod lateness;
mod loops;
mod trace;

use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use policy::contract::spec::Bought;
use policy::contract::{Contract, catalogue};
use policy::purpose::{Io, Origin, Step};
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, Intent, IoBuf, IoBufMut, Name, Object, Volume};

use crate::report::Report;
use crate::{Options, Profile};

const IO: Io = Io::new(Origin::UserRead, Step::Data);
const PAGE: usize = 4096;

/// The contract of Calcspar's traces: operations a second.
const PAID: u64 = 1000;

/// How much each profile measures.
struct Scale {
    seeds: u64,
    /// Virtual seconds of each closed loop (B02).
    loop_secs: u64,
    /// Real seconds of each measurement of lateness.
    lateness_secs: u64,
}

impl Scale {
    const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Smoke => Self { seeds: 5, loop_secs: 60, lateness_secs: 2 },
            Profile::Short => Self { seeds: 10, loop_secs: 120, lateness_secs: 10 },
            Profile::Paper => Self { seeds: 20, loop_secs: 600, lateness_secs: 60 },
        }
    }
}

/// Measures B01, B02 and, with B02, the lateness in real time.
///
/// Progress is shown on stderr if that is a terminal.
///
/// # Errors
/// A read failed. A check that does not hold is not an error.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let scale = Scale::of(options.profile);
    let seeds: Vec<u64> = (0..scale.seeds).map(|n| options.seed.wrapping_add(n)).collect();
    let mut report = Report::new("provider", options);
    let bar = ProgressBar::new(VIRTUAL_SECS + lateness::real_secs(scale.lateness_secs));
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {elapsed} of about {len} s: {msg}")
            .expect("the template is right"),
    );
    if options.wants("B01") {
        bar.set_message("B01, a recorded trace in virtual time");
        trace::measure(&mut report, &seeds)?;
    }
    if options.wants("B02") {
        bar.set_message("B02, closed loops in virtual time");
        loops::measure(&mut report, &seeds, scale.loop_secs)?;
        bar.set_position(VIRTUAL_SECS);
        lateness::measure(&mut report, scale.lateness_secs, &bar)?;
    }
    bar.finish_and_clear();
    report.assume(&io2());
    Ok(report)
}

/// Real seconds that virtual time takes: a few in every profile but paper.
const VIRTUAL_SECS: u64 = 2;

/// The volume the trace was recorded on.
fn io2() -> Contract {
    let bought = Bought { iops: Some(PAID), mib_per_s: None };
    let spec = catalogue::find("io2").expect("io2 is in the catalogue");
    spec.contract(None, bought).expect("io2 is sold with 1000 IOPS")
}

/// A simulated volume, and one object of one page on it.
struct Stage {
    clock: Clock,
    volume: Simulate<Mem>,
    object: Arc<dyn Object>,
}

impl Stage {
    /// The page is written below the simulation, so it is not charged.
    fn set(contract: &Contract, clock: Clock, seed: u64) -> anyhow::Result<Self> {
        let mem = Mem::new("bench");
        let name = Name::new("page")?;
        let opened = async {
            let page = mem.create(&name, &Intent::DATA).await?;
            page.write_at(0, IoBuf::from(&[0; PAGE][..]), IO).await?;
            let volume = Simulate::new(mem.clone(), contract, clock.clone(), seed);
            let object = volume.open(&name).await?;
            Ok::<_, volume::Error>((volume, object))
        };
        let (volume, object) = volume::task::block_on(opened)?;
        Ok(Self { clock, volume, object })
    }

    async fn read(&self) -> volume::Result<()> {
        self.object.read_at(0, IoBufMut::zeroed(PAGE), IO).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_provider_is_the_one_that_was_recorded() {
        let mut report = Report::new("provider", &Options::default());
        trace::measure(&mut report, &[7, 8]).expect("memory does not fail");
        loops::measure(&mut report, &[7], 3).expect("memory does not fail");
        assert_eq!(report.checks.len(), 2);
        assert!(report.holds(), "{:?}", report.checks);
    }
}
