//! The end of a service: nothing is lost, nothing is handled that does not have to be.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_consumers::{Consumer, Context, Failure, Handler, MemorySource, Metadata};
use tokio::time::{Instant, sleep};

use crate::stage::{Book, Stage, keyed, letter, text};

fn queue_of(count: usize) -> MemorySource {
    let source = MemorySource::new();
    (0..count).for_each(|number| source.push(letter(&number.to_string())));
    source
}

fn takes(time: Duration) -> Handler {
    Handler::bytes(move |_body, _about, _cx| async move {
        sleep(time).await;
        Ok::<_, Failure>(())
    })
}

#[tokio::test(start_paused = true)]
async fn an_idle_service_ends_at_once() {
    let stage = Stage::set(queue_of(0), Consumer::of("q").handler(takes(Duration::ZERO))).await;
    sleep(Duration::from_secs(5)).await;
    let before = Instant::now();
    assert!(stage.end(Duration::from_secs(60)).await.is_clean());
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn handlers_finish_under_an_uncancelled_context() {
    let book = Book::default();
    let noted = book.clone();
    let handler = Handler::bytes(move |_body, _about, cx: Context| {
        let book = noted.clone();
        async move {
            sleep(Duration::from_secs(20)).await;
            book.write(format!("{:?}", cx.check()));
            Ok::<_, Failure>(())
        }
    });
    let stage = Stage::set(queue_of(3), Consumer::of("q").workers(2).handler(handler)).await;
    sleep(Duration::from_secs(1)).await;
    let source = Arc::clone(&stage.source);
    let report = stage.end(Duration::from_secs(30)).await;
    let one = &report.consumers[0];
    assert_eq!((one.handed_back, one.finished, one.aborted, one.unsettled), (1, 2, 0, 0));
    assert_eq!((book.lines(), source.len()), (vec!["Ok(())".to_owned(); 2], 1));
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_handlers_are_cancelled_and_their_messages_go_back() {
    let heeds: fn(Context) -> _ = |cx: Context| async move {
        cx.cancelled().await;
        Err(Failure::retry("cancelled"))
    };
    let handler = Handler::bytes(move |body: bytes::Bytes, _about, cx| async move {
        if &body[..] == b"0" {
            return heeds(cx).await;
        }
        std::future::pending().await
    });
    let consumer = Consumer::of("q").workers(2).prefetch(3).handler(handler);
    let stage = Stage::set(queue_of(4), consumer).await;
    sleep(Duration::from_secs(1)).await;
    let (source, before) = (Arc::clone(&stage.source), Instant::now());
    let facts = stage.facts.clone();
    let report = stage.end(Duration::from_secs(10)).await;
    assert!(before.elapsed() < Duration::from_secs(11));
    let one = &report.consumers[0];
    assert_eq!((one.handed_back, one.finished, one.aborted, one.unsettled), (1, 0, 2, 0));
    assert_eq!(source.len(), 4);
    assert_eq!(facts.lines()[1..], ["stopped"]); // giving up at the end is no failed attempt
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_retry_goes_back_in_its_place() {
    let source = MemorySource::new();
    ["1", "2"].into_iter().for_each(|body| source.push(keyed("k", body)));
    let handler = Handler::bytes(|_body, _about, _cx| async { Err(Failure::retry("no")) });
    let consumer = Consumer::of("q").workers(1).handler(handler);
    let stage = Stage::set(source, consumer).await;
    sleep(Duration::from_millis(100)).await;
    let source = Arc::clone(&stage.source);
    assert_eq!(stage.end(Duration::from_secs(9)).await.consumers[0].handed_back, 2);
    let book = Book::default();
    let noted = book.clone();
    let handler = Handler::bytes(move |body, about: Metadata, _cx| {
        noted.write(format!("{} #{}", text(&body), about.attempt()));
        async { Ok::<_, Failure>(()) }
    });
    let again = source.reopened();
    let stage = Stage::set(again, Consumer::of("q").workers(1).handler(handler)).await;
    stage.emptied().await;
    assert_eq!(book.lines(), ["1 #2", "2 #1"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_settled_is_reported_and_comes_again() {
    let stage = Stage::set(queue_of(2), Consumer::of("q").handler(takes(Duration::ZERO))).await;
    stage.source.fail_settlements(u32::MAX);
    sleep(Duration::from_secs(1)).await;
    let (source, before) = (Arc::clone(&stage.source), Instant::now());
    let report = stage.end(Duration::from_secs(1)).await;
    assert_eq!((report.consumers[0].unsettled, report.is_clean()), (2, false));
    assert_eq!(before.elapsed().as_secs(), 5);
    assert_eq!(source.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_dropped_ends_too() {
    let stage = Stage::set(queue_of(9), Consumer::of("q").handler(takes(Duration::MAX))).await;
    sleep(Duration::from_secs(1)).await;
    let Stage { source, service, .. } = stage;
    drop(service);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((source.len(), Arc::strong_count(&source)), (9, 1));
}
