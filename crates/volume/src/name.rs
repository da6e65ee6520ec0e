//! Names of objects: flat strings that can neither escape a directory nor hide in it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result};

/// The name of an object: 1–200 bytes of `A–Z a–z 0–9 . _ - /`, where `/` separates parts that are
/// not empty and do not begin with a dot.
///
/// A volume gives a slash no meaning; only the code that chooses the names does.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const LEN_MAX: usize = 200;

    /// Checks a name.
    ///
    /// # Errors
    /// `Invalid`: the message says which character or part is not allowed.
    pub fn new(name: &str) -> Result<Self> {
        let refuse =
            |why: &str| Err(Error::new(ErrorKind::Invalid, format!("object name {name:?}: {why}")));
        if name.is_empty() || name.len() > Self::LEN_MAX {
            return refuse("must be 1 to 200 bytes long");
        }
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b)) {
            return refuse("only letters, digits and . _ - / are allowed");
        }
        if name.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
            return refuse("a part between slashes is empty or begins with a dot");
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the name of a log by custom. It decides nothing but how a directory names the file: whether an object
    /// is a log, its creator says, see [`Object::is_log`](crate::Object::is_log).
    #[must_use]
    pub(crate) fn ends_as_log(&self) -> bool {
        self.0.ends_with(".log")
    }
}

/// Names order, hash and compare as their text, so a map of names can be asked for a range of text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_escape_are_refused() {
        for bad in ["", "..", "a/../b", "/etc", "a//b", "a/", ".hidden", "a\0b", "ä", "a b", "a%2f"]
        {
            assert_eq!(Name::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
        assert!(Name::new(&"x".repeat(201)).is_err());
    }

    #[test]
    fn plain_names_and_paths_are_accepted() {
        for good in ["a", "000012.sst", "kv/MANIFEST-000005", "a.b-c_d/e"] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
    }
}
