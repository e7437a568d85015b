//! What this build can do of what the settings can say. The one place to switch a part on.

/// The schemes of queues that are served.
pub(super) const QUEUE_SCHEMES: &[&str] = &[
    "sqlite",
    "postgres",
    "postgresql",
    "amqp",
    "amqps",
    "nats",
    "sqs+https",
    "sqs+http",
    "activemq",
    "activemqs",
    "events",
];

/// Whether more than one machine is supported.
pub(super) const CLUSTER: bool = false;

/// Whether the server speaks TLS.
pub(super) const TLS: bool = false;

/// What is said of a part that is switched off.
pub(super) const NOT_YET: &str = "is not available in this build yet";
