//! Columns of numbers: the smallest of a few codings.
//!
//! Short columns are packed in bits, as values or differences; long ones are coded by `pco` (Loncaric et al., "Pcodec:
//! Better Compression for Numerical Sequences", 2025). Readings are often rounded decimals: as integers these take a
//! fraction of the size of doubles.

use pco::ChunkConfig;
use pco::data_types::Number;
use pco::standalone::{simple_compress, simple_decompress_into};

use super::Bad;
use crate::series::batch::{put_varint, take_varint, unzigzag, zigzag};

/// The coding of a column: its first byte.
mod coding {
    /// One value for all.
    pub(super) const SAME: u8 = 0;
    /// The first value, and the constant difference between neighbours.
    pub(super) const STEPS: u8 = 1;
    /// The least value, and each value's excess over it in a fixed number of bits.
    pub(super) const PACKED: u8 = 2;
    /// The first value, the least difference, and each difference's excess over it in a fixed number of bits.
    pub(super) const DIFFERENCES: u8 = 3;
    /// `pco`, of integers or of doubles.
    pub(super) const PCO: u8 = 4;
    /// Doubles in their own eight bytes.
    pub(super) const RAW: u8 = 5;
    /// Added to the power of ten by which the integers that follow are divided.
    pub(super) const DECIMAL: u8 = 16;
}

/// Shorter columns do not go to `pco`: its header takes more than it saves.
const PCO_FROM: usize = 48;
/// Higher levels of `pco` gain a percent for several times the time.
const PCO_LEVEL: usize = 6;
/// Powers of ten to try.
const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Integers below this are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The most bytes that `count` numbers of at most `bits` bits take.
pub(super) fn bytes_max(count: usize, bits: usize) -> usize {
    // The coding, a varint and the width; or one varint more and one number less.
    (count * bits).div_ceil(8) + 24
}

/// Appends a column of integers.
pub(super) fn put_integers(into: &mut Vec<u8>, numbers: &[i64]) {
    let Some(&first) = numbers.first() else { return into.push(coding::SAME) };
    let steps = || numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let (least, most) = extremes(numbers.iter().copied());
    let (least_step, most_step) = extremes(steps());
    if least == most {
        into.push(coding::SAME);
        return put_varint(into, zigzag(first));
    }
    if least_step == most_step {
        into.push(coding::STEPS);
        put_varint(into, zigzag(first));
        return put_varint(into, zigzag(least_step));
    }
    let width = bits(most.wrapping_sub(least));
    let step_width = bits(most_step.wrapping_sub(least_step));
    let start = into.len();
    if step_width < width {
        into.push(coding::DIFFERENCES);
        put_varint(into, zigzag(first));
        put_varint(into, zigzag(least_step));
        pack(into, step_width, steps().map(|step| step.wrapping_sub(least_step) as u64));
    } else {
        into.push(coding::PACKED);
        put_varint(into, zigzag(least));
        pack(into, width, numbers.iter().map(|number| number.wrapping_sub(least) as u64));
    }
    if let Some(better) = compressed(numbers, into.len() - start) {
        into.truncate(start);
        into.push(coding::PCO);
        into.extend_from_slice(&better);
    }
}

/// Appends a column of doubles, without loss of any bit.
pub(super) fn put_floats(into: &mut Vec<u8>, numbers: &[f64]) {
    if let Some((power, scaled)) = decimals(numbers) {
        into.push(coding::DECIMAL + power as u8);
        return put_integers(into, &scaled);
    }
    match compressed(numbers, numbers.len() * 8) {
        Some(better) => {
            into.push(coding::PCO);
            into.extend_from_slice(&better);
        }
        None => {
            into.push(coding::RAW);
            numbers.iter().for_each(|number| into.extend(number.to_bits().to_le_bytes()));
        }
    }
}

fn compressed<T: Number>(numbers: &[T], than: usize) -> Option<Vec<u8>> {
    if numbers.len() < PCO_FROM {
        return None;
    }
    let config = ChunkConfig::default().with_compression_level(PCO_LEVEL);
    simple_compress(numbers, &config).ok().filter(|bytes| bytes.len() < than)
}

/// The numbers as integers, and the power of ten to divide them by, if that gives them back bit by bit.
fn decimals(numbers: &[f64]) -> Option<(usize, Vec<i64>)> {
    let scaled = |number: f64, power: f64| {
        let integer = (number * power).round();
        let exact = integer.abs() < EXACT && (integer / power).to_bits() == number.to_bits();
        // Integers have no negative zero.
        let is_negative_zero = integer == 0.0 && integer.is_sign_negative();
        (exact && !is_negative_zero).then_some(integer as i64)
    };
    // Start with the power that the first numbers need; the rest seldom need more.
    let mut power = 0;
    let mut integers = Vec::with_capacity(numbers.len());
    let mut at = 0;
    while at < numbers.len() {
        match scaled(numbers[at], POWERS[power]) {
            Some(integer) => {
                integers.push(integer);
                at += 1;
            }
            None => {
                let wider = (power + 1..POWERS.len())
                    .find(|&power| scaled(numbers[at], POWERS[power]).is_some())?;
                power = wider;
                integers.clear();
                at = 0;
            }
        }
    }
    Some((power, integers))
}

/// Decodes a column of `count` integers.
pub(super) fn take_integers(mut from: &[u8], count: usize) -> Result<Vec<i64>, Bad> {
    const BAD: Bad = Bad::Sense("integers");
    let (&how, rest) = from.split_first().ok_or(BAD)?;
    from = rest;
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut number = || take_varint(&mut from).map(unzigzag).ok_or(BAD);
    match how {
        coding::SAME => Ok(vec![number()?; count]),
        coding::STEPS => {
            let (first, step) = (number()?, number()?);
            let at = |at: usize| first.wrapping_add(step.wrapping_mul(at as i64));
            Ok((0..count).map(at).collect())
        }
        coding::PACKED => {
            let least = number()?;
            let unpacked = unpack(from, count).ok_or(BAD)?;
            Ok(unpacked.into_iter().map(|more| least.wrapping_add(more as i64)).collect())
        }
        coding::DIFFERENCES => {
            let (mut last, least) = (number()?, number()?);
            let mut numbers = Vec::with_capacity(count);
            numbers.push(last);
            for more in unpack(from, count - 1).ok_or(BAD)? {
                last = last.wrapping_add(least).wrapping_add(more as i64);
                numbers.push(last);
            }
            Ok(numbers)
        }
        coding::PCO => decompressed(from, count),
        _ => Err(BAD),
    }
}

/// Decodes a column of `count` doubles.
pub(super) fn take_floats(from: &[u8], count: usize) -> Result<Vec<f64>, Bad> {
    const BAD: Bad = Bad::Sense("floats");
    let (&how, rest) = from.split_first().ok_or(BAD)?;
    match how {
        coding::PCO => decompressed(rest, count),
        coding::RAW => {
            let (numbers, behind) = rest.as_chunks::<8>();
            if numbers.len() != count || !behind.is_empty() {
                return Err(BAD);
            }
            Ok(numbers.iter().map(|bits| f64::from_bits(u64::from_le_bytes(*bits))).collect())
        }
        _ => {
            let power = how.checked_sub(coding::DECIMAL).map(usize::from);
            let power = power.and_then(|power| POWERS.get(power)).ok_or(BAD)?;
            let integers = take_integers(rest, count)?;
            Ok(integers.into_iter().map(|integer| integer as f64 / power).collect())
        }
    }
}

fn decompressed<T: Number + Default>(from: &[u8], count: usize) -> Result<Vec<T>, Bad> {
    const BAD: Bad = Bad::Sense("compressed numbers");
    // `pco` writes whole batches of 256, or up to the end of the buffer.
    let mut numbers = vec![T::default(); count];
    let progress = simple_decompress_into(from, &mut numbers).map_err(|_| BAD)?;
    if progress.n_processed != count || !progress.finished {
        return Err(BAD);
    }
    Ok(numbers)
}

fn extremes(numbers: impl Iterator<Item = i64>) -> (i64, i64) {
    numbers
        .fold((i64::MAX, i64::MIN), |(least, most), number| (least.min(number), most.max(number)))
}

fn bits(range: i64) -> u32 {
    64 - (range as u64).leading_zeros()
}

/// Writes the width, then numbers of that many bits, the lowest bits first.
fn pack(into: &mut Vec<u8>, width: u32, numbers: impl Iterator<Item = u64>) {
    into.push(width as u8);
    let (mut held, mut count) = (0u128, 0);
    for number in numbers {
        held |= u128::from(number) << count;
        count += width;
        while count >= 8 {
            into.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        into.push(held as u8);
    }
}

fn unpack(from: &[u8], count: usize) -> Option<Vec<u64>> {
    let (&width, mut from) = from.split_first()?;
    let width = u32::from(width);
    if width > 64 || from.len() != (count * width as usize).div_ceil(8) {
        return None;
    }
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let (mut held, mut has) = (0u128, 0);
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        while has < width {
            let (&byte, rest) = from.split_first()?;
            from = rest;
            held |= u128::from(byte) << has;
            has += 8;
        }
        numbers.push(held as u64 & mask);
        held >>= width;
        has -= width;
    }
    Some(numbers)
}
