//! One queue of a database, as a source.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Discarded, Finds, Found, KeepsOrder, Message, Order,
    Profile, Publication, PublishError, Published, PutBack, Receipt, Rest, Settle, Settled, Source,
    SourceError,
};
use sluicegate_postgres_link::{Broken, CONNECT, connector};
use sluicegate_tasks::TaskGroup;
use tokio::time::{Instant, sleep_until, timeout};

use super::find::Counted;
use super::front::{Front, Look};
use super::link::Link;
use super::schema::{self, Names};
use super::settings::PostgresSettings;
use super::shared::Shared;
use super::{claimer, find, keeper, publish, settle};
use crate::{Content, OpenError};

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);
/// How many deliveries one call may settle.
const SETTLE_BATCH: usize = 1000;
const TASKS: u32 = 2;

/// A queue in PostgreSQL.
pub struct PostgresSource<M = Message> {
    shared: Arc<Shared>,
    front: Arc<Front<M>>,
    counted: Counted,
    /// What claims and what listens; they end with the source.
    _tasks: TaskGroup,
}

impl<M: Content> PostgresSource<M> {
    /// Opens a queue, and makes it and its tables where they are not there. A database that is not
    /// reached is tried again in the background, and [`Source::health`] says why.
    ///
    /// # Errors
    /// [`OpenError::Refused`] with what to do about it, and [`OpenError::Address`].
    pub async fn open(settings: PostgresSettings) -> Result<Self, OpenError> {
        let shelf_life = claimer::shelf_life(settings.visibility);
        let shared = Arc::new(Shared::new(settings)?);
        match timeout(CONNECT, shared.prepare()).await {
            Ok(Err(error @ OpenError::Unreachable(_))) => {
                shared.link.note(Some(&SourceError::new(error)));
            }
            Ok(prepared) => {
                prepared?;
            }
            Err(_) => {
                shared.link.note(Some(&SourceError::new(Broken::late())));
            }
        }
        let front = Arc::new(Front::new(shelf_life));
        let name = format!("postgres queue {}", shared.settings.queue);
        let tasks = TaskGroup::new(name, TASKS).expect("it has a name and room");
        let (for_claimer, at) = (Arc::clone(&shared), Arc::clone(&front));
        let claim = tasks.submit_detached("claimer", |cx| claimer::run(cx, for_claimer, at)).await;
        let for_keeper = Arc::clone(&shared);
        let keep = tasks.submit_detached("keeper", |cx| keeper::run(cx, for_keeper)).await;
        debug_assert!(claim.is_ok() && keep.is_ok(), "a new group has room for both");
        Ok(Self { shared, front, counted: Counted::default(), _tasks: tasks })
    }

    async fn receive_within(
        &self,
        demand: Demand,
        wait: Duration,
    ) -> Result<Vec<Delivery<M>>, SourceError> {
        if demand.most() == 0 {
            return Ok(Vec::new());
        }
        let give_up = Instant::now() + wait;
        let seen = self.front.failures();
        let openings = demand.openings().cloned();
        let mut asking = None;
        loop {
            let changed = self.front.changed.notified();
            tokio::pin!(changed);
            // From here on nothing that happens is missed, though nobody waits yet.
            changed.as_mut().enable();
            let told = openings.as_ref().map(|openings| openings.told());
            // What it takes it answers at once: there is no await at which it could be dropped.
            match self.front.take(&demand, seen) {
                Look::Some(taken) => return Ok(taken),
                Look::Stopped => return Ok(Vec::new()),
                Look::Failed(failure) => return Err(failure),
                Look::None => {}
            }
            if Instant::now() >= give_up {
                return self.shared.link.failure().map_or(Ok(Vec::new()), Err);
            }
            asking.get_or_insert_with(|| self.front.ask(demand.clone()));
            tokio::select! {
                () = changed => {}
                () = OptionFuture::from(told).map(drop), if openings.is_some() => {
                    // It wants more than before.
                    self.front.asked.notify_one();
                }
                () = sleep_until(give_up) => {}
            }
        }
    }
}

impl<M: Content> Source<M> for PostgresSource<M> {
    fn profile(&self) -> Profile {
        Profile {
            keeps_order: KeepsOrder::OneByOne,
            keeps_dead_letters: true,
            keeps_rests: true,
            selects: true,
            finds: Finds::All,
            ..Profile::new(self.shared.settings.visibility, SETTLE_BATCH)
        }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>> {
        Box::pin(self.receive_within(demand, WAIT))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(settle::settle(&self.shared, settle.into_iter().map(settle::of)))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(settle::extend(
            &self.shared,
            receipts,
            claimer::span(self.shared.settings.visibility),
        ))
    }

    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let span = claimer::span(self.shared.settings.visibility);
        Box::pin(settle::rest(&self.shared, rests, span))
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(find::depth(&self.shared, &self.counted))
    }

    fn health(&self) -> Result<(), SourceError> {
        self.shared.link.failure().map_or(Ok(()), Err)
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.front.stop();
        // What was claimed and not taken is handed back by the claimer.
        self.shared.wake.notify_one();
        Box::pin(async {})
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(publish::publish(&self.shared, messages))
    }

    fn put_back(&self, messages: Vec<PutBack>) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(publish::put_back(&self.shared, messages))
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        Box::pin(find::find(&self.shared, id))
    }

    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discarded, SourceError>> {
        Box::pin(find::discard(&self.shared, id))
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.shared.keep_order(order);
    }
}

impl<M> fmt::Debug for PostgresSource<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSource")
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}

/// Whether a queue could be opened: connects, authenticates and looks, and changes nothing.
///
/// # Errors
/// Says whether a person must help or whether it was only not reached.
pub async fn probe(settings: &PostgresSettings) -> Result<(), OpenError> {
    let tls = connector(settings.address.ca.as_deref())?;
    let look = async {
        let link = Link::new(&settings.clone().with_connections(1), tls);
        let client = link.connect().await?;
        schema::inspect(&client, &Names::new(&settings.address.schema)).await
    };
    timeout(CONNECT, look).await.unwrap_or_else(|_| Err(Broken::late().into()))
}
