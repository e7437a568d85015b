//! Many messages, and several receivers at once.

use sluicegate_dispatch::Demand;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::order::keeps_order;
use super::stage::{Stage, id, publication, strict};
use super::{Check, any};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "several receivers never get the same message",
        needs: any,
        run: |stage| Box::pin(several(stage)),
    },
    Check {
        name: "thousands of messages go through, each once",
        needs: any,
        run: |stage| Box::pin(many(stage)),
    },
    Check {
        name: "many keys are kept in order by several receivers, with retries",
        needs: keeps_order,
        run: |stage| Box::pin(many_keys(stage)),
    },
    Check {
        name: "a receive brings plenty while the heads of many keys are settled",
        needs: |abilities| abilities.keeps_order && abilities.selects,
        run: |stage| Box::pin(plenty(stage)),
    },
];

async fn several(stage: Stage) {
    let sent: BTreeSet<String> = (0..300).map(|n| format!("m{n:03}")).collect();
    stage.publish(sent.iter().map(|id| publication(id)).collect()).await;
    let end = Instant::now() + stage.window() / 2;
    let receive = || async {
        let mut seen = Vec::new();
        while Instant::now() < end && seen.len() < 300 {
            let some = stage.source().receive(Demand::any(7)).await.expect("it works");
            if some.is_empty() {
                break;
            }
            stage.all_done(&some).await;
            seen.extend(some.iter().map(id));
        }
        seen
    };
    let seen = join_all([receive(), receive(), receive(), receive()]).await.concat();
    let distinct: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!(distinct.len(), seen.len(), "some came twice");
    assert!(distinct.is_subset(&sent));
    let rest = sent.len() - distinct.len();
    stage.receive(rest).await;
}

async fn many(stage: Stage) {
    let sent: Vec<String> = (0..stage.abilities.many).map(|n| format!("m{n:06}")).collect();
    let publish = async {
        for part in sent.chunks(500) {
            stage.publish(part.iter().map(|id| publication(id)).collect()).await;
        }
    };
    let receive = async {
        let mut seen: Vec<String> = Vec::with_capacity(sent.len());
        let end = Instant::now() + Duration::from_secs(120);
        while seen.len() < sent.len() && Instant::now() < end {
            let some = stage.source().receive(Demand::any(100)).await.expect("it works");
            stage.all_done(&some).await;
            seen.extend(some.iter().map(id));
        }
        seen
    };
    let ((), mut seen) = tokio::join!(publish, receive);
    seen.sort();
    assert!(seen == sent, "{} of {} came", seen.len(), sent.len());
}

async fn many_keys(stage: Stage) {
    const KEYS: usize = 40;
    const EACH: usize = 10;
    stage.keep_order();
    let message =
        |n: usize| strict(&format!("{:02}/{:02}", n % KEYS, n / KEYS), &(n % KEYS).to_string());
    let publish = async {
        for n in (0..KEYS * EACH).step_by(20) {
            stage.publish((n..n + 20).map(message).collect()).await;
        }
    };
    let done: tokio::sync::Mutex<BTreeMap<String, Vec<String>>> = Default::default();
    let end = Instant::now() + Duration::from_secs(120);
    let receive = |receiver: usize| {
        let (done, stage) = (&done, &stage);
        async move {
            let mut round = receiver;
            while Instant::now() < end {
                if done.lock().await.values().map(Vec::len).sum::<usize>() == KEYS * EACH {
                    return;
                }
                for delivery in stage.source().receive(Demand::any(5)).await.expect("it works") {
                    round += 1;
                    match round % 7 {
                        0 => stage.bring_back(&delivery, Duration::from_millis(3)).await,
                        1 => stage.bring_back(&delivery, Duration::ZERO).await,
                        _ => {
                            let id = id(&delivery);
                            let (key, _) = id.split_once('/').expect("a key and a number");
                            done.lock().await.entry(key.to_owned()).or_default().push(id.clone());
                            stage.done(&delivery).await;
                        }
                    }
                }
            }
        }
    };
    tokio::join!(publish, receive(0), receive(1), receive(2));
    let done = done.into_inner();
    for (key, seen) in &done {
        let expected: Vec<String> = (0..EACH).map(|n| format!("{key}/{n:02}")).collect();
        assert_eq!(seen, &expected);
    }
    assert_eq!(done.len(), KEYS);
}

async fn plenty(stage: Stage) {
    stage.keep_order();
    let count = stage.abilities.many;
    let message = |n: usize| strict(&format!("m{n:06}"), &(n % (count / 4)).to_string());
    for first in (0..count).step_by(500) {
        stage.publish((first..count.min(first + 500)).map(message).collect()).await;
    }
    let (mut seen, mut calls) = (0, 0);
    let end = Instant::now() + Duration::from_secs(120);
    while seen < count && Instant::now() < end {
        let some = stage.source().receive(Demand::any(100)).await.expect("it works");
        stage.all_done(&some).await;
        (seen, calls) = (seen + some.len(), calls + 1);
    }
    assert_eq!(seen, count);
    // A half of what was asked for, on average.
    assert!(calls <= count / 50, "{calls} receives for {count} messages");
}
