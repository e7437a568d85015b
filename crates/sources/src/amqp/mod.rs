//! RabbitMQ, over AMQP 0-9-1.
//!
//! [`AmqpSource::open`] is one queue over one connection; [`Connection`] is shared by several
//! sources ([`AmqpSource::on`]) and declares a [`Topology`] at every connect.
//!
//! What is broker's custom and what is ours:
//! 1. A delay is a delay queue: see the delay queues in `docs/sources.md`.
//! 2. The visibility window is ours. The broker knows none, and hands out again only what a channel
//!    held that ended, or what we hand back.
//! 3. Acks go out as one for all up to a tag, wherever nothing below it is missing.

mod address;
mod answers;
mod connection;
mod delay_queues;
mod delayed;
mod depth;
mod dial;
mod incoming;
mod intake;
mod link;
mod names;
mod publisher;
mod settings;
mod source;
mod topology;
mod unacked;

pub use address::AmqpAddress;
pub use connection::Connection;
pub use settings::{AmqpConsume, AmqpSettings, Delays};
pub use source::{AmqpSource, probe};
pub use topology::{Argument, Binding, Exchange, ExchangeKind, Queue, Topology};
