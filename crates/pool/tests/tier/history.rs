//! Which values a cell of an object may have, by the writes and reads of it so far.
//!
//! A value is dead once a write that began after its own had ended was acknowledged or read, or once a later read gave
//! another value than an earlier one. A read that begins afterwards must not give it.

/// The moments of one run, in their order.
pub(crate) type Moment = u64;

struct Write {
    value: u64,
    began: Moment,
    ended: Option<Moment>,
    dead: Moment,
    /// A later write is durable.
    is_gone: bool,
}

pub(crate) struct Cell {
    writes: Vec<Write>,
    last_read: Option<(usize, Moment)>,
}

/// A write under way.
#[derive(Clone, Copy)]
pub(crate) struct Begun(usize);

impl Cell {
    /// With this value since before the run.
    pub(crate) fn new(value: u64) -> Self {
        let write = Write { value, began: 0, ended: Some(0), dead: Moment::MAX, is_gone: false };
        Self { writes: vec![write], last_read: None }
    }

    pub(crate) fn begin(&mut self, value: u64, now: Moment) -> Begun {
        self.writes.push(Write {
            value,
            began: now,
            ended: None,
            dead: Moment::MAX,
            is_gone: false,
        });
        Begun(self.writes.len() - 1)
    }

    pub(crate) fn end(&mut self, begun: Begun, acknowledged: bool, now: Moment) {
        self.writes[begun.0].ended = Some(now);
        if acknowledged {
            self.kill_before(self.writes[begun.0].began, now);
        }
    }

    /// A write that was acknowledged is durable.
    pub(crate) fn is_durable(&mut self, begun: Begun) {
        let began = self.writes[begun.0].began;
        for write in self.writes.iter_mut().filter(|w| w.ended.is_some_and(|e| e < began)) {
            write.is_gone = true;
        }
    }

    fn kill_before(&mut self, began: Moment, now: Moment) {
        for write in self.writes.iter_mut().filter(|w| w.ended.is_some_and(|e| e < began)) {
            write.dead = write.dead.min(now);
        }
    }

    /// Checks the value that a read gave.
    pub(crate) fn read(&mut self, value: u64, began: Moment, now: Moment) -> Result<(), String> {
        let fits = |w: &Write| w.value == value && w.began <= now && w.dead >= began;
        let found: Vec<_> = (0..self.writes.len()).filter(|&at| fits(&self.writes[at])).collect();
        match found[..] {
            [] => {
                let all: Vec<_> =
                    self.writes.iter().map(|w| (w.value, w.began, w.ended, w.dead)).collect();
                return Err(format!("{value} read from {began} to {now}, of {all:?}"));
            }
            [at] => {
                self.kill_before(self.writes[at].began, now);
                if let Some((last, ended)) = self.last_read
                    && last != at
                    && ended < began
                {
                    self.writes[last].dead = self.writes[last].dead.min(now);
                }
                self.last_read = Some((at, now));
            }
            _ => self.last_read = None,
        }
        Ok(())
    }

    /// Whether a crash may leave this value after a sync that began at `synced` and succeeded.
    pub(crate) fn survives(&self, value: u64, synced: Moment) -> bool {
        self.writes.iter().any(|w| w.value == value && w.dead > synced && !w.is_gone)
    }
}

#[test]
fn a_value_is_dead_after_a_later_one_was_seen() {
    let mut cell = Cell::new(0);
    let first = cell.begin(1, 1);
    assert!(cell.read(0, 2, 3).is_ok() && cell.read(1, 2, 3).is_ok());
    assert!(cell.read(0, 4, 5).is_err(), "it went back");
    cell.end(first, true, 6);
    let second = cell.begin(2, 7);
    cell.end(second, false, 8);
    assert!(cell.read(1, 9, 10).is_ok() && cell.read(2, 11, 12).is_ok());
    assert!(cell.read(1, 13, 14).is_err());
}
