//! Hints of the durable part of files that are still open.

use volume::layer::crash::{Crash, Power};

use super::*;

/// Records of this length have hints that are worth writing.
const LEN: usize = 4000;

/// A store with one open file, whose first `puts` records are durable, and were when the store was tended last; and its
/// contents.
fn open_file(puts: u64) -> (Rig, BTreeMap<Vec<u8>, Vec<u8>>) {
    let rig = Rig::new(1);
    let store = rig.store();
    let mut model = BTreeMap::new();
    for n in 0..puts {
        rig.put(&store, &n.to_be_bytes(), &value(n, LEN));
        model.insert(n.to_be_bytes().to_vec(), value(n, LEN));
    }
    rig.tend(&store);
    (rig, model)
}

/// The names of its file and of the hint.
fn names(rig: &Rig) -> [Name; 2] {
    let image = rig.mems[0].image();
    [".seg", ".hint"].map(|end| {
        let mut names = image.keys().filter(|name| name.as_str().ends_with(end));
        let name = names.next().unwrap().clone();
        assert!(names.next().is_none(), "one file is open, and none is full");
        name
    })
}

fn other(rig: &Rig, image: volume::mem::Image) -> Rig {
    let (options, clock) = (rig.options.clone(), rig.clock.clone());
    Rig { mems: vec![Mem::from_image("v0", image)], options, clock }
}

#[test]
fn an_opening_after_a_kill_reads_an_open_file_from_where_its_hint_ends() {
    let (rig, mut model) = open_file(10);
    let [file, hint] = names(&rig);
    let len = rig.mems[0].image()[&file].len() as u64;
    let (store, report) = rig.open();
    assert_eq!((report.scanned, report.damage.len(), report.torn.len()), (1, 0, 0));
    assert!(report.scanned_bytes < len / 4 + 4096, "{} of {len}", report.scanned_bytes);
    assert!(report.hint_bytes > 0);
    assert_eq!(rig.all(&store), model);

    // The next process gives the file its hint, and counts the room of one of them.
    let key = 3u64.to_be_bytes();
    rig.clock.run(store.delete(&key)).unwrap();
    model.remove(&key[..]);
    rig.tend(&store);
    let image = rig.mems[0].image();
    let held = image.values().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(store.0.state().members[0].own, held);
    drop(store);
    let (store, report) = rig.open();
    assert_eq!((report.scanned, report.damage.len()), (1, 0), "only that of the deletion");
    assert!(report.scanned_bytes <= 4096, "{}", report.scanned_bytes);
    assert_eq!(rig.all(&store), model);
    rig.clock.run(store.close()).unwrap();
    drop(store);
    assert_eq!(rig.open().1.scanned, 0);
    assert!(rig.mems[0].image().contains_key(&hint));
}

#[test]
fn hints_of_small_records_are_written_once_the_file_is_full() {
    let rig = Rig::new(1);
    let store = rig.store();
    let edits = (0..200u64).map(|n| Edit::Put {
        key: Bytes::copy_from_slice(&n.to_be_bytes()),
        value: value(n, 100).into(),
        lives: None,
    });
    rig.clock.run(store.write(edits.collect())).unwrap();
    rig.tend(&store);
    assert!(store.0.state().members[0].own > rig.options.file_bytes / 4);
    assert!(rig.mems[0].image().keys().all(|name| !name.as_str().ends_with(".hint")));
}

#[test]
fn whatever_became_of_its_hint_an_open_file_has_its_records() {
    let (rig, model) = open_file(10);
    let [file, hint] = names(&rig);
    let image = rig.mems[0].image();
    let is_used = |image: &volume::mem::Image| {
        let bytes = &image[&hint];
        bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count()
    };
    for offset in 0..is_used(&image) {
        let rig = other(&rig, image.clone());
        rig.mems[0].damage(&hint, offset as u64, |byte| *byte ^= 1 << (offset % 8));
        let (store, report) = rig.open();
        assert_eq!((report.scanned, report.damage.len()), (1, 0), "byte {offset}");
        assert_eq!(rig.all(&store), model, "byte {offset}");
    }
    // The end of the file is lost, which was durable. The first record ends on its second page.
    let end = |n: usize| n.checked_sub(1).map_or(8192, |n| 8192 + n * 4096 + LEN + 48);
    for len in (0..end(6)).step_by(4096) {
        let mut image = image.clone();
        image.get_mut(&file).unwrap().truncate(len);
        let (store, report) = other(&rig, image).open();
        let first = report.damage.first().unwrap();
        assert_eq!((len as u64, Bad::Short), (first.offset, first.bad));
        for (n, (key, value)) in model.iter().enumerate() {
            match rig.clock.run(store.get(key)) {
                // Those that the hint does not cover are unknown.
                Ok(None) => assert!(n >= 7, "{n}"),
                Ok(Some(found)) => assert_eq!(found[..], value[..]),
                Err(error) => assert!(error.kind() == ErrorKind::Corrupt && end(n) > len, "{n}"),
            }
        }
    }
}

/// The power fails at any step of puts that fill some files and write hints of them.
#[test]
fn a_hint_of_an_open_file_never_covers_more_than_is_durable() {
    const PUTS: u64 = 40;
    for durability in [Durability::Always, Durability::Interval(Duration::from_millis(10))] {
        let run = |cut: Option<u64>| {
            let mut rig = Rig::new(1);
            rig.options.durability = durability;
            let power = Power::new();
            let crash = Crash::new(rig.mems[0].clone(), &power);
            let members = vec![Member::new("v0", crash.clone())];
            let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
            let (store, _) = rig.clock.run(opening).unwrap();
            let before = power.steps();
            cut.into_iter().for_each(|steps| power.cut_after(steps));
            let (mut answered, mut durable) = (0, 0);
            for n in 0..PUTS {
                let key = (n % 30).to_be_bytes();
                if rig.clock.run(store.put(&key, value(n, LEN).into(), None)).is_err() {
                    break;
                }
                answered = n + 1;
                if n % 3 == 0 && rig.clock.run(store.sync()).is_err() {
                    break;
                }
                if n % 3 == 0 || durability == Durability::Always {
                    durable = n + 1;
                }
                if rig.clock.run(store.tend_once(0)).is_err() {
                    break;
                }
            }
            let steps = power.steps() - before;
            (rig, crash, answered, durable, steps)
        };
        let steps = run(None).4;
        assert!(steps > PUTS, "{steps} steps");
        let mut with_hint = 0;
        for cut in 0..steps {
            let (mut rig, crash, answered, durable, _) = run(Some(cut));
            for seed in 0..4 {
                rig.mems = vec![crash.survivor(cut * 4 + seed)];
                let (store, report) = rig.open();
                assert_eq!(report.damage, [], "cut at {cut}, seed {seed}");
                with_hint += u64::from(report.scanned > 0 && report.hint_bytes > 0);
                let found = rig.all(&store);
                for key in 0..30u64 {
                    // Later puts may be there.
                    let puts = (0..PUTS).filter(|n| n % 30 == key);
                    let newest = puts.clone().filter(|&n| n < durable).max();
                    let is_one = |n: u64| found.get(&key.to_be_bytes()[..]) == Some(&value(n, LEN));
                    let later = puts.filter(|&n| n >= durable && n <= answered);
                    let is_there = newest.is_none_or(is_one) || later.clone().any(is_one);
                    assert!(is_there, "cut at {cut}, seed {seed}: key {key}");
                }
            }
        }
        assert!(with_hint > 0, "no open file had a hint");
    }
}
