//! A tree that is killed is gone, whatever it did: `docs/rules.md#tree-1`.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sluicegate_executors::process::{Cgroups, Exit, Spawner, Tree, TreeSignal};
use tokio::time::{Duration, sleep, timeout};

use crate::stage::{Stage, children, is_own_process, is_there, parent, within};

/// What a tree does when it is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Doing {
    Starting,
    Idle,
    Talking,
    WithChildren,
    Forking,
    IgnoringSigterm,
    WithDaemons,
    Stopped,
    LeavingDaemonsBehind,
}

pub(crate) const ALL: [Doing; 9] = [
    Doing::Starting,
    Doing::Idle,
    Doing::Talking,
    Doing::WithChildren,
    Doing::Forking,
    Doing::IgnoringSigterm,
    Doing::WithDaemons,
    Doing::Stopped,
    Doing::LeavingDaemonsBehind,
];

/// Starts a tree, and waits until it does that.
pub(crate) async fn doing(stage: &Stage, doing: Doing) -> Box<dyn Tree> {
    match doing {
        Doing::Starting => stage.spawn(stage.agent("")).await,
        Doing::Idle => stage.begun("").await,
        Doing::Talking => stage.begun("!flood").await,
        Doing::WithChildren => stage.begun("!fork 3").await,
        Doing::Forking => stage.begun("!keep-forking").await,
        Doing::IgnoringSigterm => stage.begun("!ignore-term !fork 2 !daemonize").await,
        Doing::WithDaemons => stage.begun("!daemonize !daemonize").await,
        Doing::Stopped => {
            let tree = stage.begun("!fork 1").await;
            for pid in stage.running() {
                kill(Pid::from_raw(pid), Signal::SIGSTOP).ok();
            }
            tree
        }
        Doing::LeavingDaemonsBehind => {
            let tree = stage.begun("!daemonize !fork 1").await;
            tree.close_input();
            assert_eq!(within(tree.exit()).await, Exit::Code(0));
            tree
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_killed_is_gone_whatever_it_did() {
    for what in ALL {
        let stage = Stage::new();
        let tree = doing(&stage, what).await;
        tree.signal(TreeSignal::Kill);
        within(tree.gone()).await;
        assert_eq!(stage.running(), [0; 0], "{what:?}");
        if what != Doing::LeavingDaemonsBehind {
            assert_eq!(within(tree.exit()).await, Exit::Signal(9), "{what:?}");
        }
        stage.emptied("after gone").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_dropped_is_gone_whatever_it_did() {
    for what in ALL {
        let stage = Stage::new();
        drop(doing(&stage, what).await);
        stage.emptied(&format!("{what:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_told_to_end_ends_in_order() {
    for what in
        [Doing::Idle, Doing::Talking, Doing::WithChildren, Doing::WithDaemons, Doing::Stopped]
    {
        let stage = Stage::new();
        let tree = doing(&stage, what).await;
        tree.signal(TreeSignal::Terminate);
        within(tree.gone()).await;
        assert_eq!(within(tree.exit()).await, Exit::Signal(15), "{what:?}");
        assert_eq!(stage.running(), [0; 0], "{what:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_ignores_sigterm_is_there_until_it_is_killed() {
    let stage = Stage::new();
    let tree = doing(&stage, Doing::IgnoringSigterm).await;
    // It, two children and a daemon, which may still be on their way.
    within(stage.runs(4)).await;
    tree.signal(TreeSignal::Terminate);
    assert!(timeout(Duration::from_millis(300), tree.gone()).await.is_err());
    assert_eq!(stage.running().len(), 4);
    tree.signal(TreeSignal::Kill);
    within(tree.gone()).await;
    assert_eq!(stage.running(), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_not_gone_while_something_of_it_is_left() {
    let stage = Stage::new();
    let tree = doing(&stage, Doing::LeavingDaemonsBehind).await;
    assert!(timeout(Duration::from_millis(100), tree.gone()).await.is_err());
    assert_eq!(stage.running().len(), 2);
    tree.signal(TreeSignal::Kill);
    within(tree.gone()).await;
    assert_eq!(stage.running(), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_given_up_leaves_nothing() {
    let stage = Stage::new();
    for micros in (0..3_000).step_by(50) {
        let start = stage.keepers.spawn(stage.agent("!fork 1 !daemonize"));
        // Given up at some await or other, or dropped just started.
        drop(timeout(Duration::from_micros(micros), start).await);
    }
    stage.emptied("given up").await;
}

/// The keeper of a tree: the parent of its program.
fn keeper(tree: &dyn Tree) -> i32 {
    let pid = i32::try_from(tree.pid()).expect("a process");
    parent(pid).expect("it is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_does_not_survive_its_keeper() {
    for what in
        [Doing::Idle, Doing::Talking, Doing::Forking, Doing::IgnoringSigterm, Doing::Stopped]
    {
        let stage = Stage::new();
        let (tree, other) = (doing(&stage, what).await, stage.begun("").await);
        kill(Pid::from_raw(keeper(&*tree)), Signal::SIGKILL).unwrap();
        within(tree.gone()).await;
        assert_eq!(within(tree.exit()).await, Exit::Signal(9), "{what:?}");
        let left: Vec<u32> = stage.running().iter().map(|pid| pid.unsigned_abs()).collect();
        assert_eq!(left, [other.pid()], "{what:?}");
        assert!(is_there(keeper(&*other)), "{what:?}");
        drop((tree, other));
        stage.emptied(&format!("{what:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_whose_keeper_is_stopped_is_killed_all_the_same() {
    let stage = Stage::new();
    let tree = doing(&stage, Doing::WithDaemons).await;
    kill(Pid::from_raw(keeper(&*tree)), Signal::SIGSTOP).unwrap();
    tree.signal(TreeSignal::Kill);
    within(tree.gone()).await;
    assert_eq!(stage.running(), [0; 0]);
    drop(tree);
    stage.emptied("stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_of_a_terminal_do_not_reach_a_keeper() {
    let stage = Stage::new();
    let tree = stage.begun("").await;
    let keeper = keeper(&*tree);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        kill(Pid::from_raw(keeper), signal).unwrap();
    }
    tree.close_input();
    assert_eq!(within(tree.exit()).await, Exit::Code(0));
    within(tree.gone()).await;
    assert!(is_there(keeper));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_finds_another_keeper_when_the_idle_ones_are_killed() {
    let stage = Stage::new();
    for _ in 0..20 {
        for keeper in children(std::process::id()) {
            kill(Pid::from_raw(keeper), Signal::SIGKILL).ok();
        }
        let tree = stage.begun("").await;
        tree.signal(TreeSignal::Kill);
        within(tree.gone()).await;
    }
    stage.emptied("keepers killed").await;
}

/// A process that has as many files open as it may can neither look for what a keeper has left, nor kill it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_not_gone_while_nobody_can_look_for_it() {
    let name = "killed::a_tree_is_not_gone_while_nobody_can_look_for_it";
    if !is_own_process(name) {
        return;
    }
    for cgroups in [Cgroups::Auto, Cgroups::Off] {
        let stage = Stage::with(cgroups);
        let tree = doing(&stage, Doing::WithDaemons).await;
        let keeper = keeper(&*tree);
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limits }).unwrap();
        kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
        let is_there = timeout(Duration::from_millis(300), tree.gone()).await.is_err();
        setrlimit(Resource::Nofile, limits).unwrap();
        assert!(is_there, "{cgroups:?}: {:?} run", stage.running());
        within(tree.gone()).await;
        assert_eq!(stage.running(), [0; 0], "{cgroups:?}");
    }
    // What is left when this process ends would be a stranger's.
    let all_ended = async {
        while !children(std::process::id()).is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    within(all_ended).await;
}
