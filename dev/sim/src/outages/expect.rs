//! A user's expectation of the bytes under a name.

use std::ops::Range;
use std::sync::Arc;

/// A user's expectation under a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Thing {
    /// A table that is replaced by a newer one: the version acknowledged, and the newest tried.
    Register { acked: u64, tried: u64 },
    /// An object with appends: every byte whose sync was acknowledged. `acked` is `None` if not even its name
    /// was acknowledged.
    Appended { acked: Option<Vec<u8>>, stage: Stage, over: Overwrites },
    /// An object that was written at once: it has all of its bytes, or is not there. `acked` if it must be.
    Whole { bytes: Arc<[u8]>, acked: bool, stage: Stage },
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
    /// It was sealed, and read since: it has exactly the bytes and the length that it had then.
    Sealed,
    /// A removal was requested and not acknowledged.
    Going,
}

/// Writes over acknowledged bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Overwrites {
    /// How many began.
    pub(super) begun: u64,
    /// The bytes of one that was not acknowledged: they may be the old ones, the new ones, or some of each.
    pub(super) torn: Range<usize>,
}

impl Overwrites {
    /// The first byte of `found` that is not the one of `acked`.
    fn differs(&self, found: &[u8], acked: &[u8]) -> Option<usize> {
        let same = |at: usize| found[at] == acked[at] || self.torn.contains(&at);
        (0..found.len().min(acked.len())).find(|&at| !same(at))
    }
}

impl Thing {
    /// An object that only its creation was asked for.
    pub(super) const fn created() -> Self {
        let over = Overwrites { begun: 0, torn: 0..0 };
        Self::Appended { acked: None, stage: Stage::Grows, over }
    }

    /// Whether acknowledged bytes are written over since the user expected this.
    pub(super) fn is_overwritten(&self, after: &Self) -> bool {
        match (self, after) {
            (Self::Appended { over, .. }, Self::Appended { over: after, .. }) => {
                over.begun != after.begun
            }
            _ => false,
        }
    }

    /// Whether the checksums in `found` are right, as far as it was acknowledged.
    pub(super) fn accepts(&self, name: &str, found: &[u8]) -> bool {
        match self {
            Self::Register { .. } => {
                version(found).is_some_and(|version| found == table(name, version))
            }
            Self::Appended { acked: Some(acked), stage, over } => {
                found.len() >= acked.len()
                    && (*stage != Stage::Sealed || found.len() == acked.len())
                    && over.differs(found, acked).is_none()
            }
            Self::Whole { bytes, .. } => *found == **bytes,
            Self::Appended { acked: None, .. } | Self::Removed => true,
        }
    }

    /// Whether the object must be there: its creation was acknowledged, or its first version.
    pub(super) const fn is_acknowledged(&self) -> bool {
        match self {
            Self::Register { acked, .. } => *acked > 0,
            Self::Appended { acked, .. } => acked.is_some(),
            Self::Whole { acked, .. } => *acked,
            Self::Removed => false,
        }
    }

    /// Whether the object that a user expected before may be removed or replaced; the expectation now is `after`.
    pub(super) fn may_end(&self, after: &Self) -> bool {
        match after {
            Self::Register { acked, tried } => self != after || acked != tried,
            Self::Appended { stage, .. } | Self::Whole { stage, .. } => *stage == Stage::Going,
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
            (Self::Register { acked: 0, .. } | Self::Whole { acked: false, .. }, None)
            | (Self::Removed | Self::Appended { acked: None, .. }, None)
            | (Self::Appended { acked: None, .. }, Some(_)) => Ok(()),
            (_, None) => match after {
                Self::Removed
                | Self::Appended { stage: Stage::Going, .. }
                | Self::Whole { stage: Stage::Going, .. } => Ok(()),
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
            (Self::Whole { bytes, .. }, Some(found)) => match found == &**bytes {
                true => Ok(()),
                false => Err(format!("has {} other bytes than the {}", found.len(), bytes.len())),
            },
            (Self::Appended { acked: Some(acked), stage, over }, Some(found)) => {
                let is_longer = *stage == Stage::Sealed && found.len() > acked.len();
                if found.len() < acked.len() || is_longer {
                    return Err(format!("has {} bytes of {}", found.len(), acked.len()));
                }
                match over.differs(found, acked) {
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
    // A rotten version may be any number.
    let len = 8 + (version.wrapping_mul(7919) as usize).wrapping_add(name.len() * 31) % 9_000;
    let salt = name.bytes().map(u64::from).sum::<u64>();
    bytes.extend(
        (8..len as u64).map(|i| (i * 31 + salt).wrapping_add(version.wrapping_mul(17)) as u8),
    );
    bytes
}
