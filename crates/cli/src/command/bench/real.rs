//! Real volumes in place of simulated ones: the directories and contracts of a settings file.
//!
//! A bench takes nothing else from the file. On each volume it works in a directory of its own, so other data there stay
//! untouched. A store starts from a copy of a database that was loaded in memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bench::Profile;
use bench::compare::CountedBy;

use bench::report::Report;
use policy::contract::Contract;
use policy::purpose::{Origin, Step};
use policy::units::{Bytes, KIB};
use volume::dir::{BlockDevice, Dir, DirOptions};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Intent, Io, Volume};

use crate::command::probe::in_use;
use crate::command::scratch::Scratch;
use crate::settings::{self, Settings};
use crate::wiring;

/// The time before a run in which a device saves up what it can: most providers save up a second. A tenth in profile
/// smoke.
const REST: Duration = Duration::from_millis(1100);

/// Bytes of one write of a copy: one operation under most contracts.
const WRITE: u64 = 256 * KIB;

/// The space that a store needs while compactions run, for each byte of the database that it starts from.
const ROOM_FOR_EACH_BYTE: u64 = 2;

/// The options of a bench that can run on real volumes.
#[derive(clap::Args)]
pub(super) struct OnVolumes {
    /// The settings file of volumes to use instead of simulated ones
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl OnVolumes {
    /// The volumes of the file, if one was given.
    pub(super) fn open(&self, profile: Profile) -> anyhow::Result<Option<RealVolumes>> {
        let rest = if profile == Profile::Smoke { REST / 10 } else { REST };
        self.file.as_deref().map(|file| RealVolumes::load(file, rest)).transpose()
    }
}

/// The volumes of a settings file's kv pool, under equal contracts.
pub(super) struct RealVolumes {
    pub(super) all: Vec<RealVolume>,
    /// Operations a second that each is paid for.
    pub(super) paid: u64,
    /// The time before a run in which their devices save up what they can.
    pub(super) rest: Duration,
}

/// A directory on a real volume.
pub(super) struct RealVolume {
    /// Its name in the settings.
    name: String,
    pub(super) contract: Contract,
    /// The kernel's counters of its device, if that is visible.
    pub(super) counters: Option<BlockDevice>,
    /// Removed with its contents when this is dropped.
    scratch: Scratch,
}

impl RealVolumes {
    fn load(file: &Path, rest: Duration) -> anyhow::Result<Self> {
        let settings = Settings::load(file)?;
        let paid = paid(&settings)?;
        let volumes = wiring::parts(&settings).into_iter().map(|(volume, _)| volume);
        let mut devices: Vec<(u64, Option<BlockDevice>, &str)> = Vec::new();
        for volume in volumes.clone() {
            let name = &*volume.name;
            let path = &volume.path;
            let device = fs::metadata(path)
                .with_context(|| format!("volume {name} at {}: mount it first", path.display()))?
                .dev();
            let counters = BlockDevice::of(path);
            let same = devices.iter().find(|(other, counted, _)| {
                *other == device || counters.is_some() && *counted == counters
            });
            if let Some((_, _, other)) = same {
                bail!(
                    "volumes {other} and {name} are on one device and would share its limits: \
                     name one of them in the pool"
                );
            }
            devices.push((device, counters, name));
        }
        let all = volumes.map(RealVolume::new).collect::<anyhow::Result<_>>()?;
        Ok(Self { all, paid, rest })
    }

    /// What counts the operations of a store on the first `volumes`.
    pub(super) fn counted_by(&self, volumes: usize) -> CountedBy {
        let known = self.all.iter().take(volumes).all(|volume| volume.counters.is_some());
        if known { CountedBy::Kernel } else { CountedBy::Nothing }
    }

    /// The approximate time to copy `bytes` to a volume, to do `reads` before a run, and to rest.
    pub(super) fn opening(&self, bytes: u64, reads: u64) -> Duration {
        Duration::from_secs((bytes.div_ceil(WRITE) + reads) / self.paid) + self.rest
    }

    /// Adds notes about the volumes.
    pub(super) fn describe(&self, report: &mut Report) {
        let on = |volume: &RealVolume| match &volume.counters {
            Some(counters) => format!("{} ({})", volume.name, counters.name()),
            None => format!("{} (no device of its own is visible)", volume.name),
        };
        let contract = &self.all[0].contract;
        let bytes = contract.paid_bytes_per_sec();
        let bytes = bytes.map_or(String::new(), |bytes| format!(" and {} a second", Bytes(bytes)));
        report.notes.push(format!(
            "real volumes: {}; contract {}: {} operations a second{bytes} each; before each run a store's volumes \
             are emptied, get a copy of the loaded database, and rest {}",
            self.all.iter().map(on).collect::<Vec<_>>().join(", "),
            contract.name,
            self.paid,
            humantime::format_duration(self.rest),
        ));
        report.notes.push(
            "the store opens and warms its cache under the real limit too; the gates of the published schemes do \
             not adapt to what a volume gives, ours do"
                .into(),
        );
        let uncounted = self.all.iter().filter(|volume| volume.counters.is_none());
        for RealVolume { name, .. } in uncounted {
            report.notes.push(format!(
                "volume {name}: the kernel has no counters for its directory (btrfs, overlay, network file \
                 systems), so figures that need them are left out"
            ));
        }
    }
}

impl RealVolume {
    fn new(settings: &settings::Volume) -> anyhow::Result<Self> {
        let settings::Volume { name, path, contract, .. } = settings;
        let place = path.display();
        if let Some(holder) = in_use::holder(path) {
            bail!(
                "volume {name} at {place} is in use: process {holder} has it open: stop that first"
            );
        }
        let scratch = Scratch::new(path, "bench").with_context(|| {
            format!("volume {name} at {place}: see that it is mounted for writing, and yours")
        })?;
        let volume = Self {
            name: name.clone(),
            contract: contract.clone(),
            counters: BlockDevice::of(path),
            scratch,
        };
        let dir = Dir::open(volume.empty()?, DirOptions::default())?;
        ensure!(
            dir.is_direct(),
            "volume {name} at {place}: its file system refuses O_DIRECT, so the page cache would answer instead \
             of the device: use ext4 or XFS"
        );
        Ok(volume)
    }

    /// Its directory, emptied.
    fn empty(&self) -> anyhow::Result<PathBuf> {
        let path = self.scratch.path().join("volume");
        let emptied = if path.exists() { fs::remove_dir_all(&path) } else { Ok(()) };
        emptied
            .and_then(|()| fs::create_dir(&path))
            .with_context(|| format!("volume {}: empty {}", self.name, path.display()))?;
        Ok(path)
    }

    /// Its directory with the objects of `image` and no others, durable.
    ///
    /// # Errors
    /// Too little space, or the device's.
    pub(super) fn copy(&self, image: &Mem) -> anyhow::Result<PathBuf> {
        let path = self.empty()?;
        let dir = Dir::open(&path, DirOptions::default())?;
        let listed = block_on(image.list())?;
        let needed = ROOM_FOR_EACH_BYTE * listed.iter().map(|object| object.len).sum::<u64>();
        let free = block_on(dir.space())?.free;
        ensure!(
            needed <= free,
            "volume {}: a store needs about {} there, and {} are free: make room, or ask for a smaller --profile",
            self.name,
            Bytes(needed),
            Bytes(free)
        );
        let io = Io::new(Origin::Copy, Step::Data);
        let mut made = Vec::with_capacity(listed.len());
        let mut bytes = vec![0; usize::try_from(WRITE)?];
        for object in listed {
            let from = block_on(image.open(&object.name))?;
            let to = block_on(dir.create(&object.name, &Intent::DATA))?;
            let mut offset = 0;
            while offset < object.len {
                let read = from.blocking_read_at(offset, &mut bytes, io)?;
                to.blocking_write_at(offset, &bytes[..read], io)?;
                offset += read as u64;
            }
            made.push(to);
        }
        // At the end: the first sync makes the metadata of all files durable, so the others cost little.
        made.iter().try_for_each(|object| block_on(object.sync(io)))?;
        Ok(path)
    }
}

/// The paid operations a second of the pool's volumes, if a bench can use them.
fn paid(settings: &Settings) -> anyhow::Result<u64> {
    let parts = wiring::parts(settings);
    let terms = |contract: &Contract| (contract.limits.clone(), contract.op_bytes_max);
    let first = parts.first().context("the pool has no volumes")?.0;
    for (volume, most) in &parts {
        let (name, contract) = (&volume.name, &volume.contract);
        ensure!(
            !volume.simulate,
            "volume {name} is simulated: the bench simulates volumes itself without -c; name real ones"
        );
        ensure!(
            terms(contract) == terms(&first.contract),
            "volumes {} and {name} have different contracts: the bench compares schemes on equal ones; name \
             volumes of one contract in the pool",
            first.name
        );
        ensure!(
            terms(contract) == terms(most),
            "[instance] leaves volume {name} less than its contract: the bench takes volumes to their own limits; \
             name fewer volumes in the pool, or leave [instance] out of this file if the machine allows it"
        );
        ensure!(
            !contract.has_credits(),
            "volume {name} saves up credits, and a run would end before they are spent: name volumes without, \
             for example gp3"
        );
    }
    let name = &first.name;
    first.contract.paid_iops().with_context(|| {
        format!(
            "the contract of volume {name} does not limit operations, and the bench measures how schemes keep to \
             such a limit: give what was bought, for example contract = {{ iops = 3000 }}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid_of(volumes: &str, more: &str) -> Result<u64, String> {
        let pool = "[pool.main]\nvolumes = [\"a\", \"b\"]\n\n[kv]\npool = \"main\"\n";
        let text = format!("{volumes}\n{pool}{more}");
        let settings = Settings::parse(Path::new("plimsoll.toml"), &text).expect("good settings");
        paid(&settings).map_err(|error| error.to_string())
    }

    fn volumes(one: &str, other: &str) -> String {
        format!("[volume.a]\npath = \"a\"\n{one}\n[volume.b]\npath = \"b\"\n{other}\n")
    }

    #[test]
    fn volumes_are_real_and_equal_and_sold_by_operations() {
        const IOPS: &str = "contract = { iops = 1000 }";
        assert_eq!(paid_of(&volumes(IOPS, IOPS), ""), Ok(1000));
        for (one, other, more, says) in [
            (IOPS, "contract = { iops = 1000 }\nsimulate = true", "", "volume b is simulated"),
            (IOPS, "contract = { iops = 900 }", "", "a and b have different contracts"),
            ("contract = \"unlimited\"", "contract = \"unlimited\"", "", "volume a does not limit"),
            (
                "contract = \"gp2\"\nsize = \"100GiB\"",
                "contract = \"gp2\"\nsize = \"100GiB\"",
                "",
                "credits",
            ),
            (IOPS, IOPS, "[instance]\niops = 500\n", "[instance] leaves volume a less"),
        ] {
            let refused = paid_of(&volumes(one, other), more).expect_err(says);
            assert!(refused.contains(says), "{says}: {refused}");
        }
    }

    #[test]
    fn a_volume_holds_a_copy_of_the_image_and_nothing_of_the_one_before() {
        let settings = |place: &Path| {
            let text = volumes("contract = { iops = 1000 }", "contract = { iops = 1000 }")
                + "[pool.main]\nvolumes = [\"a\", \"b\"]\n[kv]\npool = \"main\"\n";
            fs::create_dir(place.join("a")).expect("room for a directory");
            Settings::parse(&place.join("plimsoll.toml"), &text).expect("good settings")
        };
        let place = tempfile::tempdir().expect("room for a directory");
        let Ok(volume) = RealVolume::new(&settings(place.path()).volumes[0]) else {
            // No O_DIRECT under TMPDIR.
            return;
        };
        let image = |name: &str, len: usize| {
            let mem = Mem::new("image");
            let name = volume::Name::new(name).expect("a name");
            let object = block_on(mem.create(&name, &Intent::DATA)).expect("memory takes it");
            let (bytes, io) = (vec![7; len], Io::new(Origin::Copy, Step::Data));
            object.blocking_write_at(0, &bytes, io).expect("memory takes it");
            mem
        };
        for (name, len) in [("kv/1.sst", 700_001), ("kv/2.sst", 5), ("kv/3.sst", 0)] {
            let path = volume.copy(&image(name, len)).expect("room for a copy");
            let dir = Dir::open(path, DirOptions::default()).expect("a volume");
            let listed = block_on(dir.list()).expect("it is there");
            let listed: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.len)).collect();
            assert_eq!(listed, [(name, len as u64)]);
        }
        drop(volume);
        let left = fs::read_dir(place.path().join("a")).expect("it is there").count();
        assert_eq!(left, 0, "the user's directory is as it was");
    }
}
