//! Where stores run: on simulated disks in virtual time, or in a directory in real time.
//!
//! ```text
//!   Store ── Gate ── Simulate ── Mem        one for each disk; one thread, simulated time only
//!   Store ── Spread ── Gate ── …            the same disks as one volume of the store
//!   Store ── Gate ── Dir                    a thread for each client
//! ```
//! In virtual time the processor costs nothing, so it never is the limit: figures show the disks alone. The report
//! lists processor time separately.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use engine::log::{Member, Store, StoreId};
use policy::budget::Share;
use policy::contract::Contract;
use policy::merge::Device;
use policy::placement::LeastOverlap;
use pool::PoolId;
use pool::spread::{Opening, Spread};
use volume::dir::{Dir, DirOptions};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, ErrorKind, Volume};

use super::{Scheme, Shape};

/// Where stores are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Home {
    /// On simulated disks.
    Simulated,
    /// In a directory of this path, created for each store and removed after it.
    Directory(PathBuf),
}

/// A directory that is removed with its contents when dropped.
struct Made(PathBuf);

impl Made {
    fn at(path: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir(path)
            .with_context(|| format!("make the directory {}", path.display()))?;
        Ok(Self(path.into()))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A failed removal shows when the next directory is created.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An open store.
pub(super) struct Fixture {
    pub(super) store: Store,
    pub(super) clock: Clock,
    /// The bandwidth of each disk in bytes per second; `None` in a directory.
    pub(super) line: Option<f64>,
    /// The simulated disks, and the gates above them.
    disks: Vec<(Mem, Arc<Gate<Simulate<Mem>>>)>,
    directory: Option<Made>,
}

impl Fixture {
    /// Opens an empty store; `None` if it would run out of space under any merging.
    pub(super) fn open(
        home: &Home,
        shape: &Shape,
        scheme: &Scheme,
        target: f64,
        seed: u64,
    ) -> anyhow::Result<Option<Self>> {
        let (clock, contract) = match home {
            Home::Simulated => (Clock::simulated(), shape.contract()?),
            Home::Directory(_) => (Clock::real(), Contract::unlimited()),
        };
        let (mut members, mut disks, mut below) = (Vec::new(), Vec::new(), Vec::new());
        let mut directory = None;
        match home {
            Home::Simulated => {
                for number in 1..=shape.disks {
                    let label = format!("disk {number}");
                    let mem = Mem::with_capacity(&label, shape.capacity);
                    let seed = seed.wrapping_mul(0x9e37_79b9).wrapping_add(number.into());
                    let disk = Simulate::new(mem.clone(), &contract, clock.clone(), seed);
                    let gate = Gate::new(disk, &label, &contract, Share::default(), clock.clone());
                    let gate = Arc::new(gate);
                    match scheme.in_pool {
                        true => below.push(pool::Member::new(label, Arc::clone(&gate))),
                        false => members.push(Member::new(label, Arc::clone(&gate))),
                    }
                    disks.push((mem, gate));
                }
                if scheme.in_pool {
                    let new = PoolId(u128::from(seed) + 1);
                    let opening = Opening::new(LeastOverlap::default()).create_if_missing(new);
                    let pool = clock.run(Spread::open(below, opening)).context("opening a pool")?;
                    members.push(Member::new("pool", pool));
                }
            }
            Home::Directory(path) => {
                directory = Some(Made::at(path)?);
                let dir = Dir::open(path, DirOptions::default())?;
                let label = "directory";
                let gate = Gate::new(dir, label, &contract, Share::default(), clock.clone());
                members.push(Member::new(label, gate));
            }
        }
        let options = shape.options(scheme, target, Device::of(&contract));
        let id = Some(StoreId(u128::from(seed).to_le_bytes()));
        let opening = Store::open(members, options, clock.clone(), id);
        let opened = match home {
            Home::Simulated => clock.run(opening),
            Home::Directory(_) => volume::task::block_on(opening),
        };
        let store = match opened {
            Ok((store, _)) => store,
            Err(error) if error.kind() == ErrorKind::Invalid => return Ok(None),
            Err(error) => return Err(error).context("opening a log store"),
        };
        let line = contract.disk.map(|disk| disk.transfer_per_sec as f64);
        Ok(Some(Self { store, clock, line, disks, directory }))
    }

    /// Bytes moved by the disks so far.
    pub(super) fn moved(&self) -> u64 {
        self.disks.iter().map(|(_, gate)| gate.inner().meter().total.bytes).sum()
    }

    /// Bytes of unlinked files that are still open. Counted below the store, which counts them too.
    pub(super) fn unlinked(&self) -> u64 {
        match &self.directory {
            Some(made) => unlinked_below(&made.0),
            None => self.disks.iter().map(|(mem, _)| unlinked_in(mem)).sum(),
        }
    }
}

/// Bytes in memory beyond the named objects.
fn unlinked_in(mem: &Mem) -> u64 {
    volume::task::block_on(async {
        let space = mem.space().await.expect("memory does not fail");
        let named = mem.list().await.expect("memory does not fail");
        (space.total - space.free).saturating_sub(named.iter().map(|listed| listed.len).sum())
    })
}

/// Bytes of a directory's removed files that this process has open.
fn unlinked_below(path: &Path) -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let removed = open.filter(|entry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|target| {
            target.starts_with(path)
                && target.as_os_str().as_encoded_bytes().ends_with(b" (deleted)")
        })
    });
    removed.filter_map(|entry| std::fs::metadata(entry.path()).ok()).map(|data| data.len()).sum()
}
