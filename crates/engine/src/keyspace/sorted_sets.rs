//! Members in the order of their scores, and of their bytes where scores are equal.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::format::{self, Collection, Main, Value};
use super::transaction::successor;
use super::{Error, Result, Transaction};

impl Transaction<'_> {
    /// How many members the sorted set of `key` has; zero if there is none.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if `key` holds something else; what the store reports.
    pub fn sorted_len(&mut self, key: &[u8]) -> Result<u64> {
        Ok(self.sorted(key)?.map_or(0, |set| set.len))
    }

    /// The scores of these members, in their order.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_scores(&mut self, key: &[u8], members: &[Bytes]) -> Result<Vec<Option<f64>>> {
        self.assert_held(key);
        let Some(set) = self.sorted(key)? else { return Ok(vec![None; members.len()]) };
        self.scores_in(set, members)
    }

    /// Gives members their scores, none of them a NaN; the last one counts where a member is named
    /// twice. A sorted set that was not there is made. Says how many members are new, and how many had
    /// another score.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_put(&mut self, key: &[u8], scored: &[(Bytes, f64)]) -> Result<(u64, u64)> {
        let scored: BTreeMap<_, _> = scored.iter().cloned().collect();
        let (old, mut set) = self.sorted_opened(key)?;
        if scored.is_empty() {
            return Ok((0, 0));
        }
        let members: Vec<_> = scored.keys().cloned().collect();
        let before = match old {
            // Nobody ever wrote under a new id.
            None => vec![None; members.len()],
            Some(_) => self.scores_in(set, &members)?,
        };
        let (mut created, mut changed) = (0, 0);
        for ((member, score), before) in scored.into_iter().zip(before) {
            assert!(!score.is_nan(), "a NaN has no place in an order");
            match before {
                None => created += 1,
                Some(before) if before.to_bits() == score.to_bits() => continue,
                Some(before) => {
                    changed += u64::from(before != score);
                    self.delete_record(format::score_key(set.id, before, &member));
                }
            }
            let bits = Bytes::copy_from_slice(&score.to_le_bytes());
            self.put(format::member_key(set.id, &member), bits);
            self.put(format::score_key(set.id, score, &member), Bytes::new());
        }
        set.len += created;
        self.sorted_write(key, old.as_ref(), set);
        Ok((created, changed))
    }

    /// Removes members, and says how many there were. A sorted set that has no member left is gone.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_delete(&mut self, key: &[u8], members: &[Bytes]) -> Result<u64> {
        let (Some(old), mut set) = self.sorted_opened(key)? else { return Ok(0) };
        let mut members = members.to_vec();
        members.sort_unstable();
        members.dedup();
        let mut deleted = 0;
        for (score, member) in self.scores_in(set, &members)?.into_iter().zip(&members) {
            let Some(score) = score else { continue };
            self.delete_record(format::member_key(set.id, member));
            self.delete_record(format::score_key(set.id, score, member));
            deleted += 1;
        }
        if deleted == set.len {
            self.remove(key, &old)?;
        } else if deleted > 0 {
            set.len -= deleted;
            self.sorted_write(key, Some(&old), set);
        }
        Ok(deleted)
    }

    /// Members and scores in their order, or from the last on: those whose scores are in `scores`,
    /// without the first `skip` of them, and no more than `max`.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_range(
        &mut self,
        key: &[u8],
        scores: (Bound<f64>, Bound<f64>),
        reverse: bool,
        skip: usize,
        max: usize,
    ) -> Result<Vec<(Bytes, f64)>> {
        self.assert_held(key);
        let Some(set) = self.sorted(key)? else { return Ok(Vec::new()) };
        let range = format::scores_within(set.id, scores);
        let records = self.entries(&range, reverse, skip.saturating_add(max))?;
        let records = records.into_iter().skip(skip);
        Ok(records
            .filter_map(|(record, _)| format::read_score(&record))
            .map(|(score, member)| (member, score))
            .collect())
    }

    /// How many members have scores in `scores`.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_count(&mut self, key: &[u8], scores: (Bound<f64>, Bound<f64>)) -> Result<u64> {
        let Some(set) = self.sorted(key)? else { return Ok(0) };
        if scores == (Bound::Unbounded, Bound::Unbounded) {
            return Ok(set.len);
        }
        self.count_entries(&format::scores_within(set.id, scores))
    }

    /// Members in the order of their bytes, with their scores: those behind `after`, and no more than
    /// `max`.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_members(
        &mut self,
        key: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, f64)>> {
        let Some(set) = self.sorted(key)? else { return Ok(Vec::new()) };
        let mut range = format::members(set.id);
        if let Some(after) = after {
            range.from = successor(&format::member_key(set.id, after));
        }
        let entries = self.entries(&range, false, max)?.into_iter();
        let read = |(record, score): (Bytes, Bytes)| {
            Ok((format::element_name(&record), read_score(&record, &score)?))
        };
        entries.map(read).collect()
    }

    fn scores_in(&mut self, set: Collection, members: &[Bytes]) -> Result<Vec<Option<f64>>> {
        let records: Vec<_> =
            members.iter().map(|member| format::member_key(set.id, member)).collect();
        let scores = self.get_all(&records)?.into_iter().zip(&records);
        scores
            .map(|(score, record)| score.map(|score| read_score(record, &score)).transpose())
            .collect()
    }

    fn sorted(&mut self, key: &[u8]) -> Result<Option<Collection>> {
        match self.live(key)?.map(|main| main.value) {
            None => Ok(None),
            Some(Value::SortedSet(set)) => Ok(Some(set)),
            Some(_) => Err(Error::WrongKind),
        }
    }

    /// The sorted set for changing it, and its main record; a new one without any if there is none.
    fn sorted_opened(&mut self, key: &[u8]) -> Result<(Option<Main>, Collection)> {
        match self.opened(key)? {
            None => Ok((None, self.new_collection()?)),
            Some(main) => match main.value {
                Value::SortedSet(set) => Ok((Some(main), set)),
                _ => Err(Error::WrongKind),
            },
        }
    }

    fn sorted_write(&mut self, key: &[u8], old: Option<&Main>, set: Collection) {
        let expires = old.and_then(|old| old.expires);
        self.put_main(key, old, &Main { expires, value: Value::SortedSet(set) });
    }
}

fn read_score(record: &Bytes, score: &[u8]) -> Result<f64> {
    let bits = score.try_into().map_err(|_| {
        let record = record.escape_ascii();
        Error::Store(crate::kv::Error::Corrupt(format!(
            "the score at \"{record}\" is not readable"
        )))
    })?;
    Ok(f64::from_le_bytes(bits))
}
