//! A queue of SQS as a source.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, KeepsOrder, Message, Profile, Publication, PublishError,
    Published, Receipt, Settle, Settled, Source, SourceError,
};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::books::Books;
use super::client::{Link, Look};
use super::polls::Polls;
use super::settings::SqsSettings;
use super::trouble::Trouble;
use crate::network::pause::Pauses;
use crate::{Content, OpenError};

/// How long opening and probing may take.
const OPENING: Duration = Duration::from_secs(5);
/// How long stopping may take beyond the wait of the polls that are under way.
const STOPPING: Duration = Duration::from_secs(5);
/// How many deliveries one call may settle: ten calls, side by side.
const SETTLE_BATCH: usize = 100;
/// More polls than this at once are not begun; others wait for what these bring.
const MOST_POLLS: u32 = 256;

/// A queue of SQS.
///
/// Messages that were received stay hidden for the window of the settings, counted by the service:
/// a process that ends without a word leaves them to come back when it is over.
pub struct SqsSource<M: Content = Message> {
    inner: Arc<Inner<M>>,
}

/// What the source and its tasks share.
pub(super) struct Inner<M: Content> {
    pub(super) link: Link,
    pub(super) life: u64,
    pub(super) books: Mutex<Books>,
    /// Locked before the books, never after.
    pub(super) polls: Mutex<Polls<M>>,
    pub(super) changed: Notify,
    /// Windows have begun anew, or have not.
    pub(super) extended: Notify,
    pub(super) stopped: AtomicBool,
    look: OnceLock<Look>,
    /// What keeps each part of it from working.
    failures: Mutex<[Option<String>; 2]>,
    /// Taken when the source is dropped, so that tasks that still hold this end.
    tasks: Mutex<Option<TaskGroup>>,
}

/// A part of the work that works or fails by itself, as its rights are given by themselves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Receiving,
    Settling,
}

impl<M: Content> SqsSource<M> {
    /// Connects to a queue, and creates it where there is none. A service that is not reached within
    /// 5 seconds is tried again in the background, and [`Source::health`] says so meanwhile.
    ///
    /// # Errors
    /// What only a person can change: an address, credentials, rights, a certificate.
    pub async fn open(settings: SqsSettings) -> Result<Self, OpenError> {
        let link = timeout(OPENING, Link::new(settings)).await;
        let link = link.unwrap_or_else(|_| {
            let why = "the AWS configuration did not answer: set AWS_REGION and credentials";
            Err(OpenError::Refused(why.to_owned()))
        })?;
        let looked = timeout(OPENING, link.look_or_create()).await.unwrap_or_else(|_| {
            let why = format!("{}: no answer within {OPENING:?}", link.settings.endpoint);
            Err(Trouble::Passing(why))
        });
        let name = format!("sqs: {}", link.settings.name);
        let tasks = TaskGroup::new(name, MOST_POLLS + 2);
        let tasks = tasks.map_err(|error| OpenError::Address(error.to_string()))?;
        let inner = Arc::new(Inner::new(link, tasks));
        match looked {
            Ok(look) => inner.looked(look),
            Err(trouble @ Trouble::Passing(_)) => inner.fails(Part::Receiving, &trouble),
            Err(trouble) => return Err(trouble.into()),
        }
        inner.start().await;
        Ok(Self { inner })
    }

    /// Connects, authenticates and looks at the queue. One that is not there is well: it is created
    /// when the source is opened.
    ///
    /// # Errors
    /// Tells what only a person can change from what may pass.
    pub async fn probe(settings: &SqsSettings) -> Result<(), OpenError> {
        let probe = async {
            let link = Link::new(settings.clone()).await?;
            match link.look().await {
                Ok(_) | Err(Trouble::Missing(_)) => Ok(()),
                Err(trouble) => Err(trouble.into()),
            }
        };
        timeout(OPENING, probe).await.unwrap_or_else(|_| {
            let why = format!("{}: no answer within {OPENING:?}", settings.endpoint);
            Err(OpenError::Unreachable(why))
        })
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.inner.link.settings.name
    }
}

impl<M: Content> Inner<M> {
    fn new(link: Link, tasks: TaskGroup) -> Self {
        let life = RandomState::new().hash_one(link.queue_url.as_str());
        Self {
            link,
            life,
            books: Mutex::new(Books::new(life)),
            polls: Mutex::new(Polls::new()),
            changed: Notify::new(),
            extended: Notify::new(),
            stopped: AtomicBool::new(false),
            look: OnceLock::new(),
            failures: Mutex::default(),
            tasks: Mutex::new(Some(tasks)),
        }
    }

    /// The group that polls run in, until the source is dropped.
    pub(super) fn group(&self) -> Option<TaskGroup> {
        self.tasks.lock().clone()
    }

    async fn start(self: &Arc<Self>) {
        let Some(group) = self.group() else { return };
        if self.look.get().is_none() {
            let inner = Arc::clone(self);
            let look =
                |cx: Context| async move { cx.until_interrupted(inner.keep_looking()).await };
            drop(group.submit_detached("look", look).await);
        }
        let inner = Arc::clone(self);
        let keep = |cx: Context| async move {
            let pause = inner.link.settings.window / 4;
            while cx.until_interrupted(sleep(pause)).await.is_ok() {
                inner.keep_ready().await;
            }
        };
        drop(group.submit_detached("keep", keep).await);
    }

    /// Looks at a queue that was not reached until it is.
    async fn keep_looking(&self) {
        let mut pauses = Pauses::default();
        loop {
            sleep(pauses.next()).await;
            match self.link.look_or_create().await {
                Ok(look) => return self.looked(look),
                Err(trouble) => self.fails(Part::Receiving, &trouble),
            }
        }
    }

    fn looked(&self, look: Look) {
        // Only one looks at a time, and only until the first answer.
        self.look.get_or_init(|| look);
        self.works(Part::Receiving);
    }

    /// Whether the queue was seen once: before that it may have to be created.
    pub(super) fn is_looked_at(&self) -> Result<(), Trouble> {
        match self.look.get() {
            Some(_) => Ok(()),
            None => {
                let [why, _] = self.failures.lock().clone();
                Err(Trouble::Refused(why.unwrap_or_else(|| "the queue was not reached".to_owned())))
            }
        }
    }

    /// Where messages that will never work go.
    pub(super) fn dead_letters(&self) -> Option<Arc<str>> {
        self.look.get()?.dead_letters.clone()
    }

    pub(super) fn works(&self, part: Part) {
        self.failures.lock()[part as usize] = None;
    }

    pub(super) fn fails(&self, part: Part, trouble: &Trouble) {
        self.failures.lock()[part as usize] = Some(trouble.to_string());
    }

    async fn depth(&self) -> Result<Depth, SourceError> {
        let counted = self.link.depth().await?;
        let (resting, unseen) = self.books.lock().resting(Instant::now());
        // The service counts what was handed back with a delay among what is out.
        Ok(Depth {
            waiting: counted.waiting.saturating_sub(unseen),
            delayed: counted.delayed + resting,
            out: counted.out.saturating_sub(resting - unseen),
        })
    }

    async fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.changed.notify_waiters();
        // What is late comes back by itself.
        timeout(self.link.settings.wait + STOPPING, self.end_polls()).await.ok();
    }
}

impl<M: Content> Drop for SqsSource<M> {
    fn drop(&mut self) {
        drop(self.inner.tasks.lock().take());
    }
}

impl<M: Content> fmt::Debug for SqsSource<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsSource").field("link", &self.inner.link).finish_non_exhaustive()
    }
}

impl<M: Content> Source<M> for SqsSource<M> {
    fn profile(&self) -> Profile {
        Profile {
            // A FIFO queue keeps a group to one batch, and of a standard queue nobody expects order.
            keeps_order: KeepsOrder::ByBatch,
            keeps_dead_letters: self.inner.dead_letters().is_some(),
            ..Profile::new(self.inner.link.settings.window, SETTLE_BATCH)
        }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>> {
        Box::pin(self.inner.receive(demand.most()))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.inner.settle(settle))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.inner.extend(receipts))
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(self.inner.depth())
    }

    fn health(&self) -> Result<(), SourceError> {
        let failures = self.inner.failures.lock();
        let failure = failures.iter().flatten().next();
        failure.map_or(Ok(()), |cause| Err(SourceError::new(cause)))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.stop())
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(self.inner.publish(messages))
    }
}
