//! Consumers written in Rust: declared, validated together, run with bounded workers.
//!
//! A service says which queues it consumes, with which handlers, how many at once and in which order.
//! Handlers get a typed payload, what is known of the message, and a context; what they return decides
//! what becomes of it.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use serde::{Deserialize, Serialize};
//! use sluicegate_consumers::{Consumer, Context, Failure, MemorySource, Metadata, OrderBy, Service};
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tokio::time::Instant;
//!
//! #[derive(Deserialize, Serialize)]
//! struct Order { number: u32 }
//!
//! async fn mail(order: Order, about: Metadata, _cx: Context) -> Result<(), Failure> {
//!     println!("worker {}: order {}, attempt {}", about.worker(), order.number, about.attempt());
//!     Ok(())
//! }
//!
//! let orders = Arc::new(MemorySource::new()); // or RabbitMQ, or any other source
//! orders.push_json("order.created", &Order { number: 1 });
//! let mailer = Consumer::of("orders")
//!     .named("mailer")
//!     .event_type("order.created")
//!     .order_by(OrderBy::header("customer"))
//!     .handle(mail);
//! let service = Service::builder().consume(Arc::clone(&orders), mailer).start().await?;
//! orders.emptied().await;
//! assert!(service.shutdown(Instant::now() + Duration::from_secs(5)).await.is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

mod consumer;
mod declarations;
mod envelopes;
mod fact;
mod failure;
mod handler;
mod memory;
mod metadata;
mod order;
mod policy;
mod problem;
mod run;
mod service;
mod size;
mod stats;

pub use consumer::{CONSUMER_TIMEOUT, Consumer, ConsumerBuilder};
pub use declarations::Declarations;
pub use envelopes::Envelopes;
pub use fact::{Fact, Observer};
pub use failure::{Class, Failure};
pub use handler::Handler;
pub use memory::MemorySource;
pub use metadata::Metadata;
pub use order::OrderBy;
pub use policy::{LONGEST_DELAY, Retry, Unmatched};
pub use problem::{Place, Problem, Problems};
pub use service::{ConsumerReport, Service, ServiceBuilder, ShutdownReport, StartError};
pub use size::{MOST_PREFETCH, MOST_WORKERS, Size, available_cpus};
pub use sluicegate_dispatch::Envelope;
pub use sluicegate_sources::amqp;
pub use sluicegate_tasks::Context;
pub use stats::ConsumerStats;
