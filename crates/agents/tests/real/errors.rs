//! What agents do wrong: a clear error each, the pool goes on, and no process is left.

use std::time::Duration;

use sluicegate_agents::{RequestError, Settings};

use crate::stage::{Stage, ask, millis, one_shot, persistent};

/// An agent that goes wrong, and what its caller hears: the code, and words of the whole error.
struct Case {
    prompt: &'static str,
    code: &'static str,
    words: &'static [&'static str],
    in_modes: [bool; 2],
}

const BOTH: [bool; 2] = [true, true];
const ONE_SHOT: [bool; 2] = [true, false];

const fn case(prompt: &'static str, code: &'static str, words: &'static [&'static str]) -> Case {
    Case { prompt, code, words, in_modes: BOTH }
}

const CASES: [Case; 12] = [
    case("!crash 3", "worker_crash", &["\"exitCode\":3"]),
    case("!stderr alas !crash 3", "worker_crash", &["alas"]),
    case("!signal SEGV", "worker_crash", &["\"signal\":\"SIGSEGV\""]),
    case("!hang", "execution_timeout", &["\"timeoutMs\":1500"]),
    case("!ignore-term !hang", "execution_timeout", &["\"timeoutMs\":1500"]),
    case("!fork 3 !daemonize !hang", "execution_timeout", &["\"timeoutMs\":1500"]),
    case("!ignore-term !fork 2 !daemonize !crash 4", "worker_crash", &["\"exitCode\":4"]),
    case("!flood", "output_limit", &["2097152"]),
    case("!leak 200MB !hang", "worker_crash", &["SIGKILL", "may use 60 MiB"]),
    case("!error oh", "agent_error", &["oh"]),
    Case { in_modes: ONE_SHOT, ..case("!no-json", "bad_output", &["JSON"]) },
    Case { in_modes: ONE_SHOT, ..case("!partial", "bad_output", &["JSON"]) },
];

fn limited(settings: &mut Settings) {
    settings.execution_timeout = millis(1_500);
    settings.graceful_shutdown = millis(100);
    settings.worker_memory_mb = Some(60);
    settings.max_workers = CASES.len() as u32;
}

fn all_of(error: &RequestError) -> String {
    format!("{error} {}", serde_json::Value::Object(error.fields()))
}

async fn check(case: &Case, stage: &Stage) {
    let error = stage.error(ask("web:1", case.prompt)).await;
    let said = all_of(&error);
    assert_eq!(error.code(), case.code, "{}: {said}", case.prompt);
    for words in case.words {
        assert!(said.contains(words), "{}: no {words} in {said}", case.prompt);
    }
}

/// All of them side by side in one pool, which then answers as before.
async fn check_all(settings: Settings, mode: usize) {
    let stage = Stage::new(settings);
    let cases = CASES.iter().filter(|case| case.in_modes[mode]);
    futures_util::future::join_all(cases.map(|case| check(case, &stage))).await;
    stage.settled().await;
    // What answered with an error goes on, where workers stay.
    assert_eq!(stage.running().len(), mode, "{:?}", stage.agents.workers());
    assert_eq!(stage.reply(ask("web:2", "still here")).await.text, "still here");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_told_and_leaves_nothing() {
    check_all(one_shot(limited), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_told_and_leaves_nothing_where_workers_stay() {
    check_all(persistent(limited), 1).await;
}

/// Children that outlive an agent which answered are ended too.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_leaves_behind_ends() {
    for prompt in ["!fork 3 hello", "!daemonize hello", "!ignore-term !fork 2 hello"] {
        let stage = Stage::new(one_shot(|settings| settings.graceful_shutdown = millis(200)));
        assert_eq!(stage.reply(ask("web:1", prompt)).await.text, "hello");
        stage.emptied(prompt).await;
        stage.end().await;
    }
}

/// An agent that has answered and does not end does not keep its user waiting.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_an_answer_though_its_agent_stays() {
    let stage = Stage::new(one_shot(|settings| settings.graceful_shutdown = millis(200)));
    let began = tokio::time::Instant::now();
    assert_eq!(stage.reply(ask("web:1", "!late-exit hello")).await.text, "hello");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    stage.emptied("after the answer").await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_named() {
    for settings in [one_shot(|_| {}), persistent(|_| {})] {
        let settings = Settings { command: vec!["no-such-agent".to_owned()], ..settings };
        let stage = Stage::new(settings);
        for _ in 0..3 {
            let error = stage.error(ask("web:1", "hello")).await;
            assert_eq!(error.code(), "worker_crash");
            let said = all_of(&error);
            assert!(said.contains("`no-such-agent` cannot be started"), "{said}");
        }
        stage.end().await;
    }
}

/// What is kept of the error stream ends within a secret.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_secret_does_not_show() {
    let script = r#"head -c 65516 /dev/zero | tr '\0' x >&2; printf %s "$KEY" >&2; exit 1"#;
    let key = [("KEY", "sk-ant-0123456789-very-secret")];
    let stage = Stage::of_script(one_shot(|_| {}), script, &key);
    let error = stage.error(ask("web:1", "x")).await;
    let RequestError::WorkerCrash { stderr, .. } = error else { panic!("{error:?}") };
    assert!(stderr.ends_with("xxx***"), "{}", &stderr[stderr.len() - 30..]);
    stage.end().await;
}

/// An agent that ends its output and stays says nothing either.
#[tokio::test(flavor = "multi_thread")]
async fn silence_counts_though_the_output_has_ended() {
    fn quick(settings: &mut Settings) {
        settings.max_silence = Some(millis(300));
        settings.graceful_shutdown = millis(100);
    }
    for settings in [one_shot(quick), persistent(quick)] {
        let stage = Stage::of_script(settings, "echo hi; exec >&-; exec sleep 100", &[]);
        let error = stage.error(ask("web:1", "x")).await;
        assert!(error.to_string().contains("max_silence"), "{error}");
        stage.end().await;
    }
}

/// Its output goes elsewhere before it reads: it is asked all the same, and hears that there is no more.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_output_has_ended_is_asked_all_the_same() {
    let cases = [
        ("exec >&-; cat > /dev/null; exit 3", "worker_crash"),
        ("exec > /dev/null; cat; exit 0", "bad_output"),
    ];
    for (script, code) in cases {
        // The longer one is more than a pipe takes at once.
        for size in [100, 1 << 20] {
            let stage = Stage::of_script(one_shot(|_| {}), script, &[]);
            let error = stage.error(ask("web:1", &"x".repeat(size))).await;
            assert_eq!(error.code(), code, "{script}: {size}");
            stage.end().await;
        }
    }
}

/// An answer is one though its line has no end.
///
/// `docs/rules.md#agents-7`
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_line_has_no_end_is_found_when_its_time_is_up() {
    let script = r#"printf '{"type":"result","result":"hello"}'; exec sleep 100"#;
    let quick = |settings: &mut Settings| {
        settings.max_silence = Some(millis(300));
        settings.graceful_shutdown = millis(100);
    };
    for settings in [one_shot(quick), persistent(quick)] {
        let stage = Stage::of_script(settings, script, &[]);
        assert_eq!(stage.reply(ask("web:1", "x")).await.text, "hello");
        stage.end().await;
    }
}
