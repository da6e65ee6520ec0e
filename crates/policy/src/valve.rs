//! When a cache tier writes dirty units back to the slow pool, and when it stops caching writes.
//!
//! Flushes wait for calm: a valve opens while users leave the slow pool half idle (HOSD's adaptive flush). As dirty data
//! grows, flushes go on at a lower rate in any case, and finally writes go past the cache: a cache full of dirty data
//! never stops writes that the slow pool could take.
//!
//! ```text
//! dirty   0 ────── 0.4 ─────────── 0.6 ─────────── 0.8 ────── 1
//! open    no flush │ full rate ───────────────────────────────
//! closed  no flush          ────── │ a quarter ───────────────
//! writes  cached   ─────────────────────────────── │ past the cache
//! ```
//!
//! A period is one second: its load predicts the next one's.

/// Where a valve changes its mind. All but `flushes` are parts of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// The valve opens at this load or a lower one. Default 0.5.
    pub load_open: f64,
    /// An open valve closes above this load. Default 0.6; at least `load_open`. A wider gap switches less often.
    pub load_close: f64,
    /// Dirty bytes, as a part of the room of the fast pool, above which an open valve flushes. Default 0.4. Less loses
    /// less with the fast pool; more saves flushes of units that are written again.
    pub dirty_low: f64,
    /// Dirty bytes above which flushes do not wait for the valve. Default 0.6.
    pub dirty_high: f64,
    /// Dirty bytes above which no more writes are cached. Default 0.8.
    pub dirty_max: f64,
    /// Fill of the fast pool above which no more writes are cached. Default 0.95.
    pub fill_max: f64,
    /// Fill from which on clean units are evicted. Default 0.9.
    pub evict_from: f64,
    /// Fill down to which they are evicted. Default 0.88.
    pub evict_to: f64,
    /// Flushes at a time, at the full rate. Default 4. More end a backlog sooner, and come as a larger storm when the
    /// valve opens.
    pub flushes: u32,
    /// The part of the full rate at which flushes are forced. Default 0.25.
    pub forced: f64,
}

impl Thresholds {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        load_open: 0.5,
        load_close: 0.6,
        dirty_low: 0.4,
        dirty_high: 0.6,
        dirty_max: 0.8,
        fill_max: 0.95,
        evict_from: 0.9,
        evict_to: 0.88,
        flushes: 4,
        forced: 0.25,
    };
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a period has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// What users take of the busiest device that flushes use, as a part of what is paid for.
    pub load: f64,
    /// Dirty bytes, as a part of the room of the fast pool.
    pub dirty: f64,
    /// Bytes held, as a part of the room of the fast pool.
    pub fill: f64,
}

/// How a period flushes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Flush {
    /// There is little to flush.
    #[default]
    Idle,
    /// Users need the devices: flushes wait.
    Closed,
    /// At the full rate, the coldest dirty units first.
    Open,
    /// Users need the devices, but too much is dirty: at a part of the rate.
    Forced,
}

impl Flush {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Forced => "forced",
        }
    }
}

/// Where the writes of a period go.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Writes {
    /// To the fast pool, as always.
    #[default]
    Cached,
    /// An emergency: writes to units that are not cached go to the slow pool, those to clean units to both pools, and
    /// only those to dirty units to the fast pool alone.
    Past,
}

/// What to do until the next reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Whether dirty units are flushed.
    pub flush: Flush,
    /// Flushes at a time: at least one if any.
    pub flushes: u32,
    /// The part of the full rate of flushes, 0 to 1.
    pub rate: f64,
    /// Where writes go.
    pub writes: Writes,
    /// Evict clean units down to this fill; `None` for no eviction.
    pub evict_to: Option<f64>,
}

/// Decides period by period.
#[derive(Clone, Debug)]
pub struct Valve {
    thresholds: Thresholds,
    is_open: bool,
    is_evicting: bool,
}

impl Valve {
    /// A closed valve.
    #[must_use]
    pub const fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, is_open: false, is_evicting: false }
    }

    /// The plan for the next period, by what this one has shown.
    ///
    /// It remembers two bits: whether it is open, and whether it evicts. A load that is not a number closes it.
    #[must_use]
    pub fn plan(&mut self, reading: Reading) -> Plan {
        let Reading { load, dirty, fill } = reading;
        let at = self.thresholds;
        self.is_open = load <= if self.is_open { at.load_close } else { at.load_open };
        self.is_evicting =
            if self.is_evicting { fill > at.evict_to } else { fill >= at.evict_from };
        let flush = match self.is_open {
            _ if dirty <= at.dirty_low => Flush::Idle,
            true => Flush::Open,
            false if dirty > at.dirty_high => Flush::Forced,
            false => Flush::Closed,
        };
        let rate = match flush {
            Flush::Idle | Flush::Closed => 0.0,
            Flush::Open => 1.0,
            Flush::Forced => at.forced,
        };
        let is_emergency = dirty > at.dirty_max || fill > at.fill_max;
        Plan {
            flush,
            flushes: (f64::from(at.flushes) * rate).ceil() as u32,
            rate,
            writes: if is_emergency { Writes::Past } else { Writes::Cached },
            evict_to: self.is_evicting.then_some(at.evict_to),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_follows_load_dirty_bytes_and_fill() {
        let mut valve = Valve::new(Thresholds::default());
        let mut table = String::from("load  dirty  fill    flush  flushes  writes  evict to\n");
        for (load, dirty, fill) in [
            (0.3, 0.40, 0.50), // Little is dirty.
            (0.3, 0.41, 0.50),
            (0.6, 0.50, 0.50), // Open, it stays so up to 0.6.
            (0.7, 0.60, 0.50),
            (0.6, 0.60, 0.50), // Closed, it stays so down to 0.5.
            (0.6, 0.61, 0.50),
            (0.5, 0.61, 0.50),
            (0.9, 0.80, 0.80),
            (0.9, 0.81, 0.89),
            (0.1, 0.81, 0.90), // Eviction starts.
            (0.1, 0.30, 0.96), // Full of clean units.
            (0.1, 0.30, 0.89),
            (0.1, 0.30, 0.88), // Eviction ends.
            (0.1, 0.30, 0.89),
            (f64::NAN, 0.50, 0.50),
        ] {
            let plan = valve.plan(Reading { load, dirty, fill });
            let (flush, writes) = (format!("{:?}", plan.flush), format!("{:?}", plan.writes));
            let evict = plan.evict_to.map_or("-".into(), |fill| fill.to_string());
            table += &format!(
                "{load:4}  {dirty:5.2}  {fill:4.2}  {flush:>7}  {:7}  {writes:>6}  {evict:>8}\n",
                plan.flushes
            );
        }
        expect_test::expect![[r#"
            load  dirty  fill    flush  flushes  writes  evict to
             0.3   0.40  0.50     Idle        0  Cached         -
             0.3   0.41  0.50     Open        4  Cached         -
             0.6   0.50  0.50     Open        4  Cached         -
             0.7   0.60  0.50   Closed        0  Cached         -
             0.6   0.60  0.50   Closed        0  Cached         -
             0.6   0.61  0.50   Forced        1  Cached         -
             0.5   0.61  0.50     Open        4  Cached         -
             0.9   0.80  0.80   Forced        1  Cached         -
             0.9   0.81  0.89   Forced        1    Past         -
             0.1   0.81  0.90     Open        4    Past      0.88
             0.1   0.30  0.96     Idle        0    Past      0.88
             0.1   0.30  0.89     Idle        0  Cached      0.88
             0.1   0.30  0.88     Idle        0  Cached         -
             0.1   0.30  0.89     Idle        0  Cached         -
             NaN   0.50  0.50   Closed        0  Cached         -
        "#]]
        .assert_eq(&table);
    }

    proptest! {
        #[test]
        fn more_dirty_bytes_never_mean_fewer_flushes_or_more_cached_writes(
            before in 0.0..1.0_f64,
            load in 0.0..1.0_f64,
            dirty in (0.0..1.0_f64, 0.0..1.0_f64),
            fill in 0.0..1.0_f64,
        ) {
            let mut valve = Valve::new(Thresholds::default());
            let _ = valve.plan(Reading { load: before, dirty: 0.0, fill: 0.0 });
            let plan = |dirty| valve.clone().plan(Reading { load, dirty, fill });
            let (less, more) = (plan(dirty.0.min(dirty.1)), plan(dirty.0.max(dirty.1)));
            prop_assert!(less.rate <= more.rate && less.flushes <= more.flushes);
            prop_assert!(less.writes == Writes::Cached || more.writes == Writes::Past);
            prop_assert_eq!(less.evict_to, more.evict_to);
            // No emergency leaves dirty data where it is.
            prop_assert!(more.writes == Writes::Cached || dirty.0.max(dirty.1) <= 0.6 || more.rate > 0.0);
        }
    }
}
