//! The router between scripted ends, in paused time; the breaker, in simulated time.

mod breaker;
mod changing;
mod drain;
mod half_way;
mod intake;
mod live;
mod meanwhile;
mod moving;
mod ordering;
mod parking;
mod resting;
mod routing;
mod settling;
mod succession;
mod turns;
mod views;
mod worst;
