//! What breaks: the broker, the network, the channel. Nothing is lost, and order holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluicegate_consumers::{Consumer, Failure, Handler, OrderBy, Retry};
use sluicegate_testkit::brokers::{Broker, Kind, lend, start_or_skip};
use tokio::time::{Instant, sleep};

use super::proxy::Proxy;
use super::rig::{Handled, Other, name, serve, until};
use crate::stage::Book;

fn ordered(queue: &str, handler: Handler) -> Consumer {
    let builder = Consumer::of(queue).workers(16).prefetch(200);
    builder.order_by(OrderBy::header("key")).handler(handler)
}

#[tokio::test(flavor = "multi_thread")]
async fn network_cuts_lose_nothing_and_keep_the_order() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let (queue, handled) = (name("cut"), Handled::default());
    let proxy = Proxy::to(broker.url()).await;
    let consumer = ordered(&queue, handled.after(Duration::from_millis(4)));
    let (service, facts) = serve(&proxy.url, consumer).await;
    let other = Other::at(broker.url()).await;
    other.publish(&queue, 3000, 30).await;
    for round in 1..=5 {
        until("progress", async || handled.counts().1 >= round * 400).await;
        proxy.cut();
    }
    handled.until_all(3000).await;
    let report = service.shutdown(Instant::now() + Duration::from_secs(20)).await;
    assert!(report.is_clean(), "{report:?} {facts:?}");
    other.until_ready(&queue, 0).await;
    handled.check_order(100);
    let (all, different) = handled.counts();
    println!("{all} handlings of {different} messages, {:?}", facts.lines());
    assert_eq!(different, 3000);
    // All that the broker had sent and not seen acknowledged: as many as were prefetched, at each cut.
    assert!(all <= 3000 + 5 * 200, "{all}: no more again than was here at each cut");
}

async fn restart(mut broker: Broker) -> Broker {
    let restarted = move || {
        broker.crash();
        broker.restart().expect("it starts again");
        broker
    };
    // The kernel ends a broker with the thread that started it: this one.
    tokio::task::block_in_place(restarted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_crashes_under_load_loses_nothing_and_keeps_the_order() {
    let Some(mut broker) = start_or_skip(Kind::RabbitMq) else { return };
    let (queue, handled) = (name("crash"), Handled::default());
    let consumer = ordered(&queue, handled.after(Duration::from_millis(4)));
    let (service, facts) = serve(broker.url(), consumer).await;
    Other::at(broker.url()).await.publish(&queue, 3000, 30).await;
    for round in 1..=2 {
        until("progress", async || handled.counts().1 >= round * 800).await;
        broker = restart(broker).await;
    }
    handled.until_all(3000).await;
    let report = service.shutdown(Instant::now() + Duration::from_secs(20)).await;
    assert!(report.is_clean(), "{report:?} {facts:?}");
    Other::at(broker.url()).await.until_ready(&queue, 0).await;
    handled.check_order(100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_outlives_a_crash_of_the_broker() {
    let Some(broker) = start_or_skip(Kind::RabbitMq) else { return };
    let (queue, book) = (name("durable"), Book::default());
    let (noted, seen) = (book.clone(), Arc::new(AtomicU32::new(0)));
    let handler = Handler::bytes(move |_body, about, _cx| {
        noted.write(format!("{} #{}", about.id().unwrap_or("-"), about.attempt()));
        let fails = seen.fetch_add(1, Ordering::SeqCst) < 20;
        async move { if fails { Err(Failure::retry("no")) } else { Ok(()) } }
    });
    let retry = Retry::after([Duration::from_secs(5)]);
    let consumer = Consumer::of(queue.as_str()).retry(retry).handler(handler);
    let (service, _facts) = serve(broker.url(), consumer).await;
    Other::at(broker.url()).await.publish(&queue, 20, 1).await;
    until("all have failed", async || service.stats()[0].1.retried == 20).await;
    let broker = restart(broker).await;
    // The crash may have taken acks with it: then the first copies come again too.
    until("all come again", async || {
        let lines = book.lines();
        (0..20).all(|number| lines.contains(&format!("m{number} #2")))
    })
    .await;
    until("nothing is in hand", async || service.stats()[0].1.in_hand == 0).await;
    let report = service.shutdown(Instant::now() + Duration::from_secs(20)).await;
    assert!(report.is_clean(), "{report:?}");
    drop(broker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_runs_through_a_cut_is_not_run_beside_itself() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let queue = name("twice");
    let proxy = Proxy::to(broker.url()).await;
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
    let handler = Handler::bytes(move |_body, _about, _cx| {
        let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_secs(3)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Failure>(())
        }
    });
    let (service, facts) = serve(&proxy.url, Consumer::of(queue.as_str()).handler(handler)).await;
    Other::at(broker.url()).await.publish(&queue, 1, 1).await;
    until("it runs", async || running.load(Ordering::SeqCst) == 1).await;
    proxy.cut();
    until("it is done", async || service.stats()[0].1.done == 1).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    let stats = service.stats()[0].1;
    assert_eq!((stats.received, stats.redelivered), (2, 1), "{stats:?} {facts:?}");
    assert!(service.shutdown(Instant::now() + Duration::from_secs(20)).await.is_clean());
}
