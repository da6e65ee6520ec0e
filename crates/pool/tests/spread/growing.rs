//! Objects in place on a pool of fragments that are made and become longer: power fails at any step, and up to two volumes
//! are lost with it. After that an object is there with all that was acknowledged as durable, and never with bytes of zeros
//! or of an earlier write where it was lengthened by a write.

use std::collections::BTreeSet;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{ErrorKind, Intent, IoBufMut, Volume};

use crate::logged::{Model, SECTOR, Sector, numbered, open, sectors_of, seeds, small};
use crate::rig::{IO, mems, name, read_all};

const NAMES: [&str; 2] = ["a", "b"];

/// What is known of an object.
struct Known {
    /// Its sectors, as many as it has now.
    model: Model,
    /// The least number of sectors after a crash; `None` if it may be gone.
    least: Option<usize>,
    /// The numbers of sectors that it may have after a crash.
    lens: BTreeSet<usize>,
}

impl Known {
    const fn new() -> Self {
        Self { model: Model { sectors: Vec::new() }, least: None, lens: BTreeSet::new() }
    }

    fn len(&self) -> usize {
        self.model.sectors.len()
    }

    /// It becomes longer, by zeros up to `from`, and then by sectors with `tag`.
    fn lengthen(&mut self, from: usize, to: usize, tag: u32) {
        let zeros = from.saturating_sub(self.len());
        self.model.sectors.extend(std::iter::repeat_n(Sector::of(0), zeros));
        while self.len() < to {
            // If it is as long as this, it has these bytes.
            self.model.sectors.push(Sector::of(tag));
        }
        self.lens.insert(self.len());
    }

    fn synced(&mut self) {
        self.model.synced();
        self.least = Some(self.len());
        self.lens = BTreeSet::from([self.len()]);
    }

    /// It was found with this many sectors after a crash.
    fn found(&mut self, len: usize, context: &str) {
        let least = self.least.unwrap_or(0);
        assert!(len >= least && self.lens.contains(&len), "{context}: {len} of {:?}", self.lens);
        self.model.sectors.truncate(len);
        self.model.crashed();
    }
}

async fn grow(
    random: &mut Xoshiro256PlusPlus,
    known: &mut [Option<Known>; 2],
    tag: &mut u32,
    logged: &pool::logged::Logged,
    context: &str,
) -> volume::Result<()> {
    let at = random.random_range(0..NAMES.len());
    let file = name(NAMES[at]);
    let Some(object) = &mut known[at] else {
        // If it fails, it is not there after the crash that made it fail.
        let made = logged.create(&file, &Intent::IN_PLACE).await?;
        assert!(made.is_empty());
        known[at] = Some(Known::new());
        known[at].as_mut().map(|object| object.lens.insert(0));
        return Ok(());
    };
    let handle = logged.open(&file).await?;
    assert_eq!(handle.len(), object.len() as u64 * SECTOR, "{context}");
    *tag += 1;
    match random.random_range(0..100) {
        0..60 => {
            let from = match random.random_range(0..3) {
                0 if object.len() > 0 => random.random_range(0..object.len()),
                1 => object.len() + random.random_range(0..30),
                _ => object.len().next_multiple_of(8),
            };
            let to = from + if random.random() { 8 } else { random.random_range(1..20) };
            let (durable, before) = (random.random_bool(0.4), object.len());
            let range = from as u64 * SECTOR..to as u64 * SECTOR;
            object.lengthen(from, to, *tag);
            let data = sectors_of(&range, *tag);
            let done = match durable {
                true => handle.write_durable(range.start, data, IO).await,
                false => handle.write_at(range.start, data, IO).await,
            };
            let old = range.start..(before.clamp(from, to) as u64) * SECTOR;
            object.model.written(&[(old, *tag, durable)], done.is_ok());
            done?;
            if durable {
                object.least = object.least.max(Some(to));
            }
        }
        60..65 => {
            let len = object.len() + random.random_range(0..20);
            object.lengthen(len, len, 0);
            handle.set_len(len as u64 * SECTOR).await?;
        }
        65..75 => {
            handle.sync(IO).await?;
            object.synced();
        }
        75..80 => logged.drain().await?,
        80..84 => {
            // After a failure it may be there still.
            object.least = None;
            logged.remove(&file).await?;
            known[at] = None;
        }
        _ => {
            let len = object.len() as u64 * SECTOR;
            let read = handle.read_at(0, IoBufMut::zeroed(len as usize), IO).await?;
            object.model.read(&(0..len), &read, context);
        }
    }
    Ok(())
}

fn run(seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut known = [None, None];
    let mut tag = 0;
    let mut is_made = false;
    let mut volumes: Vec<(u16, Mem)> = numbered(&mems(6));
    for life in 0..5 {
        let power = Power::new();
        let crash: Vec<_> = volumes
            .iter()
            .map(|(n, mem)| (*n, Crash::new(Mem::from_image(mem.label(), mem.image()), &power)))
            .collect();
        let context = format!("seed {seed}, life {life}");
        let steps = if random.random_bool(0.5) { 150 } else { 1500 };
        power.cut_after(random.random_range(0..steps));
        block_on(async {
            let logged = match open(&crash, small()).await {
                Ok((_, logged)) => logged,
                Err(e) => {
                    assert!(power.is_off(), "{context}: {e}");
                    return;
                }
            };
            is_made = true;
            for step in 0..100 {
                let context = format!("{context}, step {step}");
                let done = grow(&mut random, &mut known, &mut tag, &logged, &context).await;
                if let Err(e) = done {
                    assert!(power.is_off(), "{context}: {e}");
                    return;
                }
            }
        });
        power.cut();
        volumes = crash.iter().map(|(n, v)| (*n, v.survivor(random.next_u64()))).collect();
        let mut here = volumes.clone();
        // Until it is made whole, a pool is made by all its volumes.
        let lost = if is_made { random.random_range(0..=2) } else { 0 };
        for _ in 0..lost {
            here.remove(random.random_range(0..here.len()));
        }
        block_on(async {
            let (pool, logged) =
                open(&here, small()).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            for (file, known) in NAMES.iter().zip(&mut known) {
                let context = format!("{context}: {file}");
                let object = match logged.open(&name(file)).await {
                    Ok(object) => object,
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::NotFound, "{context}");
                        let gone = known.take();
                        assert!(gone.is_none_or(|known| known.least.is_none()), "{context}: gone");
                        continue;
                    }
                };
                let known = known.as_mut().unwrap_or_else(|| panic!("{context} is back"));
                known.found((object.len() / SECTOR) as usize, &context);
                let all = read_all(&*object).await.unwrap_or_else(|e| panic!("{context}: {e}"));
                known.model.read(&(0..object.len()), &all, &context);
                known.synced();
            }
            drop(logged);
            pool.close().await.unwrap();
            // All volumes are there again, some of them with what they had before.
            let (pool, _logged) = open(&volumes, small()).await.unwrap();
            let repaired = pool.repair(IO, |_| ()).await.unwrap();
            assert!(repaired.short.is_empty(), "{context}: {repaired:?}");
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn power_fails_while_objects_are_made_and_become_longer() {
    seeds(200).for_each(run);
}
