//! What the tests share: a message, an executor that is allowed to call loopback, and the facts it
//! reported.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    Attempt, BoxFuture, CallStatus, Executor, Fact, Message, Observer, Outcome, PoolSettings,
    Target,
};
use sluicegate_executors::BreakerScope;
use sluicegate_executors::http::{HttpExecutor, HttpSettings, Resolve, Roots};
use sluicegate_tasks::Context;
use tokio::time::sleep;

/// What was observed.
#[derive(Default)]
pub(crate) struct Facts {
    called: Mutex<Vec<CallStatus>>,
    breakers: Mutex<Vec<(String, bool)>>,
}

/// An executor and what it reported.
pub(crate) struct Stage {
    pub(crate) executor: HttpExecutor,
    facts: Arc<Facts>,
}

/// A resolver of these names that takes a moment; one without an address is never answered.
pub(crate) struct Names(HashMap<&'static str, Vec<SocketAddr>>);

impl Observer for Facts {
    fn observe(&self, fact: &Fact<'_>) {
        match fact {
            Fact::Called { status, .. } => self.called.lock().push(*status),
            Fact::Breaker { name, open } => self.breakers.lock().push((name.to_string(), *open)),
            other => panic!("not for an executor to report: {other:?}"),
        }
    }
}

impl Stage {
    pub(crate) fn new(settings: HttpSettings) -> Self {
        let facts = Arc::new(Facts::default());
        let executor = HttpExecutor::new(settings, Arc::clone(&facts) as _).expect("good settings");
        Self { executor, facts }
    }

    pub(crate) async fn execute(&self, message: &Message) -> Outcome {
        self.execute_under(message, &pool(), &Context::new()).await
    }

    pub(crate) async fn execute_under(
        &self,
        message: &Message,
        pool: &Arc<PoolSettings>,
        cx: &Context,
    ) -> Outcome {
        // As the router runs it.
        assert!(self.executor.stops_by_drop());
        if cx.is_cancelled() {
            return Outcome::Interrupted;
        }
        let executing = self.executor.execute(Attempt { message, pool, number: 1, cx });
        cx.until_interrupted(executing).await.unwrap_or(Outcome::Interrupted)
    }

    /// How the calls since the last question ended.
    pub(crate) fn calls(&self) -> Vec<CallStatus> {
        std::mem::take(&mut self.facts.called.lock())
    }

    /// Which breakers opened (or closed) since the last question.
    pub(crate) fn breaker_changes(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.facts.breakers.lock())
    }
}

impl Names {
    pub(crate) fn resolver<const N: usize>(
        names: [(&'static str, &[SocketAddr]); N],
    ) -> Option<Arc<dyn Resolve>> {
        let names = names.into_iter().map(|(name, addresses)| (name, addresses.to_vec()));
        Some(Arc::new(Self(names.collect())))
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            sleep(Duration::from_millis(5)).await;
            match self.0.get(host) {
                Some(addresses) if addresses.is_empty() => std::future::pending().await,
                Some(addresses) => Ok(addresses.clone()),
                None => Err(io::Error::other("no such name")),
            }
        })
    }
}

/// Settings with which loopback may be called, repeats come at once, no breaker interferes, and
/// nobody is trusted.
pub(crate) fn settings() -> HttpSettings {
    HttpSettings {
        allow_targets: vec!["127.0.0.0/8".parse().expect("a range")],
        retry_delays: vec![Duration::ZERO; 2],
        timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        breaker_scope: BreakerScope::Off,
        // The system's are many, and reading them takes a while.
        roots: Roots::Only(Vec::new()),
        ..HttpSettings::default()
    }
}

pub(crate) fn pool() -> Arc<PoolSettings> {
    Arc::new(PoolSettings::new("ORDERS", 20))
}

pub(crate) fn message(url: &str) -> Message {
    let target = Target::parse(url).expect("a target");
    Message { target, ..sluicegate_testkit::scripted::message("m-1", "ORDERS") }
}

/// A port of loopback that nobody listens on.
pub(crate) fn closed_port() -> SocketAddr {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    socket.local_addr().expect("a bound socket has an address")
}
