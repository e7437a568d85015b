//! Finding messages by the application's id, as far as this process knows of them.

use std::time::Duration;

use sluicegate_dispatch::{Envelope, FoundState, Reason, Source};
use sluicegate_sources::amqp::AmqpSource;
use sluicegate_testkit::conformance::source::publication;

use crate::proxy::Proxy;
use crate::stage::{again, eventually, gone, name, receive, settings, settle, shared};

async fn state(source: &AmqpSource<Envelope>, id: &str) -> Option<FoundState> {
    source.find(id).await.unwrap().map(|found| found.state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_its_delay_is_found() {
    let Some(url) = shared() else { return };
    let queue = name("found");
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    assert_eq!(state(&source, "m1").await, None);
    let mut late = publication("late");
    late.delay = Duration::from_secs(600);
    source.publish(vec![publication("m1"), publication("m2"), late]).await.unwrap();
    let Some(FoundState::Delayed { rest, reason }) = state(&source, "late").await else {
        panic!("it is not found")
    };
    assert!(rest > Duration::from_secs(590) && rest <= Duration::from_secs(600), "{rest:?}");
    assert_eq!(reason, Reason::Scheduled);

    let received = receive(&source, 1).await.remove(0);
    assert_eq!(state(&source, "m1").await, Some(FoundState::Out));
    eventually("m2 is here", async || state(&source, "m2").await == Some(FoundState::Ready)).await;
    settle(&source, again(&received.receipt, Duration::from_secs(1), 3)).await;
    let found = source.find("m1").await.unwrap().expect("it waits");
    assert_eq!(found.attempts, 3);
    assert!(found.body.contains("m1"), "{}", found.body);
    let FoundState::Delayed { rest, reason } = found.state else { panic!("{found:?}") };
    assert!(rest <= Duration::from_secs(1), "{rest:?}");
    assert_eq!(reason, Reason::Failed);

    // It comes back, and is gone when it is done with.
    let second = receive(&source, 1).await.remove(0);
    settle(&source, gone(&second.receipt)).await;
    let first = receive(&source, 1).await.remove(0);
    assert_eq!(first.attempts, 3);
    assert_eq!(state(&source, "m1").await, Some(FoundState::Out));
    settle(&source, gone(&first.receipt)).await;
    assert_eq!(state(&source, "m1").await, None);
    assert_eq!(state(&source, "m2").await, None);
}

/// Counting asks for nothing that is not there: the broker logs an error for each of those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_asks_only_for_what_is_there() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("asked"));
    let source = AmqpSource::<Envelope>::open(settings(&proxy.url(url), &queue)).await.unwrap();
    let asked = proxy.not_found();
    let mut late = publication("late");
    late.delay = Duration::from_secs(600);
    source.publish(vec![late, publication("now")]).await.unwrap();
    for _ in 0..3 {
        let depth = source.depth().await.unwrap();
        assert_eq!((depth.waiting, depth.delayed), (1, 1));
    }
    assert_eq!(proxy.not_found() - asked, 0);
}
