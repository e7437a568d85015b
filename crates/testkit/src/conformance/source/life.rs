//! Stopping, being dropped and crashing: nothing is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Reason, Settled, Settlement};
use tokio::time::{Instant, sleep, timeout};

use super::stage::{Stage, again, id, ids, publication, strict, strict_high};
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
    Check {
        name: "what rests has its attempts and its time when its window ends",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(rests_beyond_its_window(stage)),
    },
    Check {
        name: "what rests is out until then, and is settled as ever",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(rests_and_is_settled(stage)),
    },
    Check {
        name: "after a crash a head that rested has its attempts and its time, and nothing goes before it",
        needs: |abilities| abilities.keeps_rests && abilities.crashes,
        run: |stage| Box::pin(crashed_at_rest(stage)),
    },
    Check {
        name: "after a crash a head that was out goes before high priority that came since",
        needs: |abilities| abilities.keeps_rests && abilities.crashes,
        run: |stage| Box::pin(crashed_before_high_priority(stage)),
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
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a"), strict("b1", "b")]).await;
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

async fn rests_beyond_its_window(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a"), strict("b1", "b")]).await;
    let received = stage.receive(2).await;
    let begun = Instant::now();
    let delay = stage.window() * 2;
    assert_eq!(stage.rest(&received[0], delay, 3).await, Settled::Done);
    stage.done(&received[1]).await;
    let head = stage.receive_not_before(begun + delay).await;
    assert_eq!((id(&head).as_str(), head.attempts), ("a1", 3));
    assert_eq!(stage.rest(&received[0], delay, 4).await, Settled::Stale);
    stage.done(&head).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
}

async fn rests_and_is_settled(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a"), strict("b1", "b")]).await;
    let [first, other] = &stage.receive(2).await[..] else { panic!("two came") };
    assert_eq!(stage.rest(first, stage.window() * 10, 1).await, Settled::Done);
    assert_eq!(stage.rest(other, stage.window() * 10, 2).await, Settled::Done);
    let depth = stage.source().depth().await.expect("it counts");
    assert_eq!((depth.waiting, depth.delayed, depth.out), (1, 0, 2));
    stage.expect_nothing_now().await;
    stage.done(first).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
    let settlement =
        Settlement::Retry { after: Duration::ZERO, attempts: 5, reason: Reason::Failed };
    assert_eq!(stage.settle(&other.receipt, settlement).await, Settled::Done);
    let other = stage.receive_one().await;
    assert_eq!((id(&other).as_str(), other.attempts), ("b1", 5));
}

async fn crashed_at_rest(mut stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    let head = stage.receive_one().await;
    let begun = Instant::now();
    let delay = stage.window() * 2;
    assert_eq!(stage.rest(&head, delay, 2).await, Settled::Done);
    stage.publish(vec![strict_high("h1", "a")]).await;
    stage.crash().await;
    stage.keep_order();
    stage.expect_nothing_until(begun + delay - Duration::from_millis(20)).await;
    let head = stage.receive_one().await;
    assert_eq!((id(&head).as_str(), head.attempts), ("a1", 2));
    stage.expect_nothing_now().await;
    stage.done(&head).await;
    assert_eq!(stage.next_ids(1).await, ["h1"]);
}

async fn crashed_before_high_priority(mut stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    assert_eq!(stage.next_ids(1).await, ["a1"]);
    stage.publish(vec![strict_high("h1", "a")]).await;
    stage.crash().await;
    stage.keep_order();
    for expected in ["a1", "h1", "a2"] {
        let next = stage.receive_one().await;
        assert_eq!(id(&next), expected);
        stage.done(&next).await;
    }
}
