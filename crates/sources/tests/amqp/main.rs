//! RabbitMQ as a source, against a real broker.

mod breaks;
mod conformance;
mod opening;
mod proxy;
mod rate;
mod retries;
mod settling;
mod stage;
mod tls;
