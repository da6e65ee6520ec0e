//! Each volume against its line, while something runs: bars in a terminal, lines elsewhere.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll::volumes::Device;
use volume::Clock;

use crate::program::Program;

/// How often bars move, and how often a line is printed.
const BARS_EVERY: Duration = Duration::from_millis(200);
const LINES_EVERY: Duration = Duration::from_secs(2);

/// A picture of a program's volumes.
pub(super) struct Picture<'p> {
    program: &'p Program,
    clock: Clock,
    terminal: bool,
}

impl<'p> Picture<'p> {
    pub(super) fn new(program: &'p Program, clock: Clock, terminal: bool) -> Self {
        Self { program, clock, terminal }
    }

    /// Shows the volumes while `work` runs, and gives what it gives.
    pub(super) fn beside<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let (done, running) = channel::<()>();
            scope.spawn(move || {
                let mut view = View::new(self.program, self.terminal, what);
                let every = if self.terminal { BARS_EVERY } else { LINES_EVERY };
                let start = self.clock.now();
                while running.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    view.show(self.program, self.clock.now().since(start));
                }
                view.end();
            });
            let outcome = work();
            drop(done);
            outcome
        })
    }
}

/// Where the picture is drawn.
enum View {
    Bars { all: MultiProgress, bars: Vec<ProgressBar> },
    Lines,
}

impl View {
    fn new(program: &Program, terminal: bool, what: &str) -> Self {
        println!("{what}; I/Os of the last second against what is paid for:");
        if !terminal {
            return Self::Lines;
        }
        let style =
            ProgressStyle::with_template("  {prefix:4} {bar:50} {pos:>5} of {len} IOPS {msg}");
        let style = style.expect("the template is right").progress_chars("=> ");
        let all = MultiProgress::new();
        let bars = program.store.devices().here().into_iter().map(|device| {
            let line = device.gate().meter().contract.paid_iops().unwrap_or(0);
            all.add(
                ProgressBar::new(line)
                    .with_style(style.clone())
                    .with_prefix(device.name().to_owned()),
            )
        });
        let bars = bars.collect();
        Self::Bars { all, bars }
    }

    fn show(&mut self, program: &Program, elapsed: Duration) {
        let devices = program.store.devices().here();
        match self {
            Self::Bars { bars, .. } => {
                for (bar, device) in bars.iter().zip(&devices) {
                    bar.set_position(device.gate().meter().last_second.ops);
                    bar.set_message(waiting(device));
                }
            }
            Self::Lines => {
                let volumes = devices.iter().map(|device| {
                    let meter = device.gate().meter();
                    let line = meter.contract.paid_iops().unwrap_or(0);
                    format!("{} {:>4}/{line}", device.name(), meter.last_second.ops)
                });
                let volumes: Vec<_> = volumes.collect();
                println!("  {:>3} s  {}", elapsed.as_secs(), volumes.join("  "));
            }
        }
    }

    fn end(self) {
        if let Self::Bars { all, bars } = self {
            bars.iter().for_each(ProgressBar::finish_and_clear);
            // Nothing is left to be done where the terminal is gone.
            let _ = all.clear();
        }
    }
}

fn waiting(device: &Device) -> String {
    let waiting: u64 = device.gate().meter().classes.iter().map(|class| class.queued).sum();
    if waiting == 0 { String::new() } else { format!("{waiting} waiting") }
}
