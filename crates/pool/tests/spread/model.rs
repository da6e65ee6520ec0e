//! A model of a pool as plain maps, and random operations for both.

use std::collections::BTreeMap;
use std::fmt;

use pool::spread::{Change, Spread};
use rand::{Rng, RngExt};
use volume::{ErrorKind, Intent, IoBuf, Result, Volume};

use crate::rig::{IO, get, name};

/// One operation of a user.
#[derive(Clone)]
pub(crate) enum Op {
    /// Creates an object and writes to it, without a sync.
    Create(&'static str, Vec<u8>),
    /// Writes a whole object.
    WriteWhole(&'static str, Vec<u8>),
    /// Writes to the end of an object, without a sync.
    Append(&'static str, Vec<u8>),
    Cut(&'static str, usize),
    Sync(&'static str),
    /// A sync after which the object never changes.
    Seal(&'static str),
    Remove(&'static str),
    /// Removes an object; a crash may undo it.
    RemoveSoon(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    RenamePrefix(&'static str, &'static str),
    /// Removes one object and links another in its place, atomically.
    Replace(&'static str, &'static str),
    Flush,
}

/// Names to choose from.
pub(crate) struct Names {
    directory: String,
    objects: Vec<&'static str>,
    directories: Vec<&'static str>,
}

impl Names {
    /// A few names in a directory of their own.
    pub(crate) fn within(directory: &str) -> Self {
        // A few names in a test may leak.
        let name = |text: &str| &*format!("{directory}/{text}").leak();
        Self {
            directory: format!("{directory}/"),
            objects: ["a", "d/a", "d/b", "d/c.log", "e/a", "e/f/b", "x.log"].map(name).to_vec(),
            directories: ["d", "e", "e/f", "g"].map(name).to_vec(),
        }
    }

    /// The common prefix of all names.
    pub(crate) fn prefix(&self) -> &str {
        &self.directory
    }
}

impl Op {
    pub(crate) fn random(rng: &mut impl Rng, names: &Names) -> Self {
        fn pick(rng: &mut impl Rng, from: &[&'static str]) -> &'static str {
            from[rng.random_range(0..from.len())]
        }
        let text = pick(rng, &names.objects);
        let other = pick(rng, &names.objects);
        // Sometimes longer than a chunk, so that it is striped.
        let long = if rng.random_ratio(1, 6) { 70_000 } else { 0 };
        let mut data = vec![0; long + rng.random_range(0..5000)];
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
            13 => Self::Remove(text),
            14 => Self::RemoveSoon(text),
            15 => Self::Rename(text, other),
            16 => Self::Link(text, other),
            17 => Self::RenamePrefix(pick(rng, &names.directories), pick(rng, &names.directories)),
            18 => Self::Replace(text, other),
            _ => Self::Flush,
        }
    }

    /// Whether every earlier change of names is durable once it is done.
    pub(crate) fn waits_for_names(&self, before: &Model) -> bool {
        let bytes = |text: &str| before.names.get(text).map(|id| &before.objects[id]);
        match self {
            Self::WriteWhole(..)
            | Self::Rename(..)
            | Self::Link(..)
            | Self::RenamePrefix(..)
            | Self::Replace(..)
            | Self::Seal(_)
            | Self::Flush => true,
            // The pool records nothing for uncommitted objects, and only new lengths.
            Self::Remove(text) => bytes(text).is_some_and(|b| b.is_log || b.synced.is_some()),
            Self::Sync(text) => bytes(text).is_some_and(|b| match &b.synced {
                None => true,
                Some(synced) => !b.is_log && b.kept_of(synced) != b.live.len(),
            }),
            Self::Create(..) | Self::Append(..) | Self::Cut(..) | Self::RemoveSoon(_) => false,
        }
    }

    pub(crate) async fn run(&self, pool: &Spread) -> Result<()> {
        match self {
            Self::Create(text, data) => {
                let name = name(text);
                let intent =
                    if name.as_str().ends_with(".log") { Intent::LOG } else { Intent::DATA };
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
            Self::Seal(text) => pool.open(&name(text)).await?.seal(IO).await,
            Self::Remove(text) => pool.remove(&name(text)).await,
            Self::RemoveSoon(text) => pool.remove_soon(&name(text)).await,
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

impl fmt::Debug for Op {
    /// Shows the number of bytes instead of the bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(text, data) => write!(f, "create {text}, {} bytes", data.len()),
            Self::WriteWhole(text, data) => write!(f, "write whole {text}, {} bytes", data.len()),
            Self::Append(text, data) => write!(f, "append to {text}, {} bytes", data.len()),
            Self::Cut(text, len) => write!(f, "cut {text} to {len}"),
            Self::Sync(text) => write!(f, "sync {text}"),
            Self::Seal(text) => write!(f, "seal {text}"),
            Self::Remove(text) => write!(f, "remove {text}"),
            Self::RemoveSoon(text) => write!(f, "remove {text} soon"),
            Self::Rename(from, to) => write!(f, "rename {from} to {to}"),
            Self::Link(from, to) => write!(f, "link {from} to {to}"),
            Self::RenamePrefix(from, to) => write!(f, "rename {from}/ to {to}/"),
            Self::Replace(from, to) => write!(f, "replace {to} by a link to {from}"),
            Self::Flush => write!(f, "flush"),
        }
    }
}

/// The bytes of an object, and what a crash may do to them.
#[derive(Clone, Debug, Default)]
struct Bytes {
    is_log: bool,
    is_sealed: bool,
    live: Vec<u8>,
    /// `None`: never synced.
    synced: Option<Vec<u8>>,
    /// The shortest length it was cut to since the last sync.
    cut: Option<usize>,
    /// The device may have bytes that are not in `live`: of cancelled writes, or cut off.
    blurred: bool,
}

/// The expected contents of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    names: BTreeMap<String, u64>,
    objects: BTreeMap<u64, Bytes>,
    ids: u64,
}

/// Names and bytes.
pub(crate) type View = BTreeMap<String, Vec<u8>>;

impl Model {
    /// The contents of the pool while the machine runs.
    pub(crate) fn view(&self) -> View {
        self.names.iter().map(|(name, id)| (name.clone(), self.objects[id].live.clone())).collect()
    }

    /// Every model that the operation passes through, from this one to the last, or the kind of its expected
    /// error.
    pub(crate) fn stages(&self, op: &Op) -> std::result::Result<Vec<Self>, ErrorKind> {
        let mut stages = vec![self.clone()];
        let mut next = self.clone();
        match op {
            Op::Create(text, data) => {
                let is_log = text.ends_with(".log");
                let id = next.create(text, Bytes { is_log, ..Bytes::default() })?;
                stages.push(next.clone());
                next.object(id).live = data.clone();
            }
            Op::WriteWhole(text, data) => {
                let (live, synced) = (data.clone(), Some(data.clone()));
                let is_log = text.ends_with(".log");
                let bytes = Bytes { is_log, is_sealed: true, live, synced, ..Bytes::default() };
                next.create(text, bytes)?;
            }
            Op::Append(text, data) => next.writable(text)?.live.extend_from_slice(data),
            Op::Cut(text, len) => {
                let bytes = next.writable(text)?;
                if bytes.live.len() > *len {
                    bytes.blurred = true;
                    bytes.cut = Some(bytes.cut.unwrap_or(usize::MAX).min(*len));
                }
                bytes.live.truncate(*len);
            }
            Op::Sync(text) => next.sync(text)?,
            Op::Seal(text) => {
                next.sync(text)?;
                let id = next.names[*text];
                next.object(id).is_sealed = true;
            }
            Op::Remove(text) | Op::RemoveSoon(text) => {
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

    /// This model with the names of another.
    pub(crate) fn with_names_of(&self, other: &Self) -> Self {
        Self { names: other.names.clone(), ..self.clone() }
    }

    /// Whether a machine in this state may have `found` after a crash.
    pub(crate) fn explains(&self, found: &View) -> std::result::Result<(), String> {
        for (name, id) in &self.names {
            let bytes = &self.objects[id];
            match (&bytes.synced, found.get(name)) {
                (None, None) => {}
                (None, Some(found)) if bytes.is_log => bytes.explain(&[], found, name)?,
                (None, Some(_)) => return Err(format!("{name} is back, though uncommitted")),
                (Some(_), None) => return Err(format!("{name} is lost")),
                (Some(synced), Some(found)) => bytes.explain(synced, found, name)?,
            }
        }
        match found.keys().find(|name| !self.names.contains_key(*name)) {
            Some(name) => Err(format!("{name} is back")),
            None => Ok(()),
        }
    }

    /// The state after a crash that this one explains.
    pub(crate) fn recovered(&self, found: &View) -> Self {
        let mut next = self.clone();
        next.names.retain(|name, _| found.contains_key(name));
        for (name, id) in next.names.clone() {
            let bytes = next.object(id);
            // Bytes that survived a crash are durable.
            bytes.live = found[&name].clone();
            bytes.synced = Some(bytes.live.clone());
            bytes.cut = None;
        }
        next
    }

    /// As [`Model::recovered`], after a crash of the process only.
    pub(crate) fn restarted(&self) -> Self {
        let mut next = self.clone();
        let objects = next.objects.clone();
        next.names.retain(|_, id| objects[id].is_log || objects[id].synced.is_some());
        for bytes in next.objects.values_mut().filter(|bytes| !bytes.is_log) {
            // For other objects the manifest has only the synced length, or that of a cut.
            if let Some(synced) = &bytes.synced {
                let len = bytes.kept_of(synced);
                bytes.live = synced[..len].to_vec();
                bytes.synced = Some(bytes.live.clone());
                bytes.cut = None;
            }
        }
        next
    }

    /// Notes that a cancelled write to any object may still take effect.
    pub(crate) fn blur(&mut self) {
        self.objects.values_mut().for_each(|bytes| bytes.blurred = true);
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

    /// Syncs an object that was never synced, before it gets another name.
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
    /// The number of synced bytes that survive any crash.
    fn kept_of(&self, synced: &[u8]) -> usize {
        self.cut.unwrap_or(usize::MAX).min(synced.len())
    }

    fn explain(&self, synced: &[u8], found: &[u8], name: &str) -> std::result::Result<(), String> {
        // A cut of any object but a log is in the manifest at once. A log may have any part of the bytes
        // appended since, and zeros for the rest.
        let kept = self.kept_of(synced);
        let fits = if self.is_log {
            let appended = found.len() >= kept
                && found.len() <= self.live.len()
                && found.iter().zip(&self.live).all(|(&found, &live)| found == live || found == 0);
            appended || found.len() >= kept && self.blurred
        } else {
            found.len() == kept
        };
        if !fits || found[..kept] != synced[..kept] {
            let (found, synced) = (found.len(), synced.len());
            return Err(format!("{name}: {found} bytes, {synced} synced, cut to {:?}", self.cut));
        }
        Ok(())
    }
}

/// The contents of a pool.
pub(crate) async fn view(pool: &Spread) -> Result<View> {
    view_of(pool, "").await
}

/// The contents of a pool under names that begin with `prefix`.
pub(crate) async fn view_of(pool: &Spread, prefix: &str) -> Result<View> {
    let mut view = View::new();
    for listed in pool.list_prefix(prefix).await? {
        let bytes = get(pool, listed.name.as_str()).await?;
        assert_eq!(bytes.len() as u64, listed.len, "{}", listed.name);
        view.insert(listed.name.to_string(), bytes);
    }
    Ok(view)
}
