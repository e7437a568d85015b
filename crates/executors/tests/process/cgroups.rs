//! Trees in groups of the system, where it lets us make some: `docs/rules.md#tree-1`, `docs/rules.md#tree-2`.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluicegate_executors::process::{Cgroups, Exit, Keepers, Program, Spawner, TreeSignal};
use tokio::time::{Duration, Instant, sleep};

use crate::killed::{Doing, doing};
use crate::stage::{KEEPER, Stage, children, groups, members, parent, within};

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_tree_starts_is_in_the_group_of_its_keeper() {
    let stage = Stage::new();
    let tree = doing(&stage, Doing::WithDaemons).await;
    let Some(groups) = stage.groups() else { return };
    let pid = i32::try_from(tree.pid()).unwrap();
    let group = groups.iter().find(|group| members(group).contains(&pid)).expect("it is in one");
    let mut expected = stage.running();
    expected.push(parent(pid).expect("its keeper"));
    let mut found = members(group);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(expected.len() > 3, "{expected:?}");
}

/// A keeper that hears nothing cannot kill its tree, which forks on and on, and left its group.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_whose_keeper_hears_nothing_is_killed_as_a_whole() {
    for what in [Doing::WithDaemons, Doing::Forking, Doing::IgnoringSigterm, Doing::Stopped] {
        let stage = Stage::new();
        let tree = doing(&stage, what).await;
        if stage.groups().is_none() {
            return;
        }
        let keeper = parent(i32::try_from(tree.pid()).unwrap()).expect("its keeper");
        kill(Pid::from_raw(keeper), Signal::SIGSTOP).unwrap();
        let began = Instant::now();
        tree.signal(TreeSignal::Kill);
        within(tree.gone()).await;
        assert_eq!(stage.running(), [0; 0], "{what:?}");
        assert_eq!(within(tree.exit()).await, Exit::Signal(9), "{what:?}");
        println!("{what:?}: {:?}", began.elapsed());
        // The next one has a keeper again.
        let next = stage.spawn(stage.prompt("hello")).await;
        assert_eq!(within(next.exit()).await, Exit::Code(0));
        stage.emptied(&format!("{what:?}")).await;
    }
}

/// Nobody is left to remove them but the keepers themselves.
#[tokio::test(flavor = "multi_thread")]
async fn groups_are_removed_with_their_keepers() {
    let stage = Stage::new();
    let Some(before) = stage.groups() else { return };
    assert!(!before.is_empty(), "a keeper is kept ready");
    let mut trees = Vec::new();
    for _ in 0..20 {
        trees.push(stage.begun("!daemonize").await);
    }
    let folder = stage.keepers.cgroups().unwrap().to_owned();
    drop((trees, stage));
    let empty = async {
        while !groups(&folder, std::process::id()).is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    within(empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_groups_all_is_as_it_was() {
    let stage = Stage::new();
    let keepers = Keepers::of_with(KEEPER.as_ref(), Cgroups::Off).unwrap();
    assert_eq!(keepers.cgroups(), Err("they are off"));
    let before = stage.groups().map(|groups| groups.len());
    let tree = within(keepers.spawn(stage.agent("!daemonize"))).await.unwrap();
    assert!(within(tree.read()).await.is_some());
    assert_eq!(stage.groups().map(|groups| groups.len()), before);
    tree.signal(TreeSignal::Kill);
    within(tree.gone()).await;
    assert_eq!(stage.running(), [0; 0]);
}

/// A limit of its own on real-time computing is no mark: it is known by its group.
#[tokio::test(flavor = "multi_thread")]
async fn what_loses_its_mark_is_found_in_its_group() {
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        let stage = Stage::new();
        if stage.groups().is_none() {
            return;
        }
        let script = "echo up; prlimit --rttime=1000000:1000000 sleep 1000 & wait";
        let program = Program {
            command: "/bin/sh".into(),
            arguments: ["-c", script, "agent", &stage.tag].map(Into::into).to_vec(),
            environment: [("PATH".into(), "/usr/bin:/bin".into())].into(),
            folder: None,
            memory_limit: None,
        };
        let tree = stage.spawn(program).await;
        assert!(within(tree.read()).await.is_some());
        let program = i32::try_from(tree.pid()).unwrap();
        let has_lost_it = async {
            while !children(tree.pid()).iter().any(|&pid| limit(pid) == "1000000") {
                sleep(Duration::from_millis(1)).await;
            }
        };
        within(has_lost_it).await;
        kill(Pid::from_raw(parent(program).expect("its keeper")), signal).unwrap();
        tree.signal(TreeSignal::Kill);
        within(tree.gone()).await;
        stage.emptied(&format!("{signal}")).await;
    }
}

/// The limit of a process on real-time computing.
fn limit(pid: i32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
    line.and_then(|line| line.split_whitespace().next()).unwrap_or_default().to_owned()
}
