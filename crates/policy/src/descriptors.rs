//! How the files that a process may have open are divided.
//!
//! Each connection takes a descriptor, and so does each open copy of a table. Without a division tables take all of
//! them, and then neither a client nor a new log gets one.

use std::fmt;

/// Fewer tables than these would be opened and closed all the time.
pub const TABLES_MIN: u64 = 128;

/// A use of descriptors whose number the settings give.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Use {
    /// Its name in the user's settings, or in words.
    pub what: String,
    /// How many it may come to take.
    pub descriptors: u64,
}

/// The settings need more descriptors than the process may have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TooFew {
    /// How many it may have.
    pub limit: u64,
    /// How many it would need, of each use.
    pub uses: Vec<Use>,
}

/// How many tables may be open at once if the process may have `limit` files open, `uses` need theirs, and each table
/// takes `per_table`: 0 if there are no tables.
///
/// # Errors
/// The uses do not fit, or fewer than [`TABLES_MIN`] tables would.
pub fn tables_max(limit: u64, uses: &[Use], per_table: u64) -> Result<u64, TooFew> {
    let left = limit.checked_sub(sum(uses));
    let tables = left.map(|left| left / per_table.max(1));
    if let Some(tables) = tables
        && (per_table == 0 || tables >= TABLES_MIN)
    {
        return Ok(tables);
    }
    let least = Use { what: "tables".into(), descriptors: TABLES_MIN * per_table };
    let least = Some(least).filter(|least| least.descriptors > 0);
    Err(TooFew { limit, uses: uses.iter().cloned().chain(least).collect() })
}

fn sum(uses: &[Use]) -> u64 {
    uses.iter().fold(0, |sum, of| sum.saturating_add(of.descriptors))
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needed = sum(&self.uses);
        write!(
            f,
            "this process may have {} files open, and the settings need {needed}",
            self.limit
        )?;
        for (at, Use { what, descriptors }) in self.uses.iter().enumerate() {
            let between = if at == 0 { ": " } else { ", " };
            write!(f, "{between}{descriptors} for {what}")?;
        }
        f.write_str("; raise the limit (`ulimit -n`, `LimitNOFILE=` of systemd) or lower these")
    }
}

impl std::error::Error for TooFew {}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(descriptors: u64) -> Use {
        Use { what: "kv.clients_max".into(), descriptors }
    }

    #[test]
    fn tables_get_what_the_others_leave() {
        assert_eq!(tables_max(4096, &[clients(1000), clients(96)], 3), Ok(1000));
        assert_eq!(tables_max(1000 + 128 * 3, &[clients(1000)], 3), Ok(128));
        assert!(tables_max(u64::MAX, &[clients(u64::MAX)], 3).is_err());
        assert!(tables_max(1000, &[clients(1000)], 0).is_ok());
        assert!(tables_max(1000, &[clients(1001)], 0).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_arithmetic() {
        let refused = tables_max(1024, &[clients(1000)], 3).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "this process may have 1024 files open, and the settings need 1384: 1000 for \
             kv.clients_max, 384 for tables; raise the limit (`ulimit -n`, `LimitNOFILE=` of \
             systemd) or lower these"
        );
    }
}
