//! Consumers at a real broker.

mod breaking;
mod ending;
mod flow;
mod proxy;
mod rig;
