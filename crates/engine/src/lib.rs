//! Interfaces between protocol servers and stores, free of any protocol, with a memory model of each for tests; and our
//! own stores: the log store and those built on it.

pub mod block;
pub mod health;
pub mod keyspace;
pub mod kv;
pub mod log;
pub mod series;
