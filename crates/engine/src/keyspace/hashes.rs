//! Maps from fields to values.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::format::{self, Collection, Kind, Main, Value};
use super::records::successor;
use super::{Error, Result, Transaction};

impl Transaction<'_> {
    /// How many fields the hash of `key` has; zero if there is none.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if `key` holds something else; what the store reports.
    pub fn hash_len(&mut self, key: &[u8]) -> Result<u64> {
        Ok(self.len_of(key, Kind::Hash)?.unwrap_or(0))
    }

    /// The values of these fields, in their order.
    ///
    /// # Errors
    /// As [`Transaction::hash_len`].
    pub fn hash_get(&mut self, key: &[u8], fields: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        self.assert_held(key);
        let Some(hash) = self.hash(key)? else { return Ok(vec![None; fields.len()]) };
        let records: Vec<_> =
            fields.iter().map(|field| format::field_key(hash.id, field)).collect();
        self.read_all(&records)
    }

    /// How many bytes the value of a field has. The value is not kept, and counts against no limit.
    ///
    /// # Errors
    /// As [`Transaction::hash_len`].
    pub fn hash_value_len(&mut self, key: &[u8], field: &[u8]) -> Result<Option<u64>> {
        self.assert_held(key);
        let Some(hash) = self.hash(key)? else { return Ok(None) };
        let value = self.glance(&format::field_key(hash.id, field))?;
        Ok(value.map(|value| value.len() as u64))
    }

    /// All fields, in their order.
    ///
    /// # Errors
    /// As [`Transaction::hash_len`].
    pub fn hash_fields(&mut self, key: &[u8]) -> Result<Vec<Bytes>> {
        self.assert_held(key);
        let Some(hash) = self.hash(key)? else { return Ok(Vec::new()) };
        let (mut found, mut budget) = (Vec::new(), self.budget);
        self.walk(&format::fields(hash.id), false, usize::MAX, |record, _| {
            let field = format::element_name(&record);
            budget.take(1, field.len())?;
            found.push(field);
            Ok(())
        })?;
        self.budget = budget;
        Ok(found)
    }

    /// Fields and values in the order of the fields: those behind `after`, and no more than `max`.
    ///
    /// # Errors
    /// As [`Transaction::hash_len`].
    pub fn hash_entries(
        &mut self,
        key: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.assert_held(key);
        let Some(hash) = self.hash(key)? else { return Ok(Vec::new()) };
        let mut range = format::fields(hash.id);
        if let Some(after) = after {
            range.from = successor(&format::field_key(hash.id, after));
        }
        let (mut entries, mut budget) = (Vec::new(), self.budget);
        self.walk(&range, false, max, |record, value| {
            let field = format::element_name(&record);
            budget.take(2, field.len() + value.len())?;
            entries.push((field, value));
            Ok(())
        })?;
        self.budget = budget;
        Ok(entries)
    }

    /// Sets fields to their values, and says how many are new. The last value counts where a field is named twice. A
    /// hash that was not there is made.
    ///
    /// # Errors
    /// As [`Transaction::hash_len`].
    pub fn hash_set(&mut self, key: &[u8], entries: &[(Bytes, Bytes)]) -> Result<u64> {
        let old = self.hash_opened(key)?;
        let entries: BTreeMap<_, _> = entries.iter().cloned().collect();
        if entries.is_empty() {
            return Ok(0);
        }
        let hash = match &old {
            None => self.new_collection()?,
            Some((_, hash)) => *hash,
        };
        let records: Vec<_> =
            entries.keys().map(|field| format::field_key(hash.id, field)).collect();
        let created = match old {
            // A new id has no records yet.
            None => entries.len(),
            Some(_) => self.get_all(&records)?.iter().filter(|value| value.is_none()).count(),
        } as u64;
        let grown = hash.grown(key, created)?;
        for (record, value) in records.into_iter().zip(entries.into_values()) {
            self.put(record, value);
        }
        self.put_collection(key, old.map(|(main, _)| main), Value::Hash(grown));
        Ok(created)
    }

    /// Removes fields, and says how many there were. A hash that has no field left is gone.
    ///
    /// # Errors
    /// As [`Transaction::hash_len`].
    pub fn hash_delete(&mut self, key: &[u8], fields: &[Bytes]) -> Result<u64> {
        let Some((old, hash)) = self.hash_opened(key)? else { return Ok(0) };
        let mut records: Vec<_> =
            fields.iter().map(|field| format::field_key(hash.id, field)).collect();
        records.sort_unstable();
        records.dedup();
        let values = self.get_all(&records)?;
        let there = records.into_iter().zip(values).filter(|(_, value)| value.is_some());
        let there: Vec<_> = there.map(|(record, _)| record).collect();
        let deleted = there.len() as u64;
        let left = hash.shrunk(key, deleted)?;
        there.into_iter().for_each(|record| self.delete_record(record));
        match left {
            None => self.remove_main(key, &old),
            Some(left) if deleted > 0 => self.put_shrunk(key, &old, Value::Hash(left)),
            Some(_) => {}
        }
        Ok(deleted)
    }

    fn hash(&mut self, key: &[u8]) -> Result<Option<Collection>> {
        match self.live(key)?.map(|main| main.value) {
            None => Ok(None),
            Some(Value::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(Error::WrongKind),
        }
    }

    /// The hash for changing it, and its main record.
    fn hash_opened(&mut self, key: &[u8]) -> Result<Option<(Main, Collection)>> {
        match self.opened(key)? {
            None => Ok(None),
            Some(main) => match main.value {
                Value::Hash(hash) => Ok(Some((main, hash))),
                _ => Err(Error::WrongKind),
            },
        }
    }
}
