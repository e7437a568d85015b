//! What goes to a program and comes from it: `docs/rules.md#tree-4`.

use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluicegate_executors::process::{Exit, NotRead, TreeSignal};
use tokio::time::{Instant, timeout};

use crate::stage::{Stage, all, line, within};

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_answered_one_after_the_other() {
    let stage = Stage::new();
    let tree = stage.begun("").await;
    for word in ["one", "two", "three"] {
        within(tree.write(line(word))).await.unwrap();
        let mut said = String::new();
        while !said.contains("\"type\":\"result\"") {
            let piece = within(tree.read()).await.expect("an answer");
            said.push_str(std::str::from_utf8(&piece).unwrap());
        }
        assert!(said.contains(&format!("\"result\":\"{word}\"")), "{said}");
    }
    tree.close_input();
    assert_eq!(all(&*tree).await, "");
    assert_eq!(within(tree.exit()).await, Exit::Code(0));
    within(tree.gone()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_output_is_read_also_after_the_end() {
    let stage = Stage::new();
    // More than a pipe holds, and less: the program ends before its output is read.
    for size in [0, 1, 60_000, 5 << 20] {
        let tree = stage.spawn(stage.prompt(&format!("!flood {size}"))).await;
        if size < 64 << 10 {
            within(tree.gone()).await;
        }
        let output = all(&*tree).await;
        assert_eq!(output.matches('x').count(), size);
        assert!(output.ends_with("}\n"), "{size}");
        assert_eq!(within(tree.exit()).await, Exit::Code(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_descendants_hold_open_ends_soon_after_the_program() {
    let stage = Stage::new();
    for first in ["!daemonize", "!fork 2"] {
        let tree = stage.begun(first).await;
        tree.close_input();
        within(tree.exit()).await;
        let since = Instant::now();
        assert_eq!(all(&*tree).await, "", "{first}");
        let waited = since.elapsed();
        assert!(waited < Duration::from_secs(5), "{first}: {waited:?}");
        assert!(!stage.running().is_empty());
        drop(tree);
        stage.emptied(first).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_given_up_loses_nothing() {
    let stage = Stage::new();
    let tree = stage.spawn(stage.prompt("!sleep 20ms !flood 3MB")).await;
    let mut output = Vec::new();
    loop {
        match timeout(Duration::from_micros(30), tree.read()).await {
            Ok(Some(piece)) => output.extend_from_slice(&piece),
            Ok(None) => break,
            Err(_) => {}
        }
    }
    assert_eq!(output.iter().filter(|&&byte| byte == b'x').count(), 3 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_nobody_reads_holds_the_program_up() {
    let stage = Stage::new();
    let tree = stage.begun("!flood").await;
    // It has filled its pipe when it does not run any more; the memory of this process does not grow with it.
    let blocked = async {
        loop {
            let state = std::fs::read_to_string(format!("/proc/{}/wchan", tree.pid())).unwrap();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", tree.pid())).unwrap();
            if state.contains("pipe") || stat.contains(") S ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(blocked).await;
    tree.signal(TreeSignal::Kill);
    within(tree.gone()).await;
    // A pipe, and what was read with it.
    assert!(all(&*tree).await.len() <= 128 << 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_error_is_kept_up_to_64_kib_and_never_holds_a_program_up() {
    let stage = Stage::new();
    let tree = stage.spawn(stage.prompt("!stderr first !flood-stderr 3MB done")).await;
    assert!(all(&*tree).await.contains("\"result\":\"done\""));
    assert_eq!(within(tree.exit()).await, Exit::Code(0));
    let errors = tree.errors();
    assert!(errors.starts_with("first\neee"));
    assert_eq!(errors.len(), 64 << 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_said_on_standard_error_is_there_when_its_end_is() {
    let stage = Stage::new();
    for _ in 0..20 {
        let tree = stage.spawn(stage.prompt("!stderr why !crash 7")).await;
        assert_eq!(within(tree.exit()).await, Exit::Code(7));
        assert_eq!(tree.errors(), "why\n");
    }
}

/// On one thread the end of a program can be read before anybody looked whether there is something else to read.
#[tokio::test]
async fn it_is_there_on_one_thread_too() {
    let stage = Stage::new();
    for _ in 0..50 {
        let tree = stage.spawn(stage.prompt("!stderr why !crash 7")).await;
        // Long enough for the program to end: nobody looks for what comes meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(10));
        assert_eq!(within(tree.exit()).await, Exit::Code(7));
        assert_eq!(tree.errors(), "why\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_ends_a_program_is_told() {
    let stage = Stage::new();
    for (name, number) in [("SEGV", 11), ("KILL", 9), ("TERM", 15), ("ABRT", 6)] {
        let tree = stage.spawn(stage.prompt(&format!("!signal {name}"))).await;
        assert_eq!(within(tree.exit()).await, Exit::Signal(number), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_to_a_program_that_has_ended_is_an_error() {
    let stage = Stage::new();
    // A descendant holds its input open, and does not read.
    let tree = stage.begun("!fork 1").await;
    let much = Bytes::from(vec![b' '; 1 << 20]);
    kill(Pid::from_raw(i32::try_from(tree.pid()).unwrap()), Signal::SIGSTOP).unwrap();
    let writing = tree.write(much.clone());
    let ending = async {
        kill(Pid::from_raw(i32::try_from(tree.pid()).unwrap()), Signal::SIGKILL).unwrap();
        within(tree.exit()).await
    };
    let (written, exit) = within(async { tokio::join!(writing, ending) }).await;
    assert_eq!((written, exit), (Err(NotRead), Exit::Signal(9)));
    assert_eq!(within(tree.write(much)).await, Err(NotRead));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_more_is_said_after_half_a_line() {
    let stage = Stage::new();
    let tree = stage.begun("!sleep 10ms").await;
    kill(Pid::from_raw(i32::try_from(tree.pid()).unwrap()), Signal::SIGSTOP).unwrap();
    let much = Bytes::from(vec![b' '; 1 << 20]);
    assert!(timeout(Duration::from_millis(50), tree.write(much)).await.is_err());
    assert_eq!(within(tree.write(line("more"))).await, Err(NotRead));
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_input_ends_a_write_that_waits() {
    let stage = Stage::new();
    let tree = stage.begun("").await;
    kill(Pid::from_raw(i32::try_from(tree.pid()).unwrap()), Signal::SIGSTOP).unwrap();
    let writing = tree.write(Bytes::from(vec![b' '; 1 << 20]));
    let closing = async {
        tokio::task::yield_now().await;
        tree.close_input();
    };
    assert_eq!(within(async { tokio::join!(writing, closing) }).await.0, Err(NotRead));
}

/// Also when its end is heard of in the same moment, beside others that keep the runtime busy.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_said_before_its_end_is_there_when_its_end_is() {
    let stage = Stage::new();
    for _ in 0..20 {
        let crashes = (0..10).map(|_| async {
            let tree = stage.spawn(stage.prompt("!stderr alas !crash 3")).await;
            while within(tree.read()).await.is_some() {}
            within(tree.exit()).await;
            tree.errors()
        });
        let flood = stage.spawn(stage.prompt("!flood")).await;
        let told = tokio::select! {
            told = futures_util::future::join_all(crashes) => told,
            () = async { while flood.read().await.is_some() {} } => panic!("it has no end"),
        };
        assert_eq!(told, ["alas\n"; 10]);
    }
}
