//! What is compared: layouts, and the work that runs beside the users.

/// How the pool keeps what users store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Layout {
    /// Fragments, four of data and two of parity, with a log of writes.
    Fragments,
    /// Two copies.
    Copies,
}

impl Layout {
    pub(super) const ALL: [Self; 2] = [Self::Fragments, Self::Copies];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fragments => "4+2",
            Self::Copies => "2 copies",
        }
    }

    /// About what a request costs in operations while a volume is lost: seven reads of ten, a seventh of which needs four
    /// fragments, and three writes of three operations or two.
    pub(super) const fn operations(self) -> f64 {
        match self {
            Self::Fragments => 1.9,
            Self::Copies => 1.3,
        }
    }
}

/// What runs beside the users.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) rebuild: bool,
    pub(super) scrub: bool,
    pub(super) merges: bool,
}

impl Work {
    /// Nothing, and no volume was lost.
    pub(super) const HEALTHY: Self = Self { name: "healthy", ..Self::NONE };
    /// Nothing.
    pub(super) const NONE: Self =
        Self { name: "no work", rebuild: false, scrub: false, merges: false };
    pub(super) const REBUILD: Self = Self { name: "rebuild", rebuild: true, ..Self::NONE };
    pub(super) const SCRUB: Self = Self { name: "scrub", scrub: true, ..Self::NONE };
    pub(super) const MERGES: Self = Self { name: "merges", merges: true, ..Self::NONE };
    pub(super) const ALL: Self = Self { name: "all", rebuild: true, scrub: true, merges: true };
}
