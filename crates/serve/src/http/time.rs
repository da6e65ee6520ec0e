//! Instants as text: RFC 3339, in UTC, to the nanosecond.
//!
//! Nanoseconds since 1970 in 64 bits reach from 1677 to 2262. The calendar is the proleptic Gregorian one, computed in
//! eras of 400 years that begin in March (H. Hinnant, "chrono-compatible low-level date algorithms").

use std::fmt;

const NANOS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;
/// Days from the first of March of the year 0 to 1970.
const EPOCH_DAYS: i64 = 719_468;
const ERA_DAYS: i64 = 146_097;

/// Nanoseconds since 1970, shown as RFC 3339 with as many decimals of the second as needed.
pub(super) struct Rfc3339(pub(super) i64);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.div_euclid(NANOS), self.0.rem_euclid(NANOS));
        let (days, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if nanos != 0 {
            let digits = format!("{nanos:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Reads a date, a date and a time (`2026-01-31 09:30:00.5`), or RFC 3339 with its zone. `None` if it is invalid, or
/// does not fit in 64 bits.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    let year = number(text.get(..4)?)?;
    let month = number(text.get(4..7)?.strip_prefix('-')?)?;
    let day = number(text.get(7..10)?.strip_prefix('-')?)?;
    let month_has = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=month_has).contains(&day) {
        return None;
    }
    let mut seconds = days(year, month, day) * DAY_SECONDS;
    let mut nanos = 0;
    if let Some(clock) = text.get(10..).filter(|rest| !rest.is_empty()) {
        let clock = clock.strip_prefix(['T', 't', ' '])?;
        let hour = number(clock.get(..2)?)?;
        let minute = number(clock.get(2..5)?.strip_prefix(':')?)?;
        let (second, rest) = match clock.get(5..).unwrap_or_default() {
            rest if rest.starts_with(':') => (number(rest.get(1..3)?)?, rest.get(3..)?),
            rest => (0, rest),
        };
        // A leap second counts as the second after it.
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let (fraction, zone) = match rest.strip_prefix('.') {
            Some(rest) => {
                rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()))
            }
            None => ("0", rest),
        };
        if fraction.is_empty() {
            return None;
        }
        let digits = &fraction[..fraction.len().min(9)];
        nanos = number(digits)? * 10_i64.pow(9 - u32::try_from(digits.len()).ok()?);
        seconds += hour * 3600 + minute * 60 + second - zone_seconds(zone)?;
    }
    i64::try_from(i128::from(seconds) * i128::from(NANOS) + i128::from(nanos)).ok()
}

/// The offset of a zone from UTC, positive if ahead.
fn zone_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "" | "Z" | "z") {
        return Some(0);
    }
    let ahead = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = number(zone.get(1..3)?)?;
    let minutes = zone.get(3..)?;
    let minutes = number(minutes.strip_prefix(':').unwrap_or(minutes))?;
    (hours < 24 && minutes < 60).then_some(ahead * (hours * 3600 + minutes * 60))
}

fn number(digits: &str) -> Option<i64> {
    // `parse` would accept a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Days since 1970.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAYS
}

/// Year, month and day of the day `days` after 1970 began.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let era = days.div_euclid(ERA_DAYS);
    let of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Rfc3339, parse};

    #[test]
    fn known_instants_are_read_and_written() {
        for (text, nanos) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:30:15.5Z", 951_827_415_500_000_000),
            ("1969-12-31T23:59:59.999999999Z", -1),
            ("1677-09-21T00:12:43.145224194Z", i64::MIN + 2),
            ("2262-04-11T23:47:16.854775807Z", i64::MAX),
        ] {
            assert_eq!(parse(text), Some(nanos), "{text}");
            assert_eq!(Rfc3339(nanos).to_string(), text);
        }
    }

    #[test]
    fn dates_times_and_zones_are_read() {
        for (text, same) in [
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("2026-01-31 09:30:00.250", "2026-01-31T09:30:00.25Z"),
            ("2026-01-31T09:30", "2026-01-31T09:30:00Z"),
            ("2026-01-31T09:30:00+01:30", "2026-01-31T08:00:00Z"),
            ("2026-01-31T23:30:00-0130", "2026-02-01T01:00:00Z"),
            ("2026-01-31T09:30:00.1234567891Z", "2026-01-31T09:30:00.123456789Z"),
        ] {
            assert_eq!(Rfc3339(parse(text).expect(text)).to_string(), same, "{text}");
        }
        for wrong in [
            "",
            "now",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-01-31T",
            "2026-01-31T24:00:00Z",
            "2026-01-31T09:30:00.Z",
            "2026-01-31T09:30:00X",
            "2026-01-31T09:30:00+1",
            "+026-01-01",
            "3000-01-01",
            "2026-01-31é",
            "0001-01-01",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(nanos: i64) {
            prop_assert_eq!(parse(&Rfc3339(nanos).to_string()), Some(nanos));
        }
    }
}
