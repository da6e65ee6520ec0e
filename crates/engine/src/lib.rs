//! What a front door asks of a store, free of any protocol, with a memory model of each for tests; and
//! the stores that are ours: the log store.

pub mod health;
pub mod keyspace;
pub mod kv;
pub mod log;
pub mod series;
