//! The router's engine: from a source through a pool to an executor, and back to the source.
//!
//! Every message walks the same steps, and each step consumes the value of the step before:
//!
//! ```text
//! receive → dedupe → route → admit → execute → settle → record
//! ```
//!
//! [`Source`] and [`Executor`] are the seams; what lies between them is here, on the kernel's
//! schedule, task groups and drain.

mod breaker;
mod delivery;
mod demand;
mod envelope;
mod executor;
mod fact;
pub mod intake;
mod item;
mod last_error;
mod message;
mod order;
mod outcome;
mod panicked;
mod parked;
mod parking;
mod places;
mod pool;
mod pools;
mod queue;
mod route;
mod routed;
mod router;
mod run;
mod settings;
mod source;
mod typed;
mod view;
mod why;
mod window;

pub use breaker::{
    Breaker, BreakerChange, BreakerSettings, BreakerState, BreakerView, Pass, Verdict,
};
pub use delivery::{Delivery, Malformed, Receipt};
pub use demand::{Demand, Opened, Openings, Room, Rooms};
pub use envelope::Envelope;
pub use executor::{Attempt, Executor};
pub use fact::{CallStatus, Fact, Observer};
pub use last_error::LastError;
pub use message::{AuthToken, BadTarget, Message, Target};
pub use order::{Order, Ordered};
pub use outcome::{
    DEFAULT_DELAY, FAST_FAIL_DELAY, MAX_DELAY, MIN_DELAY, Outcome, Reason, Rejection, Settlement,
    Severity, settlement_for,
};
pub use panicked::panic_words;
pub use parked::{Parked, ParkedCode, ParkedStore};
pub use queue::QueueSettings;
pub use routed::Acking;
pub use router::{AckError, Router, ShutdownReport};
pub use settings::{
    DEFAULT_GROUP, DEFAULT_POOL, OnExhausted, OnRejected, Ordering, PoolSettings, Ungrouped,
    UnknownPool,
};
pub use source::{
    BoxFuture, Depth, Discarded, Finds, Found, FoundState, KeepsOrder, Profile, Publication,
    PublishError, Published, PutBack, Rest, Settle, Settled, Source, SourceError,
};
pub use typed::{typed_argument, typed_option};
pub use view::{GroupView, MessageState, MessageView, PauseView, Phase, PoolView, QueueView};
pub use why::WhyWaiting;
