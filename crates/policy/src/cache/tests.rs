use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

mod arc;
mod auto;

/// A cache of entries of one byte each, with keys but no values.
struct Cache {
    policy: Box<dyn Eviction>,
    room: usize,
    slots: HashMap<u64, Slot>,
    keys: HashMap<Slot, u64>,
    free: Vec<Slot>,
}

impl Cache {
    fn new(kind: Kind, room: usize) -> Self {
        let free = (0..=room as Slot).rev().collect();
        let (slots, keys) = Default::default();
        Self { policy: kind.policy(), room, slots, keys, free }
    }

    /// Whether the key was there, and the key evicted for it.
    fn ask(&mut self, key: u64) -> (bool, Option<u64>) {
        if let Some(&slot) = self.slots.get(&key) {
            self.policy.hit(slot);
            return (true, None);
        }
        self.policy.missed(key);
        let gone = (self.slots.len() == self.room).then(|| {
            let slot = self.policy.evict().expect("a full cache has entries");
            let gone = self.keys.remove(&slot).expect("only what is there goes");
            self.slots.remove(&gone);
            self.free.push(slot);
            gone
        });
        let slot = self.free.pop().expect("there is room");
        self.policy.insert(slot, key, 1);
        self.slots.insert(key, slot);
        self.keys.insert(slot, key);
        (false, gone)
    }

    fn remove(&mut self, key: u64) {
        if let Some(slot) = self.slots.remove(&key) {
            self.keys.remove(&slot);
            self.policy.remove(slot);
            self.free.push(slot);
        }
    }
}

/// The policies as in their papers: slow and obviously right.
#[derive(Default)]
struct Naive {
    room: usize,
    kind: Option<Kind>,
    /// Keys with their hits, newest first. For S3-FIFO and Clock2Q+, the main queue.
    queue: VecDeque<(u64, u8)>,
    small: VecDeque<(u64, u8)>,
    ghosts: VecDeque<u64>,
    hand: Option<u64>,
}

impl Naive {
    fn ask(&mut self, key: u64) -> (bool, Option<u64>) {
        let kind = self.kind.expect("set");
        let window = match kind {
            Kind::Clock2QPlus => (self.queue.len() + self.small.len()).div_ceil(20),
            _ => 0,
        };
        if self.small.iter().take(window).any(|(other, _)| *other == key) {
            return (true, None);
        }
        let queues = self.queue.iter_mut().chain(&mut self.small);
        if let Some((_, hits)) = queues.into_iter().find(|(other, _)| *other == key) {
            *hits = (*hits + 1).min(3);
            if kind == Kind::Lru {
                self.queue.retain(|(other, _)| *other != key);
                self.queue.push_front((key, 0));
            }
            return (true, None);
        }
        let full = self.queue.len() + self.small.len() == self.room;
        let gone = full.then(|| match kind {
            Kind::Lru => self.queue.pop_back().expect("full").0,
            Kind::Sieve => self.sieve(),
            Kind::S3Fifo | Kind::Clock2QPlus => self.s3_fifo(kind),
            Kind::Lrfu | Kind::Arc | Kind::Auto => unreachable!("it has a model of its own"),
        });
        if matches!(kind, Kind::S3Fifo | Kind::Clock2QPlus) && !self.ghosts.contains(&key) {
            self.small.push_front((key, 0));
        } else {
            // A key that came back keeps its slot among the ghosts, as a dummy.
            self.ghosts.iter_mut().filter(|ghost| **ghost == key).for_each(|g| *g = u64::MAX);
            self.queue.push_front((key, 0));
        }
        (false, gone)
    }

    fn sieve(&mut self) -> u64 {
        loop {
            let last = self.queue.len() - 1;
            let at = self.hand.and_then(|hand| self.queue.iter().position(|(key, _)| *key == hand));
            let at = at.unwrap_or(last);
            self.hand = at.checked_sub(1).map(|next| self.queue[next].0);
            if self.queue[at].1 == 0 {
                return self.queue.remove(at).expect("in range").0;
            }
            self.queue[at].1 = 0;
        }
    }

    fn s3_fifo(&mut self, kind: Kind) -> u64 {
        let (hits_to_stay, hits_max) = if kind == Kind::S3Fifo { (2, 3) } else { (1, 1) };
        loop {
            if self.small.len() * 10 > self.small.len() + self.queue.len() || self.queue.is_empty()
            {
                while let Some((key, hits)) = self.small.pop_back() {
                    if hits < hits_to_stay {
                        self.ghosts.push_back(key);
                        let left = self.small.len() + self.queue.len();
                        let ghosts = match kind {
                            Kind::S3Fifo => self.queue.len(),
                            _ => left,
                        };
                        while self.ghosts.len() > ghosts.max(1) {
                            self.ghosts.pop_front();
                        }
                        return key;
                    }
                    self.queue.push_front((key, 0));
                }
            }
            while let Some((key, hits)) = self.queue.pop_back() {
                if hits == 0 {
                    return key;
                }
                self.queue.push_front((key, hits.min(hits_max) - 1));
            }
        }
    }
}

/// The key evicted for each request: `.` is a hit, `-` a miss that fits.
fn who_goes(kind: Kind, room: usize, asked: &str) -> String {
    let mut cache = Cache::new(kind, room);
    let answers = asked.bytes().map(|key| match cache.ask(key.into()) {
        (true, _) => '.',
        (false, None) => '-',
        (false, Some(gone)) => char::from(gone as u8),
    });
    answers.collect()
}

#[test]
fn an_lru_drops_who_was_not_asked_for_the_longest() {
    assert_eq!(who_goes(Kind::Lru, 3, "abcadbe"), "---.bca");
}

#[test]
fn a_sieve_passes_over_who_was_asked_for_since() {
    // a and b are used again, so c goes; the hand is at its end and starts over.
    assert_eq!(who_goes(Kind::Sieve, 3, "abcabdef"), "---..cab");
}

#[test]
fn s3_fifo_lets_a_scan_pass() {
    // a and b are used twice more and stay, through a scan of keys used once.
    assert_eq!(who_goes(Kind::S3Fifo, 4, "abaabbcdefghijab"), "--....--cdefgh..");
}

#[test]
fn s3_fifo_keeps_who_comes_back_soon() {
    // c leaves from probation, comes back while it is a ghost, and outlives the scan that follows.
    let answers = who_goes(Kind::S3Fifo, 4, "aaabbbcdecghijklc");
    assert!(answers.ends_with('.'), "{answers}");
}

#[test]
fn clock2q_plus_ignores_hits_that_follow_the_insertion() {
    // Of 40 entries the small queue has 4; hits do not count while an entry is among the 2 newest of it.
    for (later, stays) in [(0, false), (1, false), (2, true), (3, true)] {
        let mut cache = Cache::new(Kind::Clock2QPlus, 40);
        for key in 0..100 {
            cache.ask(key);
        }
        for key in 1000..1004 {
            cache.ask(key);
            cache.ask(key);
        }
        cache.ask(1);
        let probe = 2000;
        cache.ask(probe);
        for key in 0..later {
            cache.ask(3000 + key);
        }
        assert!(cache.ask(probe).0);
        for key in 4000..4200 {
            cache.ask(key);
        }
        assert_eq!(cache.ask(probe).0, stays, "{later} later");
    }
}

#[test]
fn lrfu_keeps_who_was_asked_for_more() {
    // c, d and e come once each and replace one another; a and b, each used three times, stay.
    assert_eq!(who_goes(Kind::Lrfu, 3, "aaabbbcdeabf"), "-..-..-cd..e");
}

#[test]
fn lrfu_remembers_the_heat_of_who_left() {
    // b and c evict one another, and a stays, until they were used as often as a.
    let answers = who_goes(Kind::Lrfu, 2, "aaabcbcbcbcbcbc");
    assert!(answers.contains('a') && answers.ends_with("...."), "{answers}");
}

#[test]
fn lrfu_knows_what_the_least_are_worth() {
    // Half of all accesses go to one key, the others evenly to 200 keys, half of which fit.
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut cache = Cache::new(Kind::Lrfu, 100);
    for _ in 0..20_000 {
        cache.ask(if random.random() { 0 } else { random.random_range(1..=200) });
    }
    let share = cache.policy.least_share().expect("it was asked often") * 400.0;
    assert!((0.5..2.0).contains(&share), "{share} times what each gets");
}

/// LRFU that remembers every access, of a cache so small that each eviction looks at all entries.
#[derive(Default)]
struct EveryAccess {
    room: usize,
    held: Vec<u64>,
    ghosts: VecDeque<u64>,
    /// The times of use of each key that is held or a ghost.
    times: HashMap<u64, Vec<f64>>,
    now: f64,
    newest: Option<u64>,
}

impl EveryAccess {
    fn heat(&self, key: u64) -> f64 {
        self.times[&key].iter().map(|time| (time - self.now).exp2()).sum()
    }

    fn ask(&mut self, key: u64) -> (bool, Option<u64>) {
        let is_hit = self.held.contains(&key);
        let gone = (!is_hit && self.held.len() == self.room).then(|| {
            let newest = self.newest.unwrap_or(self.held[0]);
            let coldest = |one, other| if self.heat(other) < self.heat(one) { other } else { one };
            let gone = self.held.iter().copied().fold(newest, coldest);
            let at = self.held.iter().position(|held| *held == gone).expect("held");
            self.held.swap_remove(at);
            self.newest = self.newest.filter(|newest| *newest != gone);
            self.ghosts.push_back(gone);
            while self.ghosts.len() > (2 * self.held.len()).max(1) {
                let forgotten = self.ghosts.pop_front().expect("one more than none");
                // A key that came back, or is a newer ghost too, keeps its times.
                if !self.held.contains(&forgotten) && !self.ghosts.contains(&forgotten) {
                    self.times.remove(&forgotten);
                }
            }
            gone
        });
        self.times.entry(key).or_default().push(self.now);
        if !is_hit {
            self.held.push(key);
            self.newest = Some(key);
        }
        self.now += 1.0 / (8 * self.held.len()) as f64;
        (is_hit, gone)
    }
}

/// A policy whose naive model is exact for caches of any size.
fn any_exact_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Lru, Kind::Sieve, Kind::S3Fifo, Kind::Clock2QPlus])
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(&Kind::ALL[..])
}

proptest! {
    #[test]
    fn each_does_what_its_paper_says(
        kind in any_exact_kind(),
        room in 1usize..30,
        asked in prop::collection::vec(0u64..60, 0..400),
    ) {
        let mut cache = Cache::new(kind, room);
        let mut naive = Naive { room, kind: Some(kind), ..Naive::default() };
        for (position, &key) in asked.iter().enumerate() {
            prop_assert_eq!(cache.ask(key), naive.ask(key), "{:?} at {}", kind, position);
        }
    }

    #[test]
    fn lrfu_forgets_no_access_while_it_remembers_the_key(
        room in 1usize..=8,
        asked in prop::collection::vec(0u64..24, 0..400),
    ) {
        let mut cache = Cache::new(Kind::Lrfu, room);
        let mut naive = EveryAccess { room, ..EveryAccess::default() };
        for (position, &key) in asked.iter().enumerate() {
            prop_assert_eq!(cache.ask(key), naive.ask(key), "at {}", position);
        }
    }

    #[test]
    fn what_is_removed_never_goes_again(
        kind in any_kind(),
        room in 1usize..20,
        asked in prop::collection::vec((0u64..40, any::<bool>()), 0..300),
    ) {
        let mut cache = Cache::new(kind, room);
        for (key, remove) in asked {
            if remove {
                cache.remove(key);
            } else {
                cache.ask(key);
            }
        }
        let mut left = cache.slots.len();
        while let Some(slot) = cache.policy.evict() {
            prop_assert!(cache.keys.remove(&slot).is_some());
            left -= 1;
        }
        prop_assert_eq!(left, 0);
    }

    #[test]
    fn sizes_and_second_lives_lose_no_entry(
        kind in any_kind(),
        asked in prop::collection::vec((0u64..40, 0u8..6, 0u32..300), 0..300),
    ) {
        let mut policy = kind.policy();
        let mut held = [false; 40];
        for (key, what, bytes) in asked {
            let slot = key as Slot;
            match (held[key as usize], what) {
                (false, _) => policy.insert(slot, key, bytes),
                (true, 0) => policy.remove(slot),
                (true, 1..3) => policy.resize(slot, bytes),
                (true, 3) => {
                    let victim = policy.evict().expect("one is held");
                    prop_assert!(held[victim as usize]);
                    policy.keep(victim, victim.into(), bytes);
                }
                (true, _) => policy.hit(slot),
            }
            held[key as usize] = what != 0 || !held[key as usize];
        }
        let mut gone = order(&mut *policy);
        gone.sort_unstable();
        let left: Vec<_> = (0..40).filter(|&slot| held[slot as usize]).collect();
        prop_assert_eq!(gone, left);
    }

    #[test]
    fn all_entries_are_in_the_order_of_eviction_once(
        kind in any_kind(),
        room in 1usize..20,
        asked in prop::collection::vec((0u64..40, 0u8..4), 0..300),
    ) {
        let mut cache = Cache::new(kind, room);
        for (key, what) in asked {
            let slots: Vec<_> = cache.policy.coldest().collect();
            let mut listed = slots.clone();
            listed.sort_unstable();
            let mut held: Vec<_> = cache.keys.keys().copied().collect();
            held.sort_unstable();
            prop_assert_eq!(listed, held);
            match what {
                0 if !slots.is_empty() => {
                    let slot = slots[key as usize % slots.len()];
                    let gone = cache.keys.remove(&slot).expect("held");
                    cache.slots.remove(&gone);
                    cache.free.push(slot);
                    cache.policy.evict_slot(slot);
                    prop_assert!(cache.policy.coldest().all(|other| other != slot));
                    // The others remember none, or only those that were on probation.
                    if matches!(kind, Kind::Arc | Kind::Lrfu) && slots.len() > 1 {
                        prop_assert!(cache.policy.remembers(gone));
                    }
                }
                _ => {
                    cache.ask(key);
                    prop_assert!(!cache.policy.remembers(key));
                }
            }
        }
    }
}

/// Hits in percent of `asked`, after a first quarter that fills the cache.
/// Evicts everything.
fn order(policy: &mut dyn Eviction) -> Vec<Slot> {
    std::iter::from_fn(|| policy.evict()).collect()
}

#[test]
fn a_resized_entry_counts_as_if_it_had_come_so() {
    const BYTES: [u32; 8] = [70, 1, 1, 300, 5, 1, 40, 2];
    for kind in Kind::ALL {
        let (mut come, mut resized) = (kind.policy(), kind.policy());
        for (slot, bytes) in (0..).zip(BYTES) {
            come.insert(slot, slot.into(), bytes);
            resized.insert(slot, slot.into(), 90);
        }
        (0..).zip(BYTES).for_each(|(slot, bytes)| resized.resize(slot, bytes));
        assert_eq!(order(&mut *come), order(&mut *resized), "{kind:?}");
    }
}

#[test]
fn what_entries_grow_by_counts_for_the_window_of_others() {
    let mut policy = Clock2QPlus::default();
    for slot in 0..40 {
        policy.insert(slot, slot.into(), 1);
        policy.resize(slot, 100);
    }
    // Correlated with its own insertion, however much it grew; the others are older than the window.
    policy.hit(39);
    (0..30).for_each(|slot| policy.hit(slot));
    assert_eq!(order(&mut policy)[..3], [30, 31, 32]);
}

#[test]
fn a_victim_that_is_kept_is_not_the_next_one() {
    for kind in Kind::ALL {
        let mut policy = kind.policy();
        (0..20).for_each(|slot| policy.insert(slot, slot.into(), 10));
        let kept = policy.evict().expect("there are some");
        policy.keep(kept, kept.into(), 10);
        assert!(!policy.remembers(kept.into()), "{kind:?}");
        let rest = order(&mut *policy);
        assert_eq!(rest.len(), 20, "{kind:?}");
        assert!(!rest[..2].contains(&kept), "{kind:?} {rest:?}");
    }
}

fn hit_ratio(kind: Kind, room: usize, asked: &[u64]) -> f64 {
    let mut cache = Cache::new(kind, room);
    let (first, rest) = asked.split_at(asked.len() / 4);
    for &key in first {
        cache.ask(key);
    }
    let hits = rest.iter().filter(|&&key| cache.ask(key).0).count();
    100.0 * hits as f64 / rest.len() as f64
}

#[test]
fn a_scan_of_ten_times_the_room_leaves_the_hot_entries() {
    const ROOM: u64 = 1000;
    for kind in Kind::ALL {
        let mut cache = Cache::new(kind, ROOM as usize);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut hits = |cache: &mut Cache, scanned: Option<u64>| {
            let mut hits = 0;
            for at in 0..10 * ROOM {
                hits += u64::from(cache.ask(random.random_range(0..ROOM / 2)).0);
                if let Some(first) = scanned {
                    cache.ask(first + at);
                }
            }
            hits as f64 / (10 * ROOM) as f64
        };
        hits(&mut cache, None);
        let during = hits(&mut cache, Some(1 << 20));
        if kind == Kind::Lru {
            assert!(during < 0.9, "{during}"); // The reference: the test can fail.
        } else {
            assert!(during > 0.97, "{kind:?}: {during}");
        }
    }
}

/// Page numbers with frequencies proportional to 1/rank^`skew`.
fn skewed(pages: usize, skew: f64, count: usize) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let weights = (1..=pages).map(|rank| (rank as f64).powf(-skew));
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let draw = |_| {
        let at = random.random::<f64>() * sums[pages - 1];
        sums.partition_point(|&sum| sum < at) as u64
    };
    (0..count).map(draw).collect()
}

#[test]
fn hit_ratios() {
    const PAGES: usize = 50_000;
    const ASKED: usize = 400_000;
    let zipf = skewed(PAGES, 0.99, ASKED);
    // A tenth of all reads go through the pages in order, as a scan or a fill does.
    let mut scan = 0..;
    let scanned: Vec<_> = zipf
        .chunks(9)
        .flat_map(|nine| {
            let next = scan.next().map(|page: u64| PAGES as u64 + page);
            nine.iter().copied().chain(next)
        })
        .collect();
    // A tenth of the hot set moves at a time.
    let moving: Vec<_> =
        zipf.iter().enumerate().map(|(at, page)| page + (at / (ASKED / 20)) as u64 * 500).collect();
    let uniform = skewed(PAGES, 0.0, ASKED);
    let mut table =
        String::from("trace, room      lru  sieve  s3-fifo   lrfu  clock2q+    arc   auto\n");
    let traces =
        [("zipf", &zipf), ("scanned", &scanned), ("moving", &moving), ("uniform", &uniform)];
    for (name, asked) in traces {
        for percent in [2, 4, 10] {
            let ratios = Kind::ALL.map(|kind| hit_ratio(kind, PAGES * percent / 100, asked));
            let [lru, sieve, s3_fifo, lrfu, clock2q_plus, arc, auto] =
                ratios.map(|ratio| format!("{ratio:.1}"));
            table += &format!(
                "{name:8} {percent:2} %  {lru:>6} {sieve:>6} {s3_fifo:>8} {lrfu:>6} {clock2q_plus:>9} {arc:>6} {auto:>6}\n"
            );
        }
    }
    expect_test::expect![[r#"
        trace, room      lru  sieve  s3-fifo   lrfu  clock2q+    arc   auto
        zipf      2 %    53.2   61.8     62.3   62.0      61.4   61.7   62.0
        zipf      4 %    60.7   67.8     68.3   68.2      67.5   67.7   67.8
        zipf     10 %    71.0   75.9     76.4   76.6      75.7   75.8   75.7
        scanned   2 %    46.2   55.5     56.1   55.3      55.4   55.8   55.6
        scanned   4 %    52.7   60.9     61.6   61.0      60.9   61.3   61.0
        scanned  10 %    61.4   68.0     68.5   68.6      68.4   68.7   68.4
        moving    2 %    52.7   48.2     55.5   56.5      57.3   57.6   57.4
        moving    4 %    59.8   54.0     61.0   61.3      63.0   63.6   62.6
        moving   10 %    69.5   61.7     69.1   68.6      71.5   71.2   71.5
        uniform   2 %     2.0    2.0      2.0    2.0       2.0    2.0    2.0
        uniform   4 %     4.0    4.0      4.0    4.0       4.0    4.0    4.0
        uniform  10 %    10.0   10.0     10.0    9.9      10.0   10.0   10.0
    "#]]
    .assert_eq(&table);
}
