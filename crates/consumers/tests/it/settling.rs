//! What a source hears: once for each message, in lots, and not too late without anybody noticing.

use std::time::Duration;

use sluicegate_consumers::{Consumer, Failure, Handler, MemorySource};
use tokio::time::sleep;

use crate::stage::{Stage, letter};

fn quick() -> Handler {
    Handler::bytes(|_body, _about, _cx| async { Ok::<_, Failure>(()) })
}

fn queue_of(count: usize) -> MemorySource {
    let source = MemorySource::new();
    (0..count).for_each(|number| source.push(letter(&number.to_string())));
    source
}

#[tokio::test(start_paused = true)]
async fn every_message_is_settled_once() {
    let consumer = Consumer::of("q").workers(7).prefetch(50).handler(quick());
    let stage = Stage::set(queue_of(5000), consumer).await;
    stage.emptied().await;
    let stats = stage.stats();
    assert_eq!((stats.received, stats.done, stats.stale, stats.in_hand), (5000, 5000, 0, 0));
    assert_eq!(stage.source.settled(), 5000);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_wait_is_settled_together() {
    let consumer = Consumer::of("q").workers(4).prefetch(500).handler(quick());
    let stage = Stage::set(queue_of(5000), consumer).await;
    stage.emptied().await;
    let calls = stage.source.settle_calls();
    assert!(calls <= 5000 / 50, "{calls} calls for 5000 messages");
}

#[tokio::test(start_paused = true)]
async fn what_is_over_does_not_wait_for_a_slow_one() {
    let handler = Handler::bytes(|body: bytes::Bytes, _about, _cx| async move {
        if &body[..] == b"1" {
            sleep(Duration::from_secs(60)).await;
        }
        Ok::<_, Failure>(())
    });
    let stage = Stage::set(queue_of(2), Consumer::of("q").workers(1).handler(handler)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.stats().done, 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_prefetch_is_here() {
    let handler = Handler::bytes(|_body, _about, _cx| async {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, Failure>(())
    });
    let consumer = Consumer::of("q").workers(2).prefetch(5).handler(handler);
    let stage = Stage::set(queue_of(20), consumer).await;
    for _ in 0..9 {
        sleep(Duration::from_millis(1050)).await;
        let stats = stage.stats();
        assert!(stats.in_hand <= 5 && stats.running == 2, "{stats:?}");
    }
    stage.emptied().await;
    assert_eq!(stage.began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_fails_is_made_again() {
    let source = queue_of(3);
    source.fail_settlements(4);
    let stage = Stage::set(source, Consumer::of("q").handler(quick())).await;
    stage.emptied().await;
    assert_eq!(stage.facts.lines()[1..], vec!["failed settle told to fail"; 4]);
    assert_eq!((stage.stats().done, stage.source.settled()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn settlements_of_a_lost_connection_are_dropped_and_the_messages_come_again() {
    let handler = Handler::bytes(|_body, _about, _cx| async {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, Failure>(())
    });
    let consumer = Consumer::of("q").workers(4).handler(handler);
    let stage = Stage::set(queue_of(4), consumer).await;
    stage.source.until(|source| source.len() == 4).await;
    sleep(Duration::from_millis(500)).await;
    stage.source.hold_deliveries(true);
    stage.source.disconnect();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.facts.lines()[1..], ["stale 4"]);
    assert_eq!((stage.source.settled(), stage.stats().in_hand), (0, 0));
    stage.source.hold_deliveries(false);
    stage.emptied().await;
    let stats = stage.stats();
    assert_eq!((stats.done, stats.stale, stats.received), (4, 4, 8));
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_again_while_it_is_settled_is_settled_anew() {
    let source = queue_of(1);
    source.fail_settlements(1);
    let stage = Stage::set(source, Consumer::of("q").handler(quick())).await;
    stage.source.until(|source| source.settle_calls() == 1).await;
    stage.source.disconnect();
    stage.emptied().await;
    let stats = stage.stats();
    assert_eq!((stats.received, stats.redelivered, stats.done, stats.stale), (2, 1, 1, 0));
}
