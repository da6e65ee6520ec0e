//! Arithmetic of columns, row by row.

use engine::series::Scalar;

use crate::http::influxql::Operator;

/// The definition of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Formula {
    /// The value of a leaf of the plan, by index.
    Leaf(usize),
    /// A number.
    Constant(Scalar),
    /// An operation on two formulas.
    Both(Box<Formula>, Operator, Box<Formula>),
}

impl Formula {
    /// The value for a row; `None` if an operand is missing, or the result is not a number.
    pub(super) fn value(&self, leaves: &[Option<Scalar>]) -> Option<Scalar> {
        match self {
            Self::Leaf(at) => leaves[*at].clone(),
            Self::Constant(number) => Some(number.clone()),
            Self::Both(left, operator, right) => {
                both(left.value(leaves)?, *operator, right.value(leaves)?)
            }
        }
    }
}

fn both(left: Scalar, operator: Operator, right: Scalar) -> Option<Scalar> {
    use Operator::{Add, Divide, Multiply, Remainder, Subtract};
    if let (Scalar::Integer(left), Scalar::Integer(right)) = (&left, &right) {
        let whole = match operator {
            Add => left.checked_add(*right),
            Subtract => left.checked_sub(*right),
            Multiply => left.checked_mul(*right),
            Remainder => left.checked_rem(*right),
            // As in InfluxDB, a division gives a float.
            Divide => None,
        };
        if let Some(whole) = whole {
            return Some(Scalar::Integer(whole));
        }
    }
    let (left, right) = (left.as_value().as_f64()?, right.as_value().as_f64()?);
    let value = match operator {
        Add => left + right,
        Subtract => left - right,
        Multiply => left * right,
        Divide => left / right,
        Remainder => left % right,
    };
    value.is_finite().then_some(Scalar::Float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_put_together_and_what_is_unknown_stays_so() {
        let of = |left, operator, right| {
            let leaf = |at| Box::new(Formula::Leaf(at));
            Formula::Both(leaf(0), operator, leaf(1)).value(&[left, right])
        };
        let (int, float) = (|n| Some(Scalar::Integer(n)), |n| Some(Scalar::Float(n)));
        assert_eq!(of(int(7), Operator::Add, int(2)), int(9));
        assert_eq!(of(int(7), Operator::Divide, int(2)), float(3.5));
        assert_eq!(of(int(7), Operator::Remainder, int(2)), int(1));
        assert_eq!(of(int(i64::MAX), Operator::Add, int(1)), float(9_223_372_036_854_775_808.0));
        assert_eq!(of(float(1.5), Operator::Multiply, int(2)), float(3.0));
        assert_eq!(of(float(1.5), Operator::Divide, int(0)), None);
        assert_eq!(of(None, Operator::Subtract, int(0)), None);
        assert_eq!(of(Some(Scalar::Text("a".into())), Operator::Subtract, int(0)), None);
    }
}
