//! The words of a call: numbers and options in them, and the errors about them.

use crate::resp::reply::Reply;

pub(super) fn wrong_arity(name: &str) -> Reply {
    Reply::error(format_args!("wrong number of arguments for '{name}' command"))
}

pub(super) fn syntax_error() -> Reply {
    Reply::error("syntax error")
}

/// The most bytes of a client's words that an error quotes.
pub(super) const SHOWN_BYTES_MAX: usize = 128;

pub(super) fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// The integer in a word.
pub(super) fn integer(word: &[u8]) -> Result<i64, Reply> {
    std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Reply::error("value is not an integer or out of range"))
}

/// The float in a word, including infinities.
pub(super) fn double(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// The sum of two integers; overflow is an error.
pub(super) fn sum(one: i64, other: i64) -> Result<i64, Reply> {
    let overflows = || Reply::error("increment or decrement would overflow");
    one.checked_add(other).ok_or_else(overflows)
}

/// The range from `start` to `end`, both included, of a sequence of length `len`. Negative ends count from the end; the
/// range is cut to the sequence.
pub(super) fn index_range(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_front = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let first = from_front(start).max(0);
    let behind = from_front(end).min(len - 1).max(-1) + 1;
    if first >= behind {
        return 0..0;
    }
    let index = |at| usize::try_from(at).expect("between zero and a length");
    index(first)..index(behind)
}

/// Redis' reply to an invalid expiry.
pub(super) fn invalid_expire_time(name: &str) -> Reply {
    Reply::error(format_args!("invalid expire time in '{name}' command"))
}

/// Whether a word is this option, ignoring case.
pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}
