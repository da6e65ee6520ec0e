//! Commands on keys and their values.

use bytes::Bytes;
use engine::kv::Change;

use super::Call;
use crate::resp::reply::Reply;

/// `SET key value`. Options (expiry, conditions) are a syntax error: better than dropping them.
pub(super) fn set(words: &[Bytes]) -> Result<Change, Reply> {
    match words {
        [_, key, value] => Ok(Change::Put(key.clone(), value.clone())),
        _ => Err(Reply::error("syntax error")),
    }
}

/// `DEL key…`, `UNLINK key…`: how many there were.
pub(super) fn del(call: &mut Call<'_>) -> Reply {
    match call.service.store.delete_existing(&call.words[1..]) {
        Ok(deleted) => Reply::count(deleted),
        Err(error) => error.into(),
    }
}

/// `EXISTS key…`: how many there are, a key named twice counting twice.
pub(super) fn exists(call: &mut Call<'_>) -> Reply {
    match call.service.store.get_many(&call.words[1..]) {
        Ok(values) => Reply::count(values.iter().flatten().count() as u64),
        Err(error) => error.into(),
    }
}
