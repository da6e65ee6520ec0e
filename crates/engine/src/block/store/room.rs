//! Room for blocks that were never written: refused before the volumes are full, so that writes over blocks that have room,
//! and the pool's other stores, still find some.

use std::sync::Arc;

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::units::{Bytes, MIB};
use volume::Volume;

use super::super::{Error, Result};
use super::failure::failed;

/// What is left free, in bytes: for marks, checksums, and what other writers of the same file systems take meanwhile. On
/// small volumes it is a part of them.
const LEFT: u64 = 32 * MIB;
const LEFT_PART: u64 = 32;
/// The most that is taken before the volumes are asked again, in bytes, and the part of what is free.
const AHEAD: u64 = 64 * MIB;
const AHEAD_PART: u64 = 8;

/// What gives room, for people.
const WAY_OUT: &str = "discard what is not used (fstrim), delete devices, or add a volume";

/// The room that writers may take.
pub(super) struct Room {
    volume: Arc<dyn Volume>,
    state: Mutex<State>,
    /// Locked while the volumes are asked.
    asking: AsyncMutex<()>,
}

#[derive(Default)]
struct State {
    /// Bytes that may be taken before the volumes are asked again.
    ahead: u64,
    /// Why none may be taken.
    refused: Option<String>,
}

impl Room {
    pub(super) fn new(volume: Arc<dyn Volume>) -> Self {
        Self { volume, state: Mutex::default(), asking: AsyncMutex::new(()) }
    }

    /// Takes room for this many bytes.
    ///
    /// # Errors
    /// `OutOfSpace`; those of the volume.
    pub(super) async fn take(&self, bytes: u64) -> Result<()> {
        if bytes == 0 || self.take_ahead(bytes) {
            return Ok(());
        }
        let _alone = self.asking.lock().await;
        if self.take_ahead(bytes) {
            return Ok(());
        }
        self.ask(bytes).await
    }

    /// A volume was full, whatever it said before. Returns why, for people.
    pub(super) fn refuse(&self, why: &str) -> String {
        let why = format!("{why}; {WAY_OUT}");
        *self.state.lock() = State { ahead: 0, refused: Some(why.clone()) };
        why
    }

    /// Asks again if room was refused: some may be free now.
    ///
    /// # Errors
    /// As for [`Room::take`].
    pub(super) async fn look_again(&self) -> Result<()> {
        if self.refused().is_none() {
            return Ok(());
        }
        let _alone = self.asking.lock().await;
        self.ask(0).await
    }

    /// Why no room may be taken, for people.
    pub(super) fn refused(&self) -> Option<String> {
        self.state.lock().refused.clone()
    }

    fn take_ahead(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let left = state.ahead.checked_sub(bytes);
        state.ahead = left.unwrap_or(state.ahead);
        left.is_some()
    }

    async fn ask(&self, bytes: u64) -> Result<()> {
        let space = self.volume.space().await.map_err(|e| failed("room", e))?;
        let left = LEFT.min(space.total / LEFT_PART);
        let free = space.free.saturating_sub(left);
        let mut state = self.state.lock();
        if free <= bytes {
            let what = format!(
                "block devices take no further room: {} are free on the pool, of which {} are kept; {WAY_OUT}",
                Bytes(space.free),
                Bytes(left),
            );
            *state = State { ahead: 0, refused: Some(what.clone()) };
            return Err(Error::OutOfSpace(what));
        }
        *state = State { ahead: (free / AHEAD_PART).min(AHEAD).min(free - bytes), refused: None };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use volume::mem::Mem;
    use volume::task::block_on;
    use volume::{Intent, Name};

    use super::*;

    #[test]
    fn room_is_refused_before_the_volume_is_full_and_given_when_some_is_free() {
        let mem = Mem::with_capacity("a", 64 * MIB);
        let room = Room::new(Arc::new(mem.clone()));
        block_on(room.take(MIB)).unwrap();
        let name = Name::new("x").unwrap();
        let object = block_on(mem.create(&name, &Intent::DATA)).unwrap();
        block_on(object.set_len(63 * MIB)).unwrap();
        // What was given ahead can be taken still.
        let mut taken = 0;
        while block_on(room.take(MIB)).is_ok() {
            taken += 1;
        }
        assert!(taken <= 64 / AHEAD_PART, "{taken}");
        assert!(room.refused().is_some_and(|why| why.contains("1 MiB are free")));
        assert!(block_on(room.look_again()).is_err());
        block_on(object.set_len(0)).unwrap();
        block_on(room.look_again()).unwrap();
        assert!(room.refused().is_none());
        block_on(room.take(MIB)).unwrap();
    }
}
