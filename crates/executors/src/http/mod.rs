//! Messages delivered over HTTP: a POST, at most three of them, and a table of what follows.

mod address;
mod clients;
mod dial;
mod excerpt;
mod lanes;
mod reply;
mod request;
mod settings;
mod trace;
mod verdict;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use sluicegate_dispatch::{
    Attempt, BoxFuture, Executor, Fact, Observer, Outcome, Rejection, Severity, Verdict,
};
use sluicegate_tasks::Invalid;
use tokio::time::{Instant, sleep, timeout};

pub use address::{OwnAddresses, target_forbidden};
pub use ipnet::IpNet;
pub use settings::{HttpSettings, HttpVersion, Resolve, Roots, Success};

use crate::Breakers;
use crate::breakers::{Call, Named};
use clients::Clients;
use excerpt::excerpt;
use reply::Reply;
use request::Order;
use trace::Traces;
use verdict::{Ended, pause};

/// Delivers messages over HTTP.
///
/// Redirects are not followed, proxies of the environment are not used, and a target is called at
/// an address that was checked, or not at all.
///
/// ```
/// use sluicegate_dispatch::{Fact, Observer};
/// use sluicegate_executors::http::{HttpExecutor, HttpSettings};
/// use std::sync::Arc;
///
/// struct Silent;
/// impl Observer for Silent {
///     fn observe(&self, _: &Fact<'_>) {}
/// }
/// let allow_targets = vec!["127.0.0.0/8".parse()?]; // beside all public addresses
/// let settings = HttpSettings { allow_targets, ..HttpSettings::default() };
/// let executor = HttpExecutor::new(settings, Arc::new(Silent))?;
/// assert!(executor.breakers().list().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HttpExecutor {
    settings: HttpSettings,
    clients: Clients,
    breakers: Breakers,
    traces: Traces,
    observer: Arc<dyn Observer>,
}

impl HttpExecutor {
    /// An executor.
    ///
    /// # Errors
    /// Names the setting that cannot be used.
    pub fn new(settings: HttpSettings, observer: Arc<dyn Observer>) -> Result<Self, Invalid> {
        let clients = Clients::new(&settings)?;
        let breakers =
            Breakers::new(settings.breaker_scope, settings.breaker, Arc::clone(&observer));
        Ok(Self { settings, clients, breakers, traces: Traces::new(), observer })
    }

    /// The circuit breakers of the targets.
    #[must_use]
    pub const fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// Calls until the endpoint has spoken, or the calls of an attempt are used up.
    async fn deliver(&self, attempt: Attempt<'_>) -> Outcome {
        let Attempt { message, pool, .. } = attempt;
        let order = match Order::new(message, pool, &self.traces) {
            Ok(order) => order,
            Err(why) => return never(why),
        };
        let named = self.breakers.of(&message.target);
        let mut last: Option<Box<Ended>> = None;
        let mut delays = self.settings.retry_delays.iter();
        loop {
            let begun = Instant::now();
            let call = match self.admitted(named.as_deref(), begun) {
                Ok(call) => call,
                // Calls that were made are an attempt, and say what became of it.
                Err(open) => return last.map_or(open, |ended| self.outcome(*ended, attempt)),
            };
            let ended = self.call(&order).await;
            let now = Instant::now();
            let (status, took) = (ended.status(), now - begun);
            self.observer.observe(&Fact::Called { pool: &pool.code, message, status, took });
            if let (Some(call), Some(verdict)) = (call, ended.verdict()) {
                let failed = verdict == Verdict::Failure;
                call.ended(verdict, failed.then(|| ended.last_error(message)), now);
            }
            let delay = match delays.next() {
                Some(delay) if ended.is_repeatable() && self.may_be_called(&named, *delay) => {
                    *delay
                }
                _ => return self.outcome(ended, attempt),
            };
            last = Some(Box::new(ended));
            Box::pin(sleep(delay)).await;
        }
    }

    /// Asks the target's breaker, if it has one.
    fn admitted<'a>(
        &'a self,
        named: Option<&'a Named>,
        now: Instant,
    ) -> Result<Option<Call<'a>>, Outcome> {
        let Some(named) = named else { return Ok(None) };
        self.breakers
            .ask(named, now)
            .map(Some)
            .map_err(|rest| Outcome::BreakerOpen { name: Arc::clone(&named.name), rest })
    }

    /// Whether waiting that long for a further call makes sense.
    fn may_be_called(&self, named: &Option<Arc<Named>>, delay: Duration) -> bool {
        named.as_ref().is_none_or(|named| self.breakers.rest(named) <= delay)
    }

    fn outcome(&self, ended: Ended, attempt: Attempt<'_>) -> Outcome {
        ended.outcome(attempt.message, self.settings.success)
    }

    /// One call, from asking for a connection to the end of the reply.
    async fn call(&self, order: &Order<'_>) -> Ended {
        let limit = self.settings.timeout;
        timeout(limit, pin!(self.exchange(order))).await.unwrap_or(Ended::TimedOut(limit))
    }

    async fn exchange(&self, order: &Order<'_>) -> Ended {
        let answered = match self.clients.call(order, self.settings.max_reply).await {
            Ok(answered) => answered,
            Err(ended) => return ended,
        };
        let pause = match answered.status {
            StatusCode::TOO_MANY_REQUESTS => pause(&answered.headers, SystemTime::now()),
            _ => None,
        };
        let (status, reply) = (answered.status, Reply::parse(&answered.text));
        // What is done is not looked at again.
        let is_done = self.settings.success.is(status) && reply.ack != Some(false);
        let body = if is_done { None } else { excerpt(&answered.text, order.message()) };
        Ended::Replied { status, pause, reply, body }
    }
}

impl Executor for HttpExecutor {
    fn execute<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.deliver(attempt))
    }

    /// A call that is dropped is given up, and its connection with it.
    fn stops_by_drop(&self) -> bool {
        true
    }
}

impl fmt::Debug for HttpExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpExecutor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn never(why: &str) -> Outcome {
    let (why, severity) = (why.to_owned(), Severity::Error);
    Outcome::Rejected(Rejection { status: None, why, severity, body: None })
}
