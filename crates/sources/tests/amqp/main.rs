//! RabbitMQ as a source, against a real broker.

mod conformance;
mod stage;
