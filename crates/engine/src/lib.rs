//! What a front door asks of a store, free of any protocol, and a memory model of each for tests.

pub mod keyspace;
pub mod kv;
