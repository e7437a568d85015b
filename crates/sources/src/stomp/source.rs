//! A queue of ActiveMQ Classic, as a source.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Order, Profile, Publication, PublishError, Published,
    Receipt, Settle, Settled, Source, SourceError,
};
use sluicegate_tasks::{Context, Permits, TaskGroup};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connect::{Intent, Session, connect};
use super::parcel::published;
use super::settings::StompSettings;
use super::shared::{Found, Shared};
use super::shelf::Taken;
use super::supervisor::{called_or, supervise};
use crate::{Content, OpenError};

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);
/// How many deliveries one call may settle.
const SETTLE_BATCH: usize = 256;
/// How many batches are published at once. Others wait, so that what is to be written is bounded.
const PUBLISHERS: u32 = 4;

/// A queue of ActiveMQ Classic.
#[derive(Debug)]
pub struct StompSource<M> {
    shared: Arc<Shared>,
    /// The connection that messages are sent by.
    sender: Arc<Shared>,
    publishers: Permits,
    /// Ends the connection when the source goes.
    _tasks: TaskGroup,
    content: PhantomData<fn() -> M>,
}

impl<M: Content> StompSource<M> {
    /// Connects, for at most 5 s. A broker that is not reached is no error: the source says so in its
    /// health and keeps trying.
    ///
    /// # Errors
    /// [`OpenError::Refused`] when the broker does not want us, [`OpenError::Address`] when a file that
    /// the settings name is not right.
    pub async fn open(settings: StompSettings) -> Result<Self, OpenError> {
        let shared = Shared::new::<M>(settings);
        // Receiving begins later; whether one may is asked now.
        if let Err(error @ OpenError::Refused(_)) = Self::probe(&shared.settings).await {
            return Err(error);
        }
        let sender = Shared::new::<M>(shared.settings.clone());
        let tasks = TaskGroup::new(format!("stomp {}", shared.settings.queue), 2)
            .expect("it has a name and a limit");
        let (shared, sender) = (Arc::new(shared), Arc::new(sender));
        let mut is_reached = true;
        for (name, of) in [("connection", &shared), ("sender", &sender)] {
            let session = if is_reached { first_session(of).await? } else { None };
            is_reached = session.is_some();
            let behind = Arc::clone(of);
            let task = tasks.submit_detached(name, |cx| supervise(behind, session, cx)).await;
            // It runs until the source goes; nobody waits for its end.
            drop(task.expect("there are only these tasks in its group"));
        }
        let publishers = Permits::new(PUBLISHERS).expect("there may be several publishers");
        Ok(Self { shared, sender, publishers, _tasks: tasks, content: PhantomData })
    }

    /// Connects, says who we are, looks at the queue and leaves. Takes nothing out of it.
    ///
    /// # Errors
    /// Tells a broker that is not reached from one that refuses.
    pub async fn probe(settings: &StompSettings) -> Result<(), OpenError> {
        connect(settings, Intent::Look).await?.leave().await;
        Ok(())
    }

    async fn receive_within(
        &self,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<M>>, SourceError> {
        let give_up = Instant::now() + wait;
        loop {
            let called = self.shared.changed.notified();
            tokio::pin!(called);
            // From here on nothing that happens is missed, though nobody waits yet.
            called.as_mut().enable();
            let is_late = Instant::now() >= give_up;
            let next = match self.shared.look(max) {
                // What it takes it answers at once: there is no await at which it could be dropped.
                Found::Taken(taken) => return Ok(self.read(taken)),
                Found::Stopped => return Ok(Vec::new()),
                Found::Nothing(_) if is_late || max == 0 => return Ok(Vec::new()),
                Found::Down(error) if is_late => return Err(error),
                Found::Nothing(next) => next,
                Found::Down(_) => None,
            };
            called_or(called, next.map_or(give_up, |next| next.min(give_up))).await;
        }
    }

    fn read(&self, taken: Vec<Taken>) -> Vec<Delivery<M>> {
        let read = |Taken { receipt, parcel, attempts }| {
            let message = match (parcel.is_whole, self.shared.reads_messages()) {
                (false, _) => Err(parcel.malformed()),
                (true, true) => M::read(parcel.bare_envelope()),
                (true, false) => M::read(parcel.envelope(&self.shared.settings.queue)),
            };
            Delivery { broker_id: Arc::clone(&parcel.broker_id), receipt, attempts, message }
        };
        taken.into_iter().map(read).collect()
    }

    async fn publish_all(&self, messages: Vec<Publication>) -> Result<Published, SourceError> {
        let accepted = messages.len() as u64;
        if messages.is_empty() {
            return Ok(Published::default());
        }
        let turn = self.publishers.acquire(&Context::new()).await;
        let _turn = turn.map_err(|error| SourceError::new(error.to_string()))?;
        let destination = self.shared.settings.destination();
        let frame = |publication| published(&destination, publication);
        let answer = self.sender.publish(messages.into_iter().map(frame).collect());
        answer.await.map_err(|_| gone())??;
        Ok(Published { accepted, duplicates: 0 })
    }
}

/// A connection, unless the broker is not reached: then it is tried again in the background.
async fn first_session(shared: &Shared) -> Result<Option<Session>, OpenError> {
    match connect(&shared.settings, Intent::Publish).await {
        Ok(session) => {
            shared.begin(Intent::Publish);
            Ok(Some(session))
        }
        Err(OpenError::Unreachable(why)) => {
            shared.lose(OpenError::Unreachable(why).to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whoever was asked is gone without an answer, which only happens when the runtime ends.
fn gone() -> SourceError {
    SourceError::new("the connection's task has ended")
}

async fn answered(
    answer: oneshot::Receiver<Vec<Settled>>,
    count: usize,
) -> Result<Vec<Settled>, SourceError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    answer.await.map_err(|_| gone())
}

impl<M: Content> Source<M> for StompSource<M> {
    fn profile(&self) -> Profile {
        let visibility = self.shared.settings.visibility;
        Profile { keeps_dead_letters: true, ..Profile::new(visibility, SETTLE_BATCH) }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>> {
        Box::pin(self.receive_within(demand.most(), WAIT))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let count = settle.len();
        let answer = self.shared.settle(&self.sender, settle);
        Box::pin(answered(answer, count))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let answers = self.shared.extend(&receipts);
        Box::pin(async { Ok(answers) })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        let depth = self.shared.depth(self.sender.sent_away());
        Box::pin(async { depth })
    }

    fn health(&self) -> Result<(), SourceError> {
        self.shared.health().and_then(|()| self.sender.health())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.shared.stop();
        Box::pin(async {})
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(async { self.publish_all(messages).await.map_err(PublishError::Source) })
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.shared.keep_order(order);
    }
}
