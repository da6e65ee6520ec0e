//! A file cut or changed at every place: reads give an error that names the file, and no other record is lost.

use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule as FaultRule};

use super::super::state::Phase;
use super::file::Role;
use super::lease::faulty;
use super::*;

/// A store of one sealed file, with or without its hint, and its contents.
fn one_file(hint: bool) -> (Rig, Name, BTreeMap<Vec<u8>, Vec<u8>>) {
    let rig = Rig::new(1);
    let store = rig.store();
    let mut model = BTreeMap::new();
    for n in 0..6u64 {
        let value = value(n, 100 + n as usize);
        rig.put(&store, &n.to_be_bytes(), &value);
        model.insert(n.to_be_bytes().to_vec(), value);
    }
    rig.clock.run(store.close()).unwrap();
    drop(store);
    let names: Vec<_> = rig.mems[0].image().into_keys().collect();
    let ends = |end: &str| names.iter().find(|name| name.as_str().ends_with(end)).unwrap().clone();
    if !hint {
        rig.clock.run(rig.mems[0].remove(&ends(".hint"))).unwrap();
    }
    (rig, ends(".seg"), model)
}

/// The readable records, and the number of reads that named damage.
fn readable(rig: &Rig, store: &Store) -> (BTreeMap<Vec<u8>, Vec<u8>>, usize) {
    let (mut whole, mut named) = (BTreeMap::new(), 0);
    for key in store.keys(b"", None, 100) {
        match rig.clock.run(store.get(&key)) {
            Ok(value) => {
                whole.insert(key.to_vec(), value.expect("it is in the index").to_vec());
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains(".seg: record at byte"), "{error}");
                named += 1;
            }
        }
    }
    (whole, named)
}

/// Each record is on its own page, since each was synced.
fn record_of(offset: usize) -> Option<usize> {
    let page = offset / 4096;
    let within = offset % 4096;
    let start = if page == 0 { format::HEADER_LEN } else { 0 };
    let end = start + format::HEAD_LEN + 8 + 100 + page;
    (start..end).contains(&within).then_some(page)
}

#[test]
fn a_flipped_bit_costs_its_record_and_nothing_else() {
    for hint in [true, false] {
        let (rig, file, model) = one_file(hint);
        let image = rig.mems[0].image();
        let len = image[&file].len();
        // Every used byte of each page, and some of the padding.
        for offset in (0..len).filter(|offset| offset % 4096 < 260 || offset % 512 == 0) {
            let rig = Rig {
                mems: vec![Mem::from_image("v0", image.clone())],
                options: rig.options.clone(),
                clock: rig.clock.clone(),
            };
            rig.mems[0].damage(&file, offset as u64, |byte| *byte ^= 1 << (offset % 8));
            let (store, report) = rig.open();
            let (whole, named) = readable(&rig, &store);
            let hit = record_of(offset);
            let mut expected = model.clone();
            if let Some(n) = hit {
                expected.remove((n as u64).to_be_bytes().as_slice());
            }
            assert_eq!(whole, expected, "byte {offset}, hint {hint}");
            if hint {
                assert_eq!(named, usize::from(hit.is_some()), "byte {offset}");
                assert!(report.damage.is_empty(), "opening reads the hint only");
                continue;
            }
            let said: Vec<_> = report.damage.iter().map(|damage| damage.offset).collect();
            match hit {
                // No later record says that the last one was durable.
                Some(5) => assert_eq!((said.len(), report.torn.len()), (0, 1), "byte {offset}"),
                Some(0) => assert_eq!(said, [64], "byte {offset}"),
                Some(n) => assert_eq!(said, [n as u64 * 4096], "byte {offset}"),
                None if offset < 64 => assert_eq!(said, [0], "byte {offset}: the header"),
                // The scan reads padding only where a record might begin.
                None => assert!(said.len() <= 1, "byte {offset}: padding"),
            }
        }
    }
}

#[test]
fn a_scrub_names_what_is_damaged() {
    let (rig, file, _) = one_file(true);
    let (store, _) = rig.open();
    let scrub = || rig.clock.run(store.scrub()).unwrap();
    let clean = scrub();
    assert_eq!((clean.files, clean.lost.len(), clean.harmless.len()), (1, 0, 0));
    rig.mems[0].damage(&file, 2 * 4096 + 60, |byte| *byte ^= 4);
    rig.mems[0].damage(&file, 20, |byte| *byte ^= 4);
    let found = scrub();
    assert_eq!(found.lost.len(), 1);
    assert_eq!((found.lost[0].offset, found.lost[0].bad), (2 * 4096, Bad::Value));
    assert_eq!((found.harmless.len(), found.harmless[0].offset), (1, 0));
    rig.put(&store, &2u64.to_be_bytes(), b"anew");
    let found = scrub();
    assert_eq!((found.lost.len(), found.harmless.len()), (0, 2), "no live record is damaged");
}

#[test]
fn who_looks_without_opening_hears_file_offset_and_key() {
    for hint in [true, false] {
        let (rig, file, model) = one_file(hint);
        let image = rig.mems[0].image();
        let look = |scrub| rig.clock.run(inspect(&rig.members(), "log", scrub)).unwrap();
        let sound = look(true);
        assert_eq!((sound.flaws.len(), sound.files, sound.read), (0, 1, 1));
        assert_eq!((sound.keys, sound.records), (model.len() as u64, model.len() as u64));
        assert_eq!(rig.mems[0].image(), image, "nothing was changed");
        // The value of the third record, then its head.
        for (at, bad) in [(60, Bad::Value), (12, Bad::Head)] {
            let offset = 2 * 4096;
            rig.mems[0].damage(&file, offset + at, |byte| *byte ^= 4);
            let found = look(true);
            assert_eq!(found.flaws.len(), 1, "{found:?}");
            let flaw = &found.flaws[0];
            assert!(flaw.what.ends_with(file.as_str()), "{}", flaw.what);
            assert_eq!((flaw.offset, flaw.bad, flaw.is_lost), (offset, bad, true));
            // Without a hint, a damaged head does not give its key.
            let key = (hint || bad == Bad::Value).then(|| 2u64.to_be_bytes());
            assert_eq!(flaw.key.as_deref(), key.as_ref().map(|key| &key[..]));
            assert_eq!(look(false).flaws.len(), usize::from(!hint), "hints are trusted");
            rig.mems[0].damage(&file, offset + at, |byte| *byte ^= 4);
        }
        assert_eq!(rig.mems[0].image(), image, "nothing was changed");
    }
}

#[test]
fn a_cut_file_keeps_what_is_before_the_cut() {
    for hint in [true, false] {
        let (rig, file, model) = one_file(hint);
        let image = rig.mems[0].image();
        for len in (0..image[&file].len()).filter(|len| len % 4096 < 200 || len % 512 == 0) {
            let mut image = image.clone();
            image.get_mut(&file).unwrap().truncate(len);
            let rig = Rig {
                mems: vec![Mem::from_image("v0", image)],
                options: rig.options.clone(),
                clock: rig.clock.clone(),
            };
            let (store, report) = rig.open();
            let (whole, named) = readable(&rig, &store);
            // Without a hint, padding of a record to eight bytes may be missing without harm.
            let there = |n: usize| {
                let start = if n == 0 { format::HEADER_LEN } else { n * 4096 };
                len >= start + format::record_len(8, 100 + n)
            };
            let mut expected = model.clone();
            expected.retain(|key, _| there(usize::from(key[7])));
            assert!(whole == expected || whole.len() == expected.len() + 1, "{len} bytes");
            assert!(whole.iter().all(|(key, value)| model[key] == *value));
            if hint {
                assert_eq!(named + whole.len(), model.len(), "{len} bytes");
                assert_eq!(report.damage.len(), 1);
                assert_eq!(
                    (report.damage[0].offset, report.damage[0].bad),
                    (len as u64, Bad::Short)
                );
            }
        }
    }
}

#[test]
fn a_damaged_hint_is_made_anew() {
    let (rig, file, model) = one_file(true);
    let hint = Name::new(&file.as_str().replace(".seg", ".hint")).unwrap();
    let image = rig.mems[0].image();
    let used = format::HINT_HEADER_LEN + 6 * (18 + 8);
    for offset in 0..used {
        let rig = Rig {
            mems: vec![Mem::from_image("v0", image.clone())],
            options: rig.options.clone(),
            clock: rig.clock.clone(),
        };
        rig.mems[0].damage(&hint, offset as u64, |byte| *byte ^= 1 << (offset % 8));
        let (store, report) = rig.open();
        assert_eq!((report.scanned, report.damage.len()), (1, 0), "byte {offset}");
        assert_eq!(readable(&rig, &store), (model.clone(), 0));
        rig.tend(&store);
        drop(store);
        assert_eq!(rig.open().1.scanned, 0, "byte {offset}: it is there again");
    }
    for len in 0..used {
        let mut image = image.clone();
        image.get_mut(&hint).unwrap().truncate(len);
        let rig = Rig {
            mems: vec![Mem::from_image("v0", image)],
            options: rig.options.clone(),
            clock: rig.clock.clone(),
        };
        let (store, report) = rig.open();
        assert_eq!((report.scanned, report.damage.len()), (1, 0), "{len} bytes");
        assert_eq!(readable(&rig, &store), (model.clone(), 0), "{len} bytes");
    }
}

#[test]
fn a_merge_leaves_damage_where_it_is_and_saves_the_rest() {
    let rig = Rig::new(1);
    let store = rig.store();
    for n in 0..60u64 {
        rig.put(&store, &n.to_be_bytes(), &value(n, 900));
    }
    rig.tend(&store);
    let (victim, place) = {
        let state = store.0.state();
        let place = state.index.get(&3u64.to_be_bytes()).unwrap();
        (state.files[&place.file].handle.id, place)
    };
    let name = store.0.names.of(Role::File(victim));
    rig.mems[0].damage(&name, u64::from(place.offset) + 100, |byte| *byte ^= 1);
    let handle = Arc::clone(&store.0.state().files[&victim].handle);
    let io = Io::new(Origin::Merge { space_pressure_percent: 50 }, Step::Data);
    assert!(!rig.clock.run(store.0.copy(0, &handle, io)).unwrap());
    rig.clock.run(store.0.release(victim, false, Duration::ZERO)).unwrap();
    drop(handle);
    let (whole, named) = readable(&rig, &store);
    assert_eq!((whole.len(), named), (59, 1));
    assert_eq!(store.figures().volumes[0].counts.damaged, 1);
    let state = store.0.state();
    assert_eq!(state.files[&victim].live, u64::from(place.len), "the rest was copied");
}

/// A merge once ended at a bad sector, and picked the same file again each second.
#[test]
fn a_merge_saves_every_record_that_the_device_can_read() {
    // How many reads fail: that of a whole piece and that of its first record; or all, the hint's included.
    for (failing, stays) in [(0..2, 1), (0..u64::MAX, 60)] {
        let rig = Rig::new(1);
        let plan = FaultPlan::new(1);
        let store = faulty(&rig, &plan);
        for n in 0..60u64 {
            rig.put(&store, &n.to_be_bytes(), &value(n, 900));
        }
        rig.tend(&store);
        let place = store.0.state().index.get(&3u64.to_be_bytes()).unwrap();
        let (victim, len) = (place.file, u64::from(place.len));
        let handle = Arc::clone(&store.0.state().files[&victim].handle);
        let before = store.0.state().files[&victim].live;
        let named = match stays {
            1 => handle.name.as_str().to_owned(),
            _ => handle.name.as_str().replace(".seg", "*"),
        };
        let unreadable = FaultRule::new(Effect::Fail(ErrorKind::Io)).on(Op::Read);
        plan.inject(unreadable.named(&named).calls(failing));
        let io = Io::new(Origin::Merge { space_pressure_percent: 50 }, Step::Data);
        assert!(!rig.clock.run(store.0.copy(0, &handle, io)).unwrap());
        rig.clock.run(store.0.release(victim, false, Duration::ZERO)).unwrap();
        drop(handle);
        assert_eq!(store.figures().volumes[0].counts.damaged, 1);
        assert_eq!(store.0.state().files[&victim].live, (stays * len).min(before));
        // The file stays, and is not merged again.
        plan.clear();
        rig.tend(&store);
        assert_eq!(store.0.state().files[&victim].phase, Phase::Damaged);
        assert_eq!(readable(&rig, &store).0.len(), 60);
    }
}

#[test]
fn a_record_that_the_device_cannot_read_is_damaged() {
    let rig = Rig::new(1);
    let plan = FaultPlan::new(1);
    let store = faulty(&rig, &plan);
    rig.put(&store, b"key", b"value");
    plan.inject(FaultRule::new(Effect::Fail(ErrorKind::Io)).on(Op::Read));
    assert_eq!(readable(&rig, &store).1, 1);
    assert_eq!(store.health().damaged, 1);
    plan.clear();
    plan.inject(FaultRule::new(Effect::Fail(ErrorKind::Busy)).on(Op::Read));
    let busy = rig.clock.run(store.get(b"key")).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "this process is at fault");
}

#[test]
fn a_damaged_record_is_counted_once_and_shows_until_it_is_overwritten() {
    let (rig, file, model) = one_file(true);
    rig.mems[0].damage(&file, 4096 + 60, |byte| *byte ^= 1);
    let store = rig.store();
    assert!(store.health().is_healthy());
    for _ in 0..3 {
        assert_eq!(readable(&rig, &store).1, 1);
    }
    assert_eq!(store.health().damaged, 1);
    assert_eq!(store.figures().volumes[0].counts.damaged, 1);
    let key = model.keys().nth(1).unwrap();
    rig.put(&store, key, b"anew");
    assert!(store.health().is_healthy(), "the damaged record is superseded");
    assert_eq!(readable(&rig, &store).1, 0);
}

/// A store of several sealed files on a volume that fails on demand, with a deleted key in the last one.
fn failing() -> (Rig, FaultPlan, Vec<FileId>) {
    let rig = Rig::new(1);
    let store = rig.store();
    for n in 0..60u64 {
        rig.put(&store, &n.to_be_bytes(), &value(n, 100));
    }
    rig.clock.run(store.delete(&0u64.to_be_bytes())).unwrap();
    rig.clock.run(store.close()).unwrap();
    let names = rig.mems[0].image().into_keys();
    let ids = names.filter_map(|name| match store.0.names.role(&name) {
        Some(Role::File(id)) => Some(id),
        _ => None,
    });
    (rig, FaultPlan::new(1), ids.collect())
}

fn open_failing(rig: &Rig, plan: &FaultPlan) -> Result<(Store, Report)> {
    let fault = Fault::new(rig.mems[0].clone(), "v0", plan, &rig.clock);
    let members = vec![Member::new("v0", fault)];
    rig.clock.run(Store::open(members, rig.options.clone(), rig.clock.clone(), None))
}

fn fail_opens(plan: &FaultPlan, kind: ErrorKind, names: &str) {
    plan.inject(FaultRule::new(Effect::Fail(kind)).on(Op::Open).named(names));
}

/// A store with one file away did not open at all.
#[test]
fn a_file_that_is_away_fails_its_own_reads_and_is_back_with_its_volume() {
    let (rig, plan, ids) = failing();
    assert!(ids.len() > 2, "{ids:?}");
    fail_opens(&plan, ErrorKind::Unavailable, &format!("*{:010x}.seg", ids[0].0));
    let (store, report) = open_failing(&rig, &plan).unwrap();
    assert_eq!(report.damage, []);
    let get = |n: u64| rig.clock.run(store.get(&n.to_be_bytes()));
    assert_eq!(get(1).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(get(59).unwrap().unwrap().to_vec(), value(59, 100));
    assert!(get(0).unwrap().is_none(), "it was deleted");
    plan.clear();
    assert_eq!(get(1).unwrap().unwrap().to_vec(), value(1, 100));
}

/// Without the hint, nothing tells whether a record is in the file: an older one must not count instead.
#[test]
fn a_store_with_a_file_and_its_hint_away_does_not_open() {
    let (rig, plan, ids) = failing();
    fail_opens(&plan, ErrorKind::Unavailable, &format!("*{:010x}.*", ids[0].0));
    let refused = open_failing(&rig, &plan).err().expect("a file is away");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    plan.clear();
    assert_eq!(open_failing(&rig, &plan).unwrap().0.keys(b"", None, 100).len(), 59);
}

/// One lost file cost all of the store. And the tombstones of its keys went while it could not be read.
#[test]
fn a_file_that_is_lost_costs_its_records_and_deleted_ones_stay_deleted() {
    let (rig, plan, ids) = failing();
    for kind in [ErrorKind::Corrupt, ErrorKind::Io] {
        plan.clear();
        fail_opens(&plan, kind, &format!("*{:010x}.*", ids[0].0));
        let (store, report) = open_failing(&rig, &plan).unwrap();
        assert_eq!((report.damage.len(), report.damage[0].bad), (1, Bad::Unreadable));
        assert!(report.damage[0].what.contains(".seg"), "{report:?}");
        assert_eq!(rig.get(&store, &1u64.to_be_bytes()), None);
        assert!(store.contains(&59u64.to_be_bytes()));
        // Every file but the lost one is rewritten.
        for n in 30..60u64 {
            rig.put(&store, &n.to_be_bytes(), &value(n, 100));
        }
        rig.tend(&store);
        rig.clock.run(store.close()).unwrap();
    }
    plan.clear();
    let (store, _) = open_failing(&rig, &plan).unwrap();
    assert_eq!(
        rig.clock.run(store.get(&1u64.to_be_bytes())).unwrap().unwrap().to_vec(),
        value(1, 100)
    );
    assert!(!store.contains(&0u64.to_be_bytes()), "it came back");
}
