//! Authentication by token, in every form that clients of InfluxDB use.
//!
//! | sent | token |
//! |---|---|
//! | `Authorization: Token T`, `Bearer T` | `T`; of `user:T`, as clients of 1.8 send it, what follows the colon |
//! | `Authorization: Basic …` | the password |
//! | `?u=user&p=T` | `p` |
//!
//! Without tokens a listener is on loopback, and every request is accepted except those of web pages: a browser would
//! let any page write.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::RwLock;

use super::params::Params;
use crate::{May, Secret};

/// A token, and the rights it gives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Token {
    /// The secret that the client sends.
    pub secret: Secret,
    /// The client's rights.
    pub grant: Grant,
}

impl Token {
    /// A token with all rights.
    #[must_use]
    pub fn full(secret: impl Into<String>) -> Self {
        Self { secret: Secret::new(secret), grant: Grant::default() }
    }
}

/// The tokens of a listener. They may change while clients are connected: each request is checked against the current
/// ones.
#[derive(Debug)]
pub struct Tokens(RwLock<Arc<[Token]>>);

impl Tokens {
    pub(super) fn new(tokens: Vec<Token>) -> Self {
        Self(RwLock::new(tokens.into()))
    }

    /// Replaces the tokens for all requests from now on.
    pub fn replace(&self, tokens: Vec<Token>) {
        *self.0.write() = tokens.into();
    }

    /// The current tokens.
    pub(super) fn now(&self) -> Arc<[Token]> {
        Arc::clone(&self.0.read())
    }
}

/// The rights of a client. Default: all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grant {
    /// The kinds of requests.
    pub may: May,
    /// The databases; `None` for all.
    pub databases: Option<Vec<String>>,
}

/// A right that a token does not give.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Forbidden {
    #[error("forbidden: this token may not {0}")]
    Kind(&'static str),
    #[error("forbidden: this token has no right to the database {0:?}")]
    Database(String),
}

impl Grant {
    /// Checks the right to read.
    pub(super) fn read(&self) -> Result<(), Forbidden> {
        if self.may.reads() { Ok(()) } else { Err(Forbidden::Kind("read")) }
    }

    /// Checks the right to write points.
    pub(super) fn write(&self) -> Result<(), Forbidden> {
        if self.may.writes() { Ok(()) } else { Err(Forbidden::Kind("write")) }
    }

    /// Checks the right to create and change databases, and to delete points.
    pub(super) fn change(&self) -> Result<(), Forbidden> {
        let all = self.may == May::All;
        if all { Ok(()) } else { Err(Forbidden::Kind("change or delete what is stored")) }
    }

    /// Whether it covers a database.
    pub(super) fn reaches(&self, database: &str) -> bool {
        self.databases.as_ref().is_none_or(|known| known.iter().any(|name| name == database))
    }

    /// As [`Grant::reaches`], with the error for the client.
    pub(super) fn database(&self, database: &str) -> Result<(), Forbidden> {
        let reaches = self.reaches(database);
        if reaches { Ok(()) } else { Err(Forbidden::Database(database.to_owned())) }
    }
}

/// Why a request is not accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stranger {
    /// No token, or a wrong one.
    Unknown,
    /// A web page, at a listener without tokens.
    Page,
}

/// Accepts a request with one of `tokens`, and returns its rights.
pub(super) fn check(
    tokens: &[Token],
    headers: &HeaderMap,
    params: &Params,
) -> Result<Grant, Stranger> {
    if tokens.is_empty() {
        let page = headers.contains_key(header::ORIGIN);
        return if page { Err(Stranger::Page) } else { Ok(Grant::default()) };
    }
    let shown = shown(headers).or_else(|| params.get("p").map(str::to_owned));
    let shown = shown.ok_or(Stranger::Unknown)?;
    let after_colon = shown.split_once(':').map(|(_, token)| token);
    // Compares every token, even after a match, so that the time tells nothing.
    let is = |secret: &Secret| {
        secret.is(shown.as_bytes()) | after_colon.is_some_and(|token| secret.is(token.as_bytes()))
    };
    let known = tokens.iter().fold(None, |known, token| {
        let right = is(&token.secret);
        known.or(right.then_some(&token.grant))
    });
    known.cloned().ok_or(Stranger::Unknown)
}

fn shown(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, shown) = value.split_once(' ')?;
    let shown = shown.trim();
    match scheme.to_ascii_lowercase().as_str() {
        "token" | "bearer" => Some(shown.to_owned()),
        "basic" => {
            let decoded = String::from_utf8(STANDARD.decode(shown).ok()?).ok()?;
            Some(decoded.split_once(':')?.1.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, authorization.parse().expect("a header"));
        headers
    }

    #[test]
    fn a_token_is_taken_in_every_way_it_is_sent() {
        let tokens = [Token::full("one"), Token::full("t:wo")];
        let none = Params::default();
        // user:one
        for good in
            ["Token one", "bearer one", "Token user:one", "Token t:wo", "Basic dXNlcjpvbmU="]
        {
            assert_eq!(check(&tokens, &headers(good), &none), Ok(Grant::default()), "{good}");
        }
        for bad in ["Token", "Token on", "Token one:", "Basic one", "Basic dXNlcg==", "Digest one"]
        {
            assert_eq!(check(&tokens, &headers(bad), &none), Err(Stranger::Unknown), "{bad}");
        }
        let empty = HeaderMap::new();
        let all = Ok(Grant::default());
        assert_eq!(check(&tokens, &empty, &Params::of(Some("u=x&p=one"), b"")), all);
        assert_eq!(check(&tokens, &empty, &Params::of(Some("u=one"), b"")), Err(Stranger::Unknown));
    }

    #[test]
    fn each_token_is_good_for_what_it_was_given_for() {
        let reads = Grant { may: May::Read, databases: Some(vec!["plant".into()]) };
        let tokens = [Token { secret: Secret::new("r"), grant: reads.clone() }, Token::full("all")];
        let known =
            |token: &str| check(&tokens, &headers(&format!("Token {token}")), &Params::default());
        assert_eq!(known("r"), Ok(reads.clone()));
        assert_eq!(known("all"), Ok(Grant::default()));
        assert_eq!((reads.read(), reads.database("plant")), (Ok(()), Ok(())));
        assert_eq!(reads.write(), Err(Forbidden::Kind("write")));
        reads.change().expect_err("it may read");
        assert_eq!(reads.database("other"), Err(Forbidden::Database("other".into())));
    }

    #[test]
    fn without_tokens_only_pages_are_turned_away() {
        let mut headers = HeaderMap::new();
        assert_eq!(check(&[], &headers, &Params::default()), Ok(Grant::default()));
        headers.insert(header::ORIGIN, "http://example.org".parse().expect("a header"));
        assert_eq!(check(&[], &headers, &Params::default()), Err(Stranger::Page));
    }
}
