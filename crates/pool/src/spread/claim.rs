//! Leases of names: one owner at a time.

use std::fmt;

use volume::{Error, ErrorKind, Name, Result};

use super::Spread;

/// The lease of a name, held by one owner in this process until it is dropped. It is advisory: it needs
/// no object of that name, and other calls do not check it.
///
/// The locks of the volumes exclude other processes from a pool.
pub struct Claim {
    pool: Spread,
    name: Name,
}

impl Spread {
    /// Claims `name`, for stores that must not be opened twice.
    ///
    /// # Errors
    /// `Fenced`: another owner has it.
    pub fn claim(&self, name: &Name) -> Result<Claim> {
        if self.0.claimed.lock().insert(name.clone()) {
            Ok(Claim { pool: self.clone(), name: name.clone() })
        } else {
            Err(Error::new(ErrorKind::Fenced, format!("{name}: it is open already")))
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.pool.0.claimed.lock().remove(&self.name);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({})", self.name)
    }
}
