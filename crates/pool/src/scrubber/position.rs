//! Where a scrubber goes on after a restart, as text.

use std::time::Duration;

use super::Pass;
use crate::header::PoolId;
use crate::spread::ScrubPass;

/// The first line: the format.
const FORMAT: &str = "plimsoll scrub 1";

/// No object number, byte or second of a pass is beyond this: a larger one is damage, and adding to it would overflow.
const COUNT_MAX: u64 = 1 << 62;

/// The current pass of a pool, without its findings. A hint: without it the scrub of a pool begins anew.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// The pool.
    pub pool: PoolId,
    /// The pass.
    pub pass: Pass,
    /// When the last pass ended, as time since 1970.
    pub last_ended: Option<Duration>,
}

impl Position {
    /// The text that [`Position::parse`] reads.
    #[must_use]
    pub fn show(&self) -> String {
        let Self { pool, pass, last_ended } = self;
        let Pass {
            number, at, is_on_demand, began, ended, elapsed, damaged, repaired, unread, ..
        } = pass;
        let ScrubPass { next, end, objects, done, of } = at;
        let pace = if *is_on_demand { "on-demand" } else { "paced" };
        let seconds = |at: &Option<Duration>| at.map_or("-".into(), |at| at.as_secs().to_string());
        format!(
            "{FORMAT}\npool {:032x}\npass {number} {pace}\nobjects {next} {end}\nread {objects} {done} {of}\n\
             found {damaged} {repaired} {unread}\nseconds {} {} {} {}\n",
            pool.0,
            began.as_secs(),
            seconds(ended),
            elapsed.as_secs(),
            seconds(last_ended),
        )
    }

    /// Reads it; `None` if it is no such text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let lines: Vec<_> = text.lines().collect();
        let [FORMAT, pool, pass, range, read, found, seconds] = lines[..] else { return None };
        let pool = u128::from_str_radix(pool.strip_prefix("pool ")?, 16).ok()?;
        let (number, pace) = pass.strip_prefix("pass ")?.split_once(' ')?;
        let is_on_demand = match pace {
            "on-demand" => true,
            "paced" => false,
            _ => return None,
        };
        let [next, end] = numbers(range, "objects ")?;
        let [objects, done, of] = numbers(read, "read ")?;
        let [damaged, repaired, unread] = numbers(found, "found ")?;
        let times: Vec<_> = seconds.strip_prefix("seconds ")?.split(' ').map(time).collect();
        let [Some(Some(began)), Some(ended), Some(Some(elapsed)), Some(last_ended)] = times[..]
        else {
            return None;
        };
        let at = ScrubPass { next, end, objects, done, of };
        let number = count(number)?;
        let findings = Vec::new();
        let pass = Pass {
            number,
            at,
            is_on_demand,
            began,
            ended,
            elapsed,
            damaged,
            repaired,
            unread,
            findings,
        };
        Some(Self { pool: PoolId(pool), pass, last_ended })
    }
}

fn numbers<const N: usize>(line: &str, name: &str) -> Option<[u64; N]> {
    let words = line.strip_prefix(name)?.split(' ');
    let numbers: Vec<u64> = words.map(count).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// A number that a pass can count on from.
fn count(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number <= COUNT_MAX)
}

/// A number of seconds, or `-`; `None` if it is neither.
fn time(word: &str) -> Option<Option<Duration>> {
    match word {
        "-" => Some(None),
        word => count(word).map(|seconds| Some(Duration::from_secs(seconds))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_as_it_was() {
        let at = ScrubPass { next: 17, end: 90, objects: 3, done: 4096, of: 1 << 40 };
        let (began, elapsed) = (Duration::from_secs(1_700_000_000), Duration::from_secs(60));
        let pass = Pass { number: 2, at, began, elapsed, damaged: 1, unread: 4, ..Pass::default() };
        let paced = Position { pool: PoolId(7 << 100), pass, last_ended: None };
        let ended = Some(Duration::from_secs(1_700_000_001));
        let on_demand = Position {
            pass: Pass { is_on_demand: true, ended, repaired: 1, ..paced.pass.clone() },
            last_ended: ended,
            ..paced.clone()
        };
        for position in [paced, on_demand] {
            let text = position.show();
            assert_eq!(Position::parse(&text), Some(position), "{text}");
            let too_large = format!(" {} ", u64::MAX);
            let wrong = [
                String::new(),
                text[1..].to_owned(),
                text.replace(" 17 ", " x "),
                text.replace(" 17 ", &too_large),
                text.replace(" 60 ", &too_large),
                format!("{text}more\n"),
            ];
            for wrong in wrong {
                assert_eq!(Position::parse(&wrong), None, "{wrong}");
            }
        }
    }
}
