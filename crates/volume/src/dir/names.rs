//! Which names a directory will still have after a crash.

use std::ops::RangeInclusive;

use parking_lot::Mutex;
use rustix::io::{self, Errno};

/// Which changes of the directory are durable. Changes are numbered from 1. A sync of the directory
/// covers all changes up to the latest at its start.
///
/// A number is drawn after the change was made, so a sync that begins later includes it.
#[derive(Default)]
pub(super) struct Names {
    changes: Mutex<Changes>,
    /// One sync at a time: the kernel reports a failure to one of concurrent syncs only.
    syncing: Mutex<()>,
}

#[derive(Default)]
struct Changes {
    latest: u64,
    removed: u64,
    synced: u64,
    /// The changes that failed syncs should have made durable, one range for each time between two syncs that succeeded.
    lost: Vec<RangeInclusive<u64>>,
}

impl Names {
    /// Numbers the creation of an object.
    pub(super) fn created(&self) -> u64 {
        self.changes.lock().change()
    }

    /// Numbers the removal of an object.
    pub(super) fn removed(&self) {
        let mut changes = self.changes.lock();
        changes.removed = changes.change();
    }

    /// The latest change so far.
    pub(super) fn latest(&self) -> u64 {
        self.changes.lock().latest
    }

    /// Makes durable what a sync of an object born at `born` promises: its name, and every earlier
    /// removal. Calls `sync_directory` if that is needed.
    pub(super) fn settle(
        &self,
        born: u64,
        sync_directory: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if self.changes.lock().are_settled(born)? {
            return Ok(());
        }
        let _alone = self.syncing.lock();
        let latest = {
            let changes = self.changes.lock();
            if changes.are_settled(born)? {
                return Ok(());
            }
            changes.latest
        };
        let synced = sync_directory();
        let mut changes = self.changes.lock();
        match synced {
            Ok(()) => changes.synced = latest,
            Err(_) => changes.lose(latest),
        }
        synced
    }
}

impl Changes {
    fn change(&mut self) -> u64 {
        self.latest += 1;
        self.latest
    }

    fn are_settled(&self, born: u64) -> io::Result<bool> {
        if self.lost.iter().any(|lost| lost.contains(&born)) {
            return Err(Errno::IO);
        }
        Ok(born.max(self.removed) <= self.synced)
    }

    /// Records a failed sync: a later sync that succeeds does not cover these changes.
    fn lose(&mut self, latest: u64) {
        let first = self.synced + 1;
        match self.lost.last_mut() {
            Some(last) if *last.start() == first => *last = first..=latest,
            _ => self.lost.push(first..=latest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settles; says whether it synced the directory.
    fn settle(names: &Names, born: u64) -> bool {
        let mut synced = false;
        let settled = names.settle(born, || {
            synced = true;
            Ok(())
        });
        assert_eq!(settled, Ok(()));
        synced
    }

    #[test]
    fn one_directory_sync_covers_all_names_before_it() {
        let names = Names::default();
        let (a, b) = (names.created(), names.created());
        assert!(settle(&names, a));
        assert!(!settle(&names, b));
    }

    #[test]
    fn a_name_made_during_a_directory_sync_needs_the_next() {
        let names = Names::default();
        let mut late = 0;
        let early = names.created();
        assert_eq!(
            names.settle(early, || {
                late = names.created();
                Ok(())
            }),
            Ok(())
        );
        assert!(settle(&names, late));
    }

    #[test]
    fn the_next_sync_of_any_object_makes_a_removal_durable() {
        let names = Names::default();
        let old = names.created();
        assert!(settle(&names, old));
        names.removed();
        assert!(settle(&names, old));
        assert!(!settle(&names, old));
    }

    #[test]
    fn a_name_whose_directory_sync_failed_is_lost_and_others_are_not() {
        let names = Names::default();
        let old = names.created();
        assert!(settle(&names, old));
        let lost = names.created();
        assert_eq!(names.settle(lost, || Err(Errno::IO)), Err(Errno::IO));
        let later = names.created();
        assert!(settle(&names, later));
        assert_eq!(names.settle(lost, || Ok(())), Err(Errno::IO), "a later success hides nothing");
        assert!(!settle(&names, old));
    }
    /// A second failed sync once poisoned the names that a sync between the two had made durable.
    #[test]
    fn a_second_failure_loses_only_what_was_made_since_the_last_sync() {
        let names = Names::default();
        let fail = |born| names.settle(born, || Err(Errno::IO));
        let first = names.created();
        assert_eq!(fail(first), Err(Errno::IO));
        let between = names.created();
        assert!(settle(&names, between));
        let second = names.created();
        assert_eq!(fail(second), Err(Errno::IO));
        let third = names.created();
        assert_eq!(fail(third), Err(Errno::IO));
        assert!(settle(&names, names.created()));
        assert!(!settle(&names, between));
        for lost in [first, second, third] {
            assert_eq!(names.settle(lost, || Ok(())), Err(Errno::IO));
        }
    }
}
