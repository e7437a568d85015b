//! The router between scripted ends, in paused time; the breaker, in simulated time.

mod breaker;
mod drain;
mod intake;
mod live;
mod meanwhile;
mod moving;
mod ordering;
mod resting;
mod routing;
mod settling;
mod turns;
mod views;
mod worst;
