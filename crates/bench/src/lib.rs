//! Benches, and reports that carry the context of a figure: machine, commit, seed, band.
//!
//! A bench takes [`Options`] and returns a [`report::Report`]. It measures the real layers, in virtual time wherever
//! the question allows it.

pub mod background;
pub mod block;
pub mod coded;
pub mod compare;
pub mod contract;
pub mod drive;
pub mod ingest;
pub mod mixgraph;
pub mod parity;
pub mod path;
pub mod probe;
pub mod provider;
pub mod report;
pub mod series;
pub mod spread;
pub mod stats;
pub mod tier;
pub mod trace;
pub mod ycsb;

mod machine;

/// How much a bench measures.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Under 20 seconds: checks that the bench works.
    Smoke,
    /// At most a minute for each row and case: the everyday figure.
    #[default]
    Short,
    /// As long as in the papers.
    Paper,
}

impl Profile {
    /// Every profile, the quickest first.
    pub const ALL: [Self; 3] = [Self::Smoke, Self::Short, Self::Paper];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Short => "short",
            Self::Paper => "paper",
        }
    }

    /// The runs of each case, each with its own seed, unless the user asks for others.
    #[must_use]
    pub const fn runs(self) -> u64 {
        match self {
            Self::Smoke => 1,
            Self::Short => 3,
            Self::Paper => 5,
        }
    }
}

/// What to run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// How much is measured.
    pub profile: Profile,
    /// The first seed; a bench that repeats itself counts up from it.
    pub seed: u64,
    /// The ids of the rows to measure (`B01`); empty means all.
    pub rows: Vec<String>,
}

impl Default for Options {
    /// Everything, profile short, seed 1.
    fn default() -> Self {
        Self { profile: Profile::Short, seed: 1, rows: Vec::new() }
    }
}

impl Options {
    /// Whether the row `id` is to be measured.
    #[must_use]
    pub fn wants(&self, id: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|row| row == id)
    }
}
