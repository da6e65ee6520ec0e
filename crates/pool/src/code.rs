//! The coder of erasure-coded objects: parity fragments from data fragments, and lost fragments from the others.
//!
//! [`policy::code`] says what each fragment holds, and is the oracle of the tests. This one is fast: the crate
//! `rusty_erasure` multiplies with the vector instructions that the processor has, chosen when a coder is made.
//! Everything here works on memory alone, and is pure.

use policy::placement::Code;
use rusty_erasure::Matrix;
use volume::{Error, ErrorKind, Result};

/// The most fragments of an object.
const FRAGMENTS_MAX: usize = (Code::DATA_MAX + Code::PARITY_MAX) as usize;

/// Reed–Solomon code with a fixed number of data and parity fragments. Any `data` different fragments of an object give
/// all others.
///
/// Fragments of a call have the same length in bytes: any, 0 included. Indices of fragments are 0.. for data, and
/// `data`.. for parity. After an error, no output has changed.
#[derive(Clone, Debug)]
pub struct Coder {
    data: usize,
    parity: usize,
    code: rusty_erasure::Coder,
}

impl Coder {
    /// A coder for objects of `data` data fragments and `parity` parity fragments.
    ///
    /// # Errors
    /// `Invalid`: outside the bounds of a [`Code`].
    pub fn new(data: usize, parity: usize) -> Result<Self> {
        Code::new(data as u64, parity as u64, Code::STRIP).map_err(|e| invalid(e.to_string()))?;
        // Some losses of 4 cannot be recovered with the Vandermonde matrix; with Cauchy's, all can.
        let matrix = Matrix::cauchy(data, parity).map_err(refused)?;
        let code = rusty_erasure::coder(matrix).map_err(refused)?;
        Ok(Self { data, parity, code })
    }

    /// Data fragments of an object.
    #[must_use]
    pub const fn data(&self) -> usize {
        self.data
    }

    /// Parity fragments of an object.
    #[must_use]
    pub const fn parity(&self) -> usize {
        self.parity
    }

    /// Overwrites all parity fragments with those of `data`.
    ///
    /// # Errors
    /// `Invalid`: not the coder's numbers of fragments, or they differ in length.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<()> {
        check_count("data", self.data, data.len())?;
        check_count("parity", self.parity, parity.len())?;
        check_lengths(lengths(data).chain(lengths(parity)))?;
        self.code.encode(data, parity).map_err(refused)
    }

    /// Overwrites the fragments `wanted` from `data` others, each with its index. With none wanted, only checks.
    ///
    /// # Errors
    /// `Invalid`: `have` is not the coder's number of data fragments; an index is not one of the code, or is given twice
    /// in `have` and `wanted` together; the fragments differ in length.
    pub fn recover(
        &self,
        have: &[(usize, &[u8])],
        wanted: &mut [(usize, &mut [u8])],
    ) -> Result<()> {
        check_count("remaining", self.data, have.len())?;
        self.check_indices(have.iter().map(|have| have.0).chain(wanted.iter().map(|want| want.0)))?;
        let have_lengths = have.iter().map(|have| have.1.len());
        check_lengths(have_lengths.chain(wanted.iter().map(|want| want.1.len())))?;
        if wanted.is_empty() {
            return Ok(());
        }
        let mut fragments = vec![None; self.data + self.parity];
        for &(index, bytes) in have {
            fragments[index] = Some(bytes);
        }
        let (indices, mut outputs): (Vec<usize>, Vec<&mut [u8]>) =
            wanted.iter_mut().map(|(index, bytes)| (*index, &mut **bytes)).unzip();
        self.code.recover(&fragments, &indices, &mut outputs).map_err(refused)
    }

    /// Changes all parity fragments as a change of data fragment `index` demands. `delta` is the xor of its old bytes
    /// and its new ones, for a part of the fragment or all of it; `parity` is the same part of each parity fragment.
    ///
    /// # Errors
    /// `Invalid`: `index` is not one of a data fragment; not the coder's number of parity fragments; the lengths differ.
    pub fn update(&self, index: usize, delta: &[u8], parity: &mut [&mut [u8]]) -> Result<()> {
        if index >= self.data {
            let last = self.data - 1;
            return Err(invalid(format!("data fragments have indices 0 to {last}, not {index}")));
        }
        check_count("parity", self.parity, parity.len())?;
        check_lengths(std::iter::once(delta.len()).chain(lengths(parity)))?;
        self.code.update(index, delta, parity).map_err(refused)
    }

    /// Whether all are indices of this code, and none is there twice.
    fn check_indices(&self, indices: impl Iterator<Item = usize>) -> Result<()> {
        let mut seen = [false; FRAGMENTS_MAX];
        for index in indices {
            if index >= self.data + self.parity {
                let last = self.data + self.parity - 1;
                return Err(invalid(format!("fragments have indices 0 to {last}, not {index}")));
            }
            if std::mem::replace(&mut seen[index], true) {
                return Err(invalid(format!("fragment {index} is given twice")));
            }
        }
        Ok(())
    }
}

fn check_count(which: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(invalid(format!("the code takes {expected} {which} fragments, not {got}")))
}

fn lengths(fragments: &[impl AsRef<[u8]>]) -> impl Iterator<Item = usize> {
    fragments.iter().map(|bytes| bytes.as_ref().len())
}

fn check_lengths(mut lengths: impl Iterator<Item = usize>) -> Result<()> {
    let first = lengths.next().unwrap_or_default();
    match lengths.find(|&len| len != first) {
        None => Ok(()),
        Some(other) => {
            Err(invalid(format!("fragments of {first} and of {other} bytes in one call")))
        }
    }
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

/// An error of `rusty_erasure`. The checks of this file leave it nothing to refuse.
fn refused(error: impl std::fmt::Display) -> Error {
    invalid(error.to_string())
}

#[cfg(test)]
mod tests;
