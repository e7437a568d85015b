//! SQS, against an emulation of it, and against faults that no emulation shows.

mod conformance;
mod stage;
