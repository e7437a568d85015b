//! Consumers over a source in memory, where time is paused and nothing is left to chance; and over
//! RabbitMQ.

mod ending;
mod handling;
mod logs;
mod ordering;
mod paper_000;
mod rabbitmq;
mod refusing;
mod retrying;
mod settling;
mod sources;
mod stage;
mod watching;
mod worst;
