//! Redis' glob patterns: `*`, `?`, `[abc]`, `[a-z]`, `[^…]`, and `\` to escape a byte.

/// Whether all of `text` matches `pattern`.
///
/// The worst case is the product of both lengths: only the last `*` is retried.
#[must_use]
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_as(pattern, text, |byte| byte)
}

/// Whether all of `text` matches `pattern`, ignoring case.
#[must_use]
pub(super) fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_as(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// Normalises a byte for comparison.
type Fold = fn(u8) -> u8;

fn matches_as(pattern: &[u8], text: &[u8], fold: Fold) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut last_star = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            last_star = Some((at, from));
        } else if let Some(end) = one(&pattern[at..], fold(text[from]), fold) {
            at += end;
            from += 1;
        } else if let Some((after_star, tried)) = last_star {
            // The star takes one more byte.
            last_star = Some((after_star, tried + 1));
            (at, from) = (after_star, tried + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// The number of bytes of `pattern` that match the one folded byte, if they do.
fn one(pattern: &[u8], byte: u8, fold: Fold) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (holds, len) = in_class(class, byte, fold);
            holds.then_some(1 + len)
        }
        [b'\\', literal, ..] => (fold(*literal) == byte).then_some(2),
        [literal, ..] => (fold(*literal) == byte).then_some(1),
    }
}

/// Whether the class that starts after its `[` contains the folded byte, and its length including the `]`. An
/// unterminated class takes the rest of the pattern.
fn in_class(class: &[u8], byte: u8, fold: Fold) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut holds = false;
    loop {
        match &class[at..] {
            [] => return (holds != negated, at),
            [b']', ..] => return (holds != negated, at + 1),
            [b'\\', literal, ..] => {
                holds |= fold(*literal) == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                let (first, last) = (fold(*first), fold(*last));
                holds |= (first.min(last)..=first.max(last)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                holds |= fold(*literal) == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{matches, matches_any_case};

    #[test]
    fn patterns_match_as_redis_matches_them() {
        let cases = [
            ("", "", true),
            ("*", "", true),
            ("", "a", false),
            ("save", "save", true),
            ("SAVE", "save", true),
            ("sav?", "save", true),
            ("sav?", "sav", false),
            ("*save*", "autosave-interval", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[ab", "b", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            (r"[\]]", "]", true),
            ("**a", "bba", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(
                matches_any_case(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn names_of_keys_match_in_their_own_case() {
        assert!(matches(b"User:[a-c]*", b"User:bob"));
        assert!(!matches(b"user:*", b"User:bob"));
        assert!(!matches(b"User:[A-C]*", b"User:bob"));
    }
}
