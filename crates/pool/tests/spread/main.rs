//! Spread pools through their public interface: conformance, crashes, faults, volumes in a wrong state, and
//! the bytes of old formats.

mod again;
mod belonging;
mod coded;
mod compacting;
mod conforming;
mod copying;
mod crashes;
mod damage;
mod faults;
mod formats;
mod full;
mod full_rows;
mod growing;
mod hanging;
mod in_place;
mod jitter;
mod logged;
mod logs;
mod losses;
mod many;
mod membership;
mod model;
mod objects;
mod owners;
mod pairs;
mod pools;
mod process;
mod rebalancing;
mod rebuilding;
mod replication;
mod rig;
mod scrubbing;
mod sealing;
mod together;
mod weights;
