//! Behaviour that stacks: each layer is a volume around a volume.

pub mod crash;
pub mod gate;
pub mod simulate;
