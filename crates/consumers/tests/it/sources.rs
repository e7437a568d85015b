//! The same handler consumes from every source of the router.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sluicegate_consumers::{Consumer, Failure, Handler, OrderBy, Retry, Service};
use sluicegate_dispatch::{Message, Publication};
use sluicegate_testkit::{FakeSource, scripted};
use tokio::time::{Instant, sleep};

use crate::stage::Book;

#[derive(Deserialize)]
struct Order {
    number: u32,
}

fn publication(message: Message) -> Publication {
    Publication { message, body: "".into(), delay: Duration::ZERO }
}

#[tokio::test(start_paused = true)]
async fn messages_of_the_router_are_handled_by_payload_and_group() {
    let source = Arc::new(FakeSource::new(Duration::from_secs(30)));
    for number in 0..40 {
        let message = scripted::grouped(&format!("m{number}"), "orders", ["a", "b"][number % 2]);
        let payload = Some(format!(r#"{{"number": {number}}}"#).into());
        let tenant = Some("alice".into());
        source.push([publication(Message { payload, tenant, ..message })]);
    }
    source.push_malformed("no message", "raw");
    let book = Book::default();
    let noted = book.clone();
    let handler = Handler::json(move |order: Order, about, _cx| {
        let book = noted.clone();
        async move {
            sleep(Duration::from_millis(100)).await;
            let (id, tenant) = (about.id().unwrap_or("-"), about.header("tenant").unwrap_or("-"));
            let group = about.group().unwrap_or("-");
            book.write(format!("{group} {id} {tenant} {}", order.number));
            Ok::<_, Failure>(())
        }
    });
    let consumer = Consumer::of("queue")
        .event_type("orders")
        .workers(8)
        .order_by(OrderBy::group())
        .handler(handler);
    let service = Service::builder().consume_messages(source.clone(), consumer).start().await;
    let service = service.expect("a service that can start");
    let began = Instant::now();
    while !source.is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() <= Duration::from_millis(2100), "{:?}", began.elapsed());
    for (start, group) in ["a", "b"].into_iter().enumerate() {
        let expected: Vec<String> =
            (start..40).step_by(2).map(|n| format!("{group} m{n} alice {n}")).collect();
        let of_group = |line: &String| line.starts_with(group);
        let lines: Vec<String> = book.lines().into_iter().filter(of_group).collect();
        assert_eq!(lines, expected);
    }
    let stats = service.stats_of("queue").expect("its name");
    assert_eq!((stats.done, stats.poison, stats.dropped), (40, 1, 1));
    let report = service.shutdown(Instant::now() + Duration::from_secs(5)).await;
    assert!(report.is_clean());
}

#[tokio::test(start_paused = true)]
async fn groups_that_fail_leave_the_prefetch_to_others_and_keep_their_order() {
    let source = Arc::new(FakeSource::new(Duration::from_secs(30)));
    for round in 0..2 {
        for group in 0..20 {
            let id = format!("bad{group:02}-{round}");
            let message = scripted::grouped(&id, "orders", &format!("bad{group:02}"));
            source.push([publication(message)]);
        }
    }
    source.push([publication(scripted::grouped("good", "orders", "good"))]);
    let book = Book::default();
    let noted = book.clone();
    let handler = Handler::bytes(move |_body, about, _cx| {
        let (book, id) = (noted.clone(), about.id().unwrap_or("-").to_owned());
        async move {
            book.write(format!("{id} #{}", about.attempt()));
            let is_bad = id.starts_with("bad") && about.attempt() == 1;
            if is_bad { Err(Failure::retry("not now")) } else { Ok(()) }
        }
    });
    let consumer = Consumer::of("queue")
        .workers(2)
        .prefetch(4)
        .order_by(OrderBy::group())
        .retry(Retry::after([Duration::from_secs(60)]))
        .handler(handler);
    let service = Service::builder().consume_messages(source.clone(), consumer).start().await;
    let service = service.expect("a service that can start");
    sleep(Duration::from_secs(5)).await;
    assert!(book.lines().contains(&"good #1".to_owned()), "{:?}", book.lines());
    while !source.is_empty() {
        sleep(Duration::from_secs(1)).await;
    }
    let lines = book.lines();
    for group in 0..20 {
        let of_group = format!("bad{group:02}-");
        let seen: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix(&of_group)).collect();
        assert_eq!(seen, ["0 #1", "0 #2", "1 #1", "1 #2"]);
    }
    let report = service.shutdown(Instant::now() + Duration::from_secs(5)).await;
    assert!(report.is_clean());
}
