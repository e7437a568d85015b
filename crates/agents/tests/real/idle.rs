//! Workers that stay, between two turns.

use std::time::Duration;

use sluicegate_agents::Ask;
use tokio::time::{sleep, timeout};

use crate::stage::{Stage, in_session, millis, persistent};

/// Answers, and then never stops saying something.
const FLOODS: &str = r#"while read -r line; do
    echo '{"type":"result","result":"ok"}'; (sleep 0.1; exec yes '{"type":"assistant"}') &
done"#;

/// A worker that floods while it is idle is replaced: whoever comes next is heard.
async fn is_heard(tenant: &str, session: &str) {
    let settings = persistent(|settings| {
        settings.max_workers = 1;
        settings.graceful_shutdown = millis(500);
    });
    let stage = Stage::of_script(settings, FLOODS, &[]);
    assert_eq!(stage.reply(in_session("web:1", "s", "one")).await.text, "ok");
    sleep(millis(200)).await;
    let next = Ask { timeout: Some(millis(8_000)), ..in_session(tenant, session, "two") };
    let outcome = timeout(Duration::from_secs(10), stage.run(next)).await;
    assert_eq!(outcome.expect("it is stuck").expect("a reply").text, "ok");
    stage.end().await;
}

/// `docs/rules.md#agents-7`
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_that_floods_hears_its_next_turn() {
    is_heard("web:1", "s").await;
}

/// `docs/rules.md#agents-7`
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_that_floods_gives_way() {
    is_heard("web:2", "t").await;
}
