//! The worst of handlers, observers and sources.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};
use std::time::Duration;

use sluicegate_consumers::{
    Class, Consumer, Context, Fact, Failure, Handler, MemorySource, Metadata, OrderBy, Retry,
    Service,
};
use sluicegate_dispatch::Publication;
use sluicegate_testkit::conformance::source::publication;
use sluicegate_testkit::{FakeSource, Fault, scripted};
use tokio::time::{Instant, sleep};

use crate::stage::{Book, Stage, letter};

#[derive(Debug)]
struct Odd;
impl std::fmt::Display for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("odd")
    }
}
impl std::error::Error for Odd {}

#[tokio::test(start_paused = true)]
async fn a_classifier_that_panics_costs_no_worker() {
    let handler = Handler::bytes(|body: bytes::Bytes, _about, _cx| async move {
        if &body[..] == b"bad" {
            return Err(Failure::from(Odd));
        }
        Ok::<_, Failure>(())
    });
    let consumer = Consumer::of("q")
        .workers(8)
        .classify(|_: &Odd| -> Class { panic!("a class that nobody thought of") })
        .handler(handler);
    let source = MemorySource::new();
    source.push(letter("bad"));
    let stage = Stage::set(source, consumer).await;
    sleep(Duration::from_secs(5)).await;
    for n in 0..100 {
        stage.source.push(letter(&n.to_string()));
    }
    sleep(Duration::from_secs(3600)).await;
    assert!(
        stage.source.len() <= 1,
        "an hour later {} wait: {:?}",
        stage.source.len(),
        stage.stats()
    );
}

/// an observer that panics once.
#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_stops_no_settlement() {
    let source = Arc::new(MemorySource::new());
    for n in 0..10 {
        source.push(letter(&n.to_string()));
    }
    source.fail_settlements(1);
    let handler = Handler::bytes(|_body, _about, _cx| async { Ok::<_, Failure>(()) });
    let service = Service::builder()
        .consume(Arc::clone(&source), Consumer::of("q").workers(4).prefetch(5).handler(handler))
        .observe(|fact| {
            if let Fact::SourceFailed { .. } = fact {
                panic!("a full disk")
            }
        })
        .start()
        .await
        .expect("it starts");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(source.len(), 0, "{:?}", service.stats());
}

/// a handler that works without waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_is_settled_though_handlers_never_wait() {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = handled.clone();
    let handler = Handler::bytes(move |_body, _about, _cx| {
        let count = count.clone();
        async move {
            std::thread::sleep(Duration::from_millis(100));
            count.fetch_add(1, Memory::SeqCst);
            Ok::<_, Failure>(())
        }
    });
    let source = MemorySource::new();
    for n in 0..200 {
        source.push(letter(&n.to_string()));
    }
    let stage =
        Stage::set(source, Consumer::of("q").workers(1).prefetch(100).handler(handler)).await;
    sleep(Duration::from_secs(4)).await;
    let (handled, settled) = (handled.load(Memory::SeqCst), stage.source.settled());
    assert!(settled as usize + 5 >= handled, "{handled} handled, {settled} settled");
}

/// a broker that does not answer when it is stopped.
#[tokio::test(start_paused = true)]
async fn handlers_finish_though_the_source_does_not_stop() {
    let source = Arc::new(FakeSource::new(Duration::from_secs(30)));
    source.push((0..100).map(|n| publication(&n.to_string())));
    source.fail_next(Fault::HangAtStop, 1);
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let handler = Handler::bytes(move |_body, _about, _cx: Context| {
        count.fetch_add(1, Memory::SeqCst);
        async move {
            sleep(Duration::from_millis(1700)).await;
            Ok::<_, Failure>(())
        }
    });
    let service = Service::builder()
        .consume_messages(source, Consumer::of("q").workers(2).prefetch(50).handler(handler))
        .start()
        .await
        .expect("it starts");
    sleep(Duration::from_millis(500)).await;
    let before = started.load(Memory::SeqCst);
    let report = service.shutdown(Instant::now() + Duration::from_secs(10)).await;
    let after = started.load(Memory::SeqCst);
    println!("started {before} before and {after} after; {report:?}");
    assert_eq!((before, report.is_clean()), (after, true));
}

/// a message without end.
#[tokio::test(start_paused = true)]
async fn an_error_whose_words_panic_costs_no_worker() {
    #[derive(Debug)]
    struct Bad;
    impl std::fmt::Display for Bad {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("words")
        }
    }
    impl std::error::Error for Bad {}
    let handler = Handler::bytes(|body: bytes::Bytes, _about, _cx| async move {
        if &body[..] == b"bad" {
            return Err(Failure::from(Bad));
        }
        Ok::<_, Failure>(())
    });
    let source = MemorySource::new();
    source.push(letter("bad"));
    let stage = Stage::set(source, Consumer::of("q").workers(8).handler(handler)).await;
    sleep(Duration::from_secs(5)).await;
    stage.source.push(letter("good"));
    sleep(Duration::from_secs(3600)).await;
    assert!(stage.stats().done == 1, "{:?}", stage.stats());
}

/// everything in order, from a source that keeps groups in order.
async fn all_in_order(order: Option<OrderBy>) -> Vec<String> {
    let source = Arc::new(FakeSource::new(Duration::from_secs(30)));
    for (id, group) in [("m1", "a"), ("m2", "b"), ("m3", "a")] {
        let message = scripted::grouped(id, "orders", group);
        source.push([Publication { message, body: "".into(), delay: Duration::ZERO }]);
    }
    let book = Book::default();
    let noted = book.clone();
    let handler = Handler::bytes(move |_body, about: Metadata, _cx| {
        let (book, id) = (noted.clone(), about.id().unwrap_or("-").to_owned());
        async move {
            book.write(format!("{id} #{}", about.attempt()));
            if id == "m1" && about.attempt() == 1 { Err(Failure::retry("not now")) } else { Ok(()) }
        }
    });
    let mut consumer = Consumer::of("q").workers(1).retry(Retry::after([Duration::from_secs(60)]));
    if let Some(order) = order {
        consumer = consumer.workers(4).order_by(order);
    }
    let _service = Service::builder()
        .consume_messages(source.clone(), consumer.handler(handler))
        .start()
        .await
        .expect("a service that can start");
    sleep(Duration::from_secs(300)).await;
    book.lines()
}

#[tokio::test(start_paused = true)]
async fn everything_stays_in_order_whatever_fails() {
    assert_eq!(
        all_in_order(Some(OrderBy::everything())).await,
        ["m1 #1", "m1 #2", "m2 #1", "m3 #1"]
    );
}

#[tokio::test(start_paused = true)]
async fn one_worker_keeps_the_order_of_the_queue_whatever_fails() {
    assert_eq!(all_in_order(None).await, ["m1 #1", "m1 #2", "m2 #1", "m3 #1"]);
}
