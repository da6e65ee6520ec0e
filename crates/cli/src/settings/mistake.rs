//! A mistake in a settings file: its place and key, what was found, and what is accepted.

use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake. Its text is for users and self-contained.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mistake {
    file: PathBuf,
    /// Counted from 1; `None` if the mistake has no place.
    line: Option<usize>,
    /// The dotted key, or another name of the place.
    key: String,
    found: String,
    accepted: String,
}

impl Mistake {
    pub(super) fn at(
        file: &Path,
        line: usize,
        key: impl Into<String>,
        found: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self {
            file: file.into(),
            line: Some(line),
            key: key.into(),
            found: found.into(),
            accepted: accepted.into(),
        }
    }

    /// The mistake that the file cannot be read.
    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self {
            file: file.into(),
            line: None,
            key: "the settings file".into(),
            found: error.to_string(),
            accepted: "a file this user may read".into(),
        }
    }
}

/// All mistakes of a file, from top to bottom: at least one, each on its own line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// The mistakes; `None` without any.
    pub(super) fn of(mut mistakes: Vec<Mistake>) -> Option<Self> {
        mistakes.sort_by_key(|mistake| mistake.line);
        // Several readers may note the same missing value.
        mistakes.dedup();
        (!mistakes.is_empty()).then_some(Self(mistakes))
    }
}

impl From<Mistake> for Mistakes {
    fn from(only: Mistake) -> Self {
        Self(vec![only])
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, mistake) in self.0.iter().enumerate() {
            let gap = if n == 0 { "" } else { "\n" };
            write!(f, "{gap}{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}: found {}; accepted: {}", self.key, self.found, self.accepted)
    }
}
