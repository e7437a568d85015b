//! Messages that say the same and have no ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_consumers::{Consumer, Envelope, Failure, Handler, Retry};
use sluicegate_testkit::brokers::{Kind, lend};
use tokio::time::{Instant, sleep};

use super::rig::{Other, name, serve, until};

/// Each of them is handled, whatever becomes of the others.
#[tokio::test(flavor = "multi_thread")]
async fn equal_messages_without_ids_are_each_handled() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let queue = name("equal");
    let (calls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, finished) = (Arc::clone(&calls), Arc::clone(&done));
    let handler = Handler::bytes(move |_body, _about, _cx| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        let finished = Arc::clone(&finished);
        async move {
            sleep(Duration::from_millis(call as u64 % 7)).await;
            if call % 3 == 0 {
                return Err(Failure::retry("not now"));
            }
            finished.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    // So often that none is given up.
    let retry = Retry::after([100; 20].map(Duration::from_millis));
    let consumer = Consumer::of(queue.as_str()).workers(16).prefetch(50).retry(retry);
    let (service, facts) = serve(broker.url(), consumer.handler(handler)).await;
    let other = Other::at(broker.url()).await;
    for _ in 0..10 {
        let same = Envelope { body: "same".into(), ..Envelope::default() };
        other.send(&queue, vec![same; 100]).await;
        sleep(Duration::from_millis(150)).await;
    }
    until("all are handled", async || done.load(Ordering::SeqCst) >= 1000).await;
    until("all are settled", async || service.stats()[0].1.done == 1000).await;
    let report = service.shutdown(Instant::now() + Duration::from_secs(10)).await;
    assert!(report.is_clean(), "{report:?} {facts:?}");
    // As often as they were done, and no oftener: nothing is left, and nothing was taken for another.
    assert_eq!(done.load(Ordering::SeqCst), 1000);
    assert_eq!(other.ready(&queue).await, Some(0));
}
