//! What every source that is reached over the network does the same way.

pub(crate) mod parameters;
pub(crate) mod pause;
// PostgreSQL has a link of its own.
#[cfg(any(feature = "amqp", feature = "nats", feature = "sqs", feature = "stomp"))]
pub(crate) mod tls;
