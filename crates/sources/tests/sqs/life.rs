//! Cuts, restarts, pauses, dropped receives, dead letters: nothing is lost.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use sluicegate_dispatch::{Demand, Envelope, Publication, Settle, Settled, Settlement, Source};
use sluicegate_sources::sqs::SqsSource;
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::proxy::{Proxy, ask};
use crate::stage::*;

fn many(count: usize) -> (BTreeSet<String>, Vec<Publication>) {
    let sent: BTreeSet<String> = (0..count).map(|n| format!("m{n:03}")).collect();
    let messages = sent.iter().map(|id| publication(id)).collect();
    (sent, messages)
}

/// Takes and settles until all of them were settled, whatever fails meanwhile; answers how many
/// came more than once.
async fn settle_all(source: &SqsSource, sent: &BTreeSet<String>) -> usize {
    let mut settled = BTreeSet::new();
    let mut twice = 0;
    let all = async {
        while settled.len() < sent.len() {
            let Ok(some) = source.receive(Demand::any(10)).await else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            for delivery in some {
                let id = ids(std::slice::from_ref(&delivery)).remove(0);
                let settle = sluicegate_dispatch::Settle {
                    receipt: delivery.receipt.clone(),
                    settlement: Settlement::Ack,
                };
                // As a router does. One whose answer is lost may be gone.
                while is_failed(source.settle(vec![settle.clone()]).await) {
                    sleep(Duration::from_millis(50)).await;
                }
                twice += usize::from(!settled.insert(id));
            }
        }
    };
    let in_time = timeout(PATIENCE, all).await.is_ok();
    assert!(in_time, "{} of {} came", settled.len(), sent.len());
    assert_eq!(settled, *sent);
    twice
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_loses_nothing() {
    let Some(broker) = broker() else { return };
    let proxy = Proxy::start(broker.address()).await;
    let source = open(settings(proxy.url(), &fresh(""))).await;
    let (sent, messages) = many(60);
    source.publish(messages).await.unwrap();
    let cut = async {
        for _ in 0..5 {
            sleep(Duration::from_millis(150)).await;
            proxy.cut();
            sleep(Duration::from_millis(150)).await;
            proxy.mend();
        }
    };
    let (twice, ()) = tokio::join!(settle_all(&source, &sent), cut);
    println!("{twice} came twice");
    nothing_for(&*source, Duration::from_secs(5)).await;
    source.health().unwrap();
    assert_eq!(source.depth().await.unwrap(), Default::default());
}

/// Ends the emulation so that it writes its state down, and starts it again.
async fn restart(broker: &mut Broker) {
    let asked = Command::new("kill").arg("-TERM").arg(broker.pid().to_string()).status().unwrap();
    assert!(asked.success());
    until("it has ended", || async { TcpStream::connect(broker.address()).await.is_err() }).await;
    let state = broker.folder().join("state").join("sqs.json");
    until("its state is written", || async { state.exists() }).await;
    sleep(Duration::from_millis(500)).await;
    broker.restart().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_broker_keeps_what_is_out_what_waits_and_what_is_delayed() {
    for suffix in ["", ".fifo"] {
        let Some(mut broker) = broker() else { return };
        let long = settings(broker.url(), &fresh(suffix)).with_visibility(Duration::from_secs(300));
        let source = open(long).await;
        let group = |id: &str| publication_in(id, "POOL", Some(id), false);
        source.publish(["m1", "m2", "m3", "m4"].map(group).into()).await.unwrap();
        let received = take(&*source, 3).await;
        let begun = Instant::now();
        let delay = Duration::from_secs(8);
        assert_eq!(settle(&*source, &received[2], again(delay, 5)).await, Settled::Done);
        restart(&mut broker).await;
        // A receipt of before is good.
        until("it settles", || async {
            let gone = sluicegate_dispatch::Settle {
                receipt: received[0].receipt.clone(),
                settlement: Settlement::Ack,
            };
            source.settle(vec![gone]).await.is_ok_and(|settled| settled == [Settled::Done])
        })
        .await;
        // On a busy machine the delay may be over by now.
        let mut seen = Vec::new();
        for _ in 0..2 {
            let next = take(&*source, 1).await;
            let is_early = begun.elapsed() < delay;
            seen.push((ids(&next).remove(0), next[0].attempts));
            assert!(!is_early || seen.last().is_some_and(|(id, _)| id == "m4"), "{seen:?}");
        }
        seen.sort();
        assert_eq!(seen, [("m3".to_owned(), 5), ("m4".to_owned(), 0)]);
        assert_eq!(settle(&*source, &received[1], Settlement::Ack).await, Settled::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_has_forgotten_the_queue_is_an_error_and_no_hot_loop() {
    let Some(mut broker) = broker() else { return };
    let source = open(settings(broker.url(), &fresh(""))).await;
    source.publish(vec![publication("m1")]).await.unwrap();
    let received = take(&*source, 1).await;
    broker.restart().unwrap();
    until("it is told", || async { source.receive(Demand::any(10)).await.is_err() }).await;
    until("it is told", || async {
        drop(source.receive(Demand::any(10)).await);
        source.health().is_err_and(|error| error.cause.contains("no such queue"))
    })
    .await;
    let gone = sluicegate_dispatch::Settle {
        receipt: received[0].receipt.clone(),
        settlement: Settlement::Ack,
    };
    assert!(is_failed(source.settle(vec![gone]).await));
    source.publish(vec![publication("m2")]).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_broker_is_told_and_waited_for() {
    let Some(broker) = broker() else { return };
    let source = open(settings(broker.url(), &fresh(""))).await;
    let (sent, messages) = many(15);
    source.publish(messages).await.unwrap();
    broker.pause();
    let error = timeout(PATIENCE, source.receive(Demand::any(10))).await.unwrap().unwrap_err();
    assert_eq!(source.health().unwrap_err(), error);
    broker.resume();
    settle_all(&source, &sent).await;
    source.health().unwrap();
}

/// A poll that goes on without its receive keeps what it brings for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_receive_hides_nothing() {
    let Some(broker) = broker() else { return };
    let long = settings(broker.url(), &fresh("")).with_visibility(Duration::from_secs(300));
    let source = open(long).await;
    for round in 0..20 {
        let id = format!("m{round}");
        let dropped = timeout(Duration::from_millis(5), source.receive(Demand::any(10))).await;
        assert!(dropped.is_err(), "{dropped:?}");
        source.publish(vec![publication(&id)]).await.unwrap();
        sleep(Duration::from_millis(round * 10)).await;
        let begun = Instant::now();
        let received = take(&*source, 1).await;
        assert_eq!((ids(&received), received[0].attempts), (vec![id], 0));
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        all_done(&*source, &received).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_receives_leave_no_more_polls_than_waited_at_once() {
    let Some(broker) = broker() else { return };
    let proxy = Proxy::start(broker.address()).await;
    let patient = settings(proxy.url(), &fresh("")).with_wait(Duration::from_secs(20));
    let source = open(patient).await;
    for _ in 0..30 {
        let both = async {
            tokio::join!(source.receive(Demand::any(10)), source.receive(Demand::any(10)))
        };
        assert!(timeout(Duration::from_millis(5), both).await.is_err());
    }
    until("they poll", || async { proxy.calls("ReceiveMessage").len() >= 2 }).await;
    assert_eq!(proxy.calls("ReceiveMessage").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_takes_is_kept_and_handed_back_in_the_end() {
    let Some(broker) = broker() else { return };
    let proxy = Proxy::start(broker.address()).await;
    let settings = settings(proxy.url(), &fresh(""));
    let source = open(settings.clone()).await;
    // A poll for ten, of which one is taken.
    assert!(timeout(Duration::from_millis(20), source.receive(Demand::any(10))).await.is_err());
    source.publish(["m1", "m2", "m3"].map(publication).into()).await.unwrap();
    let first = take(&*source, 1).await;
    all_done(&*source, &first).await;
    until("it is handed back", || async {
        let calls = proxy.calls("ChangeMessageVisibilityBatch");
        let seconds = |entry: &serde_json::Value| entry["VisibilityTimeout"].as_u64().unwrap_or(0);
        let all = calls.iter().flat_map(|call| call["Entries"].as_array().cloned());
        all.flatten().any(|entry| seconds(&entry) == 0)
    })
    .await;
    let other = open(settings).await;
    let rest = take(&*other, 2).await;
    assert!(rest.iter().all(|delivery| delivery.broker_id != first[0].broker_id));
    all_done(&*other, &rest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_hands_back_what_was_not_given_out() {
    let Some(broker) = broker() else { return };
    let long = settings(broker.url(), &fresh("")).with_visibility(Duration::from_secs(300));
    let source = open(long.clone()).await;
    assert!(timeout(Duration::from_millis(20), source.receive(Demand::any(10))).await.is_err());
    source.publish(["m1", "m2", "m3"].map(publication).into()).await.unwrap();
    let first = take(&*source, 1).await;
    source.stop().await;
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
    let other = open(long).await;
    take(&*other, 2).await;
    all_done(&*source, &first).await;
}

/// A source that replaces another one settles what the other was given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_outlive_their_source() {
    let Some(broker) = broker() else { return };
    let settings = settings(broker.url(), &fresh(""));
    let source = open(settings.clone()).await;
    source.publish(["m1", "m2"].map(publication).into()).await.unwrap();
    let received = take(&*source, 2).await;
    drop(source);
    let source = open(settings).await;
    assert_eq!(settle(&*source, &received[0], Settlement::Ack).await, Settled::Done);
    let again = take(&*source, 1).await;
    assert_eq!(ids(&again), ["m2"]);
    assert_eq!(settle(&*source, &received[1], Settlement::Ack).await, Settled::Stale);
    all_done(&*source, &again).await;
    nothing_for(&*source, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_go_where_the_queue_says() {
    for suffix in ["", ".fifo"] {
        let Some(broker) = broker() else { return };
        let (dead, name) = (fresh(suffix), fresh(suffix));
        let fifo = if suffix.is_empty() { json!({}) } else { json!({"FifoQueue": "true"}) };
        let create = json!({"QueueName": dead, "Attributes": fifo});
        ask(broker.address(), "CreateQueue", create).await;
        let target = format!("arn:aws:sqs:us-east-1:000000000000:{dead}");
        let policy = json!({"deadLetterTargetArn": target, "maxReceiveCount": 100}).to_string();
        let mut attributes = fifo;
        attributes["RedrivePolicy"] = json!(policy);
        let create = json!({"QueueName": name, "Attributes": attributes});
        ask(broker.address(), "CreateQueue", create).await;
        let source = open(settings(broker.url(), &name)).await;
        assert!(source.profile().keeps_dead_letters);
        let sent = publication_in("m1", "POOL", Some("group"), false);
        source.publish(vec![sent.clone()]).await.unwrap();
        let received = take(&*source, 1).await;
        let receipt = received[0].receipt.clone();
        assert_eq!(
            source
                .settle(vec![receipt.clone()].into_iter().map(Settle::park).collect())
                .await
                .unwrap(),
            [Settled::Done]
        );
        assert_eq!(
            source.settle(vec![receipt].into_iter().map(Settle::park).collect()).await.unwrap(),
            [Settled::Stale]
        );
        assert_eq!(source.depth().await.unwrap(), Default::default());
        let dead = open(settings(broker.url(), &dead)).await;
        assert!(!dead.profile().keeps_dead_letters);
        let buried = take(&*dead, 1).await;
        assert_eq!(buried[0].message.as_ref().unwrap(), &sent.message);
        // Without a queue for them they are gone.
        let receipt = buried[0].receipt.clone();
        assert_eq!(
            dead.settle(vec![receipt].into_iter().map(Settle::park).collect()).await.unwrap(),
            [Settled::Done]
        );
        nothing_for(&*dead, Duration::from_secs(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envelopes_have_what_the_broker_carries() {
    for suffix in ["", ".fifo"] {
        let Some(broker) = broker() else { return };
        let name = fresh(suffix);
        let source: SqsSource<Envelope> =
            SqsSource::open(settings(broker.url(), &name)).await.unwrap();
        source.publish(vec![publication_in("m1", "POOL", Some("ключ"), false)]).await.unwrap();
        source.publish(vec![publication("m2")]).await.unwrap();
        let mut send = json!({
            "QueueUrl": format!("{}/000000000000/{name}", broker.url()),
            "MessageBody": "not even JSON",
            "MessageAttributes": {
                "event-type": {"DataType": "String", "StringValue": "order.paid"},
                "count": {"DataType": "Number", "StringValue": "7"},
            },
        });
        if !suffix.is_empty() {
            send["MessageGroupId"] = json!("theirs");
            send["MessageDeduplicationId"] = json!("m3");
        }
        ask(broker.address(), "SendMessage", send).await;
        let mut received = Vec::new();
        let end = Instant::now() + PATIENCE;
        while received.len() < 3 {
            assert!(Instant::now() < end, "{received:?}");
            received.extend(source.receive(Demand::any(10)).await.unwrap());
        }
        let envelopes: Vec<Envelope> =
            received.into_iter().map(|delivery| delivery.message.unwrap()).collect();
        let seen = |n: usize| (envelopes[n].id.as_deref(), envelopes[n].group.as_deref());
        assert_eq!(seen(0), (Some("m1"), Some("ключ")));
        assert_eq!(seen(1), (Some("m2"), None));
        let theirs = (!suffix.is_empty()).then_some(("m3", "theirs"));
        assert_eq!(seen(2), (theirs.map(|(id, _)| id), theirs.map(|(_, group)| group)));
        assert_eq!(&envelopes[2].body[..], b"not even JSON");
        assert_eq!(envelopes[2].event_type.as_deref(), Some("order.paid"));
        assert_eq!(envelopes[2].header("count"), Some("7"));
        assert!(envelopes.iter().all(|envelope| envelope.routing_key.as_deref() == Some(&*name)));
        assert!(envelopes.iter().all(|envelope| !envelope.redelivered));
    }
}
