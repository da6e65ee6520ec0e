//! Volumes without a settings file: a directory, the contract it was bought with, and a gate.
//!
//! ```text
//! Volume (what to open) ── Devices::open ──> Device: gate -> [simulate] -> deadline -> reserve -> directory
//! ```
//!
//! A [`Volume`] is a recipe and opens nothing. [`Devices`] are open volumes; a [`Pool`] is open devices and other pools as
//! one, for the stores on it. The devices of a tree of pools are found from its root: [`Devices::here`]. A [`CacheTier`] is a
//! member of a pool that puts a fast volume before a slow one.

mod hint_file;
mod learned;
mod pool;
mod tier;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::pool::scrubber::Position;
use ::pool::spread::{LeftOut, Opening, Spread};
use ::pool::{Member, PoolId};
use parking_lot::RwLock;
use policy::budget::Share;
use policy::contract::spec::{Bought, SpecError};
use policy::contract::{Contract, catalogue};
use policy::estimate::IoKind;
use policy::sched::Policy;
use policy::units::Bytes;
use volume::dir::{BlockDevice, Dir, DirOptions, SyncCost};
use volume::io_pool::{IoPool, THREADS};
use volume::layer::deadline::{self, Deadline};
use volume::layer::gate::Gate;
use volume::layer::reserve::Reserve;
use volume::layer::simulate::{Count, Simulate};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Name};

use self::hint_file::HintFile;
use self::learned::LearnedFile;
pub use self::pool::{Copies, Pool, PoolBuilder, Side};
pub use self::tier::{CacheTier, Figures as TierFigures, Promotion, Tiering, Writes};
use crate::{Error, Result};

/// The name of the file in a volume's directory that says how far the scrub of its pool has come.
const SCRUB_FILE: &str = "plimsoll.scrub";
/// The writes of a file system's journal at a sync that changed a length, where nothing measures them: those of ext4, the most
/// of the file systems that were measured.
const JOURNAL_OPS_UNKNOWN: u64 = 2;
/// The prefix of the names of a device's reserve.
const RESERVE: &str = "device-";
/// Its opening lists every object, so it may take as many limits as this.
const RESERVE_LIMITS: u32 = 6;

/// The contract called `name` in the catalogue, as sold without extras. For extras, use [`policy::contract::spec`].
///
/// # Errors
/// There is none of that name, and the message lists all; or its limits depend on a size.
pub fn contract(name: &str) -> std::result::Result<Contract, SpecError> {
    catalogue::find(name)?.contract(None, Bought::default())
}

/// A volume to be opened.
#[derive(Clone)]
pub struct Volume {
    name: String,
    home: Home,
    contract: Contract,
    /// The limits of the gate, if they are lower.
    at_most: Option<Contract>,
    share: Share,
    scheduler: Policy,
    simulate: bool,
    adapt: Option<bool>,
    journal_ops: Option<u64>,
    timeout: Duration,
}

#[derive(Clone)]
enum Home {
    Directory(PathBuf),
    Other(Arc<dyn volume::Volume>),
}

impl Volume {
    /// The directory at `path`, on a mounted device that was bought with `contract`. One process has it at a time, as
    /// one volume. `name` is its name for people, in metrics and in the pool's manifest.
    pub fn directory(
        name: impl Into<String>,
        path: impl Into<PathBuf>,
        contract: Contract,
    ) -> Self {
        Self::new(name, Home::Directory(path.into()), contract)
    }

    /// A volume in memory, for tests. Its contents survive the store, as long as this or a clone exists.
    pub fn memory(name: impl Into<String>, contract: Contract) -> Self {
        let name = name.into();
        Self::other(&name, Mem::new(&name), contract)
    }

    /// Any volume, with any layers. Only a directory has room set aside for the work of stores: if this volume tells more free room
    /// than it has, as below a quota, a store that fills it refuses deletes, too, until there is room.
    pub fn other(
        name: impl Into<String>,
        volume: impl volume::Volume + 'static,
        contract: Contract,
    ) -> Self {
        Self::new(name, Home::Other(Arc::new(volume)), contract)
    }

    fn new(name: impl Into<String>, home: Home, contract: Contract) -> Self {
        Self {
            name: name.into(),
            home,
            contract,
            at_most: None,
            share: Share::default(),
            scheduler: Policy::default(),
            simulate: false,
            adapt: None,
            journal_ops: None,
            timeout: deadline::LIMIT,
        }
    }

    /// Throttles it as its provider would: for development without a cloud. A missing directory is created; that of a
    /// real volume is not, since its mount may have failed.
    #[must_use]
    pub fn simulated(mut self) -> Self {
        self.simulate = true;
        self
    }

    /// Uses no more than `contract`, although more was bought: its part of what the machine allows all its volumes, see
    /// [`policy::contract::instance`]. A simulated provider grants what was bought.
    #[must_use]
    pub fn at_most(mut self, contract: Contract) -> Self {
        self.at_most = Some(contract);
        self
    }

    /// Uses this share of the contract. Default: rho 0.98, beta 0.9; see [`Share::new`].
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// The scheduler of its gate. Default: [`Policy::Tags`]; see there for the others.
    #[must_use]
    pub fn scheduler(mut self, policy: Policy) -> Self {
        self.scheduler = policy;
        self
    }

    /// Whether to use less than its share while it gives less than its contract: see [`policy::estimate`]. Default:
    /// yes, except for a simulated volume. That has no other users, and the delays of a busy machine would pass for the
    /// provider's.
    #[must_use]
    pub fn adapt(mut self, adapt: bool) -> Self {
        self.adapt = Some(adapt);
        self
    }

    /// Charges this many operations for the file system's journal at each sync of a changed length. Default: as many as
    /// are measured when a directory is opened, and 2 where nothing can be measured; 0 for a volume that is simulated or no
    /// directory.
    #[must_use]
    pub fn journal_ops(mut self, ops: u64) -> Self {
        self.journal_ops = Some(ops);
        self
    }

    /// How long the device may take for a call before the call fails, and the volume counts as one that does not
    /// answer: see [`volume::layer::deadline`]. Default: [`deadline::LIMIT`]. For a [`Volume::other`] it holds for calls
    /// that do not block the thread that polls them.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the directory on a thread of its own, so that a device that hangs delays this by the limit only.
    async fn open_directory(
        &self,
        path: &Path,
        clock: &Clock,
    ) -> volume::Result<(Reserve, SyncCost)> {
        let (name, limit) = (&self.name, self.timeout);
        let io = IoPool::apart(THREADS);
        let options = DirOptions { create: self.simulate, io: io.clone(), ..DirOptions::default() };
        let (path, is_simulated) = (path.to_path_buf(), self.simulate);
        let opening = io.run(move || {
            let directory = Dir::open(path, options)?;
            // A simulated provider counts what the gate lets through, without a file system.
            let sync = if is_simulated { SyncCost::default() } else { directory.sync_cost() };
            Ok((Arc::new(directory), sync))
        });
        let (directory, sync) = deadline::opened(name, limit, clock, opening).await?;
        let opening = Reserve::open(directory, RESERVE);
        let reserve = deadline::opened(name, RESERVE_LIMITS * limit, clock, opening).await?;
        Ok((reserve, sync))
    }

    fn open(&self, clock: &Clock) -> volume::Result<Device> {
        let (mut reserve, mut sync) = (None, SyncCost::default());
        let mut journal_ops = self.journal_ops.unwrap_or_default();
        let device: Arc<dyn volume::Volume> = match &self.home {
            Home::Directory(path) => {
                let (backed, cost) = block_on(self.open_directory(path, clock))?;
                sync = cost;
                journal_ops = self.journal_ops_of(sync.journal_ops);
                backed.hide();
                reserve = Some(backed.clone());
                Arc::new(backed)
            }
            Home::Other(volume) => Arc::clone(volume),
        };
        let limited = Deadline::new(device, &self.name, self.timeout, clock.clone());
        let below = match &self.home {
            Home::Directory(path) if !self.simulate => BlockDevice::of(path),
            _ => None,
        };
        let io_max = below.as_ref().and_then(BlockDevice::request_bytes_max);
        let contract = &as_sent(&self.contract, io_max);
        if let Some(below) = below.as_ref().filter(|_| *contract != self.contract) {
            self.say_split(contract, below);
        }
        let provider = self.simulate.then(|| {
            let device: Arc<dyn volume::Volume> = Arc::new(limited.clone());
            Arc::new(Simulate::new(device, contract, clock.clone(), any_number()))
        });
        let device: Arc<dyn volume::Volume> = match &provider {
            Some(provider) => Arc::clone(provider) as _,
            None => Arc::new(limited.clone()),
        };
        let below = below.and_then(|below| Some((below.ios()?, below)));
        let (name, share, policy) = (&self.name, self.share, self.scheduler);
        let gate = Gate::with_policy(device, name, contract, share, policy, clock.clone());
        self.at_most.iter().for_each(|most| gate.set_at_most(&as_sent(most, io_max)));
        gate.set_journal_ops(journal_ops);
        gate.set_writes_ahead(sync.saves_in_place);
        gate.set_adapt(self.adapt.unwrap_or(!self.simulate));
        sync.takes.into_iter().for_each(|takes| gate.resume_usual(IoKind::Sync, takes));
        let (learned, scrub) = match &self.home {
            Home::Directory(path) => {
                (Some(LearnedFile::open(path, &gate)), Some(HintFile::open(path, SCRUB_FILE)))
            }
            Home::Other(_) => (None, None),
        };
        Ok(Device {
            name: self.name.clone(),
            gate: Arc::new(gate),
            limited,
            provider,
            reserve,
            below,
            io_max,
            learned,
            scrub,
        })
    }

    /// Says that `below` gets smaller I/Os than the contract counts as one.
    fn say_split(&self, contract: &Contract, below: &BlockDevice) {
        let (sold, sent) = (self.contract.op_bytes_max, contract.op_bytes_max);
        let raise = |name| format!("echo {} > /sys/block/{name}/queue/max_sectors_kb", sold / 1024);
        let mend: Vec<_> = below.splitting(sold).into_iter().map(raise).collect();
        tracing::warn!(
            volume = self.name,
            "an operation of the contract moves up to {}, and the kernel splits I/Os at {}, so each part is charged: to \
             mend it, `{}` and restart",
            Bytes(sold),
            Bytes(sent),
            mend.join("; "),
        );
    }

    /// What a sync of a directory is charged beside its data: what the settings say, or what was measured.
    fn journal_ops_of(&self, measured: Option<u64>) -> u64 {
        let known = self.journal_ops.or(measured);
        if known.is_none() && self.simulate {
            return 0;
        }
        known.unwrap_or_else(|| {
            tracing::warn!(
                volume = self.name,
                "what the file system writes at a sync beside the data is unknown here (btrfs, overlays, zfs, a full \
                 or a busy device): {JOURNAL_OPS_UNKNOWN} operations are charged, as ext4 needs them; `journal_ops` in \
                 the settings of the volume says it better"
            );
            JOURNAL_OPS_UNKNOWN
        })
    }
}

/// An open volume behind its gate.
pub struct Device {
    name: String,
    gate: Arc<Gate<Arc<dyn volume::Volume>>>,
    /// The limit on its calls, below the gate.
    limited: Deadline,
    /// The simulated provider, if there is one.
    provider: Option<Arc<Simulate<Arc<dyn volume::Volume>>>>,
    /// The reserve in its directory, if it has one.
    reserve: Option<Reserve>,
    /// What it was found to give, in its directory if it has one.
    learned: Option<LearnedFile>,
    /// How far the scrub of its pool has come, in its directory if it has one.
    scrub: Option<HintFile>,
    /// The block device below, if the kernel counts its I/Os, and their number when this was opened.
    below: Option<(u64, BlockDevice)>,
    /// The largest I/O that the kernel sends there.
    io_max: Option<u64>,
}

impl Device {
    /// Its name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The gate, which keeps it to its contract and counts what was spent.
    #[must_use]
    pub fn gate(&self) -> &Gate<Arc<dyn volume::Volume>> {
        &self.gate
    }

    /// The volume, behind its gate, for stores of the caller's own.
    #[must_use]
    pub fn volume(&self) -> Arc<dyn volume::Volume> {
        Arc::clone(&self.gate) as _
    }

    /// Bytes reserved on it for work that frees room; see [`Device::set_reserve`].
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserve.as_ref().map_or(0, Reserve::held)
    }

    /// Reserves this many bytes for the work of stores themselves, where the file system can: no other program takes
    /// them. Further calls restore what was used meanwhile. Simulated volumes, and those that are no directories,
    /// reserve nothing.
    pub fn set_reserve(&self, bytes: u64) {
        // Directories of simulated volumes mostly share one device with everything else.
        if let Some(reserve) = self.reserve.as_ref().filter(|_| self.provider.is_none()) {
            let name = Name::new(RESERVE).expect("it has only letters and a dash");
            let approach = || {
                let reserve = reserve.clone();
                self.limited.run(&name, async move { reserve.approach(bytes).await })
            };
            // A piece that cannot be reserved now is reserved later.
            while block_on(approach()).unwrap_or(false) {}
        }
    }

    /// How long its device may take for a call: see [`Volume::timeout`].
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.limited.limit()
    }

    /// How long its device has not answered, and calls to it fail at once; `None` while it serves.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        self.limited.silent_for()
    }

    /// Writes and syncs a page, through the gate, to see whether the device answers. It is ready within the device's
    /// limit, and the time that the gate takes.
    ///
    /// # Errors
    /// Those of the volume.
    pub async fn try_out(&self) -> volume::Result<()> {
        deadline::try_out(&*self.gate).await
    }

    /// Writes what its gate has learned of it to its directory, if that changed: see [`Volume::adapt`]. The next start
    /// begins with it.
    pub fn keep_learned(&self) {
        if let Some(file) = &self.learned {
            file.keep(&self.gate);
        }
    }

    /// How far the scrub of its pool has come, as its directory says.
    pub(crate) fn scrub_position(&self) -> Option<Position> {
        Position::parse(&self.scrub.as_ref()?.text())
    }

    /// Writes how far the scrub of its pool has come to its directory, for the next start.
    pub(crate) fn keep_scrub_position(&self, position: &Position) {
        if let Some(file) = &self.scrub {
            file.keep(position.show());
        }
    }

    fn member(&self) -> Member {
        Member::new(&*self.name, Arc::clone(&self.gate))
    }

    /// The requests that the simulated provider has seen, if there is one.
    #[must_use]
    pub fn seen_by_provider(&self) -> Option<Count> {
        self.provider.as_ref().map(|provider| provider.meter().total)
    }

    /// The reads and writes that the kernel counted on its block device since it was opened, whoever asked for them.
    /// `None` if it is simulated, is no directory, or lies on no block device that the kernel counts for.
    #[must_use]
    pub fn seen_by_kernel(&self) -> Option<u64> {
        let (before, below) = self.below.as_ref()?;
        Some(below.ios()?.saturating_sub(*before))
    }

    /// Applies a new contract from now on. A simulated provider changes first, with full buckets, so that requests that
    /// the gate admits do not overdraw them.
    pub fn set_contract(&self, contract: &Contract) {
        self.set_contract_at_most(contract, contract);
    }

    /// As [`Device::set_contract`], but uses no more than `most` of it: see [`Volume::at_most`].
    pub fn set_contract_at_most(&self, contract: &Contract, most: &Contract) {
        if let Some(provider) = &self.provider {
            provider.set_contract(contract);
        }
        let [contract, most] = [contract, most].map(|terms| as_sent(terms, self.io_max));
        self.gate.set_contract_at_most(&contract, &most);
    }

    /// Uses no more than `most` from now on. The contract that was bought stays.
    pub fn set_at_most(&self, most: &Contract) {
        self.gate.set_at_most(&as_sent(most, self.io_max));
    }
}

/// What a volume's gate goes by where the kernel sends the device I/Os of at most `io_max` bytes.
fn as_sent(contract: &Contract, io_max: Option<u64>) -> Contract {
    contract.clone().with_ios_of(io_max.unwrap_or(u64::MAX))
}

/// The open volumes of a pool, those of the pools that are its members, and those that cannot be used. Clones are handles
/// to the same list, which changes while the pool is open.
#[derive(Clone)]
pub struct Devices(Arc<RwLock<List>>);

#[derive(Default)]
struct List {
    /// Those that are members themselves.
    here: Vec<Arc<Device>>,
    /// The members that are pools, by name.
    pools: Vec<(String, Devices)>,
    /// Of a tier: those that only hold a cache of the others.
    cache: Option<Devices>,
    away: Vec<Away>,
    /// How often `here` has changed.
    changes: u64,
}

/// A volume that could not be opened, or that its pool was opened without. Displays a message for people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Away {
    /// Its name for people.
    pub name: String,
    /// Why it cannot be used.
    pub why: String,
}

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {} is away: {}", self.name, self.why)
    }
}

impl Devices {
    /// Opens `volumes`. It blocks for some I/O.
    ///
    /// # Errors
    /// `Volume`: another process has one of them, or it cannot be used. `AllAway`: none is available.
    pub fn open(volumes: &[Volume], clock: &Clock) -> Result<Self> {
        let opened = Self::open_below(volumes, Vec::new(), Vec::new(), clock)?;
        if opened.here().is_empty() && !volumes.is_empty() {
            return Err(Error::AllAway(opened.away().iter().map(Away::to_string).collect()));
        }
        Ok(opened)
    }

    /// The same for a pool that also has these open pools as members, and these that could not be opened; all volumes may
    /// be away.
    pub(crate) fn open_below(
        volumes: &[Volume],
        pools: Vec<(String, Self)>,
        away: Vec<Away>,
        clock: &Clock,
    ) -> Result<Self> {
        let mut list = List { pools, away, ..List::default() };
        for volume in volumes {
            let name = &volume.name;
            match volume.open(clock) {
                Ok(device) => list.here.push(Arc::new(device)),
                Err(error) if error.kind().is_away() => {
                    list.away.push(Away { name: name.clone(), why: error.to_string() });
                }
                Err(source) => return Err(Error::Volume { name: name.clone(), source }),
            }
        }
        Ok(Self(Arc::new(RwLock::new(list))))
    }

    /// Those of a tier: `self` is its slow side, `cache` its fast one.
    pub(crate) fn with_cache(self, cache: Self) -> Self {
        self.0.write().cache = Some(cache);
        self
    }

    /// The volume of a cache: whatever is wrong with it, it is away.
    pub(crate) fn open_cache(volume: &Volume, clock: &Clock) -> Self {
        let mut list = List::default();
        match volume.open(clock) {
            Ok(device) => list.here.push(Arc::new(device)),
            Err(error) => {
                list.away.push(Away { name: volume.name.clone(), why: error.to_string() });
            }
        }
        Self(Arc::new(RwLock::new(list)))
    }

    /// The available ones, also below members that are pools, and those that only hold a cache. A returned handle keeps its
    /// volume open, even when the volume leaves the pool.
    #[must_use]
    pub fn here(&self) -> Vec<Arc<Device>> {
        let list = self.0.read();
        let below = list.pools.iter().flat_map(|(_, devices)| devices.here());
        let cache = list.cache.iter().flat_map(Self::here);
        list.here.iter().cloned().chain(below).chain(cache).collect()
    }

    /// Those of [`Devices::here`] that hold the pool's objects, and no cache of them: their room and rates are the pool's.
    #[must_use]
    pub fn holding(&self) -> Vec<Arc<Device>> {
        let list = self.0.read();
        let below = list.pools.iter().flat_map(|(_, devices)| devices.holding());
        list.here.iter().cloned().chain(below).collect()
    }

    /// The available ones that are members themselves.
    pub(crate) fn own(&self) -> Vec<Arc<Device>> {
        self.0.read().here.clone()
    }

    /// The available volumes below the member of this name: the volume itself, all below a pool, or those of the slow side of
    /// a tier.
    #[must_use]
    pub fn below(&self, member: &str) -> Vec<Arc<Device>> {
        let list = self.0.read();
        let own = list.here.iter().filter(|device| device.name() == member).cloned();
        let pools = list.pools.iter().filter(|(name, _)| name == member);
        own.chain(pools.flat_map(|(_, devices)| devices.holding())).collect()
    }

    /// The available volume of this name, also below members that are pools.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Device>> {
        self.here().into_iter().find(|device| device.name() == name)
    }

    /// The names of the pools on the way to each volume that is available, outermost first.
    #[must_use]
    pub fn places(&self) -> Vec<(Vec<String>, Arc<Device>)> {
        let list = self.0.read();
        let own = list.here.iter().map(|device| (Vec::new(), Arc::clone(device)));
        let below = list.pools.iter().flat_map(|(name, devices)| {
            devices.places().into_iter().map(|(mut way, device)| {
                way.insert(0, name.clone());
                (way, device)
            })
        });
        let cache = list.cache.iter().flat_map(Self::places);
        own.chain(below).chain(cache).collect()
    }

    /// The unavailable ones, also below members that are pools.
    #[must_use]
    pub fn away(&self) -> Vec<Away> {
        let list = self.0.read();
        let below = list.pools.iter().flat_map(|(_, devices)| devices.away());
        let cache = list.cache.iter().flat_map(Self::away);
        list.away.iter().cloned().chain(below).chain(cache).collect()
    }

    /// A number that changes whenever volumes are added or removed.
    pub(crate) fn changes(&self) -> u64 {
        let list = self.0.read();
        let below = list.pools.iter().map(|(_, devices)| devices).chain(&list.cache);
        list.changes + below.map(Self::changes).sum::<u64>()
    }

    /// Opens a volume of this list anew, in place of the handle that failed.
    ///
    /// # Errors
    /// `Volume`: it cannot be used. It is away then.
    pub(crate) fn reopen(&self, volume: &Volume, clock: &Clock) -> Result<Arc<Device>> {
        let name = volume.name().to_owned();
        self.forget(&name);
        let opened = volume.open(clock);
        let mut list = self.0.write();
        list.changes += 1;
        match opened {
            Ok(device) => {
                let device = Arc::new(device);
                list.here.push(Arc::clone(&device));
                Ok(device)
            }
            Err(source) => {
                list.away.push(Away { name: name.clone(), why: source.to_string() });
                Err(Error::Volume { name, source })
            }
        }
    }

    /// Writes down what the gates learned, of those that are members themselves, and of a cache.
    pub(crate) fn keep_learned(&self) {
        let list = self.0.read();
        list.here.iter().for_each(|device| device.keep_learned());
        list.cache.iter().for_each(Self::keep_learned);
    }

    /// Opens another volume, and adds it to `pool`.
    pub(crate) fn add(&self, volume: &Volume, pool: &Spread, clock: &Clock) -> Result<()> {
        let opened = volume.open(clock);
        let named = |source| Error::Volume { name: volume.name.clone(), source };
        let device = Arc::new(opened.map_err(named)?);
        block_on(pool.add_volume(device.member())).map_err(Error::Pool)?;
        let mut list = self.0.write();
        list.here.push(device);
        list.changes += 1;
        Ok(())
    }

    /// Drops a volume that left the pool, and closes its gate.
    pub(crate) fn forget(&self, name: &str) {
        let mut list = self.0.write();
        list.away.retain(|away| away.name != name);
        let left = list.here.iter().position(|device| device.name() == name);
        if let Some(at) = left {
            let device = list.here.remove(at);
            device.set_reserve(0);
            device.gate.close();
            list.changes += 1;
        }
    }

    /// The available volumes as members of a pool, without pools that are.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.0.read().here.iter().map(|device| device.member()).collect()
    }

    /// Opens the pool on those that are members themselves and on the pools `below`, without those whose header cannot be read now or is damaged, which are away from then on;
    /// creates it if all of them are available and blank. Blocks for as long as a recovery takes.
    ///
    /// # Errors
    /// As [`Spread::open`].
    pub fn open_pool(&self, below: Vec<Member>, opening: Opening) -> Result<Spread> {
        let is_away = !self.0.read().away.is_empty();
        let opening = if is_away {
            opening.allow_away()
        } else {
            let id = u128::from(any_number()) << 64 | u128::from(any_number());
            opening.allow_failing().create_if_missing(PoolId(id))
        };
        let pool = self.open_as(below, opening)?;
        for LeftOut { label, why } in pool.left_out() {
            self.leave_out(label, why.to_string());
        }
        Ok(pool)
    }

    /// Counts a volume as away that the pool does not use, and closes its gate.
    fn leave_out(&self, name: &str, why: String) {
        let mut list = self.0.write();
        if let Some(at) = list.here.iter().position(|device| device.name() == name) {
            list.here.remove(at).gate.close();
        } else if let Some(at) = list.pools.iter().position(|(pool, _)| pool == name) {
            list.pools.remove(at);
        } else {
            return;
        }
        list.away.push(Away { name: name.to_owned(), why });
        list.changes += 1;
    }

    /// The same despite losses: see [`Opening::salvage`].
    ///
    /// # Errors
    /// As [`Spread::open`].
    pub fn salvage_pool(&self, below: Vec<Member>, opening: Opening) -> Result<Spread> {
        self.open_as(below, opening.allow_away().salvage())
    }

    fn open_as(&self, below: Vec<Member>, opening: Opening) -> Result<Spread> {
        let members = self.members().into_iter().chain(below).collect();
        block_on(Spread::open(members, opening)).map_err(Error::Pool)
    }

    /// Closes the gates of those that are members themselves, and of a cache.
    pub fn close(&self) {
        let list = self.0.read();
        for device in &list.here {
            device.keep_learned();
            device.gate.close();
        }
        list.cache.iter().for_each(Self::close);
    }
}

/// A number that differs from run to run and from call to call.
fn any_number() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_charged_what_is_known_of_its_journal_and_no_less_than_ext4_otherwise() {
        let volume = || Volume::directory("v", "/nowhere", Contract::unlimited());
        assert_eq!(volume().journal_ops_of(Some(1)), 1);
        assert_eq!(volume().journal_ops_of(None), JOURNAL_OPS_UNKNOWN);
        assert_eq!(volume().journal_ops(0).journal_ops_of(None), 0);
    }
}
