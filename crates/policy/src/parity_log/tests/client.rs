//! Clients that know what a read may give: a register for each block.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rand::RngExt;

use super::super::data::{Event, Outcome};
use super::super::record::{Group, Piece, Request};
use super::world::{BLOCK, BLOCKS, Check, DATA, GROUPS, Job, JobKind, Pending, World};

/// A block: its group, strip and number.
type Block = (usize, usize, usize);

#[derive(Debug, Default)]
struct Register {
    /// The write that was issued last.
    issued: u32,
    /// Reads that begin now give this write or a later one: it was acknowledged, or seen.
    floor: u32,
    /// Writes that were refused.
    never: BTreeSet<u32>,
    is_busy: bool,
}

#[derive(Clone, Debug)]
struct Active {
    group: usize,
    strip: usize,
    blocks: Range<usize>,
    view: u64,
    /// How often it was sent.
    tries: u32,
    /// The number of each block's write; `None` of a read.
    writes: Option<Vec<u32>>,
    floors: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Client {
    next: u64,
    registers: BTreeMap<Block, Register>,
    active: BTreeMap<Request, Active>,
}

fn bytes_of(blocks: &Range<usize>) -> Range<u64> {
    (blocks.start * BLOCK) as u64..(blocks.end * BLOCK) as u64
}

impl World {
    pub(super) fn issue(&mut self) {
        let (group, strip) =
            (self.random.random_range(0..GROUPS), self.random.random_range(0..DATA));
        let start = self.random.random_range(0..BLOCKS);
        let end = (start + self.random.random_range(1..=3)).min(BLOCKS);
        let is_write = self.chance(70);
        let client = &mut self.client;
        let mut registers: Vec<&mut Register> = Vec::new();
        for block in start..end {
            client.registers.entry((group, strip, block)).or_default();
        }
        for (_, register) in client.registers.range_mut((group, strip, start)..(group, strip, end))
        {
            registers.push(register);
        }
        if is_write && registers.iter().any(|register| register.is_busy) {
            return;
        }
        let writes = is_write.then(|| {
            let next = |register: &mut &mut Register| {
                register.is_busy = true;
                register.issued += 1;
                register.issued
            };
            registers.iter_mut().map(next).collect()
        });
        let floors = registers.iter().map(|register| register.floor).collect();
        let request = Request { client: 1, number: client.next };
        client.next += 1;
        let view = self.views[group];
        let active = Active { group, strip, blocks: start..end, view, tries: 0, writes, floors };
        self.client.active.insert(request, active);
        self.ask(request);
        self.count(if is_write { "writes" } else { "reads" });
    }

    fn ask(&mut self, request: Request) {
        let Some(active) = self.client.active.get_mut(&request) else { return };
        active.tries += 1;
        let active = &self.client.active[&request];
        let Active { group, strip, view, .. } = *active;
        let range = bytes_of(&active.blocks);
        let event = match &active.writes {
            Some(writes) => {
                let bytes: Vec<u8> = writes.iter().flat_map(|it| it.to_le_bytes()).collect();
                let oldest = self.client.active.keys().next().map_or(0, |oldest| oldest.number);
                Event::Write { view, request, oldest, piece: Piece::new(range.start, &bytes) }
            }
            None => Event::Read { view, request, range },
        };
        self.pending.push(Pending::ToData(group as Group, strip, event));
    }

    /// Asks again, in the view that the master has.
    pub(super) fn ask_again(&mut self) {
        for request in self.client.active.keys().copied().collect::<Vec<_>>() {
            if self.is_healing || self.chance(30) {
                let active = self.client.active.get_mut(&request).expect("listed above");
                active.view = self.views[active.group];
                self.ask(request);
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.client.active.is_empty()
    }

    pub(super) fn answered(&mut self, request: Request, outcome: Outcome) -> Check {
        let Some(active) = self.client.active.get(&request).cloned() else { return Ok(()) };
        match (outcome, &active.writes) {
            (Outcome::OtherView(_), _) => {}
            (Outcome::Lost, None) => self.read_degraded(request),
            (Outcome::Lost, Some(_)) => {}
            (_, None) => return Err(format!("{request:?}: a read was answered {outcome}")),
            (Outcome::Written | Outcome::Busy, Some(writes)) => {
                self.client.active.remove(&request);
                for (block, &write) in active.blocks.clone().zip(writes) {
                    let at = (active.group, active.strip, block);
                    let register = self.client.registers.get_mut(&at).expect("it was issued");
                    register.is_busy = false;
                    if outcome == Outcome::Written {
                        register.floor = register.floor.max(write);
                    } else if active.tries == 1 {
                        // Else it may be the answer to another try.
                        register.never.insert(write);
                    }
                }
                self.count(if outcome == Outcome::Written { "written" } else { "busy" });
            }
        }
        Ok(())
    }

    fn read_degraded(&mut self, request: Request) {
        let active = &self.client.active[&request];
        let (group, strip) = (active.group, active.strip);
        let is_asked = |job: &Job| matches!(job.kind, JobKind::Read(it, ..) if it == request);
        let is_lost = self.data[group][strip].as_ref().is_some_and(|it| it.is_lost());
        if is_lost && !self.jobs.iter().any(is_asked) {
            let range = bytes_of(&active.blocks);
            self.start_job(group, JobKind::Read(request, strip, range));
        }
    }

    /// A read gave these bytes.
    pub(super) fn was_read(&mut self, request: Request, bytes: &[u8]) -> Check {
        let Some(active) = self.client.active.remove(&request) else { return Ok(()) };
        let at = (active.group, active.strip);
        let blocks = active.blocks.clone().zip(bytes.chunks(BLOCK)).zip(active.floors);
        for ((block, value), floor) in blocks {
            self.check_block((at.0, at.1, block), value, floor)?;
        }
        self.count("answered reads");
        Ok(())
    }

    fn check_block(&mut self, at: Block, value: &[u8], floor: u32) -> Check {
        let value = u32::from_le_bytes(value.try_into().expect("a block"));
        let register = self.client.registers.entry(at).or_default();
        if value < floor || value > register.issued || register.never.contains(&value) {
            return Err(format!("read {value} of {at:?}, not {floor}.., with {register:?}"));
        }
        register.floor = register.floor.max(value);
        Ok(())
    }

    /// At a quiet end, each strip has what was acknowledged.
    pub(super) fn check_strips(&mut self) -> Check {
        for group in 0..GROUPS {
            for strip in 0..DATA {
                let bytes = self.strips[group][strip].clone();
                for (block, value) in bytes.chunks(BLOCK).enumerate() {
                    let at = (group, strip, block);
                    let floor = self.client.registers.get(&at).map_or(0, |it| it.floor);
                    self.check_block(at, value, floor)?;
                }
            }
        }
        Ok(())
    }
}
