//! PostgreSQL: what is special about it, beside the suite that every engine passes.

#[cfg(test)]
mod exactness;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod following;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod stage;
