//! Commands on sorted sets.

use std::ops::Bound;

use bytes::Bytes;
use engine::keyspace::Touch;

use super::row::{Command, Data, FIRST, Failure, Outcome, READS, READS_FAST, REMOVES, WRITES_FAST};
use super::words::{double, index_range, integer, is, syntax_error};
use crate::resp::reply::{Protocol, Reply};

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command::data("zadd", -4, WRITES_FAST, FIRST, Touch::Write, zadd).about(
        "sorted-set",
        "1.2.0",
        "Add one or more members to a sorted set, or update the score of existing members",
    ),
    Command::data("zcard", 2, READS_FAST, FIRST, Touch::Look, zcard).about(
        "sorted-set",
        "1.2.0",
        "Get the number of members in a sorted set",
    ),
    Command::data("zcount", 4, READS_FAST, FIRST, Touch::Read, zcount).about(
        "sorted-set",
        "2.0.0",
        "Count the members in a sorted set with scores within the given values",
    ),
    Command::data("zincrby", 4, WRITES_FAST, FIRST, Touch::Write, zincrby).about(
        "sorted-set",
        "1.2.0",
        "Increment the score of a member in a sorted set",
    ),
    Command::data("zmscore", -3, READS_FAST, FIRST, Touch::Read, zmscore).about(
        "sorted-set",
        "6.2.0",
        "Get the scores of the given members in a sorted set",
    ),
    Command::data("zrange", -4, READS, FIRST, Touch::Read, zrange).about(
        "sorted-set",
        "1.2.0",
        "Return a range of members in a sorted set",
    ),
    Command::data("zrangebyscore", -4, READS, FIRST, Touch::Read, zrangebyscore).about(
        "sorted-set",
        "1.0.5",
        "Return a range of members in a sorted set, by score",
    ),
    Command::data("zrem", -3, REMOVES, FIRST, Touch::Write, zrem).about(
        "sorted-set",
        "1.2.0",
        "Remove one or more members from a sorted set",
    ),
    Command::data("zrevrange", -4, READS, FIRST, Touch::Read, zrevrange).about(
        "sorted-set",
        "1.2.0",
        "Return a range of members in a sorted set, by index, from the highest score on",
    ),
    Command::data("zrevrangebyscore", -4, READS, FIRST, Touch::Read, zrevrangebyscore).about(
        "sorted-set",
        "2.2.0",
        "Return a range of members in a sorted set, by score, from the highest on",
    ),
    Command::data("zscore", 3, READS_FAST, FIRST, Touch::Read, zscore).about(
        "sorted-set",
        "1.2.0",
        "Get the score associated with the given member in a sorted set",
    ),
];

fn not_a_float() -> Reply {
    Reply::error("value is not a valid float")
}

/// The options of `ZADD`.
#[derive(Clone, Copy, Debug, Default)]
struct AddOptions {
    /// `NX`: only new members.
    new: bool,
    /// `XX`: only existing members.
    old: bool,
    /// `GT`: only raises the score of an existing member.
    higher: bool,
    /// `LT`: only lowers the score of an existing member.
    lower: bool,
    /// `CH`: reply the number of changed members, including new ones.
    changed: bool,
    /// `INCR`: adds to the member's score.
    add: bool,
}

impl AddOptions {
    /// Parses options from the front of `words`; returns the remaining words.
    fn read(mut words: &[Bytes]) -> Result<(Self, &[Bytes]), Failure> {
        let mut read = Self::default();
        while let [option, rest @ ..] = words {
            match &option.to_ascii_lowercase()[..] {
                b"nx" => read.new = true,
                b"xx" => read.old = true,
                b"gt" => read.higher = true,
                b"lt" => read.lower = true,
                b"ch" => read.changed = true,
                b"incr" => read.add = true,
                _ => break,
            }
            words = rest;
        }
        if read.new && read.old {
            const EITHER: &str = "XX and NX options at the same time are not compatible";
            return Err(Reply::error(EITHER).into());
        }
        if read.higher && read.lower || read.new && (read.higher || read.lower) {
            const EITHER: &str = "GT, LT, and/or NX options at the same time are not compatible";
            return Err(Reply::error(EITHER).into());
        }
        Ok((read, words))
    }

    /// The new score of a member; `None` if the options forbid the change.
    fn score(self, old: Option<f64>, given: f64) -> Option<f64> {
        let Some(old) = old else { return (!self.old).then_some(given) };
        let new = if self.add { old + given } else { given };
        let refused = self.new || self.higher && new <= old || self.lower && new >= old;
        (!refused).then_some(new)
    }
}

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member…`: replies the number of new members.
fn zadd(data: &mut Data<'_, '_>) -> Outcome {
    let key = &data.words[1];
    let (options, rest) = AddOptions::read(&data.words[2..])?;
    let (pairs, odd) = rest.as_chunks::<2>();
    if pairs.is_empty() || !odd.is_empty() {
        return Err(syntax_error().into());
    }
    if options.add && pairs.len() > 1 {
        const ONE: &str = "INCR option supports a single increment-element pair";
        return Err(Reply::error(ONE).into());
    }
    let mut given = Vec::with_capacity(pairs.len());
    for [score, member] in pairs {
        given.push((member.clone(), double(score).ok_or_else(not_a_float)?));
    }
    let members: Vec<_> = given.iter().map(|(member, _)| member.clone()).collect();
    let mut scores: std::collections::HashMap<_, _> =
        members.iter().cloned().zip(data.transaction.sorted_scores(key, &members)?).collect();
    let (mut created, mut changed) = (0, 0);
    let mut new_scores = Vec::with_capacity(given.len());
    for (member, given) in given {
        let old = scores.get(&member).copied().flatten();
        let Some(score) = options.score(old, given) else { continue };
        if score.is_nan() {
            return Err(Reply::error("resulting score is not a number (NaN)").into());
        }
        // A member named again exists by then, so it counts as changed.
        created += u64::from(old.is_none());
        changed += u64::from(old.is_some_and(|old| old != score));
        scores.insert(member.clone(), Some(score));
        new_scores.push((member, score));
    }
    let last = new_scores.last().map(|&(_, score)| score);
    if !new_scores.is_empty() {
        data.transaction.sorted_put(key, &new_scores)?;
    }
    Ok(match (options.add, options.changed) {
        (true, _) => last.map_or(Reply::Null, Reply::Double),
        (false, true) => Reply::count(created + changed),
        (false, false) => Reply::count(created),
    })
}

/// `ZINCRBY key number member`: replies the new score.
fn zincrby(data: &mut Data<'_, '_>) -> Outcome {
    let more = double(&data.words[2]).ok_or_else(not_a_float)?;
    let (key, member) = (&data.words[1], &data.words[3]);
    let old = score(data)?.unwrap_or(0.0);
    let sum = old + more;
    if sum.is_nan() {
        return Err(Reply::error("resulting score is not a number (NaN)").into());
    }
    data.transaction.sorted_put(key, &[(member.clone(), sum)])?;
    return Ok(Reply::Double(sum));

    fn score(data: &mut Data<'_, '_>) -> Result<Option<f64>, Failure> {
        Ok(data.transaction.sorted_scores(&data.words[1], &data.words[3..4])?[0])
    }
}

/// `ZCARD key`.
fn zcard(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::count(data.transaction.sorted_len(&data.words[1])?))
}

/// `ZSCORE key member`.
fn zscore(data: &mut Data<'_, '_>) -> Outcome {
    let score = data.transaction.sorted_scores(&data.words[1], &data.words[2..3])?[0];
    data.service.stats.looked_up(u64::from(score.is_some()), 1);
    Ok(score.map_or(Reply::Null, Reply::Double))
}

/// `ZMSCORE key member…`.
fn zmscore(data: &mut Data<'_, '_>) -> Outcome {
    let scores = data.transaction.sorted_scores(&data.words[1], &data.words[2..])?;
    Ok(Reply::Array(scores.into_iter().map(|s| s.map_or(Reply::Null, Reply::Double)).collect()))
}

/// `ZREM key member…`: replies the number of removed members.
fn zrem(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::count(data.transaction.sorted_delete(&data.words[1], &data.words[2..])?))
}

/// `ZCOUNT key min max`.
fn zcount(data: &mut Data<'_, '_>) -> Outcome {
    let scores = (bound(&data.words[2])?, bound(&data.words[3])?);
    Ok(Reply::count(data.transaction.sorted_count(&data.words[1], scores)?))
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`.
fn zrangebyscore(data: &mut Data<'_, '_>) -> Outcome {
    range(data, Form { by_score: true, ..Form::default() })
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`.
fn zrevrangebyscore(data: &mut Data<'_, '_>) -> Outcome {
    range(data, Form { by_score: true, reverse: true, ..Form::default() })
}

/// `ZREVRANGE key start stop [WITHSCORES]`.
fn zrevrange(data: &mut Data<'_, '_>) -> Outcome {
    range(data, Form { reverse: true, ..Form::default() })
}

/// `ZRANGE key start stop [BYSCORE] [REV] [LIMIT offset count] [WITHSCORES]`.
fn zrange(data: &mut Data<'_, '_>) -> Outcome {
    range(data, Form { chooses: true, ..Form::default() })
}

/// The kind of a range command.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    by_score: bool,
    reverse: bool,
    /// Whether options set these two.
    chooses: bool,
}

/// The options of a range command, after the two ends.
struct RangeOptions {
    form: Form,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl RangeOptions {
    fn read(mut words: &[Bytes], form: Form) -> Result<Self, Failure> {
        let mut read = Self { form, with_scores: false, limit: None };
        while let [option, rest @ ..] = words {
            words = rest;
            if is(option, "withscores") {
                read.with_scores = true;
            } else if form.chooses && is(option, "byscore") {
                read.form.by_score = true;
            } else if form.chooses && is(option, "rev") {
                read.form.reverse = true;
            } else if is(option, "limit")
                && let [offset, count, rest @ ..] = rest
            {
                words = rest;
                read.limit = Some((integer(offset)?, integer(count)?));
            } else {
                return Err(syntax_error().into());
            }
        }
        if read.limit.is_some() && !read.form.by_score {
            const ONLY: &str = "syntax error, LIMIT is only supported in combination with either \
                                BYSCORE or BYLEX";
            return Err(Reply::error(ONLY).into());
        }
        Ok(read)
    }
}

fn range(data: &mut Data<'_, '_>, form: Form) -> Outcome {
    let options = RangeOptions::read(&data.words[4..], form)?;
    let (key, first, second) = (&data.words[1], &data.words[2], &data.words[3]);
    let reverse = options.form.reverse;
    let members = if options.form.by_score {
        // In reverse order, the higher end comes first.
        let (min, max) = if reverse { (second, first) } else { (first, second) };
        let scores = (bound(min)?, bound(max)?);
        let (skip, max) = match options.limit {
            None => (0, usize::MAX),
            Some((skip, _)) if skip < 0 => (0, 0),
            // A negative count means no limit.
            Some((skip, max)) => (
                usize::try_from(skip).unwrap_or(usize::MAX),
                usize::try_from(max).unwrap_or(usize::MAX),
            ),
        };
        data.transaction.sorted_range(key, scores, reverse, skip, max)?
    } else {
        let (start, stop) = (integer(first)?, integer(second)?);
        let len = usize::try_from(data.transaction.sorted_len(key)?).unwrap_or(usize::MAX);
        let ranks = index_range(start, stop, len);
        let all = (Bound::Unbounded, Bound::Unbounded);
        data.transaction.sorted_range(key, all, reverse, ranks.start, ranks.len())?
    };
    data.service.stats.looked_up(u64::from(!members.is_empty()), 1);
    Ok(shown(members, options.with_scores, data.protocol))
}

/// Members, with their scores if requested: pairs in RESP3, a flat list in RESP2.
fn shown(members: Vec<(Bytes, f64)>, with_scores: bool, protocol: Protocol) -> Reply {
    let pair = |(member, score)| [Reply::Bulk(member), Reply::Double(score)];
    Reply::Array(match (with_scores, protocol) {
        (false, _) => members.into_iter().map(|(member, _)| Reply::Bulk(member)).collect(),
        (true, Protocol::Resp2) => members.into_iter().flat_map(pair).collect(),
        (true, Protocol::Resp3) => {
            members.into_iter().map(|member| Reply::Array(pair(member).into())).collect()
        }
    })
}

/// An end of a range of scores: `1.5`, `(1.5` excluding the score itself, `-inf`, `+inf`.
fn bound(word: &[u8]) -> Result<Bound<f64>, Reply> {
    let (number, excluded) = match word {
        [b'(', number @ ..] => (number, true),
        number => (number, false),
    };
    let number = double(number).ok_or_else(|| Reply::error("min or max is not a float"))?;
    Ok(if excluded { Bound::Excluded(number) } else { Bound::Included(number) })
}
