//! Block devices for NBD clients.

pub mod wire;
