//! From a place in line to a turn: `Admitted → Turn`, each given up by drop.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sluicegate_schedule::ItemId;
use tokio::time::Instant;

use super::Shared;
use super::callers::Standing;
use crate::line::Back;
use crate::line::entrance::Entrance;
use crate::{Context, Refusal, Refused};

/// An item in line. Dropping it takes it out.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, Turnstile};
///
/// let turnstile = Turnstile::new("agents", 1)?;
/// let cx = Context::new();
/// let _turn = turnstile.admit(&cx, Entry::of("alice"), ())?.turn().await?;
/// let waits = turnstile.admit(&cx, Entry::of("bob"), ())?;
/// assert_eq!(turnstile.stats().gauges.queued, 1); // though nobody awaits its turn yet
/// drop(waits);
/// assert_eq!(turnstile.stats().gauges.queued, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it takes the item out of line"]
pub struct Admitted<V> {
    ticket: Ticket,
    value: V,
}

/// A turn: the right to run, for as long as it is held. Dropping it ends the turn.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Entry, Turnstile};
///
/// let turnstile = Turnstile::new("agents", 1)?;
/// let turn = turnstile.admit(&Context::new(), Entry::of("alice"), ())?.turn().await?;
/// assert_eq!(turnstile.stats().gauges.running, 1);
/// drop(turn);
/// assert_eq!(turnstile.stats().gauges.running, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a turn ends it at once"]
pub struct Turn<V> {
    seat: Seat,
    value: V,
}

/// A place in line. Dropping it leaves.
#[derive(Debug)]
pub(super) struct Ticket {
    place: Option<Place>,
    since: Instant,
}

#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
    id: ItemId,
    cx: Context,
}

/// A place at the turnstile itself. Dropping it makes room for the next.
#[derive(Debug)]
struct Seat {
    place: Option<Place>,
    since: Instant,
}

impl<V> Admitted<V> {
    pub(super) const fn new(ticket: Ticket, value: V) -> Self {
        Self { ticket, value }
    }

    /// The item's id, for [`Turnstile::why`](super::Turnstile::why).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile, Why};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let cx = Context::new();
    /// let _turn = turnstile.admit(&cx, Entry::of("alice").key("session-7"), ())?.turn().await?;
    /// let waits = turnstile.admit(&cx, Entry::of("alice").key("session-8"), ())?;
    /// let id = waits.id().ok_or("gone")?;
    /// assert!(matches!(turnstile.why(id).ok_or("gone")?.why, Why::AtLimit { .. }));
    /// drop(waits);
    /// assert_eq!(turnstile.why(id), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> Option<ItemId> {
        self.ticket.place.as_ref().map(|place| place.id)
    }

    /// What was admitted.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let admitted = turnstile.admit(&Context::new(), Entry::of("alice"), "a prompt")?;
    /// assert_eq!(admitted.value(), &"a prompt");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn value(&self) -> &V {
        &self.value
    }

    /// Waits for the item's turn, under the context it was admitted with.
    ///
    /// Dropped while waiting, the item leaves the line, and a turn that was just given to it goes to
    /// the next; the value is dropped with it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let cx = Context::new();
    /// let turn = turnstile.admit(&cx, Entry::of("alice"), "first")?.turn().await?;
    /// let given_up = turnstile.admit(&cx, Entry::of("bob"), "second")?.turn();
    /// let third = turnstile.admit(&cx, Entry::of("bob"), "third")?;
    /// drop(given_up); // out of line: its place is the next one's
    /// drop(turn);
    /// assert_eq!(third.turn().await?.value(), &"third");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the value inside, when the context ends or the turnstile is drained first.
    pub async fn turn(self) -> Result<Turn<V>, Refused<V>> {
        let Self { ticket, value } = self;
        match ticket.turn().await {
            Ok(seat) => Ok(Turn { seat, value }),
            Err((why, retry_after)) => Err(Refused { why, retry_after, work: value }),
        }
    }
}

impl<V> Turn<V> {
    /// What was admitted.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let turn = turnstile.admit(&Context::new(), Entry::of("alice"), "a prompt")?.turn().await?;
    /// assert_eq!(turn.value(), &"a prompt");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn value(&self) -> &V {
        &self.value
    }

    /// What was admitted, to change.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let entry = Entry::of("alice");
    /// let mut attempts = turnstile.admit(&Context::new(), entry, 0)?.turn().await?;
    /// *attempts.value_mut() += 1;
    /// assert_eq!(attempts.finish(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn value_mut(&mut self) -> &mut V {
        &mut self.value
    }

    /// The context to run under: the caller's, cancelled also when the drain deadline passes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let request = Context::new();
    /// let turn = turnstile.admit(&request, Entry::of("alice"), ())?.turn().await?;
    /// assert!(turn.context().check().is_ok());
    /// request.cancel();
    /// assert!(turn.context().is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn context(&self) -> Context {
        self.seat.place.as_ref().map_or_else(Context::new, |place| place.cx.clone())
    }

    /// Ends the turn. What it cost is the time it was held.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let turn = turnstile.admit(&Context::new(), Entry::of("alice"), "a prompt")?.turn().await?;
    /// assert_eq!(turn.finish(), "a prompt");
    /// assert_eq!(turnstile.stats().completed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn finish(self) -> V {
        self.value
    }

    /// Ends the turn and counts it as failed.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let turn = turnstile.admit(&Context::new(), Entry::of("alice"), "a prompt")?.turn().await?;
    /// assert_eq!(turn.fail(), "a prompt");
    /// assert_eq!(turnstile.stats().failed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fail(self) -> V {
        if let Some(place) = &self.seat.place {
            place.shared.entrance.counters.failed.count();
        }
        self.value
    }

    /// Ends the turn and puts the item back to the front of its key, which runs nothing before
    /// `at`. The order within the key is kept.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Turnstile};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let turnstile = Turnstile::new("agents", 1)?;
    /// let (cx, entry) = (Context::new(), || Entry::of("alice").key("session-7"));
    /// let turn = turnstile.admit(&cx, entry(), "first")?.turn().await?;
    /// let second = turnstile.admit(&cx, entry(), "second")?;
    /// let at = Instant::now() + Duration::from_millis(2);
    /// let again = turn.retry_at(at).turn().await?;
    /// assert!(Instant::now() >= at && again.finish() == "first"); // and only then the second
    /// assert_eq!(second.turn().await?.finish(), "second");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn retry_at(mut self, at: Instant) -> Admitted<V> {
        let now = Instant::now();
        let ran = now - self.seat.since;
        let place = self.seat.place.take();
        if let Some(place) = &place {
            let Entrance { line, alarm, counters, .. } = &place.shared.entrance;
            let (now, until) = (alarm.moment(now), alarm.moment(at));
            let retried = line.retry(now, place.id, Back::Retry { until, cost: ran });
            if !place.shared.entrance.after(retried) {
                counters.handed_back.count();
            }
        }
        Admitted { ticket: Ticket { place, since: now }, value: self.value }
    }
}

impl Ticket {
    pub(super) const fn new(shared: Arc<Shared>, id: ItemId, cx: Context, since: Instant) -> Self {
        Self { place: Some(Place { shared, id, cx }), since }
    }

    async fn turn(mut self) -> Result<Seat, (Refusal, Option<Duration>)> {
        let Some(place) = &self.place else { return Err((Refusal::Draining, None)) };
        let shared = Arc::clone(&place.shared);
        let told = place.cx.until_interrupted(poll_fn(|poller| {
            match shared.entrance.line.look(place.id, poller.waker()) {
                Standing::Waiting => Poll::Pending,
                told => Poll::Ready(told),
            }
        }));
        let why = match told.await {
            // The last look before it runs.
            Ok(Standing::Started) => match place.cx.check() {
                Ok(()) => {
                    let since = Instant::now();
                    shared.entrance.counters.started.count();
                    shared.entrance.counters.waited(since - self.since);
                    return Ok(Seat { place: self.place.take(), since });
                }
                Err(why) => Refusal::Interrupted(why),
            },
            Ok(Standing::Waiting | Standing::Gone) => Refusal::Draining,
            Err(why) => Refusal::Interrupted(why),
        };
        // What was handed back is counted where that was done.
        if let (true, Refusal::Interrupted(why)) = (self.withdraw(), &why) {
            shared.entrance.counters.interrupted(*why);
        }
        Err((why, shared.overload.retry_after()))
    }

    /// Leaves the line. `false` if the item was handed back before.
    fn withdraw(&mut self) -> bool {
        self.place.take().is_some_and(|Place { shared, id, .. }| {
            let Entrance { line, alarm, .. } = &shared.entrance;
            shared.entrance.after(line.withdraw(alarm.now(), id))
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let counters = self.place.as_ref().map(|place| Arc::clone(&place.shared));
        if self.withdraw()
            && let Some(shared) = counters
        {
            shared.entrance.counters.cancelled.count();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(Place { shared, id, .. }) = self.place.take() {
            let now = Instant::now();
            let ran = now - self.since;
            let panicked = std::thread::panicking();
            let Entrance { line, alarm, counters, .. } = &shared.entrance;
            if panicked {
                counters.panicked.count();
            }
            shared.entrance.after(line.finish(alarm.moment(now), id, ran, panicked));
        }
    }
}
