//! The program end to end, over loopback.

mod audit;
mod bench;
mod block;
mod check;
mod coded;
mod descriptors;
mod full;
mod guide;
mod health;
mod instance;
mod kill;
mod log;
mod markdown;
mod nbd;
mod place;
mod points;
mod pools;
mod probe;
mod scrub;
mod serve;
mod several;
mod shared;
mod strangers;
mod throttled;
mod tier;
mod top;
