//! RabbitMQ as a source, against a real broker.

#[cfg(test)]
mod alarm;
#[cfg(test)]
mod breaks;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod finding;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod publishing;
#[cfg(test)]
mod retries;
#[cfg(test)]
mod settling;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod tls;
