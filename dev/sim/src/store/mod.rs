//! A log store on gated volumes that crashes several times, with merges at every moment.
//!
//! ```text
//!   users, each with its keys · a tender for each volume
//!      │
//!   Store ── Gate ── Simulate ── Crash          one row for each volume
//! ```
//! Files are small and there is little space, so rotations, hints, merges and removals happen all the
//! time. A life ends when all users are done, or at any moment before, also while the store is opened.
//! Invariants: writes that were acknowledged as durable are there, and after a crash of the process every
//! acknowledged write; deleted and overwritten values do not come back; a batch is whole; a value once
//! found stays; the store's counters of live data are right; tokens spent are I/Os issued.

pub(crate) mod client;
pub(crate) mod model;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::log::{Durability, Member, Options, Store, StoreId};
use policy::budget::Share;
use policy::merge::Rule;
use policy::units::{KIB, MIB};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::{Image, Mem};
use volume::{Error, Result};

use self::client::Client;
use self::model::Death;
use crate::device::any_contract;
use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "store",
    about: "A log store that merges all the time and dies at any moment: durability, no resurrection",
    run,
};

type Leaf = Gate<Simulate<Crash>>;

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let volumes = random.random_range(1..=2);
    let mut options = any_options(&mut random, volumes);
    // Batches are atomic within a partition, so the check of batches needs a single one.
    let atomic = random.random();
    let mut images = vec![Image::new(); usize::from(volumes)];
    let clients: Vec<_> =
        (0..random.random_range(1..=4)).map(|n| Rc::new(Client::new(sim, n))).collect();
    let lives = random.random_range(2..5);
    let mut death = Death::Process;
    let mut was_durable = true;
    let mut told = Vec::new();
    for life in 0..lives {
        let last = life + 1 == lives;
        let machine = Machine::boot(sim, &images, &mut random);
        let mut died = Death::Process;
        options.partitions = if atomic { 1 } else { random.random_range(1..=3) };
        options.durability = any_durability(&mut random);
        let durable = options.durability == Durability::Always;
        sim.note("machine", format_args!("! life {life}, {:?}", options.durability));
        let opened = Rc::new(RefCell::new(None));
        let witnessed = Rc::new(Cell::new(false));
        sim.spawn("opener", {
            let (sim, clients, opened) = (sim.clone(), clients.clone(), Rc::clone(&opened));
            let (members, power) = (machine.members(), machine.power.clone());
            let (options, witnessed) = (options.clone(), Rc::clone(&witnessed));
            async move {
                let opening =
                    open(&sim, members, options, &clients, (death, was_durable, atomic)).await;
                let store = match opening {
                    Ok(store) => store,
                    Err(error) => return assert!(power.is_off(), "opening: {error}"),
                };
                witnessed.set(true);
                *opened.borrow_mut() = Some(store.clone());
                if last {
                    sim.spawn("inspector", inspect(store, clients));
                    return;
                }
                for volume in 0..store.volumes() {
                    let store = store.clone();
                    sim.spawn("tender", async move { store.tend(volume).await });
                }
                let working = Rc::new(Cell::new(clients.len()));
                for client in clients {
                    let work = Rc::clone(&client).work(sim.clone(), store.clone(), power.clone());
                    let (working, store, power) =
                        (Rc::clone(&working), store.clone(), power.clone());
                    sim.spawn(client.name(), async move {
                        work.await;
                        working.set(working.get() - 1);
                        // The last user closes the store, which ends the tenders.
                        if working.get() == 0
                            && let Err(error) = store.close().await
                        {
                            assert!(power.is_off(), "closing: {error}");
                        }
                    });
                }
            }
        });
        if last {
            sim.run();
        } else {
            died = machine.live_and_die(sim, &mut random);
            if witnessed.get() {
                (death, was_durable) = (died, durable);
            } else if died == Death::Power {
                // The store crashed before any client checked it: the crash before this one counts too.
                death = Death::Power;
            }
        }
        drop(opened);
        machine.audit();
        images = machine.images(died, &mut random);
        told.push(format!("{died:?}"));
    }
    let answered: u64 = clients.iter().map(|client| client.answered()).sum();
    told.pop();
    format!(
        "{} on {volumes} volumes, {} users, {answered} operations, {:?}, died by {}",
        options.rule.name(),
        clients.len(),
        sim.clock().now(),
        told.join(", ")
    )
}

pub(crate) fn any_options(random: &mut Xoshiro256PlusPlus, volumes: u16) -> Options {
    let mut options = Options::new(volumes);
    options.rule = Rule::ALL[random.random_range(0..Rule::ALL.len())];
    options.file_bytes = 64 * KIB;
    options.quota = [3 * MIB, 4 * MIB][random.random_range(0..2)];
    options.live = 0.05;
    options.target = [0.05, 0.1, 0.2][random.random_range(0..3)];
    options.groups = random.random_range(1..=2);
    options
}

pub(crate) fn any_durability(random: &mut Xoshiro256PlusPlus) -> Durability {
    match random.random_range(0..4) {
        0 | 1 => Durability::Always,
        2 => Durability::Interval(Duration::from_millis(random.random_range(1..50))),
        _ => Durability::Never,
    }
}

async fn open(
    sim: &Sim,
    members: Vec<Member>,
    options: Options,
    clients: &[Rc<Client>],
    (death, durable, atomic): (Death, bool, bool),
) -> Result<Store> {
    let opening = Store::open(members, options, sim.clock().clone(), Some(StoreId([1; 16])));
    let (store, report) = opening.await?;
    assert_eq!(report.damage, [], "nothing rots here");
    for client in clients {
        client.witness(&store, death, durable, atomic).await?;
    }
    Ok(store)
}

/// Checks the store's counters after the last crash.
pub(crate) async fn inspect(store: Store, clients: Vec<Rc<Client>>) {
    for volume in 0..store.volumes() {
        while store.tend_once(volume).await.expect("the power is on") {}
    }
    let figures = store.figures();
    let live: u64 = figures.volumes.iter().map(|volume| volume.live_bytes).sum();
    let expected = clients.iter().map(|client| client.live());
    let (bytes, keys) = expected.fold((0, 0), |sum, live| (sum.0 + live.0, sum.1 + live.1));
    assert_eq!((live, figures.keys), (bytes, keys), "what lives");
    assert!(figures.volumes.iter().all(|volume| volume.dying_bytes == 0), "it is all closed");
    let closed: std::result::Result<(), Error> = store.close().await;
    closed.expect("the power is on");
}

/// Volumes of one machine, from its start to its end.
struct Machine {
    power: Power,
    volumes: Vec<Crash>,
    gates: Vec<Arc<Leaf>>,
}

impl Machine {
    fn boot(sim: &Sim, images: &[Image], random: &mut Xoshiro256PlusPlus) -> Self {
        let power = Power::new();
        let volumes: Vec<_> = (0..)
            .zip(images)
            .map(|(i, image)| Mem::from_image(&label(i), image.clone()))
            .map(|mem| Crash::new(mem, &power))
            .collect();
        let gates = (0..).zip(&volumes).map(|(i, volume)| {
            let (contract, clock) =
                (any_contract(random, 1_000..8_000, 20..200, 64 * KIB), sim.clock().clone());
            let device = Simulate::new(volume.clone(), &contract, clock.clone(), random.random());
            Arc::new(Gate::new(device, &label(i), &contract, Share::default(), clock))
        });
        let gates = gates.collect();
        Self { power, volumes, gates }
    }

    fn members(&self) -> Vec<Member> {
        let gates = (0..).zip(&self.gates);
        gates.map(|(i, gate)| Member::new(label(i), Arc::clone(gate))).collect()
    }

    /// Runs all tasks for some steps, then ends them.
    fn live_and_die(&self, sim: &Sim, random: &mut Xoshiro256PlusPlus) -> Death {
        let steps_max = [200, 3_000, 30_000][random.random_range(0..3)];
        let steps = random.random_range(0..steps_max);
        let death = if random.random_bool(0.7) { Death::Power } else { Death::Process };
        if death == Death::Power && random.random_bool(0.5) {
            // A cut in the middle of a call to a device: callers see errors before they end.
            self.power.cut_after(random.random_range(0..1_500));
        }
        for _ in 0..steps {
            if !sim.step() {
                break;
            }
        }
        sim.end_all_tasks();
        self.power.cut();
        sim.note("machine", format_args!("! death of the {death:?}"));
        death
    }

    /// The images that the next life begins with.
    fn images(&self, death: Death, random: &mut Xoshiro256PlusPlus) -> Vec<Image> {
        let volumes = self.volumes.iter();
        volumes
            .map(|volume| match death {
                Death::Power => volume.survivor(random.random()).image(),
                Death::Process => volume.after_process_death().image(),
            })
            .collect()
    }

    fn audit(&self) {
        for gate in &self.gates {
            let (ours, theirs) = (gate.meter(), gate.inner().meter().total);
            assert_eq!(theirs.throttled, 0, "a provider was overdrawn");
            let spent = ours.spent();
            assert_eq!(
                (spent.ops, spent.bytes),
                (theirs.ops, theirs.bytes),
                "tokens spent are not the I/Os issued"
            );
            assert!(ours.classes.iter().all(|class| class.queued == 0), "a request still waits");
        }
    }
}

fn label(number: u32) -> String {
    format!("s{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn three_hundred_seeds_hold() {
        let report = search(&PROGRAM, 0..300, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..10 {
            let (first, second) = (replay(&PROGRAM, seed), replay(&PROGRAM, seed));
            assert!(first.0 == second.0, "seed {seed}");
            assert_eq!(first.1.expect("it holds"), second.1.expect("it holds"));
        }
    }
}
