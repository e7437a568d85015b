//! What messages carry, and where those go that will never work.

use std::time::Duration;

use async_nats::jetstream;
use futures_util::StreamExt;
use sluicegate_dispatch::{Demand, Envelope, Message, Reason, Settle, Settled, Settlement, Source};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{again, ids, open, publish_raw, ready, receive, server, settle, uri};

const WINDOW: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envelope_has_all_that_the_server_carries() {
    let Some(broker) = server() else { return };
    let settings = NatsSettings::parse(&uri(broker.url(), "e")).unwrap().with_visibility(WINDOW);
    let source: NatsSource<Envelope> = ready(settings).await;
    let context = jetstream::new(async_nats::connect(broker.url()).await.unwrap());
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-Msg-Id", "i%41");
    headers.insert("ce-type", "order.placed");
    headers.append("x", "1");
    headers.append("x", "2");
    let body = bytes::Bytes::from_static(b"\xff\x00");
    context.publish_with_headers("e.in", headers, body.clone()).await.unwrap().await.unwrap();
    source.publish(vec![publication_in("ключ\n", "P", Some("g 1"), false)]).await.unwrap();
    let received = receive(&source, 2).await;
    let foreign = received[0].message.as_ref().unwrap();
    assert_eq!((foreign.id.as_deref(), &foreign.body), (Some("i%41"), &body));
    assert_eq!(foreign.event_type.as_deref(), Some("order.placed"));
    assert_eq!(foreign.routing_key.as_deref(), Some("e.in"));
    assert_eq!((foreign.header("x"), foreign.group.as_deref()), (Some("1"), None));
    assert_eq!(foreign.headers.iter().filter(|(name, _)| &**name == "x").count(), 2);
    assert!(!foreign.redelivered);
    let own = received[1].message.as_ref().unwrap();
    assert_eq!((own.id.as_deref(), own.group.as_deref()), (Some("ключ\n"), Some("g 1")));
    let first = &received[0].receipt;
    let settlement = Settle { receipt: first.clone(), settlement: again(Duration::ZERO) };
    assert_eq!(source.settle(vec![settlement]).await.unwrap(), [Settled::Done]);
    // On a busy machine the window of the other one may end first.
    let back = loop {
        let back = receive(&source, 1).await.remove(0);
        if back.broker_id == received[0].broker_id {
            break back;
        }
    };
    assert!(back.message.unwrap().redelivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_is_handed_over_and_can_be_buried() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "poison", WINDOW).await;
    assert!(!source.profile().keeps_dead_letters);
    let bodies: [&'static [u8]; 4] = [b"", b"\xff\xfe", b"{\"id\":", b"null"];
    for body in bodies {
        publish_raw(broker.url(), "poison", body).await;
    }
    source.publish(vec![publication("good")]).await.unwrap();
    let received = receive(&source, 5).await;
    assert!(received[..4].iter().all(|delivery| delivery.message.is_err()));
    assert_eq!(ids(&received[4..]), ["good"]);
    let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
    assert_eq!(
        source.settle(receipts.into_iter().map(Settle::park).collect()).await.unwrap(),
        vec![Settled::Done; 5]
    );
    let depth = source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.out), (0, 0));
    let rest = timeout(WINDOW * 2, receive(&source, 1)).await;
    assert!(rest.is_err(), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_messages_are_kept_whole_and_once() {
    let Some(broker) = server() else { return };
    let address = format!("{}&dead_subject=dead.d", uri(broker.url(), "d"));
    let settings = NatsSettings::parse(&address).unwrap().with_visibility(WINDOW);
    let source: NatsSource<Message> = ready(settings).await;
    assert!(source.profile().keeps_dead_letters);
    let sent = publication_in("m1", "P", Some("g"), false);
    let body = sent.body.clone();
    source.publish(vec![sent, publication("m2")]).await.unwrap();
    let received = receive(&source, 2).await;
    let context = jetstream::new(async_nats::connect(broker.url()).await.unwrap());
    // Somebody deletes one of them meanwhile: there is nothing to keep of it.
    let stream = context.get_stream("d").await.unwrap();
    assert!(stream.delete_message(2).await.unwrap());
    let receipts: Vec<_> = received.iter().map(|delivery| delivery.receipt.clone()).collect();
    assert_eq!(
        source.settle(receipts.clone().into_iter().map(Settle::park).collect()).await.unwrap(),
        vec![Settled::Done; 2]
    );
    assert_eq!(
        source.settle(receipts.into_iter().map(Settle::park).collect()).await.unwrap(),
        vec![Settled::Stale; 2]
    );
    let dead = context.get_stream("d-dead").await.unwrap();
    assert_eq!(dead.cached_info().state.messages, 1);
    let kept = dead.get_raw_message(1).await.unwrap();
    assert_eq!(kept.payload, body.as_bytes());
    assert_eq!(kept.headers.get("Sluicegate-Group").unwrap().as_str(), "g");
    assert_eq!(kept.headers.get("Sluicegate-Original-Msg-Id").unwrap().as_str(), "m1");
    assert_eq!(kept.headers.get("Sluicegate-Dead-From").unwrap().as_str(), "d");
    assert_eq!(source.depth().await.unwrap().waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_delay_holds_in_every_life() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "delayed", WINDOW).await;
    let begun = Instant::now();
    let delay = WINDOW * 2;
    let mut late = publication("late");
    late.delay = delay;
    source.publish(vec![late, publication("soon")]).await.unwrap();
    assert_eq!(ids(&receive(&source, 1).await), ["soon"]);
    drop(source);
    let source = open(broker.url(), "delayed", WINDOW).await;
    let mut seen = Vec::new();
    while !seen.contains(&"late".to_owned()) {
        let received = receive(&source, 1).await;
        settle(&source, &received[0].receipt, Settlement::Ack).await;
        seen.extend(ids(&received));
    }
    assert_eq!(seen, ["soon", "late"]);
    assert!(begun.elapsed() >= delay, "after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_hands_back_what_nobody_has_taken() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "stopped", Duration::from_secs(120)).await;
    // Asked for, and then not taken.
    let dropped = timeout(Duration::from_millis(20), source.receive(Demand::any(10))).await;
    assert!(dropped.is_err());
    source.publish(vec![publication("m1"), publication("m2")]).await.unwrap();
    source.stop().await;
    let other = open(broker.url(), "stopped", Duration::from_secs(120)).await;
    other.keep_order(&std::sync::Arc::default());
    let begun = Instant::now();
    let mut received = ids(&receive(&other, 2).await);
    received.sort();
    assert_eq!(received, ["m1", "m2"]);
    println!("the other life has them after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_has_taken_is_kept_alive() {
    let Some(broker) = server() else { return };
    let settings = NatsSettings::parse(&uri(broker.url(), "kept")).unwrap();
    let source: NatsSource<Envelope> = ready(settings.with_visibility(WINDOW)).await;
    let dropped = timeout(Duration::from_millis(50), source.receive(Demand::any(10))).await;
    assert!(dropped.is_err());
    // It arrives while nobody waits, and nobody asks for longer than a window.
    source.publish(vec![publication("m1")]).await.unwrap();
    sleep(WINDOW * 3 / 2).await;
    let received = receive(&source, 1).await;
    assert!(!received[0].message.as_ref().unwrap().redelivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_are_counted_in_every_life_and_across_crashes_of_the_server() {
    let Some(mut broker) = server() else { return };
    let mut source = open(broker.url(), "tried", WINDOW).await;
    source.publish(vec![publication("m1"), publication("m2")]).await.unwrap();
    for attempts in 1..5 {
        for delivery in receive(&source, 2).await {
            let is_tried = ids(std::slice::from_ref(&delivery)) == ["m1"];
            assert_eq!(delivery.attempts, if is_tried { attempts - 1 } else { 0 });
            let attempts = if is_tried { attempts } else { 0 };
            let settlement =
                Settlement::Retry { after: Duration::ZERO, attempts, reason: Reason::Failed };
            assert_eq!(settle(&source, &delivery.receipt, settlement).await, Settled::Done);
        }
        if attempts % 2 == 0 {
            broker.crash();
            broker.restart().unwrap();
        }
        if attempts < 4 {
            drop(source);
            source = open(broker.url(), "tried", WINDOW).await;
        }
    }
    let context = jetstream::new(async_nats::connect(broker.url()).await.unwrap());
    let entries = async || {
        let mut stream = context.get_stream("tried-workers-attempts").await.unwrap();
        stream.info().await.unwrap().state.messages
    };
    assert_eq!(entries().await, 1);
    // One that was on its way when the server was killed may be stale by now: it comes again.
    let mut gone = 0;
    while gone < 2 {
        for delivery in receive(&source, 2 - gone).await {
            let settled = settle(&source, &delivery.receipt, Settlement::Ack).await;
            gone += usize::from(settled == Settled::Done);
        }
    }
    assert_eq!(entries().await, 0);
    // In memory they last as long as the source.
    let address = format!("{}&attempts=memory", uri(broker.url(), "memory"));
    let settings = NatsSettings::parse(&address).unwrap().with_visibility(WINDOW);
    let source: NatsSource<Message> = ready(settings).await;
    source.publish(vec![publication("m1")]).await.unwrap();
    let first = receive(&source, 1).await.remove(0);
    settle(&source, &first.receipt, again(Duration::ZERO)).await;
    assert_eq!(receive(&source, 1).await[0].attempts, 1);
    assert!(context.get_stream("memory-workers-attempts").await.is_err());
}

/// Not a promise, a figure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_are_settled_side_by_side() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "many", Duration::from_secs(60)).await;
    let count = 20_000;
    let begun = Instant::now();
    for part in 0..count / 500 {
        let sent = (0..500).map(|n| publication(&format!("m{part}-{n}"))).collect();
        source.publish(sent).await.unwrap();
    }
    println!("published {:.0}/s", f64::from(count) / begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let parts = futures_util::stream::iter(0..count / 250).then(async |_| {
        let received = receive(&source, 250).await;
        let gone = |delivery: &sluicegate_dispatch::Delivery| Settle {
            receipt: delivery.receipt.clone(),
            settlement: Settlement::Ack,
        };
        let settled = source.settle(received.iter().map(gone).collect()).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Done));
    });
    parts.collect::<Vec<()>>().await;
    println!("received and settled {:.0}/s", f64::from(count) / begun.elapsed().as_secs_f64());
    assert_eq!(source.depth().await.unwrap().waiting, 0);
}
