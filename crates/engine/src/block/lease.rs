//! The lease of a device: which one client may write to it, and the fencing token of that right.
//!
//! The token grows with each take, also by the same holder. So it names one take: the server can tell a client that was cut
//! off, and comes back with the token of an earlier take, from the holder, even where nobody holds the device any more.

use super::{Error, Result};

/// The longest name of a holder, in bytes.
pub const HOLDER_NAME_MAX: usize = 64;

/// Who takes a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// Equal ids are the same holder, which needs no force to take its device again.
    pub id: [u8; 16],
    /// What people call it: at most [`HOLDER_NAME_MAX`] bytes, without control characters.
    pub name: String,
}

/// The lease of a device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lease {
    /// That of the last take. Before the first it is that of no take.
    pub token: u64,
    /// Who holds it, if it was not released since.
    pub holder: Option<Holder>,
}

impl Lease {
    /// Whether the take that got `token` still holds the device.
    #[must_use]
    pub fn is_held_with(&self, token: u64) -> bool {
        self.holder.is_some() && self.token == token
    }

    /// The lease after `holder` takes it, with `force` from any other holder.
    ///
    /// # Errors
    /// `Held`: another one holds it. `Invalid`: the name.
    pub(super) fn taken(&self, device: &str, holder: &Holder, force: bool) -> Result<Self> {
        let name = &holder.name;
        if !(1..=HOLDER_NAME_MAX).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(Error::Invalid(format!(
                "holder {name:?}: its name must have 1 to {HOLDER_NAME_MAX} bytes, and no control characters"
            )));
        }
        match &self.holder {
            Some(other) if other.id != holder.id && !force => {
                Err(Error::Held(format!("device {device} is held by {}", other.name)))
            }
            _ => Ok(Self { token: self.token + 1, holder: Some(holder.clone()) }),
        }
    }

    /// The lease after a release of the take that got `token`, or of any. `None`: it changes nothing.
    pub(super) fn released(&self, token: Option<u64>) -> Option<Self> {
        let is_meant = token.is_none_or(|token| token == self.token);
        (self.holder.is_some() && is_meant).then_some(Self { token: self.token, holder: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_is_told_apart_from_all_others() {
        let holder = |id: u8, name: &str| Holder { id: [id; 16], name: name.into() };
        let (a, b) = (holder(1, "a"), holder(2, "b"));
        let first = Lease::default().taken("vm", &a, false).unwrap();
        assert!(first.is_held_with(1) && !Lease::default().is_held_with(0));
        let refused = Err(Error::Held("device vm is held by a".into()));
        assert_eq!(first.taken("vm", &b, false), refused);
        // The same holder, after a restart of its machine.
        assert_eq!(first.taken("vm", &a, false).unwrap().token, 2);
        let second = first.taken("vm", &b, true).unwrap();
        assert!(second.is_held_with(2) && !second.is_held_with(1));
        assert_eq!(second.released(Some(1)), None);
        let free = second.released(Some(2)).unwrap();
        assert_eq!((free.clone(), free.released(None)), (Lease { token: 2, holder: None }, None));
        assert_eq!(second.released(None), Some(free.clone()));
        assert!(free.taken("vm", &a, false).unwrap().is_held_with(3));
        for name in [String::new(), "x".repeat(65), "a\nb".into()] {
            let wrong = Lease::default().taken("vm", &holder(1, &name), false);
            assert!(matches!(wrong, Err(Error::Invalid(_))), "{name:?}");
        }
    }
}
