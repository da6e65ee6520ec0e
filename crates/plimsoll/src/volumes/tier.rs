//! An open cache tier: a slow side with a cache of its hot ranges on a fast one, and the thread that fills it.
//!
//! Nothing that happens to the fast side keeps the tier from opening or from serving: it goes on with the slow side
//! alone, and [`CacheTier::problem`] says why.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use policy::cache::Kind;
use policy::units::{Bytes, MIB};
pub use pool::tier::Figures;
pub use pool::tier::Promotion;
use pool::tier::{Options, Tier, Writes as FirstTo};
use volume::heartbeat::{Heartbeat, TaskHealth};
use volume::task::block_on;
use volume::{Clock, ErrorKind};

use super::{Devices, Volume, any_number};
use crate::stop::Stop;
use crate::{Error, Result};

/// The object that holds what is cached. Its length is what an earlier run used.
const SLAB: &str = "tier.slab";

/// A tier takes this part of the free bytes of a new fast side, 9/10: file systems slow down when they are full.
const FREE_SHARE: (u64, u64) = (9, 10);

/// The least bytes of a tier: two units.
const BYTES_MIN: u64 = 2 * MIB;

/// A tier that wrote no checkpoint for so long hangs: they are due every 30 s.
const CHECKPOINT_MAX: Duration = Duration::from_secs(150);

const EVERY: Duration = Duration::from_secs(1);

/// Seconds between two writes of what the gates learned.
const LEARNED_EVERY: u32 = 60;

/// How a tier uses its fast side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tiering {
    size: Option<u64>,
    eviction: Kind,
    promotion: Promotion,
    writes: Writes,
}

/// Where the writes of a tier go first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Writes {
    /// To the slow side: the fast one may be lost at any time.
    #[default]
    Through,
    /// Writes of block devices stay on the fast side until they are flushed. An opening refuses a fast side that survives the
    /// loss of fewer volumes than the slow one.
    Back,
    /// The same with any fast side: its loss loses what is not flushed.
    BackUnsafe,
}

impl Writes {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Through, Self::Back, Self::BackUnsafe];

    /// The word for it in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Back => "back",
            Self::BackUnsafe => "back-unsafe",
        }
    }

    const fn first_to(self) -> FirstTo {
        match self {
            Self::Through => FirstTo::Through,
            Self::Back | Self::BackUnsafe => FirstTo::Back,
        }
    }
}

impl Default for Tiering {
    fn default() -> Self {
        let eviction = Options::new(0, 0).eviction;
        let (promotion, writes) = Default::default();
        Self { size: None, eviction, promotion, writes }
    }
}

impl Tiering {
    /// Takes this many bytes of the fast side. Default: as many as an earlier opening took; nine tenths of what is free on
    /// a new one. Another size empties the cache.
    #[must_use]
    pub const fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Which units leave the fast side first. Default: Clock2Q+.
    #[must_use]
    pub const fn eviction(mut self, policy: Kind) -> Self {
        self.eviction = policy;
        self
    }

    /// Which reads install what they read. Default: lazy, those of units that are read again and again, and none of a scan.
    #[must_use]
    pub const fn promotion(mut self, rule: Promotion) -> Self {
        self.promotion = rule;
        self
    }

    /// Where writes go first. Default: through, to the slow side.
    #[must_use]
    pub const fn writes(mut self, writes: Writes) -> Self {
        self.writes = writes;
        self
    }

    /// Whether the fast side must survive the loss of as many volumes as the slow one.
    pub(super) const fn needs_as_many(&self) -> bool {
        matches!(self.writes, Writes::Back)
    }

    /// Whether the fast side has the only copy of some bytes.
    pub(super) const fn keeps_writes(&self) -> bool {
        !matches!(self.writes, Writes::Through)
    }
}

/// The fast side of a tier.
#[expect(clippy::large_enum_variant, reason = "there is one of them for each tier")]
pub(super) enum Fast {
    /// A volume, in a list of its own, which is empty while it is away.
    Volume(Volume),
    /// A pool of this name, unless it could not be opened.
    Pool(String, Option<Arc<dyn volume::Volume>>),
}

impl Fast {
    fn name(&self) -> &str {
        match self {
            Self::Volume(volume) => volume.name(),
            Self::Pool(name, _) => name,
        }
    }
}

/// An open tier. Reads of what the fast side has cost the slow side nothing. Every acknowledged change is on the slow side as if
/// there were no tier, unless [`Tiering::writes`] keeps some back.
pub struct CacheTier {
    filling: Filling,
    tier: Arc<Tier>,
    name: String,
    slow: String,
    fast: Fast,
    /// Bytes of the fast side; `None` if it was away at the opening, and the caller named no size.
    bytes: Option<u64>,
    keeps_writes: bool,
    /// The volumes of the fast side.
    cache: Devices,
    clock: Clock,
    /// Why the fast side is not in use, where that was an opening or an administrator.
    why: Mutex<Option<String>>,
}

impl CacheTier {
    /// Opens the tier called `name` over `slow`, with the volumes of `fast` in `cache`. `devices` are those of both sides.
    pub(super) fn open(
        name: String,
        (slow_name, slow): (String, Arc<dyn volume::Volume>),
        fast: Fast,
        options: Tiering,
        devices: &Devices,
        cache: Devices,
        clock: &Clock,
    ) -> Result<Self> {
        let (volume, mut why) = match volume_of(&fast, &cache) {
            Some(volume) => (Some(volume), None),
            None => (None, cache.away().first().map(ToString::to_string)),
        };
        let bytes = match (options.size, &volume) {
            (Some(bytes), _) => Some(bytes),
            (None, None) => None,
            (None, Some(volume)) => match block_on(bytes_of(&**volume)) {
                Ok(bytes) if bytes >= BYTES_MIN => Some(bytes),
                Ok(_) => {
                    why = Some("there is no room on it".into());
                    None
                }
                Err(error) => {
                    why = Some(error.to_string());
                    None
                }
            },
        };
        let volume = volume.filter(|_| bytes.is_some());
        let opened = |fast| {
            let promotion = options.promotion;
            let options = Options {
                eviction: options.eviction,
                writes: options.writes.first_to(),
                // Also once writes go through: what was kept back before is still there.
                refuses_loss: options.writes != Writes::BackUnsafe,
                ..Options::new(bytes.unwrap_or(BYTES_MIN).max(BYTES_MIN), any_number())
            };
            let admit = promotion.admit(&options, clock.now());
            block_on(Tier::open(Arc::clone(&slow), fast, options, admit, clock))
        };
        let tier = match opened(volume.clone()) {
            // The cache of another tier.
            Err(error) if volume.is_some() && error.kind() == ErrorKind::Fenced => {
                why = Some(error.to_string());
                opened(None)
            }
            opened => opened,
        };
        let tier = tier.map_err(|error| match error.kind() {
            ErrorKind::Unavailable => {
                let fast = fast.name();
                error.within(format!(
                    "tier {name} does not open without {fast} (writes = \"back-unsafe\" opens it, and what is lost reads as errors)"
                ))
            }
            _ => error,
        });
        let tier = Arc::new(tier.map_err(Error::Pool)?);
        if let Some(why) = &why {
            tracing::warn!("tier {name} is opened without {}: {why}", fast.name());
        }
        let filling = Filling::start(&name, &tier, devices, clock);
        let (slow, clock, why) = (slow_name, clock.clone(), Mutex::new(why));
        let keeps_writes = options.keeps_writes();
        Ok(Self { filling, tier, name, slow, fast, bytes, keeps_writes, cache, clock, why })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its fast side.
    #[must_use]
    pub fn fast(&self) -> &str {
        self.fast.name()
    }

    /// The name of its slow side.
    #[must_use]
    pub fn slow(&self) -> &str {
        &self.slow
    }

    /// What it counted since the opening, and what is cached now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.tier.figures()
    }

    /// The bytes of the fast side that it may take; `None` while they are unknown.
    #[must_use]
    pub const fn size(&self) -> Option<u64> {
        self.bytes
    }

    /// The volumes of its fast side.
    #[must_use]
    pub const fn cache(&self) -> &Devices {
        &self.cache
    }

    /// Whether writes may stay on the fast side.
    #[must_use]
    pub const fn keeps_writes(&self) -> bool {
        self.keeps_writes
    }

    /// Whether the fast side is in use.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.tier.is_attached()
    }

    /// Why the fast side is not in use, and what to do, for people; `None` if it is.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if self.is_attached() {
            return None;
        }
        let (name, fast, slow) = (&self.name, self.fast(), &self.slow);
        let why = self.why.lock().clone();
        let why = why.unwrap_or_else(|| format!("{fast} failed: the log says how"));
        let lost = if self.figures().stale_bytes == 0 { "Nothing is lost; " } else { "" };
        let way = match &self.fast {
            Fast::Volume(_) => {
                format!("`plimsoll tier attach {name}` takes {fast} in use again, empty")
            }
            Fast::Pool(..) => format!(
                "once its volumes answer, `plimsoll tier attach {name}` takes {fast} in use again, empty; if they are new ones, \
                 restart the server"
            ),
        };
        Some(format!(
            "tier {name}: {slow} serves all reads, as {fast} is not in use: {why}. {lost}{way}"
        ))
    }

    /// Objects of the slow side of which bytes were lost with a fast side, and how many, by name: reads of these bytes fail
    /// until they are written.
    #[must_use]
    pub fn stale(&self) -> Vec<(volume::Name, u64)> {
        self.tier.stale()
    }

    /// What keeps dirty bytes on the fast side, and what to do, for people; `None` if flushes succeed.
    #[must_use]
    pub fn unflushed(&self) -> Option<String> {
        let (units, why) = self.tier.unflushed()?;
        let (name, fast) = (&self.name, self.fast());
        Some(format!(
            "tier {name}: dirty bytes of {units} units stay on {fast}, as their flush failed: {why}. `plimsoll tier flush {name}` \
             tries again at once"
        ))
    }

    /// The volume as a member of a pool.
    pub(super) fn volume(&self) -> Arc<Tier> {
        Arc::clone(&self.tier)
    }

    pub(super) fn health(&self) -> TaskHealth {
        self.filling.heartbeat.health()
    }

    /// Takes the fast side in use, empty. A volume is opened again, so its directory may be a new one. One that is in
    /// use and does not answer any more is given up first.
    ///
    /// # Errors
    /// `Pool`, `Invalid`: the fast side is in use and answers; it is a pool that does not answer, see the message; or the tier does not know how many bytes to take: set its size
    /// and open it again. `Pool`, `Fenced`: it is the cache of another tier: empty it. `Volume`: it cannot be opened.
    pub fn attach(&self) -> Result<()> {
        let refused = |what: String| Error::Pool(volume::Error::new(ErrorKind::Invalid, what));
        // Two calls exclude each other.
        let mut why = self.why.lock();
        let (name, fast) = (&self.name, self.fast());
        if self.bytes.is_none() {
            return Err(refused(format!(
                "tier {name}: {fast} was away at the start, and the settings do not say how much of it to use: set \
                 `size`, or restart the server"
            )));
        }
        let answering = volume_of(&self.fast, &self.cache);
        let answering = answering.filter(|fast| block_on(fast.space()).is_ok());
        if self.is_attached() {
            if answering.is_some() {
                return Err(refused(format!("tier {name}: {fast} is in use already")));
            }
            let dirty = self.figures().dirty_bytes;
            if dirty > 0 {
                return Err(refused(format!(
                    "tier {name}: {} are only on {fast}, which does not answer: bring it back, or give them up by `plimsoll tier \
                     detach {name} --lost`",
                    Bytes(dirty)
                )));
            }
            block_on(self.tier.detach()).map_err(Error::Pool)?;
        }
        let volume = match (&self.fast, answering) {
            // It was detached, and is open still.
            (_, Some(volume)) => volume,
            (Fast::Volume(volume), None) => self.cache.reopen(volume, &self.clock)?.volume(),
            (Fast::Pool(pool, _), None) => {
                return Err(refused(format!(
                    "tier {name}: pool {pool} does not answer: bring its volumes back; if they were replaced by new ones, or \
                     the pool was away at the start, restart the server"
                )));
            }
        };
        block_on(self.tier.reattach(volume)).map_err(Error::Pool)?;
        *why = None;
        Ok(())
    }

    /// Writes everything back that is dirty at the call; durable on the slow side on return. Gives the bytes written since
    /// the call, also by the tier's own flushes.
    ///
    /// # Errors
    /// `Pool`: those of either side. The rest is as dirty as before, or stale if the fast side was lost.
    pub fn flush(&self) -> Result<u64> {
        let before = self.figures().flushed_bytes;
        block_on(self.tier.flush()).map_err(Error::Pool)?;
        Ok(self.figures().flushed_bytes - before)
    }

    /// Writes everything back, and gives up the fast side, whose contents never count again: every call goes to the slow side.
    ///
    /// # Errors
    /// `Pool`: what is dirty cannot be written back, and the fast side is in use still; or the slow side does not answer.
    pub fn detach(&self) -> Result<()> {
        let mut why = self.why.lock();
        let detached = block_on(self.tier.detach());
        if !self.is_attached() {
            *why = Some("it was detached by an administrator".into());
        }
        detached.map_err(|error| {
            let (name, fast, dirty) = (&self.name, self.fast(), self.figures().dirty_bytes);
            if dirty == 0 {
                return Error::Pool(error);
            }
            Error::Pool(error.within(format!(
                "tier {name}: {} are only on {fast}, which stays in use; `plimsoll tier detach {name} --lost` gives them up",
                Bytes(dirty)
            )))
        })
    }

    /// Gives up the fast side with all that is dirty: reads of it fail until it is written. Gives the bytes lost.
    ///
    /// # Errors
    /// `Pool`: the slow side does not answer. The fast one is given up all the same.
    pub fn lose(&self) -> Result<u64> {
        let mut why = self.why.lock();
        let before = self.figures().stale_bytes;
        let lost = block_on(self.tier.give_up());
        *why = Some("it was given up by an administrator".into());
        lost.map_err(Error::Pool)?;
        Ok(self.figures().stale_bytes.saturating_sub(before))
    }

    /// Stops the thread and writes down what is cached, for the next opening. Its volumes stay open.
    pub(super) fn close(self) {
        let Self { filling, tier, .. } = self;
        drop(filling);
        block_on(tier.close());
    }
}

/// The fast side as one volume, if it is here.
fn volume_of(fast: &Fast, cache: &Devices) -> Option<Arc<dyn volume::Volume>> {
    match fast {
        Fast::Volume(_) => cache.own().first().map(|device| device.volume()),
        Fast::Pool(_, volume) => volume.clone(),
    }
}

/// The bytes to take of a fast side: as many as before, or a part of what is free.
async fn bytes_of(fast: &dyn volume::Volume) -> volume::Result<u64> {
    let before = fast.list().await?.into_iter().find(|object| object.name.as_str() == SLAB);
    if let Some(slab) = before.filter(|slab| slab.len >= BYTES_MIN) {
        return Ok(slab.len);
    }
    let (part, of) = FREE_SHARE;
    Ok(fast.space().await?.free / of * part)
}

/// The thread that fills the fast side. Dropping this ends it.
struct Filling {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    heartbeat: Heartbeat,
}

impl Filling {
    fn start(name: &str, tier: &Arc<Tier>, devices: &Devices, clock: &Clock) -> Self {
        let stop = Arc::new(Stop::default());
        let heartbeat = Heartbeat::new(format!("filling tier {name}"), CHECKPOINT_MAX, clock);
        let (stopped, beating) = (Arc::clone(&stop), heartbeat.clone());
        let (tier, devices, clock) = (Arc::clone(tier), devices.clone(), clock.clone());
        let thread = std::thread::Builder::new()
            .name("tier".into())
            .spawn(move || {
                let rounds = async {
                    let (mut run, mut watch) =
                        (pin!(tier.run()), pin!(watch(&tier, &devices, &clock, &beating)));
                    poll_fn(|cx| {
                        let ended = run.as_mut().poll(cx).is_ready();
                        if ended || watch.as_mut().poll(cx).is_ready() {
                            return Poll::Ready(());
                        }
                        Poll::Pending
                    })
                    .await;
                };
                beating.supervise(|| block_on(stopped.or_end_of(rounds)));
            })
            .expect("the system has room for one more thread");
        Self { stop, thread: Some(thread), heartbeat }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic is reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

/// Takes each checkpoint for a completed round, and keeps what the gates learned.
async fn watch(tier: &Tier, devices: &Devices, clock: &Clock, heartbeat: &Heartbeat) {
    let (mut checkpoints, mut looks) = (0, 0_u32);
    loop {
        let written = tier.figures().checkpoints;
        if written != checkpoints || !tier.is_attached() {
            checkpoints = written;
            heartbeat.completed();
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LEARNED_EVERY) {
            devices.keep_learned();
        }
        clock.sleep(EVERY).await;
    }
}
