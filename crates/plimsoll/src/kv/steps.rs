//! A way out for a store whose next merge does not fit on its volumes.
//!
//! Users' writes are refused before that happens, but other programs take room too, volumes become unavailable, and a
//! merge may grow while several run. RocksDB repeats a compaction that found no room with the same inputs. Meanwhile
//! the first level fills up, and writers wait, deletes included. So this switches automatic compactions off, which ends
//! those waits, and merges a few tables down at a time, as [`policy::steps`] chooses them, until the merge fits.

use std::time::Duration;

use policy::room::{Level0Merge, Room};
use policy::steps;
use policy::units::Bytes;
use rust_rocksdb::{CompactionOptions, Error, properties};

use super::inner::Inner;
use super::levels::Leveled;
use super::room::WAY_OUT;
use crate::stop::ThreadStop;

/// Tables of the first level at which RocksDB merges it.
const MERGED_AT: u64 = 4;

/// The time between two checks whether RocksDB's own compactions have ended.
const ENDED_EVERY: Duration = Duration::from_millis(20);

/// The steps of one store.
#[derive(Default)]
pub(super) struct Steps {
    /// The failures of RocksDB's own work at the last look.
    failed: u64,
    episode: Option<Episode>,
}

/// The time from the first need of steps until the merge fits.
#[derive(Default)]
struct Episode {
    taken: u64,
    /// Whether it was logged that no step fits.
    said: bool,
}

/// The outcome of one step.
enum Outcome {
    Taken,
    /// No step fits: the bytes that the smallest one needs.
    TooLarge(Option<u64>),
    Failed(Error),
}

impl Steps {
    /// Takes steps while they are needed, one fits, and `stop` is not set. Gives whether more are needed: then
    /// RocksDB's own compactions are off.
    pub(super) fn look(&mut self, store: &Inner, stop: &ThreadStop) -> bool {
        let failed = store.failed();
        let fails = std::mem::replace(&mut self.failed, failed) < failed;
        let mut due = match self.episode {
            Some(_) => false,
            None if fails && store.room().is_scarce() && store.is_merge_due() => {
                store.set_automatic(false);
                self.episode = Some(Episode::default());
                true
            }
            None => return false,
        };
        // Running compactions end by themselves, or find no room. They hold tables until then.
        while store.sum(properties::NUM_RUNNING_COMPACTIONS) > 0 {
            if !stop.wait(ENDED_EVERY) {
                return true;
            }
        }
        store.remove_leftovers();
        let Some(episode) = &mut self.episode else { return false };
        let begun = store.largest_merge();
        loop {
            store.room().free_removed();
            let (family, room) = store.largest_merge();
            // A merge that fits but failed lacks something that is not known here.
            if room.lacks() == 0 && !std::mem::take(&mut due) {
                break;
            }
            let outcome =
                family.map_or(Outcome::TooLarge(None), |family| store.step(&family, &room));
            match outcome {
                Outcome::Taken => {
                    if episode.taken == 0 {
                        Episode::say_begun(&begun.1);
                    }
                    episode.taken += 1;
                }
                Outcome::TooLarge(_) | Outcome::Failed(_) if room.lacks() == 0 => break,
                Outcome::TooLarge(least) => {
                    episode.say_stuck(&room, least, None);
                    return true;
                }
                Outcome::Failed(error) => {
                    episode.say_stuck(&room, None, Some(&error));
                    return true;
                }
            }
            if !stop.wait(Duration::ZERO) {
                return true;
            }
        }
        if episode.taken > 0 {
            store.describe_tables();
            tracing::info!(steps = episode.taken, "compactions find room again");
        }
        self.episode = None;
        self.failed = store.failed();
        store.set_automatic(true);
        store.look_at_room();
        false
    }
}

impl Episode {
    fn say_begun(room: &Room) {
        tracing::info!(
            first_level = %Bytes(room.merge.level0),
            next_level = %Bytes(room.merge.base),
            room = %Bytes(room.for_compactions()),
            "compactions find no room: tables are merged down a few at a time"
        );
    }

    /// Logs once what is missing.
    fn say_stuck(&mut self, room: &Room, least: Option<u64>, error: Option<&Error>) {
        if std::mem::replace(&mut self.said, true) {
            return;
        }
        let least = least.unwrap_or_else(|| room.merge.bytes());
        tracing::warn!(
            error = error.map(tracing::field::display),
            room = %Bytes(room.for_compactions()),
            missing = %Bytes(least.saturating_sub(room.for_compactions())),
            "not even a small compaction finds room: {WAY_OUT}"
        );
    }
}

impl Inner {
    /// Whether the first level of a family has enough tables to be merged, or the merge does not fit.
    fn is_merge_due(&self) -> bool {
        let level0 = properties::num_files_at_level(0);
        self.sum(&level0) >= MERGED_AT || self.largest_merge().1.lacks() > 0
    }

    /// The family with the largest next merge, and the room for it.
    pub(super) fn largest_merge(&self) -> (Option<Leveled>, Room) {
        let families = self.leveled().into_iter().filter_map(|family| {
            let merge = self.merge_of(&self.rocks().cf_handle(&family.name)?);
            Some((family, merge))
        });
        let largest = families.max_by_key(|(_, merge)| merge.bytes());
        let (family, merge) = largest.map_or((None, Level0Merge::default()), |(f, m)| (Some(f), m));
        (family, self.room().there(self.unflushed(), merge))
    }

    /// Makes RocksDB remove files of failed compactions: it skips them if a flush runs at the time, and may never look
    /// again.
    fn remove_leftovers(&self) {
        let rocks = self.rocks();
        if let Err(error) =
            rocks.disable_file_deletions().and_then(|()| rocks.enable_file_deletions())
        {
            tracing::debug!(%error, "RocksDB did not look for files to remove");
        }
    }

    /// Merges down a few tables of `family` that fit.
    fn step(&self, family: &Leveled, room: &Room) -> Outcome {
        let Some(handle) = self.rocks().cf_handle(&family.name) else {
            return Outcome::TooLarge(None);
        };
        let (tables, names) = self.tables(&handle, family.levels);
        let base = self.base_level(&handle);
        // Leaving a flush without room is worse than a wait, but better than taking no step.
        let step = steps::next(&tables, base, room.for_compactions())
            .or_else(|_| steps::next(&tables, base, room.for_compactions_at_need()));
        let step = match step {
            Ok(step) => step,
            Err(least) => return Outcome::TooLarge(least),
        };
        let inputs = step.tables.iter().map(|&(level, n)| &names[level][n][..]);
        let into = i32::try_from(step.into).unwrap_or(i32::MAX);
        let mut options = CompactionOptions::default();
        options.set_output_file_size_limit(self.room().sizes().table);
        options.set_allow_trivial_move(true);
        match self.rocks().compact_files_cf(&handle, &options, inputs, into) {
            Ok(_) => Outcome::Taken,
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Switches RocksDB's automatic compactions on or off, except for families that were opened without them. With them
    /// off, writers do not wait for the first level. An opening switches them on.
    pub(super) fn set_automatic(&self, automatic: bool) {
        let off = if automatic { "false" } else { "true" };
        for family in self.leveled().iter().filter(|family| family.automatic) {
            let Some(handle) = self.rocks().cf_handle(&family.name) else { continue };
            let set = self.rocks().set_options_cf(&handle, &[("disable_auto_compactions", off)]);
            if let Err(error) = set {
                // The option is in force. Only writing RocksDB's OPTIONS file failed, which an opening does not read.
                tracing::debug!(%error, family = family.name, "RocksDB did not save an option");
            }
        }
    }
}
