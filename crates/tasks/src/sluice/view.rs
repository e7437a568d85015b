//! Looking in: counts, what waits, and why.
//!
//! `docs/rules.md#schedule-6`, `docs/rules.md#count-1`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Class, ItemId, TenantView, Why};
use tokio::time::Instant;

use super::ledger::LastMinute;
use super::{Shared, Sluice};
use crate::drain::Drained;
use crate::stats::Gauges;
use crate::{Running, Stats};

/// Why an item is not running yet, and until when, where that is known.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, Rate, Sluice, Why};
/// use tokio::time::Instant;
///
/// let sluice = Sluice::<()>::builder("agents", 4, 10).rate(Rate::per_minute(1)?).build()?;
/// let cx = Context::new();
/// sluice.turn(&cx, Entry::of("alice"), ()).await?.finish();
/// let waits = sluice.enter(&cx, Entry::of("alice"), ()).await?;
/// let not = waits.id().and_then(|id| sluice.why(id)).ok_or("gone")?;
/// assert!(matches!(not.why, Why::RateLimited { .. }));
/// assert!(not.until > Some(Instant::now()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyNot {
    /// The reason.
    pub why: Why,
    /// Until when it holds by itself.
    pub until: Option<Instant>,
}

/// An item that waits.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Class, Entry, Sluice, Why};
///
/// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
/// let id = sluice.admit(Entry::of("alice").key("cart").class(Class::Low), 1)?;
/// let [item] = &sluice.waiting(100)[..] else { unreachable!("nothing else was let in") };
/// assert_eq!((item.id, &*item.tenant, item.key.as_deref()), (id, "alice", Some("cart")));
/// assert_eq!((item.class, item.why.why), (Class::Low, Why::NoWorker));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingItem {
    /// The item.
    pub id: ItemId,
    /// Whose it is.
    pub tenant: Arc<str>,
    /// What it stays in order with.
    pub key: Option<Arc<str>>,
    /// How urgent it is.
    pub class: Class,
    /// How long it has waited.
    pub waited: Duration,
    /// Whether it was tried before.
    pub again: bool,
    /// What it waits for.
    pub why: WhyNot,
}

impl<V> Sluice<V> {
    /// Why an item is not running yet. `None` when it is not here (any more).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice, Why};
    ///
    /// let sluice = Sluice::<&str>::builder("orders", 1, 10).build()?;
    /// let first = sluice.admit(Entry::of("alice").key("cart"), "add")?;
    /// let second = sluice.admit(Entry::of("alice").key("cart"), "pay")?;
    /// assert_eq!(sluice.why(first).ok_or("gone")?.why, Why::NoWorker);
    /// let _turn = sluice.next().await;
    /// assert_eq!(sluice.why(second).ok_or("gone")?.why, Why::KeyBusy { head: first });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn why(&self, id: ItemId) -> Option<WhyNot> {
        let shared = self.shared();
        let now = shared.alarm.now();
        let why = shared.line.attend(|state| {
            state.advance(now);
            state.why(id)
        });
        why.map(|why| shared.why_not(why))
    }

    /// What waits, longest first, at most `limit` of it. Depths by class and tenant are in
    /// [`queued_by_class`](Sluice::queued_by_class) and [`tenants`](Sluice::tenants).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit_all((0..3).map(|n| (Entry::of("alice"), n)).collect())?;
    /// assert_eq!((sluice.waiting(2).len(), sluice.waiting(9).len()), (2, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn waiting(&self, limit: usize) -> Vec<WaitingItem> {
        let shared = self.shared();
        let now = shared.alarm.now();
        shared.line.attend(|state| {
            state.advance(now);
            let waiting = state.fair.waiting().take(limit).map(|item| WaitingItem {
                id: item.id,
                tenant: Arc::clone(item.tenant),
                key: item.key.map(Arc::clone),
                class: item.class,
                waited: now - item.since,
                again: item.again,
                why: WhyNot { why: Why::Ready, until: None },
            });
            let mut waiting: Vec<WaitingItem> = waiting.collect();
            for item in &mut waiting {
                item.why = state.why(item.id).map_or(item.why, |why| shared.why_not(why));
            }
            waiting
        })
    }

    /// How many wait in each class, in the order of [`Class::ALL`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Class, Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit(Entry::of("alice").class(Class::Admin), 1)?;
    /// sluice.admit(Entry::of("alice"), 2)?;
    /// assert_eq!(sluice.queued_by_class(), [0, 1, 1, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn queued_by_class(&self) -> [u32; Class::COUNT] {
        let shared = self.shared();
        shared.line.snapshot(shared.alarm.now()).queued_by_class
    }

    /// What runs, longest first, by tenant and key; and the keys that are kept without anything running.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice};
    ///
    /// let sluice = Sluice::<()>::builder("agents", 1, 10).build()?;
    /// let _turn = sluice.turn(&Context::new(), Entry::of("alice").key("s-1"), ()).await?;
    /// assert_eq!(sluice.running()[0].name, "alice/s-1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn running(&self) -> Vec<Running> {
        self.shared().list()
    }

    /// The tenants that have items, or are still in debt for those they had, in no order.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit_all((0..3).map(|n| (Entry::of("alice"), n)).collect())?;
    /// let _turn = sluice.next().await;
    /// let [alice] = &sluice.tenants()[..] else { unreachable!("nobody else was let in") };
    /// assert_eq!((&*alice.tenant, alice.running, alice.queued), ("alice", 1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantView<Arc<str>>> {
        self.shared().line.view(|fair| fair.tenants().collect())
    }

    /// The counters and gauges.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Entry, Sluice};
    ///
    /// let sluice = Sluice::<u32>::builder("orders", 1, 10).build()?;
    /// sluice.admit_all((0..3).map(|n| (Entry::of("alice"), n)).collect())?;
    /// sluice.next().await.ok_or("closed")?.finish();
    /// let stats = sluice.stats();
    /// assert_eq!((stats.admitted, stats.started, stats.completed), (3, 1, 1));
    /// assert_eq!((stats.gauges.running, stats.gauges.queued), (0, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let now = shared.alarm.now();
        let (snapshot, ledger) =
            shared.line.attend(|state| (state.fair.snapshot(now), state.ledger.counts()));
        let gauges = Gauges {
            queued: snapshot.queued,
            running: snapshot.running,
            limit: snapshot.concurrency,
            oldest_wait: snapshot.oldest_wait,
        };
        let counted = Stats {
            admitted: ledger.admitted,
            started: ledger.started,
            completed: ledger.completed(),
            queue_timeouts: ledger.queue_timeouts,
            ..shared.counters.snapshot(gauges, Default::default())
        };
        let (wait_time, run_time) = ledger.times();
        Stats { wait_time, run_time, ..counted }
    }

    /// How long items waited and ran in the last 60 seconds, if the sluice was
    /// [built](super::SluiceBuilder::recent_times) to remember it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// assert!(Sluice::<u32>::builder("agents", 1, 10).build()?.recent_times().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn recent_times(&self) -> Option<LastMinute> {
        let shared = self.shared();
        let now = shared.alarm.now();
        shared.line.attend(|state| state.ledger.last_minute(now))
    }

    /// How many may wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// assert_eq!(Sluice::<u32>::builder("orders", 4, 1000).build()?.capacity(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn capacity(&self) -> u32 {
        let shared = self.shared();
        shared.line.snapshot(shared.alarm.now()).capacity
    }

    /// The sluice's name.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::Sluice;
    ///
    /// assert_eq!(Sluice::<u32>::builder("orders", 4, 1000).build()?.name(), "orders");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared().name
    }
}

impl<V> Shared<V> {
    fn why_not(&self, why: Why) -> WhyNot {
        let until = match why {
            Why::RateLimited { until } | Why::KeyRetrying { until, .. } => {
                self.alarm.instant(until)
            }
            _ => None,
        };
        WhyNot { why, until }
    }
}

/// The words of its [`Why`], with how long from now where that is known.
impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.until.map(FromNow);
        match (self.why, until) {
            (Why::RateLimited { .. }, Some(until)) => write!(f, "the rate lets it go {until}"),
            (Why::KeyRetrying { .. }, Some(until)) => write!(f, "its key comes again {until}"),
            (why, _) => why.fmt(f),
        }
    }
}

struct FromNow(Instant);

impl fmt::Display for FromNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { f.write_str("now") } else { write!(f, "in {left:.1?}") }
    }
}

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use std::time::Duration;

    use sluicegate_schedule::Moment;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_an_end_says_how_long_from_now() {
        let (soon, late) = (Duration::from_millis(1_240), Duration::from_millis(3_400));
        let (now, until) = (Instant::now(), Moment::from_nanos(1));
        let retrying = Why::KeyRetrying { head: ItemId::from_parts(0, 1), until };
        let words = |why, until| WhyNot { why, until }.to_string();
        assert_eq!(
            words(Why::RateLimited { until }, Some(now + soon)),
            "the rate lets it go in 1.2s"
        );
        assert_eq!(words(retrying, Some(now + late)), "its key comes again in 3.4s");
        tokio::time::advance(late).await;
        assert_eq!(words(Why::RateLimited { until }, Some(now + soon)), "the rate lets it go now");
    }

    #[test]
    fn what_has_no_end_has_the_words_of_its_reason() {
        let forever = Why::KeyRetrying { head: ItemId::from_parts(0, 1), until: Moment::FAR };
        for why in [Why::NoWorker, Why::AtLimit { running: 8, limit: 8 }, forever] {
            assert_eq!(WhyNot { why, until: None }.to_string(), why.to_string());
        }
    }
}
