//! Where requests come from.

use std::path::PathBuf;

use crate::trace::{Format, Reader, Request, StandIn};

/// A trace to replay. It is read from its start several times, so a file must not change meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its format; `None` if its name and first bytes show it.
        format: Option<Format>,
        /// The most requests to replay, from its start.
        requests_max: Option<u64>,
    },
    /// A stand-in for a trace.
    StandIn {
        /// Which.
        of: StandIn,
        /// How many requests.
        requests: u64,
        /// The seed of its choices.
        seed: u64,
    },
}

impl Source {
    /// The name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File { path, .. } => {
                path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
            Self::StandIn { of, .. } => format!("stand-in for {}", of.name),
        }
    }

    /// What it is, in a sentence for the report.
    #[must_use]
    pub fn about(&self) -> String {
        match self {
            Self::File { path, .. } => format!("the trace {}", path.display()),
            Self::StandIn { of, requests, .. } => format!(
                "made up: {requests} requests with statistics of the trace {}, not its order; of the trace's {} requests; \
                 Zipf exponent {}; {}",
                of.name, of.requests, of.skew, of.sources
            ),
        }
    }

    /// All requests, in order.
    ///
    /// # Errors
    /// The file cannot be opened. An item is an error if a record cannot be read.
    pub fn requests(&self) -> anyhow::Result<Box<dyn Iterator<Item = anyhow::Result<Request>>>> {
        Ok(match self {
            Self::File { path, format, requests_max } => {
                let reader = Reader::open(path, *format)?;
                let most = requests_max
                    .map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
                Box::new(reader.take(most))
            }
            Self::StandIn { of, requests, seed } => Box::new(of.requests(*requests, *seed).map(Ok)),
        })
    }
}
