//! The parts of records, and their bytes.

use policy::placement::{Code, Fragment, Layout, VolumeId};
use volume::Name;

use super::{Committed, DecodeError};
use crate::leaf::Kind;
use crate::manifest::copies::{Copies, Placed};

const WHOLE: u8 = 0;
const STRIPED: u8 = 1;
const FRAGMENT: u8 = 2;

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_name(out: &mut Vec<u8>, name: &Name) {
    const { assert!(Name::LEN_MAX <= u8::MAX as usize) };
    out.push(name.as_str().len() as u8);
    out.extend_from_slice(name.as_str().as_bytes());
}

pub(super) fn put_pair(out: &mut Vec<u8>, tag: u8, from: &Name, to: &Name) {
    out.push(tag);
    put_name(out, from);
    put_name(out, to);
}

pub(super) fn put_layout(out: &mut Vec<u8>, layout: &Layout) {
    match layout {
        Layout::Whole { volume } => {
            out.push(WHOLE);
            put_u16(out, volume.0);
        }
        Layout::Striped { chunk, volumes } => {
            out.push(STRIPED);
            put_u64(out, *chunk);
            put_u16(out, volumes.len() as u16);
            volumes.iter().for_each(|volume| put_u16(out, volume.0));
        }
        Layout::Fragment(Fragment { volume, index, code, checksum }) => {
            out.push(FRAGMENT);
            put_u16(out, volume.0);
            out.extend_from_slice(&[*index, code.data() as u8, code.parity() as u8]);
            out.extend_from_slice(&(code.strip() as u32).to_le_bytes());
            put_u64(out, *checksum);
        }
    }
}

pub(super) fn put_placed(out: &mut Vec<u8>, placed: &Placed) {
    put_u64(out, placed.number);
    put_layout(out, &placed.layout);
}

pub(super) fn put_copies(out: &mut Vec<u8>, copies: &Copies) {
    put_u16(out, copies.count() as u16);
    copies.iter().for_each(|placed| put_placed(out, placed));
}

pub(super) fn put_committed(out: &mut Vec<u8>, committed: &Committed) {
    put_u64(out, committed.len);
    out.push(u8::from(committed.checksum.is_some()));
    if let Some(checksum) = committed.checksum {
        put_u64(out, checksum);
    }
}

/// The bytes still to be decoded.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub(super) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::OutOfRange { what: "a flag", value: value.into() }),
        }
    }

    pub(super) fn kind(&mut self) -> Result<Kind, DecodeError> {
        let code = self.u8()?;
        Kind::from_code(code)
            .ok_or(DecodeError::OutOfRange { what: "a kind of object", value: code.into() })
    }

    pub(super) fn name(&mut self) -> Result<Name, DecodeError> {
        let len = usize::from(self.u8()?);
        // Bytes that are not UTF-8 become a character that no name may have.
        let text = String::from_utf8_lossy(self.bytes(len)?);
        Name::new(&text).map_err(|e| DecodeError::Name(e.to_string()))
    }

    pub(super) fn committed(&mut self) -> Result<Committed, DecodeError> {
        let len = self.u64()?;
        let checksum = if self.flag()? { Some(self.u64()?) } else { None };
        Ok(Committed { len, checksum })
    }

    pub(super) fn placed(&mut self) -> Result<Placed, DecodeError> {
        Ok(Placed { number: self.u64()?, layout: self.layout()? })
    }

    pub(super) fn copies(&mut self) -> Result<Copies, DecodeError> {
        let count = self.u16()?;
        let placed = (0..count).map(|_| self.placed()).collect::<Result<Vec<_>, _>>()?;
        let none = DecodeError::OutOfRange { what: "a number of copies", value: 0 };
        let copies = Copies::of(placed).ok_or(none)?;
        let code = copies.code();
        if copies.iter().any(|placed| placed.code() != code) {
            return Err(DecodeError::Code("several kinds, or beside whole copies".into()));
        }
        Ok(copies)
    }

    pub(super) fn layout(&mut self) -> Result<Layout, DecodeError> {
        match self.u8()? {
            WHOLE => Ok(Layout::Whole { volume: VolumeId(self.u16()?) }),
            STRIPED => {
                let chunk = self.u64()?;
                if chunk == 0 {
                    return Err(DecodeError::OutOfRange { what: "a chunk", value: chunk });
                }
                let count = self.u16()?;
                if count < 2 {
                    let value = count.into();
                    return Err(DecodeError::OutOfRange { what: "a number of parts", value });
                }
                let volumes = (0..count).map(|_| Ok(VolumeId(self.u16()?)));
                let volumes = volumes.collect::<Result<_, DecodeError>>()?;
                Ok(Layout::Striped { chunk, volumes })
            }
            FRAGMENT => {
                let (volume, [index, data, parity]) = (VolumeId(self.u16()?), self.take()?);
                let strip = u32::from_le_bytes(self.take()?).into();
                let code = Code::new(data.into(), parity.into(), strip)
                    .map_err(|e| DecodeError::Code(e.to_string()))?;
                if usize::from(index) >= code.fragments() {
                    let value = index.into();
                    return Err(DecodeError::OutOfRange { what: "a fragment", value });
                }
                Ok(Layout::Fragment(Fragment { volume, index, code, checksum: self.u64()? }))
            }
            value => Err(DecodeError::OutOfRange { what: "a layout", value: value.into() }),
        }
    }
}
