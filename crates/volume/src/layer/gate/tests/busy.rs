//! Syncs of a log that is written all the time.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const END: Duration = Duration::from_secs(10);

/// The longest sync, with one started at each full second while `others` work.
fn longest_sync<F: Future>(stage: &Stage, append_len: u64, others: F) -> Duration {
    let appends = async {
        let mut at = 0;
        while stage.now() < END {
            stage.object.write_at(at, data(append_len), WRITE).await.unwrap();
            at += append_len;
            stage.clock.sleep(MS).await;
        }
    };
    let timer = async {
        let mut longest = Duration::ZERO;
        for second in 1..10 {
            stage.clock.sleep_until(Instant::ZERO + second * SECOND).await;
            let from = stage.now();
            stage.object.sync(WRITE).await.unwrap();
            longest = longest.max(stage.now().saturating_sub(from));
        }
        longest
    };
    stage.run(join(join(appends, others), timer)).1
}

/// Ten tasks that together ask for more than the contract.
async fn crowd(stage: &Stage, io: Io) {
    let object = stage.gate.open(&name("other")).await.unwrap();
    let ten = (0..10).map(|_| async {
        while stage.now() < END {
            object.write_at(0, data(4096), io).await.unwrap();
        }
    });
    join_all(ten).await;
}

fn stage(contract: &Contract, policy: Policy) -> Stage {
    let stage = Stage::under(policy, contract, "wal.log", |_| {});
    stage.run(stage.gate.create(&name("other"), &Intent::DATA)).unwrap();
    stage
}

/// A sync that found more unsynced than it had paid for returned its tokens and queued again, behind all others: on a
/// busy log it waited as long as others committed.
#[test]
fn a_sync_keeps_its_place_when_its_log_grew_meanwhile() {
    for policy in [Policy::Strict, Policy::Tags, Policy::TagsP99] {
        let stage = stage(&contract(100), policy);
        let longest = longest_sync(&stage, 100, crowd(&stage, WRITE));
        let issued = stage.device.take();
        assert_eq!(issued.iter().filter(|issued| issued.what == "sync").count(), 9, "{policy:?}");
        // It waits for the ten others once.
        assert!(longest <= 11 * 10 * MS, "{policy:?}: {longest:?}");
    }
}

/// The log grows nearly as fast as the volume earns bytes. The sync pays for what arrives while it waits, and catches
/// up.
#[test]
fn a_sync_catches_up_with_its_log() {
    let bytes = Limit { counts: Counted::Bytes, rate_per_sec: 4 << 20, depth: 4 << 20 };
    let terms = Contract { limits: vec![bytes], ..Contract::unlimited() };
    let stage = stage(&terms, Policy::Strict);
    let longest = longest_sync(&stage, 2 << 10, async {});
    // 2 MiB/s are written and 4 MiB/s earned: the sync finds its tokens there.
    assert_eq!(longest, Duration::ZERO);
    let stage = self::stage(&terms, Policy::Strict);
    let longest = longest_sync(&stage, 3 << 10, crowd(&stage, READ));
    assert!(longest <= SECOND, "{longest:?}");
}
