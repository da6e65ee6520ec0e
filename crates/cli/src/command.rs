//! The commands of the program, one file each.

pub(crate) mod bench;
pub(crate) mod block;
pub(crate) mod check;
pub(crate) mod demo;
pub(crate) mod probe;
pub(crate) mod serve;
pub(crate) mod tier;
pub(crate) mod top;
pub(crate) mod volume;

mod admin;
mod interrupt;
mod scratch;

use std::fmt::Write;

/// An error with its causes, on one line. Leaves out causes that the text before quotes.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            write!(text, ": {cause}").expect("a string takes any text");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::chain;

    #[test]
    fn causes_follow_each_once() {
        let lower = std::io::Error::other("disk on fire");
        let error = volume::Error::from_io("volume a: read", lower);
        let error = Err::<(), _>(error).context("pool main").expect_err("an error");
        assert_eq!(chain(&error), "pool main: volume a: read: disk on fire");
    }
}
