//! The router between scripted ends, in paused time.

mod drain;
mod live;
mod ordering;
mod routing;
mod settling;
mod views;
