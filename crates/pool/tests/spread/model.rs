//! What a pool should hold, as plain maps, and random operations for both.

use std::collections::BTreeMap;

use pool::spread::{Change, Spread};
use rand::{Rng, RngExt};
use volume::{ErrorKind, Intent, IoBuf, Result, Volume};

use crate::rig::{IO, get, name};

/// One operation of a user.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Creates an object and writes to it, without a sync.
    Create(&'static str, Vec<u8>),
    /// Makes an object at once.
    WriteWhole(&'static str, Vec<u8>),
    /// Writes to the end of an object, without a sync.
    Append(&'static str, Vec<u8>),
    Cut(&'static str, usize),
    Sync(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    RenamePrefix(&'static str, &'static str),
    /// Removes one and links another in its place, at once.
    Replace(&'static str, &'static str),
    Flush,
}

pub(crate) const NAMES: [&str; 7] = ["a", "d/a", "d/b", "d/c.log", "e/a", "e/f/b", "x.log"];
const PREFIXES: [&str; 4] = ["d", "e", "e/f", "g"];

impl Op {
    pub(crate) fn random(rng: &mut impl Rng) -> Self {
        fn pick(rng: &mut impl Rng, from: &[&'static str]) -> &'static str {
            from[rng.random_range(0..from.len())]
        }
        let text = pick(rng, &NAMES);
        let other = pick(rng, &NAMES);
        let mut data = vec![0; rng.random_range(0..3) * 70_000 + rng.random_range(0..5000)];
        match rng.random_range(0..20) {
            0..4 => {
                rng.fill_bytes(&mut data);
                Self::Create(text, data)
            }
            4..6 => {
                rng.fill_bytes(&mut data);
                Self::WriteWhole(text, data)
            }
            6..8 => {
                rng.fill_bytes(&mut data);
                Self::Append(text, data)
            }
            8 => Self::Cut(text, rng.random_range(0..6000)),
            9..13 => Self::Sync(text),
            13..15 => Self::Remove(text),
            15 => Self::Rename(text, other),
            16 => Self::Link(text, other),
            17 => Self::RenamePrefix(pick(rng, &PREFIXES), pick(rng, &PREFIXES)),
            18 => Self::Replace(text, other),
            _ => Self::Flush,
        }
    }

    pub(crate) async fn run(&self, pool: &Spread) -> Result<()> {
        match self {
            Self::Create(text, data) => {
                let name = name(text);
                let intent = if name.is_log() { Intent::LOG } else { Intent::DATA };
                let object = pool.create(&name, &intent).await?;
                object.write_at(0, IoBuf::from(&data[..]), IO).await
            }
            Self::WriteWhole(text, data) => {
                pool.write_whole(&name(text), &Intent::DATA, IoBuf::from(&data[..]), IO).await
            }
            Self::Append(text, data) => {
                let object = pool.open(&name(text)).await?;
                object.write_at(object.len(), IoBuf::from(&data[..]), IO).await
            }
            Self::Cut(text, len) => {
                let object = pool.open(&name(text)).await?;
                object.set_len(object.len().min(*len as u64)).await
            }
            Self::Sync(text) => pool.open(&name(text)).await?.sync(IO).await,
            Self::Remove(text) => pool.remove(&name(text)).await,
            Self::Rename(from, to) => pool.rename(&name(from), &name(to)).await,
            Self::Link(from, to) => pool.link(&name(from), &name(to)).await,
            Self::RenamePrefix(from, to) => pool.rename_prefix(&name(from), &name(to)).await,
            Self::Replace(from, to) => {
                let remove = Change::Remove { name: name(to) };
                let link = Change::Link { from: name(from), to: name(to) };
                pool.change(&[remove, link]).await
            }
            Self::Flush => pool.flush().await,
        }
    }
}

/// What the bytes of an object are, and what a crash may make of them.
#[derive(Clone, Debug, Default)]
struct Bytes {
    is_log: bool,
    is_sealed: bool,
    live: Vec<u8>,
    /// `None`: never synced.
    synced: Option<Vec<u8>>,
    /// It was cut since the last sync, to no less than this.
    cut: Option<usize>,
}

/// What a pool should hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    names: BTreeMap<String, u64>,
    objects: BTreeMap<u64, Bytes>,
    ids: u64,
}

/// Names and bytes.
pub(crate) type View = BTreeMap<String, Vec<u8>>;

impl Model {
    /// What the pool holds while the machine runs.
    pub(crate) fn view(&self) -> View {
        self.names.iter().map(|(name, id)| (name.clone(), self.objects[id].live.clone())).collect()
    }

    /// Every model the operation passes through, from this one to that when it ended, or the kind of
    /// error that it should end with.
    pub(crate) fn stages(&self, op: &Op) -> std::result::Result<Vec<Self>, ErrorKind> {
        let mut stages = vec![self.clone()];
        let mut next = self.clone();
        match op {
            Op::Create(text, data) => {
                let is_log = name(text).is_log();
                let id = next.create(text, Bytes { is_log, ..Bytes::default() })?;
                stages.push(next.clone());
                next.object(id).live = data.clone();
            }
            Op::WriteWhole(text, data) => {
                let (live, synced) = (data.clone(), Some(data.clone()));
                let is_log = name(text).is_log();
                next.create(text, Bytes { is_log, is_sealed: true, live, synced, cut: None })?;
            }
            Op::Append(text, data) => next.writable(text)?.live.extend_from_slice(data),
            Op::Cut(text, len) => {
                let bytes = next.writable(text)?;
                if bytes.live.len() > *len {
                    bytes.cut = Some(bytes.cut.unwrap_or(usize::MAX).min(*len));
                }
                bytes.live.truncate(*len);
            }
            Op::Sync(text) => next.sync(text)?,
            Op::Remove(text) => {
                next.names.remove(*text).ok_or(ErrorKind::NotFound)?;
            }
            Op::Rename(from, to) => {
                next.sync_new(from)?;
                stages.push(next.clone());
                let id = next.names.remove(*from).ok_or(ErrorKind::NotFound)?;
                next.names.insert((*to).into(), id);
            }
            Op::Link(from, to) => {
                next.sync_new(from)?;
                stages.push(next.clone());
                next.link(from, to)?;
            }
            Op::Replace(from, to) => {
                next.sync_new(from)?;
                stages.push(next.clone());
                next.names.remove(*to).ok_or(ErrorKind::NotFound)?;
                next.link(from, to)?;
            }
            Op::RenamePrefix(from, to) => next.rename_prefix(from, to)?,
            Op::Flush => {}
        }
        stages.push(next);
        Ok(stages)
    }

    /// Whether a machine that was in this state may come back with `found`.
    pub(crate) fn explains(&self, found: &View) -> std::result::Result<(), String> {
        for (name, id) in &self.names {
            let bytes = &self.objects[id];
            match (&bytes.synced, found.get(name)) {
                (None, None) => {}
                (None, Some(_)) if bytes.is_log => {}
                (None, Some(_)) => return Err(format!("{name} is back, though a draft")),
                (Some(_), None) => return Err(format!("{name} is lost")),
                (Some(synced), Some(found)) => bytes.explain(synced, found, name)?,
            }
        }
        match found.keys().find(|name| !self.names.contains_key(*name)) {
            Some(name) => Err(format!("{name} is back")),
            None => Ok(()),
        }
    }

    /// The state after a crash that was explained by this one.
    pub(crate) fn recovered(&self, found: &View) -> Self {
        let mut next = self.clone();
        next.names.retain(|name, _| found.contains_key(name));
        for (name, id) in next.names.clone() {
            let bytes = next.object(id);
            bytes.live = found[&name].clone();
            if !bytes.is_log {
                bytes.synced = Some(bytes.live.clone());
                bytes.cut = None;
            }
        }
        next
    }

    /// As [`Model::recovered`], after the process died and the machine did not.
    pub(crate) fn restarted(&self) -> Self {
        let mut next = self.clone();
        let objects = next.objects.clone();
        next.names.retain(|_, id| objects[id].is_log || objects[id].synced.is_some());
        for bytes in next.objects.values_mut().filter(|bytes| !bytes.is_log) {
            // Of other objects the manifest knows only what was synced, or cut.
            if let Some(synced) = &bytes.synced {
                let len = bytes.cut.unwrap_or(usize::MAX).min(synced.len());
                bytes.live = synced[..len].to_vec();
                bytes.synced = Some(bytes.live.clone());
                bytes.cut = None;
            }
        }
        next
    }

    fn create(&mut self, text: &str, bytes: Bytes) -> std::result::Result<u64, ErrorKind> {
        if self.names.contains_key(text) {
            return Err(ErrorKind::AlreadyExists);
        }
        self.ids += 1;
        self.names.insert(text.into(), self.ids);
        self.objects.insert(self.ids, bytes);
        Ok(self.ids)
    }

    fn object(&mut self, id: u64) -> &mut Bytes {
        self.objects.get_mut(&id).expect("objects of the model are kept")
    }

    fn named(&mut self, text: &str) -> std::result::Result<&mut Bytes, ErrorKind> {
        let id = *self.names.get(text).ok_or(ErrorKind::NotFound)?;
        Ok(self.object(id))
    }

    fn writable(&mut self, text: &str) -> std::result::Result<&mut Bytes, ErrorKind> {
        let bytes = self.named(text)?;
        if bytes.is_sealed { Err(ErrorKind::Invalid) } else { Ok(bytes) }
    }

    fn sync(&mut self, text: &str) -> std::result::Result<(), ErrorKind> {
        let bytes = self.named(text)?;
        bytes.synced = Some(bytes.live.clone());
        bytes.cut = None;
        Ok(())
    }

    /// What was never synced is before it gets another name.
    fn sync_new(&mut self, text: &str) -> std::result::Result<(), ErrorKind> {
        if self.named(text)?.synced.is_none() { self.sync(text) } else { Ok(()) }
    }

    fn link(&mut self, from: &str, to: &str) -> std::result::Result<(), ErrorKind> {
        let id = *self.names.get(from).ok_or(ErrorKind::NotFound)?;
        if self.names.contains_key(to) {
            return Err(ErrorKind::AlreadyExists);
        }
        self.names.insert(to.into(), id);
        Ok(())
    }

    fn rename_prefix(&mut self, from: &str, to: &str) -> std::result::Result<(), ErrorKind> {
        let (old, new) = (format!("{from}/"), format!("{to}/"));
        if from == to {
            return Ok(());
        }
        if new.starts_with(&old) {
            return Err(ErrorKind::Invalid);
        }
        if self.names.keys().any(|name| name.starts_with(&new)) {
            return Err(ErrorKind::AlreadyExists);
        }
        let renamed = std::mem::take(&mut self.names).into_iter().map(|(name, id)| {
            match name.strip_prefix(&old) {
                Some(rest) => (format!("{new}{rest}"), id),
                None => (name, id),
            }
        });
        self.names = renamed.collect();
        Ok(())
    }
}

impl Bytes {
    fn explain(&self, synced: &[u8], found: &[u8], name: &str) -> std::result::Result<(), String> {
        // A cut of anything but a log is in the manifest at once; of what was appended since a log
        // may have any part.
        let kept = self.cut.unwrap_or(usize::MAX).min(synced.len());
        let len_fits = if self.is_log { found.len() >= kept } else { found.len() == kept };
        if !len_fits || found[..kept] != synced[..kept] {
            let (found, synced) = (found.len(), synced.len());
            return Err(format!("{name}: {found} bytes, {synced} synced, cut to {:?}", self.cut));
        }
        Ok(())
    }
}

/// What a pool holds.
pub(crate) async fn view(pool: &Spread) -> Result<View> {
    let mut view = View::new();
    for listed in pool.list().await? {
        let bytes = get(pool, listed.name.as_str()).await?;
        assert_eq!(bytes.len() as u64, listed.len, "{}", listed.name);
        view.insert(listed.name.to_string(), bytes);
    }
    Ok(view)
}
