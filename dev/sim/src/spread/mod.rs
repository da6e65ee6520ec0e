//! A pool on gated volumes that crashes several times under several users at once.
//!
//! ```text
//!   users, each in its directory · a flusher · a scrubber · a copier
//!      │
//!   Spread ── Gate ── Simulate ── Crash          one row for each volume
//! ```
//!
//! A life ends when all tasks are done, or at any moment before, also while the pool is being opened: the
//! power goes off between two steps or in the middle of one, or the process crashes. Invariants:
//! acknowledged data is there, and removed objects are not; each unanswered operation happened or did
//! not; used bytes are the manifest's; with a replication target of two each object has two equal copies;
//! foreign objects are untouched; tokens spent are I/Os issued, also after a crash; the provider is not
//! overdrawn.

mod client;
mod model;
mod op;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use policy::budget::Share;
use policy::placement::{Hash, LeastOverlap, RoundRobin, Single, Stripe};
use policy::purpose::{Origin, Step};
use policy::units::KIB;
use pool::spread::{Opening, Problem};
use pool::{Member, PoolId, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::{Image, Mem};
use volume::{ErrorKind, Io, Name, Result, Volume};

use self::client::Client;
use self::model::Death;
use crate::device::any_contract;
use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "pool",
    about: "A pool under several users that dies at any moment: durability, space, audit",
    run,
};

const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// Objects on the first volume that are not the pool's. Two look like the pool's.
const FOREIGN: [&str; 3] = ["notes.txt", "o0000000000001234.sst", "o00000000ffffffff.dat"];

type Leaf = Gate<Simulate<Crash>>;

/// The options of the pool.
#[derive(Clone, Copy)]
struct How {
    placement: &'static str,
    /// The replication target.
    copies: usize,
}

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let placements = ["single", "round-robin", "hash", "stripe", "least-overlap"];
    let placement = placements[random.random_range(0..placements.len())];
    let volumes = random.random_range(1..=4);
    // A striped object is on every volume: there is no volume for another copy.
    let copies = match volumes {
        1 => 1,
        _ if placement == "stripe" => 1,
        _ => random.random_range(1..=2),
    };
    let how = How { placement, copies };
    let mut images = formatted(sim, volumes, how);
    images[0].extend(foreign_image());
    let clients: Vec<_> =
        (0..random.random_range(1..=4)).map(|n| Rc::new(Client::new(sim, n))).collect();
    let lives = random.random_range(2..5);
    let mut told = Vec::new();
    for life in 0..lives {
        let last = life + 1 == lives;
        let machine = Machine::boot(sim, &images, &mut random);
        sim.note("machine", format_args!("! life {life}, {placement}, {copies} copies"));
        let opened = Rc::new(RefCell::new(None));
        sim.spawn("opener", {
            let (sim, clients, opened) = (sim.clone(), clients.clone(), Rc::clone(&opened));
            let (members, power) = (machine.members(), machine.power.clone());
            async move {
                let pool = match open(members, how, &clients).await {
                    Ok(pool) => pool,
                    Err(error) => return assert!(power.is_off(), "opening: {error}"),
                };
                *opened.borrow_mut() = Some(pool.clone());
                if last {
                    sim.spawn("inspector", inspect(pool, copies));
                    return;
                }
                for client in clients {
                    let (name, pool) = (client.home().to_owned(), pool.clone());
                    sim.spawn(&name, client.work(sim.clone(), pool, power.clone()));
                }
                sim.spawn("flusher", flush(sim.clone(), pool.clone(), power.clone()));
                sim.spawn("scrubber", scrub(sim.clone(), pool.clone(), power.clone()));
                sim.spawn("copier", copy(sim.clone(), pool, power));
            }
        });
        let death = if last {
            sim.run();
            machine.check_space(sim, &opened.take().expect("the last life is whole"));
            Death::Process
        } else {
            machine.live_and_die(sim, &mut random)
        };
        clients.iter().for_each(|client| client.witness(death));
        // The pool goes with its process.
        drop(opened);
        machine.audit();
        images = machine.images(death, &mut random);
        check_foreign(&images[0]);
        told.push(format!("{death:?}"));
    }
    let answered: u64 = clients.iter().map(|client| client.answered()).sum();
    told.pop();
    format!(
        "{placement} on {} volumes, {copies} copies, {} users, {answered} operations, {:?}, died by {}",
        images.len(),
        clients.len(),
        sim.clock().now(),
        told.join(", ")
    )
}

/// Volumes with a new pool on them.
fn formatted(sim: &Sim, volumes: u32, how: How) -> Vec<Image> {
    let mems: Vec<_> = (0..volumes).map(|i| Mem::new(&label(i))).collect();
    let members = (0..).zip(&mems).map(|(i, mem)| Member::new(label(i), mem.clone())).collect();
    sim.clock().run(open(members, how, &[])).expect("memory does not fail");
    mems.iter().map(Mem::image).collect()
}

async fn open(members: Vec<Member>, how: How, clients: &[Rc<Client>]) -> Result<Spread> {
    let opening = match how.placement {
        "single" => Opening::new(Single),
        "round-robin" => Opening::new(RoundRobin::default()),
        "hash" => Opening::new(Hash),
        "least-overlap" => Opening::new(LeastOverlap::new(7)),
        _ => Opening::new(Stripe::new(64 * KIB)),
    };
    let opening = opening.create_if_missing(PoolId(1)).copies(how.copies);
    let pool = Spread::open(members, opening).await?;
    for client in clients {
        client.recover(&pool).await?;
    }
    Ok(pool)
}

/// Flushes names now and then, beside the other tasks.
async fn flush(sim: Sim, pool: Spread, power: Power) {
    let mut random = sim.random("flusher");
    for _ in 0..random.random_range(0..6) {
        sim.clock().sleep(Duration::from_micros(random.random_range(0..30_000))).await;
        sim.note("flusher", format_args!("> flush"));
        if let Err(error) = pool.flush().await {
            return assert!(power.is_off(), "flush: {error}");
        }
    }
}

/// Scrubs while users work: objects may be reported as missing, but never as damaged.
async fn scrub(sim: Sim, pool: Spread, power: Power) {
    let mut random = sim.random("scrubber");
    for _ in 0..random.random_range(0..3) {
        sim.clock().sleep(Duration::from_micros(random.random_range(0..60_000))).await;
        sim.note("scrubber", format_args!("> scrub"));
        let report = pool.scrub(|_| ()).await.expect("a scrub reports what it cannot read");
        let fine = report.findings.iter().all(|found| found.problem != Problem::Damaged);
        assert!(fine || power.is_off(), "{:?}", report.findings);
    }
}

/// Makes and drops copies of objects that users work on.
async fn copy(sim: Sim, pool: Spread, power: Power) {
    let mut random = sim.random("copier");
    for _ in 0..random.random_range(0..8) {
        sim.clock().sleep(Duration::from_micros(random.random_range(0..40_000))).await;
        let objects = pool.objects();
        let volumes = pool.volumes();
        if objects.is_empty() || volumes.len() < 2 {
            continue;
        }
        let object = &objects[random.random_range(0..objects.len())];
        let volume = volumes[random.random_range(0..volumes.len())].id;
        let drops = object.copies.len() > pool.redundancy(&BTreeSet::new()).target;
        sim.note("copier", format_args!("> {} {} on {volume}", object.name, object.copies.len()));
        let done = match drops {
            true => pool.drop_copy(object.id, volume).await,
            false => pool.copy(object.id, volume, COPY).await.map(drop),
        };
        if let Err(error) = done {
            let fine = matches!(
                error.kind(),
                ErrorKind::Gone
                    | ErrorKind::NotFound
                    | ErrorKind::AlreadyExists
                    | ErrorKind::Busy
                    | ErrorKind::Invalid
            );
            assert!(fine || power.is_off(), "{}: {error}", object.name);
        }
    }
}

/// Checks the pool after the last crash.
async fn inspect(pool: Spread, copies: usize) {
    pool.flush().await.expect("the power is on");
    // A log that was never synced may have lost a copy with the power.
    let repaired = pool.repair(COPY, |_| ()).await.expect("the power is on");
    assert_eq!(repaired.short, [], "copies that cannot be made");
    let short = pool.redundancy(&BTreeSet::new()).short;
    assert_eq!(short, 0, "objects have fewer copies than {copies}");
    let report = pool.check().await.expect("the power is on");
    let ours = |finding: &&pool::spread::Finding| finding.problem != Problem::Foreign;
    let amiss: Vec<_> = report.findings.iter().filter(ours).collect();
    assert!(amiss.is_empty(), "{amiss:?}");
    assert_eq!(pool.foreign().len(), FOREIGN.len());
    let report = pool.scrub(|_| ()).await.expect("the power is on");
    assert_eq!(report.findings, [], "a scrub found");
    pool.close().await.expect("the power is on");
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
                (any_contract(random, 500..8_000, 10..200, 16 * KIB), sim.clock().clone());
            let device = Simulate::new(volume.clone(), &contract, clock.clone(), random.random());
            Arc::new(Gate::new(device, &label(i), &contract, Share::default(), clock))
        });
        let gates = gates.collect();
        Self { power, volumes, gates }
    }

    fn members(&self) -> Vec<Member> {
        let gates = (0..).zip(&self.gates);
        gates
            .map(|(i, gate)| Member {
                label: label(i),
                volume: Arc::clone(gate) as Arc<dyn Volume>,
            })
            .collect()
    }

    /// Runs all tasks for some steps, then ends them.
    fn live_and_die(&self, sim: &Sim, random: &mut Xoshiro256PlusPlus) -> Death {
        let steps_max = [100, 1_000, 8_000][random.random_range(0..3)];
        let steps = random.random_range(0..steps_max);
        let death = if random.random_bool(0.7) { Death::Power } else { Death::Process };
        if death == Death::Power && random.random_bool(0.5) {
            // A cut in the middle of a call to a device: callers see errors before they end.
            self.power.cut_after(random.random_range(0..300));
            sim.run();
        } else {
            for _ in 0..steps {
                if !sim.step() {
                    break;
                }
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

    /// Used bytes are the manifest's bytes, on each volume, object by object.
    fn check_space(&self, sim: &Sim, pool: &Spread) {
        let stats = sim.clock().run(async {
            let mut stats = BTreeMap::new();
            for listed in pool.list_prefix("").await? {
                let stat = pool.stat(&listed.name).await?;
                stats.insert(stat.id, stat);
            }
            Ok::<_, volume::Error>(stats)
        });
        let mut leaves: BTreeMap<(u16, String), u64> = BTreeMap::new();
        for (number, volume) in (0..).zip(&self.volumes) {
            for (name, bytes) in volume.after_process_death().image() {
                let Some((id, _)) = name.as_str().split_once('.') else { continue };
                if id.starts_with('o') && !FOREIGN.contains(&name.as_str()) {
                    leaves.insert((number, id.into()), bytes.len() as u64);
                }
            }
        }
        for (id, stat) in stats.expect("the power is on") {
            for pool::Placed { number, layout } in &stat.copies {
                let leaf = match number {
                    0 => format!("o{id}"),
                    _ => format!("o{id}-{number:016x}"),
                };
                for (part, volume) in layout.volumes().iter().enumerate() {
                    let used = leaves.remove(&(volume.0, leaf.clone()));
                    let told = layout.chunks().part_len(stat.len, part);
                    // The next use of a part cuts the bytes that a crash left past its end. A part without
                    // bytes, or one of two copies, need not have been used since.
                    let unused = told == 0 || stat.copies.len() > 1;
                    let fine = used == Some(told) || (unused && used >= Some(told));
                    assert!(fine, "part {part} of {leaf}: {used:?} bytes, {told} in the manifest");
                }
            }
        }
        assert!(leaves.is_empty(), "not in the manifest: {leaves:?}");
    }
}

fn label(number: u32) -> String {
    format!("s{number}")
}

fn foreign_image() -> Image {
    let name = |text: &str| Name::new(text).expect("a good name");
    FOREIGN.iter().map(|text| (name(text), text.as_bytes().to_vec())).collect()
}

fn check_foreign(image: &Image) {
    for (name, bytes) in foreign_image() {
        assert!(image.get(&name) == Some(&bytes), "{name}, which is not the pool's, was touched");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn a_thousand_seeds_hold() {
        let report = search(&PROGRAM, 0..1_000, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert_eq!(report.seeds, 1_000);
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..20 {
            let (first, second) = (replay(&PROGRAM, seed), replay(&PROGRAM, seed));
            assert!(first.0 == second.0, "seed {seed}");
            assert_eq!(first.1.expect("it holds"), second.1.expect("it holds"));
        }
    }
}
