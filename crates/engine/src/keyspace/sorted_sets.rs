//! Members in the order of their scores, and of their bytes where scores are equal.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::format::{self, Collection, Kind, Main, Value};
use super::records::{successor, unreadable};
use super::{Error, Result, Transaction};

impl Transaction<'_> {
    /// How many members the sorted set of `key` has; zero if there is none.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if `key` holds something else; what the store reports.
    pub fn sorted_len(&mut self, key: &[u8]) -> Result<u64> {
        Ok(self.len_of(key, Kind::SortedSet)?.unwrap_or(0))
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

    /// Sets the scores of members; the last one counts where a member is named twice, and a zero has no sign. A sorted
    /// set that was not there is made. Says how many members are new, and how many had another score.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    ///
    /// # Panics
    /// If a score is a NaN.
    pub fn sorted_put(&mut self, key: &[u8], scored: &[(Bytes, f64)]) -> Result<(u64, u64)> {
        assert!(scored.iter().all(|(_, score)| !score.is_nan()), "a NaN has no place in an order");
        // Adding zero drops the sign of a zero, which the order does not know.
        let scored: BTreeMap<_, _> =
            scored.iter().map(|(member, score)| (member.clone(), score + 0.0)).collect();
        let old = self.sorted_opened(key)?;
        if scored.is_empty() {
            return Ok((0, 0));
        }
        let set = match &old {
            None => self.new_collection()?,
            Some((_, set)) => *set,
        };
        let members: Vec<_> = scored.keys().cloned().collect();
        let before = match old {
            // A new id has no records yet.
            None => vec![None; members.len()],
            Some(_) => self.scores_in(set, &members)?,
        };
        let created = before.iter().filter(|before| before.is_none()).count() as u64;
        let grown = set.grown(key, created)?;
        let mut changed = 0;
        for ((member, score), before) in scored.into_iter().zip(before) {
            match before {
                None => {}
                Some(before) if before == score => continue,
                Some(before) => {
                    changed += 1;
                    self.delete_record(format::score_key(set.id, before, &member));
                }
            }
            let bits = Bytes::copy_from_slice(&score.to_le_bytes());
            self.put(format::member_key(set.id, &member), bits);
            self.put(format::score_key(set.id, score, &member), Bytes::new());
        }
        if created + changed > 0 {
            self.put_collection(key, old.map(|(main, _)| main), Value::SortedSet(grown));
        }
        Ok((created, changed))
    }

    /// Removes members, and says how many there were. A sorted set that has no member left is gone.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_delete(&mut self, key: &[u8], members: &[Bytes]) -> Result<u64> {
        let Some((old, set)) = self.sorted_opened(key)? else { return Ok(0) };
        let mut members = members.to_vec();
        members.sort_unstable();
        members.dedup();
        let scores = self.scores_in(set, &members)?;
        let deleted = scores.iter().filter(|score| score.is_some()).count() as u64;
        let left = set.shrunk(key, deleted)?;
        for (score, member) in scores.into_iter().zip(&members) {
            let Some(score) = score else { continue };
            self.delete_record(format::member_key(set.id, member));
            self.delete_record(format::score_key(set.id, score, member));
        }
        match left {
            None => self.remove_main(key, &old),
            Some(left) if deleted > 0 => self.put_shrunk(key, &old, Value::SortedSet(left)),
            Some(_) => {}
        }
        Ok(deleted)
    }

    /// Members and scores in their order, or in reverse: those with scores in `scores`, without the first `skip` of
    /// them, and no more than `max`. Skipped members are read as well.
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
        let (mut found, mut skipped, mut budget) = (Vec::new(), 0, self.budget);
        self.walk(&range, reverse, skip.saturating_add(max), |record, _| {
            if skipped < skip {
                skipped += 1;
                return Ok(());
            }
            let scored = format::read_score(&record);
            let (score, member) = scored.ok_or_else(|| unreadable("score", &record))?;
            budget.take(1, member.len())?;
            found.push((member, score));
            Ok(())
        })?;
        self.budget = budget;
        Ok(found)
    }

    /// How many members have scores in `scores`.
    ///
    /// # Errors
    /// As [`Transaction::sorted_len`].
    pub fn sorted_count(&mut self, key: &[u8], scores: (Bound<f64>, Bound<f64>)) -> Result<u64> {
        self.assert_held(key);
        let Some(set) = self.sorted(key)? else { return Ok(0) };
        if scores == (Bound::Unbounded, Bound::Unbounded) {
            return Ok(set.len);
        }
        let mut counted = 0;
        self.walk(&format::scores_within(set.id, scores), false, usize::MAX, |_, _| {
            counted += 1;
            Ok(())
        })?;
        Ok(counted)
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
        self.assert_held(key);
        let Some(set) = self.sorted(key)? else { return Ok(Vec::new()) };
        let mut range = format::members(set.id);
        if let Some(after) = after {
            range.from = successor(&format::member_key(set.id, after));
        }
        let (mut found, mut budget) = (Vec::new(), self.budget);
        self.walk(&range, false, max, |record, score| {
            let member = format::element_name(&record);
            budget.take(1, member.len())?;
            found.push((member, read_score(&record, &score)?));
            Ok(())
        })?;
        self.budget = budget;
        Ok(found)
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

    /// The sorted set for changing it, and its main record.
    fn sorted_opened(&mut self, key: &[u8]) -> Result<Option<(Main, Collection)>> {
        match self.opened(key)? {
            None => Ok(None),
            Some(main) => match main.value {
                Value::SortedSet(set) => Ok(Some((main, set))),
                _ => Err(Error::WrongKind),
            },
        }
    }
}

/// The score that the record of a member holds.
fn read_score(record: &[u8], score: &[u8]) -> Result<f64> {
    let score = score.try_into().map(f64::from_le_bytes);
    let score = score.ok().filter(|score| !score.is_nan());
    score.ok_or_else(|| unreadable("score", record))
}
