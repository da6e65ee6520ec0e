//! Speculative partial writes of erasure-coded groups on disks (PARIX), as state machines.
//!
//! A group has `m` data strips, each on a data server, and `k` parity strips, each on a parity server with a journal. A small
//! write changes one data strip and every parity strip. Computing the change of parity takes the value before the write,
//! and a disk that reads a range and then writes it loses a rotation. But changes telescope: of `r` writes to a range,
//! parity needs the last value and the one before the first. So the data server sends the new value alone (it
//! *speculates*), parity servers log it, and one that has no value before it asks for that: once between two times that its
//! journal forgets the range. Parity strips are changed later, by merges.
//!
//! [`Data`](data::Data) is a data strip, [`Parity`](parity::Parity) a parity server. Events go in: messages, and I/O that is
//! done. Effects come out. A shell carries them out; a transport may lose, repeat and reorder messages. All bytes pass
//! through as they are: parity is computed by the shell, by the plans [`Merge`](parity::Merge) and [`rebuild::plan`].
//!
//! # Invariants
//!
//! - I1 coverage: a complete value in a parity server's index has its base there.
//! - I2 base: a parity strip on disk is the sum of `coefficient * base`; the base of a range is what the server's index says,
//!   else what the data strip holds.
//! - I3 acknowledgement: an acknowledged write is durable on all parity servers of the view, with its base, and in place,
//!   where a restart of the data server writes it again until it is durable.
//! - I4 order: a data server overwrites a range only when all parity servers of the view hold the new value and the base.
//! - I5 monotone: versions of a range are applied in order, each once.
//! - I6 merge: a parity strip and its header change in one atomic step.
//! - I7 view: a server ignores messages of other views.
//!
//! # Source
//!
//! H. Li et al., "PARIX: Speculative Partial Writes in Erasure-Coded Systems", USENIX ATC 2017. The paper has the idea and the
//! log. Versions that are *tentative*, recovery by [`view::reconcile`], bases that a merge leaves in the journal, and taking a
//! write back when a journal is full are ours (docs/adr/0040-speculative-partial-writes.md).

pub mod data;
pub mod index;
pub mod intervals;
pub mod journal;
mod locks;
pub mod message;
pub mod parity;
pub mod rebuild;
pub mod record;
mod rules;
pub mod scheme;
pub mod view;

#[cfg(test)]
mod tests;
