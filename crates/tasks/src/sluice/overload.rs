//! What happens to items that cannot start at once: a policy, chosen by name.
//!
//! `docs/rules.md#overload-1`.

use std::time::Duration;

/// What a sluice does with an item that cannot start at once.
///
/// | policy | an item waits | refused when |
/// |---|---|---|
/// | `Queue` | in the queue | the queue is full |
/// | `HandBack` | in the queue | the queue is full: back to its source, for later |
/// | `Wait` | in the queue; its caller waits at the door when that is full (backpressure) | its tenant has as many waiting as it may |
/// | `FailFast` | not at all | it cannot start at once |
///
/// The queue is bounded whatever the policy. A refused item comes back by value in
/// [`Refused`](crate::Refused): nothing is lost.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, Overload, Sluice};
///
/// let busy = Sluice::<()>::builder("reports", 1, 10).overload(Overload::FailFast).build()?;
/// let cx = Context::new();
/// let turn = busy.turn(&cx, Entry::of("alice"), ()).await?;
/// let refused = busy.turn(&cx, Entry::of("bob"), ()).await.unwrap_err();
/// assert_eq!(refused.why.label(), "at_limit");
/// turn.finish();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overload {
    /// What does not fit is refused.
    #[default]
    Queue,
    /// What does not fit is refused, to be offered again after a while.
    HandBack {
        /// When the source should offer it again.
        retry_after: Duration,
    },
    /// A caller waits until its item fits, first come, first served, for as long as its context lets
    /// it. Where there is no caller to wait ([`Sluice::admit`](crate::Sluice::admit)), the item is
    /// refused.
    Wait,
    /// Nothing waits.
    FailFast,
}

impl Overload {
    /// When a refused item should be offered again, if the policy says.
    pub(crate) const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::HandBack { retry_after } => Some(retry_after),
            Self::Queue | Self::Wait | Self::FailFast => None,
        }
    }
}
