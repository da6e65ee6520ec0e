//! The two objects that the generations of a log are written to in turn.
//!
//! An object is made anew for its first generation, so that nothing is in it which an earlier run of the program left there.
//! From then on its generations overwrite each other: bytes for which a file system has given room before cost an append
//! no entry in its journal.
//!
//! When a generation counts, the one before it is [superseded]: damage of the new one never brings the old one back.

use std::sync::Arc;

use policy::purpose::Io;
use volume::{ErrorKind, Intent, IoBuf, Name, Object, Result, Volume};

use super::frames::{self, Content};

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

    /// Writes the first bytes of a generation, durably. What its object had must be superseded.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn begin(&mut self, generation: u64, bytes: IoBuf) -> Result<Arc<dyn Object>> {
        let turn = (generation % 2) as usize;
        // After an error, the object is made anew.
        let object = match self.made[turn].take() {
            Some(object) => object,
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

/// Makes the generation in an object never count again, durably: that with the number `by` is whole.
///
/// # Errors
/// Those of the volume.
pub(super) async fn supersede(object: &dyn Object, identity: u64, by: u64, io: Io) -> Result<()> {
    object.write_durable(0, IoBuf::from(&frames::superseded(identity, by)[..]), io).await
}

/// What those of the two objects have that are there.
///
/// # Errors
/// Those of the volume.
pub(super) async fn read(
    volume: &dyn Volume,
    prefix: &str,
    io: Io,
) -> Result<Vec<(Arc<dyn Object>, Content)>> {
    let mut found = Vec::new();
    for turn in 0..2 {
        let object = match volume.open(&name(prefix, turn)).await {
            Ok(object) => object,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let content = frames::read(&*object, io).await?;
        found.push((object, content));
    }
    Ok(found)
}

fn name(prefix: &str, turn: usize) -> Name {
    Name::new(&format!("{prefix}-{turn}")).expect("a valid name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_may_be_as_long_as_the_state_before_it() {
        let mib = |mib: u64| mib << 20;
        for (state, longest) in [(0, 16), (1, 17), (16, 32), (100, 200)] {
            assert!(!is_long(mib(longest), mib(state), mib(16)));
            assert!(is_long(mib(longest) + 1, mib(state), mib(16)));
        }
    }
}
