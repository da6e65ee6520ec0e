//! Cache tiers through their public interface: conformance, crashes and lost fast volumes against a model, restarts, and
//! what calls cost.

mod back;
mod conforming;
mod costs;
mod damage;
mod delay;
mod history;
mod lazy;
mod losses;
mod model;
mod restart;
mod rig;
mod room;
