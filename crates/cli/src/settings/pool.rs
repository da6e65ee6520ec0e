//! `[pool.<name>]`: several volumes, or pools of them, as one.

use std::ops::RangeInclusive;
use std::time::Duration;

use plimsoll::volumes::Writes;
use policy::placement::{Code, Stripe, losses_survived};
use policy::units::KIB;

use super::document::{Field, Section};
use super::migration::{self, Migration};
use super::mistake::Mistake;
use super::tier::{self, Tier};
use super::{Entry, units};

/// The keys of a pool.
pub(super) const KEYS: &[&str] = &[
    "layout",
    "placement",
    "chunk",
    "overlap",
    "volumes",
    "copies",
    "data",
    "parity",
    "strip",
    "write_log",
    "write_log_memory",
    "repair_after",
    "scrub_every",
    migration::KEYS[0],
    migration::KEYS[1],
    migration::KEYS[2],
    tier::KEYS[0],
    tier::KEYS[1],
    tier::KEYS[2],
    tier::KEYS[3],
    tier::KEYS[4],
    tier::KEYS[5],
];

/// Bytes of the log of objects in place, unless the settings say otherwise, and those they may say.
const WRITE_LOG: u64 = 1 << 30;
const WRITE_LOGS: RangeInclusive<u64> = (16 << 20)..=(1 << 40);

/// Bytes of it in memory.
const WRITE_LOG_MEMORY: u64 = 128 << 20;
const WRITE_LOG_MEMORIES: RangeInclusive<u64> = (1 << 20)..=(1 << 40);

/// A pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Pool {
    /// Its name.
    pub(crate) name: String,
    /// The placement of objects. Default: by overlap.
    pub(crate) placement: Placement,
    /// The number of copies of every object. Default: 1. With a code, that of objects which it does not cut.
    pub(crate) copies: usize,
    /// The erasure code that cuts complete objects into fragments. Default: none, layout `spread`.
    pub(crate) code: Option<Code>,
    /// With a code: bytes of the log of objects in place. Default: 1 GiB.
    pub(crate) write_log: u64,
    /// Bytes of it in memory at most. Default: 128 MiB.
    pub(crate) write_log_memory: u64,
    /// Copies of hot tables; and the time without an answer after which a volume's objects are copied from elsewhere.
    /// Default: 10 min.
    pub(crate) migration: Migration,
    /// The time in which every copy is read back once; `None`: only on demand. Default: 30 days, and none for a pool of
    /// pools, which read back their own.
    pub(crate) scrub_every: Option<Duration>,
    /// The names of its members: volumes, and pools. With layout `tiered`, the fast side and the slow one.
    pub(crate) volumes: Vec<String>,
    /// With layout `tiered`, what it is; it has nothing else.
    pub(crate) tier: Option<Tier>,
}

/// The placement of a pool's objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Placement {
    /// All on the first volume with enough space.
    Single,
    /// In turn.
    RoundRobin,
    /// By name.
    Hash,
    /// In chunks of this many bytes over all volumes.
    Stripe(u64),
    /// Apart from tables that are read together with them.
    LeastOverlap(Overlap),
}

/// The weight of overlapping tables.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Overlap {
    /// Their number.
    #[default]
    Count,
    /// Their heat where they overlap.
    Heat,
}

impl Overlap {
    const WORDS: &[&str] = &["count", "heat"];

    const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Heat => "heat",
        }
    }
}

impl Placement {
    /// The word for it in settings and reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::RoundRobin => "round-robin",
            Self::Hash => "hash",
            Self::Stripe(_) => "stripe",
            Self::LeastOverlap(_) => "least-overlap",
        }
    }
}

/// The most copies: each costs another write and the same space.
const COPIES_MAX: u64 = 4;
/// A volume that does not answer for a day is lost.
const REPAIR_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// A scrub that never rests takes longer than a minute on any volume worth a setting.
const SCRUB_EVERY_MIN: Duration = Duration::from_secs(60);
/// Damage that stays unnoticed for longer finds the other copy damaged, too.
const SCRUB_EVERY_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// The word that switches it off.
const OFF: &str = "off";
/// Large chunks keep one I/O on one volume; small ones spread a single table's reads.
const CHUNK: u64 = 256 * KIB;
/// Whole objects, with copies.
const SPREAD: &str = "spread";
/// Complete objects in fragments of an erasure code.
const CODED: &str = "coded";
/// A cache of one member on another.
const TIERED: &str = "tiered";
/// Every word for a layout.
const LAYOUTS: &[&str] = &[SPREAD, CODED, TIERED];
/// Survives the loss of two volumes for half more than the bytes.
const DATA: u64 = 4;
const PARITY: u64 = 2;
/// Every word for a placement.
pub(crate) const PLACEMENTS: &[&str] =
    &["single", "round-robin", "hash", "stripe", "least-overlap"];

impl Pool {
    /// Reads a pool over volumes and pools with these names. `on_volume` are the tiered ones whose slow side is a volume.
    pub(super) fn read(
        section: &Section<'_>,
        volumes: &[&str],
        pools: &[&str],
        on_volume: &[&str],
    ) -> Option<Self> {
        let name: String = section.name.split('.').next_back().unwrap_or_default().into();
        let accepted = "a list of volumes or pools, such as [\"a\", \"b\"]";
        let others = pools.iter().filter(|pool| **pool != name);
        let known: Vec<_> = volumes.iter().chain(others).copied().collect();
        let layout = section.read("layout", |field| field.word(LAYOUTS)).unwrap_or(SPREAD);
        if layout == TIERED {
            return Self::read_tiered(section, name, &known);
        }
        for key in tier::KEYS {
            if let Some(field) = section.get(key) {
                section.note(field.mistake(format!("no {key}, unless layout = \"tiered\"")));
            }
        }
        let members: Option<Vec<String>> = section.need("volumes", accepted, |field| {
            field.list(accepted, |name| Ok(name.known(&known)?.to_owned()))
        });
        // A tier over a volume leaves its upkeep to this pool, as a volume does.
        let tends_itself =
            |name: &String| pools.contains(&&**name) && !on_volume.contains(&&**name);
        let is_of_pools = |names: &Vec<String>| names.iter().all(tends_itself);
        let is_of_pools = members.as_ref().is_some_and(is_of_pools);
        let chunk = section.read_or("chunk", CHUNK, |field| {
            field.parsed("a power of two from \"64KiB\" to \"256KiB\"", |text| {
                units::size(text).filter(|n| Stripe::CHUNKS.contains(n) && n.is_power_of_two())
            })
        });
        let overlap = match section.read("overlap", |field| field.word(Overlap::WORDS)) {
            Some("heat") => Overlap::Heat,
            _ => Overlap::Count,
        };
        let word = section.read_or("placement", "least-overlap", |field| field.word(PLACEMENTS));
        let placement = match word {
            "single" => Placement::Single,
            "hash" => Placement::Hash,
            "stripe" => Placement::Stripe(chunk),
            "round-robin" => Placement::RoundRobin,
            _ => Placement::LeastOverlap(overlap),
        };
        if let (Some(field), false) =
            (section.get("chunk"), matches!(placement, Placement::Stripe(_)))
        {
            section.note(field.mistake("no chunk, unless placement = \"stripe\""));
        }
        if let (Some(field), false) =
            (section.get("overlap"), matches!(placement, Placement::LeastOverlap(_)))
        {
            section.note(field.mistake("no overlap, unless placement = \"least-overlap\""));
        }
        let copies = section.read_or("copies", 1, |field| field.number(1..=COPIES_MAX));
        let code = read_code(section, layout == CODED);
        let write_log = section.read_or("write_log", WRITE_LOG, |field| {
            field.parsed("a size from \"16MiB\" to \"1TiB\"", |text| {
                units::size(text).filter(|bytes| WRITE_LOGS.contains(bytes))
            })
        });
        let write_log_memory = section.read_or("write_log_memory", WRITE_LOG_MEMORY, |field| {
            field.parsed("a size from \"1MiB\" to \"1TiB\"", |text| {
                units::size(text).filter(|bytes| WRITE_LOG_MEMORIES.contains(bytes))
            })
        });
        if let (Some(_), Some(field)) = (&code, section.get("copies")) {
            section.note(
                field.mistake("no copies: with layout = \"coded\" what is not cut gets parity + 1"),
            );
        }
        if let (Some(_), Placement::Stripe(_), Some(field)) =
            (&code, placement, section.get("placement"))
        {
            section.note(field.mistake("no placement = \"stripe\" with layout = \"coded\""));
        }
        if let (Some(code), Some(members)) = (&code, &members)
            // With fewer than it has fragments, which happens when volumes were lost, the pool works, and warns.
            && members.len() < code.data()
        {
            let accepted = format!("{}, one for each fragment, or more", code.fragments());
            let found = format!("{} members", members.len());
            let field = section.get("volumes");
            field.into_iter().for_each(|field| section.note(field.mistaken(&*found, &*accepted)));
        }
        let mut migration = Migration::read(section, is_of_pools);
        let silence_max = &mut migration.terms.silence_max;
        *silence_max = section.read_or("repair_after", *silence_max, |field| {
            field.parsed("a duration from \"0s\" to \"24h\"", |text| {
                units::duration(text).filter(|time| *time <= REPAIR_AFTER_MAX)
            })
        });
        let usual = (!is_of_pools).then_some(policy::scrub::PERIOD);
        let scrub_every = scrub_every(section, usual);
        let copies = code.map_or(copies as usize, |code| code.parity() + 1);
        let volumes = members?;
        let tier = None;
        Some(Self {
            name,
            placement,
            copies,
            code,
            write_log,
            write_log_memory,
            migration,
            scrub_every,
            volumes,
            tier,
        })
    }

    /// Reads a tiered pool, which has its sides and nothing else.
    fn read_tiered(section: &Section<'_>, name: String, known: &[&str]) -> Option<Self> {
        let own = |key: &&&str| **key == "layout" || tier::KEYS.contains(*key);
        for key in KEYS.iter().filter(|key| !own(key)) {
            if let Some(field) = section.get(key) {
                section.note(field.mistake(format!("no {key} with layout = \"tiered\"")));
            }
        }
        let tier = Tier::read(section, known)?;
        Some(Self {
            name,
            placement: Placement::Single,
            copies: 1,
            code: None,
            write_log: WRITE_LOG,
            write_log_memory: WRITE_LOG_MEMORY,
            migration: Migration::read(section, true),
            scrub_every: None,
            volumes: vec![tier.fast.clone(), tier.slow.clone()],
            tier: Some(tier),
        })
    }

    /// The names of tiered pools whose slow side is one of these volumes.
    pub(super) fn tiers_on<'d>(root: &Section<'d>, volumes: &[&str]) -> Vec<&'d str> {
        let mut names = root.names("pool");
        names.retain(|name| {
            let text = |key| root.text_at("pool", name, key);
            text("layout") == Some(TIERED)
                && text("slow").is_some_and(|slow| volumes.contains(&slow))
        });
        names
    }

    /// Refuses a tiered pool as the pool of a store, which needs names.
    pub(super) fn check_for_store(
        field: &Field<'_>,
        name: &str,
        pools: &[Self],
    ) -> Result<(), Mistake> {
        let is_it = |pool: &&Self| pool.name == name && pool.tier.is_some();
        if pools.iter().find(is_it).is_none() {
            return Ok(());
        }
        let above = pools.iter().find(|pool| pool.volumes.iter().any(|member| member == name));
        let above = above.map_or("main", |pool| &pool.name);
        let found = format!("{name:?}, a pool with layout = \"tiered\"");
        let accepted = format!(
            "a pool above it: [pool.{above}] with volumes = [{name:?}], and pool = {above:?}"
        );
        Err(field.mistaken(found, accepted))
    }

    /// Refuses `name` as the pool of a store if another store, of this section, is on a pool that is not apart from it.
    pub(super) fn check_apart(
        field: &Field<'_>,
        name: &str,
        (section, other): (&str, &str),
        pools: &[Self],
    ) -> Result<(), Mistake> {
        let called = |name: &str| pools.iter().find(|pool| pool.name == name);
        let (Some(pool), Some(of)) = (called(name), called(other)) else { return Ok(()) };
        if pool.name == of.name {
            return Ok(());
        }
        let within = way(of, name, pools).or_else(|| way(pool, other, pools));
        if let Some(way) = within {
            let found = format!("{name:?}, while [{section}] is on {other:?}: {}", way.join(" > "));
            return Err(
                field.mistaken(found, format!("{other:?} as well, or a pool apart from it"))
            );
        }
        let below = |from: &Self| {
            let mut below = Vec::new();
            from.walk_all(pools, &mut below);
            below.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let theirs = below(of);
        let Some(shared) = below(pool).into_iter().find(|member| theirs.contains(member)) else {
            return Ok(());
        };
        let ways = [way(pool, &shared, pools), way(of, &shared, pools)];
        let ways: Vec<_> = ways.into_iter().flatten().map(|way| way.join(" > ")).collect();
        let found = format!("{name:?}, while [{section}] is on {other:?}: {}", ways.join(" and "));
        Err(field
            .mistaken(found, format!("{other:?} as well, or a pool that shares nothing with it")))
    }

    /// All members below, volumes and pools.
    fn walk_all<'a>(&'a self, pools: &'a [Self], below: &mut Vec<&'a str>) {
        for name in &self.volumes {
            if below.contains(&&**name) {
                continue;
            }
            below.push(name);
            if let Some(pool) = pools.iter().find(|pool| pool.name == *name) {
                pool.walk_all(pools, below);
            }
        }
    }

    /// The names of the volumes below, in the order of the settings; those of its members that are pools are in their place.
    pub(crate) fn leaves<'a>(&'a self, pools: &'a [Self]) -> Vec<&'a str> {
        let (mut leaves, mut seen) = (Vec::new(), Vec::new());
        self.walk(pools, &mut seen, &mut leaves);
        leaves
    }

    /// A pool that was `seen` is within itself, which is a mistake.
    fn walk<'a>(&'a self, pools: &'a [Self], seen: &mut Vec<&'a str>, leaves: &mut Vec<&'a str>) {
        if seen.contains(&&*self.name) {
            return;
        }
        seen.push(&self.name);
        for name in &self.volumes {
            match pools.iter().find(|pool| pool.name == *name) {
                Some(pool) => pool.walk(pools, seen, leaves),
                None => leaves.push(name),
            }
        }
    }

    /// The volumes that the member of this name may lose without losing an object. Pools must be trees.
    fn losses(name: &str, pools: &[Self]) -> usize {
        let Some(pool) = pools.iter().find(|pool| pool.name == name) else { return 0 };
        match &pool.tier {
            None => {
                losses_survived(pool.copies, pool.volumes.iter().map(|of| Self::losses(of, pools)))
            }
            Some(tier) => {
                let slow = Self::losses(&tier.slow, pools);
                let through = tier.writes == Writes::Through;
                if through { slow } else { slow.min(Self::losses(&tier.fast, pools)) }
            }
        }
    }

    /// The word for how objects lie on the members.
    pub(crate) const fn layout(&self) -> &'static str {
        match (&self.tier, self.code) {
            (Some(_), _) => TIERED,
            (None, Some(_)) => CODED,
            (None, None) => SPREAD,
        }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let section = format!("pool.{}", self.name);
        if let Some(tier) = &self.tier {
            let layout = Entry::new(&section, "layout", format_args!("{TIERED:?}"));
            return std::iter::once(layout).chain(tier.entries(&section)).collect();
        }
        let placement = self.placement.name();
        let more = match self.placement {
            Placement::Stripe(chunk) => {
                Some(Entry::new(&section, "chunk", units::show_size(chunk)))
            }
            Placement::LeastOverlap(overlap) => {
                Some(Entry::new(&section, "overlap", format_args!("{:?}", overlap.name())))
            }
            _ => None,
        };
        let mut entries = vec![
            Entry::new(&section, "layout", format_args!("{:?}", self.layout())),
            Entry::new(&section, "placement", format_args!("{placement:?}")),
        ];
        entries.extend(more);
        let repair_after = units::show_duration(self.migration.terms.silence_max);
        match self.code {
            None => entries.push(Entry::new(&section, "copies", self.copies)),
            Some(code) => {
                entries.push(Entry::new(&section, "data", code.data()));
                entries.push(Entry::new(&section, "parity", code.parity()));
                entries.push(Entry::new(&section, "strip", units::show_size(code.strip())));
                entries.push(Entry::new(&section, "write_log", units::show_size(self.write_log)));
                let memory = units::show_size(self.write_log_memory);
                entries.push(Entry::new(&section, "write_log_memory", memory));
            }
        }
        entries.push(Entry::new(&section, "repair_after", repair_after));
        entries.push(Entry::new(&section, "scrub_every", show_scrub_every(self.scrub_every)));
        entries.extend(self.migration.entries(&section));
        entries.push(Entry::new(&section, "volumes", toml::Value::from(self.volumes.clone())));
        entries
    }
}

/// The erasure code of a pool, if its layout has one.
fn read_code(section: &Section<'_>, is_coded: bool) -> Option<Code> {
    if !is_coded {
        for key in ["data", "parity", "strip", "write_log", "write_log_memory"] {
            if let Some(field) = section.get(key) {
                section.note(field.mistake(format!("no {key}, unless layout = \"coded\"")));
            }
        }
        return None;
    }
    let data = section.read_or("data", DATA, |field| field.number(Code::DATA_MIN..=Code::DATA_MAX));
    let parity = section.read_or("parity", PARITY, |field| field.number(1..=Code::PARITY_MAX));
    let strip = section.read_or("strip", Code::STRIP, |field| {
        field.parsed("a power of two from \"4KiB\" to \"1MiB\"", |text| {
            let range = Code::STRIP_MIN..=Code::STRIP_MAX;
            units::size(text).filter(|n| range.contains(n) && n.is_power_of_two())
        })
    });
    match Code::new(data, parity, strip) {
        Ok(code) => Some(code),
        Err(why) => {
            let field = section.get("parity").or_else(|| section.get("data"));
            let accepted = "fewer fragments of parity than of data";
            field.into_iter().for_each(|at| section.note(at.mistaken(why.to_string(), accepted)));
            None
        }
    }
}

/// Reads the period of a scrub; `None` if it is switched off.
pub(super) fn scrub_every(section: &Section<'_>, usual: Option<Duration>) -> Option<Duration> {
    section.read_or("scrub_every", usual, |field| {
        field.parsed("a duration from \"1m\" to \"366d\", or \"off\"", period)
    })
}

pub(super) fn show_scrub_every(period: Option<Duration>) -> String {
    period.map_or_else(|| format!("{OFF:?}"), units::show_duration)
}

/// The period of a scrub, or `None` if it is switched off.
fn period(text: &str) -> Option<Option<Duration>> {
    let range = SCRUB_EVERY_MIN..=SCRUB_EVERY_MAX;
    match units::duration(text) {
        _ if text == OFF => Some(None),
        Some(Duration::ZERO) => Some(None),
        Some(every) => range.contains(&every).then_some(Some(every)),
        // humantime takes no number without a unit.
        None => (text == "0").then_some(None),
    }
}

/// Notes what makes pools no trees: a volume or pool in two of them, whose objects each would take for foreign; a pool within
/// itself; and a name of both a volume and a pool.
pub(super) fn check_trees(root: &Section<'_>, pools: &[Pool], volumes: &[&str]) {
    let note = |pool: &Pool, member: &str, found: String, accepted: &str| {
        let key = pool.tier.as_ref().map_or("volumes", |tier| tier.key_of(member));
        root.note(root.at("pool", &pool.name, key).mistaken(found, accepted));
    };
    for (at, pool) in pools.iter().enumerate() {
        for other in &pools[..at] {
            if let Some(shared) = pool.volumes.iter().find(|name| other.volumes.contains(name)) {
                let found = format!("{shared:?}, a volume of pool.{}", other.name);
                note(pool, shared, found, "volumes of no other pool");
            }
        }
        for (at, name) in pool.volumes.iter().enumerate() {
            // Sides of a tier are two, or a mistake was noted.
            if pool.tier.is_none() && pool.volumes[..at].contains(name) {
                note(pool, name, format!("{name:?} twice"), "each volume once");
            }
            let of = pools.iter().find(|pool| pool.name == *name);
            if volumes.contains(&&**name) && of.is_some() {
                let found = format!("{name:?}, a volume and a pool");
                note(pool, name, found, "names of one of them");
            }
            if pool.tier.is_some() && of.is_some_and(|of| of.tier.is_some()) {
                let found = format!("{name:?}, a tiered pool");
                note(pool, name, found, "a volume, or a pool with another layout");
            }
        }
        if let Some(way) = way(pool, &pool.name, pools) {
            let found = format!("pools within themselves: {}", way.join(" > "));
            note(pool, way[1], found, "pools of a tree");
        }
    }
}

/// Notes tiers whose writes would stay on a side that survives the loss of fewer volumes than the other one.
pub(super) fn check_losses(root: &Section<'_>, pools: &[Pool]) {
    // A mistake already.
    if pools.iter().any(|pool| way(pool, &pool.name, pools).is_some()) {
        return;
    }
    for pool in pools {
        let Some(tier) = pool.tier.as_ref().filter(|tier| tier.writes == Writes::Back) else {
            continue;
        };
        let [fast, slow] = [&tier.fast, &tier.slow].map(|side| Pool::losses(side, pools));
        if fast < slow {
            let found = format!(
                "\"back\", where {} survives the loss of {fast} volumes and {} of {slow}",
                tier.fast, tier.slow
            );
            let accepted = format!(
                "with \"back\" a fast pool with copies = {}; or \"through\"; or \"back-unsafe\", if writes may be lost \
                 with the fast side",
                slow + 1
            );
            root.note(root.at("pool", &pool.name, "writes").mistaken(found, accepted));
        }
    }
}

/// The way from a pool down to a member of this name, if there is one; from a pool that is within itself, back to it.
fn way<'a>(from: &'a Pool, to: &str, pools: &'a [Pool]) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![&*from.name]];
    while let Some(way) = ways.pop() {
        let last = way.last().expect("a way begins with its first pool");
        let Some(pool) = pools.iter().find(|pool| pool.name == **last) else { continue };
        for member in &pool.volumes {
            let mut next = way.clone();
            next.push(member);
            if member == to {
                return Some(next);
            }
            // A circle that does not lead to `to` is found from its own pools.
            if !way.contains(&&**member) {
                ways.push(next);
            }
        }
    }
    None
}
