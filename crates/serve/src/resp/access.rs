//! Who may come in: the password and the users, which change while clients are connected.
//!
//! A connection remembers the [version](Access::version) it was let in by. When that is not the present one,
//! it is let in again by what it showed, or has to show something else: see `Session::review`.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::secret::Secret;
use super::service::{DEFAULT_USER, User};
use crate::May;

/// The password and the users of a door.
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

    /// Lets clients in by these from now on. A connection that was let in by what is gone gets `NOAUTH` to its
    /// next request.
    pub fn replace(&self, password: Option<Secret>, users: Vec<User>) {
        let mut keys = self.keys.write();
        *keys = Keys { password, users };
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A number that differs whenever something was replaced in between.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether clients have to show something.
    pub(super) fn is_asked_for(&self) -> bool {
        self.keys.read().password.is_some()
    }

    /// What a client who says so of itself may do; `None` if that is not right.
    pub(super) fn known(&self, name: &[u8], password: &[u8]) -> Option<May> {
        let Keys { password: all, users } = &*self.keys.read();
        let owner = name == DEFAULT_USER && all.as_ref().is_none_or(|all| all.is(password));
        // Every password is compared, whoever the client says it is.
        users.iter().fold(owner.then_some(May::All), |known, user| {
            let right = user.password.is(password) & (user.name.as_bytes() == name);
            known.or(right.then_some(user.may))
        })
    }
}
