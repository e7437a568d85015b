//! Visibility Timeout Control.

use std::time::Duration;

use sluicegate_dispatch::{
    DEFAULT_DELAY, FAST_FAIL_DELAY, MAX_DELAY, MIN_DELAY, Ordering, Outcome, Settlement,
    settlement_for,
};
use sluicegate_testkit::scripted::grouped;
use sluicegate_testkit::scripted::rig::{Rig, done_after, pool};

// § The default is 30 seconds.
// § The fast-fail delay is 10 seconds.
// § A delay is clamped to 1 to 43,200 seconds.
#[test]
fn the_delays() {
    let seconds =
        [DEFAULT_DELAY, FAST_FAIL_DELAY, MIN_DELAY, MAX_DELAY].map(|delay| delay.as_secs());
    assert_eq!(seconds, [30, 10, 1, 43_200]);
    for (asked, given) in [(0, 1), (1, 1), (60, 60), (50_000, 43_200)] {
        let throttled = Outcome::Throttled { after: Duration::from_secs(asked), body: None };
        let Settlement::Retry { after, .. } = settlement_for(&throttled, 0) else {
            panic!("a retry")
        };
        assert_eq!(after.as_secs(), given);
    }
}

// § An open breaker sends messages back for the rest of its time, at least a second. #5
#[test]
fn an_open_breaker() {
    for (rest, given) in [(4_200, 4_200), (200, 1_000)] {
        let open = Outcome::BreakerOpen { name: "h".into(), rest: Duration::from_millis(rest) };
        let Settlement::Retry { after, attempts, .. } = settlement_for(&open, 2) else {
            panic!("a retry")
        };
        assert_eq!((after.as_millis(), attempts), (given, 2));
    }
}

// § Setting a delay and nacking are one step, and it is tried again until it works. #1
#[tokio::test(start_paused = true)]
async fn one_step() {
    let rig = Rig::new([pool("A", 1, Ordering::Batch)]).await;
    rig.executor.on("m", [sluicegate_testkit::scripted::rig::fails_for(Some(9))]);
    rig.source.fail_settles(3);
    rig.hand_out([grouped("m", "A", "g")]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["m again 9s failed #1"]);
}

// § What is here is extended at a third of the window, waiting or running, from its receipt on. #12
#[tokio::test(start_paused = true)]
async fn heartbeats() {
    let rig = Rig::new([pool("A", 1, Ordering::Batch)]).await;
    rig.executor.on("runs", [done_after(900_000)]);
    rig.hand_out([grouped("runs", "A", "g"), grouped("waits", "A", "h")]);
    rig.source.until_settled(2).await;
    // 15 minutes, a window of 30 seconds: every 10 seconds.
    assert_eq!(rig.source.extensions(), [("r-runs".to_owned(), 90), ("r-waits".to_owned(), 90)]);
    assert_eq!(rig.facts.of("redelivered").len(), 0);
}
