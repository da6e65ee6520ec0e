//! Passwords, users and tokens, changed by a reload.

use std::sync::{Arc, OnceLock};

use serve::http::Tokens;

use crate::settings::Settings;

/// Passwords, users and tokens of the services that run.
#[derive(Default)]
pub(super) struct Access {
    /// Those for Redis clients.
    pub(super) redis: OnceLock<Arc<serve::resp::Access>>,
    /// The tokens for time series.
    pub(super) points: OnceLock<Arc<Tokens>>,
}

impl Access {
    /// Applies `new`, and returns what changed. A listener with a password or token keeps asking for one: its address
    /// may be public, so only a restart removes the check.
    pub(super) fn change(&self, current: &mut Settings, new: &Settings) -> Vec<String> {
        let mut told = Vec::new();
        if let (Some(access), Some(ours), Some(theirs)) =
            (self.redis.get(), &mut current.kv, &new.kv)
        {
            let (ours, theirs) = (&mut ours.endpoint, &theirs.endpoint);
            let stays_shut = ours.password.is_none() || theirs.password.is_some();
            if stays_shut && (&ours.password, &ours.users) != (&theirs.password, &theirs.users) {
                access.replace(theirs.password.clone(), theirs.users.clone());
                (ours.password, ours.users) = (theirs.password.clone(), theirs.users.clone());
                told.push("kv.password, kv.users: checked for each request from now on".into());
            }
        }
        if let (Some(tokens), Some((_, ours)), Some((_, theirs))) =
            (self.points.get(), &mut current.series, &new.series)
        {
            let (ours, theirs) = (&mut ours.endpoint.tokens, &theirs.endpoint.tokens);
            let stays_shut = ours.is_empty() || !theirs.is_empty();
            if stays_shut && ours != theirs {
                tokens.replace(theirs.clone());
                ours.clone_from(theirs);
                told.push("http.tokens: checked for each request from now on".into());
            }
        }
        told
    }
}
