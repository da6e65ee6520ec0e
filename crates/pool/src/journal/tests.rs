//! A journal of a small map, whose home is recorded on a volume of its own and in no header of its volumes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use policy::purpose::{Origin, Step as Purpose};
use volume::Volume;
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::task::block_on;

use super::*;
use crate::header::{self, Found, Header, PoolId};
use crate::members::MemberSlot;

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Map(BTreeMap<u64, u64>);

struct MapBegin {
    snapshot_frames: u64,
    copies: Vec<VolumeId>,
}

fn numbers(bytes: &[u8]) -> Decoded<Vec<u64>, Map> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return Err("a number is cut short") };
    Ok(numbers.iter().map(|&number| u64::from_le_bytes(number)).collect())
}

impl Replay for Map {
    /// A key, and its new value.
    type Record = (u64, u64);
    type Applied = ();
    type Begin = MapBegin;
    type DecodeError = &'static str;

    const NAME: &'static str = "map's journal";
    const OWNER: &'static str = "the map";
    const IO: Io = Io::new(Origin::UserWrite, Purpose::Log);

    fn apply(&mut self, edit: &[(u64, u64)]) -> Result<()> {
        self.0.extend(edit.iter().copied());
        Ok(())
    }

    fn snapshot(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&key, &value)| (key, value))
    }

    fn encode((key, value): &(u64, u64), out: &mut Vec<u8>) {
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn decode(body: &[u8]) -> Decoded<Vec<(u64, u64)>, Self> {
        let numbers = numbers(body)?;
        let (pairs, []) = numbers.as_chunks::<2>() else { return Err("a key without a value") };
        Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
    }

    fn decode_begin(body: &[u8]) -> Decoded<MapBegin, Self> {
        let numbers = numbers(body)?;
        let [_generation, snapshot_frames, copies @ ..] = &numbers[..] else {
            return Err("no beginning");
        };
        let snapshot_frames = *snapshot_frames;
        let copies = copies.iter().map(|&id| VolumeId(id as u16)).collect();
        Ok(MapBegin { snapshot_frames, copies })
    }

    fn snapshot_frames(begin: &MapBegin) -> u64 {
        begin.snapshot_frames
    }
}

/// How the next publication ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    Recorded,
    /// It fails without an effect.
    Refused,
    /// It fails, but the new home is recorded.
    Doubtful,
}

/// Records the home in the two slots of a header, on a volume without copies.
struct Register {
    volume: Arc<dyn Volume>,
    outcome: Arc<Mutex<Outcome>>,
}

const PREFIX: &str = "map-";

fn copy_name(generation: u64) -> Name {
    Name::new(&format!("{PREFIX}{generation:016x}.log")).unwrap()
}

fn generation_of(name: &Name) -> Option<u64> {
    let digits = name.as_str().strip_prefix(PREFIX)?.strip_suffix(".log")?;
    u64::from_str_radix(digits, 16).ok()
}

impl Anchor<Map> for Register {
    fn name(&self, generation: u64) -> Name {
        copy_name(generation)
    }

    fn begin(&self, generation: u64, snapshot_frames: u64, home: &Quorum) -> Vec<u8> {
        let copies = home.volumes.iter().map(|id| id.0.into());
        let numbers = [generation, snapshot_frames].into_iter().chain(copies);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    fn prefer(&self, _state: &Map, _volumes: &mut Vec<VolumeId>) {}

    fn copies(&self) -> usize {
        3
    }

    fn step(&self, wanted: &[VolumeId], _failed: &Failed) -> Result<Step> {
        Ok(Step { home: Quorum::majority(wanted.to_vec()), first: Vec::new() })
    }

    async fn publish(
        &mut self,
        _step: &Step,
        generation: u64,
        seal: u64,
        _failed: &mut Failed,
    ) -> Result<bool> {
        let outcome = *self.outcome.lock();
        if outcome != Outcome::Refused {
            let (pool, volume, label) = (PoolId(1), VolumeId(9), "register".into());
            let header = Header { pool, volume, label, epoch: generation, seal };
            header::write(&*self.volume, &header).await?;
        }
        match outcome {
            Outcome::Recorded => Ok(true),
            _ => Err(Error::new(ErrorKind::Unavailable, "the register does not answer")),
        }
    }

    fn closing(&mut self, _copies: &[VolumeId]) {}
}

/// The volumes of a machine: those with copies by their numbers, and the register.
struct Machine {
    volumes: Vec<Arc<dyn Volume>>,
    register: Arc<dyn Volume>,
    outcome: Arc<Mutex<Outcome>>,
}

type MapJournal = Journal<Map, Register>;

impl Machine {
    /// The last volume is the register.
    fn new<V: Volume + 'static>(volumes: impl IntoIterator<Item = V>) -> Self {
        let volumes = volumes.into_iter().map(|volume| Arc::new(volume) as Arc<dyn Volume>);
        let mut volumes: Vec<_> = volumes.collect();
        let register = volumes.pop().expect("a register");
        Self { volumes, register, outcome: Arc::new(Mutex::new(Outcome::Recorded)) }
    }

    async fn registered(&self) -> Result<Option<Header>> {
        Ok(match header::read(&*self.register).await? {
            Found::Header(header) => Some(header),
            Found::Nothing => None,
        })
    }

    /// What the register's home holds, as a process without any memory of it reads it.
    async fn read(&self) -> Result<Option<frame::Replayed<Map>>> {
        let Some(home) = self.registered().await? else { return Ok(None) };
        let holders = self.volumes.iter().map(|volume| ("copy", &**volume));
        let copies = read_copies::<Map>(holders, &copy_name(home.epoch), Map::IO).await;
        let copies: Vec<_> = copies.iter().map(|copy| &copy[..]).collect();
        let replayed = frame::replay::<Map>(&copies, Some(home.seal));
        Ok(Some(replayed.map_err(|e| Error::new(ErrorKind::Corrupt, e.to_string()))?))
    }

    async fn read_map(&self) -> Result<Map> {
        self.read().await?.map_or(Ok(Map::default()), |read| read.rebuild(Map::default()))
    }

    /// The generations with a copy on a volume that answers.
    async fn generations(&self) -> Vec<u64> {
        let mut generations = Vec::new();
        for volume in &self.volumes {
            let listed = volume.list().await.unwrap_or_default();
            generations.extend(listed.iter().filter_map(|listed| generation_of(&listed.name)));
        }
        generations.sort_unstable();
        generations
    }

    async fn open(&self) -> Result<MapJournal> {
        let map = self.read_map().await?;
        let registered = self.registered().await?.map_or(0, |home| home.epoch);
        let newest = self.generations().await.last().copied().unwrap_or(0).max(registered);
        let slot = |(id, volume): (u16, &Arc<dyn Volume>)| {
            MemberSlot::new(VolumeId(id), format!("v{id}"), Some(Arc::clone(volume)))
        };
        let members = Arc::new(Members::new((0..).zip(&self.volumes).map(slot).collect()));
        let (volume, outcome) = (Arc::clone(&self.register), Arc::clone(&self.outcome));
        let journal = Journal::start(members, Register { volume, outcome }, map, newest).await?;
        self.remove_old().await?;
        Ok(journal)
    }

    /// Removes the copies of homes that are not current, as the owner of the state does after each start.
    async fn remove_old(&self) -> Result<()> {
        let current = self.registered().await?.map(|home| home.epoch);
        for volume in &self.volumes {
            for listed in volume.list().await.unwrap_or_default() {
                if generation_of(&listed.name) != current {
                    volume.remove(&listed.name).await?;
                }
            }
        }
        Ok(())
    }

    /// The volumes of the recorded home.
    fn home(&self) -> Vec<u16> {
        let read = block_on(self.read()).unwrap().expect("a home");
        read.begin.copies.iter().map(|id| id.0).collect()
    }
}

/// Edits of one task, and what the journal said about them.
#[derive(Default)]
struct Told {
    /// The map after each number of edits.
    maps: Vec<Map>,
    /// So many edits are durable.
    durable: usize,
}

/// Opens the journal and makes edits, each of `len` records, until it fails; every second edit waits for durability.
async fn work(
    machine: &Machine,
    edits: Range<u64>,
    len: u64,
    told: &mut Told,
) -> Result<MapJournal> {
    let journal = machine.open().await?;
    told.maps = vec![journal.look(Map::clone)];
    for edit in edits {
        journal.ready().await?;
        let records = (0..len).map(|record| (record % 500, edit * len + record)).collect();
        let (lsn, ()) = journal.record(records)?;
        told.maps.push(journal.look(Map::clone));
        if edit % 2 == 0 {
            journal.durable(lsn).await?;
            told.durable = told.maps.len() - 1;
        } else {
            journal.written(lsn).await?;
        }
    }
    Ok(journal)
}

fn mems(count: usize) -> Vec<Mem> {
    (0..count).map(|id| Mem::new(&format!("v{id}"))).collect()
}

/// Cuts the power at every step of `work` on three volumes and a register. Survivors must show every durable edit,
/// and a prefix of the others; and once a process has shown them to a reader, the next one must show them too.
fn crash_at_every_step(edits: Range<u64>, len: u64, seeds: Range<u64>) {
    let mut cut = 0;
    loop {
        let power = Power::new();
        let crashes: Vec<_> = mems(4).into_iter().map(|mem| Crash::new(mem, &power)).collect();
        let machine = Machine::new(crashes.iter().cloned());
        power.cut_after(cut);
        let mut told = Told::default();
        let ended = block_on(work(&machine, edits.clone(), len, &mut told)).is_ok();
        if told.maps.is_empty() {
            told.maps.push(Map::default());
        }
        for seed in seeds.clone() {
            let context = format!("cut {cut}, seed {seed}");
            let survivors = crashes.iter().zip(0..).map(|(crash, n)| crash.survivor(4 * seed + n));
            let survivors: Vec<_> = survivors.collect();
            let power = Power::new();
            let again: Vec<_> = survivors.into_iter().map(|mem| Crash::new(mem, &power)).collect();
            let machine = Machine::new(again.iter().cloned());
            let journal = block_on(machine.open()).expect(&context);
            let shown = journal.look(Map::clone);
            assert!(told.maps[told.durable..].contains(&shown), "{context}");
            power.cut();
            let last = again.iter().zip(0..).map(|(crash, n)| crash.survivor(seed + 77 * n));
            let last = Machine::new(last.collect::<Vec<_>>());
            assert_eq!(block_on(last.read_map()).expect(&context), shown, "{context}");
        }
        if ended {
            break;
        }
        cut += 1;
    }
    assert!(cut > 30, "only {cut} steps");
}

#[test]
fn edits_are_there_after_reopening() {
    let machine = Machine::new(mems(4));
    for round in 0..3 {
        let mut told = Told::default();
        let journal = block_on(work(&machine, 10 * round..10 * round + 5, 3, &mut told)).unwrap();
        block_on(journal.durable(journal.recorded())).unwrap();
        assert!(journal.is_written(5) && journal.is_durable(5) && !journal.is_durable(6));
        assert_eq!(Some(block_on(machine.read_map()).unwrap()), told.maps.pop());
        assert_eq!(block_on(machine.generations()), [round + 1; 3], "one home, of three copies");
    }
}

#[test]
fn a_crash_at_any_step_loses_no_durable_edit() {
    crash_at_every_step(0..6, 2, 0..12);
}

/// Two edits of 400 kB stay below the length of a compaction; the third is above it.
#[test]
fn a_crash_at_any_step_of_a_compaction_loses_no_durable_edit() {
    crash_at_every_step(0..4, 25_000, 0..3);
}

#[test]
fn a_long_journal_moves_to_a_short_new_home() {
    let machine = Machine::new(mems(4));
    let mut told = Told::default();
    let journal = block_on(work(&machine, 0..2, 25_000, &mut told)).unwrap();
    assert_eq!(block_on(machine.generations()), [1; 3]);
    drop(journal);
    let machine = Machine::new(mems(4));
    let journal = block_on(work(&machine, 0..4, 25_000, &mut told)).unwrap();
    assert_eq!(block_on(machine.generations()), [2; 3]);
    block_on(journal.durable(4)).unwrap();
    assert_eq!(Some(block_on(machine.read_map()).unwrap()), told.maps.pop());
    let listed = block_on(machine.volumes[0].list()).unwrap();
    assert!(listed[0].len < 1024 * 1024, "{} bytes", listed[0].len);
}

/// Volumes with a power supply of their own: a cut makes one of them fail.
fn fragile(count: usize) -> (Vec<Power>, Vec<Crash>) {
    let powers: Vec<_> = (0..count).map(|_| Power::new()).collect();
    let crashes = mems(count).into_iter().zip(&powers).map(|(mem, power)| Crash::new(mem, power));
    (powers.clone(), crashes.collect())
}

#[test]
fn one_copy_of_three_fails_at_any_step_and_no_edit_does() {
    let mut cut = 0;
    loop {
        let (powers, crashes) = fragile(5);
        let machine = Machine::new(crashes);
        powers[1].cut_after(cut);
        let mut told = Told::default();
        block_on(work(&machine, 0..5, 2, &mut told)).expect("three volumes are well");
        assert_eq!(told.durable, 5);
        if !powers[1].is_off() {
            break;
        }
        assert_eq!(machine.home(), [0, 2, 3], "cut {cut}");
        assert_eq!(Some(block_on(machine.read_map()).unwrap()), told.maps.pop(), "cut {cut}");
        cut += 1;
    }
    assert!(cut > 8, "only {cut} steps");
}

/// Without marks on volumes there is no majority to ask: the register says which home is current.
#[test]
fn the_last_copy_is_enough() {
    let (powers, crashes) = fragile(4);
    let machine = Machine::new(crashes);
    let journal = block_on(machine.open()).unwrap();
    let mut volumes = vec![0, 1, 2];
    for edit in 0..3 {
        assert_eq!(machine.home(), volumes);
        let (lsn, ()) = journal.record(vec![(edit, edit)]).unwrap();
        block_on(journal.durable(lsn)).unwrap();
        if edit < 2 {
            powers[usize::from(volumes.remove(0))].cut();
            let (lsn, ()) = journal.record(vec![(7, edit)]).unwrap();
            block_on(journal.durable(lsn)).unwrap();
        }
    }
    assert_eq!(machine.home(), [2]);
    let journal = block_on(machine.open()).unwrap();
    let expected = Map([(0, 0), (1, 1), (2, 2), (7, 1)].into());
    assert_eq!(journal.look(Map::clone), expected);
    powers[2].cut();
    let (lsn, ()) = journal.record(vec![(8, 8)]).unwrap();
    let error = block_on(journal.durable(lsn)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no volume takes its map's journal"), "{error}");
    assert!(!journal.is_written(lsn));
}

#[test]
fn a_publication_that_fails_is_repeated_with_the_next_number() {
    for outcome in [Outcome::Refused, Outcome::Doubtful] {
        let (powers, crashes) = fragile(5);
        let machine = Machine::new(crashes);
        let journal = block_on(machine.open()).unwrap();
        powers[0].cut();
        *machine.outcome.lock() = outcome;
        let (lsn, ()) = journal.record(vec![(1, 1)]).unwrap();
        block_on(journal.durable(lsn)).unwrap_err();
        block_on(journal.ready()).unwrap_err();
        assert!(!journal.is_durable(lsn));
        let before = block_on(machine.registered()).unwrap().unwrap().epoch;
        *machine.outcome.lock() = Outcome::Recorded;
        block_on(journal.ready()).unwrap();
        block_on(journal.durable(lsn)).unwrap();
        assert_eq!(machine.home(), [1, 2, 3], "{outcome:?}");
        assert!(block_on(machine.registered()).unwrap().unwrap().epoch > before, "{outcome:?}");
        assert_eq!(block_on(machine.read_map()).unwrap(), Map([(1, 1)].into()));
    }
}

#[test]
fn an_edit_after_a_close_is_in_another_home() {
    let machine = Machine::new(mems(4));
    let journal = block_on(machine.open()).unwrap();
    block_on(journal.close(vec![(1, 1)])).unwrap();
    assert_eq!(block_on(machine.generations()), [1; 3]);
    let (lsn, ()) = journal.record(vec![(2, 2)]).unwrap();
    block_on(journal.written(lsn)).unwrap();
    assert_eq!(block_on(machine.generations()), [2; 3]);
    assert_eq!(block_on(machine.read_map()).unwrap(), Map([(1, 1), (2, 2)].into()));
}
