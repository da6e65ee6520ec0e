//! `[volume.<name>]`: a device and its contract.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use policy::budget::Share;
use policy::contract::catalogue;
use policy::contract::spec::{Bought, Spec, SpecError};
use policy::contract::{Contract, Counted};
use policy::sched::Policy;
use policy::units::{Bytes, BytesPerSec, Iops};
use serde::Deserialize;
use toml::de::ValueDeserializer;
use volume::layer::deadline;

use super::document::{Field, Section};
use super::nearest::nearest;
use super::{Entry, Mistake, units};

/// The keys of a volume.
pub(super) const KEYS: &[&str] = &[
    "path",
    "contract",
    "size",
    "iops",
    "mib_per_s",
    "simulate",
    "rho",
    "beta",
    "credits",
    "adapt",
    "journal_ops",
    "scheduler",
    "timeout",
];

/// The shortest limit: a disk with a full queue takes this long.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// A device volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Volume {
    /// Its name in settings, metrics and the pool's manifest.
    pub(crate) name: String,
    /// The directory on the device.
    pub(crate) path: PathBuf,
    /// The contract as bought.
    pub(crate) contract: Contract,
    /// Whether to throttle it as the provider would, for development without a cloud. Default: no. The directory of a
    /// simulated volume is created if missing; a missing real one may be a failed mount.
    pub(crate) simulate: bool,
    /// The used share of the contract. Default: rho 0.98, beta 0.9, no credits; see [`Share`].
    pub(crate) share: Share,
    /// Whether to lower the budget while the volume gives less. Default: yes, unless it is simulated.
    pub(crate) adapt: bool,
    /// The writes of the file system's journal at a sync. Default: as many as are measured.
    pub(crate) journal_ops: Option<u64>,
    /// The scheduler of the gate. Default: tags.
    pub(crate) scheduler: Policy,
    /// How long the device may take for a call. Default: [`deadline::LIMIT`].
    pub(crate) timeout: Duration,
    /// The settings of the contract, for display.
    asked: Asked,
}

/// The keys that define a contract, in TOML.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    contract: String,
    size: Option<u64>,
    bought: Bought,
}

const CONTRACT: &str = "a name from contracts/, the path of a .toml file, or \
                        { iops = 3000, mib_per_s = 125 }";

/// More than any journal writes, and few enough for one request with its data.
const JOURNAL_OPS_MAX: u64 = 7;

impl Volume {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let name = section.name.split('.').next_back().unwrap_or_default().into();
        let path = section.need("path", "a directory on the device", Field::path);
        let simulate = section.read_or("simulate", false, Field::flag);
        let scheduler = scheduler(section);
        let share = share(section);
        let adapt = section.read_or("adapt", !simulate, Field::flag);
        let timeout = section.read_or("timeout", deadline::LIMIT, timeout);
        let journal_ops = section.read("journal_ops", |field| field.number(0..=JOURNAL_OPS_MAX));
        let (contract, asked) = contract(section)?;
        let path = path?;
        Some(Self {
            name,
            path,
            contract,
            simulate,
            share,
            adapt,
            journal_ops,
            scheduler,
            timeout,
            asked,
        })
    }

    /// Takes over the contract of `other`, with its settings.
    pub(crate) fn take_contract_of(&mut self, other: &Self) {
        self.contract = other.contract.clone();
        self.asked = other.asked.clone();
    }

    /// The share in words: `rho 0.98, beta 0.9`.
    pub(crate) fn share_in_words(&self) -> String {
        format!("rho {}, beta {}", self.share.rho(), self.share.beta())
    }

    /// The terms in words: `gp3, 3000 IOPS, 125 MiB/s`.
    pub(crate) fn terms(&self) -> String {
        terms(&self.contract)
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let section = format!("volume.{}", self.name);
        let Asked { contract, size, bought } = &self.asked;
        let mut entries = vec![
            Entry::new(&section, "path", toml::Value::from(self.path.display().to_string())),
            Entry::new(&section, "contract", contract),
        ];
        let optional = [
            ("size", size.map(units::show_size)),
            ("iops", bought.iops.map(|iops| iops.to_string())),
            ("mib_per_s", bought.mib_per_s.map(|mib| mib.to_string())),
        ];
        let given = optional.into_iter().filter_map(|(key, value)| Some((key, value?)));
        entries.extend(given.map(|(key, value)| Entry::new(&section, key, value)));
        entries.push(Entry::new(&section, "simulate", self.simulate));
        entries.push(Entry::new(&section, "rho", self.share.rho()));
        entries.push(Entry::new(&section, "beta", self.share.beta()));
        if self.contract.has_credits() {
            entries.push(Entry::new(&section, "credits", self.share.credits()));
        }
        entries.push(Entry::new(&section, "adapt", self.adapt));
        entries.extend(self.journal_ops.map(|ops| Entry::new(&section, "journal_ops", ops)));
        let scheduler = self.scheduler.name();
        entries.push(Entry::new(&section, "scheduler", format_args!("{scheduler:?}")));
        entries.push(Entry::new(&section, "timeout", units::show_duration(self.timeout)));
        entries
    }
}

/// The contract that `text` sells for a device of `size` bytes: a name of the catalogue, a table in TOML, or the text of a
/// contract file.
///
/// # Errors
/// What was found and what is accepted.
pub(crate) fn sold(text: &str, size: u64) -> Result<Contract, SpecError> {
    let text = text.trim();
    let spec = if text.starts_with('{') {
        #[derive(Deserialize)]
        struct Line {
            contract: Spec,
        }
        toml::from_str::<Line>(&format!("contract = {text}"))?.contract
    } else if text.contains('=') {
        Spec::parse(text)?
    } else {
        catalogue::find(text)?
    };
    spec.contract(Some(Bytes(size)), Bought::default())
}

/// A contract's terms in words.
pub(crate) fn terms(of: &Contract) -> String {
    let mut terms = of.name.clone();
    for (counts, kind) in [
        (Counted::Ops, ""),
        (Counted::ReadOps, "reads "),
        (Counted::WriteOps, "writes "),
        (Counted::Bytes, ""),
        (Counted::ReadBytes, "reads "),
        (Counted::WriteBytes, "writes "),
    ] {
        let limits = of.limits.iter().filter(|limit| limit.counts == counts);
        let Some(rate) = limits.map(|limit| limit.rate_per_sec).min() else { continue };
        let rate =
            if counts.is_ops() { Iops(rate).to_string() } else { BytesPerSec(rate).to_string() };
        terms.push_str(&format!(", {kind}{rate}"));
    }
    terms
}

/// Two volumes must not share a directory: each would see the other's I/O as unaccounted.
pub(super) fn check_apart(root: &Section<'_>, volumes: &[Volume]) {
    for (at, volume) in volumes.iter().enumerate() {
        let same = |other: &&Volume| plain(&other.path) == plain(&volume.path);
        if let Some(other) = volumes[..at].iter().find(same) {
            let field = root.at("volume", &volume.name, "path");
            let found = format!("the path of volume.{}", other.name);
            root.note(field.mistaken(found, "a directory of its own for each volume"));
        }
    }
}

/// The path without `.` and `..`, and through links where it exists.
fn plain(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let mut plain = PathBuf::new();
    for part in std::path::absolute(path).unwrap_or_else(|_| path.into()).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

fn share(section: &Section<'_>) -> Share {
    let usual = Share::default();
    let fraction = |key, usual| section.read_or(key, usual, Field::fraction);
    let (rho, beta) = (fraction("rho", usual.rho()), fraction("beta", usual.beta()));
    let credits = fraction("credits", usual.credits());
    let share = Share::new(rho, beta).and_then(|share| share.with_credits(credits));
    // All shares are between 0 and 1, so the only possible mistake is a rate of zero.
    share.unwrap_or_else(|_| {
        let positive = "a number above 0, up to 1";
        section.need("rho", "a number above 0", |field| Err::<(), _>(field.mistake(positive)));
        usual
    })
}

/// A device that is merely slow must not pass for one that hangs.
fn timeout(field: &Field<'_>) -> Result<Duration, Mistake> {
    let timeout = field.duration()?;
    if timeout < TIMEOUT_MIN {
        return Err(field.mistake("\"1s\" or more"));
    }
    Ok(timeout)
}

fn scheduler(section: &Section<'_>) -> Policy {
    let words = Policy::SERVED.map(Policy::name);
    let word = section.read("scheduler", |field| field.word(&words));
    word.and_then(Policy::named).unwrap_or_default()
}

fn contract(section: &Section<'_>) -> Option<(Contract, Asked)> {
    let spec = section.need("contract", CONTRACT, spec);
    let size = section.read("size", Field::size);
    let number = |key| section.read(key, |field| field.number(1..=u64::MAX));
    let bought = Bought { iops: number("iops"), mib_per_s: number("mib_per_s") };
    let (spec, asked) = spec?;
    match spec.contract(size.map(Bytes), bought) {
        Ok(contract) => Some((contract, Asked { contract: asked, size, bought })),
        Err(error) => {
            let key = error.key();
            let accepted = accepted(error);
            section.note(match section.get(key) {
                Some(field) => field.mistake(accepted),
                None => section.missing(key, &accepted),
            });
            None
        }
    }
}

/// What a contract accepts instead.
fn accepted(error: SpecError) -> String {
    match error {
        SpecError::SizeNeeded { contract, figure } => {
            format!("a size, such as \"500GiB\": the {figure} of {contract} follow from it")
        }
        SpecError::Size { contract, min, max, .. } => {
            format!("\"{min}GiB\" to \"{max}GiB\", the sizes of {contract}")
        }
        SpecError::Rate { contract, min, max, .. } => {
            format!("{min} to {max}, for this volume of {contract}")
        }
        SpecError::NotSold { contract, figure, .. } => {
            format!("nothing: the {figure} of {contract} cannot be chosen")
        }
        SpecError::NotGiven { contract, min, max, .. } => {
            format!("{min} to {max}: {contract} includes none")
        }
        error => format!("a valid contract ({error})"),
    }
}

/// The contract named or defined by the field, and the field in TOML.
fn spec(field: &Field<'_>) -> Result<(Spec, String), Mistake> {
    if field.is_table() {
        let value = field.spanned();
        let asked = inline(value.get_ref());
        let spec = Spec::deserialize(ValueDeserializer::from(value)).map_err(|error| {
            let at = error.span().unwrap_or_default().start;
            field.mistaken_at(at, error.message(), CONTRACT)
        })?;
        return Ok((spec, asked));
    }
    let name = field.text(CONTRACT)?;
    let asked = toml::Value::from(name).to_string();
    if name.ends_with(".toml") {
        let path = field.path()?;
        let text = std::fs::read_to_string(&path)
            .map_err(|error| field.mistaken(format!("{name:?}, but {error}"), CONTRACT))?;
        let spec = Spec::parse(&text)
            .map_err(|error| field.mistaken(format!("a mistake in {name:?}"), error.to_string()))?;
        return Ok((spec, asked));
    }
    match catalogue::find(name) {
        Ok(spec) => Ok((spec, asked)),
        Err(SpecError::Unknown { accepted, .. }) => {
            let mut accepted =
                format!("{accepted}, the path of a .toml file, or {{ iops, mib_per_s }}");
            if let Some(meant) = nearest(name, catalogue::names()) {
                accepted.push_str(&format!(" (did you mean {meant:?}?)"));
            }
            Err(field.mistake(accepted))
        }
        Err(error) => Err(field.mistake(error.to_string())),
    }
}

/// A table on one line.
fn inline(value: &toml::de::DeValue<'_>) -> String {
    let value =
        toml::Value::deserialize(ValueDeserializer::from(toml::Spanned::new(0..0, value.clone())));
    value.map_or_else(|_| "{}".into(), |value| value.to_string())
}
