//! A daemon that is killed takes all its trees with it: `docs/rules.md#tree-2`.
//!
//! The daemon is this test program again, which runs one test of this file that is a daemon when it is told to.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::killed::{ALL, Doing, doing};
use crate::stage::{PATIENCE, Stage, alone, children, is_there, tagged, within};

const TAG: &str = "SLUICEGATE_TEST_DAEMON";
const CALM: &str = "SLUICEGATE_TEST_DAEMON_CALM";

/// Does nothing, unless it is told to be a daemon: then it starts trees in every state, and stays.
#[tokio::test(flavor = "multi_thread")]
async fn is_a_daemon_when_told() {
    let Ok(tag) = std::env::var(TAG) else { return };
    let stage = Stage::tagged(tag);
    let mut trees = Vec::new();
    // What forks on and on is caught by whom it belongs to, not by a stranger; unless the system knows it.
    let calm = std::env::var_os(CALM).is_some() && stage.keepers.cgroups().is_err();
    for what in ALL.into_iter().filter(|&what| !calm || what != Doing::Forking) {
        trees.push(doing(&stage, what).await);
    }
    println!("ready");
    tokio::time::sleep(PATIENCE * 4).await;
}

/// A daemon with trees in every state.
struct Daemon {
    process: Child,
    tag: String,
    keepers: Vec<i32>,
}

impl Daemon {
    async fn start(number: usize, calm: bool) -> Self {
        let tag = format!("--tag-of-daemon-{}-{number}", std::process::id());
        let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
        if calm {
            command.env(CALM, "");
        }
        let mut process = command
            .args(["--exact", "daemons::is_a_daemon_when_told", "--nocapture"])
            .env(TAG, &tag)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a daemon");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await.expect("text") {
                if line.ends_with("ready") {
                    return true;
                }
            }
            false
        };
        assert!(within(ready).await, "the daemon has ended");
        let keepers = children(process.id().expect("it runs"));
        assert!(keepers.len() >= ALL.len() - 1);
        assert!(tagged(&tag).len() > ALL.len());
        Self { process, tag, keepers }
    }

    /// Kills it, and waits until nothing of it is left.
    async fn killed(mut self) {
        self.process.kill().await.expect("it is ours");
        let left =
            || (tagged(&self.tag), self.keepers.iter().filter(|&&pid| is_there(pid)).count());
        let gone = async {
            while left() != (Vec::new(), 0) {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, gone).await.is_err() {
            panic!("{:?}", left());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_survives_a_daemon_that_is_killed() {
    let _alone = alone();
    for number in 0..20 {
        Daemon::start(number, false).await.killed().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_left_that_was_killed_with_its_keepers_is_ended_by_the_next() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let _alone = alone();
    let mut daemon = Daemon::start(1000, true).await;
    let pid = i32::try_from(daemon.process.id().unwrap()).unwrap();
    // None of them gets to do anything.
    for pid in daemon.keepers.iter().chain([&pid]) {
        kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap();
    }
    for pid in daemon.keepers.iter().chain([&pid]) {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    daemon.process.wait().await.unwrap();
    assert!(!tagged(&daemon.tag).is_empty());
    let _next = Stage::new();
    daemon.killed().await;
}
