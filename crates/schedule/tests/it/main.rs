//! The proof of the schedule: a naive model it must agree with, invariants over random histories,
//! fairness in simulated time, and the faults that others have had.

mod agrees;
mod at_once;
mod edges;
mod fairness;
mod history;
mod invariants;
mod known_faults;
mod memory;
mod model;
mod pool;
mod properties;
mod properties_failing;
mod properties_newcomers;
mod properties_shares;
mod properties_throttled;
mod rates;
mod regressions;
mod watch;
