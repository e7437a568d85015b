//! Section 4.7: what becomes of a worker after a turn.

use sluicegate_agents::WorkerState;

use crate::checks;
use crate::stage::{Stage, ask, in_session, millis, persistent};

/// `docs/rules.md#agents-5`
#[tokio::test(start_paused = true)]
async fn a_worker_is_replaced_by_count_and_by_errors_in_a_row() {
    for (prompts, reason) in [
        (vec!["work:1", "work:1", "work:1"], "max_requests"),
        (vec!["error", "error"], "error_threshold"),
    ] {
        let stage = Stage::new(persistent(|settings| {
            settings.max_requests_per_worker = 3;
            settings.max_worker_errors = 2;
        }));
        for prompt in &prompts {
            drop(stage.run(in_session("web:1", "s", prompt)).await);
        }
        tokio::time::sleep(millis(1)).await;
        assert_eq!((stage.spawned().len(), stage.states()), (1, vec![]));
        assert_eq!(stage.events("worker.recycled")[0]["reason"], reason);
        stage.reply(in_session("web:1", "s", "work:1")).await;
        assert_eq!(stage.spawned()[1], ["--stay", "--resume", "s"]);
        stage.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_idle_for_too_long_ends() {
    let stage = Stage::new(persistent(|settings| {
        settings.worker_idle_timeout = millis(5_000);
        settings.min_workers = 1;
        settings.max_workers = 2;
    }));
    for session in ["a", "b"] {
        stage.reply(in_session("web:1", session, "work:10")).await;
    }
    assert_eq!(stage.states(), [WorkerState::Idle; 2]);
    tokio::time::sleep(millis(60_000)).await;
    assert_eq!(stage.states(), [WorkerState::Idle]);
    assert_eq!(stage.events("worker.recycled").last().unwrap()["reason"], "idle_timeout");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn with_a_full_pool_an_idle_worker_of_another_session_gives_way() {
    let stage = Stage::new(persistent(|settings| settings.max_workers = 2));
    for session in ["a", "b", "c", "a"] {
        stage.reply(in_session("web:1", session, "work:10")).await;
    }
    checks::never_more_programs_than(&stage.log(), 2);
    assert_eq!(stage.spawned().len(), 4);
    assert_eq!(stage.events("worker.recycled")[0]["reason"], "evicted");
    stage.end().await;
}

/// Several turns at once find all places taken by idle workers, one of which does not want to go.
#[tokio::test(start_paused = true)]
async fn turns_wait_until_a_place_is_really_free() {
    let stage = Stage::new(persistent(|settings| settings.max_workers = 3));
    for (session, prompt) in [("a", "stubborn work:10"), ("b", "work:10"), ("c", "work:10")] {
        stage.reply(in_session("web:1", session, prompt)).await;
    }
    let mut ids = Vec::new();
    for session in ["d", "e", "f"] {
        ids.push(stage.enter(in_session("web:1", session, "work:10")).await);
    }
    for id in ids {
        assert!(stage.outcome(&id).await.is_ok());
    }
    checks::never_more_programs_than(&stage.log(), 3);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_command_line_replaces_workers_after_their_turn() {
    let stage = Stage::new(persistent(|_| {}));
    let busy = stage.enter(in_session("web:1", "busy", "work:1000")).await;
    stage.reply(in_session("web:1", "idle", "work:10")).await;
    let changed = persistent(|settings| settings.command.push("--new".to_owned()));
    assert_eq!(stage.agents.change(changed.check().unwrap()), Ok(vec![]));
    assert!(stage.outcome(&busy).await.is_ok());
    for session in ["busy", "idle"] {
        stage.reply(in_session("web:1", session, "work:1")).await;
    }
    assert_eq!(
        stage.spawned()[2..],
        [["--stay", "--new", "--resume", "busy"], ["--stay", "--new", "--resume", "idle"],]
    );
    checks::sessions_never_overlap(&stage.log());
    stage.end().await;
}

/// An idle process that died is not given a request.
#[tokio::test(start_paused = true)]
async fn a_worker_that_died_while_idle_is_forgotten() {
    let stage = Stage::new(persistent(|_| {}));
    stage.reply(in_session("web:1", "s", "work:1")).await;
    assert!(stage.agents.kill("worker-1").await);
    assert_eq!(stage.states(), []);
    assert_eq!(stage.reply(in_session("web:1", "s", "work:1")).await.worker_id, "worker-2");
    stage.end().await;
}

/// What was started ahead gives way to sessions that have requests, and does not come back before them.
///
/// `docs/rules.md#agents-1`
#[tokio::test(start_paused = true)]
async fn a_pool_full_of_workers_that_were_started_ahead_serves_everybody() {
    let stage = Stage::new(persistent(|settings| {
        settings.max_workers = 2;
        settings.min_workers = 2;
    }));
    stage.scripted.set_spawn_delay(millis(10));
    for round in 0..3 {
        for session in ["a", "b", "c"] {
            let reply = stage.reply(in_session("web:1", session, "work:5")).await;
            // One that is still being started, one in its place, and the work.
            assert!(reply.execution_ms <= 10 + 10 + 5, "{round} {session}: {reply:?}");
        }
    }
    checks::never_more_programs_than(&stage.log(), 2);
    stage.end().await;
}

/// `minWorkers`: started ahead, and again when one is gone.
#[tokio::test(start_paused = true)]
async fn workers_are_started_ahead() {
    for (session_args, sessions) in [(vec![], 0), (vec!["--session-id", "{session}"], 2)] {
        let stage = Stage::new(persistent(|settings| {
            settings.min_workers = 2;
            settings.session_args = session_args.into_iter().map(str::to_owned).collect();
        }));
        tokio::time::sleep(millis(1)).await;
        assert_eq!(stage.states(), [WorkerState::Idle; 2]);
        let bound = stage.agents.workers().iter().filter(|worker| worker.session.is_some()).count();
        assert_eq!(bound, sessions);
        // A new session has one of them at once.
        assert!(stage.run(ask("web:1", "work:1")).await.is_ok());
        assert_eq!(stage.spawned().len(), 2);
        assert!(stage.agents.kill("worker-2").await);
        tokio::time::sleep(millis(1)).await;
        assert_eq!(stage.states(), [WorkerState::Idle; 2]);
        stage.end().await;
    }
}

/// Wherever its command line names the session, a worker serves no other.
#[tokio::test(start_paused = true)]
async fn a_worker_whose_command_names_its_session_serves_no_other() {
    let stage = Stage::new(persistent(|settings| {
        settings.min_workers = 1;
        settings.command.push("--of={session}".to_owned());
        (settings.session_args, settings.resume_args) = (Vec::new(), Vec::new());
    }));
    tokio::time::sleep(millis(1)).await;
    stage.reply(in_session("web:1", "mine", "work:1")).await;
    let is_mine = |arguments: &Vec<String>| arguments.contains(&"--of=mine".to_owned());
    assert_eq!(stage.spawned().iter().map(is_mine).collect::<Vec<_>>(), [false, true]);
    stage.end().await;
}

/// `docs/rules.md#agents-5`
#[tokio::test(start_paused = true)]
async fn a_program_that_ends_at_once_is_started_ahead_with_a_growing_pause() {
    let stage = Stage::new(persistent(|settings| {
        settings.command = ["agent", "--stay", "-P", "work:1 crash"].map(str::to_owned).to_vec();
        settings.min_workers = 1;
    }));
    tokio::time::sleep(millis(61_500)).await;
    // At 0, 2, 6, 14, 30 and (no pause is longer than 32 seconds) 62 seconds.
    assert_eq!(stage.spawned().len(), 5);
    tokio::time::sleep(millis(1_000)).await;
    assert_eq!(stage.spawned().len(), 6);
    stage.end().await;
}

/// It says a result before anybody asks it: as one that ends, it is of no use.
///
/// `docs/rules.md#agents-5`
#[tokio::test(start_paused = true)]
async fn a_program_that_answers_at_once_is_started_ahead_with_a_growing_pause() {
    let stage = Stage::new(persistent(|settings| {
        settings.command = ["agent", "--stay", "-P", "work:1"].map(str::to_owned).to_vec();
        settings.min_workers = 1;
    }));
    tokio::time::sleep(millis(61_500)).await;
    assert_eq!(stage.spawned().len(), 5);
    tokio::time::sleep(millis(1_000)).await;
    assert_eq!(stage.spawned().len(), 6);
    stage.end().await;
}

/// One that came up while the pool was ending was not among those that were told to end.
#[tokio::test(start_paused = true)]
async fn what_is_being_started_ahead_does_not_hold_up_the_end() {
    let stage = Stage::new(persistent(|settings| settings.min_workers = 1));
    stage.scripted.set_spawn_delay(millis(100));
    tokio::time::sleep(millis(10)).await;
    let agents = stage.agents.clone();
    let began = tokio::time::Instant::now();
    drop(agents.shutdown(None).await);
    assert_eq!(began.elapsed(), millis(90));
    stage.end().await;
}

/// The last handle goes while workers are started ahead: there is no task for the rest, and nobody tries for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_dropped_while_it_starts_workers_ahead_comes_to_rest() {
    for round in 0..100 {
        let stage = Stage::new(persistent(|settings| {
            settings.min_workers = 100;
            settings.max_workers = 100;
        }));
        for _ in 0..round % 10 {
            tokio::task::yield_now().await;
        }
        let log = stage.scripted.clone();
        drop(stage);
        let at_rest = async {
            while log.users() > 1 {
                tokio::time::sleep(millis(1)).await;
            }
        };
        tokio::time::timeout(millis(30_000), at_rest).await.expect("it comes to rest");
    }
}

/// A turn that waits for a place while the command line changes is not served by the old one, which would count as new.
///
/// `docs/rules.md#agents-5`
#[tokio::test(start_paused = true)]
async fn a_turn_that_waited_for_a_place_has_the_command_line_of_now() {
    let stage = Stage::new(persistent(|settings| settings.max_workers = 1));
    stage.reply(in_session("web:1", "a", "stubborn work:1")).await;
    let waits = stage.enter(in_session("web:1", "b", "work:1")).await;
    tokio::time::sleep(millis(100)).await;
    let changed = persistent(|settings| {
        settings.max_workers = 1;
        settings.command.push("--new".to_owned());
    });
    stage.agents.change(changed.check().unwrap()).unwrap();
    stage.outcome(&waits).await.unwrap();
    assert_eq!(stage.spawned()[1], ["--stay", "--new", "--session-id", "b"]);
    stage.end().await;
}

/// What it says once more would answer the next request.
///
/// `docs/rules.md#agents-7`
#[tokio::test(start_paused = true)]
async fn a_worker_that_answers_unasked_is_replaced() {
    for (again, pause) in [("again:0", 0), ("again:20", 100)] {
        let stage = Stage::new(persistent(|_| {}));
        for prompt in [again, "two"] {
            assert_eq!(stage.reply(in_session("web:1", "s", prompt)).await.text, prompt);
            tokio::time::sleep(millis(pause)).await;
        }
        assert_eq!(stage.spawned().len(), 2);
        assert_eq!(stage.events("worker.recycled")[0]["reason"], "out_of_step");
        stage.end().await;
    }
}
