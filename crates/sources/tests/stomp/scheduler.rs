//! A broker whose scheduler is off ignores delays silently.

use std::time::Duration;

use sluicegate_dispatch::{Settled, Settlement, Source};
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use tokio::time::Instant;

use crate::rig::{fresh_name, settings};
use crate::stage::{again, expect_nothing, id, numbered, open, publish, receive, settle};

#[tokio::test]
async fn without_a_scheduler_delays_hold_and_it_is_said() {
    let Some(mut broker) = start_or_skip(Kind::ActiveMq) else { return };
    broker.crash();
    let path = broker.folder().join("conf/activemq.xml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (on, off) = (r#"schedulerSupport="true""#, r#"schedulerSupport="false""#);
    assert!(text.contains(on));
    std::fs::write(&path, text.replace(on, off)).unwrap();
    broker.restart().unwrap();
    let settings = settings(&broker, &fresh_name());
    let source = open(settings.clone()).await;
    publish(&source, numbered(1)).await;
    let received = receive(&source, 1).await;
    source.health().unwrap();
    let begun = Instant::now();
    let delay = Duration::from_secs(4);
    assert_eq!(settle(&source, &received[0], again(delay, 1)).await, Settled::Done);
    crate::stage::until("it is said", || {
        source.health().is_err_and(|error| error.cause.contains("schedulerSupport"))
    })
    .await;
    expect_nothing(&source, Duration::from_secs(1)).await;
    // The delay is in the message, so it holds for the next one too.
    drop(source);
    let source = open(settings).await;
    let back = receive(&source, 1).await;
    assert!(begun.elapsed() >= delay, "it came after {:?}", begun.elapsed());
    assert_eq!((id(&back[0]), back[0].attempts), (id(&received[0]), 1));
    assert_eq!(back[0].broker_id, received[0].broker_id);
    assert_eq!(settle(&source, &back[0], Settlement::Ack).await, Settled::Done);
    expect_nothing(&source, Duration::from_secs(1)).await;
}
