//! Behaviour that stacks: each layer is a volume around a volume.

pub mod call;
pub mod crash;
pub mod deadline;
pub mod fault;
pub mod gate;
pub mod reserve;
pub mod simulate;
pub mod trace;
