//! How large volumes and load are, from what the machine can do.

/// Operations a second of a volume that is not sized yet: more than any load of the demo reaches.
pub(super) const OPEN_IOPS: u64 = 256_000;

/// The part of what the machine can do that both volumes together may ask of it. With more, requests wait for
/// processors, and p99 shows the machine instead of the volumes.
const PART: f64 = 0.25;

/// io2 is sold from 100 IOPS on. Beyond 400 a larger volume shows the same and takes more of the machine.
const IOPS_MIN: u64 = 100;
const IOPS_MAX: u64 = 400;
const STEP: u64 = 50;

/// Volumes and load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizing {
    /// Operations a second that are paid for, of each volume.
    pub(super) iops: u64,
    /// Requests a second of each store.
    pub(super) reads_per_sec: f64,
    pub(super) writes_per_sec: f64,
}

/// Reads a second for each IOPS of the volume. A read is one I/O unless the cache has its block: below the
/// nine tenths that the gate serves without waits.
const READS: f64 = 0.8;
/// Writes a second for each IOPS. Their flushes and compactions ask for what reads leave: 0.06 I/Os for each
/// write of 1 KiB, as measured with the demo's settings. Much more would be a load that no scheduler can carry, and
/// much less would leave the volume below its line.
const WRITES: f64 = 4.0;

impl Sizing {
    /// The part of all requests that writes.
    pub(super) const WRITES_OF_ALL: f64 = WRITES / (READS + WRITES);

    /// For two stores on a machine that did `flat_out` operations a second for both of them together.
    pub(super) fn to_machine(flat_out: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let each = (flat_out * PART / 2.0) as u64;
        let iops = (each / STEP * STEP).clamp(IOPS_MIN, IOPS_MAX);
        Self { iops, reads_per_sec: READS * iops as f64, writes_per_sec: WRITES * iops as f64 }
    }

    /// What was measured and what follows, in words.
    pub(super) fn told(&self, flat_out: f64) -> String {
        let Self { iops, reads_per_sec, writes_per_sec } = self;
        let warning = if self.part(flat_out) > PART {
            ". That is much of what this machine can do now, so a part of the latencies will be its own"
        } else {
            ""
        };
        format!(
            "Without limits both did {flat_out:.0} I/Os a second together. Now each gets a simulated io2 volume of \
             {iops} IOPS,\nand the same load at the same time: {reads_per_sec:.0} reads and {writes_per_sec:.0} \
             writes a second{warning}."
        )
    }

    /// The part of what the machine can do that both volumes may ask of it.
    fn part(&self, flat_out: f64) -> f64 {
        2.0 * self.iops as f64 / flat_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_volumes_get_at_most_a_quarter_of_what_the_machine_can_do() {
        for (flat_out, iops) in [(1700.0, 200), (2000.0, 250), (2999.0, 350)] {
            let sized = Sizing::to_machine(flat_out);
            assert_eq!(sized.iops, iops);
            assert!(sized.part(flat_out) <= 0.25);
            assert_eq!(sized.reads_per_sec, 0.8 * iops as f64);
            assert!(!sized.told(flat_out).contains("its own"), "{}", sized.told(flat_out));
        }
    }

    #[test]
    fn no_volume_is_smaller_than_sold_or_larger_than_needed() {
        assert_eq!(Sizing::to_machine(0.0).iops, 100);
        assert_eq!(Sizing::to_machine(f64::NAN).iops, 100);
        assert_eq!(Sizing::to_machine(1e12).iops, 400);
        let told = Sizing::to_machine(500.0).told(500.0);
        assert!(told.contains("io2 volume of 100 IOPS") && told.contains("its own"), "{told}");
    }
}
