//! Sizes and durations in the notation of settings.

use std::time::Duration;

use bytesize::ByteSize;
use policy::units::{GIB, KIB, MIB};

pub(super) const SIZE: &str = "a size with its unit, such as \"64MiB\"";
pub(super) const DURATION: &str = "a duration with its unit, such as \"100ms\" or \"1s\"";

/// The bytes of `text`; `None` without a unit, since a bare number is ambiguous.
pub(crate) fn size(text: &str) -> Option<u64> {
    let unit = text.trim_end().chars().next_back()?;
    if !unit.is_ascii_alphabetic() {
        return None;
    }
    text.parse().ok().map(|ByteSize(bytes)| bytes)
}

/// `bytes` in the largest unit that keeps them whole: [`size`] reads the same number.
pub(super) fn show_size(bytes: u64) -> String {
    let units = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B")];
    let whole = units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit) && bytes >= *unit);
    let (unit, name) = whole.unwrap_or(&(1, "B"));
    format!("\"{}{name}\"", bytes / unit)
}

/// The duration of `text`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

/// A duration as [`duration`] reads it.
pub(super) fn show_duration(duration: Duration) -> String {
    format!("\"{}\"", humantime::format_duration(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_back_as_they_went() {
        for bytes in [0, 1, 1023, 1024, 1536, 64 * MIB, 3 * GIB, GIB + 1] {
            assert_eq!(size(show_size(bytes).trim_matches('"')), Some(bytes));
        }
        assert_eq!(show_size(512 * MIB), "\"512MiB\"");
        assert_eq!(show_size(1536 * MIB), "\"1536MiB\"");
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(size("1.5 GiB"), Some(GIB + GIB / 2));
        assert_eq!(size("1kB"), Some(1000));
        for wrong in ["512", "", "MiB", "12 parsecs", "-1MiB"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_come_back_as_they_went() {
        for ms in [0, 1, 100, 1000, 90_000] {
            let wait = Duration::from_millis(ms);
            assert_eq!(duration(show_duration(wait).trim_matches('"')), Some(wait));
        }
        assert_eq!(duration("5"), None);
    }
}
