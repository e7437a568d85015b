//! Faults that no emulation shows: throttling, answers that are lost, late or untrue, and entries
//! that fail inside a call that succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_dispatch::{Demand, Settle, Settled, Settlement, Source};
use sluicegate_sources::sqs::SqsSource;
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, timeout};

use crate::proxy::{Act, Proxy, error};
use crate::stage::*;

/// A queue behind a proxy.
async fn behind_proxy(suffix: &str) -> Option<(Broker, Proxy, Arc<SqsSource>)> {
    let broker = broker()?;
    let proxy = Proxy::start(broker.address()).await;
    let source = open(settings(proxy.url(), &fresh(suffix))).await;
    Some((broker, proxy, source))
}

async fn publish(source: &SqsSource, ids: &[&str]) {
    let messages = ids.iter().map(|id| publication(id)).collect();
    assert_eq!(source.publish(messages).await.unwrap().accepted, ids.len() as u64);
}

fn gone(deliveries: &[sluicegate_dispatch::Delivery]) -> Vec<Settle> {
    let gone = |delivery: &sluicegate_dispatch::Delivery| Settle {
        receipt: delivery.receipt.clone(),
        settlement: Settlement::Ack,
    };
    deliveries.iter().map(gone).collect()
}

/// How many entries the calls of this name had, one after the other.
fn entries(proxy: &Proxy, name: &str) -> Vec<usize> {
    let count = |call: &Value| call["Entries"].as_array().map_or(0, Vec::len);
    proxy.calls(name).iter().map(count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttling_is_told_and_waited_for() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    for (status, code) in [(400, "RequestThrottled"), (500, "InternalFailure"), (503, "Busy")] {
        proxy.rule(move |name, _| match name {
            "ReceiveMessage" => error(status, code),
            _ => Act::Pass,
        });
        until("it fails", || async { source.receive(Demand::any(10)).await.is_err() }).await;
        let cause = source.health().unwrap_err().cause;
        assert!(cause.contains(code), "{cause}");
        let before = proxy.calls("ReceiveMessage").len();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            drop(source.receive(Demand::any(10)).await);
        }
        // 100 ms, doubled each time and at least half of that.
        let calls = proxy.calls("ReceiveMessage").len() - before;
        assert!(calls <= 7, "{calls} calls in {:?}", begun.elapsed());
        proxy.pass();
        publish(&source, &["m1"]).await;
        let received = take(&*source, 1).await;
        source.health().unwrap();
        all_done(&*source, &received).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_entries_that_fail_are_settled_again() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    publish(&source, &["m0", "m1", "m2", "m3", "m4"]).await;
    let received = take(&*source, 5).await;
    let round = AtomicUsize::new(0);
    proxy.rule(move |name, _| match name {
        "DeleteMessageBatch" if round.fetch_add(1, Ordering::Relaxed) == 0 => {
            Act::Fail(Box::new(|index| {
                (index % 2 == 1).then_some(("InternalError", "try again", false))
            }))
        }
        _ => Act::Pass,
    });
    all_done(&*source, &received).await;
    assert_eq!(entries(&proxy, "DeleteMessageBatch"), [5, 2]);
    nothing_for(&*source, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_fails_holds_only_itself() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    publish(&source, &["m0", "m1", "m2"]).await;
    let received = take(&*source, 3).await;
    proxy.rule(|name, _| match name {
        // The first of each call.
        "DeleteMessageBatch" => {
            Act::Fail(Box::new(|index| (index == 0).then_some(("InternalError", "", false))))
        }
        _ => Act::Pass,
    });
    let answers = source.settle(gone(&received)).await.unwrap();
    assert!(
        matches!(&answers[0], Settled::Failed(why) if why.cause.contains("InternalError")),
        "{answers:?}"
    );
    assert_eq!(answers[1..], [Settled::Done, Settled::Done]);
    assert_eq!(entries(&proxy, "DeleteMessageBatch"), [3, 1, 1]);
    proxy.pass();
    // As a router does: the same again.
    assert_eq!(source.settle(gone(&received[..1])).await.unwrap(), [Settled::Done]);
    assert_eq!(entries(&proxy, "DeleteMessageBatch"), [3, 1, 1, 1]);
    assert_eq!(source.settle(gone(&received)).await.unwrap(), vec![Settled::Stale; 3]);
    nothing_for(&*source, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_many_is_settled_in_calls_of_ten_with_a_fate_for_each() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    let sent: Vec<String> = (0..25).map(|n| format!("m{n:02}")).collect();
    publish(&source, &sent.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let received = take(&*source, 25).await;
    proxy.rule(|name, _| match name {
        "DeleteMessageBatch" => Act::Fail(Box::new(|index| {
            (index == 4).then_some(("ReceiptHandleIsInvalid", "", true))
        })),
        _ => Act::Pass,
    });
    let answers = source.settle(gone(&received)).await.unwrap();
    let stale: Vec<usize> = (0..25).filter(|n| answers[*n] == Settled::Stale).collect();
    assert_eq!(stale, [4, 14, 24]);
    let mut calls = entries(&proxy, "DeleteMessageBatch");
    calls.sort_unstable();
    assert_eq!(calls, [5, 10, 10]);
    // Those come again when their windows end, and are deleted then.
    proxy.pass();
    nothing_for(&*source, Duration::from_secs(6)).await;
    until("they are gone", || async { source.depth().await.unwrap() == Default::default() }).await;
}

/// Paper 002: deferred deletes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_deleted_is_deleted_when_it_comes_again() {
    let expired = [
        ("", "ReceiptHandleIsInvalid", ""),
        (".fifo", "InvalidParameterValue", "Reason: The receipt handle has expired."),
    ];
    for (suffix, code, words) in expired {
        let Some((_broker, proxy, source)) = behind_proxy(suffix).await else { return };
        publish(&source, &["m1"]).await;
        let received = take(&*source, 1).await;
        proxy.rule(move |name, _| match name {
            "DeleteMessageBatch" => Act::Fail(Box::new(move |_| Some((code, words, true)))),
            _ => Act::Pass,
        });
        assert_eq!(settle(&*source, &received[0], Settlement::Ack).await, Settled::Stale);
        proxy.pass();
        nothing_for(&*source, Duration::from_secs(6)).await;
        assert_eq!(entries(&proxy, "DeleteMessageBatch"), [1, 1], "{suffix}");
        assert_eq!(source.depth().await.unwrap(), Default::default());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_be_deleted_and_is_not_is_deleted_when_it_comes_again() {
    // Within the window, and after it.
    for wait in [Duration::ZERO, Duration::from_secs(5)] {
        let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
        publish(&source, &["m1"]).await;
        let received = take(&*source, 1).await;
        proxy.rule(|name, call| match name {
            "DeleteMessageBatch" => {
                let all = call["Entries"].as_array().unwrap();
                let ids: Vec<Value> = all.iter().map(|entry| json!({"Id": entry["Id"]})).collect();
                Act::Answer(200, json!({"Successful": ids, "Failed": []}))
            }
            _ => Act::Pass,
        });
        tokio::time::sleep(wait).await;
        let expected = if wait.is_zero() { Settled::Done } else { Settled::Stale };
        assert_eq!(settle(&*source, &received[0], Settlement::Ack).await, expected);
        proxy.pass();
        nothing_for(&*source, Duration::from_secs(6)).await;
        assert_eq!(source.depth().await.unwrap(), Default::default());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_whose_answer_is_lost_is_not_undone() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    publish(&source, &["m1", "m2"]).await;
    let received = take(&*source, 2).await;
    let lost = AtomicUsize::new(0);
    proxy.rule(move |name, _| match name {
        "DeleteMessageBatch" if lost.fetch_add(1, Ordering::Relaxed) == 0 => Act::Lose,
        _ => Act::Pass,
    });
    // The client asks again. The emulation does not know the receipts then; SQS would say yes.
    let settled = source.settle(gone(&received)).await.unwrap();
    assert_eq!(settled, vec![Settled::Stale; 2]);
    nothing_for(&*source, Duration::from_secs(5)).await;
    assert_eq!(source.depth().await.unwrap(), Default::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_of_a_fifo_queue_whose_answer_is_lost_is_repeated_as_the_same() {
    let Some((_broker, proxy, source)) = behind_proxy(".fifo").await else { return };
    publish(&source, &["m1"]).await;
    let lost = AtomicUsize::new(0);
    proxy.rule(move |name, _| match name {
        "ReceiveMessage" if lost.fetch_add(1, Ordering::Relaxed) == 0 => Act::Lose,
        _ => Act::Pass,
    });
    source.receive(Demand::any(10)).await.unwrap_err();
    let received = take(&*source, 1).await;
    let polls = proxy.calls("ReceiveMessage");
    let id = |poll: &Value| poll["ReceiveRequestAttemptId"].as_str().unwrap().to_owned();
    assert_eq!(id(&polls[0]), id(&polls[1]));
    if let Some(third) = polls.get(2) {
        assert_ne!(id(third), id(&polls[0]));
    }
    all_done(&*source, &received).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_the_poll_and_hands_back_what_it_brings() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    proxy.rule(|name, _| match name {
        "ReceiveMessage" => Act::Stall(Duration::from_secs(3)),
        _ => Act::Pass,
    });
    publish(&source, &["m1"]).await;
    let stop = async {
        until("it polls", || async { !proxy.calls("ReceiveMessage").is_empty() }).await;
        let begun = Instant::now();
        source.stop().await;
        (begun, begun.elapsed())
    };
    let receive = async {
        let received = source.receive(Demand::any(10)).await;
        (received, Instant::now())
    };
    let ((received, answered), (begun, took)) = tokio::join!(receive, stop);
    // Who waits for messages is answered at once.
    assert_eq!(received.unwrap(), []);
    assert!(answered - begun < Duration::from_secs(2), "{:?}", answered - begun);
    // What the late answer brought is handed back, not kept for a window.
    assert!(took < Duration::from_secs(7), "{took:?}");
    assert_eq!(proxy.calls("ChangeMessageVisibilityBatch").len(), 1);
    assert_eq!(source.depth().await.unwrap().waiting, 1);
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_never_answers_is_given_up_on() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    proxy.rule(|name, _| match name {
        "ReceiveMessage" => Act::Stall(Duration::from_secs(600)),
        _ => Act::Pass,
    });
    let begun = Instant::now();
    let error = timeout(PATIENCE, source.receive(Demand::any(10))).await.unwrap().unwrap_err();
    // The wait of 2 seconds, and 5 more.
    assert!(begun.elapsed() >= Duration::from_secs(7), "{:?}", begun.elapsed());
    assert!(error.cause.contains("in time"), "{error}");
    proxy.pass();
    publish(&source, &["m1"]).await;
    take(&*source, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_group_are_published_in_order_though_some_are_refused_at_first() {
    let Some((_broker, proxy, source)) = behind_proxy(".fifo").await else { return };
    let calls = AtomicUsize::new(0);
    proxy.rule(move |name, _| match name {
        "SendMessageBatch" if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
            Act::Fail(Box::new(|index| (index == 0).then_some(("InternalError", "", false))))
        }
        _ => Act::Pass,
    });
    let sent = ["a1", "b1", "c1", "a2", "b2", "a3", "b3"];
    let message = |id: &&str| publication_in(id, "POOL", Some(&id[..1]), false);
    source.publish(sent.iter().map(message).collect()).await.unwrap();
    let received = ids(&take(&*source, 7).await);
    for group in ["a", "b", "c"] {
        let of: Vec<_> = received.iter().filter(|id| id.starts_with(group)).collect();
        assert!(of.is_sorted(), "{received:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publication_that_is_refused_says_how_many_were_stored() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    proxy.rule(|name, _| match name {
        "SendMessageBatch" => Act::Fail(Box::new(|index| {
            (index == 1).then_some(("InvalidMessageContents", "no", true))
        })),
        _ => Act::Pass,
    });
    let messages = ["m0", "m1", "m2"].map(publication).into();
    let error = source.publish(messages).await.unwrap_err().to_string();
    assert!(error.contains("InvalidMessageContents") && error.contains("2 of 3"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extending_is_answered_for_each() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    publish(&source, &["m0", "m1", "m2"]).await;
    let received = take(&*source, 3).await;
    let receipts = || received.iter().map(|delivery| delivery.receipt.clone()).collect();
    proxy.rule(|name, _| match name {
        "ChangeMessageVisibilityBatch" => {
            Act::Fail(Box::new(|index| (index == 1).then_some(("MessageNotInflight", "", true))))
        }
        _ => Act::Pass,
    });
    let expected = [Settled::Done, Settled::Stale, Settled::Done];
    assert_eq!(source.extend(receipts()).await.unwrap(), expected);
    proxy.rule(|name, _| match name {
        "ChangeMessageVisibilityBatch" => error(500, "InternalFailure"),
        _ => Act::Pass,
    });
    let failed = source.extend(receipts()).await.unwrap();
    assert!(failed.iter().all(|answer| matches!(answer, Settled::Failed(_))), "{failed:?}");
    proxy.pass();
    assert_eq!(source.extend(receipts()).await.unwrap(), vec![Settled::Done; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_delay_is_longer_than_the_service_allows_and_seconds_are_rounded_up() {
    let Some((_broker, proxy, source)) = behind_proxy("").await else { return };
    publish(&source, &["m0", "m1", "m2"]).await;
    let received = take(&*source, 3).await;
    let delays = [Duration::from_secs(90_000), Duration::from_millis(1001), Duration::ZERO];
    for (delivery, delay) in received.iter().zip(delays) {
        assert_eq!(settle(&*source, delivery, again(delay, 1)).await, Settled::Done);
    }
    let asked: Vec<u64> = proxy
        .calls("ChangeMessageVisibilityBatch")
        .iter()
        .map(|call| call["Entries"][0]["VisibilityTimeout"].as_u64().unwrap_or(0))
        .collect();
    assert!(asked[0] <= 43_199 && asked[0] > 43_000, "{asked:?}");
    assert_eq!(asked[1..], [2, 0]);
    assert_eq!(source.depth().await.unwrap().delayed, 2);
}
