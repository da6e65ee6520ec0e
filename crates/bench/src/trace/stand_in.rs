//! Loads with published statistics of well-known traces, for when the traces themselves are not at hand.
//!
//! A stand-in shares a few numbers with its trace. It has neither its order nor its phases, so hit ratios on it compare
//! policies on a skewed load; they are not those of the trace.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{BLOCK, Request};

/// What is known of a trace.
///
/// MSR-Cambridge's 36 traces each last a week (Narayanan et al., "Write Off-Loading", FAST'08); FIU's last three
/// (Koller and Rangaswami, "I/O Deduplication", FAST'10). An estimate is marked as such in [`sources`](Self::sources).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandIn {
    /// The name of the trace.
    pub name: &'static str,
    /// Requests of the whole trace.
    pub requests: u64,
    /// Different blocks of 4 KiB that it touches.
    pub footprint_blocks: u64,
    /// The share of writes.
    pub write_share: f64,
    /// The mean of a request's bytes.
    pub mean_bytes: f64,
    /// The exponent of Zipf's law for the popularity of blocks.
    pub skew: f64,
    /// How long the trace lasts.
    pub lasts: Duration,
    /// Where the numbers are from.
    pub sources: &'static str,
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

impl StandIn {
    /// Every stand-in.
    pub const ALL: [Self; 5] = [
        Self {
            name: "prxy_0",
            requests: 12_518_968,
            footprint_blocks: 230_657,
            write_share: 0.969,
            mean_bytes: 4875.0,
            skew: 1.1,
            lasts: WEEK,
            sources: "requests, writes and bytes: Salkhordeh et al., TPDS 2018 (61.03 GB in 12,518,968); footprint: \
                      scripts of FrozenHot, EuroSys'23; skew: estimate",
        },
        Self {
            name: "prxy_1",
            requests: 168_638_964,
            footprint_blocks: 3_593_602,
            write_share: 0.35,
            mean_bytes: 12_288.0,
            skew: 1.1,
            lasts: WEEK,
            sources: "requests: libCacheSim's copy of the trace; footprint: scripts of FrozenHot, EuroSys'23; writes, \
                      mean size and skew: estimates",
        },
        Self {
            name: "wdev_0",
            requests: 1_143_261,
            footprint_blocks: 52_111,
            write_share: 0.8,
            mean_bytes: 9296.0,
            skew: 1.0,
            lasts: WEEK,
            sources: "requests, writes and bytes: Salkhordeh et al., TPDS 2018 (10.628 GB in 1,143,261); footprint and \
                      skew: estimates",
        },
        Self {
            name: "hm_0",
            requests: 3_993_316,
            footprint_blocks: 488_986,
            write_share: 0.645,
            mean_bytes: 9421.0,
            skew: 0.9,
            lasts: WEEK,
            sources: "requests: libCacheSim's copy of the trace, which has 439,187 different first bytes; writes and mean \
                      size (9.2 KB): Wu et al., TPDS 2017; footprint and skew: estimates",
        },
        Self {
            name: "webmail",
            requests: 7_800_000,
            footprint_blocks: 500_000,
            write_share: 0.8,
            mean_bytes: 4096.0,
            skew: 0.9,
            lasts: Duration::from_secs(3 * 7 * 24 * 3600),
            sources: "blocks of 4 KiB: FIU's description of the trace; all else: estimates",
        },
    ];

    /// `count` requests from a seed. The footprint shrinks with the count, so that a block has as many requests as in
    /// the whole trace.
    #[must_use]
    pub fn requests(&self, count: u64, seed: u64) -> Requests {
        let part = count as f64 / self.requests as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is positive"
        )]
        let footprint = (self.footprint_blocks as f64 * part).round() as u64;
        Requests {
            of: *self,
            footprint: footprint.max(1),
            count,
            done: 0,
            swept: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }
}

/// Blocks of neighbouring popularity that lie together: 64 KiB. An estimate: no publication says how heat is spread.
const GROUP: u64 = 16;

/// A prime above any number of groups, so multiplication by it permutes them.
const SCATTER: u64 = 2_654_435_761;

/// The longest request, in blocks: 1 MiB.
const LEN_BLOCKS_MAX: u64 = 256;

/// The requests of a stand-in: a slow sweep that touches each block of the footprint once, and for the rest blocks by
/// Zipf's law, each drawn apart from those before. Lengths are whole blocks by the geometric distribution.
#[derive(Clone, Debug)]
pub struct Requests {
    of: StandIn,
    footprint: u64,
    count: u64,
    done: u64,
    /// Blocks that the sweep is past.
    swept: u64,
    random: Xoshiro256PlusPlus,
}

impl Requests {
    /// The length of a request, in blocks.
    fn len_blocks(&mut self) -> u64 {
        let more = 1.0 - BLOCK as f64 / self.of.mean_bytes.max(BLOCK as f64);
        let mut blocks = 1;
        while blocks < LEN_BLOCKS_MAX && self.random.random::<f64>() < more {
            blocks += 1;
        }
        blocks
    }

    /// A block by popularity: its rank by the continuous form of Zipf's law, scattered over the footprint.
    fn block(&mut self) -> u64 {
        let (skew, end) = (self.of.skew, self.footprint as f64 + 1.0);
        let drawn: f64 = self.random.random();
        let rank = if (skew - 1.0).abs() < 1e-9 {
            end.powf(drawn)
        } else {
            let power = 1.0 - skew;
            (1.0 + drawn * (end.powf(power) - 1.0)).powf(1.0 / power)
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a rank")]
        let rank = (rank as u64).clamp(1, self.footprint) - 1;
        let groups = self.footprint.div_ceil(GROUP);
        let group = (rank / GROUP) * SCATTER % groups;
        (group * GROUP + rank % GROUP).min(self.footprint - 1)
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.done == self.count {
            return None;
        }
        let part = self.done as f64 / self.count as f64;
        self.done += 1;
        let len = self.len_blocks().min(self.footprint);
        let is_last = self.done == self.count;
        let due = self.done as f64 / self.count as f64 * self.footprint as f64;
        let first =
            if self.swept < self.footprint && (is_last || self.swept as f64 <= due - len as f64) {
                let first = self.swept.min(self.footprint - len);
                self.swept += len;
                first
            } else {
                self.block().min(self.footprint - len)
            };
        let len = u32::try_from(len * BLOCK).unwrap_or(u32::MAX);
        Some(Request {
            at: self.of.lasts.mul_f64(part),
            volume: 0,
            offset: first * BLOCK,
            len,
            is_write: self.random.random::<f64>() < self.of.write_share,
        })
    }
}
