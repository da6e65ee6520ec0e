//! Redis' glob patterns: `*`, `?`, `[abc]`, `[a-z]`, `[^…]`, and `\` before a byte meant as itself.

/// Whether all of `text` matches `pattern`, letters of either case being alike.
///
/// Takes time in the product of both lengths at worst: a `*` is retried from the last one only.
#[must_use]
pub(super) fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut last_star = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            last_star = Some((at, from));
        } else if let Some(end) = one(&pattern[at..], text[from]) {
            at += end;
            from += 1;
        } else if let Some((after_star, tried)) = last_star {
            // The star takes one byte more.
            last_star = Some((after_star, tried + 1));
            (at, from) = (after_star, tried + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// How many bytes of `pattern` match the one byte, if they do.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (holds, len) = in_class(class, byte);
            holds.then_some(1 + len)
        }
        [b'\\', literal, ..] => literal.eq_ignore_ascii_case(&byte).then_some(2),
        [literal, ..] => literal.eq_ignore_ascii_case(&byte).then_some(1),
    }
}

/// Whether the class that starts after its `[` holds the byte, and its length with the `]`. A class
/// without an end takes the rest of the pattern.
fn in_class(class: &[u8], byte: u8) -> (bool, usize) {
    let byte = byte.to_ascii_lowercase();
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut holds = false;
    loop {
        match &class[at..] {
            [] => return (holds != negated, at),
            [b']', ..] => return (holds != negated, at + 1),
            [b'\\', literal, ..] => {
                holds |= literal.to_ascii_lowercase() == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                let (first, last) = (first.to_ascii_lowercase(), last.to_ascii_lowercase());
                holds |= (first.min(last)..=first.max(last)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                holds |= literal.to_ascii_lowercase() == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches_any_case;

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
}
