//! Every settlement is answered by itself, waits for no other, and leaves nothing hidden.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use async_nats::jetstream::{self, consumer::PullConsumer, stream};
use futures_util::future::join;
use futures_util::{StreamExt, poll};
use sluicegate_dispatch::{
    Delivery, Demand, Message, Order, Reason, Receipt, Settle, Settled, Settlement, Source,
};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, sleep, timeout};

use crate::guarded::Guarded;
use crate::rig::{ids, open, publish_raw, ready, receive, server, settle, uri};

/// Long enough not to end while a test looks elsewhere.
const LONG: Duration = Duration::from_secs(120);
/// What does not wait for anything takes less than this, also on a busy machine.
const SOON: Duration = Duration::from_secs(3);

fn receipts<M>(deliveries: &[Delivery<M>]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

fn acks<M>(deliveries: &[Delivery<M>]) -> Vec<Settle> {
    receipts(deliveries).into_iter().map(Settle::ack).collect()
}

/// Hands back what was not tried.
fn untried<M>(deliveries: &[Delivery<M>]) -> Vec<Settle> {
    let back = |delivery: &Delivery<M>| {
        let (after, attempts) = (Duration::ZERO, delivery.attempts);
        let settlement = Settlement::Retry { after, attempts, reason: Reason::Draining };
        Settle { receipt: delivery.receipt.clone(), settlement }
    };
    deliveries.iter().map(back).collect()
}

async fn publish(source: &NatsSource<Message>, count: usize) {
    let messages = (0..count).map(|n| publication(&format!("m{n:04}"))).collect();
    source.publish(messages).await.unwrap();
}

/// A consumer of the same queue that knows nothing of Sluicegate.
async fn plain(broker: &Broker, queue: &str) -> PullConsumer {
    let context = jetstream::new(async_nats::connect(broker.url()).await.unwrap());
    context.get_consumer_from_stream("workers", queue).await.unwrap()
}

/// How many messages a plain consumer gets within two seconds.
async fn visible(consumer: &PullConsumer, wanted: usize) -> usize {
    let end = Instant::now() + Duration::from_secs(2);
    let mut count = 0;
    while count < wanted && Instant::now() < end {
        let mut batch = consumer.fetch().max_messages(wanted - count).messages().await.unwrap();
        while let Some(Ok(_)) = batch.next().await {
            count += 1;
        }
    }
    count
}

/// The stream of dead letters is full, and refuses more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burial_that_is_refused_holds_only_itself() {
    let Some(broker) = server() else { return };
    let context = jetstream::new(async_nats::connect(broker.url()).await.unwrap());
    let full = stream::Config {
        name: "full".into(),
        subjects: vec!["dead.full".into()],
        max_messages: 1,
        discard: stream::DiscardPolicy::New,
        ..stream::Config::default()
    };
    let dead = context.create_stream(full).await.unwrap();
    let address = format!("{}&dead_subject=dead.full", uri(broker.url(), "refused"));
    let settings = NatsSettings::parse(&address).unwrap().with_visibility(LONG);
    let source: NatsSource<Message> = ready(settings).await;
    publish(&source, 6).await;
    let received = receive(&source, 5).await;
    let ends = vec![
        Settle::ack(received[0].receipt.clone()),
        Settle::park(received[1].receipt.clone()),
        Settle::park(received[2].receipt.clone()),
        Settle::ack(received[3].receipt.clone()),
    ];
    let answers = source.settle(ends).await.expect("each is answered by itself");
    let failed = |answer: &Settled| matches!(answer, Settled::Failed(_));
    assert_eq!((&answers[0], &answers[3]), (&Settled::Done, &Settled::Done), "{answers:?}");
    // One of the two was kept: there was room for one.
    assert_eq!(answers[1..3].iter().filter(|answer| failed(answer)).count(), 1, "{answers:?}");
    let late = if failed(&answers[1]) { &received[1] } else { &received[2] };
    // Nothing else is held up by it, however often it is tried.
    for _ in 0..5 {
        let again = source.settle(vec![Settle::park(late.receipt.clone())]).await.unwrap();
        assert!(failed(&again[0]), "{again:?}");
    }
    assert_eq!(ids(&source.receive(Demand::any(1)).await.unwrap()), ["m0005"]);
    assert_eq!(source.settle(acks(&received[4..])).await.unwrap(), [Settled::Done]);
    source.health().unwrap();
    // It goes on when there is room again.
    dead.purge().await.unwrap();
    let again = source.settle(vec![Settle::park(late.receipt.clone())]).await.unwrap();
    assert_eq!(again, [Settled::Done]);
    assert_eq!(dead.get_info().await.unwrap().state.messages, 1);
}

/// The user may not publish to where dead letters go: the server only falls silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_and_heartbeats_wait_for_no_burial() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.conf");
    let me = r#"{user: me, password: secret, permissions: {publish: {deny: ["dead.letters"]}}}"#;
    std::fs::write(&file, format!("authorization {{ users = [ {me} ] }}\n")).unwrap();
    let Some(server) = Guarded::start(&["-c", file.to_str().unwrap()]).await else { return };
    let address = uri(&server.url("me:secret@"), "silent");
    let settings = NatsSettings::parse(&format!("{address}&dead_subject=dead.letters")).unwrap();
    let source: NatsSource<Message> = ready(settings.with_visibility(LONG)).await;
    publish(&source, 30).await;
    let received = receive(&source, 30).await;
    let (dead, rest) = received.split_at(2);
    let burial = source.settle(receipts(dead).into_iter().map(Settle::park).collect());
    let others = async {
        let begun = Instant::now();
        for some in rest.chunks(4) {
            let extended = source.extend(receipts(&received)).await.unwrap();
            assert!(extended[..2].iter().all(|answer| *answer == Settled::Done), "{extended:?}");
            assert_eq!(source.settle(acks(some)).await.unwrap(), vec![Settled::Done; some.len()]);
        }
        begun.elapsed()
    };
    let (buried, took) = tokio::join!(burial, others);
    assert!(took < SOON, "acks took {took:?} beside a burial that hangs");
    let buried = buried.expect("each is answered by itself");
    assert!(buried.iter().all(|answer| matches!(answer, Settled::Failed(_))), "{buried:?}");
}

/// What is settled while it is being extended has not expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_that_meets_a_settlement_is_no_expiry() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "meeting", LONG).await;
    let mut missed = 0;
    for round in 0..20 {
        publish_some(&source, round, 40).await;
        let received = receive(&source, 40).await;
        let mut ends = acks(&received[..20]);
        ends.extend(untried(&received[20..]));
        let mut settled = pin!(source.settle(ends));
        let extended = source.extend(receipts(&received));
        // In every other round the settlement is under way first. On a busy machine all its answers may be there
        // before it waits for one: then the two do not meet.
        let over = if round % 2 == 0 { poll!(settled.as_mut()) } else { Poll::Pending };
        let (extended, settled) = match over {
            Poll::Ready(settled) => {
                missed += 1;
                (Ok(vec![Settled::Done; 40]), settled)
            }
            Poll::Pending => join(extended, settled).await,
        };
        assert_eq!(settled.unwrap(), vec![Settled::Done; 40], "round {round}");
        assert_eq!(extended.unwrap(), vec![Settled::Done; 40], "round {round}");
        // What was handed back comes at once: it was not hidden anew by the heartbeat.
        let begun = Instant::now();
        let back = receive(&source, 20).await;
        assert!(begun.elapsed() < SOON, "after {:?}", begun.elapsed());
        assert_eq!(source.settle(acks(&back)).await.unwrap(), vec![Settled::Done; 20]);
    }
    assert!(missed < 10, "they never met");
}

async fn publish_some(source: &NatsSource<Message>, round: usize, count: usize) {
    let messages = (0..count).map(|n| publication(&format!("r{round:02}m{n:02}"))).collect();
    source.publish(messages).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_nothing_is_hidden() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "hidden", LONG).await;
    publish(&source, 200).await;
    let received = receive(&source, 80).await;
    // Asked for, and never taken.
    let taken = timeout(Duration::ZERO, source.receive(Demand::any(50))).await;
    sleep(Duration::from_millis(100)).await;
    let mut received = received;
    received.extend(taken.into_iter().flat_map(Result::unwrap));
    let settled = source.settle(untried(&received)).await.unwrap();
    assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
    source.stop().await;
    assert_eq!(visible(&plain(&broker, "hidden").await, 200).await, 200);
}

/// What was held back for the sake of order is given back too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_nothing_is_held() {
    let Some(broker) = server() else { return };
    let strict = |n: usize| publication_in(&format!("m{n}"), "STRICT", Some("g"), false);
    for number in 0..10 {
        let queue = format!("held{number}");
        let source = open(broker.url(), &queue, LONG).await;
        source.publish((0..10).map(strict).collect()).await.unwrap();
        receive(&source, 4).await;
        drop(source);
        // On a busy machine more may have been on its way to the first life when it ended.
        if plain(&broker, &queue).await.get_info().await.unwrap().num_ack_pending > 4 {
            continue;
        }
        let source = open(broker.url(), &queue, LONG).await;
        source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
        assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
        source.stop().await;
        assert_eq!(visible(&plain(&broker, &queue).await, 6).await, 6);
        return;
    }
    panic!("every life left more behind than it should");
}

/// A hand-back that was no attempt counts none, though the server counts the delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handing_back_untried_counts_no_attempt() {
    let Some(broker) = server() else { return };
    let mut source = open(broker.url(), "untried", LONG).await;
    publish(&source, 1).await;
    for round in 0..6 {
        let received = receive(&source, 1).await;
        assert_eq!(received[0].attempts, 0, "round {round}");
        assert_eq!(source.settle(untried(&received)).await.unwrap(), [Settled::Done]);
        if round % 3 == 2 {
            source.stop().await;
            source = open(broker.url(), "untried", LONG).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_messages_are_different_messages() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "equal", LONG).await;
    let body = publication("same").body.to_string();
    publish_raw(broker.url(), "equal", body.clone()).await;
    let first = receive(&source, 1).await.remove(0);
    // Put in again while the first one is out.
    publish_raw(broker.url(), "equal", body).await;
    let second = receive(&source, 1).await.remove(0);
    assert_eq!(ids(&[first.clone(), second.clone()]), ["same", "same"]);
    assert_ne!(first.broker_id, second.broker_id);
    assert_eq!(settle(&source, &second.receipt, Settlement::Ack).await, Settled::Done);
    assert_eq!(source.extend(vec![first.receipt.clone()]).await.unwrap(), [Settled::Done]);
    assert_eq!(settle(&source, &first.receipt, Settlement::Ack).await, Settled::Done);
}

/// As many as a router's window holds are out at once, and are kept alive within a third of their window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_are_out_and_kept_alive() {
    let Some(broker) = server() else { return };
    let window = Duration::from_secs(30);
    let source = open(broker.url(), "many", window).await;
    publish(&source, 2_000).await;
    let mut received = Vec::new();
    while received.len() < 2_000 {
        received.extend(receive(&source, 100).await);
    }
    let begun = Instant::now();
    for some in received.chunks(source.profile().settle_batch) {
        let extended = source.extend(receipts(some)).await.unwrap();
        assert_eq!(extended, vec![Settled::Done; some.len()]);
    }
    assert!(begun.elapsed() < window / 3, "after {:?}", begun.elapsed());
    let depth = source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.out), (0, 2_000));
    for some in received.chunks(source.profile().settle_batch) {
        let settled = source.settle(acks(some)).await.unwrap();
        assert_eq!(settled, vec![Settled::Done; some.len()]);
    }
}
