//! The fields of a measurement.

use std::collections::BTreeMap;

use engine::series::Kind as FieldKind;

use crate::http::influxql::{Kind, Reference};

/// Fields of a measurement and their kinds.
pub(super) type Fields = BTreeMap<String, FieldKind>;

/// Whether a name refers to a field.
pub(super) fn is_field(reference: &Reference, fields: &Fields) -> bool {
    match reference.kind {
        None => fields.contains_key(&reference.name),
        Some(Kind::Tag) => false,
        Some(_) => true,
    }
}
