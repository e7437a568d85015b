//! A pool with real processes, a folder for what they see, and a look at what runs.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_agents::{
    Agents, Ask, Environment, Event, MemoryJournal, Mode, Observer, Outcome, Reply, RequestError,
    SessionId, Settings, Tenant, WorkerState, WorkerView,
};
use sluicegate_executors::process::Keepers;
use sluicegate_testkit::programs;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::seen::{self, TurnSeen};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A pool. Its agents have a word among their arguments by which they are found, and all that they start.
pub(crate) struct Stage {
    pub(crate) agents: Agents,
    stuck: Arc<Stuck>,
    tag: String,
    folder: TempDir,
}

/// Hears which workers did not end when they were asked to.
#[derive(Default)]
struct Stuck(Mutex<HashSet<String>>);

impl Observer for Stuck {
    fn observe(&self, event: &Event<'_>) {
        if let Event::WorkerStuck { worker, .. } = event {
            self.0.lock().insert((*worker).to_owned());
        }
    }
}

/// A process for each request, with room for everybody.
pub(crate) fn one_shot(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings {
        command: vec![programs::fake_agent().display().to_string()],
        max_queue_depth_global: 5_000,
        max_queue_depth_per_tenant: 5_000,
        upstream_rate_limit_rps: 10_000,
        execution_timeout: PATIENCE,
        graceful_shutdown: Duration::from_secs(2),
        min_workers: 0,
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
        let stream = ["--input-format", "stream-json", "--output-format", "stream-json"];
        settings.command.extend(stream.map(str::to_owned));
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
    pub(crate) fn new(mut settings: Settings) -> Self {
        let tag = tag();
        settings.command.insert(1, tag.clone());
        Self::tagged(settings, tag, &[])
    }

    /// With agents that are a shell script, and variables for it.
    pub(crate) fn of_script(
        mut settings: Settings,
        script: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let tag = tag();
        settings.command = ["/bin/sh", "-c", script, "agent", &tag].map(str::to_owned).to_vec();
        Self::tagged(settings, tag, variables)
    }

    fn tagged(mut settings: Settings, tag: String, variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let folder_name = folder.path().display().to_string();
        let mut written = BTreeMap::from([("FAKE_AGENT_FOLDER".to_owned(), folder_name)]);
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        written.extend(variables);
        let inherited = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        settings.environment = Environment::new(inherited, written);
        let keepers = Keepers::of(&programs::agent_keeper()).expect("a keeper");
        let stuck = Arc::<Stuck>::default();
        let agents = Agents::start(
            settings.check().expect("sound settings"),
            Arc::new(keepers),
            Arc::new(MemoryJournal::new()),
            Arc::<Stuck>::clone(&stuck),
        );
        Self { agents: agents.expect("a pool"), stuck, tag, folder }
    }

    /// Lets a request in, which must be let in.
    pub(crate) async fn enter(&self, ask: Ask) -> String {
        let ticket = self.agents.submit(ask).await;
        ticket.expect("let in").request_id.to_string()
    }

    pub(crate) async fn outcome(&self, id: &str) -> Outcome {
        let outcome = within(self.agents.wait(id)).await.ok().flatten().expect("known");
        (*outcome).clone()
    }

    pub(crate) async fn run(&self, ask: Ask) -> Outcome {
        let id = self.enter(ask).await;
        self.outcome(&id).await
    }

    pub(crate) async fn reply(&self, ask: Ask) -> Reply {
        self.run(ask).await.expect("a reply")
    }

    pub(crate) async fn error(&self, ask: Ask) -> RequestError {
        self.run(ask).await.expect_err("an error")
    }

    pub(crate) fn turns(&self) -> Vec<TurnSeen> {
        seen::turns(self.folder.path())
    }

    /// Waits for the worker that has a request, in a state.
    pub(crate) async fn worker_in(&self, request: &str, state: WorkerState) -> WorkerView {
        let is_meant = |worker: &WorkerView| {
            worker.state == state && worker.request.as_deref() == Some(request)
        };
        self.worker(is_meant).await
    }

    /// Waits for a worker.
    pub(crate) async fn worker(&self, is_meant: impl Fn(&WorkerView) -> bool) -> WorkerView {
        let found = async {
            loop {
                if let Some(worker) = self.agents.workers().into_iter().find(&is_meant) {
                    return worker;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, found)
            .await
            .unwrap_or_else(|_| panic!("none of them: {:?}", self.agents.workers()))
    }

    /// Waits until a worker is in another state; `None` if it is gone by then.
    pub(crate) async fn until_not(&self, id: &str, state: WorkerState) -> Option<WorkerState> {
        let other = async {
            loop {
                let now = self.agents.workers().into_iter().find(|worker| &*worker.id == id);
                let now = now.map(|worker| worker.state);
                if now != Some(state) {
                    return now;
                }
                tokio::task::yield_now().await;
            }
        };
        within(other).await
    }

    /// Whether a worker did not end when it was asked to.
    pub(crate) fn was_stuck(&self, id: &str) -> bool {
        self.stuck.0.lock().contains(id)
    }

    /// Waits until a worker is gone.
    pub(crate) async fn gone(&self, id: &str) {
        let gone = async {
            while self.agents.workers().iter().any(|worker| &*worker.id == id) {
                sleep(millis(1)).await;
            }
        };
        within(gone).await;
    }

    /// Waits until no worker has a request or ends.
    pub(crate) async fn settled(&self) {
        let settled = async {
            while self.agents.workers().iter().any(|worker| worker.state != WorkerState::Idle) {
                sleep(millis(1)).await;
            }
        };
        within(settled).await;
    }

    /// What runs, of all that was started here.
    pub(crate) fn running(&self) -> Vec<i32> {
        let is_tagged = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|argument| argument == self.tag.as_bytes())
        };
        everybody().filter(is_tagged).collect()
    }

    /// Waits until nothing runs, and nothing is left that nobody has heard the end of.
    pub(crate) async fn emptied(&self, what: &str) {
        let empty = async {
            while !self.running().is_empty() || !zombies().is_empty() {
                sleep(millis(2)).await;
            }
        };
        if timeout(PATIENCE, empty).await.is_err() {
            panic!("{what}: {:?} run, {:?} are zombies", self.running(), zombies());
        }
    }

    /// Ends the pool. When it says that it has ended no process is left.
    pub(crate) async fn end(self) {
        drop(within(self.agents.shutdown(None)).await);
        assert_eq!(self.running(), Vec::<i32>::new(), "after the end");
        assert_eq!(self.agents.workers(), []);
        assert!(!self.folder.path().join("overlaps").exists(), "sessions overlap");
    }
}

/// A word by which agents of one pool are found.
fn tag() -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("--tag-{}-{number}", std::process::id())
}

/// Waits, but not for ever.
pub(crate) async fn within<F: Future>(wanted: F) -> F::Output {
    timeout(PATIENCE, wanted).await.expect("it takes too long")
}

/// Processes below this one that have ended, and whose parent has not heard of it.
fn zombies() -> Vec<i32> {
    let this = i32::try_from(std::process::id()).expect("a process");
    everybody()
        .filter(|&pid| {
            let Some((b'Z', parent)) = state(pid) else { return false };
            parent == this || state(parent).is_some_and(|(_, above)| above == this)
        })
        .collect()
}

/// The state of a process and its parent.
fn state(pid: i32) -> Option<(u8, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.as_bytes()[0], fields.next()?.parse().ok()?))
}

pub(crate) fn parent(pid: i32) -> Option<i32> {
    state(pid).map(|(_, parent)| parent)
}

fn everybody() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("a list of processes").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Open files of this process.
pub(crate) fn files() -> usize {
    fs::read_dir(Path::new("/proc/self/fd")).expect("a list of files").count()
}
