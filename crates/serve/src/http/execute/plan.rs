//! The columns of a `SELECT`, and the data to read for them.

use std::collections::BTreeSet;

use engine::series::aggregate::Function;
use engine::series::{Kind as FieldKind, Scalar};

use super::fields::{Fields, is_field};
use super::formula::Formula;
use crate::http::influxql::{Column, Expression, Kind, Pattern, Reference};
use crate::http::refusal::Refusal;

/// An input of a column for each row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Leaf {
    /// The value of a field.
    Field(String),
    /// The value of a tag.
    Tag(String),
    /// An aggregate of a field's values.
    Sum(Function, String),
}

/// Named columns, and their inputs.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) columns: Vec<(String, Formula)>,
    pub(super) leaves: Vec<Leaf>,
}

/// The known fields and tags.
pub(super) struct Known<'a> {
    pub(super) fields: &'a Fields,
    pub(super) tags: &'a [String],
    /// Tags that rows are grouped by: `*` leaves them out.
    pub(super) grouped: &'a [String],
}

impl Plan {
    /// The plan for `columns`.
    pub(super) fn new(columns: &[Column], known: &Known<'_>) -> Result<Self, Refusal> {
        let mut plan = Self::default();
        for column in columns {
            match &column.what {
                Expression::Reference(reference) if reference.is_time() => {}
                Expression::All(kind) => plan.all(known, |_| true, *kind),
                Expression::Like(pattern) => plan.all(known, |name| pattern.is_in(name), None),
                Expression::Call(name, arguments)
                    if matches!(arguments[..], [Expression::All(_) | Expression::Like(_), ..]) =>
                {
                    plan.sums(name, arguments, known, column.alias.as_deref())?;
                }
                what => {
                    let formula = plan.formula(what, known)?;
                    let name = column.alias.clone().unwrap_or_else(|| usual_name(what));
                    plan.push(name, formula);
                }
            }
        }
        let sums = plan.leaves.iter().filter(|leaf| matches!(leaf, Leaf::Sum(..))).count();
        if sums > 0 && sums < plan.leaves.len() {
            return Err(Refusal::bad(
                "mixing aggregate and non-aggregate queries is not supported",
            ));
        }
        Ok(plan)
    }

    /// Whether rows are aggregates, not points.
    pub(super) fn is_sums(&self) -> bool {
        matches!(self.leaves.first(), Some(Leaf::Sum(..)))
    }

    /// The fields to read.
    pub(super) fn fields(&self) -> BTreeSet<&str> {
        let fields = self.leaves.iter().filter_map(|leaf| match leaf {
            Leaf::Field(field) | Leaf::Sum(_, field) => Some(field.as_str()),
            Leaf::Tag(_) => None,
        });
        fields.collect()
    }

    fn push(&mut self, name: String, formula: Formula) {
        // As in InfluxDB, a second `mean` becomes `mean_1`.
        let is_new = |name: &str| self.columns.iter().all(|(other, _)| other != name);
        let mut unique = name.clone();
        let mut number = 0;
        while !is_new(&unique) {
            number += 1;
            unique = format!("{name}_{number}");
        }
        self.columns.push((unique, formula));
    }

    fn leaf(&mut self, leaf: Leaf) -> Formula {
        let at = self.leaves.iter().position(|other| *other == leaf).unwrap_or_else(|| {
            self.leaves.push(leaf);
            self.leaves.len() - 1
        });
        Formula::Leaf(at)
    }

    /// `*` or `/pattern/`: fields and tags by name.
    fn all(&mut self, known: &Known<'_>, wanted: impl Fn(&str) -> bool, kind: Option<Kind>) {
        let fields = known.fields.iter().filter(|(_, held)| match kind {
            None | Some(Kind::Field) => true,
            Some(kind) => kind.name() == held.to_string(),
        });
        let tags = known
            .tags
            .iter()
            .filter(|tag| matches!(kind, None | Some(Kind::Tag)) && !known.grouped.contains(tag));
        let fields = fields.map(|(name, _)| (name, Leaf::Field(name.clone())));
        let mut all: Vec<_> =
            fields.chain(tags.map(|name| (name, Leaf::Tag(name.clone())))).collect();
        all.sort_by_key(|(name, _)| *name);
        for (name, leaf) in all {
            if wanted(name) {
                let formula = self.leaf(leaf);
                self.push(name.clone(), formula);
            }
        }
    }

    /// `mean(*)`: a column for each field that the function supports.
    fn sums(
        &mut self,
        name: &str,
        arguments: &[Expression],
        known: &Known<'_>,
        alias: Option<&str>,
    ) -> Result<(), Refusal> {
        let function = function(name, &arguments[1..])?;
        let any = matches!(function, Function::Count | Function::First | Function::Last);
        let wanted = |field: &str, pattern: Option<&Pattern>| {
            pattern.is_none_or(|pattern| pattern.is_in(field))
        };
        let pattern = match &arguments[0] {
            Expression::Like(pattern) => Some(pattern),
            _ => None,
        };
        for (field, kind) in known.fields {
            if (any || kind.is_number()) && wanted(field, pattern) {
                let formula = self.leaf(Leaf::Sum(function, field.clone()));
                self.push(format!("{}_{field}", alias.unwrap_or(name)), formula);
            }
        }
        Ok(())
    }

    fn formula(&mut self, what: &Expression, known: &Known<'_>) -> Result<Formula, Refusal> {
        Ok(match what {
            Expression::Reference(reference) => {
                let name = reference.name.clone();
                let is_field = is_field(reference, known.fields);
                self.leaf(if is_field { Leaf::Field(name) } else { Leaf::Tag(name) })
            }
            Expression::Integer(number) => Formula::Constant(Scalar::Integer(*number)),
            Expression::Number(number) => Formula::Constant(Scalar::Float(*number)),
            Expression::Both(left, operator, right) => Formula::Both(
                Box::new(self.formula(left, known)?),
                *operator,
                Box::new(self.formula(right, known)?),
            ),
            Expression::Call(name, arguments) => {
                let rest = arguments.get(1..).unwrap_or_default();
                let function = function(name, rest)?;
                match arguments.first() {
                    Some(Expression::Reference(Reference { name, .. })) => {
                        self.leaf(Leaf::Sum(function, name.clone()))
                    }
                    _ => {
                        return Err(Refusal::bad(format!("expected field argument in {name}()")));
                    }
                }
            }
            Expression::All(_) | Expression::Like(_) | Expression::Duration(_) => {
                return Err(Refusal::bad(format!("{what} is not supported here")));
            }
        })
    }
}

fn function(name: &str, rest: &[Expression]) -> Result<Function, Refusal> {
    let function = match name {
        "count" => Function::Count,
        "mean" => Function::Mean,
        "sum" => Function::Sum,
        "min" => Function::Min,
        "max" => Function::Max,
        "first" => Function::First,
        "last" => Function::Last,
        "stddev" => Function::Stddev,
        "percentile" => {
            let percent = match rest {
                [Expression::Integer(percent)] => *percent as f64,
                [Expression::Number(percent)] => *percent,
                _ => return Err(Refusal::bad("percentile() takes a field and a number")),
            };
            return Ok(Function::Percentile(percent));
        }
        _ => {
            return Err(Refusal::bad(format!(
                "undefined function {name}(): use count, mean, sum, min, max, first, last, stddev or percentile"
            )));
        }
    };
    if !rest.is_empty() {
        let given = rest.len() + 1;
        return Err(Refusal::bad(format!(
            "invalid number of arguments for {name}, expected 1, got {given}"
        )));
    }
    Ok(function)
}

/// InfluxDB's name for a column without an alias.
fn usual_name(what: &Expression) -> String {
    match what {
        Expression::Reference(reference) => reference.name.clone(),
        Expression::Call(name, _) => name.clone(),
        Expression::Both(left, _, right) => {
            let parts = [usual_name(left), usual_name(right)];
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join("_")
        }
        _ => String::new(),
    }
}

/// Whether a function supports a kind; the error is InfluxDB's.
pub(super) fn check(function: Function, kind: FieldKind) -> Result<(), Refusal> {
    let any = matches!(function, Function::Count | Function::First | Function::Last);
    if any || kind.is_number() {
        return Ok(());
    }
    let name = format!("{function:?}").to_lowercase();
    let name = name.split('(').next().unwrap_or_default();
    Err(Refusal::bad(format!("unsupported {name} iterator type: {kind}")))
}
