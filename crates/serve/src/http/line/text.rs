//! Escapes: the bytes they protect, and their removal.

use std::borrow::Cow;

/// Whether a backslash before `byte` protects it, in names and in the values of tags.
pub(super) fn is_protected(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'=')
}

/// A tag's key or value, or a field's name, unescaped.
pub(super) fn unescape_name(raw: &str) -> Cow<'_, str> {
    unescape(raw, is_protected)
}

/// A measurement, unescaped: an equals sign needs no escape there, so its backslash stays.
pub(super) fn unescape_measurement(raw: &str) -> Cow<'_, str> {
    unescape(raw, |byte| matches!(byte, b',' | b' '))
}

/// The text between quotes, unescaped.
pub(super) fn unescape_string(raw: &str) -> Cow<'_, str> {
    unescape(raw, |byte| matches!(byte, b'"' | b'\\'))
}

fn unescape(raw: &str, goes_before: impl Fn(u8) -> bool) -> Cow<'_, str> {
    let bytes = raw.as_bytes();
    let Some(first) = memchr::memchr(b'\\', bytes) else { return Cow::Borrowed(raw) };
    let mut text = String::with_capacity(raw.len());
    let (mut kept, mut at) = (0, first);
    while at + 1 < bytes.len() {
        if bytes[at] == b'\\' && goes_before(bytes[at + 1]) {
            // Protected bytes are ASCII, so both sides are whole characters.
            text.push_str(&raw[kept..at]);
            kept = at + 1;
            at += 2;
        } else {
            at += 1;
        }
    }
    text.push_str(&raw[kept..]);
    Cow::Owned(text)
}
