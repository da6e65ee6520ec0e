//! A way out for a store whose next merge does not fit on its volumes.
//!
//! Users' writes are refused before that happens, but other programs take room too, volumes go away, and a
//! merge may grow while several run. RocksDB tries a compaction that found no room again and again, with
//! the same inputs; meanwhile the first level fills up, and writers wait, deletes among them. So its own
//! compactions are switched off, which ends those waits, and tables are merged down a few at a time, as
//! [`policy::steps`] chooses them, until the merge fits.

use std::time::Duration;

use policy::room::{Merge, Room};
use policy::steps;
use policy::units::Bytes;
use rust_rocksdb::{CompactionOptions, Error, properties};

use super::inner::Inner;
use super::levels::Leveled;
use super::room::WAY_OUT;
use super::stop::ThreadStop;

/// Tables of the first level at which RocksDB merges it.
const MERGED_AT: u64 = 4;

/// How often is looked whether RocksDB's own compactions have ended.
const ENDED_EVERY: Duration = Duration::from_millis(20);

/// The steps of one store.
#[derive(Default)]
pub(super) struct Steps {
    /// Failures of RocksDB's own work at the last look.
    failed: u64,
    episode: Option<Episode>,
}

/// From the moment that steps are needed until the merge fits.
#[derive(Default)]
struct Episode {
    taken: u64,
    /// That nothing fits was said.
    said: bool,
}

/// What became of one step.
enum Outcome {
    Taken,
    /// None fits: the least that one takes.
    TooLarge(Option<u64>),
    Failed(Error),
}

impl Steps {
    /// Takes steps where they are needed until they are not, nothing fits, or `stop` says so. Gives whether
    /// more are needed: RocksDB's own compactions are off then.
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
        // Those that run end by themselves, or find no room. They hold tables until then.
        while store.sum(properties::NUM_RUNNING_COMPACTIONS) > 0 {
            if !stop.wait(ENDED_EVERY) {
                return true;
            }
        }
        store.remove_leftovers();
        let Some(episode) = &mut self.episode else { return false };
        let begun = store.largest_merge();
        loop {
            let (family, room) = store.largest_merge();
            // One that fits and failed all the same lacks something that is not known here.
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

    /// Says once what is missing.
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

    /// The family whose next merge is the largest, and the room for it.
    fn largest_merge(&self) -> (Option<Leveled>, Room) {
        let families = self.leveled().into_iter().filter_map(|family| {
            let merge = self.merge_of(&self.rocks().cf_handle(&family.name)?);
            Some((family, merge))
        });
        let largest = families.max_by_key(|(_, merge)| merge.bytes());
        let (family, merge) = largest.map_or((None, Merge::default()), |(f, m)| (Some(f), m));
        (family, self.room().there(self.unflushed(), merge))
    }

    /// Makes RocksDB look for what failed compactions left behind: a flush that runs when one fails keeps it
    /// from removing that, and there may be no other occasion.
    fn remove_leftovers(&self) {
        let rocks = self.rocks();
        if let Err(error) =
            rocks.disable_file_deletions().and_then(|()| rocks.enable_file_deletions())
        {
            tracing::debug!(%error, "RocksDB did not look for files to remove");
        }
    }

    /// Merges a few tables of `family` down, those that fit.
    fn step(&self, family: &Leveled, room: &Room) -> Outcome {
        let Some(handle) = self.rocks().cf_handle(&family.name) else {
            return Outcome::TooLarge(None);
        };
        let (tables, names) = self.tables(&handle, family.levels);
        let base = self.base_level(&handle);
        // A flush that finds no room costs more than one that waits, but less than no step.
        let step = steps::next(&tables, base, room.for_compactions())
            .or_else(|_| steps::next(&tables, base, room.writable / 2));
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

    /// Lets RocksDB compact by itself, or not; families that were opened to be compacted by hand stay so.
    /// Writers do not wait for a first level that nothing makes smaller. An opening always lets it.
    pub(super) fn set_automatic(&self, automatic: bool) {
        let off = if automatic { "false" } else { "true" };
        for family in self.leveled().iter().filter(|family| family.automatic) {
            let Some(handle) = self.rocks().cf_handle(&family.name) else { continue };
            let set = self.rocks().set_options_cf(&handle, &[("disable_auto_compactions", off)]);
            if let Err(error) = set {
                // The option is in force. RocksDB could only not write its OPTIONS file, which an opening does not read.
                tracing::debug!(%error, family = family.name, "RocksDB did not note an option");
            }
        }
    }
}
