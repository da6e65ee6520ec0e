//! A user's expectation of the bytes under a name.

/// A user's expectation under a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Thing {
    /// A table that is replaced by a newer one: the version acknowledged, and the newest tried.
    Register { acked: u64, tried: u64 },
    /// An object with appends: every byte whose sync was acknowledged. `acked` is `None` if not even its name
    /// was acknowledged.
    Appended { acked: Option<Vec<u8>>, stage: Stage },
    /// It was removed.
    Removed,
}

/// What happens to an object with appends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// It is appended to.
    Grows,
    /// It is not written again, and may be sealed.
    Final,
    /// A removal was requested and not acknowledged.
    Going,
}

impl Thing {
    /// Whether the checksums in `found` are right, as far as it was acknowledged.
    pub(super) fn accepts(&self, name: &str, found: &[u8]) -> bool {
        match self {
            Self::Register { .. } => {
                version(found).is_some_and(|version| found == table(name, version))
            }
            Self::Appended { acked: Some(acked), .. } => found.starts_with(acked),
            Self::Appended { acked: None, .. } | Self::Removed => true,
        }
    }

    /// Whether the object that a user expected before may be removed or replaced; the expectation now is `after`.
    pub(super) fn may_end(&self, after: &Self) -> bool {
        match after {
            Self::Register { acked, tried } => self != after || acked != tried,
            Self::Appended { stage, .. } => *stage == Stage::Going,
            Self::Removed => true,
        }
    }

    /// Whether a user may read `found` who expected this before, and `after` now.
    pub(super) fn explains(
        &self,
        after: &Self,
        name: &str,
        found: Option<&[u8]>,
    ) -> Result<(), String> {
        match (self, found) {
            (Self::Removed, Some(_)) => Err("is back".into()),
            (Self::Register { acked: 0, .. }, None)
            | (Self::Removed | Self::Appended { acked: None, .. }, None)
            | (Self::Appended { acked: None, .. }, Some(_)) => Ok(()),
            (_, None) => match after {
                Self::Removed | Self::Appended { stage: Stage::Going, .. } => Ok(()),
                _ => Err("is not there".into()),
            },
            (Self::Register { acked, .. }, Some(found)) => {
                let Self::Register { tried, .. } = after else {
                    unreachable!("its name says so");
                };
                match version(found) {
                    Some(version) if (*acked..=*tried).contains(&version) => {
                        match found == table(name, version) {
                            true => Ok(()),
                            false => Err(format!("version {version} has other bytes")),
                        }
                    }
                    found => Err(format!("is {found:?}, acknowledged was {acked}, tried {tried}")),
                }
            }
            (Self::Appended { acked: Some(acked), .. }, Some(found)) => {
                if found.len() < acked.len() {
                    return Err(format!("has {} bytes of {}", found.len(), acked.len()));
                }
                let differs = found.iter().zip(acked).position(|(found, acked)| found != acked);
                match differs {
                    Some(at) => Err(format!("has other bytes from {at} on of {}", acked.len())),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The version in the bytes of a table.
fn version(found: &[u8]) -> Option<u64> {
    let bytes = found.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The bytes of a version of a table.
pub(super) fn table(name: &str, version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    let len = 8 + (version as usize * 7919 + name.len() * 31) % 9_000;
    let salt = name.bytes().map(u64::from).sum::<u64>();
    bytes.extend((8..len as u64).map(|i| (i * 31 + version * 17 + salt) as u8));
    bytes
}
