//! Shutting down in the middle of a load.

use std::time::Duration;

use sluicegate_consumers::{Consumer, OrderBy};
use sluicegate_testkit::brokers::{Kind, lend};
use tokio::time::Instant;

use super::rig::{Handled, Other, name, serve, until};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_is_handled_twice() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    for (round, at) in [50, 500, 1500].into_iter().enumerate() {
        let (queue, handled) = (name("ending"), Handled::default());
        let builder = Consumer::of(queue.as_str()).workers(16).prefetch(200);
        let order = if round == 1 { OrderBy::header("key") } else { OrderBy::function(|_| None) };
        // Some take long, so that there are always some at work: all others may end in the same moment.
        let time = |number| Duration::from_millis(if number % 20 == 19 { 300 } else { 5 });
        let consumer = builder.order_by(order).handler(handled.after_each(time));
        let (service, facts) = serve(broker.url(), consumer).await;
        let other = Other::at(broker.url()).await;
        other.publish(&queue, 3000, 30).await;
        until("a beginning", async || handled.counts().0 >= at).await;
        let before = Instant::now();
        let report = service.shutdown(before + Duration::from_secs(10)).await;
        assert!(report.is_clean() && before.elapsed() < Duration::from_secs(5), "{report:?}");
        let one = &report.consumers[0];
        assert!(one.handed_back > 0 && one.finished > 0, "{report:?} {facts:?}");
        let (all, different) = handled.counts();
        assert_eq!(all, different, "handled twice");
        other.until_ready(&queue, u32::try_from(3000 - all).expect("a rest")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_back_keeps_its_order_for_the_next_one() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let (queue, handled) = (name("relay"), Handled::default());
    let other = Other::at(broker.url()).await;
    let mut is_published = false;
    for at in [200, 700, 1000] {
        let builder = Consumer::of(queue.as_str()).workers(16).prefetch(100);
        let builder = builder.order_by(OrderBy::header("key"));
        let consumer = builder.handler(handled.after(Duration::from_millis(3)));
        let (service, _facts) = serve(broker.url(), consumer).await;
        if !std::mem::replace(&mut is_published, true) {
            other.publish(&queue, 1000, 20).await;
        }
        until("enough", async || handled.counts().0 >= at).await;
        let report = service.shutdown(Instant::now() + Duration::from_secs(10)).await;
        assert!(report.is_clean(), "{report:?}");
    }
    assert_eq!(handled.counts(), (1000, 1000));
    handled.check_order(50);
}
