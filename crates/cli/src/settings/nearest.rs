//! The known word closest to a mistyped one.

/// The word of `known` with the fewest changed letters, if those are at most a third of it.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = known.filter_map(|other| {
        let changes = distance(word, other);
        (changes <= other.len().max(word.len()).div_ceil(3)).then_some((changes, other))
    });
    close.min_by_key(|&(changes, _)| changes).map(|(_, other)| other)
}

/// Levenshtein's distance: letters inserted, deleted or replaced.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_changes() {
        let cases = [("", "", 0), ("a", "", 1), ("", "abc", 3), ("kitten", "sitting", 3)];
        for (from, to, expected) in cases {
            assert_eq!(distance(from, to), expected);
        }
    }

    #[test]
    fn only_a_close_word_is_suggested() {
        let keys = ["path", "contract", "simulate"];
        assert_eq!(nearest("contrct", keys.into_iter()), Some("contract"));
        assert_eq!(nearest("pth", keys.into_iter()), Some("path"));
        assert_eq!(nearest("colour", keys.into_iter()), None);
    }
}
