//! The change between two answers of a server.

use std::collections::BTreeMap;

use policy::estimate::Finding;
use policy::purpose::Purpose;
use serve::admin::Snapshot;
use serve::admin::snapshot::{Class, Volume};
use serve::figures::{Copies, Tier};

use super::block::BlockRates;
use super::tier::TierRates;

/// What users asked for themselves, with what makes it durable.
const USERS: [&str; 4] =
    [Purpose::Read.name(), Purpose::Write.name(), Purpose::Log.name(), Purpose::Manifest.name()];

/// The contents of the view.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    /// Seconds the program has been running.
    pub(super) uptime_s: f64,
    /// Seconds between the two answers; `None` if there is only one, or the server restarted in between: rates are
    /// unknown then.
    pub(super) seconds: Option<f64>,
    /// Commands of Redis clients a second.
    pub(super) commands: Option<f64>,
    /// Connections of Redis clients.
    pub(super) clients: Option<u64>,
    /// The share of requested blocks that were in memory.
    pub(super) hits: Option<f64>,
    /// The bytes of the store's memory in use, and their limit.
    pub(super) memory: (u64, u64),
    /// Copies of tables under way, and the shortfall of the replication target, of each pool that stores are on.
    pub(super) copies: Vec<Copies>,
    /// What the block devices do; `None` if there is no store of them.
    pub(super) block: Option<BlockRates>,
    /// The cache tiers.
    pub(super) tiers: Vec<TierRates>,
    /// A row for each volume.
    pub(super) rows: Vec<Row>,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Operations a second.
    pub(super) iops: Option<f64>,
    /// Bytes a second.
    pub(super) bytes: Option<f64>,
    /// The paid operations per second; `None` if unlimited.
    pub(super) paid_iops: Option<u64>,
    /// Its use relative to its paid rate: 1 is the paid rate.
    pub(super) used: f64,
    /// Whether its provider throttled it in between: it exceeded the paid rate.
    pub(super) over: bool,
    /// The share of its contract that it seems to provide; `None` if that is all.
    pub(super) available: Option<f64>,
    /// The share of the paid rate in use.
    pub(super) rho: f64,
    /// Seconds of the paid rate that are saved up at most.
    pub(super) beta: f64,
    /// Why they are what they are, as its gate names it; `None` while the gate does not adapt.
    pub(super) finding: Option<String>,
    /// Its load by the heat of its tables; 1 is the paid rate.
    pub(super) weight: Option<f64>,
    /// By class, most urgent first.
    pub(super) classes: Vec<Waiting>,
    /// Bytes still writable, and the total.
    pub(super) space: Option<(u64, u64)>,
    /// The parts of its operations that stores got, by name; those without any are left out.
    pub(super) stores: Vec<(String, f64)>,
    /// The same by what they were for.
    pub(super) purposes: Vec<(String, f64)>,
}

/// Waits in a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Waiting {
    pub(super) name: String,
    /// How long requests waited on average, in milliseconds; `None` without requests.
    pub(super) wait_ms: Option<f64>,
    /// Requests waiting now.
    pub(super) queued: u64,
}

/// The sort order of volumes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Sort {
    /// Their names
    #[default]
    Name,
    /// The used share of their paid IOPS, highest first
    Used,
    /// How long users wait, longest first
    Wait,
    /// Their load by the heat of their tables, heaviest first
    Weight,
    /// Their free space, least first
    Free,
}

impl Sort {
    pub(super) const ALL: [Self; 5] =
        [Self::Name, Self::Used, Self::Wait, Self::Weight, Self::Free];

    /// The next order.
    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&sort| sort == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Used => "used",
            Self::Wait => "wait",
            Self::Weight => "weight",
            Self::Free => "free",
        }
    }
}

impl View {
    /// The change between `before` and `now`; only current values without `before`.
    pub(super) fn between(before: Option<&Snapshot>, now: &Snapshot) -> Self {
        let before = before.filter(|before| before.uptime_s < now.uptime_s);
        let seconds = before.map(|before| now.uptime_s - before.uptime_s);
        let per_second = |of: &dyn Fn(&Snapshot) -> Option<u64>| {
            let (was, is) = (of(before?)?, of(now)?);
            Some(is.saturating_sub(was) as f64 / seconds?)
        };
        let rows = now.volumes.iter().map(|volume| {
            let named = |other: &&Volume| other.name == volume.name;
            let before = before.and_then(|before| before.volumes.iter().find(named));
            Row { name: path(volume, now.pools.len() > 1), ..Row::between(before, volume, seconds) }
        });
        let block = now.block.as_ref().map(|block| {
            let before = before.and_then(|before| before.block.as_ref());
            BlockRates::between(before, block, seconds)
        });
        let tiers = now.tiers.iter().map(|tier| {
            let same = |other: &&Tier| other.name == tier.name;
            let before = before.and_then(|before| before.tiers.iter().find(same));
            TierRates::between(before, tier, seconds)
        });
        Self {
            uptime_s: now.uptime_s,
            seconds,
            commands: per_second(&|of| Some(of.resp.as_ref()?.commands)),
            clients: now.resp.as_ref().map(|endpoint| endpoint.clients),
            hits: hits(before, now),
            memory: (now.memory_store_bytes, now.memory_store_max_bytes),
            copies: now.pools.clone(),
            block,
            tiers: tiers.collect(),
            rows: rows.collect(),
        }
    }

    /// Puts the volumes in order.
    pub(super) fn sort(&mut self, by: Sort, reversed: bool) {
        self.rows.sort_by(|a, b| {
            let order = match by {
                Sort::Name => a.name.cmp(&b.name),
                Sort::Used => b.used.total_cmp(&a.used),
                Sort::Wait => b.user_wait_ms().total_cmp(&a.user_wait_ms()),
                Sort::Weight => b.weight.unwrap_or(0.0).total_cmp(&a.weight.unwrap_or(0.0)),
                Sort::Free => a.free().cmp(&b.free()),
            };
            order.then_with(|| a.name.cmp(&b.name))
        });
        if reversed {
            self.rows.reverse();
        }
    }

    /// Operations per second of all volumes, and the paid ones; each is `None` if unknown.
    pub(super) fn total(&self) -> (Option<f64>, Option<u64>) {
        let iops = self.rows.iter().map(|row| row.iops).sum();
        let paid = self.rows.iter().map(|row| row.paid_iops).sum();
        (iops, paid)
    }
}

/// The name of a volume after those of the pools above it. That of the outermost is left out, unless there are `several`.
fn path(of: &Volume, several: bool) -> String {
    let root = several.then_some(&*of.pool);
    let names = root.into_iter().chain([&*of.below, &*of.name]);
    names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join("/")
}

impl Row {
    fn between(before: Option<&Volume>, now: &Volume, seconds: Option<f64>) -> Self {
        let rate =
            |of: fn(&Volume) -> u64| Some(of(now).saturating_sub(of(before?)) as f64 / seconds?);
        let throttled = |volume: &Volume| volume.throttled.unwrap_or(0);
        let classes = now.classes.iter().enumerate().map(|(at, class)| {
            Waiting::between(before.and_then(|before| before.classes.get(at)), class)
        });
        Self {
            name: path(now, false),
            iops: rate(|volume| volume.ops),
            bytes: rate(|volume| volume.bytes),
            paid_iops: now.paid_iops,
            used: now.used,
            over: before.is_some_and(|before| throttled(now) > throttled(before)),
            available: now.available,
            rho: now.rho,
            beta: now.beta,
            finding: now.finding.clone(),
            weight: now.weight,
            classes: classes.collect(),
            space: now.free_bytes.zip(now.size_bytes),
            stores: shares(before.map(|before| &before.store_ops), &now.store_ops),
            purposes: shares(before.map(|before| &before.purpose_ops), &now.purpose_ops),
        }
    }

    /// What is worth a line: the finding of its gate, the parts of the stores that share it, and those of its purposes if not
    /// all is what users asked for.
    pub(super) fn remark(&self) -> Option<String> {
        let share = |(name, part): &(String, f64)| format!("{name} {:.0} %", part * 100.0);
        let listed =
            |shares: &[(String, f64)]| shares.iter().map(share).collect::<Vec<_>>().join(", ");
        let stores = (self.stores.len() > 1).then(|| listed(&self.stores));
        let is_own =
            |(name, part): &(String, f64)| *part >= 0.01 && !USERS.contains(&name.as_str());
        let purposes = self.purposes.iter().any(is_own).then(|| {
            let mut purposes = self.purposes.clone();
            purposes.retain(|(_, part)| *part >= 0.01);
            purposes.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            format!("for {}", listed(&purposes))
        });
        let remarks: Vec<_> = [self.found(), stores, purposes].into_iter().flatten().collect();
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    /// What its gate found out about it, in words; `None` if the whole share is in use and the volume answers in time.
    fn found(&self) -> Option<String> {
        let finding = self.finding.as_deref()?;
        let found = Finding::ALL.into_iter().find(|known| known.name() == finding)?;
        match found {
            Finding::GivesAll | Finding::TriesDepth => None,
            Finding::BurstsQueue => {
                Some(format!("saves up {:.2} s: bursts queue at the volume", self.beta))
            }
            Finding::GivesLess => {
                Some(format!("gives {:.2} of its contract", self.available.unwrap_or(self.rho)))
            }
            Finding::SlowOtherwise => Some("slow, and not for lack of tokens".into()),
        }
    }

    fn user_wait_ms(&self) -> f64 {
        let users = self.classes.iter().find(|class| class.name == "foreground");
        users.and_then(|class| class.wait_ms).unwrap_or(0.0)
    }

    fn free(&self) -> u64 {
        self.space.map_or(u64::MAX, |(free, _)| free)
    }
}

impl Waiting {
    fn between(before: Option<&Class>, now: &Class) -> Self {
        let (requests, waited_s) =
            before.map_or((0, 0.0), |class| (class.requests, class.waited_s));
        let requests = now.requests.saturating_sub(requests);
        let wait_ms = (now.waited_s - waited_s).max(0.0) * 1e3 / requests.max(1) as f64;
        Self {
            name: now.name.clone(),
            wait_ms: (before.is_some() && requests > 0).then_some(wait_ms),
            queued: now.queued,
        }
    }
}

/// The parts of a volume's operations in between, by name; those without any are left out.
fn shares(
    before: Option<&BTreeMap<String, u64>>,
    now: &BTreeMap<String, u64>,
) -> Vec<(String, f64)> {
    let Some(before) = before else { return Vec::new() };
    let had = |name: &str| before.get(name).copied().unwrap_or(0);
    let got = now.iter().map(|(name, &ops)| (name, ops.saturating_sub(had(name))));
    let got: Vec<_> = got.filter(|&(_, ops)| ops > 0).collect();
    let all: u64 = got.iter().map(|&(_, ops)| ops).sum();
    got.into_iter().map(|(name, ops)| (name.clone(), ops as f64 / all as f64)).collect()
}

/// The share of the blocks requested in between that were in memory.
fn hits(before: Option<&Snapshot>, now: &Snapshot) -> Option<f64> {
    let before = before?;
    let (mut found, mut asked) = (0, 0);
    for (path, &count) in &now.cache_reads {
        let more = count.saturating_sub(before.cache_reads.get(path).copied().unwrap_or(0));
        asked += more;
        found += if path == "volume" { 0 } else { more };
    }
    (asked > 0).then(|| found as f64 / asked as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use serve::admin::snapshot::Resp;

    use super::*;

    /// Two answers, two seconds apart, with volumes in three states.
    pub(in super::super) fn pictures() -> (Snapshot, Snapshot) {
        let class = |name: &str, requests, waited_s, queued| Class {
            name: name.into(),
            granted: requests,
            requests,
            waited_s,
            queued,
            denied: 0,
        };
        let volume = |name: &str, paid_iops, used, ops, classes| Volume {
            name: name.into(),
            pool: "main".into(),
            below: String::new(),
            contract: "gp3".into(),
            paid_iops,
            paid_bytes_per_s: paid_iops.map(|_| 125 << 20),
            used,
            ops,
            bytes: ops * 4096,
            throttled: Some(0),
            rho: 0.98,
            beta: 0.9,
            finding: Some("gives_all".into()),
            size_bytes: Some(60 << 30),
            free_bytes: Some(45 << 30),
            classes,
            ..Volume::default()
        };
        let quiet = || vec![class("commit", 0, 0.0, 0), class("foreground", 0, 0.0, 0)];
        let before = Snapshot {
            uptime_s: 100.0,
            memory_store_bytes: 96 << 20,
            memory_store_max_bytes: 128 << 20,
            volumes: vec![
                volume(
                    "s1",
                    Some(3000),
                    0.0,
                    1000,
                    vec![
                        class("commit", 10, 0.001, 0),
                        class("foreground", 500, 0.5, 3),
                        class("background", 100, 2.0, 1),
                    ],
                ),
                volume("s2", Some(3000), 0.0, 0, quiet()),
                volume("s3", None, 0.0, 70, quiet()),
            ],
            cache_reads: [("passive".into(), 100), ("volume".into(), 50)].into(),
            resp: Some(Resp { clients: 4, commands: 1000, errors: 0 }),
            ..Snapshot::default()
        };
        let mut now = before.clone();
        now.uptime_s = 102.0;
        now.volumes[0] = volume(
            "s1",
            Some(3000),
            0.98,
            6880,
            vec![
                class("commit", 110, 0.011, 0),
                class("foreground", 5500, 12.5, 31),
                class("background", 200, 5.0, 7),
            ],
        );
        now.volumes[0].weight = Some(1.04);
        now.volumes[1] = Volume {
            throttled: Some(2),
            rho: 0.735,
            beta: 0.0,
            available: Some(0.75),
            finding: Some("gives_less".into()),
            weight: Some(0.31),
            ..volume("s2", Some(3000), 0.5, 3000, quiet())
        };
        now.volumes[2] = Volume {
            size_bytes: None,
            free_bytes: None,
            finding: None,
            ..volume("s3", None, 0.0, 90, quiet())
        };
        now.cache_reads =
            [("passive".into(), 250), ("prefetched".into(), 30), ("volume".into(), 70)].into();
        now.resp = Some(Resp { clients: 5, commands: 21_000, errors: 0 });
        now.pools = vec![Copies {
            planned: 12,
            in_flight: 2,
            promised: 2,
            short_objects: 14,
            short_bytes: 800 << 20,
            ..Copies::default()
        }];
        (before, now)
    }

    #[test]
    fn a_remark_says_what_is_less_and_why() {
        let row = |finding: Finding| Row {
            rho: 0.98,
            beta: 0.02,
            available: (finding == Finding::GivesLess).then_some(0.714),
            finding: Some(finding.name().into()),
            ..Row::default()
        };
        assert_eq!(
            Finding::ALL.map(|finding| row(finding).remark().unwrap_or_default()),
            [
                "",
                "",
                "saves up 0.02 s: bursts queue at the volume",
                "gives 0.71 of its contract",
                "slow, and not for lack of tokens"
            ]
        );
        assert_eq!(Row::default().remark(), None);
        let stores = vec![("kv".into(), 0.75), ("series".into(), 0.25)];
        let shared = Row { stores: stores.clone(), ..row(Finding::BurstsQueue) };
        assert_eq!(
            shared.remark().as_deref(),
            Some("saves up 0.02 s: bursts queue at the volume; kv 75 %, series 25 %")
        );
        let shared = Row { stores, ..Row::default() };
        assert_eq!(shared.remark().as_deref(), Some("kv 75 %, series 25 %"));
        let alone = Row { stores: vec![("kv".into(), 1.0)], ..Row::default() };
        assert_eq!(alone.remark(), None);
        let of_a_later_version = Row { finding: Some("new".into()), ..Row::default() };
        assert_eq!(of_a_later_version.remark(), None);
    }

    #[test]
    fn rates_are_those_of_the_time_in_between() {
        let (before, now) = pictures();
        let view = View::between(Some(&before), &now);
        assert_eq!(
            (view.seconds, view.commands, view.clients),
            (Some(2.0), Some(10_000.0), Some(5))
        );
        assert_eq!(view.hits, Some(0.9), "180 of 200");
        assert_eq!(view.total(), (Some(4450.0), None), "one of them has no line");
        let s1 = &view.rows[0];
        assert_eq!((s1.iops, s1.used, s1.over), (Some(2940.0), 0.98, false));
        let waits: Vec<_> = s1.classes.iter().map(|c| (c.wait_ms, c.queued)).collect();
        assert_eq!(waits[1..], [(Some(2.4), 31), (Some(30.0), 7)]);
        assert!((waits[0].0.expect("there were some") - 0.1).abs() < 1e-9);
        assert!(view.rows[1].over && view.rows[1].classes[0].wait_ms.is_none());
        let (mut before, mut now) = (before, now);
        before.volumes[0].store_ops = [("kv".into(), 100), ("pool".into(), 7)].into();
        now.volumes[0].store_ops =
            [("kv".into(), 160), ("pool".into(), 7), ("series".into(), 20)].into();
        let stores = View::between(Some(&before), &now).rows.swap_remove(0).stores;
        assert_eq!(stores, [("kv".into(), 0.75), ("series".into(), 0.25)]);
    }

    #[test]
    fn purposes_are_named_if_not_all_is_what_users_asked_for() {
        let (mut before, mut now) = pictures();
        let mut remark = |was: &[(&str, u64)], is: &[(&str, u64)]| {
            let of = |ops: &[(&str, u64)]| ops.iter().map(|&(n, ops)| (n.into(), ops)).collect();
            before.volumes[0].purpose_ops = of(was);
            now.volumes[0].purpose_ops = of(is);
            View::between(Some(&before), &now).rows.swap_remove(0).remark()
        };
        assert_eq!(remark(&[("read", 1), ("scrub", 9)], &[("read", 4), ("scrub", 9)]), None);
        assert_eq!(
            remark(&[("read", 1)], &[("read", 31), ("write_back", 60), ("log", 10), ("copy", 1)]),
            Some("for write_back 59 %, read 30 %, log 10 %".into())
        );
    }

    #[test]
    fn without_a_before_or_with_a_later_one_there_are_no_rates() {
        let (before, now) = pictures();
        for view in [View::between(None, &now), View::between(Some(&now), &before)] {
            assert_eq!((view.seconds, view.commands, view.hits), (None, None, None));
            assert!(view.rows.iter().all(|row| row.iops.is_none() && !row.over));
        }
        // A newly added volume is missing in the answer before.
        let mut less = before;
        less.volumes.remove(0);
        let view = View::between(Some(&less), &now);
        assert_eq!((view.rows[0].iops, view.rows[1].iops), (None, Some(1500.0)));
    }

    #[test]
    fn volumes_are_sorted_by_what_was_asked() {
        let (before, now) = pictures();
        let mut view = View::between(Some(&before), &now);
        let mut order = |by, reversed| {
            view.sort(by, reversed);
            view.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(Sort::Used, false), "s1 s2 s3");
        assert_eq!(order(Sort::Used, true), "s3 s2 s1");
        assert_eq!(order(Sort::Wait, false), "s1 s2 s3");
        assert_eq!(order(Sort::Weight, false), "s1 s2 s3");
        assert_eq!(order(Sort::Free, false), "s1 s2 s3", "the one that does not answer is last");
        assert_eq!(order(Sort::Name, true), "s3 s2 s1");
    }
}
