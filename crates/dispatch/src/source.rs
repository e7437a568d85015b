//! The seam to whatever messages wait in.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{Delivery, Demand, Message, Order, Reason, Receipt, Settlement};

/// A boxed future, so that the seams can be used as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where messages come from and are settled.
///
/// What holds for every source, and is tested by the conformance suite:
///
/// **Receiving**
/// 1. Nothing is lost: a delivery that is neither settled nor extended comes back when its
///    visibility window ends, and one whose `receive` was dropped comes back too.
/// 2. A delivery is not handed out again within its window.
///
/// **Demand**
/// 3. A source that [selects](Profile::selects) hands out only what its [`Demand`] has room for, and a pool
///    without room holds up no other. The others hand out in their own order.
///
/// **Settling and durability**
/// 4. [`settle`](Source::settle) is one step that carries its delay; when it has answered
///    [`Settled::Done`], that is durable. Each settlement is answered by itself: one that fails holds
///    up no other.
/// 5. A receipt of an earlier delivery settles nothing: it is [`Settled::Stale`].
/// 6. [`rest`](Source::rest) notes what became of deliveries that stay out: where the source
///    [keeps that](Profile::keeps_rests), they come again after a crash, or when their windows end, as if they had been
///    settled like that.
/// 7. [`Settlement::Park`] keeps the message where this source keeps dead letters, if
///    [it does](Profile::keeps_dead_letters); else the message is gone.
/// 8. [`discard`](Source::discard) takes out what waits, if the source can: when it has answered
///    [`Discarded::Done`], the message is gone durably, and what waited behind it goes on. What is handed out it leaves
///    alone.
///
/// **Order**
/// 9. A source that [keeps order](Profile::keeps_order) hands out a later message of a key that
///    [`keep_order`](Source::keep_order) names only once the earlier ones are over, to whomever; where it keeps order
///    by batches, but for those that it hands out together.
///
/// Calls may be made at once from several tasks.
///
/// `M` is what is read out of a body: the router takes [`Message`]s, a handler written in Rust takes
/// [`Envelope`](crate::Envelope)s. The source itself is the same.
pub trait Source<M = Message>: Send + Sync + 'static {
    /// What it can do.
    fn profile(&self) -> Profile;

    /// At most as many deliveries as there is demand for, in order. Waits a while for the first one; an
    /// empty answer only says that none came.
    ///
    /// # Cancel safety
    /// Dropped, it hands out nothing, or what it took comes back.
    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>>;

    /// Settles deliveries. The answers are in the order of the questions.
    ///
    /// # Errors
    /// None of them was settled, as far as is known.
    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>>;

    /// Begins the visibility windows of deliveries anew. The answers are in the order of the
    /// receipts.
    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>>;

    /// Notes how often deliveries were tried and when they may be tried again, though they stay out. It holds for that
    /// delivery alone, and takes the place of what was noted of it before. The answers are in the order of the questions.
    ///
    /// # Errors
    /// None of them was noted, as far as is known.
    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { Ok(vec![Settled::Done; rests.len()]) })
    }

    /// How many messages it holds.
    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>>;

    /// Whether it could be used the last time it was.
    ///
    /// # Errors
    /// What keeps it from working.
    fn health(&self) -> Result<(), SourceError>;

    /// Ends it: a `receive` that waits answers at once, and later ones are empty. Settling still
    /// works.
    fn stop(&self) -> BoxFuture<'_, ()>;

    /// Takes messages in, durably and all or none.
    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        drop(messages);
        Box::pin(async { Err(PublishError::NotPublishable) })
    }

    /// Takes messages in again that it handed out before and that were kept elsewhere, durably and all or none:
    /// each at its old place where it can, so that what came later stays behind. One that is there already is
    /// left as it is.
    fn put_back(&self, messages: Vec<PutBack>) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            let messages = messages.into_iter().map(PutBack::into_publication).collect();
            self.publish(messages).await.map(drop)
        })
    }

    /// Looks for a message by the application's id, as far as [it can](Profile::finds).
    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        let _ = id;
        Box::pin(async { Ok(None) })
    }

    /// Gives up a message for good that waits here, durably, by the application's id: when it has answered
    /// [`Discarded::Done`] the message is not handed out any more. What is handed out is its receiver's to settle.
    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discarded, SourceError>> {
        let _ = id;
        Box::pin(async { Ok(Discarded::NotPossible) })
    }

    /// What must stay in order across deliveries from now on.
    fn keep_order(&self, order: &Arc<Order>) {
        let _ = order;
    }
}

/// What a source can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// How long a delivery stays hidden without being extended.
    pub visibility: Duration,
    /// How many deliveries one call may settle or extend.
    pub settle_batch: usize,
    /// How far it keeps order.
    pub keeps_order: KeepsOrder,
    /// Whether it keeps what is parked with it.
    pub keeps_dead_letters: bool,
    /// Whether it keeps what [`rest`](Source::rest) notes.
    pub keeps_rests: bool,
    /// Whether it hands out by pool.
    pub selects: bool,
    /// What [`find`](Source::find) can see.
    pub finds: Finds,
}

/// How far a source keeps the messages of a key in order across deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepsOrder {
    /// Not at all: one batch at a time is taken for what must stay in order, and nothing of it goes back but to end.
    #[default]
    Not,
    /// Several of a key may be handed out together, and no others of it until all of these are over. What is left of
    /// them here would run before one that went back, so none goes back but to end.
    ByBatch,
    /// One at a time: what goes back comes again before all that came later.
    OneByOne,
}

impl KeepsOrder {
    /// Whether no batch hands out what must come after a message of another one.
    pub(crate) fn across_batches(self) -> bool {
        self != Self::Not
    }

    /// Whether a message may go back while others of its key stay here, since there are none.
    #[must_use]
    pub fn one_by_one(self) -> bool {
        self == Self::OneByOne
    }
}

/// Which of its messages a source can find by their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finds {
    /// None of them.
    #[default]
    Nothing,
    /// Those that it has handed out, or has given a delay. Others may wait in it.
    Some,
    /// All: what it does not find it does not have.
    All,
}

impl Profile {
    /// A source that can do nothing but hand out and settle.
    #[must_use]
    pub const fn new(visibility: Duration, settle_batch: usize) -> Self {
        Self {
            visibility,
            settle_batch,
            keeps_order: KeepsOrder::Not,
            keeps_dead_letters: false,
            keeps_rests: false,
            selects: false,
            finds: Finds::Nothing,
        }
    }
}

/// One delivery to settle, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Which delivery.
    pub receipt: Receipt,
    /// What becomes of its message.
    pub settlement: Settlement,
}

impl Settle {
    /// A delivery whose message is done with.
    #[must_use]
    pub const fn ack(receipt: Receipt) -> Self {
        Self { receipt, settlement: Settlement::Ack }
    }

    /// A delivery whose message will never work.
    #[must_use]
    pub const fn park(receipt: Receipt) -> Self {
        Self { receipt, settlement: Settlement::Park }
    }
}

/// A delivery that stays out and is to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Which delivery.
    pub receipt: Receipt,
    /// Not before this has passed.
    pub after: Duration,
    /// How many attempts were made by now.
    pub attempts: u32,
    /// Why it is to be tried again.
    pub reason: Reason,
}

/// What became of a settlement or an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is done, durably.
    Done,
    /// The receipt was not valid any more. The message is gone, or will be delivered again.
    Stale,
    /// It could not be done. Trying again later may help.
    Failed(SourceError),
}

/// What became of a message that was to be discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// It is gone, durably.
    Done,
    /// It was handed out, here or to another reader of the queue.
    Out,
    /// There is no such message.
    NotFound,
    /// This source cannot take out a message by its id.
    NotPossible,
}

/// How many messages a source holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Those that could be received now, or wait behind others of their group.
    pub waiting: u64,
    /// Those that may not be received yet.
    pub delayed: u64,
    /// Those that were received and are not settled.
    pub out: u64,
}

/// A message to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The message, checked.
    pub message: Message,
    /// Its body as it goes on the wire.
    pub body: Box<str>,
    /// How long its first delivery waits.
    pub delay: Duration,
}

/// A message that goes back to where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBack {
    /// What its source called it.
    pub broker_id: Arc<str>,
    /// What it is recognised by when it is put back twice: no publication before had this name.
    pub name: Arc<str>,
    /// It as it was published.
    pub publication: Publication,
}

impl PutBack {
    /// As a new message, which no source takes for one that it has seen before: its body is as it was, but what
    /// recognises it is its own.
    fn into_publication(self) -> Publication {
        let Self { name, mut publication, .. } = self;
        publication.message.id = name;
        publication
    }
}

/// What became of messages that were published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// All that were accepted.
    pub accepted: u64,
    /// Those of them whose id had been seen shortly before, and which were not stored again.
    pub duplicates: u64,
}

/// Why messages were not published. None of them was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// This source only hands out.
    NotPublishable,
    /// The source could not store them.
    Source(SourceError),
}

/// A message that a source holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its body as it came.
    pub body: Box<str>,
    /// Where it is.
    pub state: FoundState,
    /// How many attempts were made.
    pub attempts: u32,
    /// How long ago it came.
    pub age: Duration,
}

/// Where a message is in its source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundState {
    /// It can be received.
    Ready,
    /// It waits behind this message of its group.
    Behind(Arc<str>),
    /// It may not be received before this has passed.
    Delayed {
        /// The rest of its delay.
        rest: Duration,
        /// Why it waits.
        reason: Reason,
    },
    /// It was received.
    Out,
}

/// A source that could not do what it was asked. Trying again later may help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// What happened, without any secret.
    pub cause: String,
}

impl SourceError {
    /// An error by its cause.
    pub fn new(cause: impl fmt::Display) -> Self {
        Self { cause: cause.to_string() }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for SourceError {}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublishable => f.write_str("this queue cannot be published to"),
            Self::Source(error) => write!(f, "could not store the messages: {error}"),
        }
    }
}

impl std::error::Error for PublishError {}
