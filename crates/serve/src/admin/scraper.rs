//! `/metrics` within two seconds, whatever the stores do.
//!
//! Some figures take a lock of a store, RocksDB's mutex for one, which a store may hold while a volume hangs. So the page
//! is made beside the request, one page at a time, and a request that would wait too long gets the last one with its age.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The limit on the time of a request. Scrapers commonly give up after ten seconds, some after five.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Makes pages. However many requests there are, a hanging store occupies one thread.
pub(super) struct Scraper {
    answer_max: Duration,
    under_way: Arc<AtomicBool>,
    last: watch::Sender<Option<Page>>,
}

struct Page {
    text: String,
    began: Instant,
    made: Instant,
}

/// The page that is being made, until this is dropped.
struct UnderWay(Arc<AtomicBool>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Scraper {
    pub(super) fn new() -> Self {
        Self { answer_max: ANSWER_MAX, under_way: Arc::default(), last: watch::Sender::default() }
    }

    /// The page that `make` gives, or the last one if that takes too long, and its age. `None` if there is none yet.
    pub(super) async fn page(
        &self,
        make: impl Future<Output = String> + Send + 'static,
    ) -> Option<(String, Duration)> {
        // Before the check: a page that ends in between is seen.
        let mut last = self.last.subscribe();
        if !self.under_way.swap(true, Ordering::SeqCst) {
            let (under_way, last) = (UnderWay(Arc::clone(&self.under_way)), self.last.clone());
            tokio::spawn(async move {
                let began = Instant::now();
                let text = make.await;
                // First, so that a request that finds one under way waits for a page that is still to come.
                drop(under_way);
                let page = Page { text, began, made: Instant::now() };
                last.send_if_modified(|last| {
                    // The next one may have been made already.
                    let is_newer = last.as_ref().is_none_or(|last| last.began <= page.began);
                    if is_newer {
                        *last = Some(page);
                    }
                    is_newer
                });
            });
        }
        // The sender is here, so the wait ends with a page or with the limit.
        let _ = timeout(self.answer_max, last.changed()).await;
        let last = last.borrow();
        last.as_ref().map(|page| (page.text.clone(), page.made.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn a_page_that_takes_too_long_is_answered_with_the_last_one_and_made_once() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let scraper = Scraper { answer_max: Duration::from_millis(1), ..Scraper::new() };
            let (end, ended) = tokio::sync::oneshot::channel::<()>();
            let hangs = async move {
                ended.await.expect("it is told");
                "late".to_owned()
            };
            assert_eq!(scraper.page(hangs).await, None, "there is no page yet");
            for _ in 0..10 {
                assert_eq!(scraper.page(async { panic!("one is under way") }).await, None);
            }
            end.send(()).expect("the page is still being made");
            let mut last = scraper.last.subscribe();
            let late = last.wait_for(Option::is_some).await.expect("the sender is here");
            assert_eq!(late.as_ref().map(|page| &*page.text), Some("late"));
            drop(late);
            while scraper.page(ready("next".into())).await.is_none_or(|(text, _)| text != "next") {}
            let (text, before) = scraper.page(pending()).await.expect("the last one");
            assert_eq!(text, "next");
            let (text, after) = scraper.page(pending()).await.expect("the last one");
            assert!(text == "next" && after > before, "it becomes older");
        });
    }

    #[test]
    fn a_page_whose_making_panics_is_made_again() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let scraper = Scraper { answer_max: Duration::from_millis(1), ..Scraper::new() };
            assert_eq!(scraper.page(async { panic!("a figure that cannot be read") }).await, None);
            while scraper.page(ready("page".into())).await.is_none() {}
        });
    }
}
