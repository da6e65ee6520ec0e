//! The erasure code of sealed objects: what each parity fragment holds, byte by byte.
//!
//! An object is `data` fragments of equal length, and parity fragments of the same length beside them. Any `data`
//! different fragments give all others. The code is systematic Reed–Solomon over GF(2^8). Byte x of fragment `index` is
//!
//! ```text
//!   sum over c < data of  coefficient(data, index, c) * (byte x of data fragment c)
//!
//!   index < data    1 if index = c, else 0      the identity: data fragments are stored as they are
//!   index >= data   1 / (index xor c)           a Cauchy matrix: each of its square submatrices has an inverse
//! ```
//! Sums are xor, products are those of polynomials modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d). This is the convention of
//! Intel's ISA-L (`gf_gen_cauchy1_matrix`, `ec_encode_data`, <https://github.com/intel/isa-l>), so parity is equal to
//! ISA-L's byte for byte. A coefficient does not depend on the number of parity fragments.
//!
//! The functions here are slow, and plain enough to be checked by reading. They are the oracle that `pool::code` is
//! tested against; nothing else calls them.

/// The field's polynomial without its highest term, x^8.
const POLYNOMIAL: u8 = 0x1d;

/// `a * b` in GF(2^8).
#[must_use]
pub const fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = if a & 0x80 == 0 { a << 1 } else { (a << 1) ^ POLYNOMIAL };
        b >>= 1;
    }
    sum
}

/// `1 / a` in GF(2^8).
///
/// # Panics
/// When `a` is 0.
#[must_use]
pub fn inverse(a: u8) -> u8 {
    (1..=u8::MAX).find(|&b| product(a, b) == 1).expect("0 has no inverse")
}

/// The factor of data fragment `column` in fragment `index`, in a code of `data` data fragments.
///
/// # Panics
/// When `column` is not below `data`, or `index` is above 255.
#[must_use]
pub fn coefficient(data: usize, index: usize, column: usize) -> u8 {
    assert!(column < data && index < 256, "no factor of {column} in {index} for {data} fragments");
    if index < data { u8::from(index == column) } else { inverse((index ^ column) as u8) }
}

/// The parity fragment `j`, from 0, of these data fragments.
///
/// # Panics
/// When the fragments differ in length, or there are none.
#[must_use]
pub fn parity(j: usize, data: &[&[u8]]) -> Vec<u8> {
    let mut parity = vec![0; data[0].len()];
    for (column, fragment) in data.iter().enumerate() {
        add(&mut parity, coefficient(data.len(), data.len() + j, column), fragment);
    }
    parity
}

/// The fragment `wanted`, from `data` different ones and their indices: 0.. for data, `data`.. for parity.
///
/// # Panics
/// When there are not `data` fragments in `have`, two have the same index, or they differ in length.
#[must_use]
pub fn recover(data: usize, have: &[(usize, &[u8])], wanted: usize) -> Vec<u8> {
    assert_eq!(have.len(), data, "fragments to recover from");
    // Gauss–Jordan elimination. Each equation is the fragment's coefficients, followed by its bytes.
    let mut equations: Vec<Vec<u8>> = have
        .iter()
        .map(|&(index, bytes)| {
            let mut equation: Vec<u8> = (0..data).map(|c| coefficient(data, index, c)).collect();
            equation.extend_from_slice(bytes);
            equation
        })
        .collect();
    for column in 0..data {
        let pivot = (column..data)
            .find(|&row| equations[row][column] != 0)
            .expect("different fragments are independent");
        equations.swap(column, pivot);
        let scale = inverse(equations[column][column]);
        let solved: Vec<u8> = equations[column].iter().map(|&x| product(scale, x)).collect();
        for (row, equation) in equations.iter_mut().enumerate() {
            if row == column {
                equation.clone_from(&solved);
            } else {
                let factor = equation[column];
                add(equation, factor, &solved);
            }
        }
    }
    let solved: Vec<&[u8]> = equations.iter().map(|equation| &equation[data..]).collect();
    if wanted < data { solved[wanted].to_vec() } else { parity(wanted - data, &solved) }
}

/// `sum += factor * of`, byte by byte.
fn add(sum: &mut [u8], factor: u8, of: &[u8]) {
    assert_eq!(sum.len(), of.len(), "fragments of equal length");
    for (sum, &byte) in sum.iter_mut().zip(of) {
        *sum ^= product(factor, byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_field_of_0x11d() {
        assert_eq!(product(0x80, 2), 0x1d);
        let mut power = 1;
        let mut seen = [false; 256];
        for _ in 0..255 {
            assert!(!seen[usize::from(power)], "2 generates all 255 elements but 0");
            seen[usize::from(power)] = true;
            power = product(power, 2);
        }
        assert_eq!(power, 1);
        for a in 0..=u8::MAX {
            for b in 0..=u8::MAX {
                assert_eq!(product(a, b), product(b, a));
                assert_eq!(product(a, b ^ 0x53), product(a, b) ^ product(a, 0x53));
            }
            assert_eq!(product(a, 1), a);
        }
        for a in 1..=u8::MAX {
            assert_eq!(product(a, inverse(a)), 1);
        }
    }

    /// The lower rows of ISA-L 2.30.0's `gf_gen_cauchy1_matrix(a, 6, 4)`.
    #[test]
    fn has_the_matrix_of_isal() {
        let row = |index| [0, 1, 2, 3].map(|column| coefficient(4, index, column));
        assert_eq!(row(2), [0, 0, 1, 0]);
        assert_eq!(row(4), [0x47, 0xa7, 0x7a, 0xba]);
        assert_eq!(row(5), [0xa7, 0x47, 0xba, 0x7a]);
    }

    #[test]
    fn recovers_each_fragment_from_any_others() {
        let data: [&[u8]; 3] = [b"any thr", b"ee of f", b"ive do."];
        let parity = [parity(0, &data), parity(1, &data)];
        let all = [data[0], data[1], data[2], &parity[0], &parity[1]];
        for a in 0..5 {
            for b in 0..5 {
                for c in 0..5 {
                    if a == b || b == c || a == c {
                        continue;
                    }
                    let have = [(a, all[a]), (b, all[b]), (c, all[c])];
                    for (wanted, &bytes) in all.iter().enumerate() {
                        assert_eq!(recover(3, &have, wanted), bytes, "{wanted} from {a} {b} {c}");
                    }
                }
            }
        }
    }

    #[test]
    fn fragments_may_be_empty() {
        assert_eq!(parity(1, &[&[], &[], &[]]), []);
        assert_eq!(recover(2, &[(1, &[]), (2, &[])], 0), []);
    }
}
