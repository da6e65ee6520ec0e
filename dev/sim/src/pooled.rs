//! A log store on a pool with copies whose volumes fail, hang and come back, while the process and the machine crash too.
//!
//! ```text
//!   users, each with its keys · a tender · a copier · the weather
//!      │
//!   Store ── Spread ── Simulate ── Deadline ── Fault ── Crash      one row for each volume
//! ```
//! Invariants: those of [`store`](crate::store), also while volumes fail. Then a call may fail; it took effect, or never
//! does once a later one on the key was acknowledged. What was acknowledged is there after a close, and the store finds no
//! damage.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::log::{Durability, Member, Options, Store, StoreId};
use policy::placement::{LeastOverlap, RoundRobin};
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use pool::spread::Opening;
use pool::{PoolId, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Volume;
use volume::mem::Image;

use crate::device::any_contract;
use crate::rows::{Rows, label};
use crate::store::client::Client;
use crate::store::model::Death;
use crate::store::{any_durability, any_options, inspect};
use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "pooled",
    about: "A log store on a pool whose volumes fail and come back: durability, no resurrection",
    run,
};

const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// What the lives of the store have in common.
struct Lives {
    images: Vec<Image>,
    copies: usize,
    options: Options,
    clients: Vec<Rc<Client>>,
    /// Batches are atomic within a partition, so the check of batches needs a single one.
    atomic: bool,
    /// The end of the last life that clients looked at, and whether acknowledged changes were durable.
    death: Death,
    was_durable: bool,
}

/// One life.
#[derive(Clone)]
struct Life {
    rows: Rows,
    running: Rc<RefCell<Option<(Spread, Store)>>>,
    storms: bool,
    closed: Rc<Cell<bool>>,
}

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let volumes = random.random_range(2..=4);
    let copies = random.random_range(2..=3.min(volumes));
    let mut options = any_options(&mut random, 1);
    options.devices = volumes as u16;
    let clients = (0..random.random_range(1..=4)).map(|n| Rc::new(Client::new(sim, n))).collect();
    let mut lives = Lives {
        images: vec![Image::new(); volumes],
        copies,
        options,
        clients,
        atomic: random.random(),
        death: Death::Process,
        was_durable: true,
    };
    let count = random.random_range(2..5);
    let mut told = Vec::new();
    for life in 0..count {
        let is_last = life + 1 == count;
        told.push(live(sim, &mut lives, &mut random, is_last));
    }
    let answered: u64 = lives.clients.iter().map(|client| client.answered()).sum();
    format!(
        "{} on {volumes} volumes, {copies} copies, {} users, {answered} operations, {:?}, {}",
        lives.options.rule.name(),
        lives.clients.len(),
        sim.clock().now(),
        told.join(", ")
    )
}

/// One life of the store; returns how it ended.
fn live(
    sim: &Sim,
    lives: &mut Lives,
    random: &mut Xoshiro256PlusPlus,
    is_last: bool,
) -> &'static str {
    lives.options.partitions = if lives.atomic { 1 } else { random.random_range(1..=3) };
    lives.options.durability = any_durability(random);
    let leaf = |crash: &volume::layer::crash::Crash| Arc::new(crash.clone()) as Arc<dyn Volume>;
    let contract =
        |random: &mut Xoshiro256PlusPlus| any_contract(random, 2_000..20_000, 100..2_000, 64 * KIB);
    let rows = Rows::boot(sim, &lives.images, random, leaf, contract);
    let storms = !is_last && random.random_bool(0.7);
    let life = Life { rows, running: Rc::default(), storms, closed: Rc::default() };
    lives.clients.iter().for_each(|client| client.may_fail.set(storms));
    let durability = lives.options.durability;
    sim.note("machine", format_args!("! {durability:?}, storms: {storms}"));
    let opening = opening(lives.copies, random);
    sim.spawn("opener", {
        let (sim, life, clients) = (sim.clone(), life.clone(), lives.clients.clone());
        let options = lives.options.clone();
        let last = (lives.death, lives.was_durable, lives.atomic);
        async move {
            match open(&sim, &life, opening, options, &clients, last).await {
                Ok(opened) => {
                    *life.running.borrow_mut() = Some(opened);
                    begin(&sim, &life, clients, is_last);
                }
                Err(error) => assert!(life.rows.power.is_off(), "opening: {error}"),
            }
        }
    });
    let mut died = Death::Process;
    if is_last {
        sim.run();
    } else {
        died = die(sim, &life, random);
    }
    let closed = life.closed.get();
    if let Some((pool, store)) = life.running.take() {
        drop(store);
        if closed && random.random() {
            // Without the store, only the pool's own bytes are left.
            let done = sim.clock().run(pool.close());
            sim.note("machine", format_args!("! the pool is closed: {done:?}"));
        }
        (lives.death, lives.was_durable) = match closed {
            true => (Death::Process, true),
            false => (died, durability == Durability::Always),
        };
    } else if died == Death::Power {
        // No client looked, so the crash before this one counts, too.
        lives.death = Death::Power;
    }
    life.rows.power.cut();
    sim.note("machine", format_args!("! death of the {died:?}"));
    for (crash, image) in life.rows.crashes.iter().zip(&mut lives.images) {
        *image = match died {
            Death::Power => crash.survivor(random.random()).image(),
            Death::Process => crash.after_process_death().image(),
        };
    }
    match (closed, died) {
        (true, _) => "closed",
        (false, Death::Power) => "power",
        (false, Death::Process) => "process",
    }
}

fn opening(copies: usize, random: &mut Xoshiro256PlusPlus) -> Opening {
    let opening = match random.random_bool(0.5) {
        true => Opening::new(RoundRobin::default()),
        false => Opening::new(LeastOverlap::new(random.random())),
    };
    opening.create_if_missing(PoolId(1)).copies(copies)
}

/// Opens pool and store, and has the users look at what is there.
async fn open(
    sim: &Sim,
    life: &Life,
    opening: Opening,
    options: Options,
    clients: &[Rc<Client>],
    (death, durable, atomic): (Death, bool, bool),
) -> volume::Result<(Spread, Store)> {
    let volumes = (0..).zip(&life.rows.volumes);
    let members = volumes.map(|(i, volume)| pool::Member::new(label(i), Arc::clone(volume)));
    let pool = Spread::open(members.collect(), opening).await?;
    let member = Member::new("pool", pool.clone());
    let id = Some(StoreId([1; 16]));
    let opening = Store::open(vec![member], options, sim.clock().clone(), id);
    let (store, report) = opening.await?;
    assert_eq!(report.damage, [], "nothing rots here");
    for client in clients {
        client.witness(&store, death, durable, atomic).await?;
    }
    Ok((pool, store))
}

/// Begins all tasks.
fn begin(sim: &Sim, life: &Life, clients: Vec<Rc<Client>>, is_last: bool) {
    let Some((pool, store)) = life.running.borrow().clone() else { return };
    if is_last {
        sim.spawn("inspector", inspect(store, clients));
        return;
    }
    sim.spawn("copier", copy(sim.clone(), pool));
    let tended = store.clone();
    sim.spawn("tender", async move { tended.tend(0).await });
    if life.storms {
        life.rows.spawn_storm(sim);
    }
    let working = Rc::new(Cell::new(clients.len()));
    for client in clients {
        let power = life.rows.power.clone();
        let work = Rc::clone(&client).work(sim.clone(), store.clone(), power.clone());
        let (working, store, life) = (Rc::clone(&working), store.clone(), life.clone());
        let sim_of = sim.clone();
        sim.spawn(client.name(), async move {
            work.await;
            working.set(working.get() - 1);
            // The last user closes the store, which ends the tender.
            if working.get() == 0 {
                let closed = store.close().await;
                sim_of.note("closer", format_args!(". {closed:?}"));
                assert!(closed.is_ok() || life.storms || power.is_off(), "closing: {closed:?}");
                life.closed.set(closed.is_ok());
            }
        });
    }
}

/// Makes missing copies now and then.
async fn copy(sim: Sim, pool: Spread) {
    let mut random = sim.random("copier");
    for _ in 0..random.random_range(0..8) {
        sim.clock().sleep(Duration::from_micros(random.random_range(0..100_000))).await;
        let repaired = pool.repair(COPY, |_| ()).await;
        let repaired = repaired.map(|repaired| (repaired.made, repaired.short));
        sim.note("copier", format_args!("  repaired {repaired:?}"));
    }
}

/// Runs all tasks for some steps, then ends them.
fn die(sim: &Sim, life: &Life, random: &mut Xoshiro256PlusPlus) -> Death {
    let steps_max = [500, 8_000, 80_000][random.random_range(0..3)];
    let steps = random.random_range(0..steps_max);
    let death = if random.random_bool(0.7) { Death::Power } else { Death::Process };
    if death == Death::Power && random.random_bool(0.3) {
        // A cut in the middle of a call to a device: callers see errors before they end.
        life.rows.power.cut_after(random.random_range(0..3_000));
    }
    for _ in 0..steps {
        if !sim.step() {
            break;
        }
    }
    sim.end_all_tasks();
    death
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search;

    #[test]
    fn a_store_on_a_pool_loses_nothing_that_was_acknowledged() {
        let report = search(&PROGRAM, 0..200, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert!(report.distinct > 150, "{} different endings", report.distinct);
    }
}
