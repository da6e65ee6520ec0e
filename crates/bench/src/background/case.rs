//! A case, and the measurement of it: each arm alone, in virtual time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use policy::units::KIB;
use volume::Clock;

use super::arms::{Layout, Work};
use super::figures::Run;
use super::scale::Scale;
use super::scale::VOLUMES;
use super::stand::Stand;
use super::{Cell, scale};
use crate::compare;
use crate::report::Report;
use crate::tier::volumes::{Chosen, Load, Offer, Wave, beside};

/// How requests come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pace {
    /// A sine around the given part of what the volumes can do, in percent.
    Sine(u64),
    /// So many are under way all the time.
    Closed(usize),
}

/// How far the sine goes up and down, as a part of its mean.
const SWING: f64 = 0.8;

/// A load on a layout, beside each kind of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub(super) name: String,
    pub(super) layout: Layout,
    pub(super) pace: Pace,
    pub(super) arms: Vec<Work>,
}

impl compare::Case for Case {
    type Outcome = Run;

    fn name(&self) -> &str {
        &self.name
    }

    fn sound(report: &mut Report, cells: &[&Cell]) {
        super::figures::sound(report, cells);
    }
}

/// Measures cases.
pub struct Bencher<'b> {
    /// Sizes.
    pub scale: Scale,
    /// The first seed.
    pub seed: u64,
    /// Set to end the measurement.
    pub stop: &'b AtomicBool,
}

impl Bencher<'_> {
    /// Measures every arm of a case.
    ///
    /// # Errors
    /// A request failed, or a pool could not be opened.
    pub fn measure(&self, case: &Case) -> anyhow::Result<Cell> {
        let mut cell = Cell::of(&case.name, case.arms.iter().map(|arm| arm.name));
        for run in 0..self.scale.runs {
            for (side, &arm) in cell.sides.iter_mut().zip(&case.arms) {
                if !self.stop.load(Ordering::Relaxed) {
                    side.runs.push(self.run(case, arm, self.seed.wrapping_add(run))?);
                }
            }
        }
        Ok(cell)
    }

    fn run(&self, case: &Case, arm: Work, seed: u64) -> anyhow::Result<Run> {
        let clock = Clock::simulated();
        let Scale { data, time, wave, .. } = self.scale;
        clock.run(async {
            let stand = Stand::open(case.layout, arm, data, &clock, seed).await?;
            stand.lose_one();
            let before = stand.granted();
            let load = Load { chosen: Chosen::Uniform, bytes: 4 * KIB, writes_percent: 30 };
            let users = async {
                match case.pace {
                    Pace::Closed(depth) => {
                        load.closed(&clock, &stand.device, data, depth, time, seed).await
                    }
                    Pace::Sine(percent) => {
                        let paid = scale::gp3()?.paid_iops().unwrap_or(0) * (VOLUMES as u64 - 1);
                        let most = paid as f64 / case.layout.operations();
                        let per_sec = (most * percent as f64 / 100.0) as u64;
                        let offer = Offer { per_sec, wave: Some(Wave::Sine(wave, SWING)) };
                        load.offered(&clock, &stand.device, data, offer, time, seed).await
                    }
                }
            };
            let rebuilt = std::cell::Cell::new(None);
            let watch = async {
                let began = clock.now();
                while arm.rebuild && rebuilt.get().is_none() {
                    clock.sleep(Duration::from_millis(100)).await;
                    if stand.pool_is_whole() {
                        rebuilt.set(Some(clock.now().since(began)));
                    }
                }
            };
            let all = async {
                futures_util::join!(stand.work(), watch);
            };
            let answers = beside(users, all).await?;
            stand.must_work()?;
            Ok(Run {
                answers,
                granted: stand.granted().since(&before),
                overdrafts: stand.overdrafts(),
                rebuilt: rebuilt.get(),
            })
        })
    }
}
