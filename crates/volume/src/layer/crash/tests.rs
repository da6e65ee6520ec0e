use std::collections::BTreeSet;

use policy::purpose::{Origin, Step};

use super::*;
use crate::conformance::{self, Blocking};
use crate::mem::Image;
use crate::task::block_on;

const IO: Io = Io::new(Origin::UserWrite, Step::Data);
const PAGE: usize = 4096;
const SEEDS: u64 = 600;

struct Machine {
    power: Power,
    volume: Crash,
}

impl Machine {
    fn new() -> Self {
        let power = Power::new();
        let volume = Crash::new(Mem::new("m"), &power);
        Self { power, volume }
    }

    fn create(&self, text: &str) -> Arc<dyn Object> {
        block_on(self.volume.create(&name(text), &conformance::intent(&name(text)))).unwrap()
    }

    fn remove(&self, text: &str) {
        block_on(self.volume.remove(&name(text))).unwrap();
    }

    /// Every outcome for some seed.
    fn survivors(&self) -> BTreeSet<Image> {
        (0..SEEDS).map(|seed| self.volume.survivor(seed).image()).collect()
    }

    /// Every outcome for one object.
    fn survivors_of(&self, text: &str) -> BTreeSet<Option<Vec<u8>>> {
        self.survivors().into_iter().map(|mut image| image.remove(&name(text))).collect()
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn write(object: &dyn Object, offset: usize, bytes: &[u8]) {
    block_on(object.write_at(offset as u64, IoBuf::from(bytes), IO)).unwrap();
}

fn sync(object: &dyn Object) {
    block_on(object.sync(IO)).unwrap();
}

fn page(byte: u8) -> Vec<u8> {
    vec![byte; PAGE]
}

#[test]
fn conforms_while_the_power_is_on() {
    conformance::run(|| {
        let volume = Machine::new().volume;
        Box::new(Blocking::reopening(move || Arc::new(volume.clone())))
    });
}

#[test]
fn what_was_synced_survives_every_cut() {
    let m = Machine::new();
    let a = m.create("a");
    write(&*a, 0, &page(1));
    write(&*a, 100, b"over");
    block_on(a.set_len(777)).unwrap();
    sync(&*a);
    let survivors = m.survivors();
    assert_eq!(survivors, BTreeSet::from([m.volume.after_process_death().image()]));
}

#[test]
fn a_durable_write_survives_whatever_becomes_of_earlier_ones() {
    let m = Machine::new();
    let a = m.create("a");
    write(&*a, 0, &page(1).repeat(4));
    block_on(a.set_len(2 * PAGE as u64)).unwrap();
    block_on(a.write_durable(PAGE as u64, IoBuf::from(&page(2)[..]), IO)).unwrap();
    write(&*a, 3 * PAGE, &page(3));
    let survivors = m.survivors_of("a");
    assert!(survivors.len() > 4, "the others may be lost: {}", survivors.len());
    for bytes in survivors {
        let bytes = bytes.expect("its name is durable");
        assert!(bytes.len() >= 2 * PAGE, "{} bytes", bytes.len());
        assert!(bytes[PAGE..2 * PAGE] == page(2));
    }
    block_on(a.set_len(0)).unwrap();
    let lens: BTreeSet<_> = m.survivors_of("a").into_iter().flatten().map(|b| b.len()).collect();
    assert!(lens.contains(&0) && lens.contains(&(2 * PAGE)), "{lens:?}");
}

/// A write of what was written durably before once stayed in the journal for ever.
#[test]
fn durable_writes_alone_leave_nothing_open() {
    let m = Machine::new();
    let a = m.create("a");
    for round in 0..9 {
        block_on(a.write_durable(0, IoBuf::from(&page(round)[..]), IO)).unwrap();
    }
    assert_eq!(m.survivors_of("a"), BTreeSet::from([Some(page(8))]));
}

#[test]
fn a_new_object_has_no_name_before_its_first_sync() {
    let m = Machine::new();
    let a = m.create("a");
    let empty = Some(Vec::new());
    assert_eq!(m.survivors_of("a"), BTreeSet::from([None, empty.clone()]));
    sync(&*a);
    assert_eq!(m.survivors_of("a"), BTreeSet::from([empty]));
}

#[test]
fn unsynced_pages_survive_in_every_combination() {
    let m = Machine::new();
    let a = m.create("a");
    write(&*a, 0, &page(0).repeat(3));
    sync(&*a);
    for i in 0..3 {
        write(&*a, i * PAGE, &page(1));
    }
    let untorn = |bytes: &[u8]| {
        let pages = bytes.chunks(PAGE).map(|page| (page == self::page(1)).then_some(page[0]));
        pages.map(|whole| whole.is_some()).collect::<Vec<_>>()
    };
    let combinations: BTreeSet<_> =
        m.survivors_of("a").iter().map(|bytes| untorn(bytes.as_ref().unwrap())).collect();
    assert_eq!(combinations.len(), 8);
}

#[test]
fn a_rewritten_page_tears_between_sectors_only() {
    let m = Machine::new();
    let a = m.create("a");
    write(&*a, 0, &page(1));
    sync(&*a);
    // The first 700 bytes keep their value, as in a log whose last page is appended to.
    let mut newer = page(1);
    newer[700..].fill(2);
    write(&*a, 0, &newer);
    let mut torn = 0;
    for bytes in m.survivors_of("a").into_iter().flatten() {
        assert!(bytes[..700].iter().all(|&b| b == 1), "bytes both pages share are in no danger");
        for (i, sector) in bytes.chunks(512).enumerate() {
            let new = &newer[i * 512..][..512];
            assert!(sector == new || sector.iter().all(|&b| b == 1), "sector {i} is a mixture");
        }
        torn += usize::from(bytes != newer && bytes != page(1));
    }
    assert!(torn > 5, "tearing turns up among the seeds: {torn}");
}

#[test]
fn an_unsynced_length_may_be_either() {
    let m = Machine::new();
    let a = m.create("a");
    write(&*a, 0, b"old");
    sync(&*a);
    write(&*a, 3, b"new");
    let expected = ["old", "oldnew", "old\0\0\0"].map(|bytes| Some(bytes.into()));
    assert_eq!(m.survivors_of("a"), expected.into());
    sync(&*a);
    block_on(a.set_len(1)).unwrap();
    // The last outcome: a file system zeroes the rest of a cut page before it records the length.
    let expected = ["oldnew", "o", "o\0\0\0\0\0"].map(|bytes| Some(bytes.into()));
    assert_eq!(m.survivors_of("a"), expected.into());
}

#[test]
fn a_removed_object_may_be_back_until_another_is_synced() {
    let m = Machine::new();
    let (a, b) = (m.create("a"), m.create("b"));
    write(&*a, 0, b"a");
    sync(&*a);
    m.remove("a");
    let back = Some(b"a".to_vec());
    assert_eq!(m.survivors_of("a"), BTreeSet::from([None, back.clone()]));
    sync(&*a);
    assert_eq!(m.survivors_of("a"), BTreeSet::from([None, back]), "its own sync does not count");
    sync(&*b);
    assert_eq!(m.survivors_of("a"), BTreeSet::from([None]));
}

#[test]
fn a_name_used_again_stands_for_the_old_the_new_or_nothing() {
    let m = Machine::new();
    let old = m.create("a");
    write(&*old, 0, b"old");
    sync(&*old);
    m.remove("a");
    let new = m.create("a");
    let outcomes = [None, Some(b"old".to_vec()), Some(Vec::new())];
    assert_eq!(m.survivors_of("a"), outcomes.into());
    write(&*new, 0, b"new");
    sync(&*new);
    assert_eq!(m.survivors_of("a"), BTreeSet::from([Some(b"new".to_vec())]));
}

#[test]
fn what_rotted_is_read_and_survives_until_it_is_written_over() {
    let m = Machine::new();
    let a = m.create("a");
    write(&*a, 0, &page(1));
    assert_eq!(m.volume.damage(&name("a"), 7, |byte| byte ^ 2), None, "no byte is durable");
    sync(&*a);
    assert_eq!(m.volume.damage(&name("a"), 7, |byte| byte ^ 2), Some(1));
    assert_eq!(m.volume.damage(&name("a"), 7, |byte| byte), None, "nothing changes");
    assert_eq!(m.volume.damage(&name("a"), PAGE as u64, |byte| byte ^ 2), None, "it is too short");
    assert_eq!(m.volume.damage(&name("b"), 0, |byte| byte ^ 2), None, "there is no such object");
    let mut rotten = page(1);
    rotten[7] = 3;
    let read = block_on(a.read_at(0, IoBufMut::zeroed(PAGE), IO)).unwrap();
    assert_eq!(read[..], rotten[..]);
    assert_eq!(m.survivors_of("a"), BTreeSet::from([Some(rotten)]));
    write(&*a, 0, &page(2));
    assert_eq!(m.volume.damage(&name("a"), 7, |byte| byte ^ 4), Some(3));
    let read = block_on(a.read_at(0, IoBufMut::zeroed(PAGE), IO)).unwrap();
    assert_eq!(read[..], page(2)[..], "the write covers it");
    sync(&*a);
    assert_eq!(m.survivors_of("a"), BTreeSet::from([Some(page(2))]));
}

#[test]
fn the_death_of_the_process_loses_nothing() {
    let m = Machine::new();
    let log = m.create("wal.log");
    write(&*log, 0, b"record");
    m.power.cut();
    assert_eq!(m.volume.after_process_death().image()[&name("wal.log")], b"record");
    assert!(m.survivors_of("wal.log").contains(&None));
}

#[test]
fn nothing_works_without_power() {
    let m = Machine::new();
    let a = m.create("a");
    m.power.cut();
    assert!(m.power.is_off());
    let errors = [
        block_on(m.volume.create(&name("b"), &Intent::DATA)).err(),
        block_on(m.volume.open(&name("a"))).err(),
        block_on(m.volume.remove(&name("a"))).err(),
        block_on(m.volume.list()).err(),
        block_on(m.volume.space()).err(),
        block_on(a.read_at(0, IoBufMut::zeroed(1), IO)).err(),
        block_on(a.write_at(0, IoBuf::from(&b"x"[..]), IO)).err(),
        block_on(a.set_len(0)).err(),
        block_on(a.sync(IO)).err(),
    ];
    for (i, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("call {i} worked"));
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::Unavailable, "m: power is off")
        );
    }
}

#[test]
fn the_same_seed_shows_the_same_survivor() {
    let m = Machine::new();
    for i in 0..20 {
        write(&*m.create(&format!("{i}")), 0, &page(i));
    }
    for seed in 0..20 {
        assert_eq!(m.volume.survivor(seed).image(), m.volume.survivor(seed).image());
    }
    assert!(m.survivors().len() > 100);
}

/// Two volumes on one power supply, cut at each step of a small commit protocol: bytes on one
/// volume, then a record on the other that says they are there.
#[test]
fn no_cut_breaks_what_a_sync_promised() {
    let protocol = |data: &Crash, record: &Crash| -> Result<()> {
        block_on(async {
            let bytes = data.create(&name("bytes"), &Intent::DATA).await?;
            bytes.write_at(0, page(7).as_slice().into(), IO).await?;
            bytes.sync(IO).await?;
            let done = record.create(&name("done.log"), &Intent::LOG).await?;
            done.write_at(0, IoBuf::from(&b"done"[..]), IO).await?;
            done.sync(IO).await
        })
    };
    let machine = || {
        let power = Power::new();
        let volumes = ["data", "record"].map(|label| Crash::new(Mem::new(label), &power));
        (power, volumes)
    };
    let (power, [data, record]) = machine();
    protocol(&data, &record).unwrap();
    let steps = power.steps();
    assert_eq!(steps, 6);
    let mut recorded = 0;
    for cut in 0..=steps {
        let (power, [data, record]) = machine();
        power.cut_after(cut);
        let acknowledged = protocol(&data, &record).is_ok();
        assert_eq!((acknowledged, power.is_off()), (cut == steps, cut < steps));
        for seed in 0..100 {
            let record = record.survivor(seed).image();
            let done = record.get(&name("done.log")).is_some_and(|bytes| bytes == b"done");
            assert!(done || !acknowledged);
            if done {
                assert_eq!(data.survivor(seed).image()[&name("bytes")], page(7));
                recorded += 1;
            }
        }
    }
    assert!(recorded > 100, "unacknowledged records survive now and then");
}
