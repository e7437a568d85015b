//! Parked messages, from outside: replayed from every source, in order, and by what they have in common.

mod choosing;
mod lines;
mod replaying;
mod scene;
