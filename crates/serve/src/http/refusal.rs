//! Answers to failed requests, in the form that clients of each version expect.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use engine::series::Error;
use serde_json::json;

use super::access::{Forbidden, Stranger};
use super::body::Trouble;

/// The version of InfluxDB that a client expects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dialect {
    /// `{"error": …}`
    One,
    /// `{"code": …, "message": …}`
    Two,
}

/// Why a request failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The first invalid line of a body.
    pub(super) line: Option<u64>,
    /// The time after which to retry.
    pub(super) retry_after: Option<Duration>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), line: None, retry_after: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn busy(message: impl Into<String>, after: Duration) -> Self {
        let retry_after = Some(after);
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// The HTTP answer.
    pub(super) fn respond(self, dialect: Dialect) -> Response {
        let Self { status, message, line, retry_after } = self;
        let body = match dialect {
            Dialect::One => json!({ "error": message }),
            Dialect::Two => {
                let code = code(status);
                line.map_or_else(
                    || json!({ "code": code, "message": message }),
                    |line| json!({ "code": code, "message": message, "line": line }),
                )
            }
        };
        let mut response = Response::new(Body::from(format!("{body}\n")));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Clients of version 1 read this header.
        if let Ok(value) = HeaderValue::from_str(&message.escape_default().to_string()) {
            headers.insert("x-influxdb-error", value);
        }
        if status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Basic realm=\"plimsoll\", Token");
            headers.insert(header::WWW_AUTHENTICATE, how);
        }
        if let Some(after) = retry_after {
            // Whole seconds, at least one.
            let seconds = after.as_millis().div_ceil(1000).max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds as u64));
        }
        response
    }
}

/// InfluxDB 2's code for a status.
fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "invalid",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not found",
        StatusCode::METHOD_NOT_ALLOWED => "method not allowed",
        StatusCode::REQUEST_TIMEOUT | StatusCode::MISDIRECTED_REQUEST => "invalid",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::UNPROCESSABLE_ENTITY => "unprocessable entity",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => "unavailable",
        _ => "internal error",
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Busy { after, .. } => Self::busy(message, after),
            Error::Unavailable(_) | Error::Closed(_) => Self::busy(message, Duration::from_secs(1)),
            Error::OutOfSpace(_) => Self::new(StatusCode::INSUFFICIENT_STORAGE, message),
            Error::NotFound(_) => Self::new(StatusCode::NOT_FOUND, message),
            Error::Invalid(_) => Self::bad(message),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

impl From<Stranger> for Refusal {
    fn from(stranger: Stranger) -> Self {
        match stranger {
            Stranger::Unknown => Self::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized: send a token, as Authorization: Token … or as a password",
            ),
            Stranger::Page => Self::new(
                StatusCode::FORBIDDEN,
                "requests from web pages are refused unless the settings have http.tokens",
            ),
        }
    }
}

impl From<Forbidden> for Refusal {
    fn from(forbidden: Forbidden) -> Self {
        Self::new(StatusCode::FORBIDDEN, forbidden.to_string())
    }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::TooLong(max) => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!(
                    "the body is longer than {max} bytes, inflated (http.body_max): send smaller batches"
                ),
            ),
            Trouble::Busy => Self::busy(
                "busy: other writes fill the memory for bodies (http.bodies_memory), try again later",
                Duration::from_secs(1),
            ),
            Trouble::Slow(limit) => Self::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("no more of the body arrived for {} s", limit.as_secs()),
            ),
            Trouble::Broken(why) => Self::bad(format!("the body cannot be read: {why}")),
            Trouble::Encoding(other) => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("content-encoding {other} is not supported: use gzip, or none"),
            ),
        }
    }
}
