//! New copies of objects that are overwritten in place all the time: one pass is enough at any rate of writes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use policy::placement::VolumeId;
use policy::units::{KIB, MIB};
use pool::spread::Spread;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::call::Op;
use volume::layer::crash::{Crash, Power};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Intent, Object, Volume};

use crate::copying::{COPY, id_of, places};
use crate::in_place::{are_alike, filled, on_volumes};
use crate::jitter::{Jitter, WAIT_US_MAX, give_up_after};
use crate::rig::{IO, members, mems, name, opening, survivors};

const BLOCK: u64 = 4 * KIB;
const WRITERS: u64 = 4;
/// The longest call of a volume: it waits before and after.
const CALL_MAX: Duration = Duration::from_micros(2 * WAIT_US_MAX);

/// Volumes in virtual time, whose calls are recorded.
struct Rig {
    clock: Clock,
    mems: Vec<Mem>,
    log: TraceLog,
    volumes: Vec<Arc<Trace<Jitter<Mem>>>>,
}

impl Rig {
    fn new(volumes: usize, seed: u64) -> Self {
        let (clock, mems, log) = (Clock::simulated(), mems(volumes), TraceLog::new(1 << 20));
        let trace = |(mem, seed): (&Mem, u64)| {
            let slow = Jitter::new(mem.clone(), &clock, seed);
            Arc::new(Trace::new(slow, mem.label(), &log, &clock))
        };
        let volumes = mems.iter().zip(100 * seed..).map(trace).collect();
        Self { clock, mems, log, volumes }
    }

    async fn open(&self) -> Spread {
        Spread::open(members(&self.volumes), opening("round-robin").copies(2)).await.unwrap()
    }

    /// The bytes of leaf objects that were read so far.
    fn read(&self) -> u64 {
        let records = self.log.records().into_iter().map(|record| record.call);
        let of_leaf = |name: &volume::Name| name.as_str().ends_with(".inp");
        let reads =
            records.filter(|call| call.op == Op::Read && call.name.as_ref().is_some_and(of_leaf));
        reads.map(|call| call.len).sum()
    }
}

/// An object of `len` zeros with one of its two copies lost. Returns the volume without a copy, too.
async fn half_lost(pool: &Spread, len: u64) -> (Arc<dyn Object>, VolumeId) {
    let object = pool.create(&name("blocks"), &Intent::IN_PLACE).await.unwrap();
    object.set_len(len).await.unwrap();
    object.write_at(0, filled(len, 0), IO).await.unwrap();
    object.sync(IO).await.unwrap();
    let lost = VolumeId(places(pool, "blocks").await[1]);
    pool.drop_copy(id_of(pool, "blocks").await, lost).await.unwrap();
    (object, lost)
}

/// Of the object, 80 pieces: more than writers ever waited for at once.
const LEN: u64 = 20 * MIB;

/// What went wrong: the copier knew the first changed byte only, and read everything behind it again until writers could
/// wait for the rest, at most 16 MiB. Random writes to an object of 64 MiB kept it from that for ever, so a lost copy was never
/// made again and a drain never ended.
#[test]
fn random_writes_never_keep_a_copy_from_being_made_and_wait_for_one_piece_at_most() {
    let rig = Rig::new(2, 1);
    let (clock, done) = (&rig.clock, &Cell::new(false));
    let (longest, written) = (&Cell::new(Duration::ZERO), &RefCell::new(vec![0; LEN as usize]));
    clock.run(async {
        let pool = rig.open().await;
        let (object, lost) = half_lost(&pool, LEN).await;
        let write = async |random: &mut Xoshiro256PlusPlus, writer: u64| {
            let block = random.random_range(0..LEN / BLOCK / WRITERS) * WRITERS + writer;
            let (offset, byte) = (block * BLOCK, random.random_range(1..=u8::MAX));
            let began = clock.now();
            object.write_at(offset, filled(BLOCK, byte), IO).await.unwrap();
            longest.set(longest.get().max(clock.now().since(began)));
            written.borrow_mut()[offset as usize..][..BLOCK as usize].fill(byte);
        };
        let writer = async |writer: u64| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(writer);
            while !done.get() {
                write(&mut random, writer).await;
            }
            // The copy is one of the object's now.
            for _ in 0..100 {
                write(&mut random, writer).await;
            }
        };
        let (id, read) = (id_of(&pool, "blocks").await, rig.read());
        let copy = async {
            let copied = pool.copy(id, lost, COPY);
            let copied = give_up_after(clock, Duration::from_secs(2), copied).await;
            done.set(true);
            copied
        };
        let (copied, _) = join(copy, join_all((0..WRITERS).map(writer))).await;
        let read = rig.read() - read;
        copied.expect("the copy is made in two seconds").unwrap();
        assert_eq!(rig.log.forgotten(), 0);
        assert!(read <= 2 * LEN, "{read} bytes were read");
        // Its own call, one of a writer before it, and the piece read and written; or at the end a sync and the manifest's
        // edit.
        assert!(longest.get() <= 10 * CALL_MAX, "a write took {:?}", longest.get());
        assert_eq!(on_volumes(&rig.mems).len(), 2);
        assert!(are_alike(&rig.mems));
        assert!(on_volumes(&rig.mems)[0] == *written.borrow());
    });
}

/// Three pieces, the last one shorter.
const SMALL: u64 = 600 * KIB;

/// The power goes off while a copy is made, and once it is one of the object's.
#[test]
fn a_copy_has_all_durable_bytes_from_the_moment_it_is_recorded() {
    const BLOCKS: usize = (SMALL / BLOCK) as usize;
    let mut copied = 0;
    for seed in 0..80 {
        let (clock, power) = (&Clock::simulated(), &Power::new());
        let machine: Vec<_> = mems(2).into_iter().map(|mem| Crash::new(mem, power)).collect();
        let slow = machine.iter().map(|volume| Jitter::new(volume.clone(), clock, seed));
        let slow: Vec<_> = slow.collect();
        // By block: what is durable, and what may be.
        let written = &RefCell::new(vec![(0, 0); BLOCKS]);
        clock.run(async {
            let opening = opening("round-robin").copies(2);
            let pool = Spread::open(members(&slow), opening).await.unwrap();
            let (object, lost) = half_lost(&pool, SMALL).await;
            power.cut_after(10 + 2 * seed);
            let writer = async |writer: u64| {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(WRITERS * seed + writer);
                while !power.is_off() {
                    let block = random.random_range(0..BLOCKS / 4) * 4 + writer as usize;
                    let (offset, byte) = (block as u64 * BLOCK, random.random_range(1..=u8::MAX));
                    written.borrow_mut()[block].1 = byte;
                    let durable = object.write_durable(offset, filled(BLOCK, byte), IO).await;
                    if durable.is_err() {
                        return;
                    }
                    written.borrow_mut()[block].0 = byte;
                }
            };
            let id = id_of(&pool, "blocks").await;
            let copy = pool.copy(id, lost, COPY);
            let _ = join(copy, join_all((0..WRITERS).map(writer))).await;
        });
        let survivors = survivors(&machine, seed);
        block_on(async {
            let opening = opening("round-robin").copies(2);
            let pool = Spread::open(members(&survivors), opening).await.unwrap();
            copied += usize::from(places(&pool, "blocks").await.len() == 2);
        });
        for (copy, found) in on_volumes(&survivors).into_iter().enumerate() {
            for (at, &byte) in found.iter().enumerate() {
                let (durable, may_be) = written.borrow()[at / BLOCK as usize];
                let is_right = byte == durable || byte == may_be;
                assert!(is_right, "seed {seed}: copy {copy} has {byte} at {at}, not {durable}");
            }
        }
    }
    assert!(copied > 10 && copied < 70, "{copied} were copied");
}
