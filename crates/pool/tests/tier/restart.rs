//! What a tier finds on its fast volume when it opens.

use std::sync::Arc;

use pool::tier::Tier;
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, IoBuf, Volume};

use crate::rig::{IO, PAGE, UNIT, content, fill, name, open, open_now, options, read};

fn shared(mem: &Mem) -> Arc<dyn Volume> {
    Arc::new(mem.clone())
}

/// Reads all of an object, and has it promoted.
async fn warm(tier: &Tier, text: &str, len: u64) {
    let object = tier.open(&name(text)).await.unwrap();
    for unit in 0..len / UNIT {
        read(&*object, unit * UNIT, UNIT).await;
        tier.install_all().await;
    }
}

#[test]
fn an_orderly_restart_keeps_every_cached_byte() {
    const LEN: u64 = 100 * UNIT;
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let tier = open_now(&slow, &shared(&fast), options(128));
    let before = block_on(async {
        fill(&tier, "a", LEN, 3).await;
        warm(&tier, "a", LEN).await;
        tier.close().await;
        tier.figures().cached_bytes
    });
    assert_eq!(before, LEN);
    drop(tier);
    let tier = open_now(&slow, &shared(&fast), options(128));
    assert_eq!(tier.figures().cached_bytes, before);
    block_on(async {
        let object = tier.open(&name("a")).await.unwrap();
        assert_eq!(read(&*object, 0, LEN).await, content(LEN, 3));
    });
    assert_eq!(tier.figures().missed_bytes, 0);
}

/// Without a last checkpoint: only the units that were written since the checkpoint are empty.
#[test]
fn a_restart_after_the_death_of_the_process_empties_what_was_written() {
    const LEN: u64 = 20 * UNIT;
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let tier = open_now(&slow, &shared(&fast), options(32));
    block_on(async {
        let object = fill(&tier, "a", LEN, 3).await;
        warm(&tier, "a", LEN).await;
        tier.write_checkpoint().await;
        object.write_at(2 * UNIT, IoBuf::from(&[9; 5][..]), IO).await.unwrap();
        object.sync(IO).await.unwrap();
    });
    drop(tier);
    let tier = open_now(&slow, &shared(&fast), options(32));
    assert_eq!(tier.figures().cached_bytes, LEN - UNIT);
    block_on(async {
        let object = tier.open(&name("a")).await.unwrap();
        assert_eq!(read(&*object, 2 * UNIT, 5).await, [9; 5]);
    });
}

#[test]
fn a_stale_fast_volume_is_emptied() {
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let tier = open_now(&slow, &shared(&fast), options(8));
    block_on(async {
        fill(&tier, "a", UNIT, 1).await;
        warm(&tier, "a", UNIT).await;
        tier.close().await;
    });
    drop(tier);
    block_on(async {
        let tier = open(&slow, None, options(8), &Clock::simulated()).await.unwrap();
        let object = tier.open(&name("a")).await.unwrap();
        object.write_at(0, IoBuf::from(&content(UNIT, 2)[..]), IO).await.unwrap();
        assert_eq!(tier.figures().cached_bytes, 0);
    });
    let tier = open_now(&slow, &shared(&fast), options(8));
    assert_eq!((tier.is_attached(), tier.figures().cached_bytes), (true, 0));
    block_on(async {
        let object = tier.open(&name("a")).await.unwrap();
        assert_eq!(read(&*object, 0, UNIT).await, content(UNIT, 2));
    });
}

#[test]
fn a_foreign_fast_volume_is_refused_unless_it_may_be_emptied() {
    let (slow, other, fast) = (Mem::new("slow"), Mem::new("other"), Mem::new("fast"));
    drop(open_now(&other, &shared(&fast), pool::tier::Options { identity: 5, ..options(8) }));
    let refused = block_on(open(&slow, Some(&shared(&fast)), options(8), &Clock::simulated()));
    let refused = refused.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert!(refused.to_string().contains("cache of another slow volume"), "{refused}");
    assert!(slow.image().is_empty(), "nothing was changed");
    let taking = pool::tier::Options { take_foreign: true, ..options(8) };
    let tier = open_now(&slow, &shared(&fast), taking);
    assert!(tier.is_attached());
    drop(tier);
    assert!(open_now(&slow, &shared(&fast), options(8)).is_attached(), "it is its own now");
}

#[test]
fn an_object_that_is_gone_is_forgotten() {
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let tier = open_now(&slow, &shared(&fast), options(8));
    block_on(async {
        for text in ["a", "b"] {
            fill(&tier, text, UNIT, 1).await;
            warm(&tier, text, UNIT).await;
        }
        tier.close().await;
        tier.remove(&name("a")).await.unwrap();
        fill(&tier, "a", UNIT, 2).await;
    });
    drop(tier);
    let tier = open_now(&slow, &shared(&fast), options(8));
    assert_eq!(tier.figures().cached_bytes, UNIT, "the object of the name is another one");
    block_on(async {
        let object = tier.open(&name("a")).await.unwrap();
        assert_eq!(read(&*object, PAGE, PAGE).await, content(UNIT, 2)[PAGE as usize..][..4096]);
    });
}
