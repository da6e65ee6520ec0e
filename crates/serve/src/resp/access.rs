//! Authentication: the password and the users, which may change while clients are connected.
//!
//! A connection remembers the [version](Access::version) of its authentication. If that is outdated, its credentials
//! are checked again, and it may have to authenticate anew: see `Client::review`.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::settings::{DEFAULT_USER, User};
use crate::{May, Secret};

/// The password and the users of a listener.
#[derive(Debug)]
pub struct Access {
    keys: RwLock<Keys>,
    version: AtomicU64,
}

#[derive(Debug)]
struct Keys {
    password: Option<Secret>,
    users: Vec<User>,
}

impl Access {
    pub(super) fn new(password: Option<Secret>, users: Vec<User>) -> Self {
        Self { keys: RwLock::new(Keys { password, users }), version: AtomicU64::new(0) }
    }

    /// Replaces the password and users from now on. A connection whose credentials are gone gets `NOAUTH` for its next
    /// request.
    pub fn replace(&self, password: Option<Secret>, users: Vec<User>) {
        let mut keys = self.keys.write();
        *keys = Keys { password, users };
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A number that changes with every replacement.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether clients must authenticate.
    pub(super) fn is_asked_for(&self) -> bool {
        self.keys.read().password.is_some()
    }

    /// The rights of a client with these credentials; `None` if they are wrong.
    pub(super) fn known(&self, name: &[u8], password: &[u8]) -> Option<May> {
        let Keys { password: all, users } = &*self.keys.read();
        let owner = name == DEFAULT_USER && all.as_ref().is_none_or(|all| all.is(password));
        // Compares every password, even after a match, so that the time tells nothing.
        users.iter().fold(owner.then_some(May::All), |known, user| {
            let right = user.password.is(password) & (user.name.as_bytes() == name);
            known.or(right.then_some(user.may))
        })
    }
}
