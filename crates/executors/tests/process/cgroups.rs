//! Trees in groups of the system, where it lets us make some: `docs/rules.md#tree-1`, `docs/rules.md#tree-2`.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluicegate_executors::process::{Cgroups, Exit, Keepers, Spawner, TreeSignal};
use tokio::time::{Duration, Instant, sleep};

use crate::killed::{Doing, doing};
use crate::stage::{KEEPER, Stage, groups, members, parent, within};

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
