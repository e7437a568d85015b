//! Section 4: a request from its message to its reply, and a worker from its start to its end.

use serde_json::json;
use sluicegate_agents::scripted::Did;
use sluicegate_agents::{Ask, Environment, PromptBy, WorkerState};

use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

#[tokio::test(start_paused = true)]
async fn a_reply_has_all_fields() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    let first = stage.enter(ask("web:1", "work:300")).await;
    let second = stage.enter(ask("web:2", "work:200")).await;
    assert_eq!(stage.stage_of(&first).await, "running");
    assert_eq!(stage.stage_of(&second).await, "queued");
    let reply = stage.outcome(&second).await.unwrap();
    assert_eq!((reply.queue_wait_ms, reply.execution_ms), (300, 200));
    assert_eq!((reply.text.as_str(), reply.worker_id.as_str()), ("work:200", "worker-2"));
    assert_eq!(reply.reply["result"], "work:200");
    assert_eq!(stage.stage_of(&second).await, "completed");
    stage.end().await;
}

/// First `--session-id`, then `--resume`, in both modes.
#[tokio::test(start_paused = true)]
async fn a_session_is_begun_once_and_then_resumed() {
    let stage = Stage::new(one_shot(|_| {}));
    for _ in 0..2 {
        stage.reply(in_session("web:1", "s-1", "work:1")).await;
    }
    let expected = [["--session-id", "s-1"], ["--resume", "s-1"]];
    assert_eq!(stage.spawned(), expected);
    stage.end().await;
}

/// An agent that ended before anything was heard of it has begun nothing; one that was at work may have.
///
/// `docs/rules.md#agents-4`
#[tokio::test(start_paused = true)]
async fn a_session_whose_first_turn_failed() {
    for (prompt, then) in [
        ("crash", "--session-id"),
        ("segv", "--session-id"),
        ("quiet", "--session-id"),
        ("hang", "--resume"),
        ("say crash", "--resume"),
        ("say hang", "--resume"),
    ] {
        let stage = Stage::new(one_shot(|settings| settings.execution_timeout = millis(20_000)));
        stage.run(in_session("web:1", "s", prompt)).await.unwrap_err();
        stage.reply(in_session("web:1", "s", "work:1")).await;
        assert_eq!(stage.spawned()[1][0], then, "{prompt}");
        stage.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_prompt_is_an_argument_only_where_asked_for() {
    let stage = Stage::new(one_shot(|settings| {
        settings.prompt = PromptBy::Arg;
        settings.command = ["agent", "--prompt", "{prompt}"].map(str::to_owned).into();
    }));
    stage.reply(in_session("web:1", "s", "work:1 {session}")).await;
    assert_eq!(stage.spawned(), [["--prompt", "work:1 {session}", "--session-id", "s"]]);
    stage.end().await;
}

/// Nothing is inherited but what is named; and what is named shows nowhere.
#[tokio::test(start_paused = true)]
async fn the_environment_is_what_was_named() {
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let environment =
        Environment::new(pairs(&[("PATH", "/bin")]), pairs(&[("KEY", "top-secret-key")]));
    let stage = Stage::new(one_shot(|settings| settings.environment = environment));
    let error = stage.run(ask("web:1", "crash")).await.unwrap_err();
    assert_eq!(error.fields()["stderr"], "on the error stream: ***");
    let Did::Spawned { environment, .. } = &stage.log()[0].what else { panic!() };
    assert_eq!(environment, &["KEY", "PATH"]);
    stage.end().await;
}

/// Section 11: what can go wrong with an agent. The pool goes on after each.
#[tokio::test(start_paused = true)]
async fn whatever_an_agent_does_the_pool_goes_on() {
    let crash = |exit, signal| {
        json!({"workerId": "worker-1", "exitCode": exit, "signal": signal,
                                      "stderr": "on the error stream: top-secret-key"})
    };
    let cases = [
        ("crash", "worker_crash", crash(json!(1), json!(null))),
        ("segv", "worker_crash", crash(json!(null), json!("SIGSEGV"))),
        ("quiet", "bad_output", json!({"message": "it said nothing"})),
        ("noise", "bad_output", json!({"message": "it is no JSON: no JSON "})),
        ("flood", "output_limit", json!({"limit": 2 * 1024 * 1024})),
        (
            "ask",
            "agent_error",
            json!({"message": "It asks (can_use_tool), and nobody answers",
                                      "reply": null}),
        ),
    ];
    for (prompt, code, fields) in cases {
        let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
        let error = stage.run(in_session("web:1", "s", prompt)).await.unwrap_err();
        assert_eq!((error.code(), json!(error.fields())), (code, fields));
        assert_eq!(stage.reply(in_session("web:1", "s", "work:1")).await.text, "work:1");
        stage.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_says_that_it_failed() {
    let stage = Stage::new(persistent(|_| {}));
    let error = stage.run(ask("web:1", "error work:1")).await.unwrap_err();
    assert_eq!((error.code(), &error.fields()["message"]), ("agent_error", &json!("error work:1")));
    assert_eq!(error.fields()["reply"]["is_error"], true);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_does_not_exist() {
    for mode in [one_shot(|_| {}), persistent(|settings| settings.min_workers = 2)] {
        let stage =
            Stage::new(sluicegate_agents::Settings { command: vec!["missing".into()], ..mode });
        let error = stage.run(ask("web:1", "work:1")).await.unwrap_err();
        assert_eq!(error.code(), "worker_crash");
        assert_eq!(error.fields()["stderr"], "missing: not found");
        // Starting ahead does not try all the time.
        tokio::time::sleep(millis(60_000)).await;
        assert!(stage.events("worker.not_started").len() < 12);
        stage.end().await;
    }
}

/// A question that nobody answers would wait for ever.
#[tokio::test(start_paused = true)]
async fn an_agent_that_asks_is_denied() {
    let stage = Stage::new(persistent(|_| {}));
    assert_eq!(stage.reply(ask("web:1", "ask work:5")).await.text, "ask work:5");
    assert!(stage.log().iter().any(|entry| entry.what == Did::Denied));
    stage.end().await;
}

/// The reply comes with the result; the place is free when the process is gone.
#[tokio::test(start_paused = true)]
async fn a_result_ends_the_turn_whatever_the_process_does_after_it() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    let reply = stage.reply(in_session("web:1", "s", "work:100 stubborn stay")).await;
    assert_eq!((reply.execution_ms, stage.since()), (100, millis(100)));
    assert_eq!(stage.states(), [WorkerState::Draining]);
    stage.reply(in_session("web:1", "s", "work:1")).await;
    // Two seconds to end by itself, ten after it was asked to.
    assert_eq!(stage.since(), millis(100 + 12_000 + 1));
    crate::checks::sessions_never_overlap(&stage.log());
    stage.end().await;
}

/// Nothing more comes, so it is whole.
///
/// `docs/rules.md#agents-7`
#[tokio::test(start_paused = true)]
async fn a_result_whose_line_has_no_end_is_found_at_once() {
    for (settings, prompt) in [
        (one_shot(|_| {}), "unended"),
        (one_shot(|_| {}), "unended stay"),
        (persistent(|_| {}), "unended"),
    ] {
        let stage = Stage::new(settings);
        for _ in 0..2 {
            let began = stage.since();
            assert_eq!(stage.reply(in_session("web:1", "s", prompt)).await.text, prompt);
            assert!(stage.since() - began <= millis(250 + 2_001), "{:?}", stage.since());
        }
        stage.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_leaves_behind_dies() {
    let stage = Stage::new(one_shot(|_| {}));
    stage.reply(ask("web:1", "children work:1")).await;
    tokio::time::sleep(millis(10)).await;
    assert_eq!(stage.states(), []);
    crate::checks::nothing_is_left(&stage.log());
    stage.end().await;
}

/// Section 1, `WorkerState`: each is seen from outside.
#[tokio::test(start_paused = true)]
async fn every_state_of_a_worker_is_seen() {
    let stage = Stage::new(persistent(|_| {}));
    stage.scripted.set_spawn_delay(millis(100));
    let id = stage.enter(ask("web:1", "stubborn work:100")).await;
    for (after, state) in [
        (50, Some(WorkerState::Starting)),
        (100, Some(WorkerState::Busy)),
        (100, Some(WorkerState::Idle)),
    ] {
        tokio::time::sleep(millis(after)).await;
        assert_eq!(stage.states().first().copied(), state);
    }
    assert!(stage.outcome(&id).await.is_ok());
    let look = async {
        tokio::time::sleep(millis(1)).await;
        stage.states()
    };
    let (report, states) = tokio::join!(stage.agents.shutdown(None), look);
    assert_eq!((states, report.is_clean()), (vec![WorkerState::Draining], true));
    assert_eq!(stage.events("worker.stuck")[0]["stuckDurationMs"], 10_000);
    assert_eq!(stage.states(), []);
    crate::checks::nothing_is_left(&stage.log());
}

/// Never replayed once it said something; once, if it is idempotent and said nothing.
///
/// `docs/rules.md#agents-6`
#[tokio::test(start_paused = true)]
async fn what_may_have_acted_is_never_repeated() {
    for (prompt, idempotent, times) in [
        ("work:5 crash", false, 1),
        ("work:5 crash", true, 2),
        ("echo crash", true, 2),
        ("say crash", true, 1),
        ("quiet", true, 1),
        ("error", true, 1),
    ] {
        for settings in [one_shot(|_| {}), persistent(|_| {})] {
            let stage = Stage::new(settings);
            stage.run(Ask { idempotent, ..ask("web:1", prompt) }).await.unwrap_err();
            assert_eq!(stage.asked().len(), times, "{prompt}");
            stage.end().await;
        }
    }
}

/// Killed from outside: an operator's `DELETE /workers/{id}`.
#[tokio::test(start_paused = true)]
async fn a_worker_is_killed() {
    let stage = Stage::new(persistent(|_| {}));
    let id = stage.enter(in_session("web:1", "s", "stubborn hang")).await;
    tokio::time::sleep(millis(10)).await;
    assert!(!stage.agents.kill("worker-9").await);
    assert!(stage.agents.kill("worker-1").await);
    assert_eq!(stage.states(), []);
    let error = stage.outcome(&id).await.unwrap_err();
    assert_eq!((error.code(), &error.fields()["signal"]), ("worker_crash", &json!("SIGKILL")));
    assert_eq!(stage.events("worker.killed")[0]["signal"], "SIGKILL");
    stage.reply(in_session("web:1", "s", "work:1")).await;
    assert!(stage.agents.kill("worker-2").await);
    assert_eq!(stage.reply(in_session("web:1", "s", "work:1")).await.worker_id, "worker-3");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_killed_while_it_starts() {
    let stage = Stage::new(one_shot(|_| {}));
    stage.scripted.set_spawn_delay(millis(60_000));
    let id = stage.enter(ask("web:1", "work:1")).await;
    tokio::time::sleep(millis(10)).await;
    assert!(stage.agents.kill("worker-1").await);
    assert_eq!(stage.outcome(&id).await.unwrap_err().code(), "worker_crash");
    assert_eq!(stage.spawned().len(), 0);
    stage.end().await;
}

/// Who was killed here, by hand or for its memory, has not crashed: it would be killed again.
///
/// `docs/rules.md#agents-6`
#[tokio::test(start_paused = true)]
async fn what_was_killed_here_is_not_tried_again() {
    let stage = Stage::new(one_shot(|settings| settings.worker_memory_mb = Some(1_000)));
    let eats = Ask { idempotent: true, ..ask("web:1", "work:10 eat:2000 hang") };
    assert_eq!(stage.code(eats).await, "worker_crash");
    let hangs = Ask { idempotent: true, ..ask("web:1", "hang") };
    let id = stage.enter(hangs).await;
    tokio::time::sleep(millis(10)).await;
    assert!(stage.agents.kill("worker-2").await);
    assert_eq!(stage.outcome(&id).await.unwrap_err().code(), "worker_crash");
    assert_eq!(stage.asked(), ["work:10 eat:2000 hang", "hang"]);
    stage.end().await;
}

/// It was let in when the prompt was no argument.
#[tokio::test(start_paused = true)]
async fn a_message_does_not_become_an_option_by_a_reload() {
    let settings = |by| {
        one_shot(|settings| {
            settings.max_workers = 1;
            settings.prompt = by;
            let prompt = (by == PromptBy::Arg).then_some("{prompt}");
            let command = ["agent", "-x"].into_iter().chain(prompt);
            settings.command = command.map(str::to_owned).collect();
        })
    };
    let stage = Stage::new(settings(PromptBy::Stdin));
    stage.enter(ask("web:1", "work:1000")).await;
    let evil = stage.enter(ask("web:2", "--settings=/tmp/evil")).await;
    let large = stage.enter(ask("web:3", &"x".repeat(200_000))).await;
    stage.agents.change(settings(PromptBy::Arg).check().unwrap()).unwrap();
    assert_eq!(stage.outcome(&evil).await.unwrap_err().code(), "invalid_field");
    assert_eq!(stage.outcome(&large).await.unwrap_err().code(), "too_large");
    assert_eq!(stage.spawned().len(), 1);
    stage.end().await;
}

/// What is behind `--` is no option; one that is not before the prompt is somebody else's.
#[tokio::test(start_paused = true)]
async fn arguments_of_a_session_are_options() {
    for (command, expected) in [
        ("agent -p -- {prompt}", "-p --session-id s -- -x"),
        ("nice -- agent -- {prompt}", "-- agent --session-id s -- -x"),
        ("agent -P={prompt}", "-P=-x --session-id s"),
    ] {
        let stage = Stage::new(one_shot(|settings| {
            settings.prompt = PromptBy::Arg;
            settings.command = command.split(' ').map(str::to_owned).collect();
        }));
        let id = stage.enter(in_session("web:1", "s", "-x")).await;
        tokio::time::sleep(millis(10)).await;
        assert_eq!(stage.spawned()[0].join(" "), expected);
        stage.agents.cancel(&id);
        stage.end().await;
    }
}
