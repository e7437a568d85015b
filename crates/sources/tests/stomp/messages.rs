//! Messages of others, poison, and dead letters.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Demand, Envelope, Settle, Settled, Settlement, Source};
use sluicegate_sources::stomp::{StompSettings, StompSource};
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};
use sluicegate_testkit::conformance::source::publication_in;

use crate::peer::say;
use crate::rig::{fresh_name, settings};
use crate::stage::{
    Queue, again, expect_nothing, id, ids, numbered, open, publish, receipts, receive, settle,
    settle_all, within,
};

async fn envelopes(settings: StompSettings) -> StompSource<Envelope> {
    within(StompSource::open(settings)).await.unwrap()
}

fn read(delivery: &Delivery<Envelope>) -> &Envelope {
    delivery.message.as_ref().unwrap()
}

/// What another client sent comes as it is, and comes back as it was.
#[tokio::test]
async fn an_envelope_has_all_that_the_broker_carries_also_after_a_retry() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let queue = fresh_name();
    let source = envelopes(settings(&broker, &queue)).await;
    let head = format!(
        "SEND\ndestination:/queue/{queue}\nreceipt:r\ntype:order.paid\ncorrelation-id:c:7\n\
         colour:re\\cd \\\\ \\n!\nJMSXGroupID:g1\npriority:6\nreply-to:/queue/answers\n\n"
    );
    say(broker.address(), &head, "naïve text".as_bytes()).await;
    let binary = format!(
        "SEND\ndestination:/queue/{queue}\nreceipt:r\npersistent:true\ncontent-length:4\n\n"
    );
    say(broker.address(), &binary, b"\0\xff\n\0").await;
    let mut first: Option<Vec<Delivery<Envelope>>> = None;
    for attempts in 0..3 {
        let mut received = receive(&source, 2).await;
        received.sort_by_key(|delivery| read(delivery).body[0] == 0);
        let text = read(&received[0]);
        assert_eq!(&text.body[..], "naïve text".as_bytes(), "{attempts}");
        assert_eq!(text.event_type.as_deref(), Some("order.paid"));
        assert_eq!(text.routing_key.as_deref(), Some(&*queue));
        assert_eq!(text.header("colour"), Some("re:d \\ \n!"));
        assert_eq!(text.header("correlation-id"), Some("c:7"));
        assert_eq!(text.header("priority"), Some("6"));
        assert_eq!(text.header("reply-to"), Some("/queue/answers"));
        assert!(!text.redelivered);
        assert_eq!(&read(&received[1]).body[..], b"\0\xff\n\0");
        for delivery in &received {
            assert_eq!(delivery.attempts, attempts);
            let settlement = again(Duration::from_millis(100), attempts + 1);
            assert_eq!(settle(&source, delivery, settlement).await, Settled::Done);
        }
        let first = first.get_or_insert_with(|| received.clone());
        let known = first.iter().map(|delivery| &delivery.broker_id);
        assert!(known.eq(received.iter().map(|delivery| &delivery.broker_id)), "{attempts}");
    }
}

#[tokio::test]
async fn ids_and_groups_that_are_published_are_in_the_envelope() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let source = envelopes(settings).await;
    let texts = ["plain", "  sp aces ", "a:b%20\\n", "日本語 🔑", "nul\0line\n"];
    let sent = texts.map(|text| publication_in(text, "POOL", Some(text), false));
    within(source.publish(sent.into())).await.unwrap();
    for round in 0..2 {
        let received = receive(&source, texts.len()).await;
        let seen: std::collections::BTreeSet<_> = received
            .iter()
            .map(|delivery| {
                let envelope = read(delivery);
                assert_eq!(envelope.id, envelope.group, "round {round}");
                envelope.id.as_deref().unwrap().to_owned()
            })
            .collect();
        assert_eq!(seen, texts.map(str::to_owned).into());
        let settlement = again(Duration::from_millis(50), 1);
        settle_all(&source, receipts(&received), settlement).await.unwrap();
    }
}

async fn send_large(broker: &Broker, queue: &str, size: usize) {
    let head = format!(
        "SEND\ndestination:/queue/{queue}\npersistent:true\nreceipt:r\ncontent-length:{size}\n\n"
    );
    say(broker.address(), &head, &vec![b'x'; size]).await;
}

/// What is too large is handed over as malformed, costs no more memory than what is not, and does not
/// keep others from coming.
#[tokio::test]
async fn poison_is_handed_over_and_can_be_settled_in_every_way() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let queue = fresh_name();
    let source = open(settings(&broker, &queue)).await;
    publish(&source, ["m1".to_owned()]).await;
    for size in [3 * 1024 * 1024, 9 * 1024 * 1024, 2 * 1024 * 1024] {
        send_large(&broker, &queue, size).await;
    }
    let many: String = (0..900).map(|n| format!("h{n}:{}\n", "v".repeat(200))).collect();
    let head = format!("SEND\ndestination:/queue/{queue}\npersistent:true\nreceipt:r\n{many}\n");
    say(broker.address(), &head, b"{}").await;
    // A text with a NUL in it, which the broker sends on as it is.
    let nul = format!(
        "SEND\ndestination:/queue/{queue}\npersistent:true\nreceipt:r\n\
                       amq-msg-type:text\ncontent-length:5\n\n"
    );
    say(broker.address(), &nul, b"a\0b\0c").await;
    say(broker.address(), &nul, b"\xff\xfe\0\0\xff").await;
    publish(&source, ["m2".to_owned()]).await;
    let received = receive(&source, 8).await;
    assert_eq!((id(&received[0]), id(&received[7])), ("m1".to_owned(), "m2".to_owned()));
    for (at, large) in received[1..4].iter().enumerate() {
        let malformed = large.message.as_ref().unwrap_err();
        assert!(malformed.why.contains("too large"), "{at}: {}", malformed.why);
        assert!(malformed.raw.len() <= 1024 * 1024 && malformed.raw.starts_with("xxx"));
    }
    for other in &received[4..7] {
        assert!(other.message.is_err());
    }
    assert_eq!(settle(&source, &received[1], Settlement::Ack).await, Settled::Done);
    assert_eq!(
        within(source.settle(receipts(&received[2..3]).into_iter().map(Settle::park).collect()))
            .await
            .unwrap(),
        [Settled::Done]
    );
    // Not all of it is here, so it cannot be copied: it is kept as it is.
    let settlement = again(Duration::from_millis(300), 1);
    assert_eq!(settle(&source, &received[3], settlement).await, Settled::Done);
    let back = receive(&source, 1).await;
    assert_eq!((&back[0].broker_id, back[0].attempts), (&received[3].broker_id, 1));
    settle_all(&source, receipts(&back), Settlement::Ack).await.unwrap();
    let rest = [&receipts(&received[..1])[..], &receipts(&received[4..])].concat();
    assert_eq!(settle_all(&source, rest, Settlement::Ack).await.unwrap(), vec![Settled::Done; 5]);
    expect_nothing(&source, Duration::from_secs(1)).await;
    source.health().unwrap();
    let dead = open(settings(&broker, "ActiveMQ.DLQ")).await;
    assert!(id(&receive(&dead, 1).await[0]).contains(&(9 * 1024 * 1024).to_string()));
}

#[tokio::test]
async fn what_is_buried_is_kept_by_the_broker() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    assert!(source.profile().keeps_dead_letters);
    publish(&source, numbered(6)).await;
    let received = receive(&source, 6).await;
    let lot = [&receipts(&received[..3])[..], &receipts(&received[..1])].concat();
    let buried = within(source.settle(lot.into_iter().map(Settle::park).collect())).await.unwrap();
    assert_eq!(buried, [Settled::Done, Settled::Done, Settled::Done, Settled::Stale]);
    // A message that was tried before is buried too.
    settle(&source, &received[3], again(Duration::from_millis(50), 1)).await;
    let copy = receive(&source, 1).await;
    assert_eq!(
        within(source.settle(receipts(&copy).into_iter().map(Settle::park).collect()))
            .await
            .unwrap(),
        [Settled::Done]
    );
    settle_all(&source, receipts(&received[4..]), Settlement::Ack).await.unwrap();
    expect_nothing(&source, Duration::from_millis(500)).await;
    let dead: Queue = open(settings(&broker, "ActiveMQ.DLQ")).await;
    assert_eq!(ids(&receive(&dead, 4).await), ["m000", "m001", "m002", "m003"]);
}

/// What a connection that is shared by several tasks must stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_settle_extend_and_publish() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = Arc::new(open(settings(&broker, &fresh_name())).await);
    let work = |who: usize| {
        let source = Arc::clone(&source);
        async move {
            let mut done = 0;
            for round in 0..20 {
                publish(&source, (0..5).map(|n| format!("{who}/{round}/{n}"))).await;
                let received = within(source.receive(Demand::any(5))).await.unwrap();
                within(source.extend(receipts(&received))).await.unwrap();
                let lot = receipts(&received);
                let (left, right) = tokio::join!(
                    settle_all(&*source, lot.clone(), Settlement::Ack),
                    settle_all(&*source, lot, Settlement::Ack),
                );
                let all = [left.unwrap(), right.unwrap()].concat();
                done += all.iter().filter(|settled| **settled == Settled::Done).count();
                assert_eq!(all.len(), received.len() * 2);
            }
            done
        }
    };
    let done: usize = futures_util::future::join_all((0..6).map(work)).await.into_iter().sum();
    let rest = crate::stage::drain(&source, Duration::from_secs(1)).await;
    assert_eq!(done + rest.len(), 600);
    assert!(rest.values().all(|count| *count == 1));
}
