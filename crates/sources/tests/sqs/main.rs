//! SQS, against an emulation of it, and against faults that no emulation shows.

mod conformance;
mod faults;
mod fifo;
mod life;
mod opening;
mod proxy;
mod stage;
