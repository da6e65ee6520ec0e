//! The regions of a device that are being written, durably: what a crash may have left in doubt.
//!
//! ```text
//!   first write of a region ──▶ its mark is durable ──▶ the write ──▶ … ──▶ bytes and checksums are durable ──▶ no mark
//! ```
//! A mark is a bit. Writers that need one wait for the same write of its page. Marks that are no longer needed go with
//! the page's next write, or with [`Marks::tidy`].

use std::sync::Arc;

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use volume::{IoBuf, IoBufMut, Object, Result};

use super::figures::Counts;
use super::shape::BLOCK;

const MAGIC: [u8; 8] = *b"plimmark";
const VERSION: u32 = 1;
/// Magic, version, checksum of what follows, device, page.
const HEADER: usize = 32;
const WORDS: usize = (BLOCK as usize - HEADER) / 8;
/// The number of marks of a page.
const BITS: u64 = WORDS as u64 * 64;

/// A user's write waits for the mark.
const MARK: Io = Io::new(Origin::UserWrite, Step::Log);
const TIDY: Io = Io::new(Origin::Bulk, Step::Data);

type Bits = [u64; WORDS];

/// The marks of a device.
pub(super) struct Marks {
    object: Arc<dyn Object>,
    device: u32,
    pages: Mutex<Vec<Arc<Page>>>,
}

struct Page {
    number: u64,
    bits: Mutex<State>,
    /// Locked while the page is written.
    writing: AsyncMutex<()>,
}

struct State {
    /// The marks that are durable, and needed.
    durable: Box<Bits>,
    /// Marks that writers wait for.
    wanted: Box<Bits>,
    /// Marks that were cleared while the page was being written.
    cleared: Box<Bits>,
    /// The page has marks that are not needed.
    stale: bool,
}

impl Marks {
    /// Reads the marks of a device; gives the regions that have one, also behind the end of a device that became smaller: it may
    /// grow again. A page that is not whole, or damaged, has all of them.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn open(object: Arc<dyn Object>, device: u32) -> Result<(Self, Vec<u64>)> {
        // Its copies may differ since a crash.
        let count = object.len() / BLOCK;
        let io = Io::new(Origin::Open, Step::Data);
        object.align(0, count * BLOCK, io).await?;
        let mut pages = Vec::new();
        let mut marked = Vec::new();
        for number in 0..count {
            let page = IoBufMut::zeroed(BLOCK as usize);
            let bits = match object.read_at(number * BLOCK, page, io).await {
                Ok(read) => decode(&read, device, number),
                Err(error) if error.kind().is_damage() => {
                    tracing::warn!(
                        "device {device}: all marks of a page are taken for set: {error}"
                    );
                    None
                }
                Err(error) => return Err(error),
            };
            let bits = bits.unwrap_or_else(|| Box::new([u64::MAX; WORDS]));
            let set = (0..BITS).filter(|&bit| is_set(&bits, bit));
            marked.extend(set.map(|bit| number * BITS + bit));
            pages.push(Page::new(number, bits));
        }
        Ok((Self { object, device, pages: Mutex::new(pages) }, marked))
    }

    /// The marks of a new device, or of one that has grown to this many regions. Durable on return.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn grow(object: &dyn Object, device: u32, regions: u64) -> Result<()> {
        for number in object.len() / BLOCK..regions.div_ceil(BITS) {
            let page = encode(&[0; WORDS], device, number);
            object.write_at(number * BLOCK, page, MARK).await?;
        }
        object.sync(MARK).await
    }

    /// Extends the marks to this many regions. Durable on return.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn extend(&self, regions: u64) -> Result<()> {
        Self::grow(&*self.object, self.device, regions).await?;
        let mut pages = self.pages.lock();
        for number in pages.len() as u64..regions.div_ceil(BITS) {
            pages.push(Page::new(number, Box::new([0; WORDS])));
        }
        Ok(())
    }

    /// Marks a region. Durable on return.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn mark(&self, region: u64, counts: &Counts) -> Result<()> {
        let page = self.page(region);
        let bit = region % BITS;
        {
            let mut state = page.bits.lock();
            if is_set(&state.durable, bit) {
                return Ok(());
            }
            set(&mut state.wanted, bit);
        }
        let _alone = page.writing.lock().await;
        if is_set(&page.bits.lock().durable, bit) {
            return Ok(());
        }
        counts.region_marks.add(1);
        self.write(&page, MARK).await
    }

    /// Clears the mark of a region whose bytes and checksums are durable. No writer of the region is under way.
    pub(super) fn clear(&self, region: u64) {
        let page = self.page(region);
        let mut state = page.bits.lock();
        let bit = region % BITS;
        clear(&mut state.durable, bit);
        clear(&mut state.wanted, bit);
        set(&mut state.cleared, bit);
        state.stale = true;
    }

    /// Writes pages that have marks which are not needed. Durable on return.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn tidy(&self) -> Result<()> {
        let pages = self.pages.lock().clone();
        for page in pages {
            let _alone = page.writing.lock().await;
            let stale = page.bits.lock().stale;
            if stale {
                self.write(&page, TIDY).await?;
            }
        }
        Ok(())
    }

    /// Makes earlier removals of objects of the same pool durable.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn sync(&self) -> Result<()> {
        self.object.sync(MARK).await
    }

    fn page(&self, region: u64) -> Arc<Page> {
        Arc::clone(&self.pages.lock()[(region / BITS) as usize])
    }

    /// The caller has locked `writing`.
    async fn write(&self, page: &Page, io: Io) -> Result<()> {
        let bits = {
            let mut state = page.bits.lock();
            state.cleared.fill(0);
            let mut bits = state.durable.clone();
            bits.iter_mut().zip(state.wanted.iter()).for_each(|(bit, wanted)| *bit |= wanted);
            bits
        };
        let encoded = encode(&bits, self.device, page.number);
        self.object.write_durable(page.number * BLOCK, encoded, io).await?;
        let mut state = page.bits.lock();
        let State { durable, wanted, cleared, stale } = &mut *state;
        for (at, &written) in bits.iter().enumerate() {
            durable[at] = written & !cleared[at];
            // Those that were cleared meanwhile, and are wanted again, were written before that.
            wanted[at] &= !durable[at];
        }
        *stale = cleared.iter().any(|&word| word != 0);
        Ok(())
    }
}

impl Page {
    fn new(number: u64, durable: Box<Bits>) -> Arc<Self> {
        let none = || Box::new([0; WORDS]);
        let state = State { durable, wanted: none(), cleared: none(), stale: false };
        Arc::new(Self { number, bits: Mutex::new(state), writing: AsyncMutex::new(()) })
    }
}

fn is_set(bits: &Bits, bit: u64) -> bool {
    bits[(bit / 64) as usize] & 1 << (bit % 64) != 0
}

fn set(bits: &mut Bits, bit: u64) {
    bits[(bit / 64) as usize] |= 1 << (bit % 64);
}

fn clear(bits: &mut Bits, bit: u64) {
    bits[(bit / 64) as usize] &= !(1 << (bit % 64));
}

fn encode(bits: &Bits, device: u32, number: u64) -> IoBuf {
    let mut page = IoBufMut::zeroed(BLOCK as usize);
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[16..20].copy_from_slice(&device.to_le_bytes());
    page[24..32].copy_from_slice(&number.to_le_bytes());
    for (into, word) in page[HEADER..].chunks_exact_mut(8).zip(bits) {
        into.copy_from_slice(&word.to_le_bytes());
    }
    let sum = crc32c::crc32c(&page[16..]);
    page[12..16].copy_from_slice(&sum.to_le_bytes());
    page.freeze()
}

fn decode(page: &[u8], device: u32, number: u64) -> Option<Box<Bits>> {
    let known = page.len() == BLOCK as usize
        && page[..8] == MAGIC
        && page[8..12] == VERSION.to_le_bytes()
        && page[12..16] == crc32c::crc32c(&page[16..]).to_le_bytes()
        && page[16..20] == device.to_le_bytes()
        && page[24..32] == number.to_le_bytes();
    known.then(|| {
        let mut bits = Box::new([0; WORDS]);
        for (word, bytes) in bits.iter_mut().zip(page[HEADER..].as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        bits
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::{join, join_all};
    use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
    use volume::mem::Mem;
    use volume::task::block_on;
    use volume::{Clock, Intent, Name, Volume};

    use super::*;

    /// More than a page.
    const REGIONS: u64 = BITS + 100;

    fn object() -> Arc<dyn Object> {
        let name = Name::new("marks").unwrap();
        let object = block_on(Mem::new("a").create(&name, &Intent::DATA)).unwrap();
        block_on(Marks::grow(&*object, 7, REGIONS)).unwrap();
        object
    }

    fn open(object: &Arc<dyn Object>) -> (Marks, Vec<u64>) {
        block_on(Marks::open(Arc::clone(object), 7)).unwrap()
    }

    #[test]
    fn marks_are_found_after_an_opening_until_they_are_cleared() {
        let (object, counts) = (object(), Counts::default());
        let (marks, found) = open(&object);
        assert!(found.is_empty());
        let regions = [0, 63, 64, BITS - 1, BITS, REGIONS - 1];
        block_on(join_all(regions.map(|region| marks.mark(region, &counts))))
            .into_iter()
            .for_each(Result::unwrap);
        assert_eq!(open(&object).1, regions);
        marks.clear(64);
        assert_eq!(open(&object).1, regions, "it goes with the next write");
        block_on(marks.mark(5, &counts)).unwrap();
        assert_eq!(open(&object).1, [0, 5, 63, BITS - 1, BITS, REGIONS - 1]);
        marks.clear(BITS);
        block_on(marks.tidy()).unwrap();
        assert_eq!(open(&object).1, [0, 5, 63, BITS - 1, REGIONS - 1]);
        block_on(marks.mark(64, &counts)).unwrap();
        assert_eq!(open(&object).1, [0, 5, 63, 64, BITS - 1, REGIONS - 1]);
    }

    /// The page was being written with the old mark: the new one was taken for written, and was in no later page.
    #[test]
    fn a_mark_that_is_cleared_and_set_while_its_page_is_written_is_durable() {
        let (clock, plan, counts) = (Clock::simulated(), FaultPlan::new(0), Counts::default());
        let slow = Fault::new(Mem::new("a"), "a", &plan, &clock);
        clock.run(async {
            let name = Name::new("marks").unwrap();
            let object = slow.create(&name, &Intent::DATA).await.unwrap();
            Marks::grow(&*object, 7, REGIONS).await.unwrap();
            let (marks, _) = Marks::open(Arc::clone(&object), 7).await.unwrap();
            marks.mark(9, &counts).await.unwrap();
            plan.inject(Rule::new(Effect::Slow(Duration::from_secs(1))));
            let again = async {
                clock.sleep(Duration::from_millis(1)).await;
                marks.clear(9);
                marks.mark(9, &counts).await
            };
            let (other, again) = join(marks.mark(10, &counts), again).await;
            other.and(again).unwrap();
            let (_, found) = Marks::open(object, 7).await.unwrap();
            assert_eq!(found, [9, 10]);
        });
    }

    #[test]
    fn a_mark_that_is_set_costs_nothing() {
        let (object, counts) = (object(), Counts::default());
        let (marks, _) = open(&object);
        for _ in 0..3 {
            block_on(marks.mark(9, &counts)).unwrap();
        }
        assert_eq!(counts.region_marks.get(), 1);
    }

    #[test]
    fn a_page_that_is_not_whole_has_all_marks() {
        let object = object();
        let mut page = encode(&[0; WORDS], 7, 1).to_vec();
        page[100] ^= 1;
        block_on(object.write_at(BLOCK, IoBuf::from(&page[..]), TIDY)).unwrap();
        assert_eq!(open(&object).1, (BITS..2 * BITS).collect::<Vec<_>>());
    }
}
