//! Trees killed in every state, many at once, one after the other.
//!
//! `SLUICEGATE_SOAK=20000` makes it that many.

use std::fs;

use futures_util::StreamExt;
use futures_util::stream;
use sluicegate_executors::process::TreeSignal;
use tokio::time::{Duration, sleep, timeout};

use crate::killed::{ALL, doing};
use crate::stage::{PATIENCE, Stage, within};

const AT_ONCE: usize = 8;
/// More than keepers are kept without a tree.
const MANY: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn trees_killed_in_every_state_leave_nothing() {
    let count =
        std::env::var("SLUICEGATE_SOAK").map_or(2_000, |number| number.parse().expect("a number"));
    let stage = Stage::new();
    let many = stream::iter(0..MANY).map(|_| stage.begun("")).buffer_unordered(MANY);
    drop(many.collect::<Vec<_>>().await);
    stage.emptied("before").await;
    let before = files();
    round(&stage, 0..count).await;
    stage.emptied("after").await;
    let closed = async {
        while files() > before {
            sleep(Duration::from_millis(2)).await;
        }
    };
    let closed = timeout(PATIENCE, closed).await;
    assert!(closed.is_ok(), "{before} files were open, {} are", files());
}

async fn round(stage: &Stage, numbers: std::ops::Range<usize>) {
    stream::iter(numbers)
        .for_each_concurrent(AT_ONCE, |number| async move {
            let what = ALL[number % ALL.len()];
            // Stops all that is tagged, the others' too: not here.
            let what = if what == crate::killed::Doing::Stopped { ALL[5] } else { what };
            let tree = doing(stage, what).await;
            match number / ALL.len() % 3 {
                0 => drop(tree),
                1 => {
                    tree.signal(TreeSignal::Kill);
                    within(tree.gone()).await;
                }
                _ => {
                    tree.signal(TreeSignal::Terminate);
                    tree.signal(TreeSignal::Kill);
                    within(tree.exit()).await;
                }
            }
        })
        .await;
}

fn files() -> usize {
    fs::read_dir("/proc/self/fd").expect("a list of files").count()
}
