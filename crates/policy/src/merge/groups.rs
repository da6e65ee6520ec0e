//! The open file that a record goes to: records that die together are stored together (PSTA 8(3), 2017).
//!
//! If the records of a file live equally long, it dies from front to back while the next one is filled, and is soon
//! dead as a whole. Otherwise its dead room stays unusable until its last record dies, or it has to be copied. So each
//! [`Group`] takes the records of a range of lifetimes. The cost and the gain of a group are in bytes: with f the part
//! of all puts that goes to it, s the standard deviation of its lifetimes, n partitions and files of R bytes,
//!
//! ```text
//!   room that is dead and not free = sum over the groups of  f · √3 · s  +  n · R/2
//! ```
//!
//! because lifetimes spread evenly over ±√3·s, and the oldest file of each group and partition is half dead. The ranges
//! are cut where that sum is least, judging by recent puts. Without any knowledge, one group is best.
//!
//! A record's lifetime is known where a series gives it: a slot is written again after its retention. Otherwise it is
//! guessed: a record that replaces a short-lived one is short-lived, and one that has survived long goes on to (the
//! idea of SepBIT, FAST'22). Guesses are verified: a few keys are followed until they die, and s is that of their true
//! lifetimes. If keys are overwritten at random, s is the same in each range, no cut pays, and all records share one
//! group. Where s is nearly 0, as with slots that are overwritten in turn without a declared retention, a guess counts
//! as certain.
//!
//! A guess about a file's death is tested in the same way. It counts only if records live longer in one range than in
//! another by a quarter plus the margin of chance. Otherwise files get no guess and are merged as by
//! [`super::Rule::Greedy`]. The mean lifetime is the sum of all observed lifetimes, those of living records included,
//! divided by the number of deaths. A mean over dead records alone is too short while a store is young, and files of
//! that time would be spared for ever.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Death, Written};

/// One of the files that are open at once in a partition.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Group(pub u8);

/// The known facts about the lifetime of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Life {
    /// It dies at this time: its slot is written again, or its retention ends.
    Until(Written),
    /// It replaces a record that was put at this time.
    Replaces(Written),
    /// It is the first of its key.
    First,
}

/// The place of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placed {
    /// Its open file.
    pub group: Group,
    /// Its death.
    pub death: Death,
}

/// Bins of lifetimes: quarters of a power of two.
const BINS_PER_DOUBLING: u32 = 4;
const BINS: usize = (64 * BINS_PER_DOUBLING) as usize;
/// A group by guesses must save this part of the room that is lost without groups, divided by the square root of the
/// number of lifetimes seen. Otherwise chance would cut: some range always looks better than the rest.
const CHANCE: f64 = 2.5;
/// Ranges are cut anew at most this many times while half of the past is forgotten, and at most once for each file: a
/// cut takes up to a millisecond.
const PLANS: u64 = 256;
/// The most keys followed at once.
const FOLLOWED_MAX: usize = 4096;
/// Lifetimes to see before guesses form groups.
const SEEN_MIN: f64 = 256.0;
/// Guesses count only if one range lives longer than another by this factor, plus this many standard errors.
const APART: f64 = 1.25;
const APART_ERRORS: f64 = 3.0;
/// Guesses count as certain if their standard deviation is at most 1/64 of the mean lifetime. The assumed lifetime is
/// then three deviations above the mean, which about one in a hundred exceeds.
const STEADY: f64 = 1.0 / 64.0;
const STEADY_MARGIN: f64 = 3.0;

/// The groups of a store's records.
#[derive(Clone, Debug)]
pub struct Groups {
    max: u8,
    /// The cost of an open file in each group: n · R/2.
    overhead: f64,
    file_bytes: u64,
    /// Bytes put until half of the past is forgotten.
    memory: u64,
    known: Ranges,
    guessed: Ranges,
    /// For records that a merge copies and whose death is unknown: they have files of their own.
    survived: Ranges,
    /// What to say about a record whose guess is not certain.
    verdict: Verdict,
    planned: Written,
    put: Followed,
    copied: Followed,
}

/// The value of guesses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Verdict {
    /// None: all records seem to live equally long, and for how long is unknown.
    #[default]
    Nothing,
    /// Unlike records with a known death, all others live this long on average.
    Alike(u64),
    /// Ranges differ.
    Apart,
}

impl Groups {
    /// Up to `max` groups for a volume of `capacity` bytes, divided into `partitions` with files of `file_bytes`. With
    /// one group records are not separated.
    ///
    /// # Panics
    /// When `max` is 0.
    #[must_use]
    pub fn new(max: u8, partitions: u32, file_bytes: u64, capacity: u64) -> Self {
        assert!(max > 0, "a record has to go somewhere");
        Self {
            max,
            overhead: f64::from(partitions) * file_bytes as f64 / 2.0,
            file_bytes,
            memory: capacity.max(1),
            known: Ranges::new(),
            guessed: Ranges::new(),
            survived: Ranges::new(),
            verdict: Verdict::default(),
            planned: Written::default(),
            put: Followed::default(),
            copied: Followed::default(),
        }
    }

    /// The place of a record that is put. `key` is a hash of its key, `len` its length in bytes.
    pub fn put(&mut self, key: u64, life: Life, len: u64, now: Written) -> Placed {
        self.died(key, now);
        self.plan(now);
        let lifetime = match life {
            Life::Until(dies) => return self.until(dies, len, now),
            Life::Replaces(since) => now.since(since),
            Life::First => u64::MAX,
        };
        let bin = bin(lifetime);
        self.put.follow(key, now, bin);
        self.guessed.place_down(bin, self.max, self.verdict, now)
    }

    /// The place of a record that a merge copies. It was put at `since`, and dies at `dies` if that is known.
    pub fn copy(
        &mut self,
        key: u64,
        dies: Option<Written>,
        since: Written,
        len: u64,
        now: Written,
    ) -> Placed {
        if let Some(dies) = dies {
            return self.until(dies, len, now);
        }
        let bin = bin(now.since(since));
        self.copied.follow(key, now, bin);
        self.survived.place_down(bin, self.max, self.verdict, now)
    }

    /// The record of a key died without being replaced.
    pub fn deleted(&mut self, key: u64, now: Written) {
        self.died(key, now);
    }

    /// The number of groups in use for puts.
    #[must_use]
    pub fn count(&self) -> usize {
        (self.known.len() + self.guessed.len()).clamp(1, self.max.into())
    }

    /// Whether records may still go to a group. The open file of any other group should be sealed.
    #[must_use]
    pub fn is_open(&self, group: Group) -> bool {
        let up = usize::from(group.0);
        let down = usize::from((self.max - 1).saturating_sub(group.0));
        // At least one group of each kind stays open, because any record may come.
        up <= self.known.cuts.len() || down <= self.guessed.cuts.len().max(self.survived.cuts.len())
    }

    fn until(&mut self, dies: Written, len: u64, now: Written) -> Placed {
        let lifetime = dies.since(now);
        let bin = bin(lifetime);
        self.known.see(bin, lifetime as f64, len as f64);
        Placed { group: Group(self.known.range(bin) as u8), death: Death::At(dies) }
    }

    fn died(&mut self, key: u64, now: Written) {
        if let Some((lifetime, bin)) = self.put.died(key, now) {
            self.guessed.see(bin, lifetime as f64, 1.0);
        }
        if let Some((lifetime, bin)) = self.copied.died(key, now) {
            self.survived.see(bin, lifetime as f64, 1.0);
        }
    }

    /// Cuts the ranges anew, once for each file's worth of puts, or for each `1 / PLANS` of the memory.
    fn plan(&mut self, now: Written) {
        let put = now.since(self.planned);
        if put < self.file_bytes.max(self.memory / PLANS) {
            return;
        }
        self.planned = now;
        let kept = 0.5f64.powf(put as f64 / self.memory as f64);
        // One group is left for unknown lifetimes, and one for known ones.
        let max = usize::from(self.max);
        self.known.plan(max.saturating_sub(1).max(1), self.overhead, 0.0, kept);
        let left = max.saturating_sub(self.known.len().max(1)).max(1);
        let guesses = [(&mut self.guessed, &self.put), (&mut self.survived, &self.copied)];
        for (guesses, followed) in guesses {
            guesses.live_on(followed, put);
            guesses.plan(left, self.overhead, CHANCE, kept);
        }
        self.verdict = self.judge();
    }

    fn judge(&self) -> Verdict {
        let lives: Vec<Lives> =
            self.guessed.lives.iter().chain(&self.survived.lives).copied().collect();
        if Lives::differ(&lives) {
            return Verdict::Apart;
        }
        let deaths: f64 = lives.iter().map(|lives| lives.weight).sum();
        if self.known.len() == 0 || deaths == 0.0 {
            return Verdict::Nothing;
        }
        let lived: f64 = lives.iter().map(|lives| lives.weight * lives.mean as f64).sum();
        Verdict::Alike((lived / deaths) as u64)
    }
}

/// The bin of a lifetime.
fn bin(lifetime: u64) -> usize {
    let lifetime = lifetime.max(1);
    let doubling = lifetime.ilog2();
    // The two bits after the leading one.
    let quarter = if doubling >= 2 { lifetime >> (doubling - 2) & 3 } else { 0 };
    (doubling * BINS_PER_DOUBLING) as usize + quarter as usize
}

/// A sample of records, from the guess of their lifetime until they die.
#[derive(Clone, Debug)]
struct Followed {
    /// By the hash of the key: the time of the guess, and its bin.
    records: HashMap<u64, (Written, usize)>,
    /// Keys whose hash has one of these bits are not followed.
    mask: u64,
    /// The number of records in each bin.
    alive: Vec<u32>,
}

impl Followed {
    /// Follows a record, unless its key is followed already: a second copy is the same record.
    fn follow(&mut self, key: u64, now: Written, bin: usize) {
        if key & self.mask != 0 {
            return;
        }
        if let Entry::Vacant(entry) = self.records.entry(key) {
            entry.insert((now, bin));
            self.alive[bin] += 1;
        }
        if self.records.len() > FOLLOWED_MAX {
            self.mask = self.mask << 1 | 1;
            let (mask, alive) = (self.mask, &mut self.alive);
            self.records.retain(|key, (_, bin)| {
                let stays = key & mask == 0;
                alive[*bin] -= u32::from(!stays);
                stays
            });
        }
    }

    /// The lifetime of a record since its guess, and the bin of the guess, if it was followed.
    fn died(&mut self, key: u64, now: Written) -> Option<(u64, usize)> {
        if key & self.mask != 0 {
            return None;
        }
        let (since, bin) = self.records.remove(&key)?;
        self.alive[bin] -= 1;
        Some((now.since(since), bin))
    }
}

impl Default for Followed {
    fn default() -> Self {
        Self { records: HashMap::new(), mask: 0, alive: vec![0; BINS] }
    }
}

/// Lifetimes seen, by what was known or guessed of them, and their division into ranges.
#[derive(Clone, Debug)]
struct Ranges {
    bins: Vec<Moments>,
    /// The first bin of each range after the first.
    cuts: Vec<usize>,
    /// The lifetimes in each range; empty until enough were seen.
    lives: Vec<Lives>,
}

/// The lifetimes of the records of a range.
#[derive(Clone, Copy, Debug)]
struct Lives {
    mean: u64,
    /// The number of deaths behind the mean.
    weight: f64,
    /// The longest lifetime, if all live about equally long.
    steady: Option<u64>,
}

impl Lives {
    /// Whether some of these live longer than others, by more than chance.
    fn differ(all: &[Self]) -> bool {
        let longer = |a: &Self, b: &Self| {
            let errors = APART_ERRORS * (1.0 / a.weight + 1.0 / b.weight).sqrt();
            a.mean as f64 > (APART + errors) * b.mean as f64
        };
        all.iter().any(|a| all.iter().any(|b| longer(a, b)))
    }

    fn of(moments: Moments) -> Self {
        let (mean, deviation) = (moments.mean(), moments.deviation());
        let is_steady = moments.weight >= SEEN_MIN && deviation <= STEADY * mean;
        let most = mean + STEADY_MARGIN * deviation;
        Self {
            mean: moments.lived_for() as u64,
            weight: moments.weight,
            steady: is_steady.then_some(most.ceil() as u64),
        }
    }
}

/// Sums over lifetimes.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    weight: f64,
    sum: f64,
    squares: f64,
    /// The observed lifetimes in sum, including those of living records.
    lived: f64,
}

impl Moments {
    fn minus(self, other: Self) -> Self {
        Self {
            weight: self.weight - other.weight,
            sum: self.sum - other.sum,
            squares: self.squares - other.squares,
            lived: self.lived - other.lived,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            weight: self.weight + other.weight,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
            lived: self.lived + other.lived,
        }
    }

    /// Whether it has any data: a death, or an observed life.
    fn is_seen(self) -> bool {
        self.weight > 0.0 || self.lived >= 1.0
    }

    fn mean(self) -> f64 {
        self.sum / self.weight
    }

    /// The observed lifetimes for each death.
    fn lived_for(self) -> f64 {
        self.lived / self.weight
    }

    fn deviation(self) -> f64 {
        (self.squares / self.weight - self.mean().powi(2)).max(0.0).sqrt()
    }

    /// The weight times √3 standard deviations.
    fn spread(self) -> f64 {
        if self.weight <= 0.0 { 0.0 } else { self.weight * 3f64.sqrt() * self.deviation() }
    }
}

impl Ranges {
    fn new() -> Self {
        Self { bins: vec![Moments::default(); BINS], cuts: Vec::new(), lives: Vec::new() }
    }

    fn len(&self) -> usize {
        if self.seen() > 0.0 { self.cuts.len() + 1 } else { 0 }
    }

    fn seen(&self) -> f64 {
        self.bins.iter().map(|moments| moments.weight).sum()
    }

    fn see(&mut self, bin: usize, lifetime: f64, weight: f64) {
        let moments = &mut self.bins[bin];
        moments.weight += weight;
        moments.sum += weight * lifetime;
        moments.squares += weight * lifetime * lifetime;
    }

    /// The index of the range of a bin.
    fn range(&self, bin: usize) -> usize {
        self.cuts.partition_point(|&cut| cut <= bin)
    }

    /// The group of a bin, counted down from `max`, and the death that its lifetimes suggest.
    fn place_down(&self, bin: usize, max: u8, verdict: Verdict, now: Written) -> Placed {
        let range = self.range(bin);
        let death = self.lives.get(range).map_or(Death::Unknown, |lives| match lives.steady {
            Some(most) => Death::At(now.plus(most)),
            None => match verdict {
                Verdict::Nothing => Death::Unknown,
                Verdict::Alike(mean) => Death::After(mean),
                Verdict::Apart => Death::After(lives.mean),
            },
        });
        Placed { group: Group(max - 1 - range as u8), death }
    }

    /// Adds `put` bytes to the observed lives of all followed records.
    fn live_on(&mut self, followed: &Followed, put: u64) {
        for (moments, &alive) in self.bins.iter_mut().zip(&followed.alive) {
            moments.lived += f64::from(alive) * put as f64;
        }
    }

    /// Cuts into at most `max` ranges so that the least room is lost, and then keeps the part `kept` of the past. With
    /// `chance`, the data are samples.
    fn plan(&mut self, max: usize, overhead: f64, chance: f64, kept: f64) {
        // Sums over all bins before each bin that is not empty, and the indexes of those.
        let mut before = vec![Moments::default()];
        let mut first = Vec::new();
        for (bin, moments) in self.bins.iter().enumerate().filter(|(_, m)| m.is_seen()) {
            before.push(before[first.len()].plus(*moments));
            first.push(bin);
        }
        let all = before[first.len()];
        self.cuts.clear();
        self.lives.clear();
        if all.weight > 0.0 && (chance == 0.0 || all.weight >= SEEN_MIN) {
            let fixed = (overhead * all.weight).max(all.spread() * chance / all.weight.sqrt());
            let cuts = cuts(&before, max, fixed);
            let begins = std::iter::once(0).chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain([first.len()]);
            let lives = begins.zip(ends).map(|(begin, end)| before[end].minus(before[begin]));
            self.lives = lives.map(Lives::of).collect();
            self.cuts = cuts.into_iter().map(|at| first[at]).collect();
            // While a store is young, records followed for long live long. That alone makes no groups.
            let is_steady = self.lives.iter().any(|lives| lives.steady.is_some());
            if chance > 0.0 && !is_steady && !Lives::differ(&self.lives) {
                self.cuts.clear();
                self.lives = vec![Lives::of(all)];
            }
        }
        for moments in &mut self.bins {
            moments.weight *= kept;
            moments.sum *= kept;
            moments.squares *= kept;
            moments.lived *= kept;
            // Long forgotten.
            if moments.weight < 1e-3 {
                *moments = Moments { lived: moments.lived, ..Moments::default() };
            }
        }
    }
}

/// The cheapest way to cut a row into at most `max` runs, where each costs its spread plus `fixed`: the beginnings of
/// the second and all later runs. `before[i]` sums the first i entries.
fn cuts(before: &[Moments], max: usize, fixed: f64) -> Vec<usize> {
    let count = before.len() - 1;
    // For each number of runs: the least cost of the first i entries, and where the last run begins.
    let mut prices = vec![f64::INFINITY; count + 1];
    prices[0] = 0.0;
    let mut rounds: Vec<(f64, Vec<usize>)> = Vec::new();
    for _ in 0..max.min(count) {
        let mut next = vec![f64::INFINITY; count + 1];
        let mut begins = vec![0; count + 1];
        for end in 1..=count {
            for begin in 0..end {
                let price = prices[begin] + before[end].minus(before[begin]).spread() + fixed;
                if price < next[end] {
                    (next[end], begins[end]) = (price, begin);
                }
            }
        }
        rounds.push((next[count], begins));
        prices = next;
    }
    let prices = rounds.iter().map(|(price, _)| *price);
    let Some((best, _)) = prices.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Vec::new();
    };
    let mut cuts = Vec::new();
    let mut end = count;
    for (_, begins) in rounds[..=best].iter().rev() {
        end = begins[end];
        cuts.push(end);
    }
    cuts.pop();
    cuts.reverse();
    cuts
}
