//! The extents of a device: which exist, and those that are open.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use volume::ranges::Ranges;
use volume::{Intent, IoBuf, IoBufMut, Name, Object, Result, Volume};

use super::pages::Incarnation;
use super::shape::{SLOT, Shape};
use super::sums::{Known, Sums};

/// The most objects of a device that are open and unused.
const OPEN_MAX: usize = 256;

/// A user's write waits for it.
const CREATE: Io = Io::new(Origin::UserWrite, Step::Data);

/// The extents of a device.
pub(super) struct Extents {
    volume: Arc<dyn Volume>,
    device: u32,
    shape: Shape,
    /// What their objects' names begin with.
    prefix: String,
    state: Mutex<State>,
    /// The numbers of extents that are being made or removed. Different extents share commits of the volume's journal.
    structure: Ranges,
    /// Locked while [`Extents::settle_names`] makes its object.
    settling_names: AsyncMutex<()>,
    incarnations: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    present: BTreeMap<u64, Incarnation>,
    open: HashMap<u64, Arc<Extent>>,
    /// Candidates to be closed, the next one first.
    queue: VecDeque<u64>,
}

/// An extent in use.
pub(super) struct Extent {
    pub(super) number: u64,
    pub(super) incarnation: Incarnation,
    /// Changes of its bytes under way.
    pub(super) changes: Ranges,
    name: Name,
    object: OnceLock<Arc<dyn Object>>,
    opening: AsyncMutex<()>,
    gone: AtomicBool,
}

impl Extents {
    /// Those in `present`.
    pub(super) fn new(
        volume: Arc<dyn Volume>,
        prefix: String,
        (device, shape): (u32, Shape),
        present: impl IntoIterator<Item = u64>,
        incarnations: Arc<AtomicU64>,
    ) -> Self {
        let mut state = State::default();
        for number in present {
            state.present.insert(number, incarnations.fetch_add(1, Ordering::Relaxed));
        }
        Self {
            volume,
            device,
            shape,
            prefix,
            state: Mutex::new(state),
            structure: Ranges::default(),
            settling_names: AsyncMutex::new(()),
            incarnations,
        }
    }

    /// The name of an extent's object.
    pub(super) fn name(prefix: &str, number: u64) -> Result<Name> {
        Name::new(&format!("{prefix}/{number:08x}"))
    }

    /// An extent, if it exists.
    pub(super) fn get(&self, number: u64) -> Result<Option<Arc<Extent>>> {
        let mut state = self.state.lock();
        let Some(&incarnation) = state.present.get(&number) else { return Ok(None) };
        if let Some(extent) = state.open.get(&number) {
            return Ok(Some(Arc::clone(extent)));
        }
        state.close_unused();
        let extent = Arc::new(Extent {
            number,
            incarnation,
            changes: Ranges::default(),
            name: Self::name(&self.prefix, number)?,
            object: OnceLock::new(),
            opening: AsyncMutex::new(()),
            gone: AtomicBool::new(false),
        });
        state.open.insert(number, Arc::clone(&extent));
        state.queue.push_back(number);
        Ok(Some(extent))
    }

    /// An extent, which is made if it does not exist, and whether it was. Durable on return.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn get_or_create(&self, number: u64) -> Result<(Arc<Extent>, bool)> {
        let mut is_new = false;
        loop {
            if let Some(extent) = self.get(number)? {
                return Ok((extent, is_new));
            }
            let _alone = self.structure.claim(number..number + 1).await;
            if self.is_present(number) {
                continue;
            }
            let name = Self::name(&self.prefix, number)?;
            if let Err(error) = self.create(&name, number).await {
                // What is left of it is removed at the next opening, too.
                if let Err(also) = self.volume.remove(&name).await {
                    tracing::debug!("{name}: what was made of it is not removed: {also}");
                }
                return Err(error);
            }
            let incarnation = self.incarnations.fetch_add(1, Ordering::Relaxed);
            self.state.lock().present.insert(number, incarnation);
            is_new = true;
        }
    }

    /// Makes an extent of zeros, with the pages that say so.
    async fn create(&self, name: &Name, number: u64) -> Result<()> {
        // Without its length: a directory would set the room for all of it aside.
        let intent = &Intent::IN_PLACE;
        let object = match self.volume.create(name, intent).await {
            // An earlier attempt left it.
            Err(error) if error.kind() == volume::ErrorKind::AlreadyExists => {
                self.volume.remove(name).await?;
                self.volume.create(name, intent).await?
            }
            made => made?,
        };
        let mut pages = IoBufMut::with_capacity((self.shape.regions * SLOT) as usize);
        for region in 0..self.shape.regions {
            let page =
                Sums::all(Known::Zeros).encode(self.device, number * self.shape.regions + region);
            pages.extend_from_slice(&page);
        }
        // This makes the object as long as it is ever going to be, so no later write changes its length.
        object.write_at(self.shape.extent(), pages.freeze(), CREATE).await?;
        object.sync(CREATE).await
    }

    /// Removes the extents of these that exist, each after all changes of it under way: their bytes are zeros. Durable after the
    /// next sync of the volume. They are removed together, and beside those of other calls, so that all share the writes of
    /// the volume's journal. If the call fails or is dropped, [`Extents::finish_removal`] has to end it.
    ///
    /// # Errors
    /// Those of the volume: each extent may be removed or not.
    pub(super) async fn remove(&self, numbers: &[u64], gone: impl Fn(Incarnation)) -> Result<()> {
        let removals = numbers.iter().map(async |&number| {
            let _alone = self.structure.claim(number..number + 1).await;
            match self.get(number)? {
                Some(extent) => self.remove_alone(&extent, &gone).await,
                None => Ok(()),
            }
        });
        join_all(removals).await.into_iter().collect()
    }

    /// Waits for the removal of an extent that [is gone](Extent::is_gone), and ends it if its call failed or was dropped.
    ///
    /// # Errors
    /// Those of the volume: try again.
    pub(super) async fn finish_removal(
        &self,
        number: u64,
        gone: impl Fn(Incarnation),
    ) -> Result<()> {
        let _alone = self.structure.claim(number..number + 1).await;
        match self.get(number)? {
            Some(extent) if extent.is_gone() => self.remove_alone(&extent, &gone).await,
            _ => Ok(()),
        }
    }

    /// The caller has claimed the extent's number in `structure`.
    async fn remove_alone(&self, extent: &Extent, gone: &impl Fn(Incarnation)) -> Result<()> {
        let _all = extent.changes.claim(0..self.shape.object()).await;
        // Readers that find it gone look for another one, which is made after this.
        extent.gone.store(true, Ordering::Release);
        match self.volume.remove(&extent.name).await {
            Ok(()) => {}
            Err(error) if error.kind() == volume::ErrorKind::NotFound => {
                self.settle_names().await?
            }
            // The next opening may find it removed. Reads and writes wait until the removal has ended.
            Err(error) => return Err(error),
        }
        let mut state = self.state.lock();
        state.present.remove(&extent.number);
        state.open.remove(&extent.number);
        drop(state);
        gone(extent.incarnation);
        Ok(())
    }

    /// An earlier attempt removed an extent, perhaps in the memory of this process only. An object that is made and synced after that
    /// makes the removal durable.
    async fn settle_names(&self) -> Result<()> {
        let _alone = self.settling_names.lock().await;
        let name = Name::new(&format!("{}/names", self.prefix))?;
        match self.volume.remove(&name).await {
            Err(error) if error.kind() != volume::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let byte = IoBuf::from(&[0][..]);
        self.volume.write_whole(&name, &Intent::DATA, byte, CREATE).await?;
        self.volume.remove(&name).await
    }

    /// The numbers in `range` of extents that exist.
    pub(super) fn present(&self, range: Range<u64>) -> Vec<u64> {
        self.state.lock().present.range(range).map(|(&number, _)| number).collect()
    }

    /// The number of extents that exist.
    pub(super) fn len(&self) -> usize {
        self.state.lock().present.len()
    }

    /// Whether an extent exists still: its removal has not ended well.
    pub(super) fn has(&self, extent: &Extent) -> bool {
        self.state.lock().present.get(&extent.number) == Some(&extent.incarnation)
    }

    fn is_present(&self, number: u64) -> bool {
        self.state.lock().present.contains_key(&number)
    }

    /// The object of an extent.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn object<'a>(&self, extent: &'a Extent) -> Result<&'a Arc<dyn Object>> {
        if let Some(object) = extent.object.get() {
            return Ok(object);
        }
        let _alone = extent.opening.lock().await;
        if let Some(object) = extent.object.get() {
            return Ok(object);
        }
        let object = self.volume.open(&extent.name).await?;
        Ok(extent.object.get_or_init(|| object))
    }
}

impl State {
    /// Closes extents without a call under way until fewer than [`OPEN_MAX`] are open.
    fn close_unused(&mut self) {
        for _ in 0..self.queue.len() {
            if self.open.len() < OPEN_MAX {
                return;
            }
            let Some(number) = self.queue.pop_front() else { return };
            match self.open.get(&number) {
                // This lock keeps calls from taking it meanwhile. An extent whose removal was given up stays, so that the
                // next call ends the removal.
                Some(extent) if Arc::strong_count(extent) == 1 && !extent.is_gone() => {
                    drop(self.open.remove(&number));
                }
                Some(_) => self.queue.push_back(number),
                None => {}
            }
        }
    }
}

impl Extent {
    /// Whether it was removed, or is being removed, after it was handed out.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}
