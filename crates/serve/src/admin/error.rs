//! Why an administrator's request failed.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

/// Why a request failed: one kind for each reaction of a caller. The text is for administrators, and says what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// It does not exist: name another.
    #[error("{0}")]
    NotFound(String),
    /// The current state forbids it: change that first.
    #[error("{0}")]
    Conflict(String),
    /// The request or the settings file is invalid: correct it.
    #[error("{0}")]
    Invalid(String),
    /// A volume or store it needs is away or busy: retry later.
    #[error("{0}")]
    Unavailable(String),
    /// It failed for a reason that no other request avoids.
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

    /// The word for this kind.
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

/// The JSON body of a failed request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Refused {
    /// The reason and what to do, for administrators.
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
