//! A pool with scripted agents.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use sluicegate_agents::scripted::{Did, Entry, Scripted};
use sluicegate_agents::{
    Agents, Ask, Event, Journal, MemoryJournal, Mode, Observer, Outcome, Reply, RequestError,
    SessionId, Settings, Tenant, Ticket,
};
use tokio::time::Instant;

pub(crate) struct Stage {
    pub(crate) agents: Agents,
    pub(crate) scripted: Scripted,
    pub(crate) events: Arc<Events>,
    pub(crate) journal: Arc<MemoryJournal>,
    pub(crate) began: Instant,
}

/// Remembers events, as the paper writes them.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Vec<(Instant, Value)>>);

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        self.0.lock().push((Instant::now(), event.json(0)));
    }
}

/// One process for each request, with room for everybody.
pub(crate) fn one_shot(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings {
        command: vec!["agent".to_owned()],
        max_queue_depth_global: 5_000,
        max_queue_depth_per_tenant: 5_000,
        queue_timeout: Duration::from_secs(100_000),
        upstream_rate_limit_rps: 1_000,
        max_total_memory_mb: 1_000_000,
        ..Settings::default()
    };
    settings.tenant_limits.max_queued_requests = 5_000;
    settings.tenant_limits.rate_limit_requests = 10_000;
    settings.tenant_limits.max_concurrent_requests = 1_000;
    change(&mut settings);
    settings
}

/// Processes that stay.
pub(crate) fn persistent(change: impl FnOnce(&mut Settings)) -> Settings {
    one_shot(|settings| {
        settings.mode = Mode::Persistent;
        settings.command = vec!["agent".to_owned(), "--stay".to_owned()];
        settings.min_workers = 0;
        change(settings);
    })
}

pub(crate) fn ask(tenant: &str, prompt: &str) -> Ask {
    Ask::new(Tenant::parse(tenant).expect("a tenant"), prompt)
}

pub(crate) fn in_session(tenant: &str, session: &str, prompt: &str) -> Ask {
    Ask { session: Some(SessionId::parse(session).expect("a session")), ..ask(tenant, prompt) }
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Stage {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::with_journal(settings, Arc::new(MemoryJournal::new()))
    }

    pub(crate) fn with_journal(settings: Settings, journal: Arc<MemoryJournal>) -> Self {
        let any: Arc<dyn Journal> = Arc::<MemoryJournal>::clone(&journal);
        Self { journal, ..Self::with_any_journal(settings, any) }
    }

    pub(crate) fn with_any_journal(settings: Settings, journal: Arc<dyn Journal>) -> Self {
        let (scripted, events) = (Scripted::new(), Arc::<Events>::default());
        let agents = Agents::start(
            settings.check().expect("sound settings"),
            Arc::new(scripted.clone()),
            journal,
            Arc::<Events>::clone(&events),
        );
        let journal = Arc::default();
        Self { agents: agents.expect("a pool"), scripted, events, journal, began: Instant::now() }
    }

    pub(crate) async fn submit(&self, ask: Ask) -> Result<Ticket, RequestError> {
        self.agents.submit(ask).await
    }

    /// Lets a request in, which must be let in.
    pub(crate) async fn enter(&self, ask: Ask) -> String {
        self.submit(ask).await.expect("let in").request_id.to_string()
    }

    pub(crate) async fn outcome(&self, id: &str) -> Outcome {
        let outcome = self.agents.wait(id).await.ok().flatten().expect("known");
        (*outcome).clone()
    }

    pub(crate) async fn run(&self, ask: Ask) -> Outcome {
        let id = self.enter(ask).await;
        self.outcome(&id).await
    }

    pub(crate) async fn reply(&self, ask: Ask) -> Reply {
        self.run(ask).await.expect("a reply")
    }

    /// The code of what became of a request that fails.
    pub(crate) async fn code(&self, ask: Ask) -> &'static str {
        self.run(ask).await.expect_err("a failure").code()
    }

    pub(crate) fn stage_of(&self, id: &str) -> impl Future<Output = &'static str> {
        let (agents, id) = (self.agents.clone(), id.to_owned());
        async move { agents.find(&id).await.ok().flatten().expect("known").stage.name() }
    }

    pub(crate) fn since(&self) -> Duration {
        self.began.elapsed()
    }

    /// Events of a type.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.events.0.lock();
        let of_kind = events.iter().filter(|(_, event)| event["type"] == kind);
        of_kind.map(|(_, event)| event.clone()).collect()
    }

    pub(crate) fn event_types(&self) -> Vec<String> {
        let events = self.events.0.lock();
        events.iter().map(|(_, event)| event["type"].as_str().expect("a type").to_owned()).collect()
    }

    pub(crate) fn log(&self) -> Vec<Entry> {
        self.scripted.log()
    }

    /// The prompts in the order in which agents heard them.
    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = |entry: Entry| match entry.what {
            Did::Asked { prompt, .. } => Some(prompt),
            _ => None,
        };
        self.log().into_iter().filter_map(asked).collect()
    }

    /// The arguments of each program that was started.
    pub(crate) fn spawned(&self) -> Vec<Vec<String>> {
        let spawned = |entry: Entry| match entry.what {
            Did::Spawned { arguments, .. } => Some(arguments),
            _ => None,
        };
        self.log().into_iter().filter_map(spawned).collect()
    }

    pub(crate) fn states(&self) -> Vec<sluicegate_agents::WorkerState> {
        self.agents.workers().into_iter().map(|worker| worker.state).collect()
    }

    /// Ends the pool, and looks that nothing is left.
    pub(crate) async fn end(self) {
        drop(self.agents.shutdown(None).await);
        assert_eq!(self.states(), []);
        crate::checks::nothing_is_left(&self.log());
    }
}
