//! NATS JetStream.
