//! Waiting, polling, cancelling, following; what is known after a restart; the end.

use std::sync::Arc;

use sluicegate_agents::{Followed, MemoryJournal, RequestError};

use crate::checks;
use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

#[tokio::test(start_paused = true)]
async fn a_request_is_cancelled_wherever_it_is() {
    for settings in [one_shot(|s| s.max_workers = 1), persistent(|s| s.max_workers = 1)] {
        let stage = Stage::new(settings);
        let runs = stage.enter(in_session("web:1", "s", "say hang")).await;
        let waits = stage.enter(in_session("web:1", "s", "work:1")).await;
        let then = stage.enter(in_session("web:2", "t", "work:5")).await;
        tokio::time::sleep(millis(10)).await;
        for id in [&waits, &runs] {
            assert!(stage.agents.cancel(id));
            assert_eq!(stage.outcome(id).await, Err(RequestError::Cancelled));
            assert_eq!(stage.stage_of(id).await, "cancelled");
            assert!(!stage.agents.cancel(id));
        }
        assert_eq!(stage.outcome(&then).await.unwrap().queue_wait_ms, 10);
        assert_eq!(stage.asked(), ["say hang", "work:5"]);
        stage.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_before_being_let_in_cancels() {
    let stage = Stage::new(one_shot(|_| {}));
    let submit = stage.submit(ask("web:1", "hang"));
    drop(tokio::time::timeout(millis(0), submit).await);
    tokio::time::sleep(millis(20_000)).await;
    assert_eq!(stage.states(), []);
    stage.end().await;
}

/// Asking in one go is the same: cancelled before it is let in, on its own after that, refused with its error.
#[tokio::test(start_paused = true)]
async fn who_asks_in_one_go_hears_of_the_end_alone() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    drop(tokio::time::timeout(millis(0), stage.agents.ask(ask("web:1", "hang"))).await);
    tokio::time::sleep(millis(20_000)).await;
    assert_eq!(stage.states(), [], "it was cancelled");
    drop(tokio::time::timeout(millis(10), stage.agents.ask(ask("web:1", "work:100"))).await);
    tokio::time::sleep(millis(200)).await;
    assert_eq!(stage.asked(), ["work:100"], "it went on");
    assert_eq!(stage.events("request.completed").len(), 1);
    let (ticket, outcome) = stage.agents.ask(ask("web:1", "say work:5")).await.unwrap();
    assert_eq!(outcome.as_ref().as_ref().unwrap().text, "say work:5");
    assert_eq!(stage.stage_of(&ticket.request_id).await, "completed");
    let (_, failed) = stage.agents.ask(ask("web:1", "crash:3")).await.unwrap();
    assert_eq!(failed.as_ref().as_ref().unwrap_err().code(), "worker_crash");
    let wrong = stage.agents.ask(ask("web:1", "")).await.unwrap_err();
    assert_eq!(wrong.code(), "invalid_field");
    assert_eq!(stage.events("request.rejected").len(), 0);
    drop(stage.agents.shutdown(None).await);
    let refused = stage.agents.ask(ask("web:1", "work:1")).await.unwrap_err();
    assert_eq!(refused, RequestError::ShuttingDown);
    assert_eq!(stage.events("request.rejected").len(), 1);
    stage.end().await;
}

/// Nothing is missed, also by one who comes late; and the stream ends with the outcome.
#[tokio::test(start_paused = true)]
async fn a_request_is_followed_to_its_end() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    let id = stage.enter(ask("web:1", "say work:100 say echo work:100")).await;
    tokio::time::sleep(millis(150)).await;
    let mut follow = stage.agents.follow(&id).await.unwrap().unwrap();
    let mut heard = Vec::new();
    while let Some(followed) = follow.next().await {
        heard.push(match followed {
            Followed::Stage(stage) => stage.name().to_owned(),
            Followed::Line(line) => line[..19].to_owned(),
            Followed::Ended(outcome) => outcome.as_ref().as_ref().unwrap().text.clone(),
            _ => unreachable!(),
        });
    }
    let line = r#"{"message":{"conten"#;
    assert_eq!(heard, [line, line, "running", "say work:100 say echo work:100"]);
    let mut over = stage.agents.follow(&id).await.unwrap().unwrap();
    assert!(matches!(over.next().await, Some(Followed::Ended(_))));
    assert_eq!(over.next().await, None);
    assert!(stage.agents.follow("nobody").await.unwrap().is_none());
    stage.end().await;
}

/// Whoever waits may go away: the request goes on.
#[tokio::test(start_paused = true)]
async fn a_request_goes_on_without_its_caller() {
    let stage = Stage::new(one_shot(|_| {}));
    let id = stage.enter(ask("web:1", "work:100")).await;
    drop(tokio::time::timeout(millis(10), stage.agents.wait(&id)).await);
    assert!(stage.outcome(&id).await.is_ok());
    stage.end().await;
}

/// After a crash: what was not over is interrupted, and does not run again.
///
/// `docs/rules.md#agents-8`
#[tokio::test(start_paused = true)]
async fn after_a_crash_requests_are_interrupted() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    let done = stage.enter(ask("web:1", "work:10")).await;
    assert!(stage.outcome(&done).await.is_ok());
    let running = stage.enter(ask("web:1", "hang")).await;
    let queued = stage.enter(ask("web:1", "work:10")).await;
    let crashed = Arc::<MemoryJournal>::clone(&stage.journal);
    // What a crash leaves: a copy of the journal as it is now, and nothing else.
    let later = Stage::with_journal(one_shot(|_| {}), crashed);
    assert_eq!(later.stage_of(&done).await, "completed");
    for id in [running, queued] {
        assert_eq!(later.stage_of(&id).await, "interrupted");
        assert_eq!(later.outcome(&id).await, Err(RequestError::Interrupted));
    }
    assert!(later.agents.find("nobody").await.unwrap().is_none());
    assert_eq!(later.spawned().len(), 0);
    later.end().await;
}

/// "Pending requests are rejected with ShutdownError"; running ones finish.
///
/// `docs/rules.md#agents-11`
#[tokio::test(start_paused = true)]
async fn the_end_rejects_what_waits_and_lets_running_ones_finish() {
    let stage = Stage::new(persistent(|settings| settings.max_workers = 2));
    stage.reply(in_session("web:1", "idle", "work:1")).await;
    let runs = stage.enter(in_session("web:1", "a", "work:5000")).await;
    let waits = stage.enter(in_session("web:1", "a", "work:1")).await;
    let began = tokio::time::Instant::now();
    let report = stage.agents.shutdown(None).await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(began.elapsed(), millis(5_000));
    assert!(stage.outcome(&runs).await.is_ok());
    let refused = stage.outcome(&waits).await.unwrap_err();
    assert_eq!(refused, RequestError::ShuttingDown);
    assert_eq!(refused.user_message(), "The service is restarting. Please try again in a moment.");
    assert_eq!(stage.submit(ask("web:1", "work:1")).await.unwrap_err().code(), "shutting_down");
    assert_eq!(stage.events("pool.shutdown")[0]["pendingDrained"], 1);
    checks::nothing_is_left(&stage.log());
    drop(stage.agents.shutdown(None).await);
}

/// A turn that waits for a worker to be gone when the end begins is one that runs.
#[tokio::test(start_paused = true)]
async fn the_end_lets_those_finish_that_wait_for_a_place() {
    let stage = Stage::new(persistent(|settings| settings.max_workers = 1));
    stage.reply(in_session("web:1", "a", "stubborn work:1")).await;
    let runs = stage.enter(in_session("web:1", "b", "work:1")).await;
    tokio::time::sleep(millis(1)).await;
    assert_eq!(stage.stage_of(&runs).await, "running");
    assert!(stage.agents.shutdown(None).await.is_clean());
    assert!(stage.outcome(&runs).await.is_ok());
    checks::nothing_is_left(&stage.log());
}

/// The pool ends before the task of a request has begun.
///
/// `docs/rules.md#agents-11`
#[tokio::test(start_paused = true)]
async fn who_asks_as_the_pool_ends_is_told_so() {
    for in_one_go in [true, false] {
        let stage = Stage::new(one_shot(|settings| settings.upstream_rate_limit_rps = 1));
        stage.reply(ask("web:1", "work:1")).await;
        tokio::time::sleep(millis(10)).await;
        let asks = async {
            // The limiter holds it, so nothing runs that the end would wait for.
            let ask = ask("web:1", "work:10");
            if in_one_go {
                stage.agents.ask(ask).await.map(drop)
            } else {
                stage.agents.submit(ask).await.map(drop)
            }
        };
        let asks = tokio::time::timeout(millis(100_000), asks);
        let ends = stage.agents.shutdown(Some(tokio::time::Instant::now()));
        let (asked, _) = tokio::join!(asks, ends);
        assert_eq!(asked.expect("it is told"), Err(RequestError::ShuttingDown));
        assert_eq!(stage.agents.pending(), []);
        assert_eq!(stage.events("request.rejected").len(), 1);
        stage.end().await;
    }
}

/// What does not end in time is killed.
#[tokio::test(start_paused = true)]
async fn the_end_has_a_deadline() {
    let stage = Stage::new(one_shot(|_| {}));
    let runs = stage.enter(ask("web:1", "stubborn hang")).await;
    tokio::time::sleep(millis(1)).await;
    let deadline = tokio::time::Instant::now() + millis(1_000);
    drop(stage.agents.shutdown(Some(deadline)).await);
    assert_eq!(stage.outcome(&runs).await, Err(RequestError::ShuttingDown));
    assert_eq!(stage.since(), millis(1 + 1_000 + 10_000));
    checks::nothing_is_left(&stage.log());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_dropped_leaves_nothing() {
    let Stage { agents, scripted, .. } = Stage::new(persistent(|settings| {
        settings.min_workers = 1;
        settings.max_workers = 3;
    }));
    for prompt in ["work:1", "hang", "work:1"] {
        drop(agents.submit(ask("web:1", prompt)).await.unwrap());
    }
    tokio::time::sleep(millis(100)).await;
    drop(agents);
    tokio::time::sleep(millis(20_000)).await;
    checks::nothing_is_left(&scripted.log());
}

/// Whoever gives up while the program is started hears so at once; the place is free when the program is gone.
///
/// `docs/rules.md#agents-1`
#[tokio::test(start_paused = true)]
async fn a_request_is_cancelled_while_its_program_is_started() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    stage.scripted.set_spawn_delay(millis(1_000));
    let id = stage.enter(ask("web:1", "work:1")).await;
    tokio::time::sleep(millis(10)).await;
    assert!(stage.agents.cancel(&id));
    assert_eq!(stage.outcome(&id).await.unwrap_err().code(), "cancelled");
    assert_eq!((stage.since(), stage.states().len()), (millis(10), 1));
    tokio::time::sleep(millis(1_000)).await;
    assert_eq!((stage.spawned().len(), stage.states()), (1, vec![]));
    checks::nothing_is_left(&stage.log());
    stage.end().await;
}
