//! What the tests share: a message, an executor that is allowed to call loopback, and the facts it
//! reported.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    Attempt, CallStatus, Executor, Fact, Message, Observer, Outcome, PoolSettings, Target,
};
use sluicegate_executors::http::{HttpExecutor, HttpSettings};
use sluicegate_tasks::Context;

/// What was observed.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) called: Mutex<Vec<CallStatus>>,
    pub(crate) breakers: Mutex<Vec<(String, bool)>>,
}

/// An executor and what it reported.
pub(crate) struct Stage {
    pub(crate) executor: HttpExecutor,
    pub(crate) facts: Arc<Facts>,
}

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
        self.executor.execute(Attempt { message, pool, number: 1, cx }).await
    }

    pub(crate) fn calls(&self) -> Vec<CallStatus> {
        self.facts.called.lock().clone()
    }
}

/// Settings with which loopback may be called, and repeats come fast.
pub(crate) fn settings() -> HttpSettings {
    HttpSettings {
        allow_targets: vec!["127.0.0.0/8".parse().expect("a range")],
        retry_delays: vec![Duration::from_millis(1), Duration::from_millis(2)],
        timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        ..HttpSettings::default()
    }
}

pub(crate) fn pool() -> Arc<PoolSettings> {
    Arc::new(PoolSettings::new("ORDERS", 20))
}

pub(crate) fn message(url: &str) -> Message {
    Message {
        id: "m-1".into(),
        pool: "ORDERS".into(),
        group: None,
        tenant: None,
        high_priority: false,
        target: Target::parse(url).expect("a target"),
        auth_token: None,
        payload: None,
        traceparent: None,
    }
}
