//! Workers killed in every state, several at once, one after the other.
//!
//! `SLUICEGATE_SOAK=20000` makes it that many.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluicegate_agents::{Followed, WorkerState, WorkerView};
use tokio::time::{sleep, timeout};

use crate::stage::{PATIENCE, Stage, ask, files, in_session, millis, parent, persistent, within};

const AT_ONCE: usize = 8;
/// More than keepers are kept without a tree.
const MANY: usize = 40;
/// With children, one of them in a session of its own; and then it says so, and stays.
const HANGS: &str = "!fork 2 !daemonize !notice !hang";
const IGNORES: &str = "!ignore-term !fork 2 !daemonize !notice !hang";

/// The states in which a worker is killed.
const STATES: [WorkerState; 5] = [
    WorkerState::Starting,
    WorkerState::Busy,
    WorkerState::Idle,
    WorkerState::Draining,
    WorkerState::Stuck,
];

#[derive(Default)]
struct Hit([AtomicUsize; STATES.len()]);

impl Hit {
    fn count(&self, state: WorkerState) {
        let place = STATES.iter().position(|known| *known == state).expect("one of them");
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_in_every_state_leave_nothing() {
    let count =
        std::env::var("SLUICEGATE_SOAK").map_or(2_000, |number| number.parse().expect("a number"));
    let stage = Stage::new(persistent(|settings| {
        settings.max_workers = MANY as u32;
        settings.graceful_shutdown = millis(40);
    }));
    warm_up(&stage).await;
    let before = files();
    let hit = Hit::default();
    stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, |number| kill_one(&stage, number, &hit))
        .await;
    stage.emptied("after").await;
    let closed = async {
        while files() > before {
            sleep(millis(2)).await;
        }
    };
    assert!(timeout(PATIENCE, closed).await.is_ok(), "{before} files were open, {} are", files());
    println!("{count} workers killed: {:?} {:?}", STATES, hit.0);
    let least = hit.0.iter().map(|hit| hit.load(Ordering::Relaxed)).min();
    assert!(least >= Some(count / 10), "too few of one state: {:?}", hit.0);
    assert_eq!(stage.reply(ask("web:1", "still here")).await.text, "still here");
    stage.end().await;
}

/// Until as many keepers wait as ever do.
async fn warm_up(stage: &Stage) {
    let asks = (0..MANY).map(|user| stage.reply(ask(&format!("web:{user}"), "!sleep 300ms hello")));
    join_all(asks).await;
    let workers = stage.agents.workers();
    assert_eq!(workers.len(), MANY);
    for worker in workers {
        assert!(stage.agents.kill(&worker.id).await);
    }
    stage.emptied("before").await;
}

async fn kill_one(stage: &Stage, number: usize, hit: &Hit) {
    let (session, state) = (format!("s-{number}"), STATES[number % STATES.len()]);
    let ask = |prompt| in_session("web:1", &session, prompt);
    match state {
        WorkerState::Starting => {
            let request = stage.enter(ask(HANGS)).await;
            let worker = stage.worker(|one| one.request.as_deref() == Some(&request)).await;
            hit.count(worker.state);
            assert!(within(stage.agents.kill(&worker.id)).await);
            let error = stage.outcome(&request).await.expect_err("it was killed");
            assert_eq!(error.code(), "worker_crash", "{error}");
        }
        WorkerState::Busy => {
            let request = stage.enter(ask(HANGS)).await;
            says_so(stage, &request).await;
            let worker = stage.worker_in(&request, state).await;
            hit.count(worker.state);
            kill_somehow(stage, number / STATES.len(), &worker).await;
            let error = stage.outcome(&request).await.expect_err("it was killed");
            assert_eq!(error.code(), "worker_crash", "{error}");
        }
        WorkerState::Idle => {
            stage.reply(ask("!fork 2 hello")).await;
            let of_session = |one: &WorkerView| {
                one.session.as_deref() == Some(&session) && one.state == WorkerState::Idle
            };
            let worker = stage.worker(of_session).await;
            hit.count(worker.state);
            kill_somehow(stage, number / STATES.len(), &worker).await;
            stage.gone(&worker.id).await;
        }
        _ => {
            let request = stage.enter(ask(IGNORES)).await;
            says_so(stage, &request).await;
            let worker = stage.worker_in(&request, WorkerState::Busy).await;
            assert!(stage.agents.cancel(&request));
            // On a busy machine it may be over before it is seen.
            let seen = stage.until_not(&worker.id, WorkerState::Busy).await;
            if (state, seen) == (WorkerState::Draining, Some(WorkerState::Draining)) {
                hit.count(state);
                within(stage.agents.kill(&worker.id)).await;
            }
            stage.gone(&worker.id).await;
            // This one is killed by the pool, when it has become stuck: too soon to be seen from here.
            if state == WorkerState::Stuck {
                assert!(
                    stage.was_stuck(&worker.id),
                    "{} has ended when it was asked to",
                    worker.id
                );
                hit.count(state);
            }
            let error = stage.outcome(&request).await.expect_err("it was cancelled");
            assert_eq!(error.code(), "cancelled", "{error}");
        }
    }
}

/// By the pool, from outside, or with what keeps it.
async fn kill_somehow(stage: &Stage, how: usize, worker: &WorkerView) {
    let pid = worker.pid.and_then(|pid| i32::try_from(pid).ok()).expect("it runs");
    let from_outside = |pid| kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    match how % 3 {
        0 => assert!(within(stage.agents.kill(&worker.id)).await),
        1 => from_outside(pid),
        _ => from_outside(parent(pid).expect("its keeper")),
    }
}

/// Waits until the agent has started its children.
async fn says_so(stage: &Stage, request: &str) {
    let mut follow = stage.agents.follow(request).await.ok().flatten().expect("known");
    let said = async {
        while let Some(followed) = follow.next().await {
            if matches!(followed, Followed::Line(line) if line.contains("Reconnecting")) {
                return true;
            }
        }
        false
    };
    assert!(within(said).await, "it ended before");
}
