//! Rate Limiting.

use std::time::Duration;

use sluicegate_dispatch::PoolSettings;
use sluicegate_testkit::scripted::grouped;
use sluicegate_testkit::scripted::rig::Rig;

fn rated(rate: Option<u32>) -> PoolSettings {
    PoolSettings { rate_limit_per_minute: rate, ..PoolSettings::new("A", 60) }
}

async fn flood(rate: u32, seconds: u64) -> Rig {
    let rig = Rig::new([rated(Some(rate))]).await;
    for batch in 0..20 {
        rig.hand_out(
            (0..10).map(|n| grouped(&format!("{batch}-{n}"), "A", &format!("{batch}-{n}"))),
        );
    }
    rig.pass(seconds).await;
    rig
}

// § So many start a minute, refilled continuously; the bucket holds a second's worth, at least one.
#[tokio::test(start_paused = true)]
async fn so_many_a_minute() {
    for (rate, seconds, least, most) in
        [(60, 60, 60, 62), (600, 10, 100, 111), (30, 60, 30, 32), (6, 60, 6, 8)]
    {
        let started = flood(rate, seconds).await.executor.started().len();
        assert!((least..=most).contains(&started), "{rate} a minute: {started} in {seconds} s");
    }
}

// § Waiting messages stay in memory and are not nacked.
// § No attempt is made meanwhile.
#[tokio::test(start_paused = true)]
async fn what_waits_stays() {
    let rig = flood(1, 50).await;
    assert_eq!(rig.sorted(), ["0-0 gone"]);
    assert_eq!(rig.router.in_flight(), 199);
    let waits = rig.router.message("5-5").expect("here");
    let why = waits.why.expect("it waits");
    assert_eq!((why.reason, waits.attempts), ("rate_limited", 0));
    assert!(why.rest.is_some_and(|rest| rest <= Duration::from_secs(10)), "{why:?}");
}

// § A removed limit lets those go that wait, at once.
#[tokio::test(start_paused = true)]
async fn a_removed_limit() {
    let rig = flood(1, 1).await;
    rig.router.set_pool(rated(None)).expect("sound");
    rig.settle_down().await;
    assert_eq!(rig.executor.started().len(), 200);
}

// § A raised limit holds at once.
#[tokio::test(start_paused = true)]
async fn a_raised_limit() {
    let rig = flood(1, 1).await;
    rig.router.set_pool(rated(Some(600))).expect("sound");
    rig.pass(5).await;
    let started = rig.executor.started().len();
    assert!((50..=62).contains(&started), "{started}");
}

// § An added limit holds for those that wait.
#[tokio::test(start_paused = true)]
async fn an_added_limit() {
    let rig = Rig::new([rated(None)]).await;
    rig.executor.otherwise(sluicegate_testkit::scripted::rig::done_after(1_000));
    rig.hand_out((0..200).map(|n| grouped(&format!("m{n}"), "A", &format!("{n}"))));
    rig.settle_down().await;
    assert_eq!(rig.executor.started().len(), 60);
    rig.router.set_pool(rated(Some(60))).expect("sound");
    rig.pass(5).await;
    let started = rig.executor.started().len();
    assert!((64..=67).contains(&started), "{started}");
}
