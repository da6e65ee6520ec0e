//! The contracts that come with the program: one file each in `contracts/`.

use super::spec::{Spec, SpecError};

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../contracts/", $name, ".toml")))),*]
    };
}

const FILES: [(&str, &str); 11] = files! {
    "gp2" "gp3" "io1" "io2" "st1"
    "pd-balanced" "pd-ssd" "hyperdisk-balanced"
    "premium-ssd-v2"
    "hdd-7200" "unlimited"
};

/// Every name, by provider.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(name, _)| name)
}

/// The spec called `name`.
///
/// # Errors
/// [`SpecError::Unknown`]: the message lists every name.
pub fn find(name: &str) -> Result<Spec, SpecError> {
    let file = FILES.iter().find(|(known, _)| *known == name);
    let (_, text) = file.ok_or_else(|| SpecError::Unknown {
        found: name.into(),
        accepted: names().collect::<Vec<_>>().join(", "),
    })?;
    Ok(Spec::parse(text).expect("a test reads every file of the catalogue"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::contract::spec::{Bought, Burst, Formula, PercentilesUs, Rate};
    use crate::contract::{Contract, Counted, Direction, Limit};
    use crate::units::{Bytes, GIB, MIB};

    fn all() -> impl Iterator<Item = Spec> {
        FILES.iter().map(|(name, text)| {
            Spec::parse(text).unwrap_or_else(|error| panic!("contracts/{name}.toml: {error}"))
        })
    }

    /// A volume of 500 GiB with the smallest rates that must be bought.
    fn usual(spec: &Spec) -> Contract {
        let least = |rate: &Option<Rate>| {
            let rate = rate.as_ref().filter(|rate| rate.included.is_none())?;
            Some(rate.buy.as_ref()?.min? as u64)
        };
        let bought = Bought { iops: least(&spec.iops), mib_per_s: least(&spec.mib_per_s) };
        spec.contract(Some(Bytes(500 * GIB)), bought).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_file_is_documented_and_makes_a_contract() {
        for (spec, name) in all().zip(names()) {
            assert_eq!(spec.name, name, "the file is called as the contract");
            assert!(!spec.about.is_empty() && !spec.source.is_empty(), "{name}");
            let date: Vec<_> = spec.date.split('-').map(str::len).collect();
            assert_eq!(date, [4, 2, 2], "{name}: {}", spec.date);
            assert!(spec.latency.is_some() && spec.price.is_some(), "{name}");
            let contract = usual(&spec);
            assert_eq!(contract.limits.is_empty(), ["hdd-7200", "unlimited"].contains(&name));
            assert_eq!(contract.assumed, spec.assumed);
        }
    }

    #[test]
    fn what_is_assumed_is_in_the_file() {
        for (name, text) in FILES {
            let file: toml::Table = text.parse().expect("read as a spec already");
            for key in &find(name).expect("it is there").assumed {
                let mut parts = key.split('.');
                let top = file.get(parts.next().expect("split gives one"));
                let found = parts.try_fold(top.expect(key), |value, part| value.get(part));
                assert!(found.is_some(), "{name}: {key}");
            }
        }
    }

    #[test]
    fn unlimited_is_the_contract_of_that_name() {
        assert_eq!(usual(&find("unlimited").expect("it is there")), Contract::unlimited());
    }

    #[test]
    fn gp2_follows_its_size_and_bursts_below_a_tebibyte() {
        let gp2 = find("gp2").expect("it is there");
        let of =
            |gib| gp2.contract(Some(Bytes(gib * GIB)), Bought::default()).expect("sold").limits;
        let ops = |rate_per_sec, depth| Limit { counts: Counted::Ops, rate_per_sec, depth };
        let bytes =
            |mib| Limit { counts: Counted::Bytes, rate_per_sec: mib * MIB, depth: mib * MIB };
        assert_eq!(of(8), [ops(3000, 3000), ops(100, 5_400_000), bytes(128)]);
        assert_eq!(of(334), [ops(3000, 3000), ops(1002, 5_400_000), bytes(250)]);
        assert_eq!(of(2000), [ops(6000, 6000), bytes(250)]);
        assert_eq!(of(16_000), [ops(16_000, 16_000), bytes(250)]);
    }

    #[test]
    fn gp3_is_the_same_in_any_size_and_can_be_bought_up() {
        let gp3 = find("gp3").expect("it is there");
        let paid = |bought| {
            let contract = gp3.contract(None, bought).expect("sold");
            (contract.paid_iops(), contract.paid_bytes_per_sec())
        };
        assert_eq!(paid(Bought::default()), (Some(3000), Some(125 * MIB)));
        let bought = Bought { iops: Some(16_000), mib_per_s: Some(1000) };
        assert_eq!(paid(bought), (Some(16_000), Some(1000 * MIB)));
    }

    #[test]
    fn st1_counts_a_small_read_as_a_mebibyte() {
        let st1 = find("st1").expect("it is there");
        let contract = st1.contract(Some(Bytes(2048 * GIB)), Bought::default()).expect("sold");
        assert_eq!(contract.cost(Direction::Read, 4096).ops, 1);
        assert_eq!(contract.cost(Direction::Write, MIB).ops, 1);
        assert_eq!(contract.paid_iops(), Some(80));
        assert_eq!(contract.paid_bytes_per_sec(), Some(80 * MIB));
        assert!(contract.limits.contains(&Limit {
            counts: Counted::Bytes,
            rate_per_sec: 500 * MIB,
            depth: 500 * MIB
        }));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = find("gp4").expect_err("there is none");
        assert_eq!(error.key(), "contract");
        assert!(error.to_string().contains("\"gp4\"") && error.to_string().contains("hdd-7200"));
    }

    /// The guide's table is made from the files, so the two cannot differ.
    #[test]
    fn the_guide_shows_the_catalogue() {
        let mut table = String::from(
            "| name | IOPS | MiB/s | largest I/O | read p50 / p99 | write p50 / p99 | a GiB-month | assumed |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for spec in all() {
            let latency = spec.latency.as_ref().expect("checked above");
            let us = |p: &PercentilesUs| format!("{} / {} µs", p.p50_us, p.p99_us);
            let price = spec.price.as_ref().expect("checked above");
            let assumed: Vec<_> = spec.assumed.iter().map(|key| format!("`{key}`")).collect();
            writeln!(
                table,
                "| `{}` | {} | {} | {} KiB | {} | {} | {} {} | {} |",
                spec.name,
                shown(&spec.iops),
                shown(&spec.mib_per_s),
                spec.op_kib_max,
                us(&latency.read),
                us(&latency.write),
                price.gib_month,
                price.currency,
                assumed.join(" "),
            )
            .expect("a string takes everything");
        }
        let guide = include_str!("../../../../docs/guide/contracts.md");
        assert!(guide.contains(&table), "docs/guide/contracts.md needs this table:\n{table}");
    }

    fn shown(rate: &Option<Rate>) -> String {
        let Some(rate) = rate else { return "–".into() };
        let mut parts = Vec::new();
        parts.extend(rate.included.as_ref().map(in_words));
        parts.extend(rate.buy.as_ref().map(|buy| format!("bought: {}", in_words(buy))));
        let burst = |b: &Burst| format!("bursts to {}", in_words(&b.rate));
        parts.extend(rate.burst.as_ref().map(burst));
        parts.join("; ")
    }

    fn in_words(formula: &Formula) -> String {
        let terms = [
            (formula.base, ""),
            (formula.per_gib, " per GiB"),
            (formula.per_tib, " per TiB"),
            (formula.per_iops, " per IOPS"),
        ];
        let terms = terms.iter().filter_map(|(n, unit)| n.map(|n| format!("{n}{unit}")));
        let mut words = terms.collect::<Vec<_>>().join(" + ");
        if let Some(min) = formula.min {
            write!(words, ", from {min}").expect("a string takes everything");
        }
        if let Some(max) = formula.max {
            write!(words, ", up to {max}").expect("a string takes everything");
        }
        words
    }
}
