//! Where messages wait: one module and one feature for each kind of queue.
//!
//! [`wire`] is the JSON that a message is written in, the same for all of them.

#[cfg(feature = "amqp")]
pub mod amqp;
mod content;
#[cfg(feature = "events")]
pub mod events;
#[cfg(feature = "nats")]
pub mod nats;
mod nearest;
#[cfg(feature = "network")]
mod network;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(feature = "stomp")]
pub mod stomp;
pub mod wire;

pub use content::Content;
pub use nearest::nearest;
pub use open::OpenError;
