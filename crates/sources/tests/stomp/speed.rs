//! How fast it is, for those who ask: `cargo test --release … -- --ignored --nocapture speed`.

use std::time::Duration;

use sluicegate_dispatch::{Ending, Settled, Source};
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use tokio::time::Instant;

use crate::rig::{fresh_name, settings};
use crate::stage::{again, open, publish, receipts, receive, settle_all, within};

#[tokio::test]
#[ignore = "it measures"]
async fn figures() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    const COUNT: usize = 10_000;
    for round in 0..3 {
        let begun = Instant::now();
        for lot in 0..COUNT / 500 {
            publish(&source, (0..500).map(|n| format!("{round}/{lot}/{n}"))).await;
        }
        let published = begun.elapsed();
        let begun = Instant::now();
        let mut left = COUNT;
        while left > 0 {
            let some = within(source.receive(100)).await.unwrap();
            let settled = settle_all(&source, receipts(&some), Ending::Gone).await.unwrap();
            assert!(settled.iter().all(|settled| *settled == Settled::Done));
            left -= some.len();
        }
        let settled = begun.elapsed();
        publish(&source, (0..200).map(|n| format!("{round}/{n}"))).await;
        let some = receive(&source, 200).await;
        let begun = Instant::now();
        settle_all(&source, receipts(&some), again(Duration::from_millis(10), 1)).await.unwrap();
        let back = begun.elapsed();
        let some = receive(&source, 200).await;
        settle_all(&source, receipts(&some), Ending::Gone).await.unwrap();
        let rate = |count: usize, took: Duration| (count as f64 / took.as_secs_f64()) as u64;
        println!(
            "published {}/s, received and settled {}/s, brought back {}/s",
            rate(COUNT, published),
            rate(COUNT, settled),
            rate(200, back)
        );
    }
}
