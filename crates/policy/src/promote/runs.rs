use crate::units::KIB;

/// Runs that are remembered for each bucket of objects.
const WAYS: usize = 8;

/// Requests in flight arrive out of order: after a run has gone on twice, it may skip this many bytes, and goes on with
/// requests for skipped bytes.
const SLACK: u64 = 128 * KIB;
const PROVEN: u8 = 2;

/// A proven run is forgotten, rather than an unproven one, after this many other requests of its bucket.
const QUIET: u32 = 512;

/// Recognises sequential runs: requests of an object each of which begins where another one ended.
///
/// It remembers the ends of the latest eight runs of an object, or of a few objects with the same hash, in 32 bytes
/// each; requests that continue nothing begin runs, too, and are forgotten first.
#[derive(Debug)]
pub struct Runs {
    buckets: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    runs: [Run; WAYS],
    requests: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    object: u64,
    /// Where it goes on.
    end: u64,
    /// The number of its latest request in the bucket.
    at: u32,
    /// Bytes before `end` that were skipped and did not come yet; at most [`SLACK`].
    skipped: u32,
    /// The bytes of its requests, as far as they fit.
    bytes: u32,
    /// How often it went on: at most [`PROVEN`].
    steps: u8,
    is_used: bool,
}

impl Run {
    /// Whether the request skips few bytes, or is for such that were skipped.
    fn is_near(&self, offset: u64, len: u64) -> bool {
        if offset >= self.end {
            offset - self.end <= SLACK
        } else {
            self.end - offset <= SLACK && u64::from(self.skipped) >= len
        }
    }
}

impl Bucket {
    /// The run that a request continues; rather one that ends where it begins than one that it is near.
    fn find(&self, object: u64, offset: u64, len: u64) -> Option<usize> {
        let mut near = None;
        for (at, run) in self.runs.iter().enumerate() {
            if run.object != object || !run.is_used {
                continue;
            }
            if run.end == offset {
                return Some(at);
            }
            if near.is_none() && run.steps >= PROVEN && run.is_near(offset, len) {
                near = Some(at);
            }
        }
        near
    }
}

impl Runs {
    /// Remembers about `runs` runs.
    #[must_use]
    pub fn new(runs: usize) -> Self {
        Self { buckets: vec![Bucket::default(); runs.div_ceil(WAYS).max(1)] }
    }

    /// Notes a request of a user for `len` bytes of `object` from `offset` on. Returns whether it continues a run: then
    /// none of the units it touches count an access, as the first request of the run was counted.
    ///
    /// `object` is a hash of whatever offsets are counted in: for a device that is stored as many objects, the device.
    pub fn note(&mut self, object: u64, offset: u64, len: u64) -> bool {
        let place = self.bucket(object);
        let bucket = &mut self.buckets[place];
        bucket.requests = bucket.requests.wrapping_add(1);
        let now = bucket.requests;
        let end = offset.saturating_add(len);
        if let Some(found) = bucket.find(object, offset, len) {
            let run = &mut bucket.runs[found];
            if offset >= run.end {
                let skipped = u64::from(run.skipped) + (offset - run.end);
                run.skipped = skipped.min(SLACK) as u32;
            } else {
                run.skipped -= (len as u32).min(run.skipped);
            }
            run.end = run.end.max(end);
            run.bytes = run.bytes.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
            run.steps = (run.steps + 1).min(PROVEN);
            run.at = now;
            return true;
        }
        let worth = |run: &&mut Run| {
            let age = now.wrapping_sub(run.at);
            let is_going_on = run.steps >= PROVEN && age <= QUIET;
            // In one number, since this is done for most hits of a cache tier.
            u64::from(run.is_used) << 33 | u64::from(is_going_on) << 32 | u64::from(u32::MAX - age)
        };
        if let Some(least) = bucket.runs.iter_mut().min_by_key(worth) {
            let bytes = u32::try_from(len).unwrap_or(u32::MAX);
            *least = Run { object, end, at: now, skipped: 0, bytes, steps: 0, is_used: true };
        }
        false
    }

    /// The bytes of the run that a request would continue; 0 if it would begin one. Notes nothing.
    #[must_use]
    pub fn before(&self, object: u64, offset: u64, len: u64) -> u64 {
        let bucket = &self.buckets[self.bucket(object)];
        bucket.find(object, offset, len).map_or(0, |found| bucket.runs[found].bytes.into())
    }

    fn bucket(&self, object: u64) -> usize {
        let mixed = object.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * self.buckets.len() as u128) >> 64) as usize
    }
}
