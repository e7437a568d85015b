//! Opening and probing: refused, not reached, and reached later.

use std::time::Duration;

use sluicegate_dispatch::{Demand, Message, Settled, Settlement, Source};
use sluicegate_sources::OpenError;
use sluicegate_sources::stomp::{StompSettings, StompSource};
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use tokio::time::Instant;

use crate::rig::{fresh_name, settings};
use crate::stage::receipts;
use crate::stage::{Queue, ids, numbered, open, publish, receive, settle_all, until, within};

#[tokio::test]
async fn who_may_not_is_refused_and_told_why() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let address = broker.address();
    let cases = [
        ("alice:secret", "q", true),
        ("alice:tiger", "q", false),
        ("nobody:tiger", "q", false),
        ("bob:secret", "q", false),
    ];
    for (who, queue, is_let_in) in cases {
        let uri = format!("activemq://{who}@{address}/{queue}");
        let settings = StompSettings::parse(&uri).unwrap();
        let probed = within(StompSource::<Message>::probe(&settings)).await;
        let opened = within(Queue::open(settings)).await.map(|_| ());
        assert_eq!(probed, opened, "{uri}");
        match opened {
            Ok(()) => assert!(is_let_in, "{uri}"),
            Err(OpenError::Refused(why)) => {
                assert!(!is_let_in, "{uri}: {why}");
                assert!(!why.contains("tiger") && !why.contains("secret"), "{why}");
                assert!(why.contains("password") && why.contains(queue), "{why}");
            }
            Err(other) => panic!("{uri}: {other}"),
        }
    }
}

#[tokio::test]
async fn probing_takes_nothing() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let source = open(settings.clone()).await;
    publish(&source, numbered(3)).await;
    let received = receive(&source, 3).await;
    for _ in 0..3 {
        within(Queue::probe(&settings)).await.unwrap();
    }
    drop(source);
    for _ in 0..3 {
        within(Queue::probe(&settings)).await.unwrap();
    }
    let source = open(settings).await;
    let back = receive(&source, 3).await;
    assert_eq!(ids(&back), ids(&received));
    let settled = settle_all(&source, receipts(&back), Settlement::Ack).await.unwrap();
    assert_eq!(settled, vec![Settled::Done; 3]);
}

#[tokio::test]
async fn what_is_not_reached_is_opened_and_reached_later() {
    let Some(mut broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    broker.crash();
    let probed = within(Queue::probe(&settings)).await.unwrap_err();
    assert!(
        matches!(&probed, OpenError::Unreachable(why) if why.contains("127.0.0.1")),
        "{probed}"
    );
    let source = open(settings).await;
    let begun = Instant::now();
    let error = within(source.receive(Demand::any(1))).await.unwrap_err();
    assert!(error.cause.contains("127.0.0.1"), "{error}");
    // An error that is answered at once would be asked for again at once.
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(source.health().is_err() && within(source.depth()).await.is_err());
    let message = sluicegate_testkit::conformance::source::publication("m");
    assert!(within(source.publish(vec![message])).await.is_err());
    broker.restart().unwrap();
    until("it is connected", || source.health().is_ok()).await;
    publish(&source, numbered(1)).await;
    receive(&source, 1).await;
}
