//! Damaged bytes in a tier's own objects. No older bytes are given because of them.

use std::ops::Range;
use std::sync::Arc;

use policy::placement::RoundRobin;
use pool::spread::{Opening, Spread};
use pool::tier::{Always, Options, Tier, Writes, dirty_marks};
use pool::{Member, PoolId};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, IoBuf, IoBufMut, Name, Result, Volume};

use crate::rig::{IO, PAGE, UNIT, content, fill, name, open, options, read};

const UNITS: u64 = 6;
/// The page of a unit that is written.
const WRITTEN: u64 = PAGE;

fn back() -> Options {
    Options { writes: Writes::Back, refuses_loss: true, ..options(8) }
}

/// With losses.
fn lossy() -> Options {
    Options { refuses_loss: false, ..back() }
}

/// Two devices with a copy each, as one volume.
async fn pool(mems: &[Mem; 2]) -> Arc<dyn Volume> {
    let members = mems.iter().map(|mem| Member::new(mem.label().to_string(), mem.clone()));
    let opening = Opening::new(RoundRobin::default()).copies(2).create_if_missing(PoolId(1));
    Arc::new(Spread::open(members.collect(), opening).await.unwrap())
}

/// A slow device and a fast one, and the same as volumes.
fn sides() -> ([Mem; 2], [Arc<dyn Volume>; 2]) {
    let devices = ["slow", "fast"].map(Mem::new);
    let volumes = devices.each_ref().map(|mem| Arc::new(mem.clone()) as Arc<dyn Volume>);
    (devices, volumes)
}

async fn opened(
    slow: &Arc<dyn Volume>,
    fast: Option<&Arc<dyn Volume>>,
    options: Options,
) -> Result<Tier> {
    let (slow, fast) = (Arc::clone(slow), fast.cloned());
    let always = Box::new(Always);
    Tier::open(slow, fast, options, always, &Clock::simulated()).await
}

/// Writes a page to each of some units of an object, one after the other, which stay on the fast volume.
async fn dirty(tier: &Tier, units: Range<u64>) {
    let object = tier.open(&name("a.inp")).await.unwrap();
    for unit in units {
        let page = IoBuf::from(&[100 + unit as u8; PAGE as usize][..]);
        object.write_durable(unit * UNIT + WRITTEN, page, IO).await.unwrap();
    }
}

/// A tier that dies with a dirty page in each unit of an object.
async fn died_dirty(slow: &Arc<dyn Volume>, fast: &Arc<dyn Volume>) {
    let tier = opened(slow, Some(fast), back()).await.unwrap();
    fill(&tier, "a.inp", UNITS * UNIT, 1).await;
    tier.flush().await.unwrap();
    dirty(&tier, 0..UNITS).await;
}

async fn written(tier: &Tier, unit: u64) -> Result<u8> {
    let object = tier.open(&name("a.inp")).await?;
    let page = IoBufMut::zeroed(PAGE as usize);
    let page = object.read_at(unit * UNIT + WRITTEN, page, IO).await?;
    assert!(page.iter().all(|byte| *byte == page[0]), "a page of one write");
    Ok(page[0])
}

async fn check_all(tier: &Tier) {
    for unit in 0..UNITS {
        assert_eq!(written(tier, unit).await.unwrap(), 100 + unit as u8, "unit {unit}");
    }
}

/// Where the frames of an object of a tier begin.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let starts = (0..bytes.len()).step_by(PAGE as usize);
    starts.filter(|&at| bytes[at..].starts_with(b"PLTQ")).collect()
}

/// The object of a device with the most frames: on a slow one the marks, on a fast one the map.
fn log(mem: &Mem) -> (Name, Vec<usize>) {
    let all = mem.image().into_iter().map(|(name, bytes)| (name, frames(&bytes)));
    all.max_by_key(|(_, frames)| frames.len()).unwrap()
}

/// Damages a frame of the log, counted from its end.
fn rot(mem: &Mem, from_end: usize) {
    let (name, frames) = log(mem);
    assert!(frames.len() > from_end + 1, "{frames:?}");
    let at = frames[frames.len() - 1 - from_end];
    mem.damage(&name, at as u64 + 40, |byte| *byte ^= 16);
}

#[test]
fn a_log_is_read_from_the_copy_in_which_it_is_whole() {
    for ends in [[1, 3], [0, 2], [3, 1]] {
        block_on(async {
            let (slow, fast) = ([0, 1].map(|_| Mem::new("slow")), [0, 1].map(|_| Mem::new("fast")));
            died_dirty(&pool(&slow).await, &pool(&fast).await).await;
            for devices in [&slow, &fast] {
                devices.iter().zip(ends).for_each(|(mem, end)| rot(mem, end));
            }
            let (slow, fast) = (pool(&slow).await, pool(&fast).await);
            assert_eq!(dirty_marks(&*slow).await.unwrap().bytes, UNITS * UNIT);
            check_all(&opened(&slow, Some(&fast), back()).await.unwrap()).await;
        });
    }
}

#[test]
fn damaged_marks_need_the_fast_volume() {
    block_on(async {
        let ([slow, _], [slow_volume, fast]) = sides();
        died_dirty(&slow_volume, &fast).await;
        rot(&slow, 2);
        assert_eq!(dirty_marks(&slow).await.unwrap_err().kind(), ErrorKind::Corrupt);
        for options in [back(), lossy()] {
            let refused = opened(&slow_volume, None, options).await.err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Corrupt);
            assert!(refused.to_string().contains("bring back the fast volume"), "{refused}");
        }
        check_all(&opened(&slow_volume, Some(&fast), back()).await.unwrap()).await;
        assert_eq!(dirty_marks(&slow).await.unwrap().bytes, UNITS * UNIT, "they are written anew");
    });
}

/// The generation before it does not count in its place.
#[test]
fn a_damaged_state_of_the_marks_is_told() {
    block_on(async {
        let ([slow, _], [slow_volume, fast]) = sides();
        died_dirty(&slow_volume, &fast).await;
        let tier = opened(&slow_volume, Some(&fast), back()).await.unwrap();
        tier.flush().await.unwrap();
        dirty(&tier, 0..UNITS).await;
        drop(tier);
        let damaged = |number: u64| {
            let damaged = slow.fork("slow");
            damaged.damage(&name(&format!("tier.dirty-{number}")), 40, |byte| *byte ^= 1);
            damaged
        };
        let older = damaged(1);
        assert_eq!(dirty_marks(&older).await.unwrap().bytes, UNITS * UNIT);
        let newer = damaged(0);
        assert_eq!(dirty_marks(&newer).await.unwrap_err().kind(), ErrorKind::Corrupt);
        let newer: Arc<dyn Volume> = Arc::new(newer);
        for fast in [None, Some(&fast)] {
            let refused = opened(&newer, fast, lossy()).await.err().unwrap();
            assert!(refused.to_string().contains("restore the slow volume"), "{refused}");
        }
    });
}

#[test]
fn a_damaged_map_gives_no_older_bytes() {
    block_on(async {
        let ([_, fast], volumes) = sides();
        died_dirty(&volumes[0], &volumes[1]).await;
        rot(&fast, 2);
        let refused = opened(&volumes[0], Some(&volumes[1]), back()).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        let tier = opened(&volumes[0], Some(&volumes[1]), lossy()).await.unwrap();
        for unit in 0..UNITS {
            assert!(written(&tier, unit).await.is_err(), "unit {unit}");
        }
    });
}

/// The other head had an epoch in which that fast volume counted.
#[test]
fn a_fast_volume_that_was_given_up_does_not_count_again_where_a_head_is_damaged() {
    for number in 0..2 {
        block_on(async {
            let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
            let shared: Arc<dyn Volume> = Arc::new(fast.clone());
            let tier = open(&slow, Some(&shared), options(8), &Clock::simulated()).await.unwrap();
            let object = fill(&tier, "a", UNIT, 1).await;
            read(&*object, 0, UNIT).await;
            tier.install_all().await;
            tier.write_checkpoint().await;
            tier.give_up().await.unwrap();
            object.write_at(0, IoBuf::from(&content(UNIT, 2)[..]), IO).await.unwrap();
            object.sync(IO).await.unwrap();
            drop((object, tier));
            slow.damage(&name(&format!("tier.head-{number}")), 40, |byte| *byte ^= 1);
            let tier = open(&slow, Some(&shared), options(8), &Clock::simulated()).await.unwrap();
            let object = tier.open(&name("a")).await.unwrap();
            assert_eq!(read(&*object, 0, UNIT).await, content(UNIT, 2), "head {number}");
        });
    }
}

/// Damages the page of a device that is full of a byte.
fn rot_page(mem: &Mem, byte: u8) {
    let page = [byte; PAGE as usize];
    for (name, bytes) in mem.image() {
        let mut starts = (0..bytes.len()).step_by(PAGE as usize);
        if let Some(at) = starts.find(|&at| bytes[at..].starts_with(&page)) {
            return mem.damage(&name, at as u64 + 7, |byte| *byte ^= 1);
        }
    }
    panic!("no page of {byte}");
}

#[test]
fn a_flush_writes_dirty_pages_from_the_copy_that_is_whole() {
    for way in ["flush", "read again", "write in part", "take away"] {
        block_on(async {
            let (slow, fast) = (Mem::new("slow"), [0, 1].map(|_| Mem::new("fast")));
            let shared: Arc<dyn Volume> = Arc::new(slow.clone());
            let fast_pool = pool(&fast).await;
            died_dirty(&shared, &fast_pool).await;
            let tier = opened(&shared, Some(&fast_pool), back()).await.unwrap();
            // Again, as an opening does not know their checksums.
            dirty(&tier, 0..UNITS).await;
            for unit in 0..UNITS {
                rot_page(&fast[(unit % 2) as usize], 100 + unit as u8);
            }
            let object = tier.open(&name("a.inp")).await.unwrap();
            match way {
                "flush" => tier.flush().await.unwrap(),
                "take away" => tier.detach().await.unwrap(),
                "read again" => {
                    for unit in 0..UNITS {
                        let into = IoBufMut::zeroed(PAGE as usize);
                        let is_whole: volume::Check =
                            Arc::new(move |read| read.iter().all(|&byte| byte == 100 + unit as u8));
                        object.read_again(unit * UNIT + WRITTEN, into, IO, is_whole).await.unwrap();
                    }
                }
                _ => {
                    for unit in 0..UNITS {
                        let byte = IoBuf::from(&[100 + unit as u8][..]);
                        object.write_durable(unit * UNIT + WRITTEN + 3000, byte, IO).await.unwrap();
                    }
                    tier.flush().await.unwrap();
                }
            }
            drop((object, tier));
            let object = slow.open(&name("a.inp")).await.unwrap();
            for unit in 0..UNITS {
                let found = read(&*object, unit * UNIT + WRITTEN, PAGE).await;
                assert_eq!(found, [100 + unit as u8; PAGE as usize], "{way}: unit {unit}");
            }
        });
    }
}

#[test]
fn a_dirty_page_that_no_copy_has_is_stale_until_it_is_written() {
    block_on(async {
        let ([_, fast], [slow_volume, fast_volume]) = sides();
        let tier = opened(&slow_volume, Some(&fast_volume), back()).await.unwrap();
        let object = fill(&tier, "a.inp", UNITS * UNIT, 1).await;
        tier.flush().await.unwrap();
        dirty(&tier, 0..UNITS).await;
        rot_page(&fast, 102);
        tier.flush().await.unwrap();
        assert_eq!(tier.stale(), [(name("a.inp"), PAGE)]);
        assert_eq!(tier.figures().dirty_bytes, 0);
        for unit in 0..UNITS {
            let found = written(&tier, unit).await.map_err(|e| e.kind());
            let expected = if unit == 2 { Err(ErrorKind::Corrupt) } else { Ok(100 + unit as u8) };
            assert_eq!(found, expected, "unit {unit}");
        }
        // The pages around it are those of before.
        let around = read(&*object, 2 * UNIT, PAGE).await;
        assert_eq!(around, content(3 * UNIT, 1)[2 * UNIT as usize..][..PAGE as usize]);
        let byte = IoBuf::from(&[1][..]);
        let refused = object.write_durable(2 * UNIT + WRITTEN, byte, IO).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "the rest of the page is unknown");
        drop((object, tier));
        let tier = opened(&slow_volume, Some(&fast_volume), back()).await.unwrap();
        assert!(written(&tier, 2).await.is_err(), "also after a restart");
        dirty(&tier, 2..3).await;
        tier.flush().await.unwrap();
        check_all(&tier).await;
        assert_eq!(tier.stale(), []);
    });
}
