//! Starts trees of processes, each below a keeper.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{getpid, set_child_subreaper};
use sluicegate_dispatch::BoxFuture;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::runtime::Handle;

use super::cgroup::Delegated;
use super::mark::{self, OwnMark, Owner};
use super::pipes::{Errors, Pipes};
use super::supervised::{Begun, Ended, Supervised};
use super::tree::{HeldTree, State};
use super::{Program, SpawnError, Spawner, Tree, proc};

/// Keepers that wait for a tree.
const IDLE: usize = 16;
/// A keeper may be killed just when it is asked: then another one is, so many new ones at most.
const TRIES: usize = 3;
/// So often nothing is found of an earlier daemon while processes come and go: then nothing is there.
const LEFTOVERS: usize = 20;
/// How often memory is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Whether each keeper is in a group of the system's (cgroup v2), with all that it starts: then a tree is killed at once that
/// its keeper is too slow to kill, and what a daemon leaves behind whose keepers were killed with it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cgroups {
    /// If this process may make groups below its own.
    #[default]
    Auto,
    /// None is.
    Off,
}

/// Starts trees of processes, each below a keeper of its own: see [`keeper`](super::keeper). A keeper whose tree is gone
/// gets the next one, and one is kept ready, so that a start costs no more than the program itself.
///
/// Dropped with the last of its trees, it leaves nothing behind. This process takes in orphans from then on: those of other
/// programs that it starts become its children too, as they would be those of the system's first process. Needs a runtime of tokio with I/O and time.
pub struct Keepers {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    executable: PathBuf,
    owner: Owner,
    /// Where the groups of keepers are made; or why there are none.
    cgroups: Result<Delegated, String>,
    group: TaskGroup,
    idle: Mutex<Vec<Supervised>>,
    /// The trees by their keepers' processes, for looks at their memory.
    watched: Mutex<BTreeMap<u32, Weak<State>>>,
}

/// A keeper in use. Dropped, it is ended, and its tree with it.
struct InUse {
    keeper: Option<Supervised>,
    of: Weak<Shared>,
}

/// A tree whose memory is looked at.
struct Watched {
    of: Weak<Shared>,
    keeper: u32,
}

impl Keepers {
    /// How many trees there can be at once, and keepers that have none.
    pub const MOST: u32 = 8192;

    const THIS: &str = "/proc/self/exe";

    /// Keepers that are this program itself, whose `main` calls [`keeper::run_if_asked`](super::keeper::run_if_asked) first.
    ///
    /// # Errors
    /// The first keeper does not start.
    pub fn new() -> io::Result<Self> {
        // Also after another version was installed in its place.
        Self::of(Path::new(Self::THIS))
    }

    /// The same, in groups or not.
    ///
    /// # Errors
    /// The first keeper does not start.
    pub fn with(cgroups: Cgroups) -> io::Result<Self> {
        Self::of_with(Path::new(Self::THIS), cgroups)
    }

    /// Keepers that are another program.
    ///
    /// # Errors
    /// The first keeper does not start.
    pub fn of(executable: &Path) -> io::Result<Self> {
        Self::of_with(executable, Cgroups::Auto)
    }

    /// Keepers that are another program, in groups or not.
    ///
    /// # Errors
    /// The first keeper does not start.
    pub fn of_with(executable: &Path, cgroups: Cgroups) -> io::Result<Self> {
        // What a keeper leaves behind that is killed comes to this process, which kills it.
        set_child_subreaper(Some(getpid()))?;
        let owner = Owner::this().ok_or_else(|| io::Error::other("there is no /proc"))?;
        let group = TaskGroup::new("keepers", Self::MOST).map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            executable: executable.to_owned(),
            owner,
            cgroups: match cgroups {
                Cgroups::Auto => Delegated::find(OwnMark::new(owner)?.get()),
                Cgroups::Off => Err("they are off".to_owned()),
            },
            group,
            idle: Mutex::default(),
            watched: Mutex::default(),
        });
        let look = watcher(Arc::downgrade(&shared));
        let watcher = shared.group.try_submit_thread("tree-memory", look);
        // It ends with the group.
        drop(watcher.map_err(|refused| io::Error::other(refused.why))?);
        let spare = shared.start()?;
        shared.put_back(spare);
        Ok(Self { shared })
    }

    /// The folder in which the groups of keepers are; or why they are in none.
    ///
    /// # Errors
    /// Keepers are in no groups.
    pub fn cgroups(&self) -> Result<&Path, &str> {
        self.shared.cgroups.as_ref().map(Delegated::folder).map_err(String::as_str)
    }
}

impl Spawner for Keepers {
    fn spawn(&self, program: Program) -> BoxFuture<'_, Result<Box<dyn Tree>, SpawnError>> {
        Box::pin(async move {
            for _ in 0..IDLE + TRIES {
                let keeper = self.shared.take().map_err(|error| no_keeper(&program, &error))?;
                let mut keeper = InUse { keeper: Some(keeper), of: Arc::downgrade(&self.shared) };
                let Some(asked) = &mut keeper.keeper else { continue };
                match asked.begin(&program).await {
                    Begun::Started(pid, pipes) => {
                        let state = State::new(program.memory_limit);
                        let tree = self.shared.supervise(keeper, state, pid, pipes);
                        let tree = tree.map_err(|error| no_keeper(&program, &error))?;
                        self.shared.start_ahead().await;
                        return Ok(Box::new(tree) as Box<dyn Tree>);
                    }
                    Begun::Refused(why) => {
                        keeper.put_back();
                        return Err(why);
                    }
                    Begun::Killed(why) => return Err(why),
                    Begun::Lost => {}
                }
            }
            Err(no_keeper(&program, &io::Error::other("they are killed")))
        })
    }
}

fn no_keeper(program: &Program, error: &io::Error) -> SpawnError {
    let command = program.command.display();
    SpawnError { cause: format!("`{command}` cannot be started: no keeper for it: {error}") }
}

impl Shared {
    /// One that waits for a tree, or a new one.
    fn take(&self) -> io::Result<Supervised> {
        loop {
            let Some(mut keeper) = self.idle.lock().pop() else { return self.start() };
            if keeper.is_idle() {
                return Ok(keeper);
            }
        }
    }

    /// Keeps a keeper for the next tree; one too many is ended.
    fn put_back(&self, keeper: Supervised) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(keeper);
        } else {
            drop(idle);
            self.end(keeper);
        }
    }

    /// Sees a keeper to its end. Without a runtime, or at the end of it, it ends all the same, unseen.
    fn end(&self, keeper: Supervised) {
        if Handle::try_current().is_ok() {
            let end = |cx: Context| async move { cx.until_interrupted(keeper.end()).await };
            drop(self.group.try_submit(Context::new(), end));
        }
    }

    /// Starts a keeper.
    fn start(&self) -> io::Result<Supervised> {
        let mark = OwnMark::new(self.owner)?;
        // Without a group it keeps its tree as well.
        let group = self.cgroups.as_ref().ok().and_then(|cgroups| cgroups.make(mark.get()).ok());
        Supervised::start(&self.executable, mark, group)
    }

    /// Stays with a tree from now on.
    fn supervise(
        self: &Arc<Self>,
        keeper: InUse,
        state: State,
        pid: u32,
        pipes: Box<Pipes>,
    ) -> io::Result<HeldTree> {
        let state = Arc::new(state);
        let Pipes { input, output, errors } = *pipes;
        let stay = {
            let state = Arc::clone(&state);
            let all = Arc::downgrade(self);
            |cx: Context| async move {
                // At the end of the group the keeper is dropped, and its tree is killed.
                cx.until_interrupted(stay(keeper, all, &state, errors)).await.ok();
                state.go();
            }
        };
        // Refused, its keeper is dropped, and the tree is killed.
        let submitted = self.group.try_submit(Context::new(), stay);
        drop(submitted.map_err(|refused| io::Error::other(refused.why))?);
        Ok(HeldTree { pid, input, output, state, _keepers: Arc::clone(self) })
    }

    /// Has a keeper ready for the next.
    async fn start_ahead(self: &Arc<Self>) {
        if !self.idle.lock().is_empty() {
            return;
        }
        let all = Arc::downgrade(self);
        let start = move |cx: Context| async move {
            if cx.check().is_ok()
                && let Some(all) = all.upgrade()
                // Whoever needs one will hear why there is none.
                && let Ok(keeper) = all.start()
            {
                all.put_back(keeper);
            }
        };
        // Refused, one is being started.
        drop(self.group.submit_detached("spare keeper", start).await);
    }

    /// Looks at the memory of all trees, and buries keepers that were killed while they had none.
    fn look(&self) {
        self.idle.lock().retain_mut(Supervised::is_idle);
        let watched: Vec<_> =
            self.watched.lock().iter().map(|(&keeper, tree)| (keeper, Weak::clone(tree))).collect();
        for (keeper, tree) in watched {
            if let (Some(tree), Ok(keeper)) = (tree.upgrade(), i32::try_from(keeper)) {
                tree.uses(proc::sum_below(keeper, proc::resident), || {
                    proc::sum_below(keeper, proc::proportional)
                });
            }
        }
    }
}

impl InUse {
    /// For the next tree.
    fn put_back(mut self) {
        if let (Some(keeper), Some(of)) = (self.keeper.take(), self.of.upgrade()) {
            of.put_back(keeper);
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let (Some(keeper), Some(of)) = (self.keeper.take(), self.of.upgrade()) {
            of.end(keeper);
        }
    }
}

impl Watched {
    /// Looks at the memory of a tree from now on.
    fn new(of: Weak<Shared>, keeper: u32, tree: &Arc<State>) -> Self {
        if let Some(of) = of.upgrade() {
            of.watched.lock().insert(keeper, Arc::downgrade(tree));
        }
        Self { of, keeper }
    }
}

/// Stays with a tree until nothing of it is left.
async fn stay(mut keeper: InUse, all: Weak<Shared>, state: &Arc<State>, errors: Errors) {
    let Some(kept) = &mut keeper.keeper else { return };
    let watched = Watched::new(all, kept.pid(), state);
    let ended = kept.stay(state, errors).await;
    drop(watched);
    match ended {
        Ended::Gone => keeper.put_back(),
        Ended::Lost => {
            if let Some(lost) = keeper.keeper.take() {
                lost.end().await;
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(of) = self.of.upgrade() {
            of.watched.lock().remove(&self.keeper);
        }
    }
}

/// Ends what an earlier daemon has left behind, then looks at all trees every second.
fn watcher(all: Weak<Shared>) -> impl FnOnce(Context) + Send + 'static {
    move |cx| {
        let mut looks = 0;
        while cx.check().is_ok() && looks < LEFTOVERS {
            let Some(all) = all.upgrade() else { return };
            let are_left = all.cgroups.as_ref().is_ok_and(Delegated::kill_leftovers);
            drop(all);
            let found = mark::kill_leftovers();
            looks = if found.running > 0 { 0 } else { looks + 1 };
            if found.running == 0 && !found.has_gaps && !are_left {
                break;
            }
            cx.wait_timeout(Duration::from_millis(10)).ok();
        }
        while cx.wait_timeout(LOOK).is_ok() {
            match all.upgrade() {
                Some(all) => all.look(),
                None => return,
            }
        }
    }
}
