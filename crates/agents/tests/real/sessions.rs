//! Sessions: one turn at a time and in order, whatever runs beside them.

use std::collections::HashMap;

use futures_util::future::join_all;

use crate::seen::{check_sessions, most_at_once};
use crate::stage::{Stage, in_session, millis, one_shot, persistent};

const SESSIONS: usize = 100;
const TURNS: usize = 4;

/// Both requests of a session wait together, and others run beside them.
async fn check_two(settings: sluicegate_agents::Settings) {
    let stage = Stage::new(settings);
    let mut asked: HashMap<String, Vec<String>> = HashMap::new();
    let mut requests = Vec::new();
    for (session, prompt) in
        [("s", "!sleep 200ms 1"), ("t", "!sleep 300ms 1"), ("s", "2"), ("s", "3")]
    {
        requests.push(stage.enter(in_session("web:1", session, prompt)).await);
        asked.entry(session.to_owned()).or_default().push(prompt.to_owned());
    }
    for request in &requests {
        stage.outcome(request).await.expect("a reply");
    }
    let turns = stage.turns();
    check_sessions(&turns, &asked);
    assert_eq!(most_at_once(&turns), 2, "{turns:?}");
    stage.end().await;
}

/// Sessions of several users, one request of each in turn.
async fn check_many(settings: sluicegate_agents::Settings) {
    let stage = Stage::new(settings);
    let mut asked: HashMap<String, Vec<String>> = HashMap::new();
    let mut requests = Vec::new();
    for turn in 0..TURNS {
        for number in 0..SESSIONS {
            let (session, prompt) = (format!("s-{number}"), format!("turn {turn}"));
            let user = format!("web:{}", number % 10);
            requests.push(stage.enter(in_session(&user, &session, &prompt)).await);
            asked.entry(session).or_default().push(prompt);
        }
    }
    let replies = join_all(requests.iter().map(|request| stage.outcome(request))).await;
    for (place, reply) in replies.into_iter().enumerate() {
        let reply = reply.expect("a reply");
        // The agents count the turns of each session.
        assert_eq!(reply.reply["num_turns"], place / SESSIONS + 1);
        assert_eq!(reply.reply["session_id"], format!("s-{}", place % SESSIONS));
    }
    let turns = stage.turns();
    check_sessions(&turns, &asked);
    assert!((2..=8).contains(&most_at_once(&turns)), "{} at once", most_at_once(&turns));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_of_a_session_never_overlap() {
    check_two(one_shot(|_| {})).await;
    check_two(persistent(|_| {})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sessions_stay_in_order() {
    check_many(one_shot(|settings| settings.max_workers = 8)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_sessions_stay_in_order_where_workers_stay() {
    check_many(persistent(|settings| settings.max_workers = 8)).await;
}

/// What an agent left behind is gone before the session goes on: it could use the session's files.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_turn_starts_when_nothing_of_the_last_is_left() {
    let stage = Stage::new(one_shot(|settings| settings.graceful_shutdown = millis(300)));
    let first = stage.enter(in_session("web:1", "s", "!ignore-term !fork 3 !daemonize 1")).await;
    let second = stage.enter(in_session("web:1", "s", "!sleep 5s 2")).await;
    stage.outcome(&first).await.expect("a reply");
    stage.worker_in(&second, sluicegate_agents::WorkerState::Busy).await;
    let running = stage.running();
    assert_eq!(running.len(), 1, "only that of the second turn: {running:?}");
    stage.agents.cancel(&second);
    stage.end().await;
}

/// What is left of a prompt when the answer comes would be read before the next one.
///
/// `docs/rules.md#agents-7`
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_answers_before_it_was_told_all_is_replaced() {
    // The first one answers to the beginning of a prompt of which it never reads the rest.
    let script = r#"
        if [ "$2" = --resume ]; then
            while read -r line; do echo '{"type":"result","result":"resumed"}'; done
        else
            head -c 1000 >/dev/null; echo '{"type":"result","result":"too long"}'; exec sleep 60
        fi"#;
    let stage = Stage::of_script(persistent(|_| {}), script, &[]);
    let large = stage.reply(in_session("web:1", "s", &"x".repeat(500_000))).await;
    assert_eq!(large.text, "too long");
    assert_eq!(stage.reply(in_session("web:1", "s", "hello")).await.text, "resumed");
    stage.end().await;
}
