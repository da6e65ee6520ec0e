//! What volumes charge for I/O: operations, bytes, or the scarcer of both.

use crate::contract::Contract;
use crate::units::KIB;

/// The least largest operation.
const PAGE: u64 = 4 * KIB;

/// What a volume charges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Bytes that weigh as much as one operation: the byte rate of a volume divided by its operation rate. gp3 with
    /// 125 MiB/s and 3,000 operations/s has 43,690. `None`: only operations count.
    pub bytes_per_operation: Option<u64>,
    /// The largest operation, in bytes. At least 4 KiB.
    pub io_max: u64,
    /// The share of operations in a weight, 0 to 1; bytes have the rest. [`Price::OPERATION_SHARE`] unless the
    /// volumes are known to be short of one of them.
    pub operation_share: f64,
}

impl Price {
    /// What a volume of this contract charges; `None` if it limits no operations.
    #[must_use]
    pub fn of(contract: &Contract) -> Option<Self> {
        let operations = contract.line_iops()?;
        let of_disk = || Some(contract.disk.as_ref()?.transfer_per_sec);
        let bytes = contract.paid_bytes_per_sec().or_else(of_disk);
        let per_operation = bytes.map(|bytes| ((bytes as f64 / operations) as u64).max(1));
        Some(Self::new(per_operation, contract.op_bytes_max.max(PAGE)))
    }

    /// Operations and bytes count alike.
    ///
    /// Over a log, volumes need the larger of two sums: of all rows' operations and of all rows' bytes. The least larger
    /// sum is that of [plans](crate::recycle::plan) which are lightest by a blend, with the share at which both sums are equal. (The larger of
    /// both *row by row* is another measure: a row of many operations can be balanced by a row of many bytes.) That
    /// share depends on the writes. With a half, the larger sum is at most twice the least one, whatever the writes are;
    /// [`rebalanced`](Self::rebalanced) finds the share from what was spent.
    ///
    /// Units of a user's write, operations / bytes, with the appends of three logs in groups of 16 writes, for a window
    /// of 5 % of the device, 4+2, gp3:
    ///
    /// | plans | uniform | zipf 0.99, scrambled |
    /// |---|---|---|
    /// | each block alone, or whole rows, mixed | 2.89 | 1.90 |
    /// | also each data block beside whole strips of parity | 2.42 | 1.64 |
    /// | lightest with a share of a half | 1.80 / 2.17 | 1.62 / 1.00 |
    /// | lightest with rebalanced shares, 0.46 and 0.61 | 1.97 / 2.00 | 1.33 / 1.35 |
    /// | the larger of both by row | 1.96 / 2.05 | 1.40 / 1.29 |
    pub const OPERATION_SHARE: f64 = 0.5;
    /// How much of a relative difference between operations and bytes is added to the share. A tenth of the share changes
    /// the difference by a fifth or two: with a quarter, a few windows find the balance and none goes far beyond it.
    const REBALANCING: f64 = 0.25;

    /// The price with the usual share of operations.
    #[must_use]
    pub const fn new(bytes_per_operation: Option<u64>, io_max: u64) -> Self {
        Self { bytes_per_operation, io_max, operation_share: Self::OPERATION_SHARE }
    }

    /// The price for the next rows, after volumes spent so many operations and bytes: it weighs more what they spent more of.
    ///
    /// Both are to include all other work of the volumes. Call it every few hundred rows.
    #[must_use]
    pub fn rebalanced(self, operations: u64, bytes: u64) -> Self {
        let Some(per) = self.bytes_per_operation else { return self };
        let (operations, bytes) = (operations as f64, bytes as f64 / per.max(1) as f64);
        let sum = operations + bytes;
        let difference = if sum > 0.0 { (operations - bytes) / sum } else { 0.0 };
        let share = self.operation_share + Self::REBALANCING * difference;
        Self { operation_share: share.clamp(0.0, 1.0), ..self }
    }

    /// The blend of these operations and bytes, in operations.
    #[must_use]
    pub fn weight(&self, operations: u64, bytes: u64) -> f64 {
        let operations = operations as f64;
        let Some(per) = self.bytes_per_operation else { return operations };
        let share = self.operation_share.clamp(0.0, 1.0);
        share * operations + (1.0 - share) * bytes as f64 / per.max(1) as f64
    }
}
