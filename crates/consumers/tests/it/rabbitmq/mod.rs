//! Consumers at a real broker.

mod breaking;
mod declaring;
mod ending;
mod flow;
mod proxy;
mod rig;
