//! What a provider sells under one name, as data: the files in `contracts/`, a user's own file, or
//! the inline table `{ iops = 3000, mib_per_s = 125 }`.
//!
//! A [`Spec`] holds formulas ("3 IOPS per GiB, at least 100"); a [`Contract`] holds their results for one volume of a
//! given size with given bought rates.

mod error;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

pub use error::SpecError;

use super::{Contract, Counted, Latency, Limit, Mechanics, OP_BYTES_MAX, Percentiles};
use crate::units::{Bytes, GIB, KIB, MIB};

/// What a provider sells under one name.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The name people know it by: `gp3`. Default: `custom`.
    #[serde(default = "custom")]
    pub name: String,
    /// A description in one line.
    #[serde(default)]
    pub about: String,
    /// The source of the figures.
    #[serde(default)]
    pub source: String,
    /// When they were read there, as `year-month-day`.
    #[serde(default)]
    pub date: String,
    /// The figures without a source, as dotted keys of the file; a key stands for all below it.
    #[serde(default)]
    pub assumed: Vec<String>,
    /// The largest I/O counted as one operation, in KiB. Default: 256.
    #[serde(default = "op_kib_max")]
    pub op_kib_max: u64,
    /// The sizes it is sold in. Default: any.
    pub size_gib: Option<Sizes>,
    /// Operations a second. Default: not limited.
    #[serde(default, deserialize_with = "number_or_table")]
    pub iops: Option<Rate>,
    /// Bandwidth in MiB a second. Default: not limited.
    #[serde(default, deserialize_with = "number_or_table")]
    pub mib_per_s: Option<Rate>,
    /// Reads a second, where they are counted apart from writes. Default: not limited.
    #[serde(default, deserialize_with = "number_or_table")]
    pub read_iops: Option<Rate>,
    /// Writes a second, where they are counted apart from reads. Default: not limited.
    #[serde(default, deserialize_with = "number_or_table")]
    pub write_iops: Option<Rate>,
    /// MiB read a second, where they are counted apart. Default: not limited.
    #[serde(default, deserialize_with = "number_or_table")]
    pub read_mib_per_s: Option<Rate>,
    /// MiB written a second, where they are counted apart. Default: not limited.
    #[serde(default, deserialize_with = "number_or_table")]
    pub write_mib_per_s: Option<Rate>,
    /// Latency below the limits. Default: none is added, and the contract says it was assumed.
    pub latency: Option<LatencySpec>,
    /// The mechanics of a spinning disk.
    pub disk: Option<DiskSpec>,
    /// The price.
    pub price: Option<Price>,
}

/// The sizes a volume is sold in, in GiB, both inclusive.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

/// One rate of a spec, and how it may vary. A plain number stands for `included`.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The rate that comes with the volume. Without it the rate must be bought.
    #[serde(default, deserialize_with = "number_or_table")]
    pub included: Option<Formula>,
    /// How much may be bought instead, from `min` up. Without it nothing can be bought.
    #[serde(default, deserialize_with = "number_or_table")]
    pub buy: Option<Formula>,
    /// A higher rate for as long as credits last.
    pub burst: Option<Burst>,
    /// Seconds of the rate that can be saved up while idle, above 0; at least one operation of the largest size.
    /// Default: 1. With a burst, it applies to the burst's rate.
    pub depth_s: Option<f64>,
}

/// Credits: tokens saved up at the sustained rate, spent at a higher one.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// The rate while credits last.
    #[serde(deserialize_with = "number_or_table_required")]
    pub rate: Formula,
    /// The most that can be saved up, in operations or MiB; a new volume has all of it.
    #[serde(deserialize_with = "number_or_table_required")]
    pub credits: Formula,
}

/// A formula over the volume: `base + per_gib · GiB + per_tib · TiB + per_iops · IOPS`, between `min` and `max`.
/// Without any of the four terms it is `max`. A plain number stands for `base`.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Formula {
    /// The constant term.
    pub base: Option<f64>,
    /// For each GiB.
    pub per_gib: Option<f64>,
    /// For each TiB.
    pub per_tib: Option<f64>,
    /// For each operation a second (bandwidth only).
    pub per_iops: Option<f64>,
    /// The lower bound.
    pub min: Option<f64>,
    /// The upper bound.
    pub max: Option<f64>,
}

/// Latency below the limits, for reads and for writes.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencySpec {
    /// Of reads.
    pub read: PercentilesUs,
    /// Of writes.
    pub write: PercentilesUs,
}

/// [`Percentiles`] in microseconds, ascending.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each field is the percentile of the same name")]
pub struct PercentilesUs {
    pub p1_us: u64,
    pub p50_us: u64,
    pub p90_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
}

/// [`Mechanics`] of a spinning disk.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// Its capacity in GiB.
    pub capacity_gib: u64,
    /// Turns a minute.
    pub rpm: u32,
    /// Moving the arm to the next track, in microseconds.
    pub seek_track_us: u64,
    /// Moving the arm across the whole disk, in microseconds.
    pub seek_full_us: u64,
    /// MiB a second under the head, on average over the disk.
    pub transfer_mib_per_s: u64,
}

/// What a volume costs a month.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The currency of the other fields: `USD`.
    pub currency: String,
    /// The region: prices differ by region.
    pub region: String,
    /// For each GiB.
    pub gib_month: f64,
    /// For each operation a second beyond what is included.
    #[serde(default)]
    pub iops_month: f64,
    /// For each MiB a second beyond what is included.
    #[serde(default)]
    pub mib_per_s_month: f64,
}

/// The rates bought instead of those that a spec includes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bought {
    /// Operations a second.
    pub iops: Option<u64>,
    /// MiB a second.
    pub mib_per_s: Option<u64>,
}

impl Spec {
    /// Reads a contract file.
    ///
    /// # Errors
    /// [`SpecError::Syntax`]: correct the file; the source says where.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        Ok(toml::from_str(text)?)
    }

    /// The terms of one volume of this kind: of `size`, if known, with the `bought` rates.
    ///
    /// # Errors
    /// The size or a rate is not sold, or is missing ([`SpecError::key`] says which setting); the
    /// spec contradicts itself.
    pub fn contract(&self, size: Option<Bytes>, bought: Bought) -> Result<Contract, SpecError> {
        self.check()?;
        self.check_size(size)?;
        let mut limits = Vec::new();
        // Bandwidth may follow from the operations of its kind.
        let mut paid_iops = 0;
        for (figure, rate, counts) in self.rates() {
            let bought = match counts {
                Counted::Ops => bought.iops,
                Counted::Bytes => bought.mib_per_s,
                _ => None,
            };
            let iops = if counts.is_ops() { 0 } else { paid_iops };
            let paid = self.rate(figure, rate, bought, size, iops)?;
            let (unit, operation) =
                if counts.is_ops() { (1, 1) } else { (MIB, self.op_kib_max * KIB) };
            limits.extend(paid.iter().flat_map(|paid| paid.limits(counts, unit, operation)));
            if counts.is_ops() {
                paid_iops = paid.map_or(0, |paid| paid.sustained);
            }
        }
        if limits.iter().any(|limit| limit.rate_per_sec == 0 || limit.depth == 0) {
            return Err(self.inconsistent("a limit of zero would admit nothing"));
        }
        let mut assumed = self.assumed.clone();
        if self.latency.is_none() {
            assumed.push("latency".into());
        }
        Ok(Contract {
            name: self.name.clone(),
            limits,
            op_bytes_max: self.op_kib_max * KIB,
            latency: self.latency.as_ref().map(Latency::from).unwrap_or_default(),
            disk: self.disk.as_ref().map(Mechanics::from),
            assumed,
        })
    }

    fn check(&self) -> Result<(), SpecError> {
        if !(1..=GIB / KIB).contains(&self.op_kib_max) {
            return Err(self.inconsistent("op_kib_max must be 1 to 1048576"));
        }
        if self.formulas().any(|formula| !formula.is_sound()) {
            return Err(
                self.inconsistent("a figure is negative, not finite, or its min is above its max")
            );
        }
        let mut depths = self.rates().into_iter().filter_map(|(_, rate, _)| rate?.depth_s);
        if depths.any(|depth_s| !(depth_s > 0.0 && depth_s.is_finite())) {
            return Err(self.inconsistent("a depth_s is not a time above 0"));
        }
        for (kind, percentiles) in self.latency.iter().flat_map(LatencySpec::kinds) {
            if !Percentiles::from(percentiles).ascend() {
                return Err(
                    self.inconsistent(&format!("the percentiles of latency.{kind} do not ascend"))
                );
            }
        }
        let stands = |d: &DiskSpec| d.rpm == 0 || d.capacity_gib == 0 || d.transfer_mib_per_s == 0;
        if self.disk.as_ref().is_some_and(stands) {
            return Err(
                self.inconsistent("a disk without capacity, turns or transfer serves no request")
            );
        }
        Ok(())
    }

    fn check_size(&self, size: Option<Bytes>) -> Result<(), SpecError> {
        let (Some(found), Some(sizes)) = (size, self.size_gib) else { return Ok(()) };
        if (sizes.min.saturating_mul(GIB)..=sizes.max.saturating_mul(GIB)).contains(&found.0) {
            return Ok(());
        }
        Err(SpecError::Size { contract: self.name.clone(), found, min: sizes.min, max: sizes.max })
    }

    /// The value of one rate; `None` if it is not limited.
    fn rate(
        &self,
        figure: &'static str,
        rate: Option<&Rate>,
        bought: Option<u64>,
        size: Option<Bytes>,
        iops: u64,
    ) -> Result<Option<Paid>, SpecError> {
        let contract = || self.name.clone();
        let Some(rate) = rate else {
            return match bought {
                Some(found) => Err(SpecError::NotSold { contract: contract(), figure, found }),
                None => Ok(None),
            };
        };
        let needs_size = || SpecError::SizeNeeded { contract: contract(), figure };
        // Without a size only the bounds that do not depend on it are checked.
        let for_sale = rate.buy.as_ref().map(|buy| {
            let most = buy.at(size, iops).unwrap_or(floor(buy.max.unwrap_or(f64::MAX)));
            (floor(buy.min.unwrap_or(0.0)), most)
        });
        let sustained = match (bought, for_sale, &rate.included) {
            (Some(found), Some((min, max)), _) if (min..=max).contains(&found) => found,
            (Some(found), Some((min, max)), _) => {
                return Err(SpecError::Rate { contract: contract(), figure, found, min, max });
            }
            (Some(found), None, _) => {
                return Err(SpecError::NotSold { contract: contract(), figure, found });
            }
            (None, _, Some(included)) => included.at(size, iops).ok_or_else(needs_size)?,
            (None, Some((min, max)), None) => {
                return Err(SpecError::NotGiven { contract: contract(), figure, min, max });
            }
            (None, None, None) => {
                return Err(
                    self.inconsistent(&format!("{figure} is neither included nor for sale"))
                );
            }
        };
        let burst = match &rate.burst {
            Some(burst) => Some((
                burst.rate.at(size, iops).ok_or_else(needs_size)?,
                burst.credits.at(size, iops).ok_or_else(needs_size)?,
            )),
            None => None,
        };
        Ok(Some(Paid { sustained, burst, depth_s: rate.depth_s.unwrap_or(1.0) }))
    }

    fn formulas(&self) -> impl Iterator<Item = &Formula> {
        self.rates().into_iter().filter_map(|(_, rate, _)| rate).flat_map(|rate| {
            let burst = rate.burst.iter().flat_map(|burst| [&burst.rate, &burst.credits]);
            rate.included.iter().chain(&rate.buy).chain(burst)
        })
    }

    /// Every rate with its key, operations right before the bytes of their kind.
    const fn rates(&self) -> [(&'static str, Option<&Rate>, Counted); 6] {
        [
            ("iops", self.iops.as_ref(), Counted::Ops),
            ("mib_per_s", self.mib_per_s.as_ref(), Counted::Bytes),
            ("read_iops", self.read_iops.as_ref(), Counted::ReadOps),
            ("read_mib_per_s", self.read_mib_per_s.as_ref(), Counted::ReadBytes),
            ("write_iops", self.write_iops.as_ref(), Counted::WriteOps),
            ("write_mib_per_s", self.write_mib_per_s.as_ref(), Counted::WriteBytes),
        ]
    }

    fn inconsistent(&self, why: &str) -> SpecError {
        SpecError::Inconsistent { contract: self.name.clone(), why: why.into() }
    }
}

/// A rate of one volume, in operations or MiB a second.
struct Paid {
    sustained: u64,
    /// The higher rate, and its credits.
    burst: Option<(u64, u64)>,
    /// Seconds of the highest rate that can be saved up.
    depth_s: f64,
}

impl Paid {
    /// The provider's buckets: one for the highest rate, which holds at least an operation, and one as deep as the
    /// credits.
    fn limits(&self, counts: Counted, unit: u64, operation: u64) -> Vec<Limit> {
        let bucket = |rate: u64, depth: u64| Limit {
            counts,
            rate_per_sec: rate.saturating_mul(unit),
            depth: depth.saturating_mul(unit),
        };
        let highest = |rate: u64| {
            let mut limit = bucket(rate, rate);
            // A whole second is exact at any rate.
            if self.depth_s != 1.0 {
                limit.depth = floor(limit.depth as f64 * self.depth_s).max(operation);
            }
            limit
        };
        match self.burst {
            Some((rate, credits)) if rate > self.sustained => {
                vec![highest(rate), bucket(self.sustained, credits)]
            }
            _ => vec![highest(self.sustained)],
        }
    }
}

impl Formula {
    /// The value, rounded down; `None` if it needs a size and there is none.
    fn at(&self, size: Option<Bytes>, iops: u64) -> Option<u64> {
        let per_byte = self.per_gib.unwrap_or(0.0) / GIB as f64
            + self.per_tib.unwrap_or(0.0) / (1024 * GIB) as f64;
        let by_size = match size {
            Some(Bytes(bytes)) => per_byte * bytes as f64,
            None if per_byte == 0.0 => 0.0,
            None => return None,
        };
        let terms = [self.base, self.per_gib, self.per_tib, self.per_iops];
        let sum = if terms.iter().all(Option::is_none) {
            f64::MAX
        } else {
            self.base.unwrap_or(0.0) + by_size + self.per_iops.unwrap_or(0.0) * iops as f64
        };
        Some(floor(sum.max(self.min.unwrap_or(0.0)).min(self.max.unwrap_or(f64::MAX))))
    }

    fn is_sound(&self) -> bool {
        let Self { base, per_gib, per_tib, per_iops, min, max } = *self;
        [base, per_gib, per_tib, per_iops, min, max]
            .iter()
            .flatten()
            .all(|n| n.is_finite() && *n >= 0.0)
            && min.unwrap_or(0.0) <= max.unwrap_or(f64::MAX)
    }
}

/// Floating-point sums may end slightly below a whole number; the tolerance keeps them from losing one.
fn floor(figure: f64) -> u64 {
    (figure + 1e-6).floor() as u64
}

impl LatencySpec {
    fn kinds(&self) -> [(&'static str, &PercentilesUs); 2] {
        [("read", &self.read), ("write", &self.write)]
    }
}

impl From<&LatencySpec> for Latency {
    fn from(spec: &LatencySpec) -> Self {
        Self { read: (&spec.read).into(), write: (&spec.write).into() }
    }
}

impl From<&PercentilesUs> for Percentiles {
    fn from(us: &PercentilesUs) -> Self {
        Self {
            p1: Duration::from_micros(us.p1_us),
            p50: Duration::from_micros(us.p50_us),
            p90: Duration::from_micros(us.p90_us),
            p99: Duration::from_micros(us.p99_us),
            p999: Duration::from_micros(us.p999_us),
        }
    }
}

impl From<&DiskSpec> for Mechanics {
    fn from(spec: &DiskSpec) -> Self {
        Self {
            capacity: spec.capacity_gib.saturating_mul(GIB),
            rpm: spec.rpm,
            seek_track: Duration::from_micros(spec.seek_track_us),
            seek_full: Duration::from_micros(spec.seek_full_us),
            transfer_per_sec: spec.transfer_mib_per_s.saturating_mul(MIB),
        }
    }
}

impl From<f64> for Formula {
    fn from(base: f64) -> Self {
        Self { base: Some(base), ..Self::default() }
    }
}

impl From<f64> for Rate {
    fn from(included: f64) -> Self {
        Self { included: Some(included.into()), ..Self::default() }
    }
}

fn custom() -> String {
    "custom".into()
}

const fn op_kib_max() -> u64 {
    OP_BYTES_MAX / KIB
}

fn number_or_table<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + From<f64>,
{
    number_or_table_required(deserializer).map(Some)
}

/// Reads a table, or a number that stands for one.
fn number_or_table_required<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + From<f64>,
{
    deserializer.deserialize_any(NumberOrTable(PhantomData))
}

struct NumberOrTable<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + From<f64>> Visitor<'de> for NumberOrTable<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a table")
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(T::from(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::from(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(T::from(number))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(table))
    }
}

#[cfg(test)]
mod tests;
