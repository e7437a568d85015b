//! What the paper left open: a session is one conversation, of one owner, one turn at a time.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_agents::{Ask, MemoryJournal, SessionId, Tenant};

use crate::checks;
use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

/// Two requests of one session never overlap, in both modes; another session's run beside them.
///
/// `docs/rules.md#agents-4`
#[tokio::test(start_paused = true)]
async fn one_turn_of_a_session_at_a_time() {
    for settings in [one_shot(|_| {}), persistent(|_| {})] {
        let stage = Stage::new(settings);
        for prompt in ["work:100 1", "work:100 2", "work:100 3"] {
            stage.enter(in_session("web:1", "s", prompt)).await;
        }
        let waits = stage.enter(in_session("web:1", "s", "work:100 4")).await;
        stage.enter(in_session("web:1", "t", "work:100")).await;
        tokio::time::sleep(millis(50)).await;
        assert_eq!(stage.states().len(), 2);
        assert_eq!(stage.agents.why(&waits).unwrap().reason, "session_busy");
        tokio::time::sleep(millis(500)).await;
        checks::sessions_never_overlap(&stage.log());
        let heard = checks::prompts_by_session(&stage.log());
        assert_eq!(heard["s"], ["work:100 1", "work:100 2", "work:100 3", "work:100 4"]);
        stage.end().await;
    }
}

/// 100 sessions interleaved stay in order.
#[tokio::test(start_paused = true)]
async fn a_hundred_sessions_stay_in_order() {
    let stage = Stage::new(persistent(|settings| settings.max_workers = 8));
    let mut expected: HashMap<String, Vec<String>> = HashMap::new();
    for turn in 0..5 {
        for session in 0..100 {
            let (tenant, name) = (format!("web:{}", session % 9), format!("s{session}"));
            let prompt = format!("work:{} {session}/{turn}", 1 + (session * 7 + turn * 3) % 40);
            stage.enter(in_session(&tenant, &name, &prompt)).await;
            expected.entry(name).or_default().push(prompt);
        }
    }
    tokio::time::sleep(millis(60_000)).await;
    assert_eq!(checks::prompts_by_session(&stage.log()), expected);
    checks::sessions_never_overlap(&stage.log());
    checks::never_more_programs_than(&stage.log(), 8);
    stage.end().await;
}

/// `docs/rules.md#agents-3`
#[tokio::test(start_paused = true)]
async fn a_session_belongs_to_its_tenant_or_its_chat() {
    let of = |user: &str, chat: Option<&str>| Ask {
        session: Some(SessionId::parse("s").unwrap()),
        ..Ask::new(Tenant::new("max", user, chat).unwrap(), "work:1")
    };
    let cases = [
        (of("1", None), of("1", None), true),
        (of("1", None), of("2", None), false),
        (of("1", Some("c")), of("2", Some("c")), true),
        (of("1", Some("c")), of("1", Some("d")), false),
        (of("1", Some("c")), of("1", None), false),
    ];
    for (first, second, allowed) in cases {
        // Also after a restart.
        for restart in [false, true] {
            let stage = Stage::new(one_shot(|_| {}));
            stage.run(first.clone()).await.unwrap();
            let journal = Arc::<MemoryJournal>::clone(&stage.journal);
            let stage = if restart {
                stage.end().await;
                Stage::with_journal(one_shot(|_| {}), journal)
            } else {
                stage
            };
            match stage.submit(second.clone()).await {
                Ok(_) => assert!(allowed),
                Err(error) => assert_eq!((allowed, error.code()), (false, "session_forbidden")),
            }
            stage.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn known_sessions_are_resumed_after_a_restart() {
    let stage = Stage::new(one_shot(|_| {}));
    stage.reply(in_session("web:1", "s", "work:1")).await;
    let journal = Arc::<MemoryJournal>::clone(&stage.journal);
    stage.end().await;
    let stage = Stage::with_journal(one_shot(|_| {}), journal);
    stage.reply(in_session("web:1", "s", "work:1")).await;
    assert_eq!(stage.spawned(), [["--resume", "s"]]);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_session_there_is_a_new_one_each_time() {
    let stage = Stage::new(one_shot(|_| {}));
    let one = stage.submit(ask("web:1", "work:1")).await.unwrap().session_id;
    let other = stage.submit(ask("web:1", "work:1")).await.unwrap().session_id;
    assert_ne!(one, other);
    tokio::time::sleep(millis(10)).await;
    stage.end().await;
}

/// An agent may know a session of which nothing was heard, and not know one that it was heard of: it is tried the other
/// way then.
///
/// `docs/rules.md#agents-4`
#[tokio::test(start_paused = true)]
async fn a_session_whose_first_turn_was_interrupted_recovers() {
    let stage = Stage::new(one_shot(|_| {}));
    let first = stage.enter(in_session("web:1", "s", "hang")).await;
    tokio::time::sleep(millis(10)).await;
    assert!(stage.agents.cancel(&first));
    assert_eq!(stage.outcome(&first).await.unwrap_err().code(), "cancelled");
    // "No conversation found with session ID: s."
    assert_eq!(stage.code(in_session("web:1", "s", "crash")).await, "worker_crash");
    stage.reply(in_session("web:1", "s", "work:1")).await;
    let forms: Vec<String> = stage.spawned().into_iter().map(|args| args[0].clone()).collect();
    assert_eq!(forms, ["--session-id", "--resume", "--session-id"]);
    stage.end().await;
}

/// An agent that has answered knows its session: a failure of what it asks is no reason to begin anew. One that fails
/// twice may have forgotten it.
///
/// `docs/rules.md#agents-4`
#[tokio::test(start_paused = true)]
async fn one_failure_does_not_begin_a_session_anew() {
    let stage = Stage::new(one_shot(|_| {}));
    for prompt in ["work:1", "crash", "work:1", "crash", "crash", "work:1", "work:1"] {
        drop(stage.run(in_session("web:1", "s", prompt)).await);
    }
    let forms: Vec<String> = stage.spawned().into_iter().map(|args| args[0].clone()).collect();
    let (first, resumed) = ("--session-id", "--resume");
    assert_eq!(forms, [first, resumed, resumed, resumed, resumed, first, resumed]);
    stage.end().await;
}

/// A process that has served the session before knows it: when it crashes nothing is learnt of that.
#[tokio::test(start_paused = true)]
async fn a_crash_of_a_worker_that_knows_the_session_changes_nothing() {
    let stage = Stage::new(persistent(|_| {}));
    stage.reply(in_session("web:1", "s", "work:1")).await;
    assert_eq!(stage.code(in_session("web:1", "s", "crash")).await, "worker_crash");
    stage.reply(in_session("web:1", "s", "work:1")).await;
    assert_eq!(stage.spawned()[1], ["--stay", "--resume", "s"]);
    stage.end().await;
}

/// The second turn of a session waits until it is known what came of the first, on however many threads.
///
/// `docs/rules.md#agents-4`
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_session_has_one_first_turn() {
    let stage = Stage::new(one_shot(|settings| {
        settings.upstream_rate_limit_rps = 10_000;
        settings.max_workers = 50;
    }));
    let mut ids = Vec::new();
    for session in 0..400 {
        for _ in 0..2 {
            ids.push(stage.enter(in_session("web:1", &format!("s{session}"), "say")).await);
        }
    }
    for id in ids {
        stage.outcome(&id).await.unwrap();
    }
    let first = stage.spawned().into_iter().filter(|args| args[0] == "--session-id").count();
    assert_eq!(first, 400);
    stage.end().await;
}

/// `docs/rules.md#agents-4`
#[tokio::test(start_paused = true)]
async fn a_request_that_had_no_turn_says_nothing_of_its_session() {
    let stage = Stage::new(one_shot(|_| {}));
    let runs = stage.enter(in_session("web:1", "s", "say work:60000")).await;
    let waits = stage.enter(in_session("web:1", "s", "work:10")).await;
    tokio::time::sleep(millis(100)).await;
    assert!(stage.agents.cancel(&waits));
    assert_eq!(stage.outcome(&waits).await.unwrap_err().code(), "cancelled");
    assert_eq!(stage.stage_of(&runs).await, "running");
    // As if this pool had been killed here.
    let again = Stage::with_journal(one_shot(|_| {}), Arc::clone(&stage.journal));
    again.reply(in_session("web:1", "s", "work:1")).await;
    assert_eq!(again.spawned(), [["--resume", "s"]]);
}
