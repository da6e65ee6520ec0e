mod client;
mod invariants;
mod search;
mod servers;
mod world;
