//! Who may come in: a token, in every way clients of InfluxDB send one.
//!
//! | sent | token |
//! |---|---|
//! | `Authorization: Token T`, `Bearer T` | `T`; of `user:T`, as clients of 1.8 send it, what follows the colon |
//! | `Authorization: Basic …` | the password |
//! | `?u=user&p=T` | `p` |
//!
//! Without tokens a door is on loopback, and everybody there is let in but web pages: a browser would let
//! any page write.

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::params::Params;
use crate::resp::Secret;

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stranger {
    /// No token, or a wrong one.
    Unknown,
    /// A web page where no token is asked for.
    Page,
}

/// Lets in whoever shows one of `tokens`.
pub(super) fn check(
    tokens: &[Secret],
    headers: &HeaderMap,
    params: &Params,
) -> Result<(), Stranger> {
    if tokens.is_empty() {
        let page = headers.contains_key(header::ORIGIN);
        return if page { Err(Stranger::Page) } else { Ok(()) };
    }
    let shown = shown(headers).or_else(|| params.get("p").map(str::to_owned));
    let shown = shown.ok_or(Stranger::Unknown)?;
    let after_colon = shown.split_once(':').map(|(_, token)| token);
    // Every token is compared with all that was shown, whether or not one before was right.
    let is = |secret: &Secret| {
        secret.is(shown.as_bytes()) | after_colon.is_some_and(|token| secret.is(token.as_bytes()))
    };
    let known = tokens.iter().fold(false, |known, secret| known | is(secret));
    if known { Ok(()) } else { Err(Stranger::Unknown) }
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
        let tokens = [Secret::new("one"), Secret::new("t:wo")];
        let none = Params::default();
        // user:one
        for good in
            ["Token one", "bearer one", "Token user:one", "Token t:wo", "Basic dXNlcjpvbmU="]
        {
            assert_eq!(check(&tokens, &headers(good), &none), Ok(()), "{good}");
        }
        for bad in ["Token", "Token on", "Token one:", "Basic one", "Basic dXNlcg==", "Digest one"]
        {
            assert_eq!(check(&tokens, &headers(bad), &none), Err(Stranger::Unknown), "{bad}");
        }
        let empty = HeaderMap::new();
        assert_eq!(check(&tokens, &empty, &Params::of(Some("u=x&p=one"), b"")), Ok(()));
        assert_eq!(check(&tokens, &empty, &Params::of(Some("u=one"), b"")), Err(Stranger::Unknown));
    }

    #[test]
    fn without_tokens_only_pages_are_turned_away() {
        let mut headers = HeaderMap::new();
        assert_eq!(check(&[], &headers, &Params::default()), Ok(()));
        headers.insert(header::ORIGIN, "http://example.org".parse().expect("a header"));
        assert_eq!(check(&[], &headers, &Params::default()), Err(Stranger::Page));
    }
}
