//! A daemon with a pool of stand-ins for agents.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_executors::process::Keepers;
use sluicegate_testkit::programs;

use crate::api::stage::{Ask, Reply, Stage};

/// A daemon whose agents do what their prompts say.
pub(crate) struct AgentStage {
    pub(crate) stage: Stage,
}

pub(crate) const REQUESTS: &str = "/api/v1/requests";

/// A file with agents: the stand-in, and what is said of them beside it.
pub(crate) fn file(agents: &str) -> String {
    let program = programs::fake_agent();
    format!(
        "[agents]\nenabled = true\ncommand = [{:?}, \"-p\", \"--output-format\", \"json\"]\n{}\n",
        program.to_str().expect("a path"),
        agents
    )
}

/// Long enough for everything that does not wait for it, and soon over.
pub(crate) const QUICK: &str = "graceful_shutdown = \"200ms\"\n";

impl AgentStage {
    /// With these lines in the section of agents.
    pub(crate) async fn start(agents: &str) -> Self {
        Self::of(&file(agents)).await
    }

    /// With a whole file.
    pub(crate) async fn of(toml: &str) -> Self {
        let stage = Stage::open(toml).await;
        let keepers = Keepers::of(&programs::agent_keeper()).expect("keepers");
        stage.daemon.start_agents_by(Arc::new(keepers));
        Box::pin(stage.daemon.begin()).await.expect("it begins");
        Self { stage }
    }

    /// Asks, and waits for the reply.
    pub(crate) async fn ask(&self, tenant: &str, message: &str) -> Reply {
        self.post(json!({ "tenant": tenant, "message": message })).await
    }

    pub(crate) async fn post(&self, body: Value) -> Reply {
        self.stage.post(REQUESTS, &body.to_string()).await
    }

    /// Asks without waiting, and gives the id.
    pub(crate) async fn begin(&self, tenant: &str, message: &str) -> String {
        self.begin_in(tenant, message, None).await
    }

    pub(crate) async fn begin_in(
        &self,
        tenant: &str,
        message: &str,
        session: Option<&str>,
    ) -> String {
        let body =
            json!({ "tenant": tenant, "message": message, "sessionId": session, "wait": false });
        let reply = self.post(body).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()["requestId"].as_str().expect("an id").to_owned()
    }

    /// Asks without waiting, and waits until a worker has it.
    pub(crate) async fn run(&self, tenant: &str, message: &str) -> String {
        let id = self.begin(tenant, message).await;
        let has = |worker: &Value| worker["requestId"] == id[..] && worker["state"] == "BUSY";
        let runs = |reply: &Reply| reply.items().iter().any(has);
        self.stage.until("/api/v1/workers", runs).await;
        id
    }

    pub(crate) async fn get(&self, id: &str) -> Value {
        let reply = self.stage.get(&format!("{REQUESTS}/{id}")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// Polls until it is in this state.
    pub(crate) async fn until(&self, id: &str, state: &str) -> Value {
        let path = format!("{REQUESTS}/{id}");
        self.stage.until(&path, |reply| reply.json()["state"] == state).await.json()
    }

    pub(crate) async fn delete(&self, id: &str) -> Reply {
        self.stage.delete(&format!("{REQUESTS}/{id}")).await
    }

    /// Cancels what hangs, so that nothing is waited for at the end.
    pub(crate) async fn end(self) {
        tokio::time::timeout(Duration::from_secs(30), Box::pin(self.stage.daemon.shutdown()))
            .await
            .expect("it ends");
    }

    /// Asks with a header.
    pub(crate) async fn with_header(&self, line: &str, header: (&str, &str), body: &str) -> Reply {
        self.stage.ask(Ask { line, headers: &[header], body }).await
    }
}
