//! The log of a run, one line an event, for people to read.

use std::cell::RefCell;
use std::fmt;

use policy::time::Instant;
use volume::layer::trace::{Outcome, Record, TraceLog};

/// A log of events. Searches use a silent one, which costs next to nothing; replays use a recording one.
pub struct Log(Option<RefCell<Vec<Line>>>);

struct Line {
    at: Instant,
    who: String,
    what: String,
}

impl Log {
    /// Keeps nothing.
    #[must_use]
    pub const fn silent() -> Self {
        Self(None)
    }

    /// Keeps everything.
    #[must_use]
    pub const fn recording() -> Self {
        Self(Some(RefCell::new(Vec::new())))
    }

    /// Whether it keeps anything.
    #[must_use]
    pub const fn is_recording(&self) -> bool {
        self.0.is_some()
    }

    /// Records that `who` does `what`.
    pub fn note(&self, at: Instant, who: &str, what: fmt::Arguments<'_>) {
        if let Some(lines) = &self.0 {
            lines.borrow_mut().push(Line { at, who: who.into(), what: what.to_string() });
        }
    }

    /// Adds the calls that reached devices, at the times they began.
    pub fn add_calls(&self, calls: &TraceLog) {
        for Record { began, volume, call, outcome, .. } in calls.records() {
            let reason = call.io.map(|io| format!(" for {:?}", io.origin)).unwrap_or_default();
            let end = match outcome {
                Outcome::Done => String::new(),
                end => format!(": {end:?}"),
            };
            self.note(began, &volume, format_args!("< {call}{reason}{end}"));
        }
    }
}

impl fmt::Display for Log {
    /// A legend, then the events in the order of their times; those of one moment in the order of their
    /// notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#   time/ms  who         what")?;
        writeln!(
            f,
            "#                        > asked   . answered   < reached a device   ! changed"
        )?;
        let Some(lines) = &self.0 else { return Ok(()) };
        let lines = lines.borrow();
        let mut sorted: Vec<_> = lines.iter().collect();
        sorted.sort_by_key(|line| line.at);
        for Line { at, who, what } in sorted {
            let nanos = at.as_nanos();
            let (millis, nanos) = (nanos / 1_000_000, nanos % 1_000_000);
            writeln!(f, "{millis:5}.{nanos:06} {who:11} {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_reads_in_the_order_of_time() {
        let log = Log::recording();
        log.note(Instant::from_nanos(2_500_000), "b", format_args!(". second"));
        log.note(Instant::from_nanos(1), "a", format_args!("> first {}", 1));
        log.note(Instant::from_nanos(2_500_000), "a", format_args!(". third"));
        let text = log.to_string();
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "    0.000001 a           > first 1",
                "    2.500000 b           . second",
                "    2.500000 a           . third"
            ]
        );
        assert_eq!(Log::silent().to_string().lines().count(), 2);
    }
}
