//! What FIFO queues promise beyond standard ones.

use std::time::Duration;

use sluicegate_dispatch::{Demand, Publication, Settled, Settlement, Source};
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::Instant;

use crate::stage::*;

fn of(group: &str, id: &str) -> Publication {
    publication_in(id, "POOL", Some(group), false)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_locked_while_some_of_it_is_out_for_all_instances() {
    let Some(broker) = broker() else { return };
    let settings = settings(broker.url(), &fresh(".fifo")).with_visibility(Duration::from_secs(60));
    let (source, other) = (open(settings.clone()).await, open(settings).await);
    source.publish(vec![of("a", "a1"), of("a", "a2"), of("b", "b1")]).await.unwrap();
    let head = take(&*source, 1).await;
    assert_eq!(ids(&head), ["a1"]);
    let rest = take(&*other, 1).await;
    assert_eq!(ids(&rest), ["b1"]);
    nothing_for(&*other, Duration::from_secs(3)).await;
    // Handed back, it holds its group until it is due.
    let begun = Instant::now();
    let delay = Duration::from_secs(4);
    assert_eq!(settle(&*source, &head[0], again(delay, 1)).await, Settled::Done);
    let head = take(&*source, 1).await;
    assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
    assert_eq!((ids(&head), head[0].attempts), (vec!["a1".to_owned()], 1));
    all_done(&*source, &head).await;
    assert_eq!(ids(&take(&*other, 1).await), ["a2"]);
}

/// FIFO queues know no delay for one message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_message_holds_its_group_and_is_not_overtaken() {
    let Some(broker) = broker() else { return };
    let settings = settings(broker.url(), &fresh(".fifo"));
    let source = open(settings.clone()).await;
    let delay = Duration::from_secs(5);
    let late = Publication { delay, ..of("a", "a1") };
    let begun = Instant::now();
    let others = vec![late, of("a", "a2"), of("a", "a3"), of("b", "b1")];
    source.publish(others).await.unwrap();
    let depth = source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (3, 1, 0));
    // All of them come in one batch, and those behind the late one are not handed over.
    let first = source.receive(Demand::any(10)).await.unwrap();
    assert_eq!(ids(&first), ["b1"]);
    all_done(&*source, &first).await;
    // Whoever receives it knows.
    let other = open(settings).await;
    for id in ["a1", "a2", "a3"] {
        let next = take(&*other, 1).await;
        assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
        assert_eq!((ids(&next), next[0].attempts), (vec![id.to_owned()], 0));
        all_done(&*other, &next).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_seen_before_is_not_stored_again() {
    let Some(broker) = broker() else { return };
    let source = open(settings(broker.url(), &fresh(".fifo"))).await;
    let long = "x".repeat(500);
    for id in ["m1", "日本語", &long] {
        for _ in 0..2 {
            assert_eq!(source.publish(vec![publication(id)]).await.unwrap().accepted, 1);
        }
        let received = take(&*source, 1).await;
        assert_eq!(ids(&received), [id]);
        all_done(&*source, &received).await;
        nothing_for(&*source, Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_holds_through_retries_and_windows_that_end() {
    let Some(broker) = broker() else { return };
    let source = open(settings(broker.url(), &fresh(".fifo"))).await;
    let names = |group: &str| -> Vec<String> { (0..8).map(|n| format!("{group}{n}")).collect() };
    for n in 0..8 {
        let messages = ["a", "b", "c"].map(|group| of(group, &names(group)[n]));
        source.publish(messages.into()).await.unwrap();
    }
    let mut done: Vec<String> = Vec::new();
    let mut round = 0;
    let end = Instant::now() + PATIENCE;
    while done.len() < 24 {
        assert!(Instant::now() < end, "{done:?}");
        for delivery in source.receive(Demand::any(1)).await.unwrap() {
            round += 1;
            match round % 7 {
                0 => {
                    let back = again(Duration::from_secs(1), 1);
                    settle(&*source, &delivery, back).await;
                }
                1 if round < 10 => {} // It comes back when its window ends.
                _ => {
                    if settle(&*source, &delivery, Settlement::Ack).await == Settled::Done {
                        done.extend(ids(&[delivery]));
                    }
                }
            }
        }
    }
    for group in ["a", "b", "c"] {
        let of: Vec<_> = done.iter().filter(|id| id.starts_with(group)).cloned().collect();
        assert_eq!(of, names(group));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_group_comes_in_order_while_several_polls_are_under_way() {
    let Some(broker) = broker() else { return };
    let source = open(settings(broker.url(), &fresh(".fifo"))).await;
    let names = |group: &str| -> Vec<String> { (0..35).map(|n| format!("{group}{n}")).collect() };
    for n in 0..35 {
        let messages = ["a", "b", "c"].map(|group| of(group, &names(group)[n]));
        source.publish(messages.into()).await.unwrap();
    }
    let mut done: Vec<String> = Vec::new();
    let end = Instant::now() + PATIENCE;
    while done.len() < 105 {
        assert!(Instant::now() < end, "{done:?}");
        let some = source.receive(Demand::any(100)).await.unwrap();
        all_done(&*source, &some).await;
        done.extend(ids(&some));
    }
    for group in ["a", "b", "c"] {
        let of: Vec<_> = done.iter().filter(|id| id.starts_with(group)).cloned().collect();
        assert_eq!(of, names(group));
    }
}
