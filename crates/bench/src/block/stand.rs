//! A store of block devices on a simulated gp3 volume, in virtual time, and the clients of its devices.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::block::store::{Options, Store};
use engine::block::{BlockDevice, BlockDevices, Durable, IoBuf, IoBufMut};
use futures_util::future::join_all;
use policy::budget::Share;
use policy::contract::spec::Bought;
use policy::contract::{Contract, Counted, Limit, catalogue};
use policy::purpose::{Io, Origin, Step};
use policy::time::Instant;
use policy::units::{Bytes, GIB, KIB, MIB};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, ErrorKind, Intent, Name, Volume};

use super::names::Names;

/// The size of a device: one region, so that its mark and its checksums stay in memory.
const SIZE: u64 = 4 * MIB;

/// The unit of clients.
const BLOCK: usize = 4096;

/// The most requests of one paced client that are under way.
const WORKERS: u64 = 16;

/// One read of a scrub.
const SCRUB_BYTES: u64 = 256 * KIB;

/// The bytes that are scrubbed again and again.
const SCRUBBED: u64 = 16 * MIB;

/// A store, its devices, and the volume below.
pub(super) struct Stand {
    clock: Clock,
    store: Store,
    gate: Arc<Gate<Simulate<Mem>>>,
    /// What each device is sold, in operations a second.
    sold: u64,
    run: Duration,
    seed: Cell<u64>,
}

/// What a paced client got.
pub(super) struct Got {
    /// Requests that were answered within a second of their turn, as a part of all.
    pub(super) share: f64,
    /// From the turn of a request to its answer.
    pub(super) latencies: Vec<Duration>,
}

/// The volume.
pub(super) fn gp3() -> anyhow::Result<Contract> {
    Ok(catalogue::find("gp3")?.contract(Some(Bytes(100 * GIB)), Bought::default())?)
}

impl Stand {
    /// Fills `devices` and gives each a limit of `sold` operations a second; clients will run for `run`.
    pub(super) async fn open(
        clock: &Clock,
        devices: usize,
        sold: u64,
        run: Duration,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let gp3 = gp3()?;
        let volume = Simulate::new(Mem::new("gp3"), &gp3, clock.clone(), seed);
        let gate = Arc::new(Gate::new(volume, "gp3", &gp3, Share::default(), clock.clone()));
        let volume: Arc<dyn Volume> = Arc::new(Names(Arc::clone(&gate)));
        let options = Options { extent_bytes: SIZE, ..Options::default() };
        let store = Store::open(volume, options, clock.clone()).await?;
        let limit = Limit { counts: Counted::Ops, rate_per_sec: sold, depth: sold };
        let limit = Contract { limits: vec![limit], ..Contract::unlimited() };
        let part = vec![1; MIB as usize];
        for number in 0..devices {
            let name = number.to_string();
            store.create(&name, SIZE).await?;
            let disk = BlockDevices::open(&store, &name).await?;
            for at in (0..SIZE).step_by(part.len()) {
                disk.write(at, IoBuf::from(&part[..]), Durable::Later).await?;
            }
            disk.flush().await?;
            store.set_limit(&name, Some(limit.clone())).await?;
        }
        // Devices and volume save up what they may.
        clock.sleep(Duration::from_secs(2)).await;
        let seed = Cell::new(seed << 32);
        Ok(Self { clock: clock.clone(), store, gate, sold, run, seed })
    }

    /// Offers a device what it was sold, at equal distances from `begin` on.
    pub(super) async fn offer(&self, device: usize, begin: Instant) -> anyhow::Result<Got> {
        let disk = self.device(device).await?;
        let offered = self.sold * self.run.as_secs();
        let workers = (0..WORKERS).map(async |worker| {
            let (mut random, mut latencies) = (self.random(), Vec::new());
            for number in (worker..offered).step_by(WORKERS as usize) {
                let due = begin + self.run.mul_f64(number as f64 / offered as f64);
                self.clock.sleep_until(due).await;
                request(&*disk, &mut random).await?;
                latencies.push(self.clock.now().since(due));
            }
            anyhow::Ok(latencies)
        });
        let latencies: anyhow::Result<Vec<_>> = join_all(workers).await.into_iter().collect();
        let latencies = latencies?.concat();
        let in_time = latencies.iter().filter(|took| **took <= Duration::from_secs(1)).count();
        Ok(Got { share: in_time as f64 / offered as f64, latencies })
    }

    /// Keeps `depth` requests of a device under way; returns how many were answered a second.
    pub(super) async fn flood(
        &self,
        device: usize,
        depth: usize,
        begin: Instant,
    ) -> anyhow::Result<f64> {
        let disk = self.device(device).await?;
        let workers = (0..depth).map(async |_| {
            let (mut random, mut answered) = (self.random(), 0);
            while self.clock.now() < begin + self.run {
                request(&*disk, &mut random).await?;
                answered += u64::from(self.clock.now() <= begin + self.run);
            }
            anyhow::Ok(answered)
        });
        let answered: anyhow::Result<Vec<u64>> = join_all(workers).await.into_iter().collect();
        Ok(answered?.iter().sum::<u64>() as f64 / self.run.as_secs_f64())
    }

    /// Reads as a scrub does, as fast as it may; returns the reads a second.
    pub(super) async fn scrub(&self, begin: Instant) -> anyhow::Result<f64> {
        let object = self.gate.create(&Name::new("scrubbed")?, &Intent::DATA).await?;
        object.set_len(SCRUBBED).await?;
        let mut reads = 0;
        while self.clock.now() < begin + self.run {
            let at = reads * SCRUB_BYTES % SCRUBBED;
            let into = IoBufMut::zeroed(SCRUB_BYTES as usize);
            match object.read_at(at, into, Io::new(Origin::Scrub, Step::Data)).await {
                Ok(_) => reads += 1,
                // There is nothing to spare for work that can wait.
                Err(error) if error.kind() == ErrorKind::Busy => {
                    self.clock.sleep(Duration::from_millis(5)).await;
                }
                Err(error) => return Err(error).context("a read of the scrub"),
            }
        }
        Ok(reads as f64 / self.run.as_secs_f64())
    }

    /// Cleans the store every second, as its owner does.
    pub(super) async fn clean(&self, begin: Instant) -> anyhow::Result<()> {
        while self.clock.now() < begin + self.run {
            self.clock.sleep(Duration::from_secs(1)).await;
            self.store.tend().await?;
        }
        Ok(())
    }

    async fn device(&self, number: usize) -> anyhow::Result<Arc<dyn BlockDevice>> {
        Ok(BlockDevices::open(&self.store, &number.to_string()).await?)
    }

    fn random(&self) -> Xoshiro256PlusPlus {
        self.seed.set(self.seed.get() + 1);
        Xoshiro256PlusPlus::seed_from_u64(self.seed.get())
    }
}

/// A request for a random block: seven of ten are reads, the others durable writes.
async fn request(disk: &dyn BlockDevice, random: &mut Xoshiro256PlusPlus) -> anyhow::Result<()> {
    let at = random.random_range(0..SIZE / BLOCK as u64) * BLOCK as u64;
    if random.random_range(0..10) < 7 {
        disk.read(at, IoBufMut::zeroed(BLOCK)).await?;
    } else {
        disk.write(at, IoBuf::from(&[2; BLOCK][..]), Durable::Now).await?;
    }
    Ok(())
}
