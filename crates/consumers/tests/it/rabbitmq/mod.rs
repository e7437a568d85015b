//! Consumers at a real broker.

mod breaking;
mod declaring;
mod ending;
mod equal;
mod flow;
mod proxy;
mod rig;
