//! The table of a store's devices, as an object keeps it.

use std::collections::BTreeMap;

use policy::contract::{Contract, Counted, Limit};

use super::super::{Error, HOLDER_NAME_MAX, Holder, Lease, Result};
use super::shape::{BLOCK, REGIONS_MAX, SIZE_MAX, Shape};

const MAGIC: [u8; 8] = *b"plimblok";
const VERSION: u32 = 2;
/// It has no leases, and still opens.
const VERSION_WITHOUT_LEASES: u32 = 1;
/// Magic, version, checksum of what follows.
const HEADER: usize = 16;
/// Stands for the number of limits of a device without a contract.
const NO_LIMIT: u16 = u16::MAX;
/// The longest name, in bytes.
const NAME_MAX: usize = 64;

/// A device's number, never used again: its objects' names begin with it.
pub(super) type Id = u32;

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) id: Id,
    /// In bytes, whole blocks.
    pub(super) size: u64,
    /// The size of its extents.
    pub(super) shape: Shape,
    /// What its clients get at most; `None` without a limit.
    pub(super) limit: Option<Contract>,
    /// Who may write to it.
    pub(super) lease: Lease,
}

/// The devices by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) devices: BTreeMap<String, Row>,
    /// The next device's number.
    pub(super) next: Id,
}

impl Table {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.next.to_le_bytes());
        out.extend_from_slice(&(self.devices.len() as u32).to_le_bytes());
        for (name, row) in &self.devices {
            let (limits, op_bytes_max) = match &row.limit {
                Some(contract) => (contract.limits.len() as u16, contract.op_bytes_max),
                None => (NO_LIMIT, 0),
            };
            out.extend_from_slice(&row.id.to_le_bytes());
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(&(row.shape.regions as u16).to_le_bytes());
            out.extend_from_slice(&row.size.to_le_bytes());
            out.extend_from_slice(&op_bytes_max.to_le_bytes());
            let sold = row.limit.as_ref().map_or("", |contract| &contract.name);
            out.extend_from_slice(&limits.to_le_bytes());
            out.extend_from_slice(&(sold.len() as u16).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(sold.as_bytes());
            for Limit { counts, rate_per_sec, depth } in row.limit.iter().flat_map(|l| &l.limits) {
                out.extend_from_slice(&(counts.index() as u32).to_le_bytes());
                out.extend_from_slice(&rate_per_sec.to_le_bytes());
                out.extend_from_slice(&depth.to_le_bytes());
            }
            let Lease { token, holder } = &row.lease;
            out.extend_from_slice(&token.to_le_bytes());
            let name = holder.as_ref().map_or("", |holder| &holder.name);
            out.extend_from_slice(&(name.len() as u32).to_le_bytes());
            if let Some(Holder { id, name }) = holder {
                out.extend_from_slice(id);
                out.extend_from_slice(name.as_bytes());
            }
        }
        let sum = crc32c::crc32c(&out[HEADER..]);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// # Errors
    /// `Corrupt`: these are not the bytes of a table that this program knows.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let wrong = |why: &str| Error::Corrupt(format!("the table of block devices {why}"));
        let (header, mut rest) =
            bytes.split_at_checked(HEADER).ok_or_else(|| wrong("is cut off"))?;
        if header[..8] != MAGIC {
            return Err(wrong("does not begin as one"));
        }
        let has_leases = header[8..12] == VERSION.to_le_bytes();
        if !has_leases && header[8..12] != VERSION_WITHOUT_LEASES.to_le_bytes() {
            return Err(wrong("is of a later version: use the program that wrote it"));
        }
        if header[12..] != crc32c::crc32c(rest).to_le_bytes() {
            return Err(wrong("fails its checksum"));
        }
        let next = take_u32(&mut rest);
        let count = take_u32(&mut rest);
        let (Some(next), Some(count)) = (next, count) else { return Err(wrong("is cut off")) };
        let mut devices = BTreeMap::new();
        for _ in 0..count {
            let (name, row) = take_row(&mut rest, has_leases).ok_or_else(|| wrong("is cut off"))?;
            devices.insert(name, row);
        }
        Ok(Self { devices, next })
    }
}

/// The lease of a device that was never taken. A later device of the same name gets other tokens, so a client that comes
/// back writes to none but its own.
pub(super) fn first_lease(id: Id) -> Lease {
    Lease { token: u64::from(id) << 32, holder: None }
}

fn take_row(rest: &mut &[u8], has_lease: bool) -> Option<(String, Row)> {
    let id = take_u32(rest)?;
    let (len, regions) = take_pair(rest)?;
    let (size, op_bytes_max) = (take_u64(rest)?, take_u64(rest)?);
    let (limits, sold) = take_pair(rest)?;
    let (name, sold) = (take_text(rest, len)?, take_text(rest, sold)?);
    let limit = match limits {
        NO_LIMIT => None,
        count => {
            let limits = (0..count).map(|_| take_limit(rest)).collect::<Option<_>>()?;
            Some(Contract { name: sold, limits, op_bytes_max, ..Contract::unlimited() })
        }
    };
    let limit = check_limit(limit).ok()?;
    let regions = u64::from(regions);
    let shape = (1..=REGIONS_MAX).contains(&regions).then_some(Shape { regions })?;
    let lease = if has_lease { take_lease(rest)? } else { first_lease(id) };
    Some((name, Row { id, size, shape, limit, lease }))
}

fn take_lease(rest: &mut &[u8]) -> Option<Lease> {
    let token = take_u64(rest)?;
    let len = usize::try_from(take_u32(rest)?).ok().filter(|&len| len <= HOLDER_NAME_MAX)?;
    if len == 0 {
        return Some(Lease { token, holder: None });
    }
    let (&id, after) = rest.split_first_chunk()?;
    *rest = after;
    let name = take_text(rest, len as u16)?;
    Some(Lease { token, holder: Some(Holder { id, name }) })
}

fn take_limit(rest: &mut &[u8]) -> Option<Limit> {
    let counts = *Counted::ALL.get(take_u32(rest)? as usize)?;
    let (rate_per_sec, depth) = (take_u64(rest)?, take_u64(rest)?);
    Some(Limit { counts, rate_per_sec, depth })
}

fn take_text(rest: &mut &[u8], len: u16) -> Option<String> {
    let (text, after) = rest.split_at_checked(usize::from(len))?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

/// Two numbers of two bytes each.
fn take_pair(rest: &mut &[u8]) -> Option<(u16, u16)> {
    let both = take_u32(rest)?;
    Some((both as u16, (both >> 16) as u16))
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*first))
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*first))
}

/// Checks the name of a new device.
///
/// # Errors
/// `Invalid`.
pub(super) fn check_name(name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "device name {name:?}: it must be 1 to {NAME_MAX} letters, digits and . _ -"
    )))
}

/// What the table keeps of the contract that is sold to a device's clients: its terms.
///
/// # Errors
/// `Invalid`: the table cannot hold it.
pub(super) fn check_limit(limit: Option<Contract>) -> Result<Option<Contract>> {
    let Some(Contract { name, limits, op_bytes_max, .. }) = limit else { return Ok(None) };
    let is_sound = |limit: &Limit| limit.rate_per_sec > 0 && limit.depth > 0;
    if name.len() > NAME_MAX || op_bytes_max == 0 || !limits.iter().all(is_sound) {
        return Err(Error::Invalid(format!(
            "contract {name:?}: its name may have {NAME_MAX} bytes, and each of its limits must be above 0"
        )));
    }
    Ok(Some(Contract { name, limits, op_bytes_max, ..Contract::unlimited() }))
}

/// Checks the size of a device.
///
/// # Errors
/// `Invalid`.
pub(super) fn check_size(size: u64) -> Result<()> {
    if (BLOCK..=SIZE_MAX).contains(&size) && size.is_multiple_of(BLOCK) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "size {size}: it must be 4 KiB to 1 PiB, in whole blocks of 4096 bytes"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Table {
        let shape = Shape { regions: 16 };
        let row = |id, size, limit, lease| Row { id, size, shape, limit, lease };
        let holder = Some(Holder { id: [7; 16], name: "host (/dev/nbd0)".into() });
        let limit = |counts| Limit { counts, rate_per_sec: 300, depth: 40 };
        let limits = vec![limit(Counted::Ops), limit(Counted::WriteBytes)];
        let limit = Contract { name: "gp3".into(), limits, ..Contract::unlimited() };
        let devices = [
            ("disk".to_owned(), row(3, 1 << 40, Some(limit), Lease { token: 2, holder })),
            ("other".to_owned(), row(1, 4096, None, Lease { token: 9, holder: None })),
        ];
        Table { devices: devices.into(), next: 4 }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        assert_eq!(Table::decode(&some().encode()).unwrap(), some());
        assert_eq!(Table::decode(&Table::default().encode()).unwrap(), Table::default());
    }

    #[test]
    fn a_table_with_a_flipped_bit_or_cut_off_is_refused() {
        let whole = some().encode();
        for at in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            assert!(matches!(Table::decode(&bytes), Err(Error::Corrupt(_))), "{at}");
        }
        for len in 0..whole.len() {
            assert!(matches!(Table::decode(&whole[..len]), Err(Error::Corrupt(_))), "{len}");
        }
    }

    #[test]
    fn names_sizes_and_limits_that_cannot_be_are_refused() {
        for bad in ["", "a/b", "ä", "a b", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("vm-1.root_disk").is_ok());
        for bad in [0, 1, 4095, 4097, SIZE_MAX + 4096] {
            assert!(check_size(bad).is_err(), "{bad}");
        }
        let named = |len| Contract { name: "x".repeat(len), ..Contract::unlimited() };
        assert!(check_limit(Some(named(65))).is_err());
        assert_eq!(check_limit(Some(named(64))).unwrap(), Some(named(64)));
        assert!(check_size(4096).is_ok() && check_size(SIZE_MAX).is_ok());
    }
}
