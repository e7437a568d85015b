//! ActiveMQ Classic, over STOMP 1.2.
//!
//! Messages are acknowledged one by one, each confirmed by the broker. What is handed back without a
//! delay, or not settled in time, is kept unacknowledged at its place; what is handed back with one is
//! sent anew with the broker's scheduler, and the original acknowledged only once that is confirmed.

mod codec;
mod connect;
mod frame;
mod link;
mod parcel;
mod settings;
mod shared;
mod shelf;
mod source;
mod supervisor;
mod tally;

pub use settings::StompSettings;
pub use source::StompSource;
