//! The answer of volumes that lack a call.

use std::fmt;

use crate::{Error, ErrorKind, Pending, ready};

/// Refuses a call; `doing` says which.
pub(crate) fn call<'a, T: Send + 'a>(doing: fmt::Arguments<'_>) -> Pending<'a, T> {
    let message = format!("{doing}: this volume cannot do that: do without");
    ready(Err(Error::new(ErrorKind::Unsupported, message)))
}
