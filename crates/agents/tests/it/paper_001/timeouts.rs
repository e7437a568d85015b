//! Sections 2 and 4: queue timeout, execution timeout, one deadline over both.

use serde_json::json;
use sluicegate_agents::scripted::Did;
use sluicegate_agents::{Ask, WorkerState};

use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

#[tokio::test(start_paused = true)]
async fn a_request_waits_no_longer_than_the_queue_timeout() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        settings.queue_timeout = millis(2_000);
    }));
    stage.enter(ask("web:1", "work:9000")).await;
    let id = stage.enter(ask("web:2", "work:1")).await;
    let error = stage.outcome(&id).await.unwrap_err();
    assert_eq!(stage.since(), millis(2_000));
    let fields = json!({"requestId": id, "waitedMs": 2_000, "timeoutMs": 2_000});
    assert_eq!((error.code(), json!(error.fields())), ("queue_timeout", fields));
    assert_eq!(stage.events("request.timeout")[0]["phase"], "queue");
    stage.end().await;
}

/// The caller hears at once; the process is asked, then killed, and only then is its place free.
#[tokio::test(start_paused = true)]
async fn a_request_runs_no_longer_than_the_execution_timeout() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        settings.execution_timeout = millis(20_000);
    }));
    stage.scripted.set_spawn_delay(millis(3_000));
    let id = stage.enter(in_session("web:1", "s", "stubborn hang")).await;
    let error = stage.outcome(&id).await.unwrap_err();
    assert_eq!(stage.since(), millis(20_000));
    let fields = json!({"requestId": id, "workerId": "worker-1", "elapsedMs": 20_000,
                        "timeoutMs": 20_000});
    assert_eq!((error.code(), json!(error.fields())), ("execution_timeout", fields));
    let next = stage.reply(in_session("web:1", "s", "work:1")).await;
    assert_eq!((stage.since(), next.worker_id.as_str()), (millis(33_001), "worker-2"));
    let signals: Vec<Did> = stage.log().into_iter().map(|entry| entry.what).collect();
    let at = |what: &Did| signals.iter().position(|did| did == what).unwrap();
    assert!(at(&Did::Terminated) < at(&Did::Killed));
    assert_eq!(stage.events("worker.stuck").len(), 1);
    assert_eq!(stage.events("request.timeout")[0]["phase"], "execution");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_never_comes_up_is_given_up() {
    let stage = Stage::new(one_shot(|settings| settings.execution_timeout = millis(20_000)));
    stage.scripted.set_spawn_delay(millis(1_000_000));
    assert_eq!(stage.code(ask("web:1", "work:1")).await, "execution_timeout");
    assert_eq!(stage.since(), millis(20_000));
    // It may come up yet: its place is free once nothing of it can be left.
    assert_eq!(stage.states().len(), 1);
    tokio::time::sleep(millis(10_001)).await;
    assert_eq!(stage.states(), []);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenants_response_time_is_an_execution_timeout() {
    let stage = Stage::new(persistent(|settings| {
        settings.tenant_limits.max_response_time = millis(700);
    }));
    let error = stage.run(ask("web:1", "say hang")).await.unwrap_err();
    assert_eq!((error.code(), &error.fields()["timeoutMs"]), ("execution_timeout", &json!(700)));
    stage.end().await;
}

/// One deadline from admission on; the error says where it passed.
#[tokio::test(start_paused = true)]
async fn one_deadline_covers_waiting_and_running() {
    for (before, code) in [("work:1000", "execution_timeout"), ("work:9000", "queue_timeout")] {
        let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
        stage.enter(ask("web:1", before)).await;
        let ask = Ask { timeout: Some(millis(1_500)), ..ask("web:2", "work:4000") };
        let error = stage.run(ask).await.unwrap_err();
        assert_eq!((error.code(), stage.since()), (code, millis(1_500)));
        assert_eq!(error.fields()["timeoutMs"], 1_500);
        stage.end().await;
    }
}

/// Fed by output only.
#[tokio::test(start_paused = true)]
async fn a_process_that_says_nothing_for_too_long_is_given_up() {
    let stage = Stage::new(one_shot(|settings| settings.max_silence = Some(millis(500))));
    let talks = "work:400 say work:400 say work:400";
    assert!(stage.run(ask("web:1", talks)).await.is_ok());
    let error = stage.run(ask("web:1", "work:400 say hang")).await.unwrap_err();
    assert_eq!((error.code(), &error.fields()["timeoutMs"]), ("execution_timeout", &json!(500)));
    assert_eq!(stage.since(), millis(1_200 + 900));
    let why = error.fields()["message"].clone();
    assert_eq!(why, "it said nothing for 500 ms, as long as max_silence allows");
    stage.end().await;
}

/// Its caller is answered and its place comes free, when nobody says that its processes are gone.
///
/// `docs/rules.md#agents-1`
#[tokio::test(start_paused = true)]
async fn a_tree_whose_end_is_never_heard_of_holds_no_place_for_ever() {
    for (prompt, code, after) in [
        // It would be tried once more, on a worker after it.
        ("unheard crash", "worker_crash", 30_000),
        ("unheard hang", "execution_timeout", 20_000),
    ] {
        let stage = Stage::new(one_shot(|settings| {
            settings.max_workers = 1;
            settings.execution_timeout = millis(20_000);
        }));
        let ask = Ask { idempotent: true, ..in_session("web:1", "s", prompt) };
        assert_eq!((stage.code(ask).await, stage.since()), (code, millis(after)));
        assert_eq!(stage.reply(in_session("web:1", "s", "work:1")).await.text, "work:1");
        let abandoned = stage.events("worker.abandoned");
        assert_eq!(abandoned[0]["durationMs"], 30_000);
        assert_eq!(stage.events("worker.spawned").len(), abandoned.len() + 1);
        stage.end().await;
    }
}

/// There is no request whose time could be up.
#[tokio::test(start_paused = true)]
async fn a_process_that_never_comes_up_ahead_of_a_turn_is_given_up() {
    let stage = Stage::new(persistent(|settings| {
        (settings.min_workers, settings.max_workers) = (1, 1);
        settings.execution_timeout = millis(20_000);
    }));
    stage.scripted.set_spawn_delay(millis(1_000_000));
    tokio::time::sleep(millis(1)).await;
    stage.scripted.set_spawn_delay(millis(0));
    assert_eq!(stage.states(), [WorkerState::Starting]);
    tokio::time::sleep(millis(20_000)).await;
    assert_eq!(stage.events("worker.not_started")[0]["error"], "it takes too long");
    // Its place is free once nothing of it can be left.
    tokio::time::sleep(millis(10_001)).await;
    assert_eq!(stage.states(), [WorkerState::Idle]);
    stage.end().await;
}
