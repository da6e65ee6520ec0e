//! The two objects that the generations of a log are written to in turn.
//!
//! An object is made anew for its first generation, so that nothing is in it which an earlier run of the program left there.
//! From then on its generations overwrite each other: bytes for which a file system has given room before cost an append
//! no entry in its journal.

use std::sync::Arc;

use policy::purpose::Io;
use volume::{ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Result, Volume};

use super::record::BLOCK;

pub(super) struct Turns {
    volume: Arc<dyn Volume>,
    prefix: &'static str,
    io: Io,
    made: [Option<Arc<dyn Object>>; 2],
}

impl Turns {
    pub(super) const fn new(volume: Arc<dyn Volume>, prefix: &'static str, io: Io) -> Self {
        Self { volume, prefix, io, made: [None, None] }
    }

    /// Writes the first bytes of a generation, durably; what its object had does not count any more from before the first of
    /// them.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn begin(&mut self, generation: u64, bytes: IoBuf) -> Result<Arc<dyn Object>> {
        let turn = (generation % 2) as usize;
        // After an error, the object is made anew.
        let object = match self.made[turn].take() {
            Some(object) => {
                // A part of the new bytes could leave an old generation readable that lacks its end.
                object.write_durable(0, IoBufMut::zeroed(BLOCK).freeze(), self.io).await?;
                object
            }
            None => self.make(turn).await?,
        };
        object.write_at(0, bytes, self.io).await?;
        object.sync(self.io).await?;
        self.made[turn] = Some(Arc::clone(&object));
        Ok(object)
    }

    async fn make(&self, turn: usize) -> Result<Arc<dyn Object>> {
        let name = name(self.prefix, turn);
        match self.volume.remove(&name).await {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        // Not whole, which would seal it: a pool takes no appends to what is sealed.
        self.volume.create(&name, &Intent::DATA).await
    }
}

/// Whether a log is long enough for a new generation: it has more than `least` bytes behind the `state` with which it begins, and
/// more than that has. So no append makes a tier write a large state anew.
pub(super) fn is_long(len: u64, state: u64, least: u64) -> bool {
    len - state > least.max(state)
}

/// All bytes of those of the two objects that are there.
///
/// # Errors
/// Those of the volume.
pub(super) async fn read(volume: &dyn Volume, prefix: &str, io: Io) -> Result<Vec<IoBufMut>> {
    let mut found = Vec::new();
    for turn in 0..2 {
        let object = match volume.open(&name(prefix, turn)).await {
            Ok(object) => object,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let len = usize::try_from(object.len()).unwrap_or(usize::MAX);
        found.push(object.read_at(0, IoBufMut::zeroed(len), io).await?);
    }
    Ok(found)
}

fn name(prefix: &str, turn: usize) -> Name {
    Name::new(&format!("{prefix}-{turn}")).expect("a valid name")
}

#[cfg(test)]
mod tests {
    use policy::purpose::{Origin, Step};
    use volume::layer::call::Op;
    use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
    use volume::mem::Mem;
    use volume::task::block_on;
    use volume::{Clock, Error};

    use super::*;

    const IO: Io = Io::new(Origin::UserWrite, Step::Manifest);

    #[test]
    fn a_log_may_be_as_long_as_the_state_before_it() {
        let mib = |mib: u64| mib << 20;
        for (state, longest) in [(0, 16), (1, 17), (16, 32), (100, 200)] {
            assert!(!is_long(mib(longest), mib(state), mib(16)));
            assert!(is_long(mib(longest) + 1, mib(state), mib(16)));
        }
    }

    #[test]
    fn an_overwrite_that_fails_leaves_no_old_generation_without_its_end() {
        let (mem, plan) = (Mem::new("a"), FaultPlan::new(1));
        let volume = Arc::new(Fault::new(mem.clone(), "a", &plan, &Clock::simulated()));
        let mut turns = Turns::new(volume, "log", IO);
        let begin = |turns: &mut Turns, generation: u64| {
            let bytes = [generation as u8; 2 * BLOCK];
            block_on(turns.begin(generation, IoBuf::from(&bytes[..]))).map(drop)
        };
        let found = || block_on(read(&mem, "log", IO)).unwrap();
        begin(&mut turns, 2).unwrap();
        begin(&mut turns, 3).unwrap();
        // The first one is that of the zeros.
        plan.inject(Rule::new(Effect::Fail(ErrorKind::Io)).on(Op::Write).nth(1));
        assert_eq!(begin(&mut turns, 4).as_ref().map_err(Error::kind), Err(ErrorKind::Io));
        let bytes = found();
        assert_eq!((bytes[0][0], bytes[1][0]), (0, 3));
        plan.clear();
        begin(&mut turns, 4).unwrap();
        assert_eq!((found()[0].len(), found()[0][BLOCK]), (2 * BLOCK, 4));
    }
}
