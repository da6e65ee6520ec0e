mod client;
mod cost;
mod invariants;
mod search;
mod servers;
mod world;
