//! Callers: each waits for the turn of its own item, which it keeps itself.
//!
//! `docs/rules.md#sluice-5`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use sluicegate_schedule::{ItemId, Moment, Refusal as Full, Why};
use tokio::time::Instant;

use super::line::{After, Line, Runner, Slot, State};
use super::turn::{Running, Turn};
use super::{Link, Overload};
use crate::{Context, Entry, Refusal, Refused};

/// An item of a caller that was let in and waits for its turn. Dropped, it leaves the queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, Sluice};
///
/// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
/// let admitted = sluice.enter(&Context::new(), Entry::of("alice"), "ask").await?;
/// assert_eq!(admitted.value(), &"ask");
/// drop(admitted);
/// assert_eq!(sluice.stats().cancelled, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it takes the item out of the queue"]
pub struct Admitted<V> {
    value: Option<V>,
    waiting: Waiting<V>,
}

/// A caller's item in the queue. Dropped, it is withdrawn.
#[derive(Debug)]
struct Waiting<V> {
    item: Option<(Link<V>, ItemId)>,
    cx: Context,
    /// Since when it is its turn, if it was so as soon as it came in.
    at_once: Option<Instant>,
}

/// An item that was let in, and whether it is its turn already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) id: ItemId,
    pub(super) at_once: bool,
}

/// How a caller's item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    NotYet,
    /// It is its turn; since when it was admitted.
    Turn(Moment),
    /// It waited for too long.
    TimedOut,
    /// It was handed back.
    Closed,
}

impl<V> Admitted<V> {
    pub(super) const fn new(
        shared: Link<V>,
        id: ItemId,
        cx: Context,
        value: V,
        at_once: Option<Instant>,
    ) -> Self {
        Self { value: Some(value), waiting: Waiting { item: Some((shared, id)), cx, at_once } }
    }

    /// An item that was to wait again and came too late.
    pub(super) const fn gone(cx: Context, value: V) -> Self {
        Self { value: Some(value), waiting: Waiting { item: None, cx, at_once: None } }
    }

    /// The item, for [`Sluice::why`](super::Sluice::why); `None` when it was handed back.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice, Why};
    ///
    /// let sluice = Sluice::<()>::builder("agents", 1, 10).build()?;
    /// let cx = Context::new();
    /// let runs = sluice.turn(&cx, Entry::of("alice"), ()).await?;
    /// let waits = sluice.enter(&cx, Entry::of("bob"), ()).await?;
    /// let why = waits.id().and_then(|id| sluice.why(id)).ok_or("gone")?.why;
    /// assert_eq!(why, Why::AtLimit { running: 1, limit: 1 });
    /// runs.finish();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> Option<ItemId> {
        self.waiting.item.as_ref().map(|(_, id)| *id)
    }

    /// The value.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
    /// let admitted = sluice.enter(&Context::new(), Entry::of("alice"), "ask").await?;
    /// assert_eq!(admitted.value(), &"ask");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> &V {
        self.value.as_ref().expect("taken only by its turn")
    }

    /// Waits for the turn, for as long as the context and the sluice's queue timeout let it.
    ///
    /// Dropped while it waits, the item leaves the queue; a turn just given to it goes on to the next.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice};
    ///
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).build()?;
    /// let cx = Context::new();
    /// let first = sluice.enter(&cx, Entry::of("alice"), "first").await?.turn().await?;
    /// let second = sluice.enter(&cx, Entry::of("alice"), "second").await?;
    /// let (second, _) = tokio::join!(second.turn(), async { first.finish() });
    /// assert_eq!(second?.finish(), "second");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the value inside: interrupted, waited for too long, or handed back.
    pub async fn turn(mut self) -> Result<Turn<V>, Refused<V>> {
        let turned = self.waiting.turn().await;
        let value = self.value.take().expect("taken only by its turn");
        match turned {
            Ok(running) => Ok(Turn::new(value, running)),
            Err((why, retry_after)) => Err(Refused { why, retry_after, work: value }),
        }
    }
}

impl<V> Admitted<V> {
    /// It was not let in after all: it leaves the queue as if it had never come, and its tenant's admission rate is given
    /// back what it took of it. Dropped instead, it has come and gone.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Rate, Sluice, TenantLimits};
    ///
    /// let each = TenantLimits::new().admission_rate(Rate::per_minute(1)?);
    /// let sluice = Sluice::<&str>::builder("agents", 1, 10).each_tenant(each).build()?;
    /// let admitted = sluice.enter(&Context::new(), Entry::of("alice"), "ask").await?;
    /// let ask = admitted.refuse(); // it could not be written down
    /// assert!(sluice.enter(&Context::new(), Entry::of("alice"), ask).await.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn refuse(mut self) -> V {
        if let Some((shared, id)) = &self.waiting.item {
            shared.line.refund_admission(*id);
        }
        self.value.take().expect("taken only by its turn")
    }
}

impl<V> Waiting<V> {
    async fn turn(&mut self) -> Result<Running<V>, (Refusal, Option<Duration>)> {
        let Some((shared, id)) = &self.item else { return Err((Refusal::Draining, None)) };
        if let (Some(at), Ok(())) = (self.at_once, shared.may_begin(&self.cx)) {
            let (shared, id) = self.item.take().expect("looked at just now");
            return Ok(Running::new(shared, id, at, at, Some(self.cx.clone())));
        }
        let (shared, id) = (Arc::clone(shared), *id);
        let heard = self.cx.until_interrupted(poll_fn(|poller| {
            // Before it hears of its turn, since from then on it counts as started.
            if let Err(why) = shared.may_begin(&self.cx) {
                return Poll::Ready(Err(why));
            }
            match shared.line.hear(shared.alarm.now(), id, poller.waker()) {
                Heard::NotYet => Poll::Pending,
                heard => Poll::Ready(Ok(heard)),
            }
        }));
        let why = match heard.await.and_then(|heard| heard) {
            Ok(Heard::Turn(admitted)) => {
                self.item = None;
                let (cx, now) = (Some(self.cx.clone()), Instant::now());
                let admitted = shared.alarm.instant(admitted).unwrap_or(now);
                return Ok(Running::new(shared, id, admitted, now, cx));
            }
            Ok(Heard::TimedOut) => {
                Refusal::QueueTimeout { after: shared.queue_timeout.unwrap_or_default() }
            }
            Ok(_) => Refusal::Draining,
            Err(why) => Refusal::Interrupted(why),
        };
        // What was handed back or timed out is counted where that was done.
        if let (true, Refusal::Interrupted(why)) = (self.withdraw(), &why) {
            shared.counters.interrupted(*why);
        }
        Err((why, shared.overload.retry_after()))
    }

    /// `false` when there is nothing to withdraw any more.
    fn withdraw(&mut self) -> bool {
        self.item.take().is_some_and(|(shared, id)| {
            shared.after(shared.line.withdraw_caller(shared.alarm.now(), id))
        })
    }
}

impl<V> Drop for Waiting<V> {
    fn drop(&mut self) {
        let shared = self.item.as_ref().map(|(shared, _)| Arc::clone(shared));
        if self.withdraw()
            && let Some(shared) = shared
        {
            shared.counters.cancelled.count();
        }
    }
}

impl<V> Line<V> {
    /// How a caller's item stands; while it waits, the waker hears of its turn.
    pub(super) fn hear(&self, now: Moment, id: ItemId, waker: &Waker) -> Heard {
        // Cloned before and dropped after the lock is held: both run the executor's code.
        let waker = waker.clone();
        let (heard, displaced) = self.attend(|state| {
            let State { fair, ledger, timed_out, .. } = state;
            let Some(slot) = fair.get_mut(id) else {
                let was_late = timed_out.remove(&id);
                return (if was_late { Heard::TimedOut } else { Heard::Closed }, Some(waker));
            };
            match &mut slot.runner {
                Runner::Caller { told: false, waker: known } => {
                    (Heard::NotYet, known.replace(waker))
                }
                // What was told at once is counted already.
                _ => {
                    if !slot.at_once {
                        ledger.started(now, now - slot.since);
                    }
                    (Heard::Turn(slot.admitted), Some(waker))
                }
            }
        });
        drop(displaced);
        heard
    }

    /// A caller's item gives back what it took of its tenant's admission rate.
    pub(super) fn refund_admission(&self, id: ItemId) {
        self.attend(|state| state.fair.refund_admission(id));
    }

    pub(super) fn withdraw_caller(&self, now: Moment, id: ItemId) -> After<V, bool> {
        let After { result, alarm, expired } = self.change(now, |state, _| {
            state.timed_out.remove(&id);
            let slot = state.cancel(id).or_else(|| state.fair.revoke(id));
            if let Some(slot) = slot.as_ref().filter(|slot| slot.at_once) {
                state.ledger.not_started(slot.admitted);
            }
            slot
        });
        After { result: result.is_some(), alarm, expired }
    }
}

impl<V> State<V> {
    pub(super) fn enter_caller(
        &mut self,
        entry: Entry,
        overload: Overload,
        wakers: &mut Vec<Waker>,
    ) -> Result<Entered, Full> {
        let now = self.now;
        let slot = Slot::new(Runner::Caller { told: false, waker: None }, now);
        let admitted = self.fair.admit_at_once(now, entry, slot);
        let (id, mut at_once) = admitted.map_err(|refused| refused.why)?;
        self.admitted(id, !at_once);
        if !at_once {
            self.tell_callers(wakers);
        }
        let Self { fair, ledger, .. } = self;
        let slot = fair.get_mut(id).expect("it was let in just now");
        if let Runner::Caller { told, .. } = &mut slot.runner {
            *told |= at_once;
            at_once = *told;
        }
        (slot.at_once, slot.is_new) = (at_once, !at_once);
        if at_once {
            ledger.started(now, Duration::ZERO);
        } else if overload == Overload::FailFast {
            let why = self.fair.why(now, id);
            self.refuse(id);
            self.ledger.admitted -= 1;
            return Err(why.map_or(Full::Draining, not_at_once));
        }
        Ok(Entered { id, at_once })
    }
}

/// Why an item that must not wait would have to.
pub(super) const fn not_at_once(why: Why) -> Full {
    match why {
        Why::TenantAtLimit { running, max } => Full::TenantAtLimit { in_use: running, limit: max },
        Why::RateLimited { until } => Full::RateLimited { until },
        Why::AtLimit { running, limit } => Full::AtLimit { in_use: running, limit },
        Why::Paused { reason } => Full::Paused { reason },
        // Others of its key, or others that were put back, go first.
        _ => Full::KeyBusy,
    }
}
