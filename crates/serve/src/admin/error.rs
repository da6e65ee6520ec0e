//! Why something an administrator asked for was not done.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

/// Why something was not done: a kind for each thing a caller would do. The text is for people, and says what to
/// do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no such thing: name another.
    #[error("{0}")]
    NotFound(String),
    /// Not as things are now: change them first.
    #[error("{0}")]
    Conflict(String),
    /// What was asked, or the settings file, makes no sense: mend it.
    #[error("{0}")]
    Invalid(String),
    /// What is needed is away or busy: ask again later.
    #[error("{0}")]
    Unavailable(String),
    /// It failed, and asking otherwise would not help.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// The status of the answer.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The word for its kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not found",
            Self::Conflict(_) => "conflict",
            Self::Invalid(_) => "invalid",
            Self::Unavailable(_) => "unavailable",
            Self::Internal(_) => "internal",
        }
    }
}

/// What is answered to what cannot be done, as JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Refused {
    /// Why, and what to do, for people.
    pub error: String,
    /// The kind of the error, a word for each status: `not found` (404), `conflict` (409), `invalid` (422),
    /// `unavailable` (503), `internal` (500).
    #[serde(default)]
    pub kind: String,
}

impl From<&Error> for Refused {
    fn from(error: &Error) -> Self {
        Self { error: error.to_string(), kind: error.kind().into() }
    }
}
