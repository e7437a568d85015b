//! What a start through a keeper costs, beside one without. Printed, not judged.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sluicegate_executors::process::Cgroups;

use crate::stage::{Stage, all, within};

const ROUNDS: usize = 200;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_through_a_keeper_beside_one_without() {
    for cgroups in [Cgroups::Off, Cgroups::Auto] {
        beside_one_without(cgroups).await;
    }
}

async fn beside_one_without(cgroups: Cgroups) {
    let stage = Stage::with(cgroups);
    let program = stage.prompt("hello");
    let (mut direct, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let since = Instant::now();
        let mut command = Command::new(&program.command);
        command.args(&program.arguments).env_clear().stdin(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        assert!(command.output().await.expect("it runs").status.success());
        direct.push(since.elapsed());

        let since = Instant::now();
        let tree = stage.spawn(program.clone()).await;
        assert!(all(&*tree).await.contains("hello"));
        within(tree.exit()).await;
        drop(tree);
        kept.push(since.elapsed());
    }
    let (direct, kept) = (median(direct), median(kept));
    let ratio = kept.as_secs_f64() / direct.as_secs_f64();
    println!(
        "cgroups {cgroups:?}, a start: {direct:?} directly, {kept:?} through a keeper: {ratio:.2}"
    );
}
