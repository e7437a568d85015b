//! Lost connections, crashed brokers and silent ones: nothing is lost, and nothing is misapplied.

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Settle, Settled, Settlement, Source};
use sluicegate_sources::stomp::StompSettings;
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use tokio::time::{Instant, sleep};

use crate::rig::{fresh_name, settings};
use crate::stage::{
    Queue, Seen, again, drain, drain_until_seen, expect_nothing, id, ids, numbered, open, publish,
    receipts, receive, settle, settle_all, until, within,
};
use crate::wire::Wire;

fn through(wire: &Wire) -> StompSettings {
    StompSettings::parse(&format!("activemq://{}/{}", wire.address, fresh_name())).unwrap()
}

#[tokio::test]
async fn after_a_cut_all_that_is_unsettled_comes_again_in_order() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let wire = Wire::new(broker.address(), None).await;
    let source = open(through(&wire)).await;
    let sent = numbered(30);
    publish(&source, sent.clone()).await;
    let first = receive(&source, 20).await;
    settle_all(&source, receipts(&first[..5]), Settlement::Ack).await.unwrap();
    wire.set_down(true);
    until("it notices", || source.health().is_err()).await;
    wire.set_down(false);
    let second = receive(&source, 25).await;
    assert_eq!(ids(&second), sent[5..]);
    for (old, new) in first[5..].iter().zip(&second) {
        assert_eq!((&old.broker_id, id(old)), (&new.broker_id, id(new)));
        assert_ne!(old.receipt, new.receipt);
    }
    let stale = vec![Settled::Stale; 15];
    let old = receipts(&first[5..]);
    assert_eq!(within(source.extend(old.clone())).await.unwrap(), stale);
    assert_eq!(settle_all(&source, old.clone(), Settlement::Ack).await.unwrap(), stale);
    assert_eq!(settle_all(&source, old.clone(), again(Duration::ZERO, 1)).await.unwrap(), stale);
    assert_eq!(
        within(source.settle(old.into_iter().map(Settle::park).collect())).await.unwrap(),
        stale
    );
    let settled = settle_all(&source, receipts(&second), Settlement::Ack).await.unwrap();
    assert_eq!(settled, vec![Settled::Done; 25]);
    expect_nothing(&source, Duration::from_secs(1)).await;
    assert_eq!(within(source.depth()).await.unwrap().out, 0);
}

#[tokio::test]
async fn while_there_is_no_connection_errors_are_answered_and_no_faster_than_can_be_used() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let wire = Wire::new(broker.address(), None).await;
    let source = open(through(&wire)).await;
    publish(&source, numbered(1)).await;
    let received = receive(&source, 1).await;
    wire.set_down(true);
    until("it notices", || source.health().is_err()).await;
    let begun = Instant::now();
    for _ in 0..2 {
        assert!(within(source.receive(Demand::any(1))).await.is_err());
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(settle(&source, &received[0], Settlement::Ack).await, Settled::Stale);
    wire.set_down(false);
    until("it is back", || source.health().is_ok()).await;
    assert_eq!(ids(&receive(&source, 1).await), ["m000"]);
}

/// The broker is killed with messages out, waiting and delayed.
#[tokio::test]
async fn after_a_crash_of_the_broker_everything_is_there_in_order() {
    let Some(mut broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    let sent = numbered(40);
    publish(&source, sent.clone()).await;
    let first = receive(&source, 20).await;
    settle_all(&source, receipts(&first[..5]), Settlement::Ack).await.unwrap();
    let begun = Instant::now();
    let delay = Duration::from_secs(4);
    let settled = settle_all(&source, receipts(&first[5..8]), again(delay, 2)).await.unwrap();
    assert_eq!(settled, vec![Settled::Done; 3]);
    // Kept here and unacknowledged: its place in line holds.
    let settled = settle(&source, &first[10], again(Duration::ZERO, 0)).await;
    assert_eq!(settled, Settled::Done);
    broker.crash();
    until("it notices", || source.health().is_err()).await;
    broker.restart().unwrap();
    let second = receive(&source, 32).await;
    assert_eq!(ids(&second), sent[8..]);
    settle_all(&source, receipts(&second), Settlement::Ack).await.unwrap();
    let mut delayed = receive(&source, 3).await;
    assert!(begun.elapsed() >= delay, "they came after {:?}", begun.elapsed());
    delayed.sort_by_key(id);
    assert_eq!(ids(&delayed), sent[5..8]);
    assert!(delayed.iter().all(|delivery| delivery.attempts == 2));
    let known: BTreeSet<_> = first[5..8].iter().map(|delivery| &delivery.broker_id).collect();
    assert!(delayed.iter().all(|delivery| known.contains(&delivery.broker_id)));
    // One of them once more without a delay, but with its attempts: copies that have come, or could,
    // are as safe as delayed ones.
    let settled = settle(&source, &delayed[0], again(Duration::ZERO, 7)).await;
    assert_eq!(settled, Settled::Done);
    broker.crash();
    until("it notices", || source.health().is_err()).await;
    broker.restart().unwrap();
    let mut copies = receive(&source, 3).await;
    copies.sort_by_key(id);
    assert_eq!(ids(&copies), sent[5..8]);
    assert_eq!(copies.iter().map(|copy| copy.attempts).collect::<Vec<_>>(), [7, 2, 2]);
    settle_all(&source, receipts(&copies), Settlement::Ack).await.unwrap();
    expect_nothing(&source, Duration::from_secs(2)).await;
}

/// The wire breaks after each of many numbers of bytes, so at every step of a settlement: before and
/// after a copy, its receipt, the acknowledgement and the receipt of that.
#[tokio::test]
async fn wherever_a_settlement_is_cut_nothing_is_lost() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let wire = Wire::new(broker.address(), None).await;
    let source = open(through(&wire)).await;
    let (mut stale, mut done) = (0, 0);
    let (mut all_gone, mut seen) = (Vec::new(), Seen::new());
    for round in 0..60 {
        let sent: Vec<String> = (0..8).map(|n| format!("r{round}/{n}")).collect();
        until("both connections are there", || source.health().is_ok()).await;
        publish(&source, sent.clone()).await;
        // What is left of the rounds before is settled on the way.
        let mut received = Vec::new();
        while received.len() < 8 {
            for delivery in receive(&source, 1).await {
                if sent.contains(&id(&delivery)) {
                    received.push(delivery);
                } else {
                    settle(&source, &delivery, Settlement::Ack).await;
                    *seen.entry(id(&delivery)).or_default() += 1;
                }
            }
        }
        let (gone, back) = received.split_at(4);
        let retry = again(Duration::from_millis(50), 1);
        wire.cut_after(60 * round + 7);
        let (gone, answers) = tokio::join!(
            settle_all(&source, receipts(gone), Settlement::Ack),
            settle_all(&source, receipts(back), retry),
        );
        wire.cut_after(i64::MAX / 2);
        let (gone, answers) = (gone.unwrap(), answers.unwrap());
        let all = gone.iter().chain(&answers);
        done += all.clone().filter(|settled| **settled == Settled::Done).count();
        stale += all.filter(|settled| **settled != Settled::Done).count();
        // As a router does: what could not be copied is settled again.
        for (delivery, answer) in back.iter().zip(&answers) {
            let mut answer = answer.clone();
            while matches!(answer, Settled::Failed(_)) {
                until("both connections are there", || source.health().is_ok()).await;
                answer = settle(&source, delivery, retry).await;
            }
        }
        // What was brought back comes, whatever the answer was.
        drain_until_seen(&source, &sent[4..], &mut seen).await;
        all_gone.extend_from_slice(&sent[..4]);
    }
    for (id, count) in drain(&source, Duration::from_secs(3)).await {
        *seen.entry(id).or_default() += count;
    }
    // What is gone for sure does not come, and what was about to go does not either: its end is made
    // up for.
    let came: Vec<_> = all_gone.iter().filter(|id| seen.contains_key(*id)).collect();
    assert!(came.is_empty(), "{came:?} came again");
    let twice = seen.values().filter(|count| **count > 1).count();
    println!("{done} settled, {stale} cut; of 240 brought back {twice} came twice");
    assert!(stale > 50 && done > 50, "{stale} were cut and {done} were not");
}

/// The broker is killed while messages are brought back with a delay.
#[tokio::test]
async fn delayed_retries_survive_the_broker_being_killed_at_any_moment() {
    let Some(mut broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    let mut seen = Seen::new();
    for round in 0..8_u64 {
        let sent: Vec<String> = (0..40).map(|n| format!("r{round}/{n:02}")).collect();
        publish(&source, sent.clone()).await;
        let received = receive(&source, 40).await;
        let back = async {
            for lot in received.chunks(5) {
                let settlement = again(Duration::from_millis(500), 1);
                settle_all(&source, receipts(lot), settlement).await.unwrap();
            }
        };
        let kill = async {
            sleep(Duration::from_millis(3 + 7 * round)).await;
            broker.crash();
        };
        tokio::join!(back, kill);
        broker.restart().unwrap();
        until("it is back", || source.health().is_ok()).await;
        drain_until_seen(&source, &sent, &mut seen).await;
        for (id, count) in drain(&source, Duration::from_secs(1)).await {
            *seen.entry(id).or_default() += count;
        }
    }
    let twice = seen.values().filter(|count| **count > 1).count();
    println!("320 brought back over 8 crashes, none lost, {twice} delivered twice");
}

/// The broker is killed while messages end: what was confirmed to be gone is.
#[tokio::test]
async fn what_is_gone_stays_gone_when_the_broker_is_killed() {
    let Some(mut broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    for round in 0..4_u64 {
        let sent: Vec<String> = (0..100).map(|n| format!("r{round}/{n:02}")).collect();
        publish(&source, sent.clone()).await;
        let received = receive(&source, 100).await;
        let mut gone = Vec::new();
        let end = async {
            for lot in received.chunks(10) {
                let settled = settle_all(&source, receipts(lot), Settlement::Ack).await.unwrap();
                let done = lot.iter().zip(settled).filter(|(_, s)| *s == Settled::Done);
                gone.extend(done.map(|(delivery, _)| id(delivery)));
            }
        };
        let kill = async {
            sleep(Duration::from_millis(3 + 10 * round)).await;
            broker.crash();
        };
        tokio::join!(end, kill);
        broker.restart().unwrap();
        until("it is back", || source.health().is_ok()).await;
        let seen = drain(&source, Duration::from_secs(2)).await;
        let back: Vec<_> = gone.iter().filter(|id| seen.contains_key(*id)).collect();
        assert!(back.is_empty(), "round {round}: {back:?} came again");
        assert!(gone.len() + seen.len() <= 100);
    }
}

#[tokio::test]
async fn a_broker_that_is_silent_is_left_and_found_again() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name()).with_heartbeat(Duration::from_secs(2));
    let source = open(settings).await;
    publish(&source, numbered(5)).await;
    let received = receive(&source, 3).await;
    broker.pause();
    let begun = Instant::now();
    let settled = settle_all(&source, receipts(&received), Settlement::Ack).await.unwrap();
    assert_eq!(settled, vec![Settled::Stale; 3]);
    // Sooner than by the patience with receipts, so by the missing signs of life.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert!(source.health().is_err());
    broker.resume();
    until("it is back", || source.health().is_ok()).await;
    let seen = drain(&source, Duration::from_secs(3)).await;
    // What was about to go is gone: the broker read of it when it woke up, or it was made up for.
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), ["m003", "m004"]);
}

/// A live connection that has nothing to do stays.
#[tokio::test]
async fn beats_keep_an_idle_connection() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name()).with_heartbeat(Duration::from_secs(2));
    let source = open(settings).await;
    publish(&source, numbered(1)).await;
    let received = receive(&source, 1).await;
    expect_nothing(&source, Duration::from_secs(7)).await;
    // A receipt of another connection would be stale.
    assert_eq!(settle(&source, &received[0], Settlement::Ack).await, Settled::Done);
}

#[tokio::test]
async fn who_asks_for_a_settlement_may_go_away() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let source = open(settings.clone()).await;
    publish(&source, numbered(10)).await;
    let received = receive(&source, 10).await;
    let (gone, back) = received.split_at(5);
    let settlement = again(Duration::from_millis(300), 4);
    for (delivery, settlement) in
        gone.iter().map(|d| (d, Settlement::Ack)).chain(back.iter().map(|d| (d, settlement)))
    {
        let receipt = delivery.receipt.clone();
        drop(source.settle(vec![sluicegate_dispatch::Settle { receipt, settlement }]));
    }
    let again = receive(&source, 5).await;
    assert!(again.iter().all(|delivery| delivery.attempts == 4));
    assert_eq!(again.iter().map(id).collect::<BTreeSet<_>>(), back.iter().map(id).collect());
    settle_all(&source, receipts(&again), Settlement::Ack).await.unwrap();
    drop(source);
    expect_nothing(&open(settings).await, Duration::from_secs(2)).await;
}

#[tokio::test]
async fn sources_that_go_away_leave_no_connection() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let source = open(settings.clone()).await;
    publish(&source, numbered(3)).await;
    let received = receive(&source, 1).await;
    let other: Queue = open(settings).await;
    // The first one has all of them until it goes, or is stopped and has nothing out.
    expect_nothing(&other, Duration::from_secs(1)).await;
    within(source.stop()).await;
    expect_nothing(&other, Duration::from_secs(1)).await;
    assert_eq!(settle(&source, &received[0], Settlement::Ack).await, Settled::Done);
    assert_eq!(ids(&receive(&other, 2).await), ["m001", "m002"]);
    drop(other);
    assert!(within(source.receive(Demand::any(1))).await.unwrap().is_empty());
}
