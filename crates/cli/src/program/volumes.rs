//! Volumes that join a pool of a running program, are drained, and leave it.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::volumes::{CacheTier, Pool};
use policy::contract::Contract;
use policy::placement::VolumeId;
use pool::Spread;
use pool::spread::{Redundancy, VolumeState};
use serve::admin::Error;
use serve::admin::volumes::{self, Changed, List, New, State};
use volume::ErrorKind;
use volume::task::block_on;

use super::stores::Opened;
use super::{Program, invalid};
use crate::settings::{self, Edit, Settings};
use crate::wiring;

impl Program {
    pub(super) fn list_volumes(&self) -> List {
        let mut lists = self.stores.pools().map(|root| self.list_of(root));
        let Some(mut first) = lists.next() else { return List::default() };
        first.more = lists.collect();
        first
    }

    /// The volumes below one pool.
    fn list_of(&self, root: Opened<'_>) -> List {
        let (name, pool) = (root.name.to_owned(), root.pool);
        let (mut volumes, redundancy) = self.members_of(&name, pool);
        let mut below = pool.all_below();
        while let Some((name, pool)) = below.pop() {
            volumes.extend(self.members_of(name, pool).0);
            below.extend(pool.all_below());
        }
        let tiers = pool.tiers();
        let sides: Vec<_> =
            tiers.into_iter().flat_map(|tier| self.sides_of(tier, &volumes)).collect();
        volumes.extend(sides);
        List {
            pool: name,
            volumes,
            copies: redundancy.target as u64,
            code: pool.code().map(|code| code.to_string()),
            short_objects: redundancy.short,
            short_bytes: redundancy.short_bytes,
            unreadable_objects: redundancy.unreadable,
            more: Vec::new(),
        }
    }

    /// The members of one pool, and how many copies its objects have.
    fn members_of(&self, name: &str, pool: &Pool) -> (Vec<volumes::Volume>, Redundancy) {
        let (held, only, tiers) = (pool.held(), only_here(pool), pool.tiers());
        let settings = self.settings.lock().clone();
        let mut gone = BTreeSet::new();
        let spaces = self.spaces();
        let volumes = pool.volumes().into_iter().map(|stat| {
            let device = pool.devices().get(&stat.label);
            let below = pool.below().into_iter().find(|(name, _)| *name == stat.label);
            let tier = tiers.iter().find(|tier| tier.name() == stat.label);
            let (space, mut problem) = match spaces.get(&stat.label).cloned() {
                None if below.is_some() || tier.is_some() => {
                    (block_on(pool.space_of(stat.id)).ok(), None)
                }
                Some(Ok(space)) => (Some(space), None),
                Some(Err(why)) => {
                    gone.insert(stat.id);
                    (None, Some(why))
                }
                None => (None, None),
            };
            let state = match stat.state {
                VolumeState::Active => State::Active,
                VolumeState::Draining => State::Draining,
                VolumeState::Away => State::Away,
            };
            if state == State::Away {
                problem =
                    Some("it is away: bring it back and restart the server, or remove it".into());
            }
            let held = held.get(&stat.id).cloned().unwrap_or_default();
            let bought = settings.volumes.iter().find(|volume| volume.name == stat.label);
            volumes::Volume {
                state,
                contract: match (below, tier) {
                    (_, Some(tier)) => Some(format!("{} before {}", tier.fast(), tier.slow())),
                    (Some((_, below)), None) => {
                        Some(format!("a pool of {}", below.spread().volumes().len()))
                    }
                    (None, None) => device.and(bought).map(settings::Volume::terms),
                },
                pool: name.to_owned(),
                size_bytes: space.map(|space| space.total),
                free_bytes: space.map(|space| space.free),
                objects: held.objects,
                bytes: held.bytes,
                only_here: only.get(&stat.id).copied().unwrap_or(0),
                drain: self.drains.progress(&stat.label),
                name: stat.label,
                problem,
            }
        });
        let volumes = volumes.collect();
        (volumes, pool.redundancy(&gone))
    }

    /// The sides of a tier that are volumes: the slow one has what the tier has, among these `volumes`.
    fn sides_of(&self, tier: &CacheTier, volumes: &[volumes::Volume]) -> Vec<volumes::Volume> {
        let settings = self.settings.lock().clone();
        let spaces = self.spaces();
        let whole = volumes.iter().find(|volume| volume.name == tier.name());
        let side = |name: &str| {
            let of = settings.volumes.iter().find(|volume| volume.name == *name)?;
            let found = spaces.get(name).cloned();
            let is_fast = name == tier.fast();
            let (space, problem) = match found.clone() {
                Some(Ok(space)) => (Some(space), tier.problem().filter(|_| is_fast)),
                Some(Err(why)) => (None, Some(why)),
                None => (None, tier.problem().filter(|_| is_fast)),
            };
            let held = |of: fn(&volumes::Volume) -> u64| whole.map_or(0, of);
            Some(volumes::Volume {
                name: name.to_owned(),
                pool: tier.name().to_owned(),
                state: if found.is_some() { State::Active } else { State::Away },
                contract: found.map(|_| of.terms()),
                size_bytes: space.map(|space| space.total),
                free_bytes: space.map(|space| space.free),
                objects: if is_fast { 0 } else { held(|volume| volume.objects) },
                bytes: if is_fast { tier.figures().cached_bytes } else { held(|v| v.bytes) },
                only_here: if is_fast { 0 } else { held(|volume| volume.only_here) },
                drain: None,
                problem,
            })
        };
        [tier.fast(), tier.slow()].into_iter().filter_map(side).collect()
    }

    pub(super) fn join(&self, new: &New) -> Result<Changed, Error> {
        let _one_at_a_time = self.changing.lock();
        let (name, file) = (&new.name, self.file.display());
        let pool = match (&new.pool, &self.pools()?[..]) {
            (Some(pool), _) => pool.clone(),
            (None, [root]) => root.name.to_owned(),
            (None, roots) => {
                let names: Vec<_> = roots.iter().map(|root| root.name).collect();
                return Err(Error::Invalid(format!(
                    "volume {name}: stores are on several pools, {}: name the one that it joins \
                     (`plimsoll volume add {name} --pool POOL`)",
                    names.join(", ")
                )));
            }
        };
        let open = self.pool_called(&pool)?;
        if self.pools()?.iter().any(|root| root.pool.with_member(name).is_some()) {
            let pool = self.pool_of(name);
            let told =
                format!("volume {name}: pool {pool} has one of that name: choose another name");
            return Err(Error::Conflict(told));
        }
        let mut edit = Edit::read(&self.file).map_err(invalid)?;
        match (new.settings.is_empty(), edit.has_volume(name)) {
            (true, true) => {}
            (true, false) => {
                return Err(Error::Invalid(format!(
                    "volume {name}: {file} has no section [volume.{name}]: write one, or give --path and --contract"
                )));
            }
            (false, true) => {
                return Err(Error::Conflict(format!(
                    "volume {name}: {file} has a section [volume.{name}] already: `plimsoll volume add \
                     {name}` without options uses it"
                )));
            }
            (false, false) => edit.add_volume(name, &new.settings).map_err(invalid)?,
        }
        let before = edit.text();
        edit.join_pool(&pool, name);
        let told_already = new.settings.is_empty() && before == edit.text();
        let wanted = edit.settings().map_err(invalid)?;
        let volume = wanted.volumes.iter().find(|volume| volume.name == *name);
        let volume = volume.expect("it was added").clone();

        let mut next = self.settings.lock().clone();
        next.add_volume(volume.clone(), &pool);
        let recipe = wiring::volume(&next, name);
        open.add_volume(&recipe).map_err(|error| store_error(&error))?;
        let mut told = vec![format!("volume {name}: joined pool {pool} with {}", volume.terms())];
        told.extend(self.go_by(next));
        let settings = if told_already { String::new() } else { edit.lines(&pool, name) };
        tracing::info!("volume {name} joined pool {pool}");
        Ok(Changed { told, settings })
    }

    pub(super) fn drain(&self, name: &str) -> Result<volumes::Volume, Error> {
        let _one_at_a_time = self.changing.lock();
        let (pool, id) = self.member(name)?;
        if self.keeps_logs(name) {
            return Err(Error::Conflict(keeps_logs(name)));
        }
        block_on(pool.set_draining(id, true)).map_err(|error| volume_error(&error))?;
        self.drains.start(pool, name, id);
        Ok(self.one(name))
    }

    pub(super) fn keep(&self, name: &str) -> Result<volumes::Volume, Error> {
        let _one_at_a_time = self.changing.lock();
        let (pool, id) = self.member(name)?;
        self.drains.stop(name);
        let kept = block_on(pool.set_draining(id, false));
        kept.map_err(|error| volume_error(&error))?;
        Ok(self.one(name))
    }

    pub(super) fn leave(&self, name: &str, lost: bool) -> Result<Changed, Error> {
        let _one_at_a_time = self.changing.lock();
        let (open, id) = self.member(name)?;
        let is_pool = open.below().iter().any(|(pool, _)| *pool == name);
        if is_pool || open.tiers().iter().any(|tier| tier.name() == name) {
            return Err(Error::Conflict(format!(
                "{name} is a pool: take it out of the settings file while the server is stopped, once it is empty"
            )));
        }
        if !block_on(open.answers(id)) {
            return self.leave_lost(name, open, id, lost);
        }
        if lost {
            return Err(Error::Conflict(format!(
                "volume {name} is here, so nothing on it is lost: empty it by `plimsoll volume drain \
                 {name}`, then remove it without --lost"
            )));
        }
        let emptied = self.drains.progress(name).is_some_and(|drain| drain.done);
        if !emptied {
            let objects = open.held().get(&id).map_or(0, |held| held.objects);
            return Err(Error::Conflict(format!(
                "volume {name} is in use, with {objects} objects: `plimsoll volume drain {name}` \
                 empties it"
            )));
        }
        open.remove_volume(name).map_err(|error| store_error(&error))?;
        self.drains.stop(name);
        let pool = self.pool_of(name);
        let told = format!("volume {name}: left pool {pool}, nothing of the pool is on it");
        Ok(self.has_left(name, vec![told]))
    }

    /// Removes a volume that does not answer.
    fn leave_lost(
        &self,
        name: &str,
        open: &Pool,
        id: VolumeId,
        lost: bool,
    ) -> Result<Changed, Error> {
        if self.keeps_logs(name) {
            return Err(Error::Conflict(keeps_logs(name)));
        }
        self.drains.stop(name);
        let gone = open.remove_lost_volume(name, lost).map_err(|error| {
            match open.only_on(id).is_empty() || lost {
                true => store_error(&error),
                false => Error::Conflict(format!(
                    "{error}\nBring the volume back; or give the objects up: `plimsoll volume remove {name} --lost`"
                )),
            }
        })?;
        let pool = self.pool_of(name);
        let mut told = vec![format!(
            "volume {name}: left pool {pool}; {} objects were only on it and are lost",
            gone.len()
        )];
        told.extend(gone.iter().map(|name| format!("lost: {name}")));
        Ok(self.has_left(name, told))
    }

    /// Removes a volume from the effective settings, and returns the change that the file needs.
    fn has_left(&self, name: &str, mut told: Vec<String>) -> Changed {
        let mut next = self.settings.lock().clone();
        let pool = self.pool_of(name);
        next.remove_volume(name);
        let pool = next.pools.iter().find(|other| other.name == pool).expect("a volume left it");
        let settings = format!(
            "[pool.{}]\nvolumes = {}\n\n# and remove the section [volume.{name}]\n",
            pool.name,
            toml::Value::from(pool.volumes.clone())
        );
        let pool = pool.name.clone();
        told.extend(self.go_by(next));
        tracing::info!("volume {name} left pool {pool}");
        Changed { told, settings }
    }

    /// The pools that stores are on, as far as they are open.
    ///
    /// # Errors
    /// `NotFound`: the stores are on volumes of their own. `Unavailable`: no pool is open.
    pub(super) fn pools(&self) -> Result<Vec<Opened<'_>>, Error> {
        let pools: Vec<_> = self.stores.pools().collect();
        if !pools.is_empty() {
            return Ok(pools);
        }
        Err(match self.stores.closed_pools().next() {
            Some((pool, _)) => Error::Unavailable(format!("pool {pool} is not open: see /health")),
            None => {
                let told =
                    "there is no pool: [series] has volumes of its own, which change by a restart";
                Error::NotFound(told.into())
            }
        })
    }

    /// The pool of this name that stores are on.
    ///
    /// # Errors
    /// `NotFound`: there is none of that name. `Unavailable`: it is not open.
    pub(super) fn root_called(&self, name: &str) -> Result<Opened<'_>, Error> {
        if let Some(root) = self.stores.pools().find(|root| root.name == name) {
            return Ok(root);
        }
        if self.stores.closed_pools().any(|(pool, _)| pool == name) {
            return Err(Error::Unavailable(format!("pool {name} is not open: see /health")));
        }
        let names: Vec<_> = self.pools()?.iter().map(|root| root.name).collect();
        let names = names.join(", ");
        Err(Error::NotFound(format!("pool {name}: no store is on it; stores are on {names}")))
    }

    /// The name of the pool that has a member of this name, by the settings.
    fn pool_of(&self, member: &str) -> String {
        let settings = self.settings.lock();
        settings.pool_with(member).map_or_else(String::new, |pool| pool.name.clone())
    }

    /// The open pool of this name: one that stores are on, or one below.
    fn pool_called(&self, name: &str) -> Result<&Pool, Error> {
        let mut below: Vec<_> =
            self.pools()?.into_iter().map(|root| (root.name, root.pool)).collect();
        while let Some((found, pool)) = below.pop() {
            if found == name {
                return Ok(pool);
            }
            below.extend(pool.all_below());
        }
        Err(Error::NotFound(format!("pool {name}: none of that name is in use")))
    }

    /// Whether the settings name the volume for logs.
    fn keeps_logs(&self, name: &str) -> bool {
        let settings = self.settings.lock();
        settings.kv.iter().flat_map(|kv| &kv.meta).any(|meta| meta == name)
    }

    /// A member of a pool in use, and that pool.
    fn member(&self, name: &str) -> Result<(&Pool, VolumeId), Error> {
        let roots = self.pools()?;
        let found = roots.iter().find_map(|root| root.pool.with_member(name));
        found.and_then(|pool| Some((pool, pool.volume_id(name)?))).ok_or_else(|| {
            let known = roots.iter().map(|root| {
                let labels = root.pool.volumes().into_iter().map(|volume| volume.label);
                let labels = labels.collect::<Vec<_>>().join(", ");
                match roots.len() {
                    1 => format!("the pool has none of that name; it has {labels}"),
                    _ => format!("pool {} has none of that name; it has {labels}", root.name),
                }
            });
            let known = known.collect::<Vec<_>>().join("; ");
            Error::NotFound(format!("volume {name}: {known}"))
        })
    }

    fn one(&self, name: &str) -> volumes::Volume {
        let mut volumes = self.list_volumes().into_volumes();
        volumes.find(|volume| volume.name == name).expect("no volume leaves meanwhile")
    }

    /// Divides the machine's limits among the current volumes; returns the volumes whose part changed.
    fn go_by(&self, next: Settings) -> Vec<String> {
        let mut current = self.settings.lock();
        let before = std::mem::replace(&mut *current, next);
        let had: BTreeMap<&str, Contract> = wiring::parts(&before)
            .into_iter()
            .map(|(volume, part)| (&*volume.name, part))
            .collect();
        let mut told = Vec::new();
        for (volume, part) in wiring::parts(&current) {
            let name = &volume.name;
            if had.get(&**name).is_none_or(|had| *had == part) {
                continue;
            }
            let Some(device) = self.stores.device(name) else { continue };
            device.set_at_most(&part);
            told.push(format!("volume {name}: its gate uses {}", settings::terms(&part)));
        }
        told
    }
}

/// The error for an administrator after a failure of the store or its volumes.
pub(super) fn store_error(error: &plimsoll::Error) -> Error {
    let told = error.to_string();
    match error {
        plimsoll::Error::Contract(_) => Error::Invalid(told),
        plimsoll::Error::Volume { source, .. } | plimsoll::Error::Pool(source) => {
            of_kind(source.kind(), told)
        }
        plimsoll::Error::AllAway(_) => Error::Unavailable(told),
        _ => Error::Internal(told),
    }
}

fn volume_error(error: &volume::Error) -> Error {
    of_kind(error.kind(), error.to_string())
}

fn of_kind(kind: ErrorKind, told: String) -> Error {
    match kind {
        ErrorKind::NotFound | ErrorKind::Gone => Error::NotFound(told),
        ErrorKind::AlreadyExists | ErrorKind::OutOfSpace | ErrorKind::Fenced => {
            Error::Conflict(told)
        }
        ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::TimedOut => Error::Unavailable(told),
        ErrorKind::Invalid => Error::Invalid(told),
        _ => Error::Internal(told),
    }
}

/// Volumes named in `kv.meta` can be removed only after a restart.
fn keeps_logs(name: &str) -> String {
    format!(
        "volume {name} is for logs and manifests (kv.meta): name other volumes there and restart the server, \
         then drain it"
    )
}

/// Counts, by volume, the objects all of whose copies are on the volume, or have a part there.
fn only_here(pool: &Spread) -> BTreeMap<VolumeId, u64> {
    let mut only: BTreeMap<VolumeId, u64> = BTreeMap::new();
    for object in pool.objects() {
        let Some((first, others)) = object.copies.split_first() else { continue };
        for &volume in first.layout.volumes() {
            if others.iter().all(|placed| placed.layout.volumes().contains(&volume)) {
                *only.entry(volume).or_default() += 1;
            }
        }
    }
    only
}
