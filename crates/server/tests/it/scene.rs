//! What the tests of the record play with: a message full of secrets, every fact, a clock whose
//! hands are moved, a router with a source and an executor that do as they are told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    AuthToken, BoxFuture, CallStatus, Delivery, Demand, Depth, Fact, Message, Outcome, Parked,
    ParkedCode, ParkedStore, PoolSettings, Profile, PublishError, PutBack, QueueSettings, Reason,
    Receipt, Rejection, Router, Settle, Settled, Severity, Source, SourceError, Target,
};
use sluicegate_executors::InProcess;
use sluicegate_server::record::Record;
use sluicegate_server::time::{Clock, Timestamp};
use sluicegate_testkit::scripted;
use tokio::sync::Notify;

/// A clock whose hands are moved.
#[derive(Debug)]
pub(crate) struct Hands(Mutex<Timestamp>);

impl Hands {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new("2026-11-15T12:00:00Z".parse().expect("a time"))))
    }

    pub(crate) fn forward(&self, by: Duration) {
        let mut now = self.0.lock();
        *now = now.checked_add(by).expect("a time");
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

/// What a future answers at once, if it does.
pub(crate) fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// What must be nowhere in what is written or sent.
pub(crate) const SECRETS: [&str; 2] = ["tok-secret-1", "key=secret-2"];

pub(crate) fn name(text: &str) -> Arc<str> {
    text.into()
}

pub(crate) fn message(id: &str, group: Option<&str>) -> Message {
    Message {
        group: group.map(Into::into),
        target: Target::parse("https://api.example.com/hook?key=secret-2").expect("a target"),
        auth_token: Some(AuthToken::new("tok-secret-1")),
        ..scripted::message(id, "P")
    }
}

/// An endpoint that says so, for good and for now.
fn failures(echo: &str) -> [Outcome; 2] {
    let (why, body) = (echo.to_owned(), Some(echo.into()));
    let severity = Severity::Error;
    let rejected = Rejection { status: Some(400), why, severity, body };
    let (why, body) = (echo.to_owned(), Some(echo.into()));
    let failed = Outcome::RetryLater { after: None, why, status: Some(500), body };
    [Outcome::Rejected(rejected), failed]
}

/// Every fact there is, some in several forms, by a name to speak of it.
pub(crate) fn every_fact(check: impl FnMut(&str, &Fact<'_>)) {
    let (queue, pool, id) = (&name("q"), &name("P"), &name("m1"));
    let message = &message("m1", Some("g"));
    let (took, waited) = (Duration::from_millis(250), Duration::from_millis(40));
    let echo = "https://api.example.com/hook?key=secret-2 answered 400: tok-secret-1 is no token";
    let severity = Severity::Error;
    let [rejected, failed] = failures(echo);
    let hour = Duration::from_secs(3600);
    let (some, code) = (Some(hour), ParkedCode::Rejected);
    let finished = |outcome| Fact::Finished { queue, pool, message, attempt: 1, outcome, took };
    let facts = [
        ("received", Fact::Received { queue, count: 3 }),
        ("failing", Fact::SourceFailed { queue, doing: "receive", cause: "refused" }),
        ("expired", Fact::Expired { queue, count: 2 }),
        ("malformed", Fact::Malformed { queue, why: "id is empty" }),
        ("redelivered", Fact::Redelivered { queue, id }),
        ("requeued", Fact::Requeued { queue, id }),
        ("unknown pool", Fact::UnknownPool { code: &name("NOPE"), id }),
        ("unknown field", Fact::UnknownField { queue, field: "poolcode", id }),
        ("full", Fact::PoolFull { pool, count: 10 }),
        ("serial", Fact::UngroupedSerial { pool }),
        ("admitted", Fact::Admitted { pool, message }),
        ("started", Fact::Started { pool, message, attempt: 2, waited }),
        ("called", Fact::Called { pool, message, status: CallStatus::Http(200), took }),
        ("done", finished(&Outcome::Done)),
        ("failed", finished(&failed)),
        ("given up", finished(&rejected)),
        ("panicked", Fact::Panicked { pool, id, what: "index out of bounds" }),
        ("rejected", Fact::Rejected { pool, message, severity, why: echo }),
        (
            "not implemented",
            Fact::Rejected { pool, message, severity: Severity::Critical, why: "answered 501" },
        ),
        ("paused", Fact::Paused { pool, host: "api.example.com", after: hour }),
        ("retrying", Fact::Retrying { pool, id, after: some, reason: Reason::Failed }),
        ("blocked", Fact::Retrying { pool, id, after: None, reason: Reason::Failed }),
        ("parked", Fact::Parked { queue, pool: Some(pool), id: Some(id), code, reason: "400" }),
        (
            "used up",
            Fact::Parked {
                queue,
                pool: Some(pool),
                id: Some(id),
                code: ParkedCode::Exhausted,
                reason: echo,
            },
        ),
        (
            "key parked",
            Fact::Parked {
                queue,
                pool: Some(pool),
                id: Some(id),
                code: ParkedCode::KeyParked,
                reason: "",
            },
        ),
        ("gone", Fact::Settled { queue, id: Some(id), again: None, stale: false }),
        (
            "again",
            Fact::Settled { queue, id: Some(id), again: Some(Reason::Cascade), stale: false },
        ),
        ("opened", Fact::Breaker { name: &name("api.example.com"), open: true }),
        ("closed", Fact::Breaker { name: &name("api.example.com"), open: false }),
    ];
    let mut check = check;
    for (name, fact) in &facts {
        check(name, fact);
    }
}

/// A source that hands out what it was given and answers as it is told.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    waiting: Mutex<VecDeque<Delivery>>,
    came: Notify,
    pub(crate) settled: Mutex<Vec<Settle>>,
    /// Whether settling and putting back take for ever.
    pub(crate) hangs: Mutex<bool>,
    /// The names of what was put back.
    pub(crate) back: Mutex<Vec<String>>,
    pub(crate) trouble: Mutex<Option<&'static str>>,
}

impl Stock {
    pub(crate) fn of(messages: impl IntoIterator<Item = Message>) -> Arc<Self> {
        let stock = Self::default();
        stock.add(messages);
        Arc::new(stock)
    }

    pub(crate) fn add(&self, messages: impl IntoIterator<Item = Message>) {
        let mut waiting = self.waiting.lock();
        waiting.extend(messages.into_iter().map(|message| Delivery {
            broker_id: format!("broker's {}", message.id).into(),
            receipt: Receipt { handle: Some(Arc::clone(&message.id)), ..Receipt::default() },
            attempts: 0,
            message: Ok(message),
        }));
        self.came.notify_one();
    }
}

impl Source for Stock {
    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(30), 10)
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(async move {
            if let Some(trouble) = *self.trouble.lock() {
                return Err(SourceError::new(trouble));
            }
            if self.waiting.lock().is_empty() {
                tokio::time::timeout(Duration::from_secs(20), self.came.notified()).await.ok();
            }
            let mut waiting = self.waiting.lock();
            let count = waiting.len().min(demand.most());
            Ok(waiting.drain(..count).collect())
        })
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move {
            if *self.hangs.lock() {
                std::future::pending::<()>().await;
            }
            let answers = vec![Settled::Done; settle.len()];
            self.settled.lock().extend(settle);
            Ok(answers)
        })
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { Ok(vec![Settled::Done; receipts.len()]) })
    }

    fn put_back(&self, messages: Vec<PutBack>) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            // It has them, whether anybody hears of that or not.
            self.back.lock().extend(messages.iter().map(|message| message.name.to_string()));
            if *self.hangs.lock() {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(async { Ok(Depth::default()) })
    }

    fn health(&self) -> Result<(), SourceError> {
        self.trouble.lock().map_or(Ok(()), |trouble| Err(SourceError::new(trouble)))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.came.notify_waiters() })
    }
}

/// Keeps nothing.
struct Nowhere;

impl ParkedStore for Nowhere {
    fn park(&self, _: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn holds_key(&self, _: &str, _: &str, _: &str) -> bool {
        false
    }
}

/// A router with pools and a queue `q`. Each message takes `takes` and ends as `ends`.
pub(crate) async fn router(
    record: &Arc<Record>,
    pools: Vec<PoolSettings>,
    stock: Option<Arc<Stock>>,
    takes: Duration,
    ends: Outcome,
) -> Router {
    let executor = InProcess::new(move |_, _| {
        let ends = ends.clone();
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            ends
        })
    });
    let observer = Arc::clone(record);
    let router = Router::new(Arc::new(executor), Arc::new(Nowhere), observer).expect("a router");
    for pool in pools {
        router.set_pool(pool).expect("a pool");
    }
    if let Some(stock) = stock {
        let settings = QueueSettings::new(1, 10);
        router.add_queue("q", settings, stock).await.expect("a queue");
    }
    router
}
