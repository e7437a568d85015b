//! Order per key: at full concurrency, past failures, and when the connection is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_consumers::{
    Consumer, ConsumerBuilder, Envelope, Failure, Handler, MemorySource, OrderBy, Retry,
};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::stage::{Book, Stage, keyed, letter, text};

fn by_routing_key() -> ConsumerBuilder {
    Consumer::of("q").workers(8).order_by(OrderBy::routing_key())
}

/// Writes each message down when it is over, after a time that depends on it.
fn takes_its_time(book: &Book) -> Handler {
    let book = book.clone();
    Handler::bytes(move |body, about, _cx| {
        let book = book.clone();
        async move {
            let number: u64 = text(&body).parse()?;
            sleep(Duration::from_millis(number * 7 % 13)).await;
            book.write(format!("{} {number}", about.routing_key().unwrap_or("-")));
            Ok::<_, Failure>(())
        }
    })
}

fn of_key(lines: &[String], key: &str) -> Vec<String> {
    let begin = format!("{key} ");
    lines.iter().filter_map(|line| line.strip_prefix(&begin)).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn keys_run_beside_each_other_and_each_in_order() {
    let (source, book) = (MemorySource::new(), Book::default());
    for number in 0..100 {
        source.push(keyed(["a", "b", "c", "d"][number % 4], &number.to_string()));
    }
    let stage = Stage::set(source, by_routing_key().handler(takes_its_time(&book))).await;
    stage.emptied().await;
    for (start, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let expected: Vec<String> = (start..100).step_by(4).map(|n| n.to_string()).collect();
        assert_eq!(of_key(&book.lines(), key), expected, "{key}");
    }
    let alone: u64 = (0..100).map(|number| number * 7 % 13).sum();
    let took = stage.began.elapsed();
    assert!(took < Duration::from_millis(alone / 3), "{took:?} of {alone} ms");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_a_header_a_group_a_function_or_everything() {
    let mut envelope = keyed("r.k", "");
    envelope.headers = vec![("customer".into(), "7".into())];
    envelope.group = Some("g".into());
    let function = OrderBy::function(|envelope| envelope.routing_key.clone());
    let cases = [
        (OrderBy::header("customer"), true),
        (OrderBy::header("missing"), false),
        (OrderBy::routing_key(), true),
        (OrderBy::group(), true),
        (OrderBy::function(|_| None), false),
        (function, true),
        (OrderBy::everything(), true),
    ];
    for (order, is_ordered) in cases {
        let name = format!("{order:?}");
        let source = MemorySource::new();
        (0..4).for_each(|_| source.push(envelope.clone()));
        let handler = Handler::bytes(|_body, _about, _cx| async {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Failure>(())
        });
        let consumer = Consumer::of("q").workers(4).order_by(order).handler(handler);
        let stage = Stage::set(source, consumer).await;
        stage.emptied().await;
        assert_eq!(stage.began.elapsed().as_secs(), if is_ordered { 4 } else { 1 }, "{name}");
    }
}

/// Fails the message `poor` as often as said, and writes down what is handled.
fn fails_one(poor: &'static str, times: u32, book: &Book) -> Handler {
    let (book, left) = (book.clone(), Arc::new(Mutex::new(times)));
    Handler::bytes(move |body, about, _cx| {
        let mut left = left.lock();
        let fails = text(&body) == poor && *left > 0;
        *left -= u32::from(fails);
        book.write(format!(
            "{} #{}{}",
            text(&body),
            about.attempt(),
            if fails { " no" } else { "" }
        ));
        async move { if fails { Err(Failure::retry("no")) } else { Ok(()) } }
    })
}

#[tokio::test(start_paused = true)]
async fn a_failed_head_is_retried_in_front_of_those_behind_it() {
    let (source, book) = (MemorySource::new(), Book::default());
    for (key, body) in [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")] {
        source.push(keyed(key, body));
    }
    let stage = Stage::set(source, by_routing_key().handler(fails_one("1", 2, &book))).await;
    stage.emptied().await;
    assert_eq!(book.lines(), ["1 #1 no", "3 #1", "1 #2 no", "1 #3", "2 #1", "4 #1"]);
    assert_eq!((stage.began.elapsed().as_secs(), stage.stats().retried), (6, 2));
}

#[tokio::test(start_paused = true)]
async fn one_worker_keeps_the_order_of_the_queue_past_a_failure() {
    let (source, book) = (MemorySource::new(), Book::default());
    ["1", "2", "3"].into_iter().for_each(|body| source.push(letter(body)));
    let retry = Retry::after([Duration::from_secs(1)]);
    let builder = Consumer::of("q").workers(1).retry(retry);
    let stage = Stage::set(source, builder.handler(fails_one("2", 9, &book))).await;
    stage.emptied().await;
    assert_eq!(book.lines(), ["1 #1", "2 #1 no", "2 #2 no", "3 #1"]);
    assert_eq!(stage.source.buried().len(), 1); // the head goes, those behind it go on
}

/// Writes down what begins and what ends, and waits in between until it is let go.
fn waits(book: &Book, go: &Arc<Notify>) -> Handler {
    let (book, go) = (book.clone(), Arc::clone(go));
    Handler::bytes(move |body, _about, _cx| {
        let (book, go) = (book.clone(), Arc::clone(&go));
        async move {
            book.write(format!("{}+", text(&body)));
            go.notified().await;
            book.write(format!("{}-", text(&body)));
            Ok::<_, Failure>(())
        }
    })
}

async fn until_written(book: &Book, count: usize) {
    let patience = Duration::from_secs(3600);
    let written = async {
        while book.lines().len() < count {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(patience, written).await.is_ok();
    assert!(in_time, "not {count}: {:?}", book.lines());
}

#[tokio::test(start_paused = true)]
async fn what_runs_when_the_connection_is_lost_goes_on_and_is_not_run_again() {
    for builder in [Consumer::of("q").workers(8), by_routing_key()] {
        let (source, book, go) = (MemorySource::new(), Book::default(), Arc::default());
        ["1", "2", "3"].into_iter().for_each(|body| source.push(keyed(body, body)));
        let stage = Stage::set(source, builder.handler(waits(&book, &go))).await;
        until_written(&book, 3).await;
        stage.source.disconnect();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(book.lines(), ["1+", "2+", "3+"]);
        go.notify_waiters();
        stage.emptied().await;
        assert_eq!(book.lines().len(), 6, "{:?}", book.lines());
        let stats = stage.stats();
        assert_eq!((stats.received, stats.redelivered, stats.done, stats.stale), (6, 3, 3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_one_that_comes_anew_is_run_again_behind_it() {
    let (source, book, go) = (MemorySource::new(), Book::default(), Arc::default());
    ["1", "2", "3"].into_iter().for_each(|body| source.push(keyed("k", body)));
    let stage = Stage::set(source, by_routing_key().handler(waits(&book, &go))).await;
    until_written(&book, 1).await;
    // The first one is done, and the connection is lost before its source hears of it.
    stage.source.fail_settlements(1);
    go.notify_waiters();
    until_written(&book, 3).await;
    stage.source.hold_deliveries(true);
    stage.source.disconnect();
    sleep(Duration::from_secs(2)).await; // now its settlement has come too late
    stage.source.hold_deliveries(false);
    sleep(Duration::from_secs(2)).await;
    while !stage.source.is_empty() {
        go.notify_waiters();
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(book.lines(), ["1+", "1-", "2+", "2-", "1+", "1-", "2+", "2-", "3+", "3-"]);
    stage.settled().await;
    let stats = stage.stats();
    assert_eq!((stats.done, stats.stale), (3, 2), "{stats:?}");
}

/// A body that knows whether somebody still has it.
struct Body {
    alive: Arc<[u8]>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.alive
    }
}

/// Loses the connection when the first of a key is done and its source has not heard of it.
async fn lose_the_first(stage: &Stage) {
    stage.source.hold_deliveries(true);
    stage.source.disconnect();
    sleep(Duration::from_secs(2)).await; // now its settlement has come too late
    stage.source.hold_deliveries(false);
}

/// docs/rules.md#settle-3. What came again in its place stands for it.
#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_what_came_again() {
    let (source, book, go, alive) =
        (MemorySource::new(), Book::default(), Arc::default(), Arc::<[u8]>::from(&b"body"[..]));
    for _ in 0..3 {
        let body = bytes::Bytes::from_owner(Body { alive: Arc::clone(&alive) });
        source.push(Envelope { body, ..keyed("k", "") });
    }
    let stage = Stage::set(source, by_routing_key().handler(waits(&book, &go))).await;
    until_written(&book, 1).await;
    stage.source.fail_settlements(1);
    go.notify_waiters();
    until_written(&book, 3).await;
    lose_the_first(&stage).await;
    while !stage.source.is_empty() {
        go.notify_waiters();
        sleep(Duration::from_millis(10)).await;
    }
    stage.settled().await;
    assert_eq!(book.lines().len(), 10, "{:?}", book.lines());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Arc::strong_count(&alive) - 1, 0, "messages that are kept, of 3 that are done");
}

/// Fails the second message once, after so many seconds, and wishes to see it again in an hour.
fn fails_the_second(after: u64, book: &Book) -> Handler {
    let (book, failed) = (book.clone(), Arc::new(AtomicBool::new(false)));
    Handler::bytes(move |body, _about, _cx| {
        let (book, failed) = (book.clone(), Arc::clone(&failed));
        async move {
            book.write(text(&body));
            if &body[..] == b"2" && !failed.swap(true, Memory::SeqCst) {
                sleep(Duration::from_secs(after)).await;
                let why = std::io::Error::other("no");
                return Err(Failure::retry_after(Duration::from_secs(3600), why));
            }
            Ok::<_, Failure>(())
        }
    })
}

/// Whether it fails before it comes again or after that: what stands for it by now waits for nothing.
#[tokio::test(start_paused = true)]
async fn what_came_again_does_not_wait_for_the_retry_of_what_it_replaced() {
    for after in [0, 10] {
        let (source, book) = (MemorySource::new(), Book::default());
        ["1", "2", "3"].into_iter().for_each(|body| source.push(keyed("k", body)));
        source.fail_settlements(1);
        let stage =
            Stage::set(source, by_routing_key().handler(fails_the_second(after, &book))).await;
        until_written(&book, 2).await;
        lose_the_first(&stage).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(book.lines(), ["1", "2", "1", "2", "3"], "failed after {after} s");
        assert!(stage.source.is_empty());
    }
}
