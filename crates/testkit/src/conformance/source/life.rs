//! Stopping, being dropped and crashing: nothing is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Settled, Settlement};
use tokio::time::{Instant, sleep, timeout};

use super::stage::{Stage, again, id, ids, publication};
use super::{Check, any};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "stopping wakes who waits, and settling still works",
        needs: any,
        run: |stage| Box::pin(stopped(stage)),
    },
    Check {
        name: "a receive that is dropped while it waits takes nothing",
        needs: any,
        run: |stage| Box::pin(dropped_waiting(stage)),
    },
    Check {
        name: "receives that are dropped at any moment lose nothing",
        needs: any,
        run: |stage| Box::pin(dropped_anywhere(stage)),
    },
    Check {
        name: "after a crash all that is unsettled comes again, and nothing else",
        needs: |abilities| abilities.crashes,
        run: |stage| Box::pin(crashed(stage)),
    },
    Check {
        name: "after a crash a delay holds on",
        needs: |abilities| abilities.crashes,
        run: |stage| Box::pin(crashed_with_delays(stage)),
    },
    Check {
        name: "after a crash a key that is kept in order is, with its delayed head",
        needs: |abilities| abilities.crashes && abilities.keeps_order,
        run: |stage| Box::pin(crashed_in_order(stage)),
    },
];

async fn stopped(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let received = stage.receive(1).await;
    let second = stage.receive_one().await;
    let stop = async {
        sleep(Duration::from_millis(30)).await;
        stage.source().stop().await;
        Instant::now()
    };
    let wait = async {
        let received = stage.source().receive(Demand::any(10)).await.expect("it works");
        (received, Instant::now())
    };
    let ((none, ended), stopped) = tokio::join!(wait, stop);
    assert_eq!(none, []);
    assert!(ended - stopped < Duration::from_secs(2), "it went on for {:?}", ended - stopped);
    stage.done(&received[0]).await;
    assert_eq!(stage.settle(&second.receipt, again(Duration::ZERO)).await, Settled::Done);
    assert_eq!(stage.source().receive(Demand::any(10)).await.expect("it works"), []);
    stage.source().stop().await;
}

async fn dropped_waiting(stage: Stage) {
    for _ in 0..3 {
        let dropped =
            timeout(Duration::from_millis(5), stage.source().receive(Demand::any(10))).await;
        assert!(dropped.is_err(), "an empty queue answered {dropped:?}");
    }
    let begun = Instant::now();
    stage.publish_ids(&["m1", "m2"]).await;
    assert_eq!(stage.next_ids(2).await, ["m1", "m2"]);
    assert!(begun.elapsed() < stage.window(), "they came after {:?}", begun.elapsed());
}

async fn dropped_anywhere(stage: Stage) {
    let sent: BTreeSet<String> = (0..200).map(|n| format!("m{n:03}")).collect();
    let publish = async {
        for id in &sent {
            stage.publish(vec![publication(id)]).await;
        }
    };
    let mut seen = BTreeSet::new();
    let receive = async {
        let end = Instant::now() + Duration::from_secs(60);
        let mut patience = 0;
        while seen.len() < sent.len() && Instant::now() < end {
            patience = (patience + 7) % 1000;
            let some =
                timeout(Duration::from_micros(patience), stage.source().receive(Demand::any(3)))
                    .await;
            let Ok(some) = some else { continue };
            let some = some.expect("it works");
            for delivery in &some {
                assert!(seen.insert(id(delivery)), "{} came twice", id(delivery));
            }
            stage.all_done(&some).await;
        }
    };
    tokio::join!(publish, receive);
    assert_eq!(seen, sent);
}

async fn crashed(mut stage: Stage) {
    let sent: Vec<String> = (0..50).map(|n| format!("m{n:02}")).collect();
    stage.publish(sent.iter().map(|id| publication(id)).collect()).await;
    let received = stage.receive(30).await;
    let (done, out) = received.split_at(10);
    stage.all_done(done).await;
    assert_eq!(stage.settle(&out[0].receipt, again(Duration::ZERO)).await, Settled::Done);
    let old = out[5].receipt.clone();
    stage.crash().await;
    if stage.abilities.crash_frees {
        assert_eq!(stage.next_ids(40).await, sent[10..]);
    } else {
        // What was out comes after what waited, whose windows may have ended again by then.
        let mut next = BTreeSet::new();
        while next.len() < 40 {
            next.insert(id(&stage.receive_one().await));
        }
        assert!(next.iter().eq(&sent[10..]), "{next:?}");
    }
    assert_eq!(stage.settle(&old, Settlement::Ack).await, Settled::Stale);
}

async fn crashed_with_delays(mut stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let received = stage.receive(2).await;
    let begun = Instant::now();
    let delay = stage.window() * 2;
    stage.bring_back(&received[0], delay).await;
    stage.crash().await;
    let second = stage.receive_one().await;
    assert_eq!(id(&second), "m2");
    stage.done(&second).await;
    // The clocks of before and after may differ by a tick.
    stage.expect_nothing_until(begun + delay - Duration::from_millis(20)).await;
    assert_eq!(stage.next_ids(1).await, ["m1"]);
}

async fn crashed_in_order(mut stage: Stage) {
    stage.publish_in_order().await;
    let received = stage.receive(2).await;
    assert_eq!(ids(&received), ["a1", "b1"]);
    let begun = Instant::now();
    let delay = stage.window() * 2;
    stage.bring_back(&received[0], delay).await;
    stage.crash().await;
    stage.keep_order();
    let other = stage.receive_one().await;
    assert_eq!(id(&other), "b1");
    stage.done(&other).await;
    stage.expect_nothing_until(begun + delay - Duration::from_millis(20)).await;
    let head = stage.receive_one().await;
    assert_eq!(id(&head), "a1");
    stage.expect_nothing_now().await;
    stage.done(&head).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
}
