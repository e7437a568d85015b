//! Scripted ends of a router: a source that hands out what a test says, an executor that answers what
//! a test says, and books of everything that happened between them.
//!
//! Time is tokio's, so a test with paused time runs at once and always the same way.

mod executor;
mod facts;
mod parked;
pub mod rig;
mod source;

pub use executor::{ScriptedExecutor, Step};
pub use facts::Facts;
pub use parked::MemoryParked;
pub use source::{ScriptedSource, Settlements};

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Message, Receipt, Target};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a test waits for what must happen. With paused time that is no time at all.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Waits until something is so, asked whenever there was a change. `false` if that took too long.
async fn until(changed: &Notify, mut is_so: impl FnMut() -> bool) -> bool {
    let becomes_so = async {
        loop {
            let mut changed = std::pin::pin!(changed.notified());
            changed.as_mut().enable();
            if is_so() {
                return;
            }
            changed.await;
        }
    };
    timeout(PATIENCE, becomes_so).await.is_ok()
}

/// A message of a pool, without a group.
///
/// # Panics
/// Never: the target is one.
#[must_use]
pub fn message(id: &str, pool: &str) -> Message {
    Message {
        id: id.into(),
        pool: pool.into(),
        group: None,
        tenant: None,
        high_priority: false,
        target: Target::parse("http://127.0.0.1:9/deliver").expect("it is a target"),
        auth_token: None,
        payload: None,
        traceparent: None,
        unknown_fields: Box::default(),
    }
}

/// A message of a pool and a group.
#[must_use]
pub fn grouped(id: &str, pool: &str, group: &str) -> Message {
    Message { group: Some(group.into()), ..message(id, pool) }
}

/// The first delivery of a message; the broker's id is `b-` and the message's.
#[must_use]
pub fn delivery(message: Message) -> Delivery {
    let broker_id: Arc<str> = format!("b-{}", message.id).into();
    let receipt =
        Receipt { handle: Some(format!("r-{}", message.id).into()), ..Receipt::default() };
    Delivery { broker_id, receipt, attempts: 0, message: Ok(message) }
}
