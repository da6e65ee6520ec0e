//! The schemes to compare: data, fixed once, and printed in every report.
//!
//! All run on the same shim and the same pool, with the same options of RocksDB and the same bytes of cache. All tuning
//! of a scheme is here; a change after a band was looked at gets a line in [`HISTORY`].

use plimsoll::kv::CachePolicy;
use policy::sched::Policy;

/// The configuration of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    /// The scheduler of its volume's gate.
    pub(super) gate: Policy,
    /// The policy of the cache, where there is one.
    pub(super) cache: CachePolicy,
    /// Whether it also prefetches warm blocks.
    pub(super) prefetch: bool,
    /// Whether RocksDB limits its own background writes, at a self-tuned rate up to the paid bandwidth.
    pub(super) limiter: bool,
    /// The description in reports.
    pub(super) about: &'static str,
}

/// RocksDB as it is: all requests go to the provider at once.
pub(super) const PLAIN: Scheme = Scheme {
    name: "plain",
    gate: Policy::None,
    cache: CachePolicy::RocksDb,
    prefetch: false,
    limiter: false,
    about: "RocksDB, its block cache (LRU), no gate",
};

/// The same with RocksDB's own means against bursts: `NewGenericRateLimiter(auto_tuned)`, refilled every 100 ms,
/// fairness 10, as its documentation proposes; writes only, its default.
pub(super) const AUTO_TUNED: Scheme = Scheme {
    name: "auto-tuned",
    limiter: true,
    about: "plain, and RocksDB's auto-tuned rate limiter up to the paid bandwidth",
    ..PLAIN
};

/// The paper's NA: only the limit, refilled at the start of every second.
pub(super) const STABILIZER: Scheme = Scheme {
    name: "stabilizer",
    gate: Policy::Stabilizer,
    about: "plain behind a gate of one pool a second, whoever comes first: the paper's NA",
    ..PLAIN
};

/// The paper's SA.
pub(super) const STATIC: Scheme = Scheme {
    name: "static",
    gate: Policy::Static,
    about: "plain behind a gate of fixed pools a second: the paper's SA",
    ..PLAIN
};

/// The paper's DA.
pub(super) const DYNAMIC: Scheme = Scheme {
    name: "dynamic",
    gate: Policy::Dynamic,
    about: "plain behind a gate of pools cut anew each second: the paper's DA",
    ..PLAIN
};

/// The paper's TWA.
pub(super) const WINDOWS: Scheme = Scheme {
    name: "windows",
    gate: Policy::Windows,
    about: "plain behind a gate of time windows, as published: the paper's TWA",
    ..PLAIN
};

/// TWA as in its released code.
pub(super) const WINDOWS_RELEASED: Scheme = Scheme {
    name: "windows-released",
    gate: Policy::WindowsReleased,
    about: "plain behind a gate of time windows, as in the released code",
    ..PLAIN
};

/// Our gate alone.
pub(super) const TAGS: Scheme = Scheme {
    name: "tags",
    gate: Policy::Tags,
    about: "plain behind our gate: a continuous budget, reservations, strict order for the rest",
    ..PLAIN
};

/// The same, optimised for the 99th percentile.
pub(super) const TAGS_P99: Scheme = Scheme {
    name: "tags-p99",
    gate: Policy::TagsP99,
    about: "plain behind our gate, and readers who cannot all go pause together",
    ..PLAIN
};

/// The defaults of our store.
pub(super) const OURS: Scheme = Scheme {
    name: "ours",
    gate: Policy::Tags,
    cache: CachePolicy::Lrfu,
    prefetch: true,
    limiter: false,
    about: "our gate, and our cache below RocksDB: single blocks, and 256 KiB read ahead",
};

/// The same, optimised for the 99th percentile.
pub(super) const OURS_P99: Scheme = Scheme {
    name: "ours-p99",
    gate: Policy::TagsP99,
    about: "ours, and readers who cannot all go pause together",
    ..OURS
};

/// Our cache in parts: only blocks that were read, by four policies, and only prefetched ones.
pub(super) const PASSIVE: Scheme =
    Scheme { name: "passive", prefetch: false, about: "ours, nothing read ahead", ..OURS };
pub(super) const LRU: Scheme = Scheme {
    name: "passive LRU",
    cache: CachePolicy::Lru,
    about: "ours, nothing read ahead, by LRU",
    ..PASSIVE
};
pub(super) const S3_FIFO: Scheme = Scheme {
    name: "passive S3-FIFO",
    cache: CachePolicy::S3Fifo,
    about: "ours, nothing read ahead, by S3-FIFO",
    ..PASSIVE
};
pub(super) const SIEVE: Scheme = Scheme {
    name: "passive SIEVE",
    cache: CachePolicy::Sieve,
    about: "ours, nothing read ahead, by SIEVE",
    ..PASSIVE
};
pub(super) const AHEAD: Scheme = Scheme {
    name: "prefetch",
    cache: CachePolicy::None,
    about: "ours, nothing cached but what was read ahead",
    ..OURS
};

/// The schemes that guarantee never to overdraw.
pub(super) const NEVER_OVERDRAW: [&str; 9] = [
    TAGS.name,
    TAGS_P99.name,
    OURS.name,
    OURS_P99.name,
    PASSIVE.name,
    LRU.name,
    S3_FIFO.name,
    SIEVE.name,
    AHEAD.name,
];

/// Changes of workload, scale or baseline after a band was looked at.
pub(super) const HISTORY: &[&str] = &[
    "closed loop: threads ask for their first hundred operations too; before, ten threads began each run with \
     a thousand operations for nothing, a fifth of a run of four seconds",
    "runs of 15 s instead of 10 s: the shorter the sine's period, the more of its crest the provider's bucket \
     of one second takes up",
    "(a): 20/80 instead of 80/20 reads to writes, whose few writes filled no memtable in a run: no compaction \
     ran",
    "reads alone: D = 1.2 paid instead of D = paid, the rate of the paper's own figures for them: at D = paid \
     plain, which found a third of its reads in its cache, never asked for what was paid",
    "(b): at most 1 ms, as it was asked for; it had been 1.024 ms, the step of the histogram",
    "(a): io1 instead of io2, whose answers are so quick that no timer here tells a fifth more of them",
    "runs of a case at the same time where they can be, each a minute instead of 15 s: a longer period again",
    "plain's hits are counted from what came into its cache: RocksDB counts a miss twice",
    "ours keeps single blocks by LRFU; it had been S3-FIFO",
    "B06, B07, B10, B13, B15: a second scheme of ours, made for the 99th percentile; a check for each of the two",
    "our budget saves up 0.9 seconds instead of 0.25: with less, what lulls left was lost",
    "B10: p99 of reads beside that of all operations, of which 19 in 20 are writes that no gate sees",
    "B15: without stabilizer and windows, so that all runs go at the same time, a minute long as the other rows' \
     instead of 20 s: the provider saves up a second, most of a short crest",
];
