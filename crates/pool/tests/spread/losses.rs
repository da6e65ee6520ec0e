//! A pool with two copies of every object against a map of names to bytes: random work, copies made and
//! dropped, power cuts, and lost volumes or damaged copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::placement::{RoundRobin, VolumeId};
use pool::spread::{Opening, Spread};
use pool::{Member, ObjectId};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Check, ErrorKind, Intent, IoBuf, IoBufMut, Name, Result, Volume};

use crate::copying::{COPY, id_of, places};
use crate::rig::{IO, POOL, get, name, put, read_all};

const SEEDS: u64 = 50;
const OPS: usize = 10_000;
const VOLUMES: usize = 4;
const NAMES: u64 = 12;
/// Longer logs are removed.
const LOG_MAX: usize = 3000;

/// The states before and after an operation share most bytes.
type Model = BTreeMap<String, Arc<Vec<u8>>>;

/// One seed's machine, and its possible contents after the last operation.
struct Run {
    rng: Xoshiro256PlusPlus,
    volumes: Vec<(String, Mem)>,
    /// The contents before the last operation, and after it.
    may: [Model; 2],
    labels: u64,
    /// Reads that got bytes of a damaged copy, and found the good ones.
    read_again: u64,
}

fn opening() -> Opening {
    Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2)
}

impl Run {
    fn new(seed: u64) -> Self {
        let label = |i| format!("s{i}");
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            volumes: (0..VOLUMES).map(|i| (label(i), Mem::new(&label(i)))).collect(),
            may: [Model::new(), Model::new()],
            labels: VOLUMES as u64,
            read_again: 0,
        }
    }

    /// Runs `ops` operations, or until the power goes off; returns the number done.
    async fn work(&mut self, pool: &Spread, power: &Power, ops: usize) -> usize {
        for done in 0..ops {
            let before = self.may[1].clone();
            let text = format!("t{}", self.rng.random_range(0..NAMES));
            let mut after = before.clone();
            let made: Result<()> = match self.rng.random_range(0..12) {
                0..3 => {
                    let data = vec![self.rng.random(); self.rng.random_range(0..3000)];
                    match before.contains_key(&text) {
                        true => {
                            after.remove(&text);
                            self.may = [before, after];
                            pool.remove(&name(&text)).await
                        }
                        false => {
                            after.insert(text.clone(), Arc::new(data.clone()));
                            self.may = [before, after];
                            put(pool, &text, &data).await
                        }
                    }
                }
                3 => {
                    let log = format!("l{}.log", self.rng.random_range(0..3));
                    let more = vec![self.rng.random(); self.rng.random_range(1..300)];
                    if before.get(&log).is_some_and(|bytes| bytes.len() > LOG_MAX) {
                        after.remove(&log);
                        self.may = [before, after];
                        pool.remove(&name(&log)).await
                    } else {
                        let bytes = after.entry(log.clone()).or_default();
                        Arc::make_mut(bytes).extend_from_slice(&more);
                        self.may = [before, after];
                        append(pool, &log, &more).await
                    }
                }
                4 => {
                    let to = format!("t{}", self.rng.random_range(0..NAMES));
                    if let Some(bytes) = after.remove(&text) {
                        after.insert(to.clone(), bytes);
                        self.may = [before, after];
                        pool.rename(&name(&text), &name(&to)).await
                    } else {
                        Ok(())
                    }
                }
                5 | 6 if before.contains_key(&text) => {
                    let to = VolumeId(self.rng.random_range(0..VOLUMES as u16 + 2));
                    match pool.copy(id_of(pool, &text).await, to, COPY).await {
                        Err(e)
                            if matches!(
                                e.kind(),
                                ErrorKind::AlreadyExists | ErrorKind::Invalid
                            ) =>
                        {
                            Ok(())
                        }
                        copied => copied.map(drop),
                    }
                }
                7 if before.contains_key(&text) => {
                    let on = places(pool, &text).await;
                    match on.len() {
                        // Keep two copies, so that a volume may be lost at any time.
                        0..3 => Ok(()),
                        n => {
                            let from = VolumeId(on[self.rng.random_range(0..n)]);
                            pool.drop_copy(id_of(pool, &text).await, from).await
                        }
                    }
                }
                // What is appended later lies behind the checksums of logs that this records.
                8 if self.rng.random_ratio(1, 10) => {
                    let scrubbed = pool.scrub(|_| ()).await;
                    assert!(power.is_off() || scrubbed.unwrap().findings.is_empty());
                    Ok(())
                }
                _ => {
                    if let Ok(found) = get(pool, &text).await {
                        assert_eq!(Some(&found), before.get(&text).map(|b| &**b), "{text}");
                    } else {
                        assert!(power.is_off() || !before.contains_key(&text), "{text}");
                    }
                    Ok(())
                }
            };
            if power.is_off() {
                return done;
            }
            made.unwrap_or_else(|e| panic!("{text}: {e}"));
            self.may[0] = self.may[1].clone();
        }
        ops
    }

    /// Flips a bit in one copy of one of `objects` that was acknowledged; returns the object's name.
    fn rot(&mut self, objects: &[(String, ObjectId)]) -> Option<String> {
        let [before, after] = &self.may;
        // Whatever the interrupted operation did, the object has these bytes, or a log begins with them.
        let is_sure = |text: &String, bytes: &Vec<u8>| match after.get(text) {
            Some(after) if text.ends_with(".log") => after.starts_with(bytes),
            Some(after) => **after == *bytes,
            None => false,
        };
        let sure = objects.iter().filter_map(|(text, id)| {
            let bytes = before.get(text).filter(|bytes| !bytes.is_empty())?;
            is_sure(text, bytes).then_some((text, id, bytes))
        });
        let sure: Vec<_> = sure.collect();
        if sure.is_empty() {
            return None;
        }
        let (text, id, bytes) = sure[self.rng.random_range(0..sure.len())];
        let at = self.rng.random_range(0..bytes.len());
        let prefix = format!("o{id}");
        let leaves = self.volumes.iter().flat_map(|(_, mem)| {
            let image = mem.image().into_iter();
            let has_it = |(leaf, data): &(Name, Vec<u8>)| {
                leaf.as_str().starts_with(&prefix) && data.get(at) == Some(&bytes[at])
            };
            image.filter(has_it).map(move |(leaf, _)| (mem, leaf)).collect::<Vec<_>>()
        });
        let leaves: Vec<_> = leaves.collect();
        assert!(leaves.len() >= 2, "{text} has two copies");
        let (mem, leaf) = &leaves[self.rng.random_range(0..leaves.len())];
        let bit = self.rng.random_range(0..8);
        mem.damage(leaf, at as u64, |byte| *byte ^= 1 << bit);
        Some(text.clone())
    }

    /// Every byte of an object. Does as a store: reads what is damaged again, and syncs logs.
    async fn read(&mut self, pool: &Spread, text: &str, is_rotten: bool) -> Result<Vec<u8>> {
        let object = pool.open(&name(text)).await?;
        let mut bytes = read_all(&*object).await?;
        if is_rotten && !bytes.starts_with(&self.may[0][text]) {
            let known = Arc::clone(&self.may[0][text]);
            let into = IoBufMut::zeroed(known.len());
            let check: Check = Arc::new(move |bytes| bytes == &known[..]);
            let good = object.read_again(0, into, IO, check).await?;
            bytes[..good.len()].copy_from_slice(&good);
            self.read_again += 1;
        }
        if text.ends_with(".log") {
            object.sync(IO).await?;
        }
        Ok(bytes)
    }

    /// Opens the remaining volumes, and finds the model that matches. A blank volume replaces a lost one. A copy of `rotten`
    /// is damaged.
    async fn recover(&mut self, lost: Option<usize>, rotten: Option<&str>, context: &str) {
        let here = self.volumes.iter().enumerate().filter(|(i, _)| Some(*i) != lost);
        let here = here.map(|(_, (label, mem))| Member::new(label.clone(), mem.clone()));
        let pool = Spread::open(here.collect(), opening().allow_away()).await;
        let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
        let mut found = Model::new();
        for listed in pool.list().await.unwrap() {
            let text = listed.name.to_string();
            let bytes = self.read(&pool, &text, rotten == Some(&*text)).await;
            let bytes = bytes.unwrap_or_else(|e| panic!("{context}: {text}: {e}"));
            found.insert(text, Arc::new(bytes));
        }
        self.explain(&found, context);
        if let Some(lost) = lost {
            let gone = pool.volume_id(&self.volumes[lost].0).expect("it is the pool's");
            let fresh = format!("s{}", self.labels);
            self.labels += 1;
            let mem = Mem::new(&fresh);
            pool.add_volume(Member::new(fresh.clone(), mem.clone())).await.unwrap();
            let left = pool.drain(gone, COPY, |_| ()).await.unwrap();
            assert_eq!(left.objects, [], "{context}");
            pool.remove_volume(gone).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            self.volumes[lost] = (fresh, mem);
        }
        // The reads may all have gone to the good copy.
        let report = pool.scrub(|_| ()).await.unwrap();
        assert!(report.findings.len() <= usize::from(rotten.is_some()), "{context}: {report:?}");
        pool.mend(&report).await.unwrap();
        assert_eq!(pool.repair(COPY, |_| ()).await.unwrap().short, [], "{context}");
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, [], "{context}");
        assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
        for text in self.may[1].keys() {
            assert!(places(&pool, text).await.len() >= 2, "{context}: {text}");
        }
        pool.close().await.unwrap();
    }

    fn explain(&mut self, found: &Model, context: &str) {
        let [before, after] = &self.may;
        let explains = |model: &Model| {
            let same = |(text, bytes): (&String, &Arc<Vec<u8>>)| match found.get(text) {
                None => text.ends_with(".log") && !before.contains_key(text),
                Some(found) if text.ends_with(".log") => {
                    // Any part of a cut append may be there.
                    let synced = before.get(text).map_or(0, |bytes| bytes.len());
                    found.len() >= synced
                        && found.len() <= bytes.len().max(synced)
                        && found[..synced] == bytes[..synced.min(bytes.len())]
                }
                Some(found) => found == bytes,
            };
            model.iter().all(same) && found.keys().all(|text| model.contains_key(text))
        };
        assert!(explains(before) || explains(after), "{context}: {:?}", found.keys());
        self.may = [found.clone(), found.clone()];
    }
}

async fn append(pool: &Spread, text: &str, more: &[u8]) -> Result<()> {
    let log = match pool.contains(&name(text)) {
        true => pool.open(&name(text)).await?,
        false => pool.create(&name(text), &Intent::LOG).await?,
    };
    log.write_at(log.len(), IoBuf::from(more), IO).await?;
    log.sync(IO).await
}

#[test]
fn nothing_is_lost_by_crashes_and_one_lost_volume_or_damaged_copy_at_a_time() {
    let (mut losses, mut crashes, mut damaged, mut read_again) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        let mut left = OPS;
        let mut round = 0;
        while left > 0 {
            let context = format!("seed {seed}, round {round}");
            let power = Power::new();
            let machine: Vec<_> = run
                .volumes
                .iter()
                .map(|(label, mem)| (label.clone(), Crash::new(mem.clone(), &power)))
                .collect();
            let members = machine.iter().map(|(label, crash)| Member::new(label, crash.clone()));
            let members: Vec<_> = members.collect();
            let (done, objects) = block_on(async {
                let pool = Spread::open(members, opening()).await.unwrap();
                power.cut_after(run.rng.random_range(50..9000));
                let done = run.work(&pool, &power, left.min(1500)).await;
                let objects = pool.objects().into_iter();
                (
                    done,
                    objects.map(|object| (object.name.to_string(), object.id)).collect::<Vec<_>>(),
                )
            });
            left = left.saturating_sub(done.max(1));
            crashes += u64::from(power.is_off());
            for (i, (label, crash)) in machine.iter().enumerate() {
                let mem = crash.survivor(run.rng.random::<u64>() ^ i as u64);
                run.volumes[i] = (label.clone(), mem);
            }
            // A volume may be lost with or without a power cut.
            let lost = run.rng.random_ratio(2, 3).then(|| run.rng.random_range(0..VOLUMES));
            losses += u64::from(lost.is_some() && power.is_off());
            // With a volume lost, the damaged copy could be the last one.
            let rotten = if lost.is_none() { run.rot(&objects) } else { None };
            damaged += u64::from(rotten.is_some() && power.is_off());
            block_on(run.recover(lost, rotten.as_deref(), &context));
            round += 1;
        }
        read_again += run.read_again;
    }
    assert!(losses > SEEDS && crashes > SEEDS, "{losses} losses, {crashes} crashes");
    assert!(damaged > SEEDS, "{damaged} damaged copies after a crash");
    assert!(read_again > SEEDS / 2, "{read_again} reads found another copy");
}
