//! Reads choose between copies on devices of different speed, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use policy::budget::Share;
use policy::contract::{Contract, Counted, Latency, Limit, Percentiles};
use policy::latency::Times;
use policy::placement::{Code, RoundRobin};
use policy::purpose::{Origin, Step};
use policy::units::{KIB, MIB};
use pool::Member;
use pool::spread::{Opening, Spread};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, Io, IoBufMut, Volume};

use super::rig::{POOL, name, put};

type Device = Arc<Gate<Simulate<Mem>>>;

const READ: Io = Io::new(Origin::UserRead, Step::Data);

/// A volume that gives `iops` operations a second and takes `micros` for each.
fn device(label: &str, iops: u64, micros: u64, clock: &Clock) -> Device {
    let time = Percentiles::constant(Duration::from_micros(micros));
    let limit = Limit { counts: Counted::Ops, rate_per_sec: iops, depth: iops };
    let contract = Contract {
        limits: vec![limit],
        latency: Latency { read: time, write: time },
        ..Contract::unlimited()
    };
    let simulated = Simulate::new(Mem::new(label), &contract, clock.clone(), 1);
    Arc::new(Gate::new(simulated, label, &contract, Share::default(), clock.clone()))
}

async fn open(devices: &[Device], opening: Opening) -> Spread {
    let members = devices.iter().enumerate();
    let members = members.map(|(at, device)| Member::new(format!("s{at}"), Arc::clone(device)));
    Spread::open(members.collect(), opening.create_if_missing(POOL)).await.expect("it opens")
}

/// Reads of users that a device served.
fn reads(device: &Device) -> u64 {
    device.meter().classes[READ.class().index()].spent.read_ops
}

/// Offers `per_sec` reads a second of an object for ten seconds; returns how long they took.
async fn read(clock: &Clock, pool: &Spread, text: &str, per_sec: u32) -> Times {
    let object = pool.open(&name(text)).await.expect("it is there");
    let (began, took) = (clock.now(), Mutex::new(Times::default()));
    let all = (0..10 * per_sec).map(async |nth| {
        let due = began + Duration::from_secs(1) / per_sec * nth;
        clock.sleep_until(due).await;
        let at = u64::from(nth) * 7 % 256 * 4 * KIB;
        object.read_at(at, IoBufMut::zeroed(4096), READ).await.expect("a page");
        took.lock().record(clock.now().since(due));
    });
    join_all(all).await;
    took.into_inner()
}

#[test]
fn reads_go_to_the_fast_device_until_it_is_at_its_line() {
    let clock = Clock::simulated();
    clock.run(async {
        let (ssd, disk) = (device("ssd", 300, 100, &clock), device("disk", 300, 8000, &clock));
        let devices = [Arc::clone(&ssd), Arc::clone(&disk)];
        let pool = open(&devices, Opening::new(RoundRobin::default()).copies(2)).await;
        put(&pool, "a", &vec![1; MIB as usize]).await.expect("there is room");
        clock.sleep(Duration::from_secs(5)).await;

        let took = read(&clock, &pool, "a", 100).await;
        // The disk is tried until its time is known, and again where that was long ago.
        assert!(reads(&disk) <= 10, "{} of 1000 went to the disk", reads(&disk));
        let p99 = took.quantile(0.99).expect("some were read");
        assert!(p99 < Duration::from_millis(1), "{p99:?}");

        let before = [reads(&ssd), reads(&disk)];
        read(&clock, &pool, "a", 500).await;
        let [fast, slow] = [reads(&ssd) - before[0], reads(&disk) - before[1]];
        assert_eq!(fast + slow, 5000);
        assert!(fast >= 2900 && slow >= 1500, "{fast} and {slow}");
    });
}

#[test]
fn equal_devices_share_the_reads_although_one_is_a_little_faster() {
    let clock = Clock::simulated();
    clock.run(async {
        let devices = [device("one", 3000, 700, &clock), device("other", 3000, 1000, &clock)];
        let pool = open(&devices, Opening::new(RoundRobin::default()).copies(2)).await;
        put(&pool, "a", &vec![1; MIB as usize]).await.expect("there is room");
        clock.sleep(Duration::from_secs(5)).await;
        read(&clock, &pool, "a", 200).await;
        for device in &devices {
            assert!((800..1200).contains(&reads(device)), "{}", reads(device));
        }
    });
}

#[test]
fn what_a_read_takes_is_told_of_the_range() {
    let clock = Clock::simulated();
    clock.run(async {
        let devices = [1, 2, 3].map(|at| device(&format!("d{at}"), 100, 1000, &clock));
        let code = Code::new(2, 1, 4 * KIB).expect("a code");
        let pool = open(&devices, Opening::new(RoundRobin::default()).code(code)).await;
        put(&pool, "a", &vec![1; 64 * KIB as usize]).await.expect("there is room");
        let object = pool.open(&name("a")).await.expect("it is there");
        clock.sleep(Duration::from_secs(5)).await;
        let expected = |at| object.expected_read(at, 4 * KIB);
        // Each strip of a row is on a volume of its own: the reads of one make its volume busy.
        let busy = (0..200).map(|_| object.read_at(0, IoBufMut::zeroed(4096), READ));
        let watched = async {
            clock.sleep(Duration::from_millis(10)).await;
            let [first, second] = [expected(0), expected(4 * KIB)];
            assert!(first.wait > Duration::from_millis(500), "{first:?}");
            assert_eq!(second.wait, Duration::ZERO);
            let both = object.expected_read(0, 8 * KIB);
            assert_eq!(both.wait, first.wait, "the slower one decides");
            let mean = pool.expected_read().wait;
            assert!(mean > Duration::ZERO && mean < first.wait / 2, "{mean:?}");
        };
        let (all, ()) = futures_util::future::join(join_all(busy), watched).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(expected(0).answer, Duration::from_millis(1));
        assert!(pool.users_load() > 0.9, "{}", pool.users_load());
    });
}
