//! The running program behind its listeners: figures, health, reload, and its volumes.

mod access;
mod block;
mod drains;
mod health;
mod instance;
mod probe;
mod scrub;
mod stores;
mod tiers;
mod volumes;

use std::hash::{BuildHasher, RandomState};
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::pool::scrubber::ScrubFigures;
use anyhow::Context;
use engine::keyspace::Keyspace;
use parking_lot::Mutex;
use plimsoll::volumes::{Device, Pool};
use policy::estimate::Finding;
use policy::migrate::{Whence, Why};
use policy::prefetch::Mode;
use policy::purpose::{Class, Purpose, Tenant};
use policy::sched::{TenantFigures, Waits};
use policy::time::Instant;
use serve::admin::scrub::Scrubs;
use serve::admin::volumes::{Changed, List, New};
use serve::admin::{self, Control, Health};
use serve::figures::{self, Figures};
use serve::http;
use serve::tls::{Certificates, Tls, TlsError, TlsFiles};
use volume::Clock;

use self::access::Access;
use self::drains::Drains;
pub(crate) use self::instance::EVERY as INSTANCE_EVERY;
use self::probe::Probes;
pub(crate) use self::scrub::finding;
use self::stores::Opened;
pub(crate) use self::stores::Stores;
use crate::settings::{self, Settings};
use crate::wiring;

/// All running parts, and the source of their settings.
pub(crate) struct Program {
    stores: Stores,
    clock: Clock,
    started: Instant,
    file: PathBuf,
    /// The effective settings.
    settings: Mutex<Settings>,
    /// Held while settings or volumes are changed.
    changing: Mutex<()>,
    drains: Drains,
    probes: Probes,
    /// The certificates for Redis clients, with TLS.
    tls: Option<Arc<Tls>>,
    /// The certificates for clients of time series, with TLS.
    points_tls: Option<Arc<Tls>>,
    /// The certificates for NBD clients, with TLS.
    block_tls: Option<Arc<Tls>>,
    /// The passwords and tokens of the services that run.
    access: Access,
}

impl Program {
    pub(crate) fn new(
        stores: Stores,
        clock: Clock,
        file: PathBuf,
        settings: Settings,
        tls: Option<Arc<Tls>>,
        points_tls: Option<Arc<Tls>>,
        block_tls: Option<Arc<Tls>>,
    ) -> Self {
        let started = clock.now();
        let drains = Drains::new(&clock);
        stores.pools().for_each(|root| drains.resume(root.name, root.pool));
        let (settings, changing) = (Mutex::new(settings), Mutex::default());
        let (probes, access) = (Probes::default(), Access::default());
        Self {
            stores,
            clock,
            started,
            file,
            settings,
            changing,
            drains,
            probes,
            tls,
            points_tls,
            block_tls,
            access,
        }
    }

    /// Lets a reload change the passwords of this service.
    pub(crate) fn with_keys(&self, redis: &serve::resp::Service) {
        let access = self.access.redis.set(Arc::clone(&redis.access));
        assert!(access.is_ok(), "the service is started once");
    }

    /// Lets a reload change the tokens of this service.
    pub(crate) fn with_points(&self, points: &http::Service) {
        let tokens = self.access.points.set(Arc::clone(&points.tokens));
        assert!(tokens.is_ok(), "the service is started once");
    }

    /// Tries again to open the key-value store; whether it is open. Blocks for as long as a recovery takes.
    pub(crate) fn open_kv(&self) -> bool {
        let settings = self.settings.lock().clone();
        let is_open = self.stores.open_kv(&settings, &self.clock);
        self.resume_drains();
        is_open
    }

    /// Tries again to open the store of time series; whether it is open. Blocks for as long as a recovery takes.
    pub(crate) fn open_series(&self) -> bool {
        let settings = self.settings.lock().clone();
        let is_open = self.stores.open_series(&settings, &self.clock);
        self.resume_drains();
        is_open
    }

    /// Tries again to open the store of block devices; whether it is open. Blocks for as long as a recovery takes.
    pub(crate) fn open_block(&self) -> bool {
        let settings = self.settings.lock().clone();
        let is_open = self.stores.open_block(&settings, &self.clock);
        self.resume_drains();
        is_open
    }

    /// Resumes the drains of pools that were opened late.
    fn resume_drains(&self) {
        self.stores.pools().for_each(|root| self.drains.resume(root.name, root.pool));
    }

    /// The key-value store, if there is one.
    pub(crate) fn kv(&self) -> Option<&plimsoll::kv::Store> {
        self.stores.kv()
    }

    /// The store of time series, if there is one.
    pub(crate) fn series(&self) -> Option<&plimsoll::series::Store> {
        self.stores.series()
    }

    /// The store of block devices, if there is one.
    pub(crate) fn block(&self) -> Option<&plimsoll::block::Store> {
        self.stores.block()
    }

    /// Stops background work and closes the stores: everything is durable on return.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        drop(self.drains);
        self.stores.close()
    }

    /// The time for the listener of time series: nanoseconds since 1970.
    pub(crate) fn wall(&self) -> impl Fn() -> i64 + Send + Sync + use<> {
        let clock = self.clock.clone();
        move || i64::try_from(clock.wall().as_nanos()).unwrap_or(i64::MAX)
    }

    /// The keyspace that clients of a key-value store see.
    pub(crate) fn keyspace(&self, store: &plimsoll::kv::Store) -> anyhow::Result<Keyspace> {
        let clock = self.clock.clone();
        let wall = move || u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX);
        let seed = RandomState::new().hash_one(0);
        Keyspace::open(Arc::clone(store.db()) as _, Box::new(wall), seed)
            .context("the keys of the store")
    }

    /// Applies the new contracts of volumes and limits of the machine; returns what changed.
    fn change_contracts(&self, current: &mut Settings, new: &Settings) -> Vec<String> {
        let before = current.clone();
        for volume in &mut current.volumes {
            let wanted = new.volumes.iter().find(|other| other.name == volume.name);
            if let Some(wanted) = wanted.filter(|_| self.stores.device(&volume.name).is_some()) {
                volume.take_contract_of(wanted);
            }
        }
        current.instance = new.instance;
        let mut told = Vec::new();
        if current.instance != before.instance {
            told.push(format!("instance: {} for all volumes", current.instance.in_words()));
        }
        for ((old, had), (volume, most)) in
            wiring::parts(&before).iter().zip(wiring::parts(current))
        {
            let name = &volume.name;
            let Some(device) = self.stores.device(name) else { continue };
            if volume.contract != old.contract {
                device.set_contract_at_most(&volume.contract, &most);
                told.push(format!("volume {name}: contract is now {}", volume.terms()));
            } else if most != *had {
                device.set_at_most(&most);
            }
            if most != *had && most != volume.contract {
                told.push(format!("volume {name}: its gate uses {}", settings::terms(&most)));
            } else if most != *had && volume.contract == old.contract {
                told.push(format!("volume {name}: its gate uses its contract"));
            }
        }
        told
    }

    pub(crate) fn points_speak_tls(&self) -> bool {
        self.points_tls.is_some()
    }

    pub(crate) fn devices_speak_tls(&self) -> bool {
        self.block_tls.is_some()
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }
}

/// Reads certificates; warns of a key that others can read.
pub(crate) fn certificates(files: &TlsFiles) -> Result<Certificates, TlsError> {
    let read = files.read()?;
    if read.key_is_public {
        let key = files.key.display();
        tracing::warn!("{key}: every user of this machine can read the key: chmod 600");
    }
    Ok(read)
}

impl Figures for Program {
    fn uptime(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    fn memory(&self) -> figures::Memory {
        figures::Memory {
            resident: resident(),
            store: self.kv().map_or(0, |store| store.memory()),
            store_max: self.settings.lock().kv.as_ref().map_or(0, |kv| kv.options.memory),
        }
    }

    fn volumes(&self) -> Vec<figures::Volume> {
        let spaces = self.spaces();
        let space = |name: &str| {
            let space = spaces.get(name)?.as_ref().ok()?;
            Some(figures::Space { total: space.total, free: space.free })
        };
        let mut volumes: Vec<_> =
            self.stores.pools().flat_map(|root| self.volumes_of(root)).collect();
        volumes.extend(self.stores.own().iter().map(|device| volume_figures(device)));
        for volume in &mut volumes {
            volume.space = space(&volume.name);
        }
        volumes
    }

    fn cache(&self) -> Option<figures::Cache> {
        let cache = self.kv()?.cache()?;
        Some(figures::Cache {
            reads: [
                ("passive", cache.hits),
                ("prefetched", cache.prefetched_hits),
                ("tail", cache.tail_hits),
                ("volume", cache.misses),
            ],
            hit_bytes: cache.hit_bytes,
            entries: cache.entries,
            blocks: cache.blocks,
            prefetches: cache.prefetches,
            rewarmed: cache.rewarmed,
            rewarmed_useful: cache.rewarmed_useful,
            useful: cache.useful,
            wasted: cache.wasted,
            bytes: cache.bytes,
            bytes_max: cache.bytes_max,
        })
    }

    fn series(&self) -> Option<figures::Series> {
        Self::series(self).map(|store| store.figures())
    }

    fn block(&self) -> Option<figures::Block> {
        self.block_figures()
    }

    fn copies(&self) -> Vec<figures::Copies> {
        let of = |root: Opened<'_>| {
            let below = root.pool.tree_below().into_iter();
            let below = below.map(|(name, pool)| copies_of(name, pool, root.name));
            iter::once(copies_of(root.name, root.pool, "")).chain(below).collect::<Vec<_>>()
        };
        self.stores.pools().flat_map(of).collect()
    }

    fn tiers(&self) -> Vec<figures::Tier> {
        self.tier_figures()
    }

    fn scrub(&self) -> Vec<figures::Scrub> {
        let of = |root: Opened<'_>| {
            let pools = iter::once((root.name, root.pool)).chain(root.pool.tree_below());
            let scrub = |(name, pool): (&str, &Pool)| {
                let ScrubFigures { objects, bytes, damaged, age } = pool.scrubs().figures();
                figures::Scrub { pool: name.to_owned(), objects, bytes, damaged, age }
            };
            pools.map(scrub).collect::<Vec<_>>()
        };
        self.stores.pools().flat_map(of).collect()
    }

    fn log(&self) -> Option<figures::Log> {
        Self::series(self).map(|store| store.figures().log.into())
    }
}

impl Program {
    /// The figures of the volumes below a pool, without their space.
    fn volumes_of(&self, root: Opened<'_>) -> Vec<figures::Volume> {
        let Opened { name, pool, stores } = root;
        // Ids are those of one pool.
        let modes = self.kv().filter(|_| stores.contains(&stores::KV));
        let modes = modes.map(|store| store.prefetching()).unwrap_or_default();
        let spare = |name: &str| modes.get(&pool.volume_id(name)?).map(|&mode| mode == Mode::Light);
        let weights = pool.weights();
        // If all weights are zero, nothing was measured yet: report none.
        let measured = weights.values().any(|&weight| weight > 0.0);
        let weight = |name: &str| {
            let id = pool.volume_id(name).filter(|_| measured)?;
            weights.get(&id).copied()
        };
        let (tenants, places) = (pool.tenants(), pool.devices().places());
        let below = |name: &str| {
            let way = places.iter().find(|(_, device)| device.name() == name);
            way.map(|(way, _)| way.join("/")).unwrap_or_default()
        };
        let figures = pool.devices().here().into_iter().map(|device| figures::Volume {
            pool: name.to_owned(),
            below: below(device.name()),
            stores: store_loads(&device, &tenants),
            spare: spare(device.name()),
            weight: weight(device.name()),
            ..volume_figures(&device)
        });
        figures.collect()
    }
}

/// The figures of a pool's copies and of its log; `below` is the pool with stores that it is below.
fn copies_of(name: &str, pool: &Pool, below: &str) -> figures::Copies {
    let (copies, log) = (pool.copies(), pool.log_figures());
    let skipped = copies.skipped.iter().map(|(why, count)| (why.name(), count));
    figures::Copies {
        pool: name.to_owned(),
        below: below.to_owned(),
        made: named(&Why::ALL, |why| why.name(), &copies.made),
        bytes: copies.bytes,
        times: figures::Waits {
            total: copies.times.total(),
            counts: copies.times.octaves().collect(),
        },
        born: pool.begun_with_more(),
        streamed: pool.streamed_tables(),
        dropped: named(&Whence::ALL, |whence| whence.name(), &copies.dropped),
        failed: vec![("gone", copies.gone), ("failed", copies.failed)],
        planned: copies.planned,
        in_flight: copies.in_flight,
        skipped: skipped.collect(),
        promised: copies.redundancy.target.max(1) as u64,
        short_objects: copies.redundancy.short,
        short_bytes: copies.redundancy.short_bytes,
        unreadable_objects: copies.redundancy.unreadable,
        decoded: pool.decoded(),
        recoded: pool.recoded(),
        write_log_bytes: log.bytes,
        write_log_blocks: log.blocks,
        write_log_recycled: log.blocks_recycled,
        write_log_moved: log.blocks_moved,
        write_log_waits: log.waits,
    }
}

/// Pairs each count with its name.
fn named<T>(all: &[T], name: fn(&T) -> &'static str, counts: &[u64]) -> Vec<(&'static str, u64)> {
    all.iter().map(name).zip(counts.iter().copied()).collect()
}

impl Control for Program {
    fn health(&self) -> Health {
        self.look()
    }

    fn reload(&self) -> Result<Vec<String>, admin::Error> {
        let _one_at_a_time = self.changing.lock();
        // Whatever may fail comes before the first change.
        let new = Settings::load(&self.file).map_err(invalid)?;
        let kv = new.kv.as_ref().and_then(|kv| kv.tls.as_ref());
        let points = new.series.as_ref().and_then(|(_, http)| http.tls.as_ref());
        let kv = Renewal::read("kv.tls", self.tls.as_deref(), kv)?;
        let points = Renewal::read("http.tls", self.points_tls.as_deref(), points)?;
        let block = new.block.as_ref().and_then(|block| block.tls.as_ref());
        let block = Renewal::read("block.tls", self.block_tls.as_deref(), block)?;
        let mut current = self.settings.lock();
        let mut told = Vec::new();
        if let (Some(renewal), Some(current)) = (kv, &mut current.kv) {
            told.push(renewal.apply(&mut current.tls));
        }
        if let (Some(renewal), Some((_, current))) = (points, &mut current.series) {
            told.push(renewal.apply(&mut current.tls));
        }
        if let (Some(renewal), Some(current)) = (block, &mut current.block) {
            told.push(renewal.apply(&mut current.tls));
        }
        told.extend(self.access.change(&mut current, &new));
        told.extend(self.change_contracts(&mut current, &new));
        for volume in &mut current.volumes {
            let (Some(wanted), Some(device)) = (
                new.volumes.iter().find(|other| other.name == volume.name),
                self.stores.device(&volume.name),
            ) else {
                continue;
            };
            if wanted.share != volume.share {
                device.gate().set_share(wanted.share);
                volume.share = wanted.share;
                told.push(format!("volume {}: {}", volume.name, volume.share_in_words()));
            }
            if wanted.adapt != volume.adapt {
                device.gate().set_adapt(wanted.adapt);
                volume.adapt = wanted.adapt;
                let does = if volume.adapt { "adapts" } else { "does not adapt" };
                told.push(format!("volume {}: {does}", volume.name));
            }
        }
        told.extend(
            current.differences(&new).into_iter().map(|key| format!("{key}: needs a restart")),
        );
        if told.is_empty() {
            told.push("nothing has changed".into());
        }
        Ok(told)
    }

    fn volumes(&self) -> List {
        self.list_volumes()
    }

    fn add_volume(&self, new: &New) -> Result<Changed, admin::Error> {
        self.join(new)
    }

    fn drain_volume(&self, name: &str) -> Result<admin::volumes::Volume, admin::Error> {
        self.drain(name)
    }

    fn keep_volume(&self, name: &str) -> Result<admin::volumes::Volume, admin::Error> {
        self.keep(name)
    }

    fn remove_volume(&self, name: &str, lost: bool) -> Result<Changed, admin::Error> {
        self.leave(name, lost)
    }

    fn attach_tier(&self, name: &str) -> Result<admin::tiers::Tier, admin::Error> {
        self.attach(name)
    }

    fn detach_tier(&self, name: &str) -> Result<admin::tiers::Tier, admin::Error> {
        self.detach(name)
    }

    fn lose_tier(&self, name: &str) -> Result<admin::tiers::Tier, admin::Error> {
        self.lose(name)
    }

    fn flush_tier(&self, name: &str) -> Result<admin::tiers::Tier, admin::Error> {
        self.flush(name)
    }

    fn devices(&self) -> Result<admin::block::List, admin::Error> {
        self.list_devices()
    }

    fn create_device(&self, new: &admin::block::New) -> Result<admin::block::Device, admin::Error> {
        self.new_device(new)
    }

    fn resize_device(
        &self,
        name: &str,
        to: &admin::block::Resize,
    ) -> Result<admin::block::Device, admin::Error> {
        self.change_size(name, to)
    }

    fn limit_device(
        &self,
        name: &str,
        to: &admin::block::NewLimit,
    ) -> Result<admin::block::Device, admin::Error> {
        self.change_limit(name, to)
    }

    fn release_device(&self, name: &str) -> Result<admin::block::Device, admin::Error> {
        self.end_lease(name)
    }

    fn delete_device(&self, name: &str) -> Result<admin::block::Device, admin::Error> {
        self.remove_device(name)
    }

    fn scrub(&self, pool: Option<&str>) -> Result<Scrubs, admin::Error> {
        self.show_scrubs(pool)
    }

    fn begin_scrub(&self, pool: Option<&str>) -> Result<Scrubs, admin::Error> {
        self.start_scrubs(pool)
    }
}

/// Certificates that a reload has read for an open listener.
struct Renewal<'p> {
    /// The setting that names the files.
    key: &'static str,
    tls: &'p Tls,
    files: &'p TlsFiles,
    certificates: Certificates,
}

impl<'p> Renewal<'p> {
    /// Reads the files of the setting `key`; `None` if it is not set, or the listener has no TLS.
    ///
    /// # Errors
    /// `Invalid`: the first file that cannot be used.
    fn read(
        key: &'static str,
        tls: Option<&'p Tls>,
        files: Option<&'p TlsFiles>,
    ) -> Result<Option<Self>, admin::Error> {
        let (Some(tls), Some(files)) = (tls, files) else { return Ok(None) };
        let certificates =
            certificates(files).map_err(|error| invalid(format!("{key}: {error}")))?;
        Ok(Some(Self { key, tls, files, certificates }))
    }

    /// Uses the certificates, and says so.
    fn apply(self, current: &mut Option<TlsFiles>) -> String {
        self.tls.replace(self.certificates);
        *current = Some(self.files.clone());
        format!("{}: new connections get the certificates read now", self.key)
    }
}

/// The settings file, or a file it names, is wrong.
fn invalid(wrong: impl std::fmt::Display) -> admin::Error {
    admin::Error::Invalid(wrong.to_string())
}

/// The figures of a device, without its free space: that query may block as long as the device does.
pub(crate) fn volume_figures(device: &Device) -> figures::Volume {
    let meter = device.gate().meter();
    let spent = meter.spent();
    let classes = Class::ALL.into_iter().zip(&meter.classes).zip(&meter.answers);
    figures::Volume {
        name: device.name().into(),
        pool: String::new(),
        below: String::new(),
        contract: meter.contract.name.clone(),
        paid_iops: meter.contract.paid_iops(),
        paid_bytes_per_sec: meter.contract.paid_bytes_per_sec(),
        used: meter.used,
        rho: meter.rho,
        beta: meter.beta,
        findings: meter.finding.map_or_else(Vec::new, |found| {
            Finding::ALL.map(|finding| (finding.name(), finding == found)).into()
        }),
        available: meter.available,
        credits: meter.credits,
        ops: spent.ops,
        bytes: spent.bytes,
        journal_ops: meter.journal_ops,
        kernel_ops: device.seen_by_kernel(),
        provider_ops: device.seen_by_provider().map(|seen| seen.ops),
        throttled: device.seen_by_provider().map(|seen| seen.throttled),
        classes: classes
            .map(|((class, of), answers)| figures::Class {
                name: class.name(),
                granted: of.spent.ops,
                waits: waits(&of.waits),
                answers: figures::Waits {
                    total: answers.total(),
                    counts: answers.octaves().collect(),
                },
                queued: of.queued,
                denied: of.refused + of.expired,
            })
            .collect(),
        purposes: Purpose::ALL
            .into_iter()
            .zip(meter.purposes)
            .map(|(purpose, of)| figures::PurposeLoad {
                name: purpose.name(),
                ops: of.spent.ops,
                bytes: of.spent.bytes,
            })
            .collect(),
        stores: Vec::new(),
        spare: None,
        weight: None,
        space: None,
    }
}

/// What each store of the pool got of a volume; nothing of a volume that is on no pool.
fn store_loads(device: &Device, stores: &[(Tenant, String)]) -> Vec<figures::StoreLoad> {
    let load = |(tenant, of): (Tenant, TenantFigures)| {
        let name = match tenant {
            Tenant::POOL => "pool".into(),
            _ => stores.iter().find(|(known, _)| *known == tenant)?.1.clone(),
        };
        let (ops, bytes) = (of.spent.ops, of.spent.bytes);
        Some(figures::StoreLoad { name, ops, bytes, queued: of.queued })
    };
    device.gate().meter().tenants.into_iter().filter_map(load).collect()
}

fn waits(waits: &Waits) -> figures::Waits {
    let counts = waits.counts.iter().enumerate();
    figures::Waits {
        total: waits.total,
        counts: counts.map(|(index, &count)| (Waits::bound(index), count)).collect(),
    }
}

/// Resident memory of the process in bytes; zero if the system does not report it.
fn resident() -> u64 {
    const KIB: u64 = 1024;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * KIB
}
