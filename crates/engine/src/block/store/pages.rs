//! The checksums of regions in memory, up to a limit.
//!
//! A page is *loaded* from its slot when it is first needed, and *changed* when it knows more than the slot. A page that is
//! loaded, not changed and not in use by a call can be evicted; pages that were used lately are evicted last.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;

use super::shape::BLOCKS;
use super::sums::{Known, Sums};

/// The memory of a page, in bytes.
pub(super) const PAGE_BYTES: u64 = 4 * BLOCKS as u64 + 128;

/// The least number of pages that are kept.
const PAGES_MIN: usize = 8;

/// One extent, from its creation or the store's opening to its removal or the store's end. Another extent in its place is
/// another incarnation, so a late call cannot take the checksums of one for those of the other.
pub(super) type Incarnation = u64;

/// A page: of which extent, and of which of its regions.
type Key = (Incarnation, u64);

/// The pages in memory.
pub(super) struct Pages {
    max: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    pages: HashMap<Key, Arc<Page>>,
    /// Candidates to go, the next one first. Keys of pages that are gone are skipped.
    queue: VecDeque<Key>,
}

/// The checksums of a region.
pub(super) struct Page {
    /// `None` until they are loaded.
    sums: Mutex<Option<Sums>>,
    /// Locked while the page is read or written.
    pub(super) io: AsyncMutex<()>,
    changed: AtomicBool,
    used: AtomicBool,
}

impl Pages {
    /// Room for `bytes` of pages, and for [`PAGES_MIN`] pages at least.
    pub(super) fn new(bytes: u64) -> Self {
        let max = usize::try_from(bytes / PAGE_BYTES).unwrap_or(usize::MAX);
        Self { max: max.max(PAGES_MIN), held: Mutex::default() }
    }

    /// The page of a region, which may not be loaded yet.
    pub(super) fn get(&self, key: Key) -> Arc<Page> {
        let mut held = self.held.lock();
        if let Some(page) = held.pages.get(&key) {
            page.used.store(true, Ordering::Relaxed);
            return Arc::clone(page);
        }
        if held.pages.len() >= self.max {
            held.drop_one();
        }
        let page = Arc::new(Page {
            sums: Mutex::new(None),
            io: AsyncMutex::new(()),
            changed: AtomicBool::new(false),
            used: AtomicBool::new(false),
        });
        held.pages.insert(key, Arc::clone(&page));
        held.queue.push_back(key);
        page
    }

    /// The page of a region, if it is in memory.
    pub(super) fn find(&self, key: Key) -> Option<Arc<Page>> {
        self.held.lock().pages.get(&key).cloned()
    }

    /// Forgets the pages of an extent that is gone.
    pub(super) fn forget(&self, incarnation: Incarnation, regions: u64) {
        let mut held = self.held.lock();
        for region in 0..regions {
            held.pages.remove(&(incarnation, region));
        }
    }

    /// Whether changed pages keep others out: some have to be written.
    pub(super) fn is_crowded(&self) -> bool {
        self.held.lock().pages.len() > self.max
    }

    /// The memory of the pages, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.held.lock().pages.len() as u64 * PAGE_BYTES
    }
}

impl Held {
    /// Drops a page, if one can go.
    fn drop_one(&mut self) {
        // Twice: the first time around takes the mark of use away.
        for _ in 0..2 * self.queue.len() {
            let Some(key) = self.queue.pop_front() else { return };
            let Some(page) = self.pages.get(&key) else { continue };
            let is_free = Arc::strong_count(page) == 1 && !page.is_changed();
            if is_free && !page.used.swap(false, Ordering::Relaxed) {
                self.pages.remove(&key);
                return;
            }
            self.queue.push_back(key);
        }
    }
}

impl Page {
    pub(super) fn is_loaded(&self) -> bool {
        self.sums.lock().is_some()
    }

    pub(super) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// What the slot says, unless more is known already.
    pub(super) fn load(&self, sums: Sums) {
        self.sums.lock().get_or_insert(sums);
    }

    /// What is known instead of what the slot says.
    pub(super) fn replace(&self, sums: Sums) {
        let mut held = self.sums.lock();
        *held = Some(sums);
        self.changed.store(true, Ordering::Release);
    }

    /// Looks at the checksums; `None` if they are not loaded.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Sums) -> T) -> Option<T> {
        self.sums.lock().as_ref().map(at)
    }

    /// Changes the checksums; false if they are not loaded.
    pub(super) fn change(&self, how: impl FnOnce(&mut Sums)) -> bool {
        let mut held = self.sums.lock();
        let Some(sums) = held.as_mut() else { return false };
        how(sums);
        self.changed.store(true, Ordering::Release);
        true
    }

    /// What the slot will say, if the page has changed: as if it were written. The caller has locked `io`.
    pub(super) fn take_changed<T>(&self, encode: impl FnOnce(&Sums) -> T) -> Option<T> {
        let held = self.sums.lock();
        let sums = held.as_ref()?;
        self.changed.swap(false, Ordering::AcqRel).then(|| encode(sums))
    }

    /// It was not written after all.
    pub(super) fn set_changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// Makes blocks unverified; false if the checksums are not loaded.
    pub(super) fn doubt(&self, blocks: Range<usize>) -> bool {
        self.change(|sums| blocks.for_each(|block| sums.set(block, Known::Unverified)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_pages_go_first_and_changed_ones_stay() {
        let pages = Pages::new(0);
        let last = PAGES_MIN as u64;
        let of = |region| (region / 4, region % 4);
        for region in 0..last {
            pages.get(of(region)).load(Sums::all(Known::Zeros));
        }
        pages.get(of(0)).doubt(0..1);
        for region in 2..last {
            pages.get(of(region));
        }
        pages.get(of(last));
        assert!(pages.find(of(1)).is_none(), "it was the only one unused since");
        assert!(pages.find(of(0)).is_some_and(|page| page.is_changed()));
        assert!(!pages.is_crowded());
    }

    #[test]
    fn pages_in_use_make_it_crowded() {
        let pages = Pages::new(0);
        let all: Vec<_> = (0..=PAGES_MIN as u64).map(|region| pages.get((0, region))).collect();
        assert!(pages.is_crowded());
        drop(all);
    }

    /// A reader's load that ended after a settlement brought back checksums that were no longer true.
    #[test]
    fn a_slot_does_not_replace_what_is_known() {
        let pages = Pages::new(0);
        let page = pages.get((0, 0));
        page.replace(Sums::all(Known::Unverified));
        page.load(Sums::all(Known::Zeros));
        assert_eq!(page.look(|sums| sums.get(0)), Some(Known::Unverified));
    }

    #[test]
    fn a_change_while_the_page_is_written_keeps_it_changed() {
        let pages = Pages::new(0);
        let page = pages.get((0, 0));
        assert!(!page.doubt(0..1), "it is not loaded");
        page.load(Sums::all(Known::Zeros));
        assert!(page.take_changed(|_| ()).is_none());
        assert!(page.doubt(0..1));
        assert!(page.take_changed(|_| ()).is_some());
        page.doubt(1..2);
        assert!(page.is_changed());
    }
}
