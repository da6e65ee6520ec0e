//! `/regular expressions/`.

use std::fmt;

/// A regular expression between slashes; patterns with equal text are equal.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    compiled: engine::series::Pattern,
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// What is wrong with it, on one line.
    pub fn new(text: &str) -> Result<Self, String> {
        let compiled = engine::series::Pattern::new(text)?;
        Ok(Self { text: text.to_owned(), compiled })
    }

    /// Whether it matches anywhere in `text`.
    #[must_use]
    pub fn is_in(&self, text: &str) -> bool {
        self.compiled.matches(text)
    }

    /// The compiled pattern for a store.
    #[must_use]
    pub fn compiled(&self) -> &engine::series::Pattern {
        &self.compiled
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text.replace('/', "\\/"))
    }
}
