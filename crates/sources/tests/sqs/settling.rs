//! Every settlement is answered by itself, waits for no other, and leaves nothing hidden.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_dispatch::{Delivery, Demand, Reason, Receipt, Settle, Settled, Settlement, Source};
use sluicegate_sources::sqs::SqsSource;
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, sleep, timeout};

use crate::proxy::{Act, Proxy, ask, error};
use crate::stage::*;

/// Long enough not to end while a test looks elsewhere.
const LONG: Duration = Duration::from_secs(120);

fn receipts(deliveries: &[Delivery]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

fn acks(deliveries: &[Delivery]) -> Vec<Settle> {
    receipts(deliveries).into_iter().map(Settle::ack).collect()
}

/// Hands back what was not tried.
fn untried(deliveries: &[Delivery]) -> Vec<Settle> {
    let back = |delivery: &Delivery| {
        let (after, attempts) = (Duration::ZERO, delivery.attempts);
        let settlement = Settlement::Retry { after, attempts, reason: Reason::Draining };
        Settle { receipt: delivery.receipt.clone(), settlement }
    };
    deliveries.iter().map(back).collect()
}

async fn publish(source: &SqsSource, count: usize) {
    let messages = (0..count).map(|n| publication(&format!("m{n:04}"))).collect();
    assert_eq!(source.publish(messages).await.unwrap().accepted, count as u64);
}

/// How many messages of a queue can be received, and how many are hidden, says the service.
async fn counts(server: SocketAddr, name: &str) -> (u64, u64) {
    let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
    let url = format!("http://{server}/000000000000/{name}");
    let call = json!({"QueueUrl": url, "AttributeNames": names});
    let answer = ask(server, "GetQueueAttributes", call).await;
    let count = |name: &str| answer["Attributes"][name].as_str().unwrap().parse().unwrap();
    (count(names[0]), count(names[1]))
}

/// A queue behind a proxy, with its name.
async fn behind_proxy(suffix: &str) -> Option<(Broker, Proxy, String, Arc<SqsSource>)> {
    let broker = broker()?;
    let proxy = Proxy::start(broker.address()).await;
    let name = fresh(suffix);
    let source = open(settings(proxy.url(), &name).with_visibility(LONG)).await;
    Some((broker, proxy, name, source))
}

/// The same, with a queue for dead letters.
async fn with_dead_letters() -> Option<(Broker, Proxy, Arc<SqsSource>)> {
    let broker = broker()?;
    let (dead, name) = (fresh(""), fresh(""));
    ask(broker.address(), "CreateQueue", json!({"QueueName": dead})).await;
    let target = format!("arn:aws:sqs:us-east-1:000000000000:{dead}");
    let policy = json!({"deadLetterTargetArn": target, "maxReceiveCount": 100}).to_string();
    let create = json!({"QueueName": name, "Attributes": {"RedrivePolicy": policy}});
    ask(broker.address(), "CreateQueue", create).await;
    let proxy = Proxy::start(broker.address()).await;
    let source = open(settings(proxy.url(), &name).with_visibility(LONG)).await;
    Some((broker, proxy, source))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burial_that_is_refused_holds_only_itself() {
    let Some((_broker, proxy, source)) = with_dead_letters().await else { return };
    publish(&source, 4).await;
    let mut received = take(&*source, 4).await;
    received.sort_by_key(|delivery| ids(std::slice::from_ref(delivery)));
    proxy.rule(|name, call| match name {
        "SendMessage" if call["MessageBody"].as_str().unwrap().contains("m0001") => {
            error(403, "AccessDenied")
        }
        _ => Act::Pass,
    });
    let park = |delivery: &Delivery| Settle::park(delivery.receipt.clone());
    let mut ends = acks(&received[..1]);
    ends.extend(received[1..3].iter().map(park));
    ends.extend(acks(&received[3..]));
    let answers = source.settle(ends).await.expect("each is answered by itself");
    assert!(matches!(&answers[1], Settled::Failed(why) if why.cause.contains("AccessDenied")));
    assert_eq!([&answers[0], &answers[2], &answers[3]], [&Settled::Done; 3]);
    source.health().unwrap();
    // It goes on when it may.
    proxy.pass();
    assert_eq!(source.settle(vec![park(&received[1])]).await.unwrap(), [Settled::Done]);
    assert_eq!(source.depth().await.unwrap(), Default::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_and_heartbeats_wait_for_no_burial() {
    let Some((_broker, proxy, source)) = with_dead_letters().await else { return };
    publish(&source, 6).await;
    let received = take(&*source, 6).await;
    let (dead, rest) = received.split_at(2);
    proxy.rule(|name, _| match name {
        "SendMessage" => Act::Stall(Duration::from_secs(6)),
        _ => Act::Pass,
    });
    let burial = source.settle(receipts(dead).into_iter().map(Settle::park).collect());
    let others = async {
        sleep(Duration::from_millis(50)).await;
        let begun = Instant::now();
        assert_eq!(source.extend(receipts(&received)).await.unwrap(), vec![Settled::Done; 6]);
        assert_eq!(source.settle(acks(rest)).await.unwrap(), vec![Settled::Done; 4]);
        begun.elapsed()
    };
    let begun = Instant::now();
    let (buried, took) = tokio::join!(burial, others);
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(buried.unwrap(), vec![Settled::Done; 2]);
    assert!(begun.elapsed() < Duration::from_secs(11), "they are buried one after the other");
}

/// What is settled while it is being extended has not expired, and is not hidden anew by that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_meets_a_settlement_is_no_expiry() {
    for suffix in ["", ".fifo"] {
        let Some((broker, proxy, name, source)) = behind_proxy(suffix).await else { return };
        publish(&source, 8).await;
        let received = take(&*source, 8).await;
        // Heartbeats are slow on their way.
        let is_heartbeat = |call: &Value| call["Entries"][0]["VisibilityTimeout"] != json!(0);
        proxy.rule(move |name, call| match name {
            "ChangeMessageVisibilityBatch" if is_heartbeat(call) => {
                Act::Stall(Duration::from_millis(700))
            }
            _ => Act::Pass,
        });
        let extended = source.extend(receipts(&received));
        let settled = async {
            sleep(Duration::from_millis(100)).await;
            let mut ends = acks(&received[..4]);
            ends.extend(untried(&received[4..]));
            source.settle(ends).await
        };
        let (extended, settled) = tokio::join!(extended, settled);
        assert_eq!(settled.unwrap(), vec![Settled::Done; 8], "{suffix}");
        assert_eq!(extended.unwrap(), vec![Settled::Done; 8], "{suffix}");
        assert_eq!(counts(broker.address(), &name).await, (4, 0), "{suffix}");
        // The other way round: the settlement is under way first.
        let received = take(&*source, 4).await;
        proxy.rule(|name, call| {
            let is_back = call["Entries"][0]["VisibilityTimeout"] == json!(0);
            match name {
                "ChangeMessageVisibilityBatch" if is_back => Act::Stall(Duration::from_millis(500)),
                "DeleteMessageBatch" => Act::Stall(Duration::from_millis(500)),
                _ => Act::Pass,
            }
        });
        let mut ends = acks(&received[..2]);
        ends.extend(untried(&received[2..]));
        let settled = source.settle(ends);
        let extended = async {
            sleep(Duration::from_millis(100)).await;
            source.extend(receipts(&received)).await
        };
        let (settled, extended) = tokio::join!(settled, extended);
        assert_eq!(settled.unwrap(), vec![Settled::Done; 4], "{suffix}");
        assert_eq!(extended.unwrap(), vec![Settled::Done; 4], "{suffix}");
        assert_eq!(counts(broker.address(), &name).await, (2, 0), "{suffix}");
    }
}

/// As a daemon ends: polls are under way when it hands back what it has, in either order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_nothing_is_hidden() {
    for stops_first in [false, true] {
        let Some(broker) = broker() else { return };
        let name = fresh("");
        let source = open(settings(broker.url(), &name).with_visibility(LONG)).await;
        publish(&source, 80).await;
        let received = take(&*source, 80).await;
        let polling = || async {
            tokio::join!(source.receive(Demand::any(10)), source.receive(Demand::any(10)))
        };
        timeout(Duration::from_millis(200), polling()).await.expect_err("nothing is left");
        if stops_first {
            source.stop().await;
        }
        assert_eq!(source.settle(untried(&received)).await.unwrap(), vec![Settled::Done; 80]);
        if !stops_first {
            source.stop().await;
        }
        drop(source);
        assert_eq!(counts(broker.address(), &name).await, (80, 0), "stops first: {stops_first}");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(counts(broker.address(), &name).await, (80, 0), "stops first: {stops_first}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handing_back_untried_counts_no_attempt() {
    let Some(broker) = broker() else { return };
    let settings = settings(broker.url(), &fresh("")).with_visibility(LONG);
    let mut source = open(settings.clone()).await;
    publish(&source, 1).await;
    for round in 0..6 {
        let received = take(&*source, 1).await;
        assert_eq!(received[0].attempts, 0, "round {round}");
        assert_eq!(source.settle(untried(&received)).await.unwrap(), [Settled::Done]);
        if round % 3 == 2 {
            source.stop().await;
            source = open(settings.clone()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_messages_are_different_messages() {
    let Some(broker) = broker() else { return };
    let name = fresh("");
    let source = open(settings(broker.url(), &name).with_visibility(LONG)).await;
    let url = format!("http://{}/000000000000/{name}", broker.address());
    let send = json!({"QueueUrl": url, "MessageBody": publication("same").body.to_string()});
    ask(broker.address(), "SendMessage", send.clone()).await;
    let first = take(&*source, 1).await.remove(0);
    // Put in again while the first one is out.
    ask(broker.address(), "SendMessage", send).await;
    let second = take(&*source, 1).await.remove(0);
    assert_eq!(ids(&[first.clone(), second.clone()]), ["same", "same"]);
    assert_ne!(first.broker_id, second.broker_id);
    assert_eq!(settle(&*source, &second, Settlement::Ack).await, Settled::Done);
    assert_eq!(source.extend(vec![first.receipt.clone()]).await.unwrap(), [Settled::Done]);
    assert_eq!(settle(&*source, &first, Settlement::Ack).await, Settled::Done);
    assert_eq!(counts(broker.address(), &name).await, (0, 0));
}

/// As many as a router's window holds are out at once, and are kept alive within a third of their window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_are_out_and_kept_alive() {
    let Some(broker) = broker() else { return };
    let (name, window) = (fresh(""), Duration::from_secs(30));
    let source = open(settings(broker.url(), &name).with_visibility(window)).await;
    publish(&source, 2_000).await;
    let begun = Instant::now();
    let mut received = take(&*source, 2_000).await;
    println!("received after {:?}", begun.elapsed());
    received.sort_by(|a, b| a.broker_id.cmp(&b.broker_id));
    received.dedup_by(|a, b| a.broker_id == b.broker_id);
    assert_eq!(received.len(), 2_000, "some came twice");
    let begun = Instant::now();
    for some in received.chunks(source.profile().settle_batch) {
        let extended = source.extend(receipts(some)).await.unwrap();
        assert_eq!(extended, vec![Settled::Done; some.len()]);
    }
    assert!(begun.elapsed() < window / 3, "after {:?}", begun.elapsed());
    assert_eq!(counts(broker.address(), &name).await, (0, 2_000));
}

/// A poll brings ten at most: several are under way where many are asked for, and one where nothing comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_follow_demand() {
    let Some((_broker, proxy, _, source)) = behind_proxy("").await else { return };
    publish(&source, 400).await;
    proxy.rule(|name, _| match name {
        "ReceiveMessage" => Act::Stall(Duration::from_millis(300)),
        _ => Act::Pass,
    });
    let begun = Instant::now();
    take(&*source, 400).await;
    // One after the other they would take 12 s.
    assert!(begun.elapsed() < Duration::from_secs(6), "after {:?}", begun.elapsed());
    proxy.pass();
    assert!(source.receive(Demand::any(400)).await.unwrap().is_empty());
    let before = proxy.calls("ReceiveMessage").len();
    for _ in 0..2 {
        assert!(source.receive(Demand::any(400)).await.unwrap().is_empty());
    }
    let polls = proxy.calls("ReceiveMessage").len() - before;
    assert!(polls <= 4, "{polls} polls of an empty queue");
}
