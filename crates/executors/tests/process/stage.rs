//! What the tests stand on: keepers, programs that can be told apart, and a look at what runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{ReentrantMutex, ReentrantMutexGuard, const_reentrant_mutex};
use sluicegate_executors::process::{Cgroups, Keepers, Program, Spawner, Tree};
use sluicegate_testkit::programs;
use tokio::time::{sleep, timeout};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const KEEPER: &str = env!("CARGO_BIN_EXE_agent-keeper");

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Tests look at all that their process has started: where several run in one process, each does so alone.
static ALONE: ReentrantMutex<()> = const_reentrant_mutex(());

pub(crate) type Alone = ReentrantMutexGuard<'static, ()>;

/// Waits until no other test of this process runs.
pub(crate) fn alone() -> Alone {
    ALONE.lock()
}

/// Whether this process is there for one test alone, whose name it is; otherwise it starts one that is, and waits for it.
pub(crate) fn is_own_process(test: &str) -> bool {
    const OWN: &str = "SLUICEGATE_TEST_OF_ITS_OWN";
    if env::var_os(OWN).is_some() {
        return true;
    }
    let this = env::current_exe().expect("its file");
    let ended = Command::new(this).args(["--exact", test]).env(OWN, "1").output();
    let ended = ended.expect("it starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// Programs of one test, each with a word among its arguments by which it is found, and all that it starts.
pub(crate) struct Stage {
    pub(crate) keepers: Keepers,
    pub(crate) tag: String,
    _alone: Alone,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Cgroups::Auto)
    }

    pub(crate) fn with(cgroups: Cgroups) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::tagged_with(format!("--tag-{}-{number}", std::process::id()), cgroups)
    }

    pub(crate) fn tagged(tag: String) -> Self {
        Self::tagged_with(tag, Cgroups::Auto)
    }

    fn tagged_with(tag: String, cgroups: Cgroups) -> Self {
        let _alone = alone();
        let keepers = Keepers::of_with(Path::new(KEEPER), cgroups).expect("a keeper");
        Self { keepers, tag, _alone }
    }

    /// The groups of these keepers; `None`, said, where the system does not let them have any.
    pub(crate) fn groups(&self) -> Option<Vec<PathBuf>> {
        match self.keepers.cgroups() {
            Ok(folder) => Some(groups(folder, std::process::id())),
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    /// An agent that does something before it says that it is there, and then waits for lines.
    pub(crate) fn agent(&self, first: &str) -> Program {
        let stream = ["--input-format", "stream-json", "--output-format", "stream-json"];
        let arguments = [&self.tag, "--do", first].into_iter().chain(stream);
        self.program(arguments)
    }

    /// An agent that answers a prompt and exits.
    pub(crate) fn prompt(&self, prompt: &str) -> Program {
        self.program([&*self.tag, prompt])
    }

    fn program<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Program {
        Program {
            command: programs::fake_agent().into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: [].into(),
            folder: None,
            memory_limit: None,
        }
    }

    pub(crate) async fn spawn(&self, program: Program) -> Box<dyn Tree> {
        within(self.keepers.spawn(program)).await.expect("it starts")
    }

    /// Starts an agent, and waits until it is there.
    pub(crate) async fn begun(&self, first: &str) -> Box<dyn Tree> {
        let tree = self.spawn(self.agent(first)).await;
        assert!(within(tree.read()).await.is_some(), "{first}: {}", tree.errors());
        tree
    }

    /// What runs, of all that was started here.
    pub(crate) fn running(&self) -> Vec<i32> {
        tagged(&self.tag)
    }

    /// Waits until so many run.
    pub(crate) async fn runs(&self, count: usize) {
        while self.running().len() != count {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until nothing runs, and nothing is left that nobody has heard the end of.
    pub(crate) async fn emptied(&self, what: &str) {
        let empty = async {
            while !self.running().is_empty() || !zombies().is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        if timeout(PATIENCE, empty).await.is_err() {
            panic!("{what}: {:?} run, {:?} are zombies", self.running(), zombies());
        }
    }
}

/// The groups that keepers of a process are in.
pub(crate) fn groups(folder: &Path, of: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there").flatten();
    let is_meant = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let mark =
            name.to_str()?.strip_prefix("sluicegate-")?.split_once('-')?.1.parse::<u64>().ok()?;
        Some(mark >> 32 & ((1 << 22) - 1) == u64::from(of))
    };
    let ours = entries.filter(|entry| is_meant(entry).unwrap_or(false));
    ours.map(|entry| entry.path()).collect()
}

/// Who is in a group.
pub(crate) fn members(group: &Path) -> Vec<i32> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    list.lines().map(|pid| pid.parse().expect("a process")).collect()
}

/// Waits, but not for ever.
pub(crate) async fn within<F: Future>(wanted: F) -> F::Output {
    timeout(PATIENCE, wanted).await.expect("it takes too long")
}

/// All output, as text.
pub(crate) async fn all(tree: &dyn Tree) -> String {
    let mut output = Vec::new();
    while let Some(piece) = within(tree.read()).await {
        output.extend_from_slice(&piece);
    }
    String::from_utf8(output).expect("text")
}

/// A line for an agent that waits for lines.
pub(crate) fn line(prompt: &str) -> Bytes {
    let line = serde_json::json!({"type": "user", "message": {"role": "user", "content": prompt}});
    format!("{line}\n").into()
}

pub(crate) fn tagged(tag: &str) -> Vec<i32> {
    let is_tagged = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|argument| argument == tag.as_bytes())
    };
    everybody().filter(is_tagged).collect()
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

/// The processes that a process has started.
pub(crate) fn children(parent: u32) -> Vec<i32> {
    let parent = i32::try_from(parent).expect("a process");
    everybody().filter(|&pid| state(pid).is_some_and(|(_, above)| above == parent)).collect()
}

pub(crate) fn parent(pid: i32) -> Option<i32> {
    state(pid).map(|(_, parent)| parent)
}

pub(crate) fn is_there(pid: i32) -> bool {
    state(pid).is_some_and(|(state, _)| state != b'Z')
}

fn everybody() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("a list of processes").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
