//! `[pool.<name>]` with `layout = "tiered"`: a cache of the hot ranges of one side on another.

use plimsoll::volumes::{Promotion, Writes};
use policy::cache::Kind;

use super::document::Section;
use super::{Entry, units};

/// The keys that only such a pool has.
pub(super) const KEYS: [&str; 6] = ["fast", "slow", "size", "eviction", "promotion", "writes"];

/// Less holds too few units to be of use.
const SIZE_MIN: u64 = 16 << 20;

/// The sides of a tiered pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Tier {
    /// The volume or pool with the cache.
    pub(crate) fast: String,
    /// The volume or pool that has everything.
    pub(crate) slow: String,
    /// The bytes to take of the fast side. Default: as many as before; nine tenths of the free ones of a new one.
    pub(crate) size: Option<u64>,
    /// Which units leave the cache first. Default: Clock2Q+.
    pub(crate) eviction: Kind,
    /// Which reads install what they read. Default: lazy.
    pub(crate) promotion: Promotion,
    /// Where writes of block devices go first. Default: through, to the slow side.
    pub(crate) writes: Writes,
}

impl Tier {
    /// Reads the sides, each one of the `known` names.
    pub(super) fn read(section: &Section<'_>, known: &[&str]) -> Option<Self> {
        let side = |key| {
            let accepted = "the name of a volume or pool";
            section.need(key, accepted, |field| Ok(field.known(known)?.to_owned()))
        };
        let (fast, slow) = (side("fast"), side("slow"));
        if let (Some(field), true) = (section.get("slow"), fast.is_some() && fast == slow) {
            section.note(field.mistake("another volume or pool than `fast`"));
        }
        let size = section.read("size", |field| {
            field.parsed("a size of at least \"16MiB\"", |text| {
                units::size(text).filter(|&bytes| bytes >= SIZE_MIN)
            })
        });
        let words = Kind::ALL.map(Kind::name);
        let eviction =
            section.read_or("eviction", Kind::default().name(), |field| field.word(&words));
        let eviction = Kind::ALL.into_iter().find(|kind| kind.name() == eviction);
        let words = Promotion::ALL.map(Promotion::name);
        let default = Promotion::default();
        let promotion = section.read_or("promotion", default.name(), |field| field.word(&words));
        let promotion = Promotion::ALL.into_iter().find(|rule| rule.name() == promotion);
        let words = Writes::ALL.map(Writes::name);
        let default = Writes::default();
        let word = section.read_or("writes", default.name(), |field| field.word(&words));
        let writes = Writes::ALL.into_iter().find(|writes| writes.name() == word);
        Some(Self {
            fast: fast?,
            slow: slow?,
            size,
            eviction: eviction.unwrap_or_default(),
            promotion: promotion.unwrap_or_default(),
            writes: writes.unwrap_or_default(),
        })
    }

    pub(super) fn entries(&self, section: &str) -> Vec<Entry> {
        let entry = |key, value: &dyn std::fmt::Display| Entry::new(section, key, value);
        let mut entries = vec![
            entry("fast", &format_args!("{:?}", self.fast)),
            entry("slow", &format_args!("{:?}", self.slow)),
            entry("eviction", &format_args!("{:?}", self.eviction.name())),
            entry("promotion", &format_args!("{:?}", self.promotion.name())),
            entry("writes", &format_args!("{:?}", self.writes.name())),
        ];
        entries.extend(self.size.map(|bytes| entry("size", &units::show_size(bytes))));
        entries
    }

    /// The key that names this side.
    pub(super) fn key_of(&self, side: &str) -> &'static str {
        if side == self.fast { "fast" } else { "slow" }
    }
}
