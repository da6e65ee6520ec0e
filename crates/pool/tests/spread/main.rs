//! Spread pools as their users see them: conformance, crashes, faults, volumes that are not as they
//! should be, and the bytes of old formats.

mod belonging;
mod compacting;
mod conforming;
mod copying;
mod crashes;
mod damage;
mod faults;
mod formats;
mod full;
mod jitter;
mod logs;
mod losses;
mod many;
mod model;
mod moving;
mod objects;
mod owners;
mod pairs;
mod promised;
mod rig;
mod seating;
mod together;
mod weights;
