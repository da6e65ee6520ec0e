//! Only the reserve is left, and less than a file of it: merges have to make room all the same.

use futures_util::future::{Either, select};
use volume::Intent;
use volume::layer::crash::{Crash, Power};

use super::*;

/// Half of the volume is live; dead records are spread over all files, so that no file dies whole.
const KEYS: u64 = CAPACITY / 2 / format::record_len(8, 900) as u64;
/// Puts in one batch.
const BATCH: u64 = 16;
/// How many bytes are left: less than a file.
const LEFT: u64 = 32 * KIB;

struct Machine {
    rig: Rig,
    power: Power,
    crash: Crash,
    store: Store,
    /// Answered puts; and unanswered ones, which may be there.
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    tried: BTreeMap<Vec<u8>, Vec<u8>>,
    puts: u64,
}

impl Machine {
    /// A store that took puts until it refused them, and that was not tended.
    fn full() -> Self {
        let rig = Rig::new(1);
        let power = Power::new();
        let crash = Crash::new(rig.mems[0].clone(), &power);
        let members = vec![Member::new("v0", crash.clone())];
        let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
        let (store, _) = rig.clock.run(opening).unwrap();
        let (model, tried) = (BTreeMap::new(), BTreeMap::new());
        let mut machine = Self { rig, power, crash, store, model, tried, puts: 0 };
        let refused = loop {
            if let Err(error) = machine.put() {
                break error;
            }
        };
        assert!(machine.puts > KEYS, "every key was written");
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
        machine
    }

    fn put(&mut self) -> Result<()> {
        let clock = self.rig.clock.clone();
        clock.run(self.put_some())
    }

    /// First each key in turn, then random ones.
    async fn put_some(&mut self) -> Result<()> {
        let mut edits = Vec::new();
        for _ in 0..BATCH {
            let n = self.puts;
            self.puts += 1;
            let any = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let key = if n < KEYS { n } else { any % KEYS }.to_be_bytes();
            self.tried.insert(key.to_vec(), value(n, 900));
            let (key, value) = (Bytes::copy_from_slice(&key), value(n, 900).into());
            edits.push(Edit::Put { key, value, lives: None });
        }
        let done = self.store.write(edits).await;
        match &done {
            Ok(()) => self.model.append(&mut self.tried),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => self.tried.clear(),
            Err(_) => {}
        }
        done
    }

    /// After a crash an unanswered put is there or not; every answered one has to be.
    fn settle(&mut self, round: u64) {
        let found = self.rig.all(&self.store);
        for (key, value) in std::mem::take(&mut self.tried) {
            if found.get(&key) == Some(&value) {
                self.model.insert(key, value);
            }
        }
        assert!(found == self.model, "round {round}: what was answered is not what is there");
    }

    fn room(&self) -> u64 {
        let space = self.rig.clock.run(self.crash.space()).unwrap();
        space.free
    }

    /// Another program takes all but `left` bytes of the volume; gives how many it took.
    fn take_all_but(&self, left: u64) -> u64 {
        let stranger = async {
            let name = Name::new("stranger").unwrap();
            let object = self.crash.create(&name, &Intent::DATA).await?;
            let free = self.crash.space().await?.free;
            let len = usize::try_from(free - left).unwrap();
            object.write_at(0, volume::IoBufMut::zeroed(len).freeze(), WRITE).await?;
            object.sync(WRITE).await?;
            Ok::<_, Error>(len as u64)
        };
        let taken = self.rig.clock.run(stranger).unwrap();
        assert_eq!(self.room(), left);
        taken
    }

    /// Tends the store and puts until it took this many batches; gives how many it refused before.
    fn go_on(&mut self, batches: u64) -> Result<u64> {
        let clock = self.rig.clock.clone();
        let store = self.store.clone();
        let puts = async {
            let (mut taken, mut refused) = (0, 0);
            while taken < batches {
                match self.put_some().await {
                    Ok(()) => taken += 1,
                    Err(error) if error.kind() == ErrorKind::OutOfSpace && refused < 1000 => {
                        let said = error.to_string();
                        assert!(
                            said.contains(
                                "v0: the remaining room is reserved for deletes and merges"
                            ),
                            "{said}"
                        );
                        refused += 1;
                        clock.sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(refused)
        };
        let puts = std::pin::pin!(puts);
        let tend = std::pin::pin!(store.tend(0));
        clock.run(async {
            match select(puts, tend).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => panic!("the store was closed"),
            }
        })
    }
}

/// Without [`Store::tend`] up to sixteen files wait to be sealed, and their hints would take the room that is left.
#[test]
fn merges_make_room_where_less_than_a_file_is_left() {
    let mut machine = Machine::full();
    machine.take_all_but(LEFT);
    let said = machine.put().unwrap_err();
    assert_eq!(said.kind(), ErrorKind::OutOfSpace);
    assert!(said.to_string().contains("delete something"), "{said}");
    assert_eq!(machine.rig.all(&machine.store), machine.model, "reads go on");
    let key = 1u64.to_be_bytes();
    assert!(machine.rig.clock.run(machine.store.delete(&key)).unwrap(), "deletions too");
    machine.model.remove(&key[..]);

    let refused = machine.go_on(2 * KEYS / BATCH).unwrap();
    assert!(refused > 0, "there was no room at first");
    let figures = machine.store.figures();
    assert!(figures.volumes[0].counts.merged > 0);
    assert_eq!(machine.rig.all(&machine.store), machine.model);
    machine.rig.clock.run(machine.store.close()).unwrap();
    let Machine { rig, model, .. } = machine;
    assert_eq!(rig.all(&rig.store()), model, "after a restart");
}

/// The power fails at any step of making room.
#[test]
fn a_power_cut_while_only_merges_have_room_costs_nothing() {
    const ROUNDS: u64 = 24;
    const BATCHES: u64 = KEYS / BATCH / 2;
    let steps = {
        let mut machine = Machine::full();
        machine.take_all_but(LEFT);
        let before = machine.power.steps();
        machine.go_on(BATCHES).unwrap();
        machine.power.steps() - before
    };
    assert!(steps > 2 * ROUNDS, "{steps} steps");
    for round in 0..ROUNDS {
        let mut machine = Machine::full();
        let taken = machine.take_all_but(LEFT);
        machine.power.cut_after(round * steps / ROUNDS);
        assert!(machine.go_on(BATCHES).is_err() && machine.power.is_off());
        // The volume has as little room left as before.
        let mem = machine.crash.survivor(round);
        machine.rig.options.quota = CAPACITY - taken;
        machine.rig.mems = vec![mem.clone()];
        machine.crash = Crash::new(mem.clone(), &Power::new());
        machine.store = machine.rig.store();
        machine.settle(round);
        machine.go_on(BATCHES).unwrap();
        assert_eq!(machine.rig.all(&machine.store), machine.model, "round {round}");
    }
}

#[test]
fn a_refusal_says_when_inodes_are_missing() {
    let rig = Rig::new(1);
    let members = vec![Member::new("v0", rig.mems[0].clone())];
    let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
    let (store, _) = rig.clock.run(opening).unwrap();
    rig.mems[0].set_lacks_files(true);
    let (key, value) = (Bytes::from_static(b"key"), value(0, 900).into());
    let batch = vec![Edit::Put { key, value, lives: None }];
    rig.clock.run(store.0.look_at_space(0)).unwrap();
    let refused = rig.clock.run(store.write(batch)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
    let said = refused.to_string();
    assert!(said.contains("v0: the remaining inodes (`df -i`), not bytes, are reserved"), "{said}");
}
