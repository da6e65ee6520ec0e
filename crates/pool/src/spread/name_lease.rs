//! Leases of names: one owner at a time.

use std::collections::BTreeSet;
use std::fmt;

use parking_lot::Mutex;
use volume::{Error, ErrorKind, Name, Result};

use super::Spread;

/// The names that have an owner in this process. Its lock is taken alone.
#[derive(Default)]
pub(super) struct NameLeases(Mutex<BTreeSet<Name>>);

/// The lease of a name, held by one owner in this process until it is dropped. It is advisory: it needs
/// no object of that name, and other calls do not check it.
///
/// The locks of the volumes exclude other processes from a pool.
pub struct NameLease {
    pool: Spread,
    name: Name,
}

impl Spread {
    /// Leases `name`, for stores that must not be opened twice.
    ///
    /// # Errors
    /// `Fenced`: another owner has it.
    pub fn lease_name(&self, name: &Name) -> Result<NameLease> {
        if self.0.leases.0.lock().insert(name.clone()) {
            Ok(NameLease { pool: self.clone(), name: name.clone() })
        } else {
            Err(Error::new(ErrorKind::Fenced, format!("{name}: it is open already")))
        }
    }
}

impl Drop for NameLease {
    fn drop(&mut self) {
        self.pool.0.leases.0.lock().remove(&self.name);
    }
}

impl fmt::Debug for NameLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameLease({})", self.name)
    }
}
