//! What is here for long: its window is kept open, and the broker's patience is watched.

use std::time::Duration;

use sluicegate_consumers::{Consumer, Failure, Handler, MemorySource};
use tokio::time::sleep;

use crate::stage::{Stage, letter};

fn takes(time: Duration) -> Handler {
    Handler::bytes(move |_body, _about, _cx| async move {
        sleep(time).await;
        Ok::<_, Failure>(())
    })
}

#[tokio::test(start_paused = true)]
async fn a_window_is_kept_open_for_what_runs_and_for_what_waits() {
    let source = MemorySource::new().with_visibility(Duration::from_secs(30));
    ["1", "2"].into_iter().for_each(|body| source.push(letter(body)));
    let consumer = Consumer::of("q").workers(1).handler(takes(Duration::from_secs(300)));
    let stage = Stage::set(source, consumer).await;
    stage.emptied().await;
    let stats = stage.stats();
    assert_eq!((stats.received, stats.done, stats.stale), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_the_broker_would_not_wait_for_is_warned_of_before() {
    let source = MemorySource::new();
    source.push(letter("1"));
    let consumer = Consumer::of("q").handler(takes(Duration::from_secs(3600)));
    let stage = Stage::set(source, consumer).await;
    sleep(Duration::from_secs(24 * 60 - 5)).await;
    assert_eq!(stage.facts.lines()[1..], [""; 0]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(stage.facts.lines()[1..], ["1 overdue 1440s"]);
    sleep(Duration::from_secs(1200)).await;
    assert_eq!(stage.facts.lines().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_brokers_patience_is_the_consumers_to_say() {
    for (timeout, warnings) in [(Duration::from_secs(10), 1), (Duration::ZERO, 0)] {
        let source = MemorySource::new();
        source.push(letter("1"));
        let builder = Consumer::of("q").consumer_timeout(timeout);
        let stage = Stage::set(source, builder.handler(takes(Duration::from_secs(60)))).await;
        sleep(Duration::from_secs(50)).await;
        assert_eq!(stage.facts.lines().len(), 1 + warnings, "{timeout:?}");
    }
}
