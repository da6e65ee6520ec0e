//! Spread pools as their users see them: conformance, crashes, faults, volumes that are not as they
//! should be, and the bytes of old formats.

mod conforming;
mod crashes;
mod model;
mod owners;
mod rig;
