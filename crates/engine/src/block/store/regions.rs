//! The regions of a device that have a mark: writers under way, and what a crash left in doubt.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::time::Instant;

/// The regions that are not clean.
#[derive(Default)]
pub(super) struct Regions {
    all: Mutex<BTreeMap<u64, Region>>,
    /// The number of those in doubt, so that most calls take no lock for it.
    doubts: AtomicUsize,
}

struct Region {
    /// Writes under way.
    writers: u32,
    /// Changes at the begin and at the end of each write.
    epoch: u64,
    /// The end of the last write.
    written: Instant,
    /// What is in doubt, and the lock of who settles it.
    doubt: Option<(Doubt, Arc<AsyncMutex<()>>)>,
}

/// What is in doubt of a region: its copies may differ there, and checksums are not to be trusted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Doubt {
    /// All of it: the last process may have died during a write.
    pub(super) whole: bool,
    /// Blocks, by number in the region, whose writes failed or were given up.
    pub(super) blocks: Vec<Range<usize>>,
}

/// Writes of some regions under way; they end when this is dropped.
pub(super) struct Writing<'a> {
    regions: &'a Regions,
    range: Range<u64>,
    now: Instant,
}

impl Regions {
    /// Takes over what the marks say at the opening.
    pub(super) fn in_doubt(marked: Vec<u64>, now: Instant) -> Self {
        let doubts = AtomicUsize::new(marked.len());
        let whole = || Some((Doubt { whole: true, ..Doubt::default() }, Arc::default()));
        let region = || Region { writers: 0, epoch: 0, written: now, doubt: whole() };
        let all = marked.into_iter().map(|number| (number, region())).collect();
        Self { all: Mutex::new(all), doubts }
    }

    /// Begins a write of some regions: none of them is cleaned before it ends.
    pub(super) fn begin(&self, range: Range<u64>, now: Instant) -> Writing<'_> {
        let mut all = self.all.lock();
        for number in range.clone() {
            let fresh = || Region { writers: 0, epoch: 0, written: now, doubt: None };
            let region = all.entry(number).or_insert_with(fresh);
            region.writers += 1;
            region.epoch += 1;
        }
        Writing { regions: self, range, now }
    }

    /// The lock of a region in doubt; `None` if it is not.
    pub(super) fn doubt(&self, number: u64) -> Option<Arc<AsyncMutex<()>>> {
        self.look_at_doubt(number, |_, lock| Arc::clone(lock))
    }

    /// What is in doubt of a region; `None` if it is not.
    pub(super) fn what_is_in_doubt(&self, number: u64) -> Option<Doubt> {
        self.look_at_doubt(number, |doubt, _| doubt.clone())
    }

    fn look_at_doubt<T>(
        &self,
        number: u64,
        at: impl FnOnce(&Doubt, &Arc<AsyncMutex<()>>) -> T,
    ) -> Option<T> {
        if self.doubts.load(Ordering::Acquire) == 0 {
            return None;
        }
        let all = self.all.lock();
        all.get(&number)?.doubt.as_ref().map(|(doubt, lock)| at(doubt, lock))
    }

    /// A write of these blocks failed or was given up: their copies may differ, and they have no checksums.
    pub(super) fn set_doubt(&self, number: u64, blocks: Range<usize>, now: Instant) {
        let mut all = self.all.lock();
        let fresh = || Region { writers: 0, epoch: 0, written: now, doubt: None };
        let region = all.entry(number).or_insert_with(fresh);
        region.epoch += 1;
        if region.doubt.is_none() {
            self.doubts.fetch_add(1, Ordering::AcqRel);
        }
        region.doubt.get_or_insert_default().0.blocks.push(blocks);
    }

    /// The copies are equal where `settled` says, and what is known of its blocks is in memory. What came into doubt
    /// meanwhile still is.
    pub(super) fn settled(&self, number: u64, settled: &Doubt) {
        let mut all = self.all.lock();
        let Some(region) = all.get_mut(&number) else { return };
        let Some((doubt, _)) = &mut region.doubt else { return };
        doubt.whole &= !settled.whole;
        doubt.blocks.drain(..settled.blocks.len().min(doubt.blocks.len()));
        if *doubt == Doubt::default() {
            region.doubt = None;
            self.doubts.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The epoch of a region without writes under way. The region is unchanged while its epoch is.
    pub(super) fn idle(&self, number: u64) -> Option<u64> {
        let all = self.all.lock();
        all.get(&number).filter(|region| region.writers == 0).map(|region| region.epoch)
    }

    /// Makes a region clean and calls `clean`, unless it was written since [`Regions::idle`] gave `epoch`, or is in
    /// doubt.
    pub(super) fn clean(&self, number: u64, epoch: u64, clean: impl FnOnce()) -> bool {
        let mut all = self.all.lock();
        let unchanged = all.get(&number).is_some_and(|region| {
            region.writers == 0 && region.epoch == epoch && region.doubt.is_none()
        });
        if unchanged {
            all.remove(&number);
            clean();
        }
        unchanged
    }

    /// The regions to clean, least recently written first: at most `allowed` of those that were last written `after` ago or
    /// earlier, and in any case enough that `most` are left.
    pub(super) fn to_clean(
        &self,
        now: Instant,
        after: Duration,
        most: usize,
        allowed: usize,
    ) -> Vec<u64> {
        let all = self.all.lock();
        let idle = all.iter().filter(|(_, region)| region.writers == 0);
        let mut idle: Vec<_> = idle.map(|(&number, region)| (region.written, number)).collect();
        idle.sort_unstable();
        let cold = idle.partition_point(|&(written, _)| now.since(written) >= after);
        let beyond = all.len().saturating_sub(most);
        idle.truncate(cold.min(allowed).max(beyond));
        let mut chosen: Vec<_> = idle.into_iter().map(|(_, number)| number).collect();
        chosen.sort_unstable();
        chosen
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<u64> {
        self.all.lock().keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.all.lock().len()
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut all = self.regions.all.lock();
        for number in self.range.clone() {
            // It stays while a writer is under way.
            if let Some(region) = all.get_mut(&number) {
                region.writers -= 1;
                region.epoch += 1;
                region.written = region.written.max(self.now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn a_region_is_clean_only_if_nobody_wrote_meanwhile() {
        let regions = Regions::default();
        let writing = regions.begin(3..5, NOW);
        assert_eq!(regions.idle(3), None);
        drop(writing);
        let epoch = regions.idle(3).unwrap();
        drop(regions.begin(3..4, NOW));
        assert!(!regions.clean(3, epoch, || unreachable!("it was written")));
        let mut cleaned = false;
        assert!(regions.clean(3, regions.idle(3).unwrap(), || cleaned = true));
        assert!(cleaned && regions.idle(3).is_none() && regions.len() == 1);
    }

    #[test]
    fn a_region_in_doubt_is_not_cleaned_before_it_is_settled() {
        let regions = Regions::in_doubt(vec![1], NOW);
        assert!(regions.doubt(1).is_some() && regions.doubt(2).is_none());
        let epoch = regions.idle(1).unwrap();
        assert!(!regions.clean(1, epoch, || ()));
        let whole = regions.what_is_in_doubt(1).unwrap();
        assert!(whole.whole);
        regions.settled(1, &whole);
        assert!(regions.doubt(1).is_none());
        assert!(regions.clean(1, epoch, || ()));
    }

    /// The doubt of a write that failed while another one's was settled was forgotten.
    #[test]
    fn what_comes_into_doubt_while_others_are_settled_stays() {
        let regions = Regions::default();
        regions.set_doubt(1, 2..4, NOW);
        let first = regions.what_is_in_doubt(1).unwrap();
        regions.set_doubt(1, 7..8, NOW);
        regions.settled(1, &first);
        let left = regions.what_is_in_doubt(1).unwrap();
        assert_eq!(left, Doubt { whole: false, blocks: Vec::from_iter(Some(7..8)) });
        regions.settled(1, &left);
        assert_eq!(regions.what_is_in_doubt(1), None);
    }

    #[test]
    fn cold_regions_are_cleaned_and_the_coldest_beyond_a_number() {
        let regions = Regions::default();
        let second = |s| NOW + Duration::from_secs(s);
        for at in [5, 1, 9] {
            drop(regions.begin(at..at + 1, second(at)));
        }
        let after = Duration::from_secs(4);
        assert_eq!(regions.to_clean(second(9), after, 10, 9), [1, 5]);
        assert_eq!(regions.to_clean(second(4), after, 2, 0), [1]);
        assert!(regions.to_clean(second(4), after, 10, 9).is_empty());
        assert_eq!(regions.to_clean(second(9), after, 10, 1), [1], "it is the coldest");
        let _writing = regions.begin(1..2, second(9));
        assert_eq!(regions.to_clean(second(9), after, 10, 9), [5]);
    }
}
