//! What the last probe of a volume found: whether it works, which tells a device that cannot read or write some bytes from one
//! that is gone, since both answer with the same errors.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long the result of a probe counts. Each probe writes and syncs, so reads of a bad sector must not probe each
/// time. If the volume goes away within this time, reads that fail until its end count as damage.
const HOLDS: Duration = Duration::from_secs(1);

/// What the last probe found: whether the volume works.
#[derive(Default)]
pub(super) struct Verdict(Mutex<Option<(Instant, bool)>>);

impl Verdict {
    /// What the last probe found if it is recent, else what `probe` finds. One probe runs at a time: callers that come
    /// meanwhile wait for its result.
    pub(super) fn ask(&self, now: impl Fn() -> Instant, probe: impl FnOnce() -> bool) -> bool {
        let mut last = self.0.lock();
        if let Some((at, found)) = *last
            && now().saturating_duration_since(at) < HOLDS
        {
            return found;
        }
        let found = probe();
        *last = Some((now(), found));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_calls_share_a_probe_until_its_result_is_old() {
        let verdict = Verdict::default();
        let start = Instant::now();
        let ask = |after: Duration, finds: bool| {
            let mut probed = false;
            let works = verdict.ask(
                || start + after,
                || {
                    probed = true;
                    finds
                },
            );
            (works, probed)
        };
        assert_eq!(ask(Duration::ZERO, true), (true, true));
        assert_eq!(ask(HOLDS / 2, false), (true, false));
        assert_eq!(ask(HOLDS, false), (false, true));
        assert_eq!(ask(HOLDS + HOLDS / 2, true), (false, false));
        assert_eq!(ask(HOLDS * 2, true), (true, true));
    }
}
