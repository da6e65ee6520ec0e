//! The query for a group of series.

use engine::series::Span;

use super::fields::Fields;
use super::filter::Filter;
use super::plan::Plan;
use crate::http::influxql::{Select, Window};

/// The query for a group.
pub(super) struct Reading<'a> {
    pub(super) plan: &'a Plan,
    pub(super) fields: &'a Fields,
    /// The condition on rows, beyond the tags of their sources.
    pub(super) filter: &'a Filter,
    pub(super) span: Span,
    pub(super) window: Option<Window>,
    pub(super) select: &'a Select,
}

impl Reading<'_> {
    /// The number of rows to skip, and the limit after them.
    pub(super) fn page(&self) -> (usize, usize) {
        let places = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        // As in InfluxDB, a limit of 0 means no limit.
        let limit = self.select.limit.filter(|&limit| limit > 0);
        (self.select.offset.map_or(0, places), limit.map_or(usize::MAX, places))
    }
}
